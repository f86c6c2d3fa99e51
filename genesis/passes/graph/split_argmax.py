"""The place of the largest element of a few long rows or columns is looked for in pieces, so that the whole GPU has
work.

A program of the kernel has whole rows: of a vocabulary of 150,000 logits one multiprocessor would look at all. Of
columns it has sixteen, so that 600 of 10,000 elements would be the work of 38 multiprocessors.
"""

from __future__ import annotations

from math import prod
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops.indexing import gather
from genesis.ir.ops.movement import pad, reshape
from genesis.ir.ops.pointwise import add, mul
from genesis.ir.ops.reduction import argmax, argmin, max, min
from genesis.ir.ops.splits import identity, split_length
from genesis.ir.sym_int import hint
from genesis.passes.gpu import Gpu
from genesis.passes.graph.split_reductions import SHORT_RUN

SMALLEST: Final = 1 << 18
"""Elements of all columns from which on a second kernel is worth its launch."""

COLUMNS: Final = 16
"""Neighbouring columns of a program; all of them where they are few (`SHORT_RUN`)."""

PROGRAMS: Final = {True: 4, False: 8}
"""Programs of pieces for each multiprocessor at most: {of rows: …, of columns: …}, which have fewer warps."""

LONGEST_ROW: Final = 1 << 14
"""Elements of a row from which on it is split."""

BLOCK: Final = 128
"""Elements of a block of columns: pieces are whole blocks."""

SHORTEST_PIECE: Final = {True: 512, False: 128}
"""Fewest elements of a piece: {of a row: …, of columns: …}, by whether the axis is the last."""

_LARGEST: Final = {argmax: max, argmin: min}


def split_argmax(graph: Graph, gpu: Gpu) -> Graph:
    """argmax of few long rows → the argmax of each piece, and that of the piece whose largest element is the largest.

    What is behind the end of the last piece is no larger than anything, and an equal element before it wins.

    before: %1: i64[1] = argmax(%0: f32[1,151936], axis=1)
    after:  %1 = argmax(%2: f32[1,256,594], axis=2), %3 = max(%2, axes=(2,)), %4 = argmax(%3, axis=1)
            # %4 · 594 + that element of %1; %2 is %0 with 128 more elements, -inf
    """
    return rewrite(graph, lambda node: _split(node, gpu) if node.op in _LARGEST else None)


def _split(node: Node, gpu: Gpu) -> Node | None:
    x, axis = node.inputs[0], node["axis"]
    before, length, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1:]
    pieces = _pieces(hint(prod(before)), hint(length), hint(prod(behind)), gpu.multiprocessors)
    if pieces == 1:
        return None
    piece, best = split_length(length, pieces, 1 if behind == () else BLOCK), _LARGEST[node.op]
    none = (0,) * x.type.ndim
    more = (*none[:axis], pieces * piece - length, *none[axis + 1:])
    padded = pad(x, low=none, high=more, value=identity(best.name, x.dtype))
    parts = reshape(padded, shape=(*before, pieces, piece, *behind))
    places = node.op(parts, axis=axis + 1, keepdims=False)  # (before…, pieces, behind…), within each
    which = node.op(best(parts, axes=(axis + 1,), keepdims=False), axis=axis, keepdims=True)
    found = add(mul(which, piece), gather(places, which, axis=axis))
    return reshape(found, shape=node.type.shape)


def _pieces(before: int, length: int, behind: int, multiprocessors: int) -> int:
    """How many pieces keep the multiprocessors busy; 1 where programs of whole rows or columns do, or nearly."""
    programs, rows = before * (1 if behind <= SHORT_RUN else -(-behind // COLUMNS)), behind == 1
    short = length < LONGEST_ROW if rows else before * length * behind < SMALLEST
    if short or 2 * programs > multiprocessors:
        return 1
    pieces = 1
    most = PROGRAMS[rows] * multiprocessors
    while 2 * pieces * programs <= most and length >= 2 * pieces * SHORTEST_PIECE[rows]:
        pieces *= 2
    return pieces if pieces >= 4 else 1
