"""Turned operands of pointwise ops are copied into order first; everything else stays."""

from __future__ import annotations

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.types import cpu, float32, tensor_type
from genesis.passes.graph.make_contiguous import is_transposed, make_contiguous
from genesis.passes.graph.memory_order import strides_of

LARGE = 256


def array(*shape: int) -> Node:
    return leaves.input(index=0, type=tensor_type(shape, float32, cpu))


x = array(LARGE, LARGE)
turned = movement.permute(x, axes=(1, 0))


def test_before_and_after() -> None:
    graph = make_contiguous(Graph((x,), (turned + 1.0,)))
    copy = p.cast(turned, dtype=float32)
    assert graph.outputs == (copy + 1.0,)
    assert make_contiguous(graph).outputs == graph.outputs, "the copy itself is left alone"


def test_gradients_of_activations_are_pointwise_too() -> None:
    graph = make_contiguous(Graph((x,), (p.silu_backward(x, turned),)))
    assert graph.outputs == (p.silu_backward(x, p.cast(turned, dtype=float32)),)


@pytest.mark.parametrize(("node", "expected"), [
    (turned, True),
    (movement.permute(array(8, 64, 64), axes=(0, 2, 1)), True),
    (movement.slice(turned, starts=(0, 0), stops=(LARGE, 128), steps=(1, 1)), True),
    (movement.permute(array(4, 64, 8, 32), axes=(0, 2, 1, 3)), False),  # the last dimension is in order
    (movement.permute(array(1, 1 << 15), axes=(1, 0)), False),
    (movement.expand(turned, shape=(4, LARGE, LARGE)), False),  # its elements stay shared
    (movement.permute(array(16, 16), axes=(1, 0)), False),  # small
    (movement.slice(x, starts=(0, 0), stops=(LARGE, LARGE), steps=(1, 2)), False),
    (movement.expand(array(1, LARGE), shape=(LARGE, LARGE)), False),
    (movement.permute(movement.expand(array(1, LARGE), shape=(LARGE, LARGE)), axes=(1, 0)), False),
    (movement.reshape(turned, shape=(LARGE * LARGE,)), False),  # torch copies it
    (x, False),
])
def test_what_is_turned(node: Node, expected: bool) -> None:
    assert is_transposed(node) == expected


def test_strides() -> None:
    part = movement.slice(movement.permute(array(2, 3, 4), axes=(2, 0, 1)), starts=(0, 0, 1), stops=(4, 2, 3),
                          steps=(2, 1, 1))
    assert strides_of(part) == (2, 12, 4)
    assert strides_of(movement.expand(array(1, 4), shape=(3, 4))) == (0, 1)
    assert strides_of(movement.expand(array(1, 4), shape=(2, 3, 4))) == (0, 0, 1)
    assert strides_of(movement.reshape(array(2, 6), shape=(3, 4))) == (4, 1)
    assert strides_of(movement.reshape(turned, shape=(LARGE * LARGE,))) is None


def test_values_and_steps() -> None:
    data = np.random.default_rng(0).standard_normal((LARGE, LARGE)).astype(np.float32)
    engine.flush([])  # what other tests left to be written is not part of this program
    a = genesis.tensor(data)
    result = a + a.t()  # of two orders: turned operands alone give a turned result, nothing to copy
    np.testing.assert_array_equal(result.numpy(), data + data.T)
    plan = engine.last_plan()
    assert plan is not None
    assert [group.nodes[0].op.name for group in plan.schedule.groups if group.kind != "view"] == ["cast", "add"]
