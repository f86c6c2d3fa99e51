"""Symbolic sizes: a plan for one size becomes a plan for all sizes of its class.

Inside a `Trace` a size that may change is a `SymInt`: a polynomial of symbols that computes like an int and knows its
value in the run at hand. Each symbol has a class (`size_class.py`): a range, and whether 16 divides it. Passes and code
generation work on sizes as they always do. What they ask of one is answered by the ranges where these decide it, else
by the value, and then noted as a *guard*: what was made holds for all sizes that give the same answers. What they make
of it (an offset, a grid, a number of a kernel) stays a formula.

    with Trace(B=8) as trace:           # a class: 2 to 15
        rows = trace.symbol("B") * 1024
        rows > 10000            # False; guard B·1024 - 10000 <= 0
        rows > 1024             # True for every B of the class: no guard
        rows % 16 == 0          # True for every B: no guard
        rows + 5                # SymInt: 5 + 1024·B

Two runs of the compiler over one program whose symbols have the same classes and whose guards hold for each other's
values get the same answers, so they make the same plan: which of the sizes came first does not show. So nobody may act
on `SymInt.value` itself. Code that only weighs costs asks for a `hint`, code that needs room for `most`: both follow
from the class alone and add no guard.

A `SymInt` is no int, so that nothing takes its value by accident: `range(size)`, `int(size)` and C functions ask for
the number (`__index__`), which *specializes* the plan: a guard says that the size must be this number. So a plan is
never wrong, only less general.

Written into text, a size is a word (`size_3_`) that code generation turns into an argument of the kernel.
"""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from genesis.ir.size_class import LEAST, SizeClass, class_of

Terms = tuple[tuple[tuple[int, ...], Any], ...]
"""A polynomial: (numbers of the atoms that are multiplied, coefficient), sorted. () is the constant's."""

WORD: Final = re.compile(r"\bsize_(\d+)_")
"""How a `SymInt` is written in a kernel's text; the group is its number in `Trace.sizes`."""

Range = tuple[Any, Any]
"""(least, most) of a size over all values that its symbols' classes admit; None where there is no such bound."""


