"""Split-K: a product of few tiles over a long inner dimension is computed in parts, so that the whole GPU has work.

The gradient of a weight is one: (768, 16384) times (16384, 768) has 18 tiles of 128 x 256 for an H200's 132
multiprocessors.
"""

from __future__ import annotations

import functools
import math
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops import contraction
from genesis.ir.ops.contraction import matmul_split_k
from genesis.ir.ops.movement import reshape, slice
from genesis.ir.ops.pointwise import add, cast
from genesis.ir.ops.splits import split_length
from genesis.ir.sym_int import hint
from genesis.ir.types import bfloat16, float16
from genesis.passes.few_vectors import few_vectors
from genesis.passes.gpu import Gpu

BLOCK: Final = 64
"""Elements of the inner dimension that a program multiplies at a time; a split is a whole number of blocks."""

TILES: Final = ((128 * 256, 0.70), (128 * 128, 0.47), (64 * 64, 0.22))
"""Tiles, the largest first: (elements, microseconds a block takes on a multiprocessor of `MEASURED_AT` operations a
cycle). A product gets the first tile that half of the multiprocessors get one of, as in `templates/matmul.py`."""

MEASURED_AT: Final = 4096
"""`Gpu.dot_flops` of the H200 that tiles were timed on; other GPUs' clocks are near enough to its own."""

ONE_MORE: Final = 4.0
"""Microseconds to launch and drain one more kernel."""

MOST_SPLITS: Final = 8
"""Maximum splits of a product: each writes and reads the whole result once more in float32."""

SHORTEST_SPLIT: Final = 8 * BLOCK
"""Minimum elements per split: fewer blocks hardly hide the latency of their first loads."""

SAME_TIME: Final = 1.04
"""Two estimates whose ratio is below this count as equal, and fewer splits win: they write less."""

GAIN: Final = 0.6
"""Split-K is used where it takes at most this fraction of the unsplit time. A smaller gain vanishes in a step, whose
other branches use idle multiprocessors too: products of 72 tiles gained 20 % alone, and GPT-2's step nothing."""


def split_k(graph: Graph, gpu: Gpu) -> Graph:
    """A product with few results for its inner dimension → products over splits of that dimension, and their sum.

    before: %2: bf16[768,768] = matmul(%0, %1)     after: %2: f32[7,768,768] = matmul_split_k(%0, %1, splits=7)
                                                          %9: f32[768,768] = add(...)     # of the parts, in order
                                                          %10: bf16[768,768] = cast(%9)
    """
    return rewrite(graph, lambda node: _split(node, gpu) if node.op is contraction.matmul else None)


def _split(node: Node, gpu: Gpu) -> Node | None:
    if (node.type.ndim != 2 or node.dtype not in (float16, bfloat16) or not node.type.numel
            or few_vectors(*node.type.shape) is not None):
        return None
    a, b = node.inputs
    depth = a.type.shape[1]
    splits = _split_count(hint(node.type.numel), hint(depth), gpu)
    if splits == 1 or (splits - 1) * split_length(depth, splits, BLOCK) >= depth:  # the last one would be empty
        return None
    parts = matmul_split_k(a, b, splits=splits, multiple=BLOCK)
    rows, columns = node.type.shape
    each = [reshape(slice(parts, starts=(split, 0, 0), stops=(split + 1, rows, columns), steps=(1, 1, 1)),
                    shape=node.type.shape) for split in range(splits)]
    return cast(functools.reduce(add, each), dtype=node.dtype)


def _split_count(results: int, depth: int, gpu: Gpu) -> int:
    """The fewest splits whose hint is as good as the best; 1 where splitting gains too little."""
    times = {splits: _microseconds(results, depth, splits, gpu)
             for splits in range(1, min(MOST_SPLITS, depth // SHORTEST_SPLIT) + 1)}
    best = min(times.values(), default=0.0)
    wanted = SAME_TIME * best if best <= GAIN * times.get(1, 0.0) else math.inf
    return next((splits for splits, time in times.items() if time <= wanted), 1)


def _microseconds(results: int, depth: int, splits: int, gpu: Gpu) -> float:
    """Estimated microseconds of a product in this many splits."""
    enough = gpu.multiprocessors // 2
    tile, block = next((row for row in TILES if results * splits >= row[0] * enough), TILES[-1])
    rounds = -(-results * splits // (tile * gpu.multiprocessors))
    product = rounds * (split_length(depth, splits, BLOCK) // BLOCK) * block * (MEASURED_AT / gpu.dot_flops)
    return product if splits == 1 else product + ONE_MORE + 2 * 4 * splits * results / (gpu.copy_rate / 1e6)
