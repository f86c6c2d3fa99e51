"""Movement ops as index maps: where an element of the result comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from genesis.ir.node import Node, Op
from genesis.ir.ops import movement, recompute
from genesis.passes.fusion.index_map import (
    ZERO,
    Bound,
    Expr,
    add,
    constant,
    flatten,
    floordiv,
    mod_,
    offset,
    scale,
    unflatten,
)

Point = tuple[Expr, ...]


@dataclass(frozen=True)
class Piece:
    """One source of a movement op's elements.

    The value at a point is that of the first piece whose bounds all hold: `operand` at `point`, or,
    without an operand, the op's fill value. The last piece is taken wherever no other one is; if it has
    bounds, they hold there, and say where its operand may be read.
    """

    bounds: tuple[Bound, ...]
    operand: Node | None
    point: Point


def pieces(node: Node, point: Point) -> tuple[Piece, ...]:
    """The sources of a movement node's element at a point."""
    return _PIECES[node.op](node, point)


def stored_as(node: Node) -> Node:
    """The node whose memory holds this value: a reshape has the memory of what it reshapes."""
    while node.op in (movement.reshape, recompute.recompute):
        node = node.inputs[0]
    return node


def _one(operand: Node, point: Point) -> tuple[Piece, ...]:
    return (Piece((), operand, point),)


def _reshape(node: Node, point: Point) -> tuple[Piece, ...]:
    x = node.inputs[0]
    return _one(x, unflatten(flatten(point, node.shape), x.shape))


def _recompute(node: Node, point: Point) -> tuple[Piece, ...]:
    return _one(node.inputs[0], point)


def _permute(node: Node, point: Point) -> tuple[Piece, ...]:
    source = [ZERO] * len(point)
    for position, axis in enumerate(node["axes"]):
        source[axis] = point[position]
    return _one(node.inputs[0], tuple(source))


def _expand(node: Node, point: Point) -> tuple[Piece, ...]:
    x = node.inputs[0]
    lead = len(point) - len(x.shape)
    return _one(x, tuple(ZERO if size == 1 else e for size, e in zip(x.shape, point[lead:], strict=True)))


def _slice(node: Node, point: Point) -> tuple[Piece, ...]:
    steps = zip(point, node["starts"], node["steps"], strict=True)
    return _one(node.inputs[0], tuple(offset(scale(e, step), start) for e, start, step in steps))


def _flip(node: Node, point: Point) -> tuple[Piece, ...]:
    turned = (add(constant(size - 1), scale(e, -1)) if axis in node["axes"] else e
              for axis, (e, size) in enumerate(zip(point, node.shape, strict=True)))
    return _one(node.inputs[0], tuple(turned))


def _pad(node: Node, point: Point) -> tuple[Piece, ...]:
    x = node.inputs[0]
    source = tuple(offset(e, -low) for e, low in zip(point, node["low"], strict=True))
    inside = _needed(Bound(e, 0, size) for e, size in zip(source, x.shape, strict=True))
    return (Piece(inside, x, source), Piece((), None, ())) if inside else _one(x, source)


def _concat(node: Node, point: Point) -> tuple[Piece, ...]:
    axis, found, start = node["axis"], [], 0
    operands = [x for x in node.inputs if x.shape[axis]] or list(node.inputs[:1])
    for x in operands:
        source = (*point[:axis], offset(point[axis], -start), *point[axis + 1:])
        start += x.shape[axis]
        found.append(Piece(_needed([Bound(source[axis], 0, x.shape[axis])]), x, source))
    return tuple(found)


def _assign(node: Node, point: Point) -> tuple[Piece, ...]:
    base, value = node.inputs
    bounds, source = [], []
    for e, start, step, size in zip(point, node["starts"], node["steps"], value.shape, strict=True):
        moved = offset(e, -start)
        if step != 1:
            bounds.append(Bound(mod_(moved, step), 0, 1))
            bounds.append(Bound(moved, 0, (size - 1) * step + 1))
        else:
            bounds.append(Bound(moved, 0, size))
        source.append(floordiv(moved, step))
    inside = _needed(bounds)
    return (Piece(inside, value, tuple(source)), Piece((), base, point)) if inside else _one(value, tuple(source))


def _needed(bounds: object) -> tuple[Bound, ...]:
    return tuple(bound for bound in bounds if not bound.always)  # type: ignore[attr-defined]


_PIECES: dict[Op, Callable[[Node, Point], tuple[Piece, ...]]] = {
    movement.reshape: _reshape,
    movement.permute: _permute,
    movement.expand: _expand,
    movement.slice: _slice,
    movement.flip: _flip,
    movement.pad: _pad,
    movement.concat: _concat,
    movement.assign: _assign,
    recompute.recompute: _recompute,
}
