"""Numbers that multiply a large matrix multiply the small products that read it instead."""

from __future__ import annotations

import pytest
import torch

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves, movement, pointwise
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.types import DType, bfloat16, float16
from genesis.passes.graph import scale_products as module
from genesis.passes.graph.scale_products import scale_products
from tests.codegen.cuda.evaluate import evaluate
from tests.codegen.cuda.programs import inputs, some

FACTOR = leaves.scalar(index=0, type=leaves.literal(1.0).type)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of the tests' size count as large."""
    monkeypatch.setattr(module, "FEWEST_ELEMENTS", 64)


def gradients_of_a_low_rank_layer(dtype: DType = bfloat16) -> tuple[Node, Node]:
    """Of what goes in and of its second matrix, where y = … + (x · aᵀ · bᵀ) · factor."""
    g, low, b = inputs((2, 16, 32), (32, 2), (32, 2), dtype=dtype)
    rows = movement.reshape(pointwise.mul(g, FACTOR), shape=(32, 32))
    return matmul(rows, b), matmul(swap_last(rows), low)


def test_the_matrix_is_not_stored_again() -> None:
    graph = scale_products(Graph(inputs((2, 16, 32), (32, 2), (32, 2), dtype=bfloat16),
                                 gradients_of_a_low_rank_layer(), numbers=1))
    assert [node.type.shape for node in graph.nodes if node.op is pointwise.mul] == [(32, 2), (32, 2)]


def test_the_values_are_those_of_before() -> None:
    before = Graph(inputs((2, 16, 32), (32, 2), (32, 2), dtype=bfloat16), gradients_of_a_low_rank_layer(), numbers=1)
    data = [some(x) for x in before.inputs]
    for found, wanted in zip(evaluate(scale_products(before), data, [1.7]), evaluate(before, data, [1.7]), strict=True):
        torch.testing.assert_close(found, wanted, rtol=3e-2, atol=0.1)


def test_both_operands_may_have_a_factor() -> None:
    a, b = inputs((4, 64), (64, 4), dtype=bfloat16)
    graph = scale_products(Graph((a, b), (matmul(pointwise.mul(a, FACTOR), pointwise.mul(FACTOR, b)),), numbers=1))
    assert [node.type.shape for node in graph.nodes if node.op is pointwise.mul] == [(4, 4), (4, 4)]
    data = [some(a), some(b)]
    found, = evaluate(graph, data, [3.0])
    torch.testing.assert_close(found.double(), 9 * (data[0].double() @ data[1].double()), rtol=3e-2, atol=0.5)


def test_what_others_read_is_left() -> None:
    g, b = inputs((32, 32), (32, 2), dtype=bfloat16)
    rows = pointwise.mul(g, FACTOR)
    for outputs in [(matmul(rows, b), rows), (matmul(rows, b), pointwise.exp(rows)),
                    (matmul(rows, b), movement.reshape(rows, shape=(1024,)))]:
        graph = Graph((g, b), outputs, numbers=1)
        assert scale_products(graph) is graph


def test_a_product_as_large_as_the_matrix_is_left() -> None:
    g, b = inputs((32, 32), (32, 32), dtype=bfloat16)
    graph = Graph((g, b), (matmul(pointwise.mul(g, FACTOR), b),), numbers=1)
    assert scale_products(graph) is graph


def test_float16_is_left_as_its_sums_may_be_out_of_range() -> None:
    graph = Graph(inputs((2, 16, 32), (32, 2), (32, 2), dtype=float16), gradients_of_a_low_rank_layer(float16),
                  numbers=1)
    assert scale_products(graph) is graph


def test_a_matrix_of_factors_is_left() -> None:
    g, b, each = inputs((32, 32), (32, 2), (32, 32), dtype=bfloat16)
    graph = Graph((g, b, each), (matmul(pointwise.mul(g, each), b),))
    assert scale_products(graph) is graph
