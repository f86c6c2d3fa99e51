"""GPUs: operands of large 16-bit products whose rows begin at odd places are copied to rows of whole 16 bytes.

The copy engine brings blocks of such matrices alone (`templates/streamed_matmul.py`); of others a thread loads two
bytes at a time. The copies move their bytes twice, and are counted against what the streamed product saves: reckoned,
not timed.

    before: %2 = matmul(%0, %1)      after: %2: bf16[4001,4008] = pad(%0, high=(0,7))
                                            %3 = cast(%2, dtype=bf16)                     # a copy
                                            %4: bf16[4001,4001] = slice(%3)
                                            %5 = matmul(%4, …)
"""

from __future__ import annotations

from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, make
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.movement import pad, slice
from genesis.ir.size_divisors import divided_by
from genesis.ir.sym_int import hint
from genesis.ir.types import bfloat16, float16
from genesis.passes.gpu import Gpu
from genesis.passes.graph.memory_order import strides_of
from genesis.passes.graph.snapshots import copied
from genesis.passes.kernel_time import copy_microseconds
from genesis.passes.product_times import kind_of, product_microseconds

VECTOR: Final = 8
"""Elements of two bytes that are 16: what the copy engine wants rows to be multiples of."""


def align_operands(graph: Graph, gpu: Gpu) -> Graph:
    """The graph with copies of the operands that keep a large product from being streamed."""
    return rewrite(graph, lambda node: _aligned(node, gpu) if node.op is matmul else None)


def _aligned(node: Node, gpu: Gpu) -> Node | None:
    if (node.type.ndim != 2 or node.dtype not in (float16, bfloat16) or not gpu.stores_beside_sums(node)
            or kind_of(node) != "unaligned"):
        return None
    odd = [x for x in node.inputs if not _is_streamed(x)]
    copies = sum(copy_microseconds(x, gpu) for x in odd)
    streamed = 2e6 * hint(node.type.numel) * hint(node.inputs[0].type.shape[1]) / gpu.product_rate
    if product_microseconds(node, 1, gpu) < streamed + copies:
        return None
    return make(node.op, tuple(_in_vectors(x) if x in odd else x for x in node.inputs), node.attrs, node.source)


def _is_streamed(x: Node) -> bool:
    """Does one of its dimensions lie side by side, and the other in steps of whole vectors?"""
    strides = strides_of(x)
    if strides is None:
        return True  # a reshape of a view: it is not known here how it lies
    row, column = strides
    return (column == 1 and divided_by(row, VECTOR)) or (row == 1 and divided_by(column, VECTOR))


def _in_vectors(x: Node) -> Node:
    """The same elements, copied to rows of whole vectors; in columns where they lie in columns."""
    strides = strides_of(x)
    if strides is not None and strides[0] == 1 != strides[1]:
        return swap_last(_in_vectors(swap_last(x)))
    rows, columns = x.type.shape
    full = -(-columns // VECTOR) * VECTOR
    return slice(copied(pad(x, low=(0, 0), high=(0, full - columns))), starts=(0, 0), stops=(rows, columns),
                 steps=(1, 1))
