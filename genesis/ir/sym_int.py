"""Symbolic sizes: a plan for one batch size becomes a plan for all of them.

Inside a `Trace` the batch size is a `SymInt`: a polynomial of symbols that computes like an int and knows its value in
the run at hand. Passes and code generation work on sizes as they always do. What they ask of one (is it larger than
1024, does 16 divide it) is answered by that value, and noted as a *guard*: what was made holds for all sizes that
give the same answers. What they make of it (an offset, a grid, a number of a kernel) stays a formula.

    with Trace(B=8) as trace:
        rows = trace.symbol("B") * 1024
        rows > 4096             # True; guard B·1024 - 4096 > 0
        rows % 16 == 0          # True for every B: no guard
        rows + 5                # SymInt: 5 + 1024·B

A `SymInt` is no int, so that nothing takes its value by accident: `range(size)`, `int(size)` and C functions ask for
the number (`__index__`), which *specializes* the plan: a guard says that the size must be this number. So a plan is
never wrong, only less general. Code that only weighs costs asks for a `hint`, which adds no guard.

Written into text, a size is a word (`size_3_`) that code generation turns into an argument of the kernel.
"""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeGuard

Terms = tuple[tuple[tuple[int, ...], int], ...]
"""A polynomial: (numbers of the atoms that are multiplied, coefficient), sorted. () is the constant's."""

Quantity: TypeAlias = "int | float | SymInt"
"""A size, a number, or what is computed of them."""

Atom = tuple[str, Any, Any]
"""("symbol", its name, None), or (operator, left, right)."""

WORD: Final = re.compile(r"\bsize_(\d+)_")
"""How a `SymInt` is written in a kernel's text; the group is its number in `Trace.sizes`."""

HINT_RANGE: Final = 4
"""`guarded_hint` holds for sizes up to this factor away: beyond it other block sizes may be better."""

LEAST: Final = 2
"""The smallest value of a symbol: sizes 0 and 1 change what an op means (no elements, broadcasting)."""


