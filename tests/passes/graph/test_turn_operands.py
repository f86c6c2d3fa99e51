"""Operands of TF32 products lie along the inner dimension: others are copied."""

from __future__ import annotations

import pytest

from genesis import config
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.types import DType, bfloat16, cpu, float32, tensor_type
from genesis.passes.graph.turn_operands import turn_operands


def array(index: int, *shape: int, dtype: DType = float32) -> Node:
    return leaves.input(index=index, type=tensor_type(shape, dtype, cpu))


@pytest.fixture(autouse=True)
def tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "float32_products", "tf32")


def copied(x: Node) -> Node:
    return p.cast(x, dtype=x.dtype)


a, b = array(0, 256, 512), array(1, 512, 128)
a_across, b_along = array(0, 512, 256), array(1, 128, 512)


@pytest.mark.parametrize("product, expected", [
    (matmul(a, swap_last(b_along)), matmul(a, swap_last(b_along))),
    (matmul(a, b), matmul(a, swap_last(copied(swap_last(b))))),
    (matmul(swap_last(a_across), swap_last(b_along)), matmul(copied(swap_last(a_across)), swap_last(b_along))),
    (matmul(swap_last(a_across), b), matmul(copied(swap_last(a_across)), swap_last(copied(swap_last(b))))),
], ids=["both along", "second across", "first across", "both across"])
def test_what_is_copied(product: Node, expected: Node) -> None:
    operands = tuple(x for x in Graph((), (product,)).nodes if x.op.name == "input")
    graph = turn_operands(Graph(operands, (product,)))
    assert graph.outputs == (expected,) and turn_operands(graph).outputs == (expected,)


@pytest.mark.parametrize("operands, why", [
    ((array(0, 256, 512), array(1, 512, 64)), "few columns: the copy would cost as much as the product"),
    ((array(0, 256, 512, dtype=bfloat16), array(1, 512, 128, dtype=bfloat16)), "two bytes may lie either way"),
])
def test_what_is_left(operands: tuple[Node, Node], why: str) -> None:
    graph = Graph(operands, (matmul(*operands),))
    assert turn_operands(graph).outputs == graph.outputs, why


def test_batches() -> None:
    x, y = array(0, 4, 256, 512), array(1, 4, 512, 128)
    assert turn_operands(Graph((x, y), (matmul(x, y),))).outputs == (matmul(x, swap_last(copied(swap_last(y)))),)


@pytest.mark.parametrize("rounding", ["ieee", "bf16x3"])
@pytest.mark.parametrize("product", [
    matmul(array(0, 1024, 512), swap_last(array(1, 256, 512))), matmul(swap_last(a_across), swap_last(b_along)),
    matmul(a, b)], ids=["both along", "both across", "row-major"])
def test_other_roundings_read_operands_as_they_lie(product: Node, rounding: str,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "float32_products", rounding)
    operands = tuple(x for x in Graph((), (product,)).nodes if x.op.name == "input")
    assert turn_operands(Graph(operands, (product,))).outputs == (product,)
