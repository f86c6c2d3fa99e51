"""Permuted values that are copied before their rows are reduced, as no program could read lines of memory otherwise.

A softmax over the middle axis of a permuted tensor has, along the axis behind it, neighbours that lie far apart; what
lie side by side are elements of other programs' rows. Each of its loops would read single elements of many lines, and
it has two or three. A copy reads and writes each element once, by square tiles.

    before: %1 = permute(%0: f32[1879,30,5,61])       an index map of the softmax over axis 2 of f32[61,30,1879,5]
    after:  %1 = permute(%0)                          a kernel, and the softmax reads what it wrote

A single reduction is done in memory's order instead (`passes/graph/reduce_in_order.py`), and rows along the last axis
are read across memory (`codegen/cuda/column_blocks.turned`).
"""

from __future__ import annotations

from typing import Final

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.ir.ops.movement import permute
from genesis.ir.sym_int import hint
from genesis.passes.graph.memory_order import strides_of

LEAST_BYTES: Final = 8 << 20
"""Bytes of a value that is copied: single elements of a smaller one come from the L2 (H200: log_softmax of 17 M float32
305 µs, a copy and one of rows as they lie 90 by their bytes)."""

FEWEST_REDUCTIONS: Final = 2
"""Reductions that wait for each other, or that read the value at once: each reads it again."""

FIRST: Final = "it is copied first: as it lies neighbours of a row are far apart, and those in memory are of other rows"
"""Why a value that is copied first is not computed where it is read."""


def turned_rows(graph: Graph) -> set[Node]:
    """The permutations of a graph that are kernels of their own."""
    found = {node: unit for node in graph.nodes if node.op is permute and (unit := _far_unit(node)) is not None}
    if not found:
        return set()
    readers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for x in dict.fromkeys(node.inputs):
            readers.setdefault(x, []).append(node)
    return {node for node, unit in found.items() if _across(_reductions_of(node, readers), unit)}


def _far_unit(node: Node) -> int | None:
    """The axis along which neighbours of a large permuted input are neighbours in memory; None if that is the last."""
    if node.inputs[0].op is not leaves.input or hint(node.type.nbytes) < LEAST_BYTES:
        return None
    strides = strides_of(node)
    last = max((axis for axis, size in enumerate(node.shape) if hint(size) > 1), default=0)
    unit = [axis for axis, stride in enumerate(strides or ()) if type(stride) is int and stride == 1
            and hint(node.shape[axis]) > 1]
    return unit[0] if len(unit) == 1 and unit[0] != last else None


def _reductions_of(node: Node, readers: dict[Node, list[Node]]) -> list[Node]:
    """What reduces the value, or what is made of it element by element."""
    found, seen, pending = [], {node}, [node]
    while pending:
        for reader in readers.get(pending.pop(), ()):
            if reader in seen:
                continue
            seen.add(reader)
            if reader.op.kind == "reduction":
                found.append(reader)
            elif reader.op.kind == "pointwise" and reader.shape == node.shape:
                pending.append(reader)
    return found


def _across(reductions: list[Node], unit: int) -> bool:
    """Whether there are several reductions, and each keeps both that axis and the last."""
    def axes(node: Node) -> tuple[int, ...]:
        return node["axes"] if "axes" in node.op.attrs else (node["axis"],)

    def last(node: Node) -> int:
        return max((axis for axis, size in enumerate(node.inputs[0].shape) if hint(size) > 1), default=0)
    return len(reductions) >= FEWEST_REDUCTIONS and all(not {unit, last(x)} & set(axes(x)) for x in reductions)
