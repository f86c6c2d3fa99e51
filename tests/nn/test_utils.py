"""Gradient clipping and flat vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_peer import array_of, assert_same, both, numbers

import genesis
from genesis.nn import utils


def gradients(scale: float = 1.0):  # type: ignore[no-untyped-def]
    """Parameters of both frameworks with equal gradients, and one parameter without."""
    ours, theirs = [], []
    for seed, shape in enumerate([(4, 3), (5,), ()]):
        a, b = both(numbers(*shape, seed=seed), grad=True)
        a.grad, b.grad = both(numbers(*shape, seed=seed + 10) * np.float32(scale))
        ours.append(a)
        theirs.append(b)
    without = both(numbers(2), grad=True)
    return [*ours, without[0]], [*theirs, without[1]]


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e6], ids=["too long", "short enough"])
def test_clip_grad_norm(norm_type: float, max_norm: float) -> None:
    ours, theirs = gradients()
    norm = utils.clip_grad_norm_(ours, max_norm, norm_type)
    assert_same(norm, torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type))
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        assert_same(a.grad, b.grad)
    assert ours[-1].grad is None


def test_clipping_keeps_the_gradients_memory() -> None:
    ours, _ = gradients()
    alias = ours[0].grad.detach()
    utils.clip_grad_norm_(ours, 0.1)
    assert np.array_equal(array_of(alias), array_of(ours[0].grad))


def test_clipping_low_precision_keeps_its_dtype() -> None:
    w = genesis.ones(4, dtype=genesis.bfloat16, requires_grad=True)
    w.grad = genesis.full((4,), 2.0, dtype=genesis.bfloat16)
    assert utils.clip_grad_norm_(w, 1.0).item() == 4.0
    assert w.grad.dtype is genesis.bfloat16 and w.grad.tolist() == [0.5] * 4


def test_a_norm_that_is_not_finite() -> None:
    ours, _ = gradients(scale=float("inf"))
    before = array_of(ours[0].grad)
    with pytest.raises(RuntimeError, match="norm is"):
        utils.clip_grad_norm_(ours, 1.0, error_if_nonfinite=True)
    assert np.array_equal(array_of(ours[0].grad), before, equal_nan=True)


def test_nothing_to_clip() -> None:
    assert utils.clip_grad_norm_([genesis.ones(1, requires_grad=True)], 1.0).item() == 0.0


def test_clip_grad_value() -> None:
    ours, theirs = gradients()
    utils.clip_grad_value_(ours, 0.3)
    torch.nn.utils.clip_grad_value_(theirs, 0.3)
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        assert_same(a.grad, b.grad)


def test_vector_and_back() -> None:
    ours, theirs = gradients()
    vector = utils.parameters_to_vector(ours)
    assert_same(vector, torch.nn.utils.parameters_to_vector(theirs))
    utils.vector_to_parameters(vector * 2, ours)
    assert_same(ours[0], theirs[0] * 2)
    with pytest.raises(RuntimeError, match="20 elements"):
        utils.vector_to_parameters(vector[1:], ours)
