"""The kernel of a loop group (`kernel_ir.py`), made by pulling: the value of a node at a point asks its operands at the
points that it needs, and movement ops only change the point. A pair (node, point) is computed once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

from genesis.codegen.cuda.index_arithmetic import index_expression
from genesis.codegen.cuda.kernel_ir import (
    END,
    Apply,
    Argument,
    Checked,
    Constant,
    Index,
    Kernel,
    Load,
    Number,
    Part,
    Position,
    Random,
    Reduce,
    Select,
    Splits,
    Statement,
    Store,
    Value,
    operands_of,
    vars_of,
)
from genesis.codegen.cuda.lowerings import POINTWISE
from genesis.ir.node import Node
from genesis.ir.ops.row_number import in_range, report_of
from genesis.ir.ops.row_writes import row_put
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.types import DType, float64, int64, promote_types
from genesis.passes.fusion.index_map import ZERO, Bound, Expr, atoms, flatten, loaded, narrowed, unflatten, variable
from genesis.passes.fusion.loop_reads import coordinates, reduction_space
from genesis.passes.fusion.views import Point, pieces, stored_as
from genesis.passes.groups import Group, Space


class NotFusable(Exception):
    """The group asks for a reduction's result of another row; `fuse` must not build such a group."""


def build(group: Group) -> Kernel:
    """The kernel of a loop group."""
    return _stored(Builder(group))


def _stored(builder: Builder) -> Kernel:
    """The kernel that writes the outputs of a builder's group."""
    with deep_recursion():
        for node in builder.group.outputs:
            if node.op is reduce_splits:
                builder.part(node)
            elif node.type.numel:
                builder.store(node)
    return builder.kernel()


def over(group: Group, space: Space) -> Kernel:
    """The kernel of a loop group that goes through another space of the same size."""
    return build(replace(group, space=space))


def in_order(group: Group, space: Space, order: tuple[int, ...]) -> Kernel:
    """The kernel of a loop group that counts the rows of another space of the same size in an order of its own.

    Args:
        space: x parts, row-major as the results lie, then one of r.
        order: the x parts, outermost of the loop first: of ((7, "x"), (56, "x"), (176, "r")) and (1, 0) neighbours of x
            lie 56 rows apart in the results.
    """
    *outer, (columns, _) = space
    sizes = [size for size, _ in outer]
    parts = unflatten(variable("x", prod(sizes)), [sizes[axis] for axis in order])
    rows = [parts[order.index(axis)] for axis in range(len(sizes))]
    builder = Builder(replace(group, space=space))
    builder.element = flatten([*rows, variable("r", columns)], [*sizes, columns])
    return _stored(builder)


def build_operands(group: Group, space: Space, operands: tuple[Node, ...]) -> tuple[Kernel, tuple[Value, ...]]:
    """What computes these nodes at every point of a space, and their values: a template goes on with them.

    The kernel has no stores, and no arguments for the group's outputs.
    """
    builder = Builder(replace(group, space=space, outputs=()))
    with deep_recursion():
        values = tuple([builder.value(node, unflatten(builder.element, node.shape), ()) for node in operands])
    return builder.kernel(values), values


def operand_dtype(node: Node) -> DType:
    """The dtype in which a pointwise op computes: that of its strong operands; of numbers their widest, or the next one
    that the op exists for, as its type rule says (the logarithm of the number 2 is one of 2.0)."""
    types = [x.type for x in (node.inputs[1:] if node.op.name == "where" else node.inputs)]
    strong = [t.dtype for t in types if not t.weak]
    if strong:
        return strong[0]
    dtype = types[0].dtype
    for t in types[1:]:
        dtype = promote_types(dtype, t.dtype)
    columns = POINTWISE.get(node.op.name)
    if columns is None or columns[dtype.kind if dtype.kind != "float" else "f64"]:
        return dtype
    return int64 if dtype.kind == "bool" and columns["int"] else float64


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Room for a group's longest chain: pulling recurses three frames a node."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 20_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


_EMPTY = {"sum": 0, "prod": 1, "any": False, "all": True, "max": 0, "min": 0, "argmax": 0, "argmin": 0}
"""What a reduction of no element gives. Maxima of no element exist only where there is no result either."""


