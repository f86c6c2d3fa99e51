"""A sum of products that a GPU streams is one product of several pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

import genesis
from genesis import engine, nn
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200, MODELS, GpuModel
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import movement, pointwise
from genesis.ir.ops.contraction import matmul, matmul_sum, swap_last
from genesis.ir.types import bfloat16, float32
from genesis.ir.verify import verify
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph.memory_order import strides_of
from genesis.passes.graph.sum_products import MOST_PAIRS, sum_products
from tests.codegen.cuda.evaluate import evaluate
from tests.codegen.cuda.programs import inputs, some
from tests.engine.symbolic.idle import counting

SMALL = replace(H200, multiprocessors=2)
"""A GPU that a few tiles keep busy."""

ROWS, COLUMNS = 264, 400


def joined(operands: Sequence[Node], *outputs: Node, gpu: GpuModel = SMALL) -> Graph:
    """The graph after the pass, whose values are those of before."""
    before = Graph(tuple(operands), outputs)
    after = sum_products(before, gpu)
    verify(after)
    data = [some(x) for x in before.inputs]
    for found, wanted in zip(evaluate(after, data), evaluate(before, data), strict=True):
        rounding = 2**-8 * wanted.abs().max().item()  # of the parts, which are stored before and are not after
        torch.testing.assert_close(found, wanted, rtol=0, atol=2 * rounding)
    return after


def pairs(graph: Graph) -> list[int]:
    """How many pairs each sum has."""
    return [len(node.inputs) // 2 for node in graph.nodes if node.op is matmul_sum]


def given(*depths: int, rows: int = ROWS) -> tuple[tuple[Node, ...], list[Node]]:
    """(operands, products)."""
    operands = inputs(*[x for depth in depths for x in ((rows, depth), (depth, COLUMNS))], dtype=bfloat16)
    return operands, [matmul(a, b) for a, b in zip(operands[::2], operands[1::2], strict=True)]


def test_gradients_that_three_layers_give_are_one_product() -> None:
    operands, (a, b, c) = given(72, 16, 136)
    graph = joined(operands, a + b + c)
    assert pairs(graph) == [3] and not any(node.op in (matmul, pointwise.add) for node in graph.nodes)


def test_products_are_found_through_reshapes_and_beside_other_terms() -> None:
    operands, (a, b) = given(72, 16)
    more = inputs(*[(8, 33, COLUMNS)] * 5, dtype=bfloat16)[-1]
    a, b = (movement.reshape(x, shape=(8, 33, COLUMNS)) for x in (a, b))
    graph = joined((*operands, more), a + more + b)
    assert pairs(graph) == [2] and sum(node.op is pointwise.add for node in graph.nodes) == 1


def test_more_pairs_than_a_kernel_takes() -> None:
    operands, products = given(*[16] * (MOST_PAIRS + 1))
    total = products[0]
    for product in products[1:]:
        total = total + product
    assert pairs(joined(operands, total)) == [MOST_PAIRS]


@pytest.mark.parametrize("why", ["read by others", "small", "another GPU", "rows at odd places", "float32"])
def test_what_stays_as_it_is(why: str) -> None:
    depths = (27, 35) if why == "rows at odd places" else (72, 16)
    operands, (a, b) = given(*depths, rows=64 if why == "small" else ROWS)
    if why == "float32":
        wide = [pointwise.cast(x, dtype=float32) for x in operands]
        a, b = matmul(*wide[:2]), matmul(*wide[2:])
    outputs = (a + b, a * 2.0) if why == "read by others" else (a + b,)
    gpu = replace(MODELS["a100"], multiprocessors=2) if why == "another GPU" else SMALL
    assert not pairs(joined(operands, *outputs, gpu=gpu))


def test_a_number_multiplies_a_term_s_smaller_operand() -> None:
    """A low-rank layer's scale; of a large operand's product it stays a factor of the result."""
    operands, (large, thin) = given(136, 16)
    graph = joined(operands, large + movement.reshape(thin, shape=(ROWS, COLUMNS)) * 2.5)
    assert pairs(graph) == [2]
    scaled, = (node for node in graph.nodes if node.op is pointwise.mul)
    assert scaled.shape == (ROWS, 16)
    assert not pairs(joined(operands, large * 2.5 + thin))
    whole = thin * 2.5
    assert not pairs(joined(operands, large + whole, whole))


def test_pairs_that_lie_unlike_are_not_summed_up_together() -> None:
    a, b, c, d, e, f = inputs((ROWS, 136), (136, COLUMNS), (ROWS, 128), (COLUMNS, 128), (ROWS, 32), (32, COLUMNS),
                              dtype=bfloat16)
    operands, unlike = (a, b, c, d, e, f), matmul(a, b) + matmul(c, swap_last(d))
    assert not pairs(joined(operands, unlike))
    graph = joined(operands, unlike + matmul(e, f))
    assert pairs(graph) == [2] and sum(node.op is matmul for node in graph.nodes) == 1


def test_a_small_operand_that_lies_otherwise_is_copied() -> None:
    """A low-rank layer's matrix as its cast for autocast left it."""
    a, b, c, d = inputs((ROWS, 136), (COLUMNS, 136), (ROWS, 16), (16, COLUMNS), dtype=bfloat16)
    graph = joined((a, b, c, d), matmul(a, swap_last(b)) + matmul(c, d) * 0.5)
    assert pairs(graph) == [2]
    product, = (node for node in graph.nodes if node.op is matmul_sum)
    assert [strides_of(x)[-1] == 1 for x in product.inputs] == [True, False] * 2
    assert [node.shape for node in graph.nodes if node.op is pointwise.cast] == [(COLUMNS, 16)]


