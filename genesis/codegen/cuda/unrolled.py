"""Short reductions over windows, in registers: the kernel has a load for each tap of a window, and no loop over it.

A pool reads, for each of its results, a few elements that lie among those of its neighbours' windows. As rows of a
reduction, lanes run along windows, which begin anywhere, and each has its own address. Here lanes run along the
results; a tap is a number, so that a window's loads are one address and constants, neighbours load neighbours, and
what indices and bounds say of a tap is known as the kernel is built.

    before: tl.sum(tl.load(in0 + x * 2 + r), 1)        after: tl.load(in0 + x * 2) + tl.load(in0 + x * 2 + 1) + …

The same holds for gradients of pools, which add up the windows that see an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

from genesis.codegen.cuda.build_kernel import Builder, NotFusable, deep_recursion
from genesis.codegen.cuda.index_arithmetic import index_expression, known_comparison
from genesis.codegen.cuda.kernel_ir import Apply, Column, Constant, Fold, Kernel, Load, Select, Statement, Store, Value
from genesis.ir.node import Node, is_negative_zero
from genesis.ir.ops.movement import pad, reshape
from genesis.ir.ops.pointwise import cast, mul
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.size_divisors import gcd
from genesis.ir.sym_int import SymInt
from genesis.ir.types import DType, bool_, int32
from genesis.passes.fusion.index_map import (
    Atom,
    Bound,
    Expr,
    atoms,
    constant,
    flatten,
    floordiv,
    mod_,
    offset,
    unflatten,
)
from genesis.passes.fusion.loop_reads import LOADING, coordinates
from genesis.passes.fusion.views import Point, pieces, stored_as
from genesis.passes.groups import Group, Space

MOST_TAPS: Final = 64
"""Maximum taps of a window: a window of 8 by 8."""

COUNTS: Final = (4, 2)
"""Results below each other that a lane may make of windows that overlap."""

ENOUGH: Final = 1 << 18
"""Lanes that keep a GPU busy, 2000 a multiprocessor: with fewer, several results a lane leave it without programs
(H200: 123,008 means of 3 by 3 with their gradient took 10.0 µs in 62 and 32 programs, 6.7 in four times as many)."""

SHARED: Final = 0.7
"""Maximum loads of several results together, for each that they would have apart."""

MOST_STATEMENTS: Final = 2000
"""Maximum statements of a kernel: more take long to compile, and their values do not fit into registers."""


def unrolled(group: Group, kernel: Kernel) -> Kernel | None:
    """The kernel of a group that reduces windows, with their taps unrolled; None where that is not better.

    Args:
        kernel: the group's, with a coordinate for what is reduced.
    """
    if not _reduces_windows(group, kernel):
        return None
    size = prod(size for size, kind in group.space if kind == "x")
    try:
        found = build_unrolled(group, ((size, "x"),))
    except NotFusable:  # a reduction of another row, as far as constants tell
        return None
    if len(found.statements) > MOST_STATEMENTS:
        return None
    return _several(group, found) or found


def build_unrolled(group: Group, kept: Space, count: int = 1) -> Kernel:
    """The kernel over the kept elements alone, whose coordinates `kept` says; raises NotFusable.

    Args:
        count: results below each other that are one point of the space.
    """
    builder = _Unrolled(group, kept, count)
    with deep_recursion():
        for below in range(count):
            builder.begin(below)
            for node in group.outputs:
                if node.type.numel:
                    builder.store(node)
    return builder.kernel()


def _several(group: Group, single: Kernel) -> Kernel | None:
    """The kernel with several results a lane, where their windows share rows and there are enough for all programs.

    Four results of windows of 3 by 3 are 18 loads and one address, not 36 and four.
    """
    shape = group.outputs[0].shape
    if not single.folds or len(shape) < 2 or any(node.shape != shape for node in group.outputs):
        return None
    rows = shape[-2]
    for count in COUNTS:
        if not (single.x_size >= count * ENOUGH and rows >= 2 * count):
            continue
        try:
            found = build_unrolled(group, ((prod(shape[:-2]) * -(-rows // count) * shape[-1], "x"),), count)
        except NotFusable:  # a reduction of another row, as far as formulas of sizes tell
            return None
        loads = len(found.loads("x"))
        if loads <= SHARED * count * len(single.loads("x")) and len(found.statements) <= MOST_STATEMENTS:
            return found
    return None


def _reduces_windows(group: Group, kernel: Kernel) -> bool:
    """Whether all it makes is results of short reductions, of what neighbours read side by side."""
    taps = prod(size for size, kind in group.space if kind == "r")
    if not isinstance(taps, int) or not 1 <= taps <= MOST_TAPS or kernel.x_size == 0 or group.slices:
        return False
    if not any(node.op in LOADING for node in group.nodes) or any(node.op is reduce_splits for node in group.nodes):
        return False
    if kernel.stores("xr"):
        return False
    if any(node.type.numel not in (0, kernel.x_size) for node in group.outputs):
        return False
    if taps * len(kernel.statements) > 4 * MOST_STATEMENTS or _multiplies_elements(kernel):
        return False
    return taps == 1 or any(_step(load, kernel) <= taps for load in kernel.loads("xr"))


def _multiplies_elements(kernel: Kernel) -> bool:
    """Whether windows are multiplied by what is in memory, too, as convolutions of groups are. Those are not unrolled:
    unrolled, one was wrong before packed sums were taken apart (`packed_words.py`); nobody has timed one since."""
    loaded: set[Value] = set()
    for statement in kernel.statements:
        match statement:
            case Load(out=out):
                loaded.add(out)
            case Select(out=out, inside=inside) if inside in loaded:
                loaded.add(out)
            case Apply(out=out, node=node, operands=operands) if loaded.issuperset(operands):
                if node.op is mul:
                    return True
                loaded.add(out)
    return False


def _step(load: Load, kernel: Kernel) -> int:
    """How far apart neighbours along x read, at least."""
    def of_x(term: tuple[Atom, int]) -> bool:
        return any("x" in (kernel.indices[atom.name].vars if atom.kind == "loaded" else atom.name)
                   for atom in atoms((Expr(0, (term,)),)))
    return min((abs(term[1]) for term in load.address.terms if isinstance(term[1], int) and of_x(term)),
               default=MOST_TAPS + 1)


def _taps(space: Space, x: Expr) -> tuple[Expr, ...]:
    """The position in a reduction's whole space of each of its elements for one that is kept, in order."""
    kept = iter(unflatten(x, [size for size, kind in space if kind == "x"]))
    outer = [next(kept) if kind == "x" else None for _, kind in space]
    sizes = [size for size, _ in space]
    reduced = [size for size, kind in space if kind == "r"]
    found = []
    for tap in range(prod(reduced)):
        inner = iter(unflatten(constant(tap), reduced))
        found.append(flatten([next(inner) if e is None else e for e in outer], sizes))
    return tuple(found)


