"""A classifier that reads one token of each sequence: all behind the last attention is made for that token alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.nn import functional as F
from genesis.passes.graph import slice_early
from tests.gpu.compare import check, check_gradients, numbers

LENGTH, WIDTH, WEIGHTS = 19, 32, (numbers(96, 32, seed=1), numbers(32, 32, seed=2), numbers(128, 32, seed=3),
                                  numbers(32, 128, seed=4), numbers(32, seed=5), numbers(7, 32, seed=6))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of the tests' size are worth leaving out."""
    monkeypatch.setattr(slice_early, "LEAST_BYTES", 1)


def classes(x: Any, packed: Any, out: Any, up: Any, down: Any, gain: Any, head: Any, at: int = 0) -> Any:
    """A layer of a transformer and a head over one of its tokens."""
    q, k, v = F.linear(x, packed).view(3, LENGTH, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
    x = x + F.linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(3, LENGTH, WIDTH), out)
    x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (WIDTH,), gain), up)), down)
    return F.linear(F.layer_norm(x, (WIDTH,), gain)[:, at], head)


def rows_of_products() -> list[int]:
    """How many rows the products of the last plan have, but those of weights' gradients."""
    plan: Any = engine.last_plan()
    return [int(np.prod(node.shape[:-1])) for group in plan.schedule.groups for node in group.nodes
            if node.op.name in ("matmul", "linear")]


@pytest.mark.parametrize("at", [0, -1])
def test_values_are_those_of_all_tokens(cuda: Any, at: int) -> None:
    check(lambda *given: classes(*given, at=at), numbers(3, LENGTH, WIDTH), *WEIGHTS, tolerance=1e-4)
    assert rows_of_products().count(3 * LENGTH) == 1, "queries, keys and values"


def test_gradients_are_those_of_all_tokens(cuda: Any) -> None:
    check_gradients(classes, numbers(3, LENGTH, WIDTH), *WEIGHTS, tolerance=2e-4)
    assert rows_of_products().count(3 * LENGTH) <= 2, "queries, keys and values, and what goes into them"


def test_a_value_that_is_looked_at_is_whole(cuda: Any) -> None:
    """Rows that the program prints later are there, whoever read a part of them first."""
    x, w = (genesis.tensor(array, device="cuda") for array in (numbers(3, LENGTH, WIDTH), WEIGHTS[1]))
    y = F.linear(x, w)
    part = y[:, 0] * 2.0
    np.testing.assert_allclose(part.cpu().numpy(), 2 * (numbers(3, LENGTH, WIDTH) @ WEIGHTS[1].T)[:, 0], rtol=1e-4,
                               atol=1e-4)
    np.testing.assert_allclose(y.cpu().numpy(), numbers(3, LENGTH, WIDTH) @ WEIGHTS[1].T, rtol=1e-4, atol=1e-4)
