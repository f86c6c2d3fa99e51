"""Gradients through tensors that moved between devices."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import genesis
from genesis.frontend.state import state


def test_backward_crosses_devices_and_back(cuda: Any) -> None:
    x = genesis.tensor([1.0, -2.0, 3.0], requires_grad=True)
    y = (x * 2).to("cuda")
    assert y.requires_grad and not y.is_leaf
    z = (y * y).sum().cpu()
    z.backward()
    np.testing.assert_allclose(x.grad.numpy(), 8 * np.array([1.0, -2.0, 3.0]))


def test_a_moved_leaf_gives_its_gradient_to_the_original(cuda: Any) -> None:
    x = genesis.ones(2, requires_grad=True)
    moved = x.to("cuda")
    (moved * 3).sum().backward()
    assert moved.grad is None
    assert x.grad.tolist() == [3.0, 3.0]


def test_without_gradients_nothing_is_remembered(cuda: Any) -> None:
    before = len(state.crossings)
    x = genesis.ones(2, requires_grad=True)
    with genesis.no_grad():
        assert not x.to("cuda").requires_grad
    y = (x * 2).to("cuda")
    assert len(state.crossings) == before + 1
    del y
    gc.collect()
    assert len(state.crossings) == before


def test_a_gradient_that_is_given_is_where_its_tensor_is(cuda: Any) -> None:
    """Only a number goes from device to device by itself."""
    x = genesis.ones(2, device="cuda", requires_grad=True)
    for y, given in ((x * 2, genesis.ones(2)), ((x * 2).cpu(), genesis.ones(2, device="cuda"))):
        with pytest.raises(RuntimeError, match=f"expected device {y.device} but got {given.device}"):
            y.backward(given)
    (x * 2).sum().backward(genesis.tensor(3.0))
    assert x.grad.tolist() == [6.0, 6.0] and x.grad.device == x.device


def test_a_hook_keeps_the_device(cuda: Any) -> None:
    x = genesis.ones(2, device="cuda", requires_grad=True)
    x.register_hook(lambda gradient: gradient.cpu())
    with pytest.raises(RuntimeError, match="has changed the type of value"):
        x.sum().backward()
