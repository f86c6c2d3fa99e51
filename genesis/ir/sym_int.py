"""Symbolic sizes: a plan for one size becomes a plan for all sizes of its class.

Inside a `Trace` (`size_trace.py`) a size that may change is a `SymInt`: a polynomial (`polynomials.py`) of symbols that
computes like an int and knows its value in the run at hand. Each symbol has a class (`size_class.py`): a range, and
whether 16 divides it. Passes and code generation work on sizes as they always do. What they ask of one is answered by
the ranges (`size_ranges.py`) where these decide it, else by the value, and then noted as a *guard*: what was made holds
for all sizes that give the same answers. What they make of it (an offset, a grid, a number of a kernel) stays a
formula.

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

import operator
from typing import TYPE_CHECKING, Final, Protocol, SupportsIndex, TypeAlias, TypeGuard, overload

from genesis.ir.polynomials import DIVISIONS, SYMBOLS, Atom, Terms

if TYPE_CHECKING:
    from genesis.ir.node import Node
    from genesis.ir.size_ranges import Range
    from genesis.ir.size_trace import Trace

WORD: Final = r"\bsize_(\d+)_"
"""A pattern of how a `SymInt` is written in a kernel's text; the group is its number in `Trace.sizes`."""


class SymInt:
    """A size that depends on a trace's symbols. Equal polynomials of a trace are one object."""

    __slots__ = ("hint", "number", "range", "terms", "trace", "value")

    def __init__(self, trace: Trace, terms: Terms, value: int, number: int, hint: int):
        self.trace, self.terms, self.value, self.number, self.hint = trace, terms, value, number, hint
        self.range: Range | None = None

    __hash__ = object.__hash__

    def __add__(self, other: Size) -> Size:
        return self.trace.compute("+", self, other) if _fits(other) else NotImplemented

    def __radd__(self, other: Size) -> Size:
        return self.trace.compute("+", self, other) if _fits(other) else NotImplemented

    def __mul__(self, other: Size) -> Size:
        return self.trace.compute("*", self, other) if _fits(other) else NotImplemented

    def __rmul__(self, other: Size) -> Size:
        return self.trace.compute("*", self, other) if _fits(other) else NotImplemented

    def __neg__(self) -> Size:
        return self.trace.compute("*", self, -1)

    def __pos__(self) -> SymInt:
        return self

    def __sub__(self, other: Size) -> Size:
        return self.trace.compute("+", self, -other) if _fits(other) else NotImplemented

    def __rsub__(self, other: Size) -> Size:
        return self.trace.compute("+", -self, other) if _fits(other) else NotImplemented

    def __floordiv__(self, other: Size) -> Size:
        return self.trace.compute("//", self, other) if _fits(other) else NotImplemented

    def __rfloordiv__(self, other: Size) -> Size:
        return self.trace.compute("//", other, self) if _fits(other) else NotImplemented

    def __mod__(self, other: Size) -> Size:
        return self.trace.compute("%", self, other) if _fits(other) else NotImplemented

    def __rmod__(self, other: Size) -> Size:
        return self.trace.compute("%", other, self) if _fits(other) else NotImplemented

    def __truediv__(self, other: Size) -> Size:
        return self.trace.compute("/", self, other) if _fits(other) else NotImplemented

    def __rtruediv__(self, other: Size) -> Size:
        return self.trace.compute("/", other, self) if _fits(other) else NotImplemented

    def __pow__(self, power: int) -> Size:
        result: Size = 1
        for _ in range(power):
            result = result * self
        return result

    def __eq__(self, other: object) -> bool:
        return self is other or (_fits(other) and self.trace.compare("==", self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Size) -> bool:
        return self.trace.compare("<", self, other) if _fits(other) else NotImplemented

    def __le__(self, other: Size) -> bool:
        return self.trace.compare("<=", self, other) if _fits(other) else NotImplemented

    def __gt__(self, other: Size) -> bool:
        return self.trace.compare(">", self, other) if _fits(other) else NotImplemented

    def __ge__(self, other: Size) -> bool:
        return self.trace.compare(">=", self, other) if _fits(other) else NotImplemented

    def __bool__(self) -> bool:
        return self.trace.compare("!=", self, 0)

    def __abs__(self) -> Size:
        return self if self >= 0 else -self

    def __index__(self) -> int:
        return self.trace.specialize(self)

    def __int__(self) -> int:
        return self.trace.specialize(self)

    def __float__(self) -> float:
        return float(self.trace.specialize(self))

    def bit_length(self) -> int:
        """What an int answers: the guards say between which powers of two the size lies."""
        bits = 0
        while self >= 1 << bits:
            bits += 1
        return bits

    def __str__(self) -> str:
        return f"size_{self.number}_"

    def __repr__(self) -> str:
        return f"<{formula(self)} = {self.value}>"


Size: TypeAlias = SymInt | int
"""What a dimension has. The IR says `int` of most, as a `SymInt` computes like one; this file says it of the fractions
too that `/` makes in formulas of floats."""


def hint(size: Size) -> int:
    """A size as a plain number for weighing costs: what it decides must be correct for every size of the class. In an
    exact trace it is the size, of which what is asked becomes a guard.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(T=601) as trace:
    ...     hint(trace.symbol("T") * 3)
    3072
    """
    if not isinstance(size, SymInt):
        return size
    return size if size.trace.exact else size.hint  # type: ignore[return-value]  # it computes like an int


def most(size: Size) -> int:
    """The largest number that a size can be, its own for an int: what there must be room for.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(T=601) as trace:
    ...     most(trace.symbol("T")), most(trace.symbol("T") - 1), most(7)
    (1023, 1022, 7)
    """
    if not isinstance(size, SymInt):
        return size
    if size.trace.exact:
        return size  # type: ignore[return-value]  # it computes like an int
    found = size.trace.range(size)[1]
    return found if found is not None else size.__index__()


@overload
def real(count: float) -> float: ...


@overload
def real(count: SymInt) -> SymInt: ...


def real(count: SymInt | float) -> SymInt | float:
    """A count in a formula of floats: a float, or a `SymInt`, which the kernel converts."""
    return count if isinstance(count, SymInt) else float(count)


def value_at(size: Size, values: dict[str, int]) -> int:
    """The number that a size is for other values of the symbols.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(B=8) as trace:
    ...     value_at(trace.symbol("B") * 3 + 1, {"B": 5})
    16
    """
    if not isinstance(size, SymInt):
        return size
    total = 0
    for atoms, k in size.terms:
        for atom in atoms:
            kind, a, b = size.trace.atoms[atom]
            k = k * (values[a] // SYMBOLS[kind] if kind in SYMBOLS else value_at(a, values) if kind == "is" else
                     DIVISIONS[kind](value_at(a, values), value_at(b, values)))
        total = total + k
    return total


@overload
def one_factor(size: int) -> int: ...


@overload
def one_factor(size: SymInt) -> Size: ...


def one_factor(size: Size) -> Size:
    """A size whose products with others stay products: a sum would be multiplied out, and after three factors nobody
    sees any more what divides it. That it is a sum is forgotten.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(H=20) as trace:
    ...     rows = one_factor((trace.symbol("H") - 1) // 2 + 1)
    ...     formula(rows * 8), formula(rows * rows // rows)
    ('(1 + (-1 + H)//2)*8', '(1 + (-1 + H)//2)')
    """
    return size.trace.one_factor(size) if isinstance(size, SymInt) else size


@overload
def weighed(size: int, hint: int) -> int: ...


@overload
def weighed(size: SymInt, hint: int) -> Size: ...


def weighed(size: Size, hint: int) -> Size:
    """A size with another hint, where guards say more of it than its class. It is equal to the size, as guards find.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(T=601) as trace:
    ...     chunk = weighed(trace.symbol("T") // 4, 100)
    ...     hint(chunk), hint(trace.symbol("T") // 4), chunk.value
    (100, 256, 150)
    """
    return size.trace.weighed(size, hint) if isinstance(size, SymInt) and not size.trace.exact else size


def symbols_of(size: SymInt) -> set[str]:
    """The symbols that a size depends on."""
    found: set[str] = set()
    for atoms, _ in size.terms:
        for atom in atoms:
            kind, a, b = size.trace.atoms[atom]
            found |= {a} if kind in SYMBOLS else {name for x in (a, b) if isinstance(x, SymInt)
                                                  for name in symbols_of(x)}
    return found


def is_literal(size: Size) -> bool:
    """Whether a kernel names the size by its value."""
    return not isinstance(size, SymInt) or symbols_of(size) <= size.trace.literals


def literal_value(size: Size) -> int | None:
    """The number that a kernel names the size by; None where it is an argument of the kernel."""
    if not isinstance(size, SymInt):
        return size
    return size.value if is_literal(size) and isinstance(size.value, int) else None


def constant_term(size: Size) -> int:
    """The part of a size that depends on no argument of a kernel.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(W=109) as trace:
    ...     constant_term(trace.symbol("W") * 2 + 1), constant_term(7)
    (1, 7)
    """
    number = literal_value(size)
    if number is not None:
        return number
    return sum(k for atoms, k in terms_of(size) if not atoms)


def as_written(size: Size) -> Size:
    """The size as a kernel writes it: with the numbers of those symbols that it names by their value.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(N=61, H=7) as trace:
    ...     trace.literals = frozenset("H")
    ...     rows = trace.symbol("N") * trace.symbol("H") * trace.symbol("H")
    ...     most(rows), most(as_written(rows))
    (14175, 3087)
    """
    if not isinstance(size, SymInt) or not symbols_of(size) & size.trace.literals:
        return size
    number = literal_value(size)
    if number is not None:
        return number
    trace = size.trace
    total: Size = 0
    for atoms, k in size.terms:
        product: Size = k
        for atom in atoms:
            one = trace.make((((atom,), 1),))
            number = literal_value(one)
            product = product * (one if number is None else number)
        total = total + product
    return total


def is_int_or_sym(value: object) -> bool:
    """Whether a value can be a tensor's size: an int or a `SymInt`."""
    return value.__class__ is int or value.__class__ is SymInt


@overload
def value_of(size: Size) -> int: ...


@overload
def value_of(size: float) -> float: ...


def value_of(size: Size | float) -> float:
    """The number that a size is in the run at hand."""
    return size.value if isinstance(size, SymInt) else size


class Seen(Protocol):
    """How a run on stand-ins shows sizes to the program's own code (`frontend/traced_number.py`)."""

    def of_size(self, size: SymInt) -> int:
        """What the code sees of a size."""

    def size_of(self, x: object) -> int | None:
        """The size that the code saw as `x`; None for anything else."""

    def node_of(self, x: object) -> Node | None:
        """The node of a number that the code saw; None for anything else."""


RUNNING: Final[list[Seen]] = []
"""The runs on stand-ins that are going on, the innermost last."""


def as_seen(size: Size) -> int:
    """A size as a program's own code sees it."""
    return RUNNING[-1].of_size(size) if RUNNING and isinstance(size, SymInt) else size  # type: ignore[return-value]


def as_size(x: SupportsIndex) -> int:
    """`operator.index(x)`; a size itself, and the size that a program's own code saw as x."""
    size = x if isinstance(x, SymInt) else RUNNING[-1].size_of(x) if RUNNING else None
    return operator.index(x) if size is None else size  # type: ignore[return-value]


def rounds(size: Size, block: int) -> int:
    """How many blocks a size is, as a plain number: a plan with as many written out serves no other.

    >>> from genesis.ir.size_trace import Trace
    >>> with Trace(T=601) as trace:
    ...     rounds(trace.symbol("T"), 128), rounds(7, 4)
    (5, 2)
    """
    number = literal_value(size)
    return operator.index(-(-size // block)) if number is None else -(-number // block)


def formula(size: Size) -> str:
    """The size as text, for people.

    >>> from genesis.ir.size_trace import Trace
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
            divisor = SYMBOLS.get(kind, 1)
            if divisor > 1 and k % divisor == 0:
                k //= divisor
                kinds[kinds.index((kind, name, None))] = ("symbol", name, None)
        factors = list(map(_atom_text, kinds))
        parts.append("*".join([*factors, *([str(k)] if k != 1 or not factors else [])]))
    return " + ".join(parts)


def _atom_text(atom: Atom) -> str:
    kind, a, b = atom
    if kind in SYMBOLS:
        return str(a) if kind == "symbol" else f"{a}/{SYMBOLS[kind]}"
    left, right = (f"({formula(x)})" if isinstance(x, SymInt) and len(x.terms) > 1 else formula(x) for x in (a, b))
    return left if kind == "is" else f"{left}{kind}{right}"


def _fits(x: object) -> TypeGuard[Size]:
    kind = x.__class__
    return kind is int or kind is SymInt or kind is float or kind is bool


def terms_of(x: Size) -> Terms:
    """The polynomial of a size or number."""
    if isinstance(x, SymInt):
        return x.terms
    return (((), x),) if x else ()
