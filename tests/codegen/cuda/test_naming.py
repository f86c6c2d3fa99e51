"""Kernel names say what a kernel computes: idioms by their formulas, other ops by their names."""

from __future__ import annotations

import pytest

from genesis.codegen.cuda.naming import kernel_name
from genesis.engine.backends import backend_named
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves, norm, optimizer, pointwise, random, reduction, softmax, statistics
from genesis.ir.ops.control import item
from genesis.ir.types import float16, float32, int64, tensor_type
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.programs import inputs

x, g, a, b = inputs((64, 32), (64, 32), (64, 32), (64, 32))
y = softmax.softmax(x, axis=1)


def names(graph: Graph) -> list[str]:
    """What the kernels of a program are called."""
    groups = run_passes(graph, backend_named("h200")).schedule.groups
    return [kernel_name(group.members[0] if group.members else group) for group in groups]


def name_of(output: Node) -> str:
    """What the kernel of a value over the operands is called."""
    name, = names(Graph((x, g, a, b), (output,)))
    return name


@pytest.mark.parametrize(("output", "name"), [
    (y, "softmax_rows"),
    (softmax.softmax(x, axis=0), "softmax_columns"),
    (softmax.softmax(pointwise.cast(x, dtype=float16), axis=1), "softmax_rows"),
    (softmax.softmax_backward(g, a, axis=1), "softmax_backward_rows"),
    (softmax.softmax_backward(g * 2.0, y, axis=1), "softmax_mul_softmax_backward_rows"),
    (softmax.log_softmax(x, axis=1), "log_softmax_rows"),
    (softmax.log_softmax_backward(g, a, axis=1), "log_softmax_backward_rows"),
    (norm.layer_norm(x, ndim=1, eps=1e-5), "layer_norm_rows"),
    (norm.rms_norm(x, ndim=1, eps=1e-5), "rms_norm_rows"),
    (item(norm.layer_norm_backward(g, x, ndim=1, eps=1e-5), index=0), "layer_norm_backward_rows"),
    (item(norm.rms_norm_backward(g, x, ndim=1, eps=1e-5), index=0), "rms_norm_backward_rows"),
    (statistics.var(x, axes=(1,), correction=1, keepdims=False), "var_rows"),
    (reduction.mean(x, axes=(1,), keepdims=False), "mean_rows"),
])
def test_an_idiom_has_its_name(output: Node, name: str) -> None:
    assert name_of(output) == name


@pytest.mark.parametrize(("output", "name"), [
    (x + g * 2.0, "mul_add"),
    (pointwise.sqrt((x - g) * a / (b + 1.0)), "sub_mul_add_div_sqrt"),
    (reduction.sum((x - g) * a / (pointwise.sqrt(b) + 1.0), axes=(1,), keepdims=False),
     "sub_mul_sqrt_add_div_and_1_more_rows"),
    (pointwise.exp(x) / reduction.sum(g * a, axes=(1,), keepdims=False).type.shape[0], "exp_div"),
])
def test_the_ops_of_an_idiom_alone_are_none(output: Node, name: str) -> None:
    """A square root, a quotient, a product, a difference and a sum make no optimizer: it is how they hang together."""
    assert name_of(output) == name


def test_an_update_is_called_by_its_optimizer() -> None:
    numbers = [leaves.scalar(index=i, type=tensor_type((), float32, x.type.device, weak=True)) for i in range(7)]
    update = optimizer.adamw(*numbers, x, g, a, b, count=1, decoupled=True)
    new = [item(update, index=i) for i in range(3)]
    assert names(Graph((x, g, a, b), (), tuple(zip((x, a, b), new, strict=True)), numbers=7)) == ["adamw"]


def test_draws() -> None:
    """Random bits, the fraction and the normal number that are made of them are one word; what is made of it is not."""
    numbers = [leaves.scalar(index=i, type=tensor_type((), int64, x.type.device, weak=True)) for i in range(2)]
    for draw, word in ((random.uniform, "rand"), (random.normal, "randn")):
        value = draw(*numbers, shape=(64, 32), dtype=float32, device=x.type.device)
        assert names(Graph((), (value,), numbers=2)) == [word]
        assert names(Graph((), (pointwise.exp(value) * 2.0,), numbers=2)) == [f"{word}_exp_mul"]