def streamed(graph: Graph) -> bool:
    """Do the copy engine's blocks make the one sum of a graph?"""
    kernels = [emit(group, SMALL).name for group in fuse(graph, gpu=SMALL).groups]
    return [name for name in kernels if "matmul_sum" in name] == ["streamed_matmul_sum"]


def test_a_small_operand_that_lies_in_columns_is_copied_to_rows() -> None:
    a, b, c, d = inputs((ROWS, 136), (136, COLUMNS), (16, ROWS), (16, COLUMNS), dtype=bfloat16)
    graph = joined((a, b, c, d), matmul(a, b) + matmul(swap_last(c), d))
    product, = (node for node in graph.nodes if node.op is matmul_sum)
    assert [strides_of(x)[-1] for x in product.inputs] == [1] * 4 and streamed(graph)


@pytest.mark.parametrize("kind", ["begins at an odd place", "is one row"])
def test_a_small_operand_that_the_copy_engine_cannot_read_is_copied(kind: str) -> None:
    """The large product's were read by pointers because of it."""
    a, b, c, d = inputs((ROWS, 136), (136, COLUMNS), (1, 16) if kind == "is one row" else (ROWS, 32), (16, COLUMNS),
                        dtype=bfloat16)
    small = (movement.expand(c, shape=(ROWS, 16)) if kind == "is one row" else
             movement.slice(c, starts=(0, 1), stops=(ROWS, 17), steps=(1, 1)))
    assert streamed(joined((a, b, c, d), matmul(a, b) + matmul(small, d)))


def test_a_large_operand_that_the_copy_engine_cannot_read_stays_a_product_of_its_own() -> None:
    a, b, c, d = inputs((ROWS, 136), (136, COLUMNS), (ROWS, 272), (128, COLUMNS), dtype=bfloat16)
    odd = movement.slice(c, starts=(0, 1), stops=(ROWS, 129), steps=(1, 1))
    assert not pairs(joined((a, b, c, d), matmul(a, b) + matmul(odd, d)))


def test_copies_have_rows_of_whole_vectors() -> None:
    """Of 12 columns that are turned, and of rows of 12 that a number multiplies."""
    a, b, c, d = inputs((ROWS, 136), (COLUMNS, 136), (12, ROWS), (12, COLUMNS), dtype=bfloat16)
    graph = joined((a, b, c, d), matmul(a, swap_last(b)) + matmul(swap_last(c), d) * 0.5)
    assert pairs(graph) == [2] and streamed(graph)


def test_a_number_by_itself_is_a_term() -> None:
    operands, (a, b) = given(72, 16)
    number = next(x for x in (a * 1.5).inputs if x is not a)
    square = pointwise.mul(number, number)
    assert square.type.weak and pairs(joined(operands, a + b + square)) == [2]


def test_a_layer_that_is_used_twice_has_one_product_for_any_number_of_rows() -> None:
    """The inner dimension of its weight's gradient is the batch."""
    with counting() as backend, genesis.device("cuda"):
        first, second = (nn.Linear(2048, 2304, bias=False, dtype=genesis.bfloat16) for _ in range(2))

        def step(rows: int) -> tuple[str, list[str]]:
            x, y = (genesis.zeros(rows, 2048, dtype=genesis.bfloat16) for _ in range(2))
            genesis.eval(x, y)
            for weight in (first.weight, second.weight):
                weight.grad = None
            (first(x).square().sum() + first(y).square().sum() + second(x).square().sum()).backward()
            genesis.eval(first.weight.grad, second.weight.grad)
            plan = engine.last_plan()
            assert plan is not None
            return plan.origin, [step.label for step in plan.plan.steps]
        step(3000)
        found = [step(rows) for rows in (2900, 2801, 3001)]
        assert all(sum(label.startswith("streamed_matmul_sum") for label in labels) == 1 for _, labels in found)
        kernels = len(backend.kernels)
        assert step(2950)[0] == "other size" and len(backend.kernels) == kernels


def test_a_rank_of_a_class_of_sizes_leaves_the_large_product_streamed() -> None:
    """A program of tensors, none a parameter: whether a rank near 8 is a multiple of 8 is known of no class."""
    with counting(), genesis.device("cuda"):
        x, weight, low, high = (genesis.zeros(*shape, dtype=genesis.bfloat16) for shape in (
            (3000, 2048), (2304, 2048), (8, 2048), (2304, 8)))
        genesis.eval(x, weight, low, high)
        genesis.eval(x @ weight.T + ((x @ low.T) @ high.T) * 2.0)
        plan = engine.last_plan()
        assert plan is not None
        labels = [step.label for step in plan.plan.steps]
        assert "streamed_matmul_sum" in labels and "matmul_sum" not in labels
