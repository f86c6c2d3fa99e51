"""Products of few tiles over a long inner dimension in parts, so that the whole GPU works on them.

The gradient of a weight is one: (768, 16384) times (16384, 768) has 18 tiles of 128 x 256 for an H200's 132
multiprocessors.
"""

from __future__ import annotations

import functools
import math
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops.contraction import matmul_runs
from genesis.ir.ops.movement import reshape, slice
from genesis.ir.ops.pointwise import add, cast
from genesis.ir.ops.splits import run_length
from genesis.ir.sym_int import estimate
from genesis.ir.types import bfloat16, float16
from genesis.passes.gpu import Gpu

BLOCK: Final = 64
"""Of the inner dimension, that a program multiplies at a time: runs are whole numbers of these."""

TILES: Final = ((128 * 256, 0.70), (128 * 128, 0.47), (64 * 64, 0.22))
"""(elements of a tile, microseconds that a block takes it on a multiprocessor of `MEASURED_AT` operations a cycle). The
first is taken that half of the multiprocessors get one of, as `codegen/cuda/templates/matmul.py` does."""

MEASURED_AT: Final = 4096
"""`Gpu.dot_flops` of the H200 that tiles were timed on; other GPUs' clocks are near enough to its own."""

ONE_MORE: Final = 4.0
"""Microseconds that another kernel takes to begin and end."""

MOST_RUNS: Final = 8
SHORTEST: Final = 8 * BLOCK
"""Of a run: fewer blocks hardly hide the time of their first loads."""

NEAR: Final = 1.04
"""Times that differ by less are one: fewer runs write less."""

GAIN: Final = 0.6
"""A product in parts is worth it where it takes at most this part of the time. Other branches of a step use idle
multiprocessors as well: products with 72 tiles were 20 % faster in parts when alone, and GPT-2's step as fast."""


def split_products(graph: Graph, gpu: Gpu) -> Graph:
    """A product with few results for its inner dimension → products of runs of this, and their sum.

    before: %2: bf16[768,768] = matmul(%0, %1)     after: %2: f32[7,768,768] = matmul_runs(%0, %1, runs=7)
                                                          %9: f32[768,768] = add(...)     # of the parts, in order
                                                          %10: bf16[768,768] = cast(%9)
    """
    return rewrite(graph, lambda node: _split(node, gpu) if node.op.name == "matmul" else None)


def _split(node: Node, gpu: Gpu) -> Node | None:
    if node.type.ndim != 2 or node.dtype not in (float16, bfloat16) or not node.type.numel:
        return None
    a, b = node.inputs
    depth = a.type.shape[1]
    runs = _runs(estimate(node.type.numel), estimate(depth), gpu)
    if runs == 1 or (runs - 1) * run_length(depth, runs, BLOCK) >= depth:  # the last one would be empty
        return None
    parts = matmul_runs(a, b, runs=runs, multiple=BLOCK)
    rows, columns = node.type.shape
    each = [reshape(slice(parts, starts=(run, 0, 0), stops=(run + 1, rows, columns), steps=(1, 1, 1)),
                    shape=node.type.shape) for run in range(runs)]
    return cast(functools.reduce(add, each), dtype=node.dtype)


def _runs(results: int, depth: int, gpu: Gpu) -> int:
    """The fewest runs that are done about as soon as any number of them; 1 where parts gain little."""
    times = {runs: _microseconds(results, depth, runs, gpu)
             for runs in range(1, min(MOST_RUNS, depth // SHORTEST) + 1)}
    best = min(times.values(), default=0.0)
    wanted = NEAR * best if best <= GAIN * times.get(1, 0.0) else math.inf
    return next((runs for runs, time in times.items() if time <= wanted), 1)


def _microseconds(results: int, depth: int, runs: int, gpu: Gpu) -> float:
    """What a product in so many runs takes, about."""
    enough = gpu.multiprocessors // 2
    tile, block = next((row for row in TILES if results * runs >= row[0] * enough), TILES[-1])
    rounds = -(-results * runs // (tile * gpu.multiprocessors))
    product = rounds * (run_length(depth, runs, BLOCK) // BLOCK) * block * (MEASURED_AT / gpu.dot_flops)
    return product if runs == 1 else product + ONE_MORE + 2 * 4 * runs * results / (gpu.copy_rate / 1e6)
