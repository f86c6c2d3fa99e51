"""Large reductions to few results in two steps, so that the whole GPU works on them."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.pointwise import cast
from genesis.ir.ops.splits import reduce_runs
from genesis.ir.sym_int import estimate
from genesis.passes.gpu import Gpu

SPLITTABLE: Final = {"sum", "prod", "max", "min", "any", "all"}

ROW_RUNS: Final = ((4, 1024), (2, 2048), (1, 16384))
"""(runs of rows that are reduced to columns, for each multiprocessor; the most columns). A kernel that does more with
each row has as many programs; one that does not takes blocks of columns besides. More columns than these give every
multiprocessor a block of whole ones."""

NEARLY_ALL: Final = (32, 33)
"""Part of the multiprocessors that are as good as all: with blocks of 64 columns, an H200's 132 take 8192 columns."""

FEWEST_ROWS: Final = 8
"""Of a run: what it writes is small beside what it reads."""

SMALLEST: Final = 1 << 18
"""Elements in all below which one kernel is done sooner than two."""

EACH: Final = 8
"""Runs of elements that lie side by side, in all results together, for each multiprocessor: as many programs."""

FEWER: Final = (128, 16)
"""Runs in all where that many would be too short."""

SHORTEST_RUN: Final = 4096
"""Elements of such a run."""

MULTIPLE: Final = 2048
"""Such runs begin at multiples, so that they are read in full blocks."""


def split_reductions(graph: Graph, gpu: Gpu) -> Graph:
    """A reduction of many elements to few results → reductions of runs of them, then one of these.

        before: %1: bf16[] = sum(%0, axes=(0,))      after: %1: f32[1056] = reduce_runs(%0, how=sum, axes=(0,))
                                                            %2: f32[] = sum(%1, axes=(0,))
                                                            %3: bf16[] = cast(%2)
    """
    whole = _whole_columns(graph, gpu)
    return rewrite(graph, lambda node: None if node in whole or node.op.name not in SPLITTABLE else _split(node, gpu))


def whole_columns(gpu: Gpu) -> int:
    """Columns from which on blocks of 64 of them keep nearly every multiprocessor busy."""
    part, of = NEARLY_ALL
    return 64 * gpu.multiprocessors * part // of


def _whole_columns(graph: Graph, gpu: Gpu) -> set[Node]:
    """Reductions to many columns of values that nobody else reads: one kernel does these as well as two.

    Where others read them too, a kernel that computes rows can take the runs on its way.
    """
    readers = Counter(x for node in graph.nodes for x in set(node.inputs) if node.op.kind != "leaf")
    found, many = set(), whole_columns(gpu)
    for node in graph.nodes:
        if node.op.name in SPLITTABLE and estimate(node.type.numel) >= many and node.type.ndim:
            behind = [*node.inputs]
            while behind and readers[behind[-1]] == 1 and behind[-1].op.kind in ("movement", "pointwise", "leaf"):
                behind += behind.pop().inputs
            if not behind:
                found.add(node)
    return found


def _split(node: Node, gpu: Gpu) -> Node | None:
    runs, multiple = _runs(node, gpu)
    if not runs:
        return None
    parts = reduce_runs(node.inputs[0], how=node.op.name, axes=node["axes"], runs=runs, multiple=multiple)
    total = cast(node.op(parts, axes=(0,)), dtype=node.dtype)
    return total if total.shape == node.shape else reshape(total, shape=node.shape)


def _runs(node: Node, gpu: Gpu) -> tuple[int, int]:
    """How many runs, and what their length is a multiple of; (0, 1) for a reduction that stays whole.

    Numbers of runs come in few classes: another batch size of a class has the same kernels.
    """
    x, axes = node.inputs[0], [axis for axis in node["axes"] if node.inputs[0].shape[axis] != 1]
    results, extent = estimate(node.type.numel), estimate(prod(x.shape[axis] for axis in axes))
    last = max((axis for axis, size in enumerate(x.shape) if size != 1), default=0)
    if not results or results * extent < SMALLEST:
        return 0, 1
    if last not in axes:
        row_runs = [(each * gpu.multiprocessors, most) for each, most in ROW_RUNS]
        fitting = [runs for runs, most in row_runs if results <= most and extent >= runs * FEWEST_ROWS]
        return max(fitting, default=0), 1
    for runs in (EACH * gpu.multiprocessors, *FEWER):
        if runs >= 2 * results and extent * results >= runs * SHORTEST_RUN:
            return runs // results, MULTIPLE
    return 0, 1
