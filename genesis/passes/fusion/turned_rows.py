"""Permuted values that are copied before their rows are reduced, as no program could read lines of memory otherwise.

A softmax over the middle axis of a permuted tensor has, along the axis behind it, neighbours that lie far apart; what
lie side by side are elements of other programs' rows. Each of its loops would read single elements of many lines, and
it has two or three. A copy reads and writes each element once, by square tiles. So it is with rows along the last axis
where the next row's elements lie elsewhere than beside a row's own, with a norm's backward, whose programs have whole
rows one after the other for its weights' gradients, and with a scan.

    before: %1 = permute(%0: f32[1879,30,5,61])       an index map of the softmax over axis 2 of f32[61,30,1879,5]
    after:  %1 = permute(%0)                          a kernel, and the softmax reads what it wrote

So it is with columns of short pieces of longer rows (`x[..., :9]` of rows of 73): each reading brings whole sectors, of
which it wants a part, and has its elements one by one; a copy of them is read in vectors.

A single reduction is done in memory's order instead (`passes/graph/reduce_in_order.py`), and rows along the last axis
whose neighbours lie side by side are read across memory (`codegen/cuda/column_blocks.turned`), unless there are so few
of them, and so long, that a few programs would have all: those are copied, too.
"""

from __future__ import annotations

from typing import Final

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.ir.ops.movement import permute, slice
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.sym_int import hint
from genesis.passes.gpu import Gpu
from genesis.passes.graph.few_long_rows import few_long_rows
from genesis.passes.graph.memory_order import strides_of

LEAST_BYTES: Final = 8 << 20
"""Bytes of a value that is copied: single elements of a smaller one come from the L2 (H200: log_softmax of 17 M float32
305 µs, a copy and one of rows as they lie 90 by their bytes)."""

FEWEST_REDUCTIONS: Final = 2
"""Reductions that wait for each other, or that read the value at once: each reads it again."""

LONGEST_SCAN: Final = 64
"""Elements of a scanned row, for each byte of one, up to which a program has rows for half a sector: of a thousand
elements of a program (`templates/scan.py`) 16 bytes lie side by side."""

SECTOR: Final = 32
"""Bytes that memory is read in. Pieces that are no longer, and as far apart, bring twice and more of what they are."""

LONG_COLUMN: Final = 2048
"""Bytes of a column from which on registers do not hold sixteen: it is read once for each reduction, and for what is
written. (H200: softmax over 0 of bfloat16[1589, 1000, 9] of rows of 73 with its gradient read 76 MB three times for
28.6: 221 µs, torch.compile 148; 131 with a copy first.)"""

FIRST: Final = "it is copied first: as it lies each reading of a row brings elements of others"
"""Why a value that is copied first is not computed where it is read."""


def turned_rows(graph: Graph, gpu: Gpu | None = None) -> set[Node]:
    """The permutations and slices of a graph that are kernels of their own.

    Args:
        gpu: whose multiprocessors few long rows would leave idle; None for one on which no rows are few.
    """
    found = {node: unit for node in graph.nodes if node.op is permute and (unit := _far_unit(node)) is not None}
    pieces = [node for node in graph.nodes if _has_short_pieces(node)]
    if not (found or pieces):
        return set()
    readers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for x in dict.fromkeys(node.inputs):
            readers.setdefault(x, []).append(node)

    def copied(node: Node) -> bool:
        source = node.inputs[0]
        return source.op is leaves.input or (source not in graph.roots and readers[source] == [node])

    def apart(node: Node, unit: int) -> bool:
        reductions = _reductions_of(node, readers)
        return (hint(node.type.nbytes) >= LEAST_BYTES and _across(reductions, unit)) or (
            gpu is not None and any(_few(x, unit, gpu) for x in reductions))

    turned = {node for node, unit in found.items() if copied(node) and apart(node, unit)}
    return turned | {node for node in pieces if _are_long_columns(_reductions_of(node, readers))}


def _has_short_pieces(node: Node) -> bool:
    """Whether it is a large part of an input of which neighbours are pieces of at most a sector, as far apart."""
    if node.op is not slice or node.inputs[0].op is not leaves.input or not node.type.ndim:
        return False
    piece, row = (hint(x.shape[-1]) * x.dtype.itemsize for x in (node, node.inputs[0]))
    return hint(node.type.nbytes) >= LEAST_BYTES and piece <= SECTOR and row >= piece + SECTOR


def _are_long_columns(reductions: list[Node]) -> bool:
    """Whether there are several, and each is of columns of pieces that no registers hold."""
    return len(reductions) >= FEWEST_REDUCTIONS and all(
        _last(x) not in _axes(x) and x.inputs[0].dtype.itemsize * hint(x.inputs[0].type.numel)
        // max(hint(x.type.numel), 1) > LONG_COLUMN for x in reductions if x.op.kind == "reduction")


def _far_unit(node: Node) -> int | None:
    """The axis along which neighbours of a permuted value are neighbours in memory; None if that is the last. The value
    is an input, or made of one element by element."""
    if node.inputs[0].op is not leaves.input and node.inputs[0].op.kind != "pointwise":
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
            if reader.op.kind in ("reduction", "scan"):
                found.append(reader)
            elif reader.op.kind == "pointwise" and reader.shape == node.shape:
                pending.append(reader)
    return found


def _across(reductions: list[Node], unit: int) -> bool:
    """Whether each reads elements that lie apart, and there are several; or one of them scans."""
    several = len(reductions) >= FEWEST_REDUCTIONS or any(x.op.kind == "scan" for x in reductions)
    if not several:
        return False
    along_rows = [x for x in reductions if _last(x) in _axes(x)]
    for_weights = any(unit in _axes(x) and _last(x) not in _axes(x) for x in reductions)
    return (for_weights and len(along_rows) >= FEWEST_REDUCTIONS) or all(_apart(x, unit) for x in reductions)


def _apart(node: Node, unit: int) -> bool:
    """Whether neighbours along that axis are neither of one row nor of rows that follow each other."""
    axes, last = _axes(node), _last(node)
    if unit in axes:
        return False
    if last not in axes:
        return True
    x = node.inputs[0]
    kept = [axis for axis, size in enumerate(x.shape) if axis not in axes and hint(size) > 1]
    long = node.op.kind == "scan" and hint(x.shape[last]) > LONGEST_SCAN * x.dtype.itemsize
    return long or kept[-1] != unit


def _few(node: Node, unit: int, gpu: Gpu) -> bool:
    """Whether it reduces rows that are read across, of which a few programs would have all."""
    axes = _axes(node)
    return (node.op.kind == "reduction" and node.op is not reduce_splits and _last(node) in axes and unit not in axes
            and few_long_rows(node.type.numel, node.inputs[0].type.numel, gpu))


def _axes(node: Node) -> tuple[int, ...]:
    """The axes that are reduced, or scanned."""
    return node["axes"] if "axes" in node.op.attrs else (node["axis"],)


def _last(node: Node) -> int:
    """The last axis of what is reduced that is longer than 1."""
    return max((axis for axis, size in enumerate(node.inputs[0].shape) if hint(size) > 1), default=0)
