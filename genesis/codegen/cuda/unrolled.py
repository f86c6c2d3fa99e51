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
from genesis.codegen.cuda.kernel_ir import Apply, Constant, Fold, Kernel, Load, Select, Statement, Store, Value
from genesis.ir.node import Node
from genesis.ir.ops.movement import pad
from genesis.ir.ops.pointwise import cast, mul
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.sym_int import SymInt
from genesis.ir.types import DType, bool_, int32
from genesis.passes.fusion.index_map import ZERO, Atom, Bound, Expr, atoms, constant, flatten, unflatten
from genesis.passes.fusion.loop_reads import LOADING, coordinates
from genesis.passes.fusion.views import Point, pieces, stored_as
from genesis.passes.groups import Group, Space

MOST_TAPS: Final = 64
"""Maximum taps of a window: a window of 8 by 8."""

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
    return found if len(found.statements) <= MOST_STATEMENTS else None


def build_unrolled(group: Group, kept: Space) -> Kernel:
    """The kernel over the kept elements alone, whose coordinates `kept` says; raises NotFusable."""
    builder = _Unrolled(group, kept)
    with deep_recursion():
        for node in group.outputs:
            if node.type.numel:
                builder.store(node)
    return builder.kernel()


def _reduces_windows(group: Group, kernel: Kernel) -> bool:
    """Whether all it makes is results of short reductions, of what neighbours read side by side."""
    taps = prod(size for size, kind in group.space if kind == "r")
    if not isinstance(taps, int) or not 1 <= taps <= MOST_TAPS or kernel.x_size == 0 or group.slices:
        return False
    if not any(node.op in LOADING for node in group.nodes) or any(node.op is reduce_splits for node in group.nodes):
        return False
    if any(isinstance(s, Store) and s.vars == "xr" for s in kernel.statements):
        return False
    if any(node.type.numel not in (0, kernel.x_size) for node in group.outputs):
        return False
    if taps * len(kernel.statements) > 4 * MOST_STATEMENTS or _multiplies_elements(kernel):
        return False
    return taps == 1 or any(_step(load, kernel) <= taps for load in kernel.loads("xr"))


def _multiplies_elements(kernel: Kernel) -> bool:
    """Whether windows are multiplied by what is in memory, too, as convolutions of groups are. Those are not unrolled:
    ptxas made a wrong program of the divisions in one (`expressions._by_multiplying`)."""
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


def _taps(space: Space, x: Expr) -> tuple[Point, ...]:
    """The point of a reduction's whole space of each of its elements for one that is kept, in order."""
    kept = iter(unflatten(x, [size for size, kind in space if kind == "x"]))
    outer = [next(kept) if kind == "x" else None for _, kind in space]
    reduced = [size for size, kind in space if kind == "r"]
    found = []
    for tap in range(prod(reduced)):
        inner = iter(unflatten(constant(tap), reduced))
        found.append(tuple([next(inner) if e is None else e for e in outer]))
    return tuple(found)


def _in_shape(point: Point, sizes: Sequence[int], shape: Sequence[int]) -> Point:
    """A point of a space as one of a shape, of which neighbouring dimensions are one of the space.

    Each is taken apart by itself: of a position in all of them, with symbolic sizes, nobody sees that a tap's part of
    it is a number of rows and columns, so that each tap would have an address of its own.
    """
    left = list(shape)
    found: list[Expr] = []
    for e, size in zip(reversed(point), reversed(sizes), strict=True):
        part: list[int] = []
        count = 1
        while left and not _same(count, size):
            part.insert(0, left.pop())
            count *= part[0]
        if not _same(count, size):
            return unflatten(flatten(point, sizes), shape)
        found[:0] = unflatten(e, part)
    return (*[ZERO] * len(left), *found) if all(_same(size, 1) for size in left) else unflatten(
        flatten(point, sizes), shape)


def _same(a: int, b: int) -> bool:
    """Whether two sizes are the same formula, without a guard."""
    return a is b if isinstance(a, SymInt) or isinstance(b, SymInt) else a == b


class _Unrolled(Builder):
    """Builds a kernel whose reductions are `Fold`s of their operands at each tap."""

    def __init__(self, group: Group, kept: Space):
        super().__init__(replace(group, space=kept))
        self.x = self.element = coordinates(kept).element
        self.makers: dict[str, Statement] = {}
        self.sizes = [size for size, _ in group.space]
        self.taps = _taps(group.space, self.x)

    def store(self, node: Node) -> None:
        value = self.value(node, unflatten(self.x, node.shape), ())
        address = self.group.address(node, self.x)
        self.statements.append(Store(self.outputs[node].name, address, value, self.vars_of(self.x)))

    def reduce(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        self.require_this_row(node, point, bounds)
        found = self.memo.get((node,))
        if found is not None:
            return found
        operand = node.inputs[0]
        points = [_in_shape(tap, self.sizes, operand.shape) for tap in self.taps]
        values = tuple([self.value(operand, at, ()) for at in points])
        positions: tuple[int, ...] | None = None
        if node.op.name in ("argmax", "argmin"):
            along = [at[node["axis"]] for at in points]
            if not all(e.is_constant for e in along):
                raise NotFusable(f"the places of {node.op.name} depend on the row")
            positions = tuple([e.constant for e in along])
        vars = "".join(name for name in "xr" if any(name in x.vars for x in values))
        out = self.new(node.op.name, node.dtype, vars, 0)
        found = self.memo[(node,)] = self.add(Fold(out, node.op.name, values, positions))
        return found

    def position(self, e: Expr, dtype: DType) -> Value:
        found = self.memo.get((e, dtype))
        if found is None:
            found = self.memo[(e, dtype)] = super().position(e, dtype)
        return found

    def move(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        """A view's element; padding by zeros of what a load gives, which is 0 outside its bounds, is that load."""
        if node.op is pad and node["value"] == 0:
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
