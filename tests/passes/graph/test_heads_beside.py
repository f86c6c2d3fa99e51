"""What lies between attention and linear layers is laid out token by token, as their products read it."""

from __future__ import annotations

import pytest
from torch.nn import functional

from genesis.engine.backends import backend_named
from genesis.ir.graph import Graph
from genesis.ir.node import Node, literal
from genesis.ir.ops import movement, pointwise
from genesis.ir.ops.attention import sdpa, sdpa_backward
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.control import item
from genesis.ir.ops.flash_attention import flash_attention
from genesis.ir.types import bfloat16
from genesis.passes.graph.canonicalize import canonicalize
from genesis.passes.graph.heads_beside import heads_beside
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.programs import an_input, some
from tests.codegen.cuda.run_interpreted import run_schedule

B, H, T, D = 2, 3, 8, 16


def by_tokens(x: Node) -> Node:
    """(B, H, T, D) as the matrix (B · T, H · D)."""
    return movement.reshape(movement.permute(x, axes=(0, 2, 1, 3)), shape=(B * T, H * D))


def heads(index: int) -> Node:
    """An input of heads."""
    return an_input(index, (B, H, T, D), bfloat16)


def simplified(*outputs: Node) -> Graph:
    """The graph after the pass and what follows it."""
    operands = {x["index"]: x for x in Graph((), outputs).nodes if x.op.name == "input"}
    graph = Graph(tuple(operands[i] for i in sorted(operands)), outputs)
    while (turned := heads_beside(graph)) is not graph:
        graph = canonicalize(turned)
    return graph


def permutes(graph: Graph) -> list[Node]:
    """Its permutes of whole heads."""
    return [x for x in graph.nodes if x.op is movement.permute and x.type.ndim > 2]


def test_attention_writes_tokens() -> None:
    q, k, v, w = heads(0), heads(1), heads(2), an_input(3, (H * D, 32), bfloat16)
    y = item(flash_attention(q, k, v, causal=True, scale=0.25), index=0)
    graph = simplified(matmul(by_tokens(y), w))
    beside = item(flash_attention(q, k, v, causal=True, scale=0.25, beside=True), index=0)
    assert graph.outputs == (matmul(movement.reshape(beside, shape=(B * T, H * D)), w),)


def test_pointwise_ops_and_concatenations_are_computed_token_by_token() -> None:
    x, y, w = heads(0), heads(1), an_input(2, (2 * H * D, 32), bfloat16)
    both = movement.concat(pointwise.tanh(x), y, axis=1)
    joined = movement.reshape(movement.permute(both, axes=(0, 2, 1, 3)), shape=(B * T, 2 * H * D))
    graph = simplified(matmul(joined, w))
    made = next(n for n in graph.nodes if n.op is movement.concat)
    assert made.shape == (B, T, 2 * H, D) and made["axis"] == 2
    assert all(x.inputs[0].op.name in ("input", "tanh") for x in permutes(graph))
    assert matmul(movement.reshape(made, shape=joined.shape), w) in graph.outputs


@pytest.mark.parametrize("why", ["it leaves the program", "products read it in two orders", "no product reads it"])
def test_what_stays(why: str) -> None:
    x, w = pointwise.tanh(heads(0)), an_input(1, (H * D, 32), bfloat16)
    outputs = {"it leaves the program": (matmul(by_tokens(x), w), x),
               "products read it in two orders": (matmul(by_tokens(x), w), matmul(x, swap_last(heads(2)))),
               "no product reads it": (pointwise.mul(by_tokens(x), literal(2.0)),)}[why]
    graph = Graph((), outputs)
    assert heads_beside(graph) is graph


def test_a_layer_and_its_gradients_have_the_same_values() -> None:
    """Forward, the gradients of what attention reads, and products by them, all interpreted."""
    q, k, v, w, g = *map(heads, range(3)), an_input(3, (H * D, 32), bfloat16), an_input(4, (B * T, 32), bfloat16)
    y = sdpa(q, k, v, causal=False, scale=0.25)
    out = matmul(by_tokens(y), w)
    to_y = movement.permute(movement.reshape(matmul(g, swap_last(w)), shape=(B, T, H, D)), axes=(0, 2, 1, 3))
    back = sdpa_backward(to_y, q, k, v, y, causal=False, scale=0.25)
    turned = pointwise.mul(item(back, index=0), literal(0.5))
    products = [matmul(by_tokens(x), w) for x in (turned, item(back, index=1), item(back, index=2))]
    operands = (q, k, v, w, g)
    passed = run_passes(Graph(operands, (out, *products)), backend_named("h200"))
    ops = [x for x in passed.stages["prepared"].nodes if x.op.name.startswith("flash")]
    assert len(ops) == 3 and all(x["beside"] for x in ops)
    data = [some(x) for x in operands]
    found = run_schedule(passed.schedule, data, most_programs=512)
    leaves = [x.double().requires_grad_() for x in data[:3]]
    weight = data[3].double()
    want = functional.scaled_dot_product_attention(*leaves, scale=0.25).transpose(1, 2).reshape(B * T, H * D) @ weight
    want.backward(data[4].double())
    wanted = [want.detach(), *((x.grad * factor).transpose(1, 2).reshape(B * T, H * D) @ weight
                               for x, factor in zip(leaves, (0.5, 1, 1), strict=True) if x.grad is not None)]
    for got, expected in zip(found, wanted, strict=True):
        error = (got.double() - expected).abs().max().item()
        assert error <= 2e-2 * expected.abs().max().item(), "three roundings to bfloat16, relative to the largest"