def _reshaped(point: Point, sizes: Sequence[int], shape: Sequence[int]) -> Point:
    """A point of one shape as one of another, in which neighbouring dimensions are one, or one is several.

    Each is put together or taken apart by itself, as symbolic sizes want it.
    """
    given, left, wanted = list(point), list(sizes), list(shape)
    found: list[Expr] = []
    while left or wanted:
        part = [left.pop()] if left else []
        into = [wanted.pop()] if wanted else []
        while not _same(prod(part), prod(into)):
            grown, rest = (part, left) if _same(gcd(prod(part), prod(into)), prod(part)) else (into, wanted)
            if not rest:
                return unflatten(flatten(point, sizes), shape)
            grown.insert(0, rest.pop())
        own = flatten([given.pop() for _ in part][::-1], part)
        found[:0] = [own] if len(into) == 1 else unflatten(own, into)
    return tuple(found)


def _axes(node: Node) -> tuple[int, ...]:
    """What a reduction is over."""
    return (node["axis"],) if "axis" in node.op.attrs else node["axes"]


def _same(a: int, b: int) -> bool:
    """Whether two sizes are the same formula, without a guard."""
    return a is b if isinstance(a, SymInt) or isinstance(b, SymInt) else a == b


class _Unrolled(Builder):
    """Builds a kernel whose reductions are `Fold`s of their operands at each tap."""

    def __init__(self, group: Group, kept: Space, count: int = 1):
        super().__init__(replace(group, space=kept))
        self.makers: dict[str, Statement] = {}
        self.windows = group.space
        self.shape = next((node.shape for node in group.outputs if node.type.numel), (0,))
        self.first = coordinates(kept).element
        self.column: Column | None = None
        self.blocks = 1
        if count > 1:
            *_, rows, columns = self.shape
            self.blocks = -(-rows // count)
            self.column = Column(mod_(floordiv(self.first, columns), self.blocks), rows, count)
        self.begin(0)

    def begin(self, below: int) -> None:
        """Begin with the result so many rows below a lane's first."""
        shape = self.shape
        self.at = unflatten(self.first, shape)
        if self.column is not None:
            *outer, _, columns = shape
            above, inside = floordiv(self.first, self.blocks * columns), mod_(self.first, columns)
            self.at = (*unflatten(above, outer), offset(self.column.first, below), inside)
        self.below, self.x = below, flatten(self.at, shape)
        self.element = self.x

    def kernel(self, wanted: tuple[Value, ...] = ()) -> Kernel:
        return replace(super().kernel(wanted), column=self.column)

    def store(self, node: Node) -> None:
        point = self.at if node.shape == self.shape else unflatten(self.x, node.shape)
        value = self.value(node, point, ())
        address = self.group.address(node, self.x)
        self.statements.append(Store(self.outputs[node].name, address, value, self.vars_of(self.x)))

    def reduce(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        axes = _axes(node) if node["keepdims"] else ()
        if tuple([e for axis, e in enumerate(point) if axis not in axes]) != self.at:
            self.require_this_row(node, point, bounds)
        found = self.memo.get((node, self.below))
        if found is not None:
            return found
        operand = node.inputs[0]
        points = self.seen(node)
        values = tuple([self.value(operand, at, ()) for at in points])
        positions: tuple[int, ...] | None = None
        if node.op.name in ("argmax", "argmin"):
            along = [at[node["axis"]] for at in points]
            if not all(e.is_constant for e in along):
                raise NotFusable(f"the places of {node.op.name} depend on the row")
            positions = tuple([e.constant for e in along])
        vars = "".join(name for name in "xr" if any(name in x.vars for x in values))
        out = self.new(node.op.name, node.dtype, vars, 0)
        found = self.memo[(node, self.below)] = self.add(Fold(out, node.op.name, values, positions))
        return found

    def seen(self, node: Node) -> list[Point]:
        """The points of a reduction's operand that its result is made of, in order.

        Coordinates of the result are the operand's: of a position in all windows, with symbolic sizes, nobody sees that
        a tap's part of it is a number of rows and columns, so that each tap would have an address of its own.
        """
        shape, axes = node.inputs[0].shape, _axes(node)
        kept = [size for axis, size in enumerate(shape) if axis not in axes]
        if len(kept) != len(self.at) or not all(map(_same, kept, self.shape)):
            return [unflatten(tap, shape) for tap in _taps(self.windows, self.x)]
        found = []
        for tap in range(prod(shape[axis] for axis in axes)):
            own, inner = iter(self.at), iter(unflatten(constant(tap), [shape[axis] for axis in sorted(axes)]))
            found.append(tuple([next(inner) if axis in axes else next(own) for axis in range(len(shape))]))
        return found

    def position(self, e: Expr, dtype: DType) -> Value:
        found = self.memo.get((e, dtype))
        if found is None:
            found = self.memo[(e, dtype)] = super().position(e, dtype)
        return found

    def move(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        """A view's element; padding by zeros of what a load gives, which is 0 outside its bounds, is that load."""
        if node.op is reshape:
            operand = node.inputs[0]
            return self.value(operand, _reshaped(point, node.shape, operand.shape), bounds)
        if node.op is pad and node["value"] == 0 and not is_negative_zero(node["value"]):
            first, *_ = pieces(node, point)
            inside = self.piece(node, first, (*bounds, *first.bounds))
            loaded = self.makers.get(inside.name)
            while isinstance(loaded, Apply) and loaded.node.op is cast:
                loaded = self.makers.get(loaded.operands[0].name)
            if isinstance(loaded, Load) and set(first.bounds) <= set(loaded.bounds):
                return inside
        return super().move(node, point, bounds)

    def add(self, statement: Any) -> Value:
        self.makers[statement.out.name] = statement
        return super().add(statement)

    def compute(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        if node.op.kind == "pointwise" and not node.type.weak and stored_as(node) not in self.memory:
            known = self.computed_index(node, point)
            if known is not None:
                return known
        return super().compute(node, point, bounds)

    def computed_index(self, node: Node, point: Point) -> Value | None:
        """What is made of coordinates alone: an index, or a comparison of two of them."""
        e = index_expression(node, point)
        if e is not None:
            return self.number(node, e.constant) if e.is_constant else self.position(e, node.dtype)
        if node.dtype is not bool_ or node.op.name not in ("eq", "ne", "lt", "le", "gt", "ge"):
            return None
        a, b = (index_expression(x, () if x.type.weak else point) for x in node.inputs)
        if a is None or b is None:
            return None
        known = known_comparison(node.op.name, a, b)
        if known is not None:
            return self.number(node, known)
        sides = tuple([self.add(Constant(self.new("c", int32, "", 0), e.constant)) if e.is_constant
                       else self.position(e, int32) for e in (a, b)])
        vars = self.vars_of(a, b)
        return self.add(Apply(self.new(node.op.name, bool_, vars, self.stage_of(a, b)), node, sides, int32))

    def number(self, node: Node, value: int | float) -> Value:
        """A number in a node's dtype."""
        return self.add(Constant(self.new("c", node.dtype, "", 0), value))

    def apply(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        """A pointwise op; a choice whose condition is known is one of its operands."""
        if node.op.name == "where":
            known = self.known(self.value(node.inputs[0], point, bounds))
            chosen = node.inputs[1 if known else 2]
            if known is not None and chosen.op.name == "const":
                return self.number(node, chosen["value"])
            if known is not None and chosen.dtype is node.dtype:
                return self.value(chosen, point, bounds)
        elif node.dtype is bool_ and node.op.name in ("bitwise_and", "mul"):
            values = [self.value(x, () if x.type.weak else point, bounds) for x in node.inputs]
            for value, other in (values, values[::-1]):
                known = self.known(value)
                if known is not None and value.dtype is other.dtype is bool_:
                    return other if known else value
        return super().apply(node, point, bounds)

    def known(self, value: Value) -> bool | None:
        """A truth value that is a constant."""
        maker = self.makers.get(value.name)
        return bool(maker.number) if isinstance(maker, Constant) else None
