"""Large reductions to few results in two steps, so that the whole GPU works on them."""

from __future__ import annotations

from math import prod

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops import movement

SPLITTABLE = {"sum", "prod", "max", "min", "any", "all"}

FEW = 2048
"""Results below which a GPU would not be filled by a program for each (or for each block of columns)."""

LONG = 65536
"""Elements of a result above which one program takes too long."""

PARTS = 1024
"""Partial results in all that are aimed at."""


def split_reductions(graph: Graph) -> Graph:
    """A reduction of many elements to few results → partial reductions, then one of these.

    before: %1: f32[] = sum(%0, axes=(0,))            after: %1: f32[1024,976] = reshape(%0)
                                                              %2: f32[1024] = sum(%1, axes=(1,))
                                                              %3: f32[] = sum(%2, axes=(0,))

    The first reduced axis that has a suitable divisor is split; a size without one (a prime) is left alone.
    """
    return rewrite(graph, _split)


def _split(node: Node) -> Node | None:
    if node.op.name not in SPLITTABLE:
        return None
    x, axes = node.inputs[0], node["axes"]
    results, extent = node.type.numel, prod(x.shape[a] for a in axes)
    columns = max(axes, default=0) < x.type.ndim - 1
    if not 0 < results <= FEW or extent < (LONG if not columns else 2048) or extent * results < LONG:
        return None
    wanted = max(2, min(PARTS // results if not columns else 64, extent // 256))
    full = tuple(sorted(axes)) == tuple(range(x.type.ndim))
    if full and x.type.ndim > 1:  # all elements: their layout does not matter
        x, axes = movement.reshape(x, shape=(extent,)), (0,)
    for axis in sorted(axes):
        parts = _divisor(x.shape[axis], wanted)
        if parts > 1:
            break
    else:
        return None
    shape = (*x.shape[:axis], parts, x.shape[axis] // parts, *x.shape[axis + 1:])
    shifted = tuple(a + (a >= axis) for a in axes)  # the split axis's inner part keeps its place in the list
    partial = node.op(movement.reshape(x, shape=shape), axes=shifted)
    position = axis - sum(a < axis for a in axes)
    total = node.op(partial, axes=(position,))
    return total if total.shape == node.shape else movement.reshape(total, shape=node.shape)


def _divisor(size: int, wanted: int) -> int:
    """The divisor of size nearest below `wanted`, 1 when even half of the wanted parts cannot be had."""
    for parts in range(min(wanted, size), max(wanted // 8, 1), -1):
        if size % parts == 0:
            return parts
    return 1