class Trace:
    """What is known of the symbols while a program is compiled.

    Args:
        values: symbol → its value in the run at hand, at least `LEAST`.

    Attributes:
        classes: symbol → its class, which the value at hand is in, and every other that a guard is to hold for.
        literals: symbols that kernels name by their value: the plan serves this value alone, though it was made as for
            all.
        atoms: what polynomials are made of: ("symbol", name), ("sixteenth", name) where the class is of multiples of
            16, (operator, left, right) of sizes and numbers, or ("is", size) for one taken as a whole (`one_factor`).
        sizes: every size that was met, by the number in its word.
        guards: (comparison with 0, size), each once.
        specializations: "file:line" of the code that asked for a plain number.
        noting: whether answers become guards.
    """

    def __init__(self, **values: int):
        self.classes: dict[str, SizeClass] = {}
        self.literals: frozenset[str] = frozenset()
        self.atoms: list[tuple[str, Any, Any]] = []
        self.atom_values: list[Any] = []
        self._atom_range: list[Range] = []
        self._atom_hint: list[Any] = []
        self.sizes: list[SymInt] = []
        self.guards: dict[tuple[str, SymInt], None] = {}
        self.specializations: list[str] = []
        self.noting = True
        self._made: list[SymInt | int] = []  # sizes and atoms, each after what it is made of
        self._known: dict[Terms, SymInt] = {}
        self._atom_of: dict[tuple, int] = {}
        self._memo: dict[tuple, Any] = {}
        self._symbols = {name: self._symbol(name, value) for name, value in values.items()}

    def _symbol(self, name: str, value: int) -> Any:
        if value < LEAST:
            raise ValueError(f"{name} = {value} cannot be symbolic: sizes below {LEAST} are compiled by themselves")
        found = self.classes[name] = class_of(value)
        if not found.sixteens:
            return self._atom(("symbol", name, None), value, (found.least, found.most), found.typical)
        return 16 * self._atom(("sixteenth", name, None), value // 16, (found.least // 16, found.most // 16),
                               found.typical // 16)

    def __enter__(self) -> Trace:
        _active.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _active.pop()
        self._memo.clear()

    @property
    def values(self) -> dict[str, int]:
        """The symbols' values in the run at hand."""
        return {name: size.value for name, size in self._symbols.items()}

    def symbol(self, name: str) -> SymInt:
        """The size with this name."""
        return self._symbols[name]

    def set_values(self, **values: int) -> None:
        """Change the symbols' values: later answers are about these."""
        self._memo.clear()
        for made in self._made:
            if isinstance(made, SymInt):
                made.value = self._value(made.terms)
            else:
                kind, a, b = self.atoms[made]
                self.atom_values[made] = SYMBOLS[kind](values[a]) if kind in SYMBOLS else (
                    a.value if kind == "is" else DIVISIONS[kind](value_of(a), value_of(b)))

    def _value(self, terms: Terms) -> Any:
        total: Any = 0
        for atoms, k in terms:
            for atom in atoms:
                k = k * self.atom_values[atom]
            total = total + k
        return total

    def make(self, terms: Terms) -> Any:
        """The size with these terms; a number when it is constant."""
        if not terms:
            return 0
        if len(terms) == 1 and terms[0][0] == ():
            return terms[0][1]
        found = self._known.get(terms)
        if found is None:
            hint = sum(k * math.prod([self._atom_hint[atom] for atom in atoms]) for atoms, k in terms)
            found = self._known[terms] = SymInt(self, terms, self._value(terms), len(self.sizes), hint)
            self.sizes.append(found)
            self._made.append(found)
        return found

    def _atom(self, key: tuple[str, Any, Any], value: Any, range: Range, hint: Any) -> Any:
        number = self._atom_of.get(key)
        if number is None:
            number = self._atom_of[key] = len(self.atoms)
            self.atoms.append(key)
            self.atom_values.append(value)
            self._atom_range.append(range)
            self._atom_hint.append(hint)
            self._made.append(number)
        return self.make((((number,), 1),))

    def range(self, size: Any) -> Range:
        """The range of a size over all values that the classes admit."""
        if not isinstance(size, SymInt):
            return size, size
        if size.range is None:
            size.range = _sum([_product([(k, k), *[self._atom_range[atom] for atom in atoms]])
                               for atoms, k in size.terms])
        return size.range

    # Arithmetic: memoized, because passes ask the same again and again.

    def compute(self, name: str, a: Any, b: Any) -> Any:
        """a + b, a * b, a // b, a % b or a / b, where at least one is a size."""
        key = (name, a, b, a.__class__, b.__class__)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = _RULES[name](self, a, b)
        return found

    def add(self, a: Any, b: Any) -> Any:
        sums = dict(_terms(a))
        for atoms, k in _terms(b):
            sums[atoms] = sums.get(atoms, 0) + k
        return self.make(_sorted(sums))

    def multiply(self, a: Any, b: Any) -> Any:
        sums: dict[tuple[int, ...], Any] = {}
        for x, k in _terms(a):
            for y, m in _terms(b):
                atoms = tuple(sorted(x + y))
                sums[atoms] = sums.get(atoms, 0) + k * m
        return self.make(_sorted(sums))

    def divide(self, a: Any, b: Any) -> tuple[Any, Any]:
        """(q, r) with a = q·b + r, as much of a as possible in q; both by their terms."""
        if b == 0:
            raise ZeroDivisionError("a size is divided by 0")
        if isinstance(b, SymInt) and len(b.terms) > 1:
            return self._divide_by_sum(a, b)
        ((below, n),) = _terms(b)
        whole: dict[tuple[int, ...], Any] = {}
        rest: dict[tuple[int, ...], Any] = {}
        for atoms, k in _terms(a):
            left = _without(atoms, below)
            if left is None or k % n:
                rest[atoms] = k
            else:
                whole[left] = k // n
        return self.make(_sorted(whole)), self.make(_sorted(rest))

    def _divide_by_sum(self, a: Any, b: SymInt) -> tuple[Any, Any]:
        if isinstance(a, SymInt):
            lead, k = b.terms[-1]
            for atoms, m in a.terms:
                left = _without(atoms, lead)
                if left is not None and m % k == 0:
                    factor = self.make(((left, m // k),))
                    if a - b * factor == 0:
                        return factor, 0
        return 0, a

    def floordiv(self, a: Any, b: Any) -> Any:
        q, r = self.divide(a, b)
        if r.__class__ is int and b.__class__ is int:
            return q + r // b
        turns = self._turns(r, b)
        if turns is not None:
            return q + turns
        return q + self._divided("//", r, b)

    def modulo(self, a: Any, b: Any) -> Any:
        _, r = self.divide(a, b)
        if r.__class__ is int and b.__class__ is int:
            return r % b
        turns = self._turns(r, b)
        if turns is not None:
            return r - turns * b
        return self._divided("%", r, b)

    def _divided(self, kind: str, a: Any, b: Any) -> Any:
        range = _remainder(self.range(b)) if kind == "%" else _quotient(
            self.range(a), self.range(b), rounded=kind == "//")
        divisor = hint(b)
        return self._atom((kind, a, b), DIVISIONS[kind](value_of(a), value_of(b)), range,
                          DIVISIONS[kind](hint(a), divisor) if divisor else 0)

    def _turns(self, r: Any, b: Any) -> int | None:
        """r // b of a constant r where that is 0 or -1, which is noted; None elsewhere."""
        if isinstance(r, SymInt):
            return None
        turns = value_of(r) // value_of(b)
        if turns not in (0, -1):
            return None
        return turns if bool(r >= turns * b) and bool(r < (turns + 1) * b) else None

    def truediv(self, a: Any, b: Any) -> Any:
        q, r = self.divide(a, b)
        if r.__class__ is int and r == 0:
            return q
        back, rest = self.divide(b, a)
        if back.__class__ is int and rest.__class__ is int and rest == 0:
            return 1 / back
        return self._divided("/", a, b)

    def one_factor(self, size: SymInt) -> Any:
        """The size as an atom."""
        if len(size.terms) == 1:
            return size
        return self._atom(("is", size, None), size.value, self.range(size), size.hint)

    # Questions

    def divides(self, number: int, size: Any) -> bool:
        """Is the size a multiple, whatever the symbols are? Those that only some values make multiples are taken for
        others, which is right for all."""
        _, rest = self.divide(size, number)
        return rest.__class__ is int and rest % number == 0

    def compare(self, name: str, a: Any, b: Any) -> bool:
        """The answer for the values at hand, noted unless it is the same for all."""
        key = (name, a, b, a.__class__, b.__class__)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._compare(name, a, b)
        return found

    def _compare(self, name: str, a: Any, b: Any) -> bool:
        difference = a - b
        if not isinstance(difference, SymInt):
            return bool(COMPARISONS[name](difference, 0))
        known = _decided(name, *self.range(difference))
        if known is not None:
            return known
        answer = bool(COMPARISONS[name](difference.value, 0))
        if self.noting:
            self.guards[name if answer else _OPPOSITE[name], difference] = None
        return answer

    def specialize(self, size: SymInt) -> Any:
        """The size's value, which a guard demands from now on."""
        if self.noting:
            self.guards["==", size - size.value] = None
        frame = sys._getframe(2)
        self.specializations.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return size.value


class SymInt:
    """A size that depends on a trace's symbols. Equal polynomials of a trace are one object."""

    __slots__ = ("hint", "number", "range", "terms", "trace", "value")

    def __init__(self, trace: Trace, terms: Terms, value: Any, number: int, hint: Any):
        self.trace, self.terms, self.value, self.number, self.hint = trace, terms, value, number, hint
        self.range: Range | None = None

    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Any:
        return self.trace.compute("+", self, other) if _fits(other) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return self.trace.compute("+", self, other) if _fits(other) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return self.trace.compute("*", self, other) if _fits(other) else NotImplemented

    def __rmul__(self, other: Any) -> Any:
        return self.trace.compute("*", self, other) if _fits(other) else NotImplemented

    def __neg__(self) -> Any:
        return self.trace.compute("*", self, -1)

    def __pos__(self) -> Any:
        return self

    def __sub__(self, other: Any) -> Any:
        return self.trace.compute("+", self, -other) if _fits(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return self.trace.compute("+", -self, other) if _fits(other) else NotImplemented

    def __floordiv__(self, other: Any) -> Any:
        return self.trace.compute("//", self, other) if _fits(other) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return self.trace.compute("//", other, self) if _fits(other) else NotImplemented

    def __mod__(self, other: Any) -> Any:
        return self.trace.compute("%", self, other) if _fits(other) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return self.trace.compute("%", other, self) if _fits(other) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        return self.trace.compute("/", self, other) if _fits(other) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        return self.trace.compute("/", other, self) if _fits(other) else NotImplemented

    def __pow__(self, power: int) -> Any:
        result: Any = 1
        for _ in range(power):
            result = result * self
        return result

    def __eq__(self, other: object) -> bool:
        return self is other or (_fits(other) and self.trace.compare("==", self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self.trace.compare("<", self, other) if _fits(other) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self.trace.compare("<=", self, other) if _fits(other) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self.trace.compare(">", self, other) if _fits(other) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self.trace.compare(">=", self, other) if _fits(other) else NotImplemented

    def __bool__(self) -> bool:
        return self.trace.compare("!=", self, 0)

    def __abs__(self) -> Any:
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


def hint(size: Any) -> Any:
    """A size as a plain number for weighing costs: what it decides must be correct for every size of the class.

    >>> with Trace(T=600) as trace:
    ...     hint(trace.symbol("T") * 3)
    3072
    """
    return size.hint if size.__class__ is SymInt else size


def most(size: Any) -> Any:
    """The largest number that a size can be, its own for an int: what there must be room for.

    >>> with Trace(T=600) as trace:
    ...     most(trace.symbol("T")), most(trace.symbol("T") - 1), most(7)
    (1023, 1022, 7)
    """
    if size.__class__ is not SymInt:
        return size
    found = size.trace.range(size)[1]
    return found if found is not None else size.__index__()


def real(count: Any) -> Any:
    """A count in a formula of floats: a float, or a `SymInt`, which the kernel converts."""
    return count if isinstance(count, SymInt) else float(count)


def value_at(size: Any, values: dict[str, int]) -> Any:
    """The number that a size is for other values of the symbols.

    >>> with Trace(B=8) as trace:
    ...     value_at(trace.symbol("B") * 3 + 1, {"B": 5})
    16
    """
    if not isinstance(size, SymInt):
        return size
    total: Any = 0
    for atoms, k in size.terms:
        for atom in atoms:
            kind, a, b = size.trace.atoms[atom]
            k = k * (SYMBOLS[kind](values[a]) if kind in SYMBOLS else value_at(a, values) if kind == "is" else
                     DIVISIONS[kind](value_at(a, values), value_at(b, values)))
        total = total + k
    return total


def one_factor(size: Any) -> Any:
    """A size whose products with others stay products: a sum would be multiplied out, and after three factors nobody
    sees any more what divides it. That it is a sum is forgotten.

    >>> with Trace(H=20) as trace:
    ...     rows = one_factor((trace.symbol("H") - 1) // 2 + 1)
    ...     formula(rows * 8), formula(rows * rows // rows)
    ('(1 + (-1 + H)//2)*8', '(1 + (-1 + H)//2)')
    """
    return size.trace.one_factor(size) if isinstance(size, SymInt) else size


def symbols_of(size: SymInt) -> set[str]:
    """The symbols that a size depends on."""
    found: set[str] = set()
    for atoms, _ in size.terms:
        for atom in atoms:
            kind, a, b = size.trace.atoms[atom]
            found |= {a} if kind in SYMBOLS else {name for x in (a, b) if isinstance(x, SymInt)
                                                  for name in symbols_of(x)}
    return found


def is_literal(size: Any) -> bool:
    """Whether a kernel names the size by its value."""
    return not isinstance(size, SymInt) or symbols_of(size) <= size.trace.literals


def is_multiple(size: Any, number: int) -> bool:
    """Does the number divide the size, and every other that a symbolic size can be?"""
    if not isinstance(size, SymInt):
        return size % number == 0
    return size.trace.divides(number, size)


def twos(size: Any) -> int:
    """The largest power of two that divides the size, and every other that a symbolic size can be.

    >>> with Trace(T=48) as trace:
    ...     twos(40), twos(trace.symbol("T") * 2)
    (8, 32)
    """
    return int(gcd(size, 1 << 62) if isinstance(size, SymInt) else size & -size)


def is_int_or_sym(value: object) -> bool:
    """Whether a value can be a tensor's size: an int or a `SymInt`."""
    return value.__class__ is int or value.__class__ is SymInt


def value_of(size: Any) -> Any:
    """The number that a size is in the run at hand."""
    return size.value if size.__class__ is SymInt else size


def gcd(a: Any, b: Any) -> Any:
    """A common divisor of two sizes, whatever the symbols are: the greatest that their terms show.

    >>> with Trace(B=8) as trace:
    ...     gcd(trace.symbol("B") * 96, 64)
    32
    """
    if a.__class__ is int and b.__class__ is int:
        return math.gcd(a, b)
    terms = (*_terms(a), *_terms(b))
    common = terms[0][0]
    for atoms, _ in terms[1:]:
        common = _common(common, atoms)
    return _trace_of(a, b).make(((common, math.gcd(*(k for _, k in terms))),))


def tracing() -> Trace | None:
    """The trace that is active."""
    return _active[-1] if _active else None


def formula(size: Any) -> str:
    """The size as text, for people.

    >>> with Trace(B=8) as trace:
    ...     formula(trace.symbol("B") * 1024 // 3 + 5)
    '5 + B*1024//3'
    """
    if not isinstance(size, SymInt):
        return str(size)
    parts = []
    for atoms, k in size.terms:
        kinds = [size.trace.atoms[atom] for atom in atoms]
        for kind, name, _ in kinds:
            if kind == "sixteenth" and k % 16 == 0:
                k //= 16
                kinds[kinds.index((kind, name, None))] = ("symbol", name, None)
        factors = list(map(_atom_text, kinds))
        parts.append("*".join([*factors, *([str(k)] if k != 1 or not factors else [])]))
    return " + ".join(parts)


def _atom_text(atom: tuple[str, Any, Any]) -> str:
    kind, a, b = atom
    if kind in SYMBOLS:
        return str(a) if kind == "symbol" else f"{a}/16"
    left, right = (f"({formula(x)})" if isinstance(x, SymInt) and len(x.terms) > 1 else formula(x) for x in (a, b))
    return left if kind == "is" else f"{left}{kind}{right}"


_active: list[Trace] = []

_RULES: Final[dict[str, Callable[[Trace, Any, Any], Any]]] = {
    "+": Trace.add, "*": Trace.multiply, "//": Trace.floordiv, "%": Trace.modulo, "/": Trace.truediv}

DIVISIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "//": operator.floordiv, "%": operator.mod, "/": operator.truediv}
"""The operators that atoms are made with."""

SYMBOLS: Final[dict[str, Callable[[int], int]]] = {"symbol": lambda size: size, "sixteenth": lambda size: size // 16}
"""The atoms that a symbol's value makes."""

COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt}

_OPPOSITE: Final = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}


def _decided(name: str, least: Any, most: Any) -> bool | None:
    """The comparison with 0 of a size in this range; None where it depends on the size."""
    if name in ("<=", ">", "==", "!="):
        if most is not None and (most < 0 or (most == 0 and name in ("<=", ">"))):
            return name in ("<=", "!=")
        if least is not None and least > 0:
            return name in (">", "!=")
        return name == "==" if least == most == 0 else None
    if most is not None and most < 0:
        return name == "<"
    return name == ">=" if least is not None and least >= 0 else None


def _sum(ranges: list[Range]) -> Range:
    low, high = zip(*ranges, strict=True)
    return None if None in low else sum(low), None if None in high else sum(high)


def _product(ranges: list[Range]) -> Range:
    least, most = ranges[0]
    for low, high in ranges[1:]:
        if None in (least, most) or None in (low, high):
            return None, None
        ends = [a * b for a in (least, most) for b in (low, high)]
        least, most = min(ends), max(ends)
    return least, most


def _remainder(divisor: Range) -> Range:
    least, most = divisor
    return (0, None if most is None else most - 1) if least is not None and least > 0 else (None, None)


def _quotient(of: Range, by: Range, rounded: bool) -> Range:
    if None in (*of, *by) or by[0] <= 0:
        return None, None
    divide = operator.floordiv if rounded else operator.truediv
    ends = [divide(a, b) for a in of for b in by]
    return min(ends), max(ends)


def _fits(x: object) -> bool:
    kind = x.__class__
    return kind is int or kind is SymInt or kind is float or kind is bool


def _trace_of(a: Any, b: Any) -> Trace:
    return a.trace if a.__class__ is SymInt else b.trace


def _terms(x: Any) -> Terms:
    if x.__class__ is SymInt:
        return x.terms
    return (((), x),) if x else ()


def _sorted(sums: dict[tuple[int, ...], Any]) -> Terms:
    return tuple(sorted([(atoms, k) for atoms, k in sums.items() if k]))


def _common(atoms: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    """The factors that two products of atoms share, a square's twice; sorted as `atoms` are."""
    left, found = list(others), []
    for atom in atoms:
        if atom in left:
            left.remove(atom)
            found.append(atom)
    return tuple(found)


def _without(atoms: tuple[int, ...], factors: tuple[int, ...]) -> tuple[int, ...] | None:
    """The product of atoms divided by the product of factors, None if it is none."""
    left = list(atoms)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)
