"""A loop group as a small program over coordinates: loads, arithmetic, reductions, stores. `build_kernel` makes it.

The iteration space has two flat coordinates: `x` counts the kept elements and `r` the reduced
ones. A value depends on none, one or both of them; that is its `vars`, and its shape in the kernel
(a block of x by a block of r, with size 1 where it does not depend).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Final

from genesis.ir.node import Node
from genesis.ir.sym_int import hint, literal_value
from genesis.ir.types import DType
from genesis.passes.fusion.index_map import Bound, Expr, atoms, variable
from genesis.passes.fusion.materialize import weight
from genesis.passes.groups import Space


@dataclass(frozen=True)
class Value:
    """An SSA value.

    Attributes:
        name: unique in the kernel.
        dtype: of the IR; f16 and bf16 values are held in float32.
        vars: "", "x", "r" or "xr".
        stage: how many reductions lie between it and memory.
    """

    name: str
    dtype: DType
    vars: str
    stage: int


@dataclass(frozen=True)
class Constant:
    """A number of the program."""

    out: Value
    number: bool | int | float


@dataclass(frozen=True)
class Number:
    """A number of the plan, loaded from its table."""

    out: Value
    argument: str


@dataclass(frozen=True)
class Position:
    """An index expression as a value."""

    out: Value
    e: Expr


@dataclass(frozen=True)
class Load:
    """An element of a memory argument; where a bound fails the value is 0 and nothing is read."""

    out: Value
    argument: str
    address: Expr
    bounds: tuple[Bound, ...]


@dataclass(frozen=True)
class Apply:
    """A pointwise op on values. `compute` is the dtype its operands are brought to."""

    out: Value
    node: Node
    operands: tuple[Value, ...]
    compute: DType


@dataclass(frozen=True)
class Select:
    """`inside` where the bounds hold, else `outside`."""

    out: Value
    bounds: tuple[Bound, ...]
    inside: Value
    outside: Value


@dataclass(frozen=True)
class Random:
    """Philox bits for the element with flat index `counter`: word `word` of the `words` that it takes."""

    out: Value
    word: int
    words: int
    seed: Value
    draw: Value
    counter: Expr


@dataclass(frozen=True)
class Index:
    """A value used as a coordinate: clamped to 0 ≤ i < size, so that no read is out of bounds."""

    out: Value
    operand: Value
    size: int


@dataclass(frozen=True)
class Checked:
    """An `in_range` node: the operand clamped to 0 ≤ i < size. One outside, where bounds hold, is told to a report."""

    out: Value
    operand: Value
    node: Node
    report: str
    bounds: tuple[Bound, ...]


@dataclass(frozen=True)
class Reduce:
    """A reduction over r. `position` is what argmax and argmin return for an element."""

    out: Value
    op: str
    operand: Value
    position: Expr | None = None


@dataclass(frozen=True)
class Fold:
    """A short reduction of values that are all there, taken in order. `positions` is what argmax and argmin return for
    each of them."""

    out: Value
    op: str
    operands: tuple[Value, ...]
    positions: tuple[int, ...] | None = None

    @property
    def operand(self) -> Value:
        """One of the operands: they have one dtype."""
        return self.operands[0]


@dataclass(frozen=True)
class Store:
    """Write a value to an output argument."""

    argument: str
    address: Expr
    value: Value
    vars: str


@dataclass(frozen=True)
class Part:
    """Reduce a value over this program's split, and write that to the split's row of an output argument."""

    argument: str
    op: str
    operand: Value


Statement = (Constant | Number | Position | Load | Apply | Select | Random | Index | Checked | Reduce | Fold | Store
             | Part)


READ_AGAIN: Final = 8
"""How often an element is read of what counts for nothing in `Kernel.bytes_each`: it comes from a cache."""

END: Final = (Store, Part)
"""What a kernel is for: statements without a result."""


@dataclass(frozen=True)
class Splits:
    """How the elements that a `Part` reduces are dealt out to programs (`ir/ops/splits.py`).

    Attributes:
        count, multiple: of the op.
        over: the coordinate that is split. "r": a program has a split of r for a block of x. "x": it has a split of
            x, whole rows, and reduces over these rows besides what it does in each.
    """

    count: int
    multiple: int
    over: str


@dataclass(frozen=True)
class Argument:
    """A pointer of the kernel and the node whose memory it is."""

    name: str
    node: Node
    role: str  # "in", "number", "report" or "out"


def vars_of(indices: Mapping[str, Value], expressions: Iterable[Expr]) -> str:
    """The variables that expressions depend on, through loaded indices (name → value) too."""
    found: set[str] = set()
    for atom in atoms(expressions):
        found.update(indices[atom.name].vars if atom.kind == "loaded" else atom.name)
    return "".join(name for name in "xr" if name in found)


@dataclass(frozen=True)
class Column:
    """Results of windows below each other that a lane makes, of which it loads once what their windows share.

    Attributes:
        block: which block of `count` rows it is, by the kernel's coordinates.
        rows: how many there are; the last block ends with them, and begins inside of the one before where need be.
        count: how many of them a lane has.
    """

    block: Expr
    rows: int
    count: int

    @property
    def first(self) -> Expr:
        """The first of the lane's rows, as a coordinate of its own."""
        return variable("x_down", self.rows - self.count + 1)

    def line(self, block: str) -> str:
        """The line that computes it, by the text of its block."""
        return f"x_down = tl.minimum({block} * {self.count}, {self.rows - self.count})"


