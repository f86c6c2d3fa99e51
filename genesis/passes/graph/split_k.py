"""Split-K: a product of few tiles over a long inner dimension is computed in parts, so that the whole GPU has work.

The gradient of a weight is one: (768, 16384) times (16384, 768) has 18 tiles of 128 x 256 for an H200's 132
multiprocessors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops import contraction
from genesis.ir.ops.contraction import matmul_split_k
from genesis.ir.ops.movement import reshape, slice
from genesis.ir.ops.pointwise import add, cast
from genesis.ir.ops.reduction import sum as summed
from genesis.ir.sym_int import hint
from genesis.passes.few_vectors import few_vectors
from genesis.passes.gpu import Gpu
from genesis.passes.product_times import (
    BLOCK,
    KINDS,
    MOST_PARTS,
    kind_of,
    parts_microseconds,
    product_microseconds,
    streams_parts,
)

ONE_MORE: Final = 4.0
"""Microseconds to launch and drain one more kernel."""

MOST_SPLITS: Final = 64
"""Maximum splits of a product: each writes and reads the whole result once more in float32."""

MOST_TERMS: Final = 8
"""Most splits whose parts are added one by one; more are reduced along their dimension."""

SHORTEST_SPLIT: Final = 2 * BLOCK
"""Minimum elements per split: fewer blocks hide nothing of the latency of their first loads."""

SAME_TIME: Final = 1.04
"""Two estimates whose ratio is below this count as equal, and fewer splits win: they write less."""

GAIN: Final = 0.6
"""Split-K is used where it takes at most this fraction of the unsplit time. A smaller gain vanishes in a step, whose
other branches use idle multiprocessors too: products of 72 tiles gained 20 % alone, and GPT-2's step nothing."""

LONG_GAIN: Final = 0.85
"""The same of float32 products with all bits, which multiply-adds make: they take so long that nothing runs beside
them, and few programs wait for memory besides (H200: (72, 4096) @ (4096, 1200) in 57 programs took 78 µs from the
cache, and with both gradients more than twice as long as torch's)."""


PART_GAIN: Final = 0.85
"""The same of 16-bit products whose parts the copy engine brings: few tiles over a long sum (H200, alone: 0.56 to 0.83
of the unsplit time in nine products). Few parts of many elements each: others are sooner made by pointers."""

SHORTEST_PART: Final = 4 * BLOCK
"""Minimum elements of such a part."""


def split_k(graph: Graph, gpu: Gpu) -> Graph:
    """A product with few results for its inner dimension → products over splits of that dimension, and their sum.

    before: %2: bf16[768,768] = matmul(%0, %1)     after: %2: f32[7,768,768] = matmul_split_k(%0, %1, splits=7)
                                                          %9: f32[768,768] = add(...)     # of the parts, in order
                                                          %10: bf16[768,768] = cast(%9)
    """
    return rewrite(graph, lambda node: _split(node, gpu) if node.op is contraction.matmul else None)


def _split(node: Node, gpu: Gpu) -> Node | None:
    if node.dtype not in KINDS or not node.type.numel or few_vectors(*node.type.shape[-2:]) is not None:
        return None
    a, b = node.inputs
    depth = a.type.shape[-1]
    splits = _split_count(node, gpu)
    while splits > 1 and (splits - 1) * BLOCK >= depth:  # a part would be empty: few guards where a size says so
        splits = -(-splits // 2)
    if splits == 1:
        return None
    return cast(_total(matmul_split_k(a, b, splits=splits, multiple=BLOCK)), dtype=node.dtype)


def _total(parts: Node) -> Node:
    """The sum of the parts, always in one order."""
    splits, *shape = parts.type.shape
    if splits > MOST_TERMS:
        return summed(parts, axes=(0,))
    none, one = (0,) * len(shape), (1,) * (len(shape) + 1)
    return functools.reduce(add, [
        reshape(slice(parts, starts=(split, *none), stops=(split + 1, *shape), steps=one), shape=tuple(shape))
        for split in range(splits)])


def _split_count(node: Node, gpu: Gpu) -> int:
    """The fewest splits whose hint is as good as the best; 1 where splitting gains too little."""
    by_pointers = _fewest(node, gpu, _microseconds, MOST_SPLITS, SHORTEST_SPLIT,
                          LONG_GAIN if kind_of(node) == "ieee" else GAIN)
    if by_pointers > 1 or not streams_parts(node, gpu):
        return by_pointers
    return _fewest(node, gpu, parts_microseconds, MOST_PARTS, SHORTEST_PART, PART_GAIN)


def _fewest(node: Node, gpu: Gpu, microseconds: Callable[[Node, int, Gpu], float], most: int, shortest: int,
            gain: float) -> int:
    """The fewest of at most so many splits, of at least so many elements each, by their estimated time."""
    depth = hint(node.inputs[0].type.shape[-1])
    times = {splits: microseconds(node, splits, gpu) for splits in range(1, min(most, depth // shortest) + 1)}
    best = min(times.values(), default=0.0)
    wanted = SAME_TIME * best if best <= gain * times.get(1, 0.0) else math.inf
    return next((splits for splits, time in times.items() if time <= wanted), 1)


def _microseconds(node: Node, splits: int, gpu: Gpu) -> float:
    """Estimated microseconds of a product in this many splits, and of their sum."""
    time = product_microseconds(node, splits, gpu)
    return time if splits == 1 else time + ONE_MORE + 2 * 4 * splits * hint(node.type.numel) / (gpu.copy_rate / 1e6)
