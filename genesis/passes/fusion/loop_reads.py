"""The elements at which a node of a loop reads the values that it needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from genesis.ir.node import Node
from genesis.ir.ops import indexing, reduction
from genesis.ir.ops.row_writes import row_put
from genesis.passes.fusion.index_map import ZERO, Bound, Expr, flatten, loaded, narrowed, unflatten, variable
from genesis.passes.fusion.views import Point, pieces
from genesis.passes.groups import Space
from genesis.passes.structural_memo import memoized, structure_below


@dataclass(frozen=True)
class Coordinates:
    """The expressions of an iteration space.

    Attributes:
        element: flat position in the whole space, of x and r.
        row: flat position in its x part.
    """

    element: Expr
    row: Expr


@lru_cache(maxsize=4096)
def coordinates(space: Space) -> Coordinates:
    """The positions that x and r stand for."""
    sizes = {kind: [size for size, k in space if k == kind] for kind in "xr"}
    flat = {kind: variable(kind, prod(sizes[kind])) for kind in "xr"}
    parts = {kind: iter(unflatten(flat[kind], sizes[kind])) for kind in "xr"}
    element = flatten([next(parts[kind]) for _, kind in space], [size for size, _ in space])
    return Coordinates(element, flat["x"])


def reduction_space(node: Node) -> Space:
    """The space of a reduction: its operand's sizes, neighbours of one kind joined, ones left out."""
    axes = (node["axis"],) if node.op in (reduction.argmax, reduction.argmin) else node["axes"]
    joined: list[tuple[int, str]] = []
    for axis, size in enumerate(node.inputs[0].shape):
        kind = "r" if axis in axes else "x"
        if size == 1:
            continue
        if joined and joined[-1][1] == kind:
            joined[-1] = (joined[-1][0] * size, kind)
        else:
            joined.append((size, kind))
    return tuple(joined) if any(kind == "r" for _, kind in joined) else (*joined, (1, "r"))


def computed_shape(node: Node) -> tuple[int, ...]:
    """The shape whose elements a loop goes through for a node: of a reduction its operand's, of a row that is written
    the row's."""
    if node.op is row_put:
        return node.inputs[1].shape
    return node.inputs[0].shape if node.op.kind == "reduction" else node.shape


def reads_at(node: Node, position: Expr, materialized: dict[Node, object]) -> tuple[tuple[Node, Expr], ...]:
    """(value in memory or of another kernel node, the flat position read) for a node computed at `position`.

    A position is one of `computed_shape`. Positions may repeat; the order is fixed. What a row is written into is not
    read.
    """
    if node.op.kind in ("pointwise", "reduction"):
        same = [x for x in node.inputs if not x.type.weak]
        if all(x in materialized and x.type.ndim == same[0].type.ndim for x in same):
            return tuple([(x, position) for x in same])
    if node.op in LOADING:
        return _followed(node, position, materialized)
    key, ends = structure_below(node, materialized)
    found = memoized(("reads", key, position), lambda: tuple(
        (ends.index(x), e) for x, e in _followed(node, position, materialized)) if not _loads(key) else None)
    return _followed(node, position, materialized) if found is None else tuple([(ends[i], e) for i, e in found])


def reads_within(node: Node, position: Expr, bounds: tuple[Bound, ...],
                 materialized: dict[Node, object]) -> tuple[tuple[Node, Expr, tuple[Bound, ...]], ...] | None:
    """What `reads_at` says of a node that is computed where the bounds hold; and the bounds of each value it reads.

    A position is what it is within its bounds: of a rotated half, `x·128 + r - 64` where 64 ≤ r, which is in row x.
    None where an index is followed: which row of the table it reads is not known.
    """
    follower = _BoundedFollower(materialized)
    follower.operands(node, unflatten(narrowed(position, bounds), computed_shape(node)), bounds)
    return None if follower.indexed else tuple(follower.found)


LOADING = (indexing.take, indexing.gather)
"""Ops that read where another value says: their positions name nodes."""


def _loads(key: Iterable[tuple]) -> bool:
    """Is there such an op in a structure?"""
    return any(len(row) > 1 and row[0] in LOADING for row in key)


def _followed(node: Node, position: Expr, materialized: dict[Node, object]) -> tuple[tuple[Node, Expr], ...]:
    follower = _Follower(materialized)
    follower.operands(node, unflatten(position, computed_shape(node)))
    return tuple(follower.found)


class _Follower:
    """Follows inlined nodes from a point to the materialized nodes and inputs that they read."""

    def __init__(self, materialized: dict[Node, object]):
        self.materialized = materialized
        self.found: dict[tuple[Node, Expr], None] = {}
        self.seen: set[tuple[Node, Point]] = set()

    def visit(self, node: Node, point: Point) -> None:
        if node in self.materialized:
            self.found[(node, flatten(point, node.shape))] = None
        elif (node, point) not in self.seen:
            self.seen.add((node, point))
            self.operands(node, point)

    def operands(self, node: Node, point: Point) -> None:
        """Visit what a node reads when it is computed at a point."""
        if node.op.kind == "movement":
            for piece in pieces(node, point):
                if piece.operand is not None:
                    self.visit(piece.operand, piece.point)
        elif node.op in LOADING:
            table, index = node.inputs
            axis = node["axis"]
            width = len(index.shape) if node.op is indexing.take else 1
            at = point[axis:axis + width] if node.op is indexing.take else point
            self.visit(index, at)
            row = loaded(f"row{len(self.seen)}", table.shape[axis], (node, at))
            self.visit(table, (*point[:axis], row, *point[axis + width:]))
        elif node.op is row_put:
            self.visit(node.inputs[1], point)
            self.visit(node.inputs[2], (ZERO,))
        else:
            for x in node.inputs:
                if not x.type.weak:  # numbers read no memory
                    self.visit(x, point if x.type.ndim == node.type.ndim or node.op.kind == "reduction" else ())


class _BoundedFollower:
    """Follows as `_Follower` does, and remembers the bounds of the pieces that it went through.

    Attributes:
        indexed: it met an index, which it does not follow.
    """

    def __init__(self, materialized: dict[Node, object]):
        self.materialized, self.indexed = materialized, False
        self.found: dict[tuple[Node, Expr, tuple[Bound, ...]], None] = {}
        self.seen: set[tuple[Node, Point, tuple[Bound, ...]]] = set()

    def visit(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> None:
        point = tuple([narrowed(e, bounds) for e in point])
        if node in self.materialized:
            self.found[(node, flatten(point, node.shape), bounds)] = None
        elif (node, point, bounds) not in self.seen:
            self.seen.add((node, point, bounds))
            self.operands(node, point, bounds)

    def operands(self, node: Node, point: Point, bounds: tuple[Bound, ...]) -> None:
        """Visit what a node reads when it is computed at a point."""
        if node.op.kind == "movement":
            for piece in pieces(node, point):
                if piece.operand is not None:
                    self.visit(piece.operand, piece.point, (*bounds, *piece.bounds))
        elif node.op in LOADING:
            self.indexed = True
        elif node.op is row_put:
            self.visit(node.inputs[1], point, bounds)
            self.visit(node.inputs[2], (ZERO,), bounds)
        else:
            for x in node.inputs:
                if not x.type.weak:
                    self.visit(x, point if x.type.ndim == node.type.ndim or node.op.kind == "reduction" else (), bounds)