@dataclass(frozen=True)
class Kernel:
    """A loop group, ready to print.

    Attributes:
        space: the group's.
        arguments: inputs, then numbers, then outputs.
        statements: operands before users.
        indices: values that stand behind loaded indices, by the atom's name.
        splits: None when each reduction is of all its elements.
        column: the results that a lane makes of windows, where it makes several.
    """

    space: Space
    arguments: tuple[Argument, ...]
    statements: tuple[Statement, ...]
    indices: dict[str, Value] = field(compare=False)
    splits: Splits | None = None
    column: Column | None = None

    @cached_property
    def x_size(self) -> int:
        """How many elements are kept."""
        return prod(size for size, kind in self.space if kind == "x")

    @cached_property
    def r_size(self) -> int:
        """How many elements are reduced to one."""
        return prod(size for size, kind in self.space if kind == "r")

    @property
    def is_total(self) -> bool:
        """Whether it reduces all elements to one, of whatever sizes it is run."""
        return literal_value(self.x_size) == 1

    @property
    def x_is_fastest(self) -> bool:
        """Whether elements that are neighbours in memory belong to different results: columns are reduced."""
        return bool(self.space) and self.space[-1][1] == "x" and self.x_size > 1

    @property
    def reduces_batch(self) -> bool:
        """Whether the number of reduced elements is an argument: its size is one, or r is outermost in memory."""
        return literal_value(self.r_size) is None or self.r_leads

    @property
    def r_leads(self) -> bool:
        """Whether r is outermost in memory."""
        return bool(self.space) and self.space[0][1] == "r"

    def loads(self, vars: str) -> list[Load]:
        """What is read at points that depend on just these coordinates."""
        return [s for s in self.statements if isinstance(s, Load) and s.out.vars == vars]

    def stores(self, vars: str) -> list[Store]:
        """What is written at points that depend on just these coordinates."""
        return [s for s in self.statements if isinstance(s, Store) and s.vars == vars]

    @cached_property
    def weight(self) -> int:
        """Weighted ops for each element of the space."""
        return sum(weight(s.node) for s in self.statements if isinstance(s, Apply) and s.out.vars == "xr")

    @cached_property
    def bytes_each(self) -> int:
        """What a loop without reductions reads and writes at each of its points; an element that several read, not
        counted, and of one that reads windows, its operands' share of each."""
        if self.folds:
            nbytes = sum(hint(argument.node.type.nbytes) for argument in self.arguments)
            return nbytes // max(hint(self.x_size * self.r_size), 1)
        whole = "xr" if self.has_r else "x"
        single = [s for s in self.loads(whole) if all(atom.kind != "div" for atom, _ in s.address.terms)
                  and not self._is_read_again(s)]
        written = {s.argument for s in self.statements if isinstance(s, Store)}
        return (sum(s.out.dtype.itemsize for s in single)
                + sum(x.node.dtype.itemsize for x in self.arguments if x.name in written))

    def _is_read_again(self, load: Load) -> bool:
        """Whether a load's elements are so few that each is read many times, as a column's mean beside its rows."""
        low, high = load.address.range
        return READ_AGAIN * (hint(high) - hint(low) + 1) <= hint(self.x_size * self.r_size)

    @cached_property
    def folds(self) -> int:
        """The taps of its unrolled reductions; 0 without one."""
        return max((len(s.operands) for s in self.statements if isinstance(s, Fold)), default=0)

    @property
    def has_r(self) -> bool:
        """Does the kernel have a second coordinate at all?"""
        return any(kind == "r" for _, kind in self.space) or any(isinstance(s, Reduce) for s in self.statements)


def operands_of(statement: Statement, indices: dict[str, Value]) -> list[Value]:
    """The values a statement reads, those behind its index expressions included."""
    found: list[Value] = []
    where: list[Expr] = []
    match statement:
        case Load(_, _, address, bounds):
            where = [address, *(bound.e for bound in bounds)]
        case Position(_, e):
            where = [e]
        case Apply(_, _, operands, _) | Fold(_, _, operands, _):
            found = list(operands)
        case Select(_, bounds, inside, outside):
            found, where = [inside, outside], [bound.e for bound in bounds]
        case Random(_, _, _, seed, draw, counter):
            found, where = [seed, draw], [counter]
        case Index(_, operand, _):
            found = [operand]
        case Checked(_, operand, _, _, bounds):
            found, where = [operand], [bound.e for bound in bounds]
        case Reduce(_, _, operand, position):
            found, where = [operand], [position] if position is not None else []
        case Store(_, address, value, _):
            found, where = [value], [address]
        case Part(_, _, operand):
            found = [operand]
    return found + [indices[atom.name] for atom in atoms(where) if atom.kind == "loaded"]
