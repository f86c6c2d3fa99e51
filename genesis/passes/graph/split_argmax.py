"""The place of the largest element of a few long rows is looked for in pieces, so that the whole GPU has work.

A program of the kernel has whole rows: of a vocabulary of 150,000 logits one multiprocessor would look at all.
"""

from __future__ import annotations

from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import add, eq, mul, where_
from genesis.ir.ops.reduction import argmax, argmin, max, min, sum
from genesis.ir.sym_int import hint
from genesis.ir.types import int64
from genesis.passes.gpu import Gpu

LONGEST_ROW: Final = 1 << 14
"""Elements of a row from which on it is split."""

SHORTEST_PIECE: Final = 512
"""Fewest elements of a piece."""

_LARGEST: Final = {argmax: max, argmin: min}


def split_argmax(graph: Graph, gpu: Gpu) -> Graph:
    """argmax of few long rows → the argmax of each piece, and that of the piece whose largest element is the largest.

    before: %1: i64[1] = argmax(%0: f32[1,151936], axis=1)
    after:  %1 = argmax(%2: f32[1,128,1187], axis=2), %3 = max(%2, axes=(2,)), %4 = argmax(%3, axis=1)
            # %4 · 1187 + that element of %1
    """
    return rewrite(graph, lambda node: _split(node, gpu) if node.op in _LARGEST else None)


def _split(node: Node, gpu: Gpu) -> Node | None:
    x, axis = node.inputs[0], node["axis"]
    *rows, length = x.type.shape
    if axis != len(rows) or length.__class__ is not int or length < LONGEST_ROW:
        return None
    count = 1
    for size in rows:
        count *= hint(size)
    pieces = length & -length
    while pieces > 1 and (length // pieces < SHORTEST_PIECE or count * pieces > 4 * gpu.multiprocessors):
        pieces //= 2
    if pieces < 4 or count * 2 > gpu.multiprocessors:
        return None
    parts = reshape(x, shape=(*rows, pieces, length // pieces))
    places = node.op(parts, axis=axis + 1, keepdims=False)                     # (rows…, pieces), within each
    piece = node.op(_LARGEST[node.op](parts, axes=(axis + 1,), keepdims=False), axis=axis, keepdims=True)
    number = iota(shape=places.type.shape, axis=axis, dtype=int64, device=x.type.device)
    chosen = where_(eq(number, expand(piece, shape=places.type.shape)), places, 0)
    found = add(mul(piece, length // pieces), sum(chosen, axes=(axis,), keepdims=True))
    return reshape(found, shape=node.type.shape)
