"""Scans of few long rows in chunks, so that the whole GPU works on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, Op, literal
from genesis.ir.ops import movement, reduction, scan
from genesis.ir.ops.pointwise import cast, eq, exp, where_
from genesis.ir.ops.scan import chunks_of
from genesis.ir.ops.statistics import logsumexp
from genesis.passes.gpu import Gpu


def _log_sum(x: Node, axes: tuple[int, ...]) -> Node:
    """logsumexp as what it is made of: the pass comes after composites were decomposed."""
    assert logsumexp.decompose is not None
    found: Node = logsumexp.decompose(x, axes=axes, keepdims=False)
    return found


TOTALS: Final[dict[Op, tuple[Callable[..., Node], float]]] = {
    scan.cumsum: (reduction.sum, 0), scan.cumprod: (reduction.prod, 1),
    scan.logcumsumexp: (_log_sum, -math.inf)}
"""Scan → what gives a chunk's total, and what does not change it."""

COLUMNS: Final = 32
"""Neighbouring columns per program."""

SMALLEST: Final = {True: 1024, False: 64}
"""Minimum elements of a chunk: {of a row: …, of columns: …}, by whether the scanned axis is the last."""

LARGEST: Final = 8192
"""Maximum elements of a chunk: what a program scans in one piece."""

WHOLE: Final = {True: 8192, False: 4096}
"""Maximum elements of a {row: …, column: …} that stays whole, however few there are, by whether the scanned axis is the
last. A program scans a row in one piece, in some 3 µs, and three launches take 6 (reckoned). Programs of eight columns
take 2.5 µs and 1.8 for 1,000 elements, three launches 10.5 to 12.5 (H200: cumsum over 0 of float32[1000, 512] 3.8 µs
whole and 11.6 in chunks, [4000, 256] 9.4 and 12.4, [8192, 96] 17.3 and 10.7)."""

WHOLE_EXPONENTIALS: Final = 2048
"""The same of columns of `logcumsumexp`, whose states cost more to combine (H200: over 0 of bfloat16[1000, 512] 6.2 µs
whole and 14.7 in chunks, of float32[2000, 64] 13.5 in chunks)."""


def split_scans(graph: Graph, gpu: Gpu) -> Graph:
    """A scan of few long rows → its chunks' totals, a scan of these, and one of every chunk that begins there.

    Rows are few where they leave multiprocessors without a program. One that a program scans in one piece stays whole:
    it takes less than the launches of its totals.

    before: %1: f32[65536] = cumsum(%0, axis=0)    after: %1: f32[64,1024] = reshape(%0)
                                                          %2: f32[64] = sum(%1, axes=(1,))
                                                          %3: f32[64] = cumsum(%2, axis=0)
                                                          %4: f32[65536] = cumsum(%0, %3, axis=0, chunk=1024)
    """
    return rewrite(graph, lambda node: _split(node, gpu.multiprocessors))


def _split(node: Node, enough: int) -> Node | None:
    decays = node.op is scan.logcumsumexp_backward
    if (not decays and node.op not in TOTALS) or len(node.inputs) > (3 if decays else 1):
        return None
    x, axis = node.inputs[0], node["axis"]
    shape, length = x.type.shape, x.type.shape[axis]
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1:])
    programs = outer * -(-inner // COLUMNS)
    chunk = SMALLEST[inner == 1]
    exponentials = decays or node.op is scan.logcumsumexp
    whole = min(WHOLE[inner == 1], WHOLE_EXPONENTIALS if exponentials and inner != 1 else LARGEST)
    if not 0 < programs < enough or length < 4 * chunk or length <= whole:
        return None
    while chunk < LARGEST and length * programs > 4 * enough * chunk:
        chunk *= 2
    if decays:
        ends = _decayed_ends(node, chunk)
    else:
        total, nothing = TOTALS[node.op]
        totals = total(_chunks(x, axis, chunk, nothing), axes=(axis + 1,))
        ends = node.op(totals, axis=axis, reverse=node["reverse"])
    return node.op(*node.inputs, ends, axis=axis, reverse=node["reverse"], chunk=chunk)


def _chunks(x: Node, axis: int, chunk: int, nothing: float) -> Node:
    """x with an axis of chunks, in at least float32; the last is filled up with what changes no total."""
    shape, rank, kind = x.type.shape, x.type.ndim, chunks_of(x.type, axis, chunk)
    upcast = x if kind.dtype is x.type.dtype else cast(x, dtype=kind.dtype)
    parts = kind.shape[axis]
    rest = tuple(parts * chunk - shape[axis] if i == axis else 0 for i in range(rank))
    padded = movement.pad(upcast, low=(0,) * rank, high=rest, value=nothing)
    return movement.reshape(padded, shape=(*shape[:axis], parts, chunk, *shape[axis + 1:]))


def _decayed_ends(node: Node, chunk: int) -> Node:
    """The chunks' sums of g[j]·exp(y[i] - y[j]) up to their ends, where i is a chunk's last element as it is scanned.

    Nothing of where y is infinite counts, as in the scan itself: what a chunk is filled up with, too.
    """
    g, _, y = node.inputs
    axis, reverse = node["axis"], node["reverse"]
    g, y = _chunks(g, axis, chunk, 0), _chunks(y, axis, chunk, math.inf)
    at = 0 if reverse else chunk - 1
    last = movement.take_range(y, axis + 1, at, at + 1)
    terms = g * exp(movement.expand(last, shape=y.type.shape) - y)
    totals = reduction.sum(where_(eq(y, literal(math.inf)), literal(0.0), terms), axes=(axis + 1,))
    flat = movement.reshape(last, shape=totals.type.shape)
    return node.op(totals, flat, flat, axis=axis, reverse=reverse)
