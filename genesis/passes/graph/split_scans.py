"""Scans of few long rows in chunks, so that the whole GPU works on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, Op
from genesis.ir.ops import movement, reduction, scan
from genesis.ir.ops.pointwise import cast
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

WHOLE: Final = 8192
"""Maximum elements of a row that stays whole, however few there are: a program scans it in one piece, in some 3 µs, and
three launches take 6 (reckoned)."""


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
    if node.op not in TOTALS or len(node.inputs) > 1:
        return None
    x, axis = node.inputs[0], node["axis"]
    shape, length = x.type.shape, x.type.shape[axis]
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1:])
    programs = outer * -(-inner // COLUMNS)
    chunk = SMALLEST[inner == 1]
    if not 0 < programs < enough or length < 4 * chunk or (inner == 1 and length <= WHOLE):
        return None
    while chunk < LARGEST and length * programs > 4 * enough * chunk:
        chunk *= 2
    kind = chunks_of(x.type, axis, chunk)
    parts, rank = kind.shape[axis], x.type.ndim
    total, nothing = TOTALS[node.op]
    upcast = x if kind.dtype is x.type.dtype else cast(x, dtype=kind.dtype)
    rest = tuple(parts * chunk - length if i == axis else 0 for i in range(rank))
    padded = movement.pad(upcast, low=(0,) * rank, high=rest, value=nothing)
    chunks = movement.reshape(padded, shape=(*shape[:axis], parts, chunk, *shape[axis + 1:]))
    ends = node.op(total(chunks, axes=(axis + 1,)), axis=axis, reverse=node["reverse"])
    return node.op(x, ends, axis=axis, reverse=node["reverse"], chunk=chunk)