class Builder:
    """Builds one kernel. `bounds` are the predicates under which a value is wanted: loads obey them."""

    def __init__(self, group: Group):
        self.group = group
        at = coordinates(group.space)
        self.element, self.x = at.element, at.row
        self.arguments: dict[Node, Argument] = {}
        self.statements: list[Statement] = []
        self.memo: dict[tuple[Any, ...], Value] = {}
        self.indices: dict[str, Value] = {}
        self.used: dict[str, int] = {}
        self.splits: Splits | None = None
        self.memory: dict[Node, Argument] = {}
        for position, node in enumerate(group.inputs):
            self.memory[stored_as(node)] = self.arguments[node] = Argument(f"in{position}", node, "in")
        for position, node in enumerate(group.scalars):
            self.arguments[node] = Argument(f"number{position}", node, "number")
        self.outputs = {node: Argument(f"out{position}", node, "out") for position, node in enumerate(group.outputs)}

    def kernel(self, wanted: tuple[Value, ...] = ()) -> Kernel:
        """What has been built, without what neither a store nor one of the wanted values needs."""
        return Kernel(self.group.space, (*self.arguments.values(), *self.outputs.values()),
                      tuple(_needed(self.statements, self.indices, wanted)), self.indices, self.splits)

    def part(self, node: Node) -> None:
        """Compute a node's operand everywhere and reduce it over splits."""
        operand = node.inputs[0]
        over = "r" if reduction_space(node) == self.group.space else "x"
        self.splits = Splits(node["splits"], node["multiple"], over)
        value = self.value(operand, unflatten(self.element, operand.shape), ())
        self.statements.append(Part(self.outputs[node].name, node["how"], value))

    def store(self, node: Node) -> None:
        """Compute a node everywhere in its part of the space and write it."""
        if stored_as(node).op is row_put:
            self.store_row(node, stored_as(node))
            return
        if node.type.numel == prod(size for size, _ in self.group.space):
            position = self.element
            variables = self.vars_of(position)
        else:
            position, variables = self.x, self.vars_of(self.x)
        value = self.value(node, unflatten(position, node.shape), ())
        self.statements.append(Store(self.outputs[node].name, self.group.address(node, position), value, variables))

    def store_row(self, node: Node, put: Node) -> None:
        """Compute a row and write it where the index says; the rest of the memory is what it was."""
        _, source, index = put.inputs
        whole = source.type.numel == prod(size for size, _ in self.group.space)
        position = self.element if whole else self.x
        outer, _, inner = unflatten(position, source.shape)
        value = self.value(source, unflatten(position, source.shape), ())
        row = self.index(self.value(index, (ZERO,), ()), put.shape[1])
        address = flatten((outer, row, inner), put.shape)
        self.statements.append(Store(self.outputs[node].name, address, value, self.vars_of(position)))

    def new(self, stem: str, dtype: DType, vars: str, stage: int) -> Value:
        """A value with a fresh readable name."""
        count = self.used.get(stem, 0)
        self.used[stem] = count + 1
        return Value(f"{stem}{count}" if count or stem[-1:].isdigit() else stem, dtype, vars, stage)

    def add(self, statement: Any) -> Value:
        """Append a statement and return its value."""
        self.statements.append(statement)
        return statement.out

    def vars_of(self, *expressions: Expr) -> str:
        """The variables that expressions depend on, through loaded indices too."""
        return vars_of(self.indices, expressions)

    def stage_of(self, *expressions: Expr) -> int:
        """The latest stage of the loaded indices in expressions."""
        return max((self.indices[atom.name].stage for atom in atoms(expressions) if atom.kind == "loaded"), default=0)

    def value(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        """The node's element at a point."""
        key = (node, point, bounds)
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self.compute(node, point, bounds)
        return found

    def compute(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        memory = self.memory.get(stored_as(node))
        if memory is not None:
            return self.load(memory, flatten(point, node.shape), bounds)
        name, kind = node.op.name, node.op.kind
        if name == "const":
            return self.add(Constant(self.new("c", node.dtype, "", 0), node["value"]))
        if name == "scalar":
            return self.add(Number(self.new("n", node.dtype, "", 0), self.arguments[node].name))
        if name == "iota":
            return self.position(point[node["axis"]], node.dtype)
        if node.op is in_range:
            return self.checked(node, point, bounds)
        if kind == "pointwise":
            return self.apply(node, point, bounds)
        if kind == "movement":
            return self.move(node, point, bounds)
        if kind == "reduction":
            return self.reduce(node, point, bounds)
        if kind == "random":
            seed, draw = (self.value(x, (), ()) for x in node.inputs)
            counter = flatten(point, node.shape)
            out = self.new("bits", node.dtype, self.vars_of(counter), self.stage_of(counter))
            return self.add(Random(out, node["word"], node["words"], seed, draw, counter))
        if name in ("take", "gather"):
            return self.read_row(node, point, bounds)
        raise NotFusable(f"{name} cannot be computed inside a loop")

    def load(self, argument: Argument, address: Expr, bounds: tuple[Bound, ...]) -> Value:
        key = (argument.name, address, bounds)
        found = self.memo.get(key)
        if found is None:
            where = [address, *(bound.e for bound in bounds)]
            out = self.new(f"{argument.name}_at", argument.node.dtype, self.vars_of(*where), self.stage_of(*where))
            found = self.memo[key] = self.add(Load(out, argument.name, address, bounds))
        return found

    def position(self, e: Expr, dtype: DType) -> Value:
        return self.add(Position(self.new("i", dtype, self.vars_of(e), self.stage_of(e)), e))

    def apply(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        operands = tuple([self.value(x, () if x.type.weak else point, bounds) for x in node.inputs])
        vars = "".join(name for name in "xr" if any(name in x.vars for x in operands))
        out = self.new(node.op.name.strip("_"), node.dtype, vars, max((x.stage for x in operands), default=0))
        return self.add(Apply(out, node, operands, operand_dtype(node)))

    def move(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        *first, last = pieces(node, point)
        value = self.piece(node, last, (*bounds, *last.bounds))
        for piece in reversed(first):
            inside = self.piece(node, piece, (*bounds, *piece.bounds))
            where = [bound.e for bound in piece.bounds]
            vars = set(inside.vars + value.vars + self.vars_of(*where))
            out = self.new("part", node.dtype, "".join(name for name in "xr" if name in vars),
                           max(inside.stage, value.stage, self.stage_of(*where)))
            value = self.add(Select(out, piece.bounds, inside, value))
        return value

    def piece(self, node: Node, piece: Any, bounds: tuple[Bound, ...]) -> Value:
        if piece.operand is None:
            number = {"float": float, "int": int, "bool": bool}[node.dtype.kind](node["value"])
            return self.add(Constant(self.new("c", node.dtype, "", 0), number))
        return self.value(piece.operand, piece.point, bounds)

    def reduce(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        """A reduction's result: of this row, where it is wanted at all, or the group is wrong."""
        self.require_this_row(node, point, bounds)
        found = self.memo.get((node,))
        if found is None:
            operand = node.inputs[0]
            if operand.type.numel == 0:
                found = self.memo[(node,)] = self.add(Constant(self.new("c", node.dtype, "", 0), _EMPTY[node.op.name]))
                return found
            at = unflatten(self.element, operand.shape)
            value = self.value(operand, at, ())
            by_index = node.op.name in ("argmax", "argmin")
            vars = self.vars_of(self.x)
            out = self.new(node.op.name, node.dtype, vars, value.stage + 1)
            found = self.memo[(node,)] = self.add(
                Reduce(out, node.op.name, value, at[node["axis"]] if by_index else None))
        return found

    def require_this_row(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> None:
        """Raise NotFusable where a reduction is wanted of another row than x."""
        position = flatten(point, node.shape)
        if position != self.x and _at(node, point, bounds) != narrowed(self.x, bounds):
            raise NotFusable(f"{node.op.name} is read at {point}, which is another row than x")

    def read_row(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        """take and gather: the index becomes part of the point at which the table is read."""
        table, index = node.inputs
        axis = node["axis"]
        if node.op.name == "take":
            at = point[axis:axis + len(index.shape)]
            before, after = point[:axis], point[axis + len(index.shape):]
        else:
            at, before, after = point, point[:axis], point[axis + 1:]
        chosen = self.computed_row(index, at, table.shape[axis])
        if chosen is None:
            chosen = self.index(self.value(index, at, bounds), table.shape[axis])
        return self.value(table, (*before, chosen, *after), bounds)

    def computed_row(self, index: Node, at: Point, size: int) -> Expr | None:
        """An index that is made of coordinates alone, not read from memory, and known to be inside."""
        e = None if stored_as(index) in self.memory else index_expression(index, at)
        return e if e is not None and Bound(e, 0, size).always else None

    def checked(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> Value:
        operand, told = self.value(node.inputs[0], point, bounds), report_of(node)
        if told not in self.arguments:
            count = sum(argument.role == "report" for argument in self.arguments.values())
            self.arguments[told] = Argument(f"report{count}", told, "report")
        out = self.new("checked", int64, operand.vars, operand.stage)
        return self.add(Checked(out, operand, node, self.arguments[told].name, bounds))

    def index(self, value: Value, size: int) -> Expr:
        found = self.memo.get(("index", value, size))
        if found is None:
            out = self.new("row", int64, value.vars, value.stage)
            found = self.memo[("index", value, size)] = self.add(Index(out, value, size))
            self.indices[out.name] = out
        return loaded(found.name, size, found.name)


def _at(node: Node, point: Point, bounds: tuple[Bound, ...]) -> Expr:
    """The position of a point where the bounds hold."""
    return flatten([narrowed(e, bounds) for e in point], node.shape)


def _needed(statements: list[Statement], indices: dict[str, Value], values: tuple[Value, ...]) -> list[Statement]:
    """The statements that a store or one of the values depends on."""
    wanted = {value.name for value in values}
    kept = []
    for statement in reversed(statements):
        if isinstance(statement, END) or statement.out.name in wanted:
            kept.append(statement)
            wanted.update(value.name for value in operands_of(statement, indices))
    return kept[::-1]
