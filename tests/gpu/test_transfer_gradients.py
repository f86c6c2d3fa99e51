"""Gradients through tensors that moved between devices."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

import genesis
from genesis.recording import crossings


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
    before = len(crossings)
    x = genesis.ones(2, requires_grad=True)
    with genesis.no_grad():
        assert not x.to("cuda").requires_grad
    y = (x * 2).to("cuda")
    assert len(crossings) == before + 1
    del y
    gc.collect()
    assert len(crossings) == before