class Trace:
    """What is known of the symbols while a program is compiled.

    Args:
        values: symbol → its value in the run at hand, at least `LEAST`.

    Attributes:
        atoms: what polynomials are made of: ("symbol", name), or (operator, left, right) of sizes and numbers.
        sizes: every size that was met, by the number in its word.
        guards: (comparison with 0, size), each once.
        specializations: "file:line" of the code that asked for a plain number.
        noting: whether answers become guards.
    """

    def __init__(self, **values: int):
        self.atoms: list[Atom] = []
        self.atom_values: list[int] = []
        self.atom_least: list[int | None] = []  # None: it may be negative
        self.sizes: list[SymInt] = []
        self.guards: dict[tuple[str, SymInt], None] = {}
        self.specializations: list[str] = []
        self.noting = True
        self._made: list[SymInt | int] = []  # sizes and atoms, each after what it is made of
        self._known: dict[Terms, SymInt] = {}
        self._atom_of: dict[tuple, int] = {}
        self._memo: dict[tuple, Quantity] = {}
        self._answers: dict[tuple, bool] = {}
        self._symbols = {name: self._atom(("symbol", name, None), value, LEAST) for name, value in values.items()}
        for name, value in values.items():
            if value < LEAST:
                raise ValueError(f"{name} = {value} cannot be symbolic: sizes below {LEAST} are compiled by themselves")

    def __enter__(self) -> Trace:
        _active.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _active.pop()
        self._memo.clear()
        self._answers.clear()

    @property
    def values(self) -> dict[str, int]:
        """The symbols' values in the run at hand."""
        return {name: self.atom_values[size.terms[0][0][0]] for name, size in self._symbols.items()}

    def symbol(self, name: str) -> SymInt:
        """The size with this name."""
        return self._symbols[name]

    def set_values(self, **values: int) -> None:
        """Change the symbols' values: later answers are about these."""
        self._memo.clear()
        self._answers.clear()
        for made in self._made:
            if isinstance(made, SymInt):
                made.value = self._value(made.terms)
            else:
                kind, a, b = self.atoms[made]
                self.atom_values[made] = values[a] if kind == "symbol" else DIVISIONS[kind](value_of(a), value_of(b))

    def _value(self, terms: Terms) -> int:
        total = 0
        for atoms, k in terms:
            for atom in atoms:
                k = k * self.atom_values[atom]
            total = total + k
        return total

    def make(self, terms: Terms) -> Quantity:
        """The size with these terms; a number when it is constant."""
        if not terms:
            return 0
        if len(terms) == 1 and terms[0][0] == ():
            return terms[0][1]
        return self._size(terms)

    def _size(self, terms: Terms) -> SymInt:
        found = self._known.get(terms)
        if found is None:
            found = self._known[terms] = SymInt(self, terms, self._value(terms), len(self.sizes))
            self.sizes.append(found)
            self._made.append(found)
        return found

    def _atom(self, key: Atom, value: int, least: int | None = 0) -> SymInt:
        number = self._atom_of.get(key)
        if number is None:
            number = self._atom_of[key] = len(self.atoms)
            self.atoms.append(key)
            self.atom_values.append(value)
            self.atom_least.append(least)
            self._made.append(number)
        return self._size((((number,), 1),))

    # Arithmetic: memoized, because passes ask the same again and again.

    def compute(self, name: str, a: Quantity, b: Quantity) -> Quantity:
        """a + b, a * b, a // b, a % b or a / b, where at least one is a size."""
        key = (name, a, b, a.__class__, b.__class__)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = _RULES[name](self, a, b)
        return found

    def add(self, a: Quantity, b: Quantity) -> Quantity:
        sums = dict(_terms(a))
        for atoms, k in _terms(b):
            sums[atoms] = sums.get(atoms, 0) + k
        return self.make(_sorted(sums))

    def multiply(self, a: Quantity, b: Quantity) -> Quantity:
        sums: dict[tuple[int, ...], int] = {}
        for x, k in _terms(a):
            for y, m in _terms(b):
                atoms = tuple(sorted(x + y))
                sums[atoms] = sums.get(atoms, 0) + k * m
        return self.make(_sorted(sums))

    def divide(self, a: Quantity, b: Quantity) -> tuple[Quantity, Quantity]:
        """(q, r) with a = q·b + r, as much of a as possible in q; both by their terms."""
        if b == 0:
            raise ZeroDivisionError("a size is divided by 0")
        if isinstance(b, SymInt) and len(b.terms) > 1:
            return self._divide_by_sum(a, b)
        ((below, n),) = _terms(b)
        whole: dict[tuple[int, ...], int] = {}
        rest: dict[tuple[int, ...], int] = {}
        for atoms, k in _terms(a):
            left = _without(atoms, below)
            if left is None or k % n:
                rest[atoms] = k
            else:
                whole[left] = k // n
        return self.make(_sorted(whole)), self.make(_sorted(rest))

    def _divide_by_sum(self, a: Quantity, b: SymInt) -> tuple[Quantity, Quantity]:
        if isinstance(a, SymInt):
            lead, k = b.terms[-1]
            for atoms, m in a.terms:
                left = _without(atoms, lead)
                if left is not None and m % k == 0:
                    factor = self.make(((left, m // k),))
                    if a - b * factor == 0:
                        return factor, 0
        return 0, a

    def floordiv(self, a: Quantity, b: Quantity) -> Quantity:
        q, r = self.divide(a, b)
        if r.__class__ is int and b.__class__ is int:
            return q + r // b
        turns = self._turns(r, b)
        if turns is not None:
            return q + turns
        return q + self._divided("//", r, b)

    def modulo(self, a: Quantity, b: Quantity) -> Quantity:
        _, r = self.divide(a, b)
        if r.__class__ is int and b.__class__ is int:
            return r % b
        turns = self._turns(r, b)
        if turns is not None:
            return r - turns * b
        return self._divided("%", r, b)

    def _divided(self, kind: str, a: Quantity, b: Quantity) -> Quantity:
        known = kind == "%" or (self._sign(a) == 1 if isinstance(a, SymInt) else a >= 0)
        return self._atom((kind, a, b), DIVISIONS[kind](value_of(a), value_of(b)), 0 if known else None)

    def _turns(self, r: Quantity, b: Quantity) -> int | None:
        """r // b of a constant r where that is 0 or -1, which is noted; None elsewhere."""
        if isinstance(r, SymInt):
            return None
        turns = value_of(r) // value_of(b)
        if turns not in (0, -1):
            return None
        return turns if bool(r >= turns * b) and bool(r < (turns + 1) * b) else None

    def truediv(self, a: Quantity, b: Quantity) -> Quantity:
        q, r = self.divide(a, b)
        if r.__class__ is int and r == 0:
            return q
        back, rest = self.divide(b, a)
        if back.__class__ is int and rest.__class__ is int and rest == 0:
            return 1 / back
        return self._divided("/", a, b)

    # Questions

    def divides(self, number: int, size: Quantity) -> bool:
        """Is the size a multiple? Asked of the remainder as it is: `size % number` would first say how small it is."""
        _, rest = self.divide(size, number)
        return rest % number == 0 if rest.__class__ is int else self.compare("==", self._divided("%", rest, number), 0)

    def compare(self, name: str, a: Quantity, b: Quantity) -> bool:
        """The answer for the values at hand, noted unless it is the same for all."""
        key = (name, a, b, a.__class__, b.__class__)
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = self._compare(name, a, b)
        return found

    def _compare(self, name: str, a: Quantity, b: Quantity) -> bool:
        difference = a - b
        if not isinstance(difference, SymInt):
            return bool(COMPARISONS[name](difference, 0))
        answer = bool(COMPARISONS[name](difference.value, 0))
        if not self.noting:
            return answer
        sign = self._sign(difference)
        if sign is not None:  # for every value of the symbols
            return bool(COMPARISONS[name](sign, 0))
        self.guards[name if answer else _OPPOSITE[name], difference] = None
        return answer

    def _sign(self, size: SymInt) -> int | None:
        """1 or -1 when the size is positive or negative for all values, None when that depends on them."""
        for sign in (1, -1):
            least = 0
            for atoms, k in size.terms:
                part = k * sign
                least_of = [self.atom_least[atom] for atom in atoms]
                if atoms and (part < 0 or None in least_of):
                    break
                for atom_least in least_of:
                    assert atom_least is not None
                    part = part * atom_least
                least += part
            else:
                if least > 0:
                    return sign
        return None

    def specialize(self, size: SymInt) -> int:
        """The size's value, which a guard demands from now on."""
        if self.noting:
            difference = size - size.value
            assert isinstance(difference, SymInt)
            self.guards["==", difference] = None
        frame = sys._getframe(2)
        self.specializations.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return size.value


class SymInt:
    """A size that depends on a trace's symbols. Equal polynomials of a trace are one object."""

    __slots__ = ("number", "terms", "trace", "value")

    def __init__(self, trace: Trace, terms: Terms, value: int, number: int):
        self.trace, self.terms, self.value, self.number = trace, terms, value, number

    __hash__ = object.__hash__

    def __add__(self, other: Quantity) -> Quantity:
        return self.trace.compute("+", self, other) if _fits(other) else NotImplemented

    def __radd__(self, other: Quantity) -> Quantity:
        return self.trace.compute("+", self, other) if _fits(other) else NotImplemented

    def __mul__(self, other: Quantity) -> Quantity:
        return self.trace.compute("*", self, other) if _fits(other) else NotImplemented

    def __rmul__(self, other: Quantity) -> Quantity:
        return self.trace.compute("*", self, other) if _fits(other) else NotImplemented

    def __neg__(self) -> Quantity:
        return self.trace.compute("*", self, -1)

    def __pos__(self) -> Quantity:
        return self

    def __sub__(self, other: Quantity) -> Quantity:
        return self.trace.compute("+", self, -other) if _fits(other) else NotImplemented

    def __rsub__(self, other: Quantity) -> Quantity:
        return self.trace.compute("+", -self, other) if _fits(other) else NotImplemented

    def __floordiv__(self, other: Quantity) -> Quantity:
        return self.trace.compute("//", self, other) if _fits(other) else NotImplemented

    def __rfloordiv__(self, other: Quantity) -> Quantity:
        return self.trace.compute("//", other, self) if _fits(other) else NotImplemented

    def __mod__(self, other: Quantity) -> Quantity:
        return self.trace.compute("%", self, other) if _fits(other) else NotImplemented

    def __rmod__(self, other: Quantity) -> Quantity:
        return self.trace.compute("%", other, self) if _fits(other) else NotImplemented

    def __truediv__(self, other: Quantity) -> Quantity:
        return self.trace.compute("/", self, other) if _fits(other) else NotImplemented

    def __rtruediv__(self, other: Quantity) -> Quantity:
        return self.trace.compute("/", other, self) if _fits(other) else NotImplemented

    def __pow__(self, power: int) -> Quantity:
        result: Quantity = 1
        for _ in range(power):
            result = result * self
        return result

    def __eq__(self, other: object) -> bool:
        return self is other or (_fits(other) and self.trace.compare("==", self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Quantity) -> bool:
        return self.trace.compare("<", self, other) if _fits(other) else NotImplemented

    def __le__(self, other: Quantity) -> bool:
        return self.trace.compare("<=", self, other) if _fits(other) else NotImplemented

    def __gt__(self, other: Quantity) -> bool:
        return self.trace.compare(">", self, other) if _fits(other) else NotImplemented

    def __ge__(self, other: Quantity) -> bool:
        return self.trace.compare(">=", self, other) if _fits(other) else NotImplemented

    def __bool__(self) -> bool:
        return self.trace.compare("!=", self, 0)

    def __abs__(self) -> Quantity:
        return self if self >= 0 else -self

    def __index__(self) -> int:
        return self.trace.specialize(self)

    def __int__(self) -> int:
        return int(self.trace.specialize(self))

    def __float__(self) -> float:
        return float(self.trace.specialize(self))

    def bit_length(self) -> int:
        """As of an int: the guards say between which powers of two the size lies."""
        bits = 0
        while self >= 1 << bits:
            bits += 1
        return bits

    def __str__(self) -> str:
        return f"size_{self.number}_"

    def __repr__(self) -> str:
        return f"<{formula(self)} = {self.value}>"


def guarded_hint(size: Quantity) -> Any:
    """A size as a plain number for a choice of block sizes; guards say that it is right to a factor of `HINT_RANGE`."""
    if isinstance(size, SymInt):
        value = size.value
        size.trace.compare("<=", size, HINT_RANGE * value)
        size.trace.compare(">=", size * HINT_RANGE, value)
        return value
    return size


def real(count: Quantity) -> Any:
    """A count in a formula of floats: a float, or a `SymInt`, which the kernel converts."""
    return count if isinstance(count, SymInt) else float(count)


def is_multiple(size: Quantity, number: int) -> bool:
    """Does the number divide the size?"""
    if not isinstance(size, SymInt):
        return size % number == 0
    return size.trace.divides(number, size)


def is_int_or_sym(value: object) -> bool:
    """Whether a value can be a tensor's size: an int or a `SymInt`."""
    return value.__class__ is int or value.__class__ is SymInt


def value_of(size: Quantity) -> Any:
    """The number that a size is in the run at hand."""
    return size.value if size.__class__ is SymInt else size


hint: Final = value_of
"""A size as a plain number for weighing costs, without a guard: what it decides must be correct for every size."""


def gcd(a: Quantity, b: Quantity) -> Any:
    """A common divisor of two sizes, whatever the symbols are: the greatest that their terms show.

    >>> with Trace(B=8) as trace:
    ...     gcd(trace.symbol("B") * 96, 64)
    32
    """
    if a.__class__ is int and b.__class__ is int:
        return math.gcd(a, b)
    terms = (*_terms(a), *_terms(b))
    common = list(terms[0][0])
    for atoms, _ in terms[1:]:
        common = [atom for atom in common if atom in atoms]  # a symbol's square counts once at the least
    return _trace_of(a, b).make(((tuple(sorted(set(common))), math.gcd(*(k for _, k in terms))),))


def tracing() -> Trace | None:
    """The trace that is active."""
    return _active[-1] if _active else None


def formula(size: Quantity) -> str:
    """The size as text, for people.

    >>> with Trace(B=8) as trace:
    ...     formula(trace.symbol("B") * 1024 // 3 + 5)
    '5 + B*1024//3'
    """
    if not isinstance(size, SymInt):
        return str(size)
    parts = []
    for atoms, k in size.terms:
        factors = [_atom_text(size.trace.atoms[atom]) for atom in atoms]
        parts.append("*".join([*factors, *([str(k)] if k != 1 or not factors else [])]))
    return " + ".join(parts)


def _atom_text(atom: Atom) -> str:
    kind, a, b = atom
    return a if kind == "symbol" else f"{formula(a)}{kind}{formula(b)}"


_active: list[Trace] = []

_RULES: Final[dict[str, Callable[[Trace, Quantity, Quantity], Quantity]]] = {
    "+": Trace.add, "*": Trace.multiply, "//": Trace.floordiv, "%": Trace.modulo, "/": Trace.truediv}

DIVISIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "//": operator.floordiv, "%": operator.mod, "/": operator.truediv}
"""The operators that atoms are made with."""

COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt}
"""The operators that guards are made with."""

_OPPOSITE: Final = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}


def _fits(x: object) -> TypeGuard[Quantity]:
    kind = x.__class__
    return kind is int or kind is SymInt or kind is float or kind is bool


def _trace_of(a: Quantity, b: Quantity) -> Trace:
    sized = a if isinstance(a, SymInt) else b
    assert isinstance(sized, SymInt)
    return sized.trace


def _terms(x: Quantity) -> Terms:
    if isinstance(x, SymInt):
        return x.terms
    return (((), x),) if x else ()  # type: ignore[return-value]  # a float, where one is a factor


def _sorted(sums: dict[tuple[int, ...], int]) -> Terms:
    return tuple(sorted([(atoms, k) for atoms, k in sums.items() if k]))


def _without(atoms: tuple[int, ...], factors: tuple[int, ...]) -> tuple[int, ...] | None:
    """The product of atoms divided by the product of factors, None if it is none."""
    left = list(atoms)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)
