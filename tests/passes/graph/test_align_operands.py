"""Operands of large 16-bit products get rows of whole vectors, so that the products are streamed."""

from __future__ import annotations

import pytest

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.types import DType, bfloat16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph.align_operands import _in_vectors, align_operands
from tests.codegen.cuda.programs import check
from tests.codegen.cuda.test_product_lines import product


def labels(operands: tuple[Node, Node], node: Node) -> list[str]:
    """The kernels, in order."""
    graph = align_operands(Graph(operands, (node,)), H200)
    return [emit(group).label for group in fuse(graph).groups]


@pytest.mark.parametrize(("layout", "depth", "copies"), [
    ("nn", 3999, 2), ("nn", 4096, 1), ("nt", 4096, 0), ("tn", 3999, 2), ("tt", 4096, 1)])
def test_large_products_of_odd_rows_are_streamed(layout: str, depth: int, copies: int) -> None:
    """A row of 4096 begins at a multiple of 16 bytes, one of 3999, 4001 or 4003 does not."""
    *before, last = labels(*product(4001, depth, 4003, bfloat16, layout))
    assert last.startswith("streamed_matmul") and len(before) == copies


@pytest.mark.parametrize(("sizes", "dtype"), [((2101, 64, 2103), bfloat16), ((500, 3999, 501), bfloat16),
                                              ((4000, 4000, 4000), bfloat16), ((4001, 3999, 4003), float32)])
def test_what_gains_nothing_is_left(sizes: tuple[int, int, int], dtype: DType) -> None:
    """Short sums, few tiles, whole vectors, float32."""
    operands, node = product(*sizes, dtype)
    assert align_operands(Graph(operands, (node,)), H200).outputs == (node,)


@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_copies_have_the_same_elements(layout: str) -> None:
    (x, y), node = product(37, 41, 43, bfloat16, layout)
    a, b = map(_in_vectors, node.inputs)
    check((x, y), node.op(a, b), tolerance=1e-1)
