"""Small integer expressions: which element of a tensor a point of a kernel's iteration space touches.

An expression is a sum `c + Σ k·atom`. An atom is a variable, `e // n`, `e % n`, or an index that the
kernel loads. Every atom has a range, and sums, quotients and remainders are simplified by it: a
reshape and its inverse cancel, and what is left is an address that the compiler can see through.

>>> f = variable("f", 24)
>>> i, j = unflatten(f, (4, 6))
>>> str(i), str(j), flatten((i, j), (4, 6)) == f
('f//6', 'f%6', True)

Quotients are of mathematics here and of C in a kernel. These differ for negative numbers only, so the
operand of every quotient and remainder is kept ≥ 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from genesis.ir.size_divisors import gcd

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(frozen=True, eq=False)
class Atom:
    """What a sum is made of. Atoms are equal when their `key`s are.

    Attributes:
        kind: "var", "div", "mod" or "loaded".
        name: the variable's; for a loaded index a text that orders it among others.
        inner, number: the operands of `inner // number` and `inner % number`.
        low, high: the range, both ends included.
        payload: what a loaded index stands for (the kernel builder's business).
    """

    kind: str
    name: str
    low: int
    high: int
    inner: Expr | None = None
    number: int = 0
    payload: Hashable = None

    @cached_property
    def key(self) -> tuple:
        """Identity."""
        return (self.kind, self.name, self.number, self.inner, self.payload, self.low, self.high)

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    @cached_property
    def text(self) -> str:
        """The atom as it prints; also what atoms are sorted by."""
        if self.inner is None:
            return self.name
        inside = str(self.inner)
        return f"{inside if self.inner.is_atom else f'({inside})'}{'//' if self.kind == 'div' else '%'}{self.number}"

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self._hash == other._hash and self.key == other.key)


@dataclass(frozen=True, eq=False)
class Expr:
    """`constant + Σ coefficient · atom`, the terms sorted by the atoms' text."""

    constant: int
    terms: tuple[tuple[Atom, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash((self.constant, self.terms))

    @cached_property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value."""
        low = high = self.constant
        for atom, k in self.terms:
            low += k * (atom.low if k > 0 else atom.high)
            high += k * (atom.high if k > 0 else atom.low)
        return low, high

    @property
    def is_atom(self) -> bool:
        """True for a sum that is one atom or a constant."""
        return not self.terms or (self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1)

    @property
    def is_constant(self) -> bool:
        """True when no atom is left."""
        return not self.terms

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expr) and self._hash == other._hash
                                 and self.constant == other.constant and self.terms == other.terms)

    def __str__(self) -> str:
        parts = [atom.text if k == 1 else f"{atom.text}*{k}" for atom, k in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)

    __repr__ = __str__


ZERO = Expr(0, ())


def constant(value: int) -> Expr:
    """The number `value`."""
    return Expr(value, ())


def variable(name: str, size: int) -> Expr:
    """A coordinate from 0 to size - 1. One with a single value is that value."""
    return ZERO if size <= 1 else Expr(0, ((Atom("var", name, 0, size - 1), 1),))


def loaded(name: str, size: int, payload: Hashable) -> Expr:
    """An index from 0 to size - 1 that the kernel reads from memory or computes."""
    return ZERO if size <= 1 else Expr(0, ((Atom("loaded", name, 0, size - 1, payload=payload), 1),))


def add(*parts: Expr) -> Expr:
    """The sum."""
    sums: dict[Atom, int] = {}
    total = 0
    for part in parts:
        total += part.constant
        for atom, k in part.terms:
            sums[atom] = sums.get(atom, 0) + k
    return _sum(total, sums)


def scale(e: Expr, factor: int) -> Expr:
    """e · factor."""
    if factor == 1:
        return e
    return ZERO if factor == 0 else Expr(e.constant * factor, tuple((atom, k * factor) for atom, k in e.terms))


def offset(e: Expr, by: int) -> Expr:
    """e + by."""
    return Expr(e.constant + by, e.terms) if by else e


def _sum(total: int, sums: dict[Atom, int]) -> Expr:
    """A sum in normal form; quotients and remainders of one expression rejoin."""
    while True:
        for atom, k in sums.items():
            if atom.kind == "mod" and k and _rejoin(atom, k, sums):
                break
        else:
            break
        extra = sums.pop(_CONSTANT, 0)
        total += extra
    terms = [(atom, k) for atom, k in sums.items() if k]
    if len(terms) > 1:
        terms.sort(key=lambda term: term[0].text)
    return Expr(total, tuple(terms))


_CONSTANT = Atom("constant", "", 1, 1)


def _rejoin(mod: Atom, k: int, sums: dict[Atom, int]) -> bool:
    """k·(e % n) + k·n·(e // n) → k·e, and with (e // n) % m or, what is the same, (e % (n·m)) // n → k·(e % (n·m))."""
    inner, n = mod.inner, mod.number
    assert inner is not None
    quotient = floordiv(inner, n)
    if len(quotient.terms) == 1 and quotient.constant == 0 and quotient.terms[0][1] == 1:
        div = quotient.terms[0][0]
        if sums.get(div) == k * n:
            del sums[mod], sums[div]
            _accumulate(sums, inner, k)
            return True
    for other, factor in sums.items():
        if other.kind == "mod" and factor == k * n and other.inner == quotient:
            del sums[mod], sums[other]
            _accumulate(sums, mod_(inner, n * other.number), k)
            return True
        if other.kind == "div" and factor == k * n and other.number == n and _is_mod(other.inner, inner, n):
            del sums[mod], sums[other]
            assert other.inner is not None
            _accumulate(sums, other.inner, k)
            return True
    return False


def _is_mod(e: Expr | None, inner: Expr, n: int) -> bool:
    """Is e the remainder of an expression by a multiple of n?"""
    if e is None or not e.is_atom or not e.terms:
        return False
    atom = e.terms[0][0]
    return atom.kind == "mod" and atom.inner == inner and gcd(atom.number, n) == n


def _accumulate(sums: dict[Atom, int], e: Expr, k: int) -> None:
    for atom, factor in e.terms:
        sums[atom] = sums.get(atom, 0) + k * factor
    if e.constant:
        sums[_CONSTANT] = sums.get(_CONSTANT, 0) + k * e.constant


def _split(e: Expr, n: int) -> tuple[Expr, Expr]:
    """(q, r) with e = n·q + r: the terms that n divides, and the rest with the least constant that keeps it ≥ 0."""
    whole = tuple((atom, k // n) for atom, k in e.terms if gcd(k, n) == n)
    rest = Expr(e.constant % n, tuple((atom, k) for atom, k in e.terms if gcd(k, n) != n))
    more = -(rest.range[0] // n) if rest.range[0] < 0 else 0
    return Expr(e.constant // n - more, whole), offset(rest, n * more)


def _coarse(e: Expr, n: int) -> tuple[int, Expr, Expr]:
    """(g, a, b) with e = g·a + b, 0 ≤ b < g and g a divisor of n; g as large as possible, 1 if need be."""
    for g in sorted({gcd(n, k) for _, k in e.terms} - {1}, reverse=True):
        b = Expr(e.constant % g, tuple((atom, k) for atom, k in e.terms if gcd(k, g) != g))
        if b.range[0] >= 0 and b.range[1] < g:
            return g, Expr(e.constant // g, tuple((atom, k // g) for atom, k in e.terms if gcd(k, g) == g)), b
    return 1, e, ZERO


def floordiv(e: Expr, n: int) -> Expr:
    """floor(e / n), n ≥ 1."""
    if n == 1:
        return e
    q, r = _split(e, n)
    low, high = r.range
    if low // n == high // n:
        return offset(q, low // n)
    g, a, _ = _coarse(r, n)
    if g > 1:  # floor((g·a + b) / (g·m)) = floor(a / m) for 0 ≤ b < g
        return add(q, floordiv(a, n // g))
    if r.constant == 0 and len(r.terms) == 1 and r.terms[0][1] == 1 and r.terms[0][0].kind == "div":
        inner = r.terms[0][0]
        assert inner.inner is not None
        return add(q, floordiv(inner.inner, inner.number * n))
    return add(q, Expr(0, ((Atom("div", "", low // n, high // n, r, n), 1),)))


def mod_(e: Expr, n: int) -> Expr:
    """e - n·floor(e / n), n ≥ 1."""
    if n == 1:
        return ZERO
    _, r = _split(e, n)
    low, high = r.range
    if low // n == high // n:
        return offset(r, -n * (low // n))
    g, a, b = _coarse(r, n)
    if g > 1:
        return add(scale(mod_(a, n // g), g), b)
    if r.constant == 0 and len(r.terms) == 1 and r.terms[0][1] == 1:
        atom = r.terms[0][0]
        if atom.kind == "mod" and atom.number % n == 0:
            assert atom.inner is not None
            return mod_(atom.inner, n)
    return Expr(0, ((Atom("mod", "", 0, n - 1, r, n), 1),))


def flatten(coordinates: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The row-major position of a point of a shape."""
    parts, stride = [], 1
    for coordinate, size in zip(reversed(coordinates), reversed(shape), strict=True):
        parts.append(scale(coordinate, stride))
        stride *= max(size, 1)
    return add(*parts) if parts else ZERO


def unflatten(position: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
    """The point of a shape at a row-major position."""
    result, stride = [], 1
    for size in reversed(shape):
        result.append(mod_(floordiv(position, stride), max(size, 1)))
        stride *= max(size, 1)
    return tuple(reversed(result))


def atoms(expressions: Iterable[Expr]) -> Iterable[Atom]:
    """Every variable and loaded index in the expressions, once for each place."""
    for e in expressions:
        for atom, _ in e.terms:
            if atom.inner is None:
                yield atom
            else:
                yield from atoms((atom.inner,))


def replaced_by(e: Expr, position: Expr) -> Expr:
    """The expression of one variable with another expression in its place.

    >>> f = variable("f", 24)
    >>> str(replaced_by(add(floordiv(f, 6), scale(mod_(f, 6), 4)), add(scale(variable("i", 4), 6), variable("j", 6))))
    'i + j*4'
    """
    parts = [constant(e.constant)]
    for atom, k in e.terms:
        if atom.inner is None:
            parts.append(scale(position, k))
        else:
            inner = replaced_by(atom.inner, position)
            parts.append(scale(floordiv(inner, atom.number) if atom.kind == "div" else mod_(inner, atom.number), k))
    return add(*parts)


@dataclass(frozen=True)
class Bound:
    """The predicate low ≤ e < high."""

    e: Expr
    low: int
    high: int

    @property
    def always(self) -> bool:
        """True when the range of e proves it."""
        return self.low <= self.e.range[0] and self.e.range[1] < self.high


def narrowed(e: Expr, bounds: Iterable[Bound]) -> Expr:
    """The expression where the bounds hold: atoms that they bound have a smaller range, and simplify further.

    >>> row, r = variable("x", 16), variable("r", 128)
    >>> e = add(scale(row, 128), offset(r, -64))
    >>> str(floordiv(narrowed(e, [Bound(offset(r, -64), 0, 64)]), 128)), str(floordiv(e, 128))
    ('x', '(r + 64)//128 + x + -1')
    """
    ranges = _ranges(bounds)
    return _within(e, ranges) if ranges else e


def share_within(bounds: Iterable[Bound]) -> float:
    """Which part of a space's points the bounds hold at, about: 0.5 for one half of a row."""
    share = 1.0
    for atom, (low, high) in _ranges(bounds).items():
        share *= (high - low + 1) / (atom.high - atom.low + 1)
    return share


def _ranges(bounds: Iterable[Bound]) -> dict[Atom, tuple[int, int]]:
    """What bounds say of single atoms: the range of each, where it is smaller than the atom's own and not empty.

    Not of symbolic sizes: comparing those would make guards.
    """
    found: dict[Atom, tuple[int, int]] = {}
    for bound in bounds:
        if len(bound.e.terms) == 1 and bound.e.terms[0][1] == 1:
            atom = bound.e.terms[0][0]
            if any(n.__class__ is not int for n in (atom.low, atom.high, bound.low, bound.high, bound.e.constant)):
                continue
            low, high = found.get(atom, (atom.low, atom.high))
            low, high = max(low, bound.low - bound.e.constant), min(high, bound.high - 1 - bound.e.constant)
            if low <= high:
                found[atom] = low, high
    return {atom: limits for atom, limits in found.items() if limits != (atom.low, atom.high)}


def _within(e: Expr, ranges: dict[Atom, tuple[int, int]]) -> Expr:
    parts = [constant(e.constant)]
    for atom, k in e.terms:
        if atom in ranges:
            low, high = ranges[atom]
            one = constant(low) if low == high else Expr(0, ((replace(atom, low=low, high=high), 1),))
        elif atom.inner is None:
            one = Expr(0, ((atom, 1),))
        else:
            inner = _within(atom.inner, ranges)
            one = floordiv(inner, atom.number) if atom.kind == "div" else mod_(inner, atom.number)
        parts.append(scale(one, k))
    return add(*parts)
