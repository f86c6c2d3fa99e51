"""GPUs: operands of float32 products are laid out as their kernels read them, where that is worth a copy.

TF32: tensor cores multiply elements of four bytes only where neighbours of a sum are neighbours in memory; a kernel
that has to turn blocks in its registers took two to four times as long on an H200 as one that has not
(`benchmarks/matmul.py --float32 tf32`). A copy before it moves its bytes twice, which for 4096³ is a tenth of the
product's time: reckoned, not timed.

    before: %2 = matmul(%0, %1)      after: %2 = permute(%1, axes=(1,0))      # %1 is row-major
                                            %3 = cast(%2, dtype=f32)          # a copy
                                            %4 = permute(%3, axes=(1,0))
                                            %5 = matmul(%0, %4)

Kernels of other roundings read operands as they lie (`codegen/cuda/templates/fma_matmul_gluon.py`).
"""

from __future__ import annotations

from typing import Final

from genesis.config import config
from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, make
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.sym_int import hint
from genesis.ir.types import float32
from genesis.passes.graph.memory_order import strides_of
from genesis.passes.graph.snapshots import copied

FEWEST: Final = 128
"""Rows, columns and elements of a sum in a product for which operands are copied: so often each element is used."""


def turn_operands(graph: Graph) -> Graph:
    """The graph with copies of operands of TF32 products that do not lie as these want them."""
    if config.float32_products != "tf32":
        return graph
    return rewrite(graph, lambda node: _along(node) if node.op is matmul and node.inputs[0].dtype is float32 else None)


def _along(node: Node) -> Node | None:
    """Operands that do not lie along the inner dimension are copied."""
    a, b = node.inputs
    if min(map(hint, (*a.shape[-2:], b.shape[-1]))) < FEWEST:
        return None
    turned = (copied(a) if _lies_across(a, -1) else a,
              swap_last(copied(swap_last(b))) if _lies_across(b, -2) else b)
    return None if turned == (a, b) else make(node.op, turned, node.attrs, node.source)


def _lies_across(x: Node, inner: int) -> bool:
    """Are neighbours along the other of the two last dimensions neighbours in memory?"""
    strides = strides_of(x)
    return strides is not None and strides[inner] != 1 and strides[-3 - inner] == 1
