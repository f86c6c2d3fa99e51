"""Fake quantization gives torch's numbers and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

NAMES = ("float32", "float64")


def both(function: Any, dtype: str = "float32", shape: tuple[int, ...] = (3, 4, 5)) -> None:
    """The same results and gradients of both libraries: float32 to the last bit, as both round alike, and float64 in
    float32's precision, which is what torch computes it in."""
    values = (3 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    found = []
    for T in (genesis, torch):
        x = T.tensor(values, requires_grad=True)
        y = function(T, x)
        (y * T.tensor(values + 2)).sum().backward()
        assert y.dtype is getattr(T, dtype) and x.grad is not None
        found.append((y.detach().numpy(), x.grad.numpy()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=0 if dtype == "float32" else 1e-7)
    assert 0 < (found[0][1] == 0).sum() < values.size  # some were cut off, and some were not


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize(("scale", "zero_point", "low", "high"), [
    (0.05, 10, 0, 100), (0.31, -3, -8, 7), (2.0, 0, -1, 1)])
def test_one_scale(dtype: str, scale: float, zero_point: int, low: int, high: int) -> None:
    both(lambda T, x: T.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high), dtype)


def test_a_scale_in_a_tensor() -> None:
    both(lambda T, x: T.fake_quantize_per_tensor_affine(
        x, T.tensor([0.07]), T.tensor([4], dtype=T.int32), quant_min=-20, quant_max=20))


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_scale_for_each_channel(dtype: str, axis: int) -> None:
    count = (3, 4, 5)[axis]
    both(lambda T, x: T.fake_quantize_per_channel_affine(
        x, T.linspace(0.1, 0.9, count), T.arange(count, dtype=T.int32), axis, -4, 6), dtype)


def test_halves_lie_at_the_even_one() -> None:
    x = genesis.tensor([0.5, 1.5, 2.5, -0.5])
    assert genesis.fake_quantize_per_tensor_affine(x, 1.0, 0, -10, 10).tolist() == [0.0, 2.0, 2.0, 0.0]


def test_a_compiled_step_of_it() -> None:
    weight = genesis.tensor([[0.3, -0.7], [1.1, 0.2]], requires_grad=True)
    optimizer = genesis.optim.SGD([weight], lr=0.1)

    @genesis.compile
    def step(x: genesis.Tensor) -> genesis.Tensor:
        optimizer.zero_grad()
        loss = (x @ genesis.fake_quantize_per_tensor_affine(weight, 0.25, 0, -3, 3)).square().sum()
        loss.backward()
        optimizer.step()
        return loss
    theirs = torch.tensor(weight.tolist(), requires_grad=True)
    other = torch.optim.SGD([theirs], lr=0.1)
    for turn in range(4):
        x = np.full((2, 2), 0.5 + turn, np.float32)
        ours = step(genesis.tensor(x)).item()
        other.zero_grad()
        loss = (torch.tensor(x) @ torch.fake_quantize_per_tensor_affine(theirs, 0.25, 0, -3, 3)).square().sum()
        loss.backward()
        other.step()
        assert ours == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(weight.tolist(), theirs.tolist(), rtol=1e-6)


@pytest.mark.parametrize(("arguments", "said"), [
    ((0.1, 300, 0, 255), "`zero_point` must be between"), ((0.1, 0, 5, 4), "`quant_min` should be less")])
def test_bounds_that_fit_nothing(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        genesis.fake_quantize_per_tensor_affine(genesis.ones(3), *arguments)


def test_float64_is_computed_in_float64() -> None:
    x = np.random.default_rng(0).standard_normal(100)
    found = genesis.fake_quantize_per_tensor_affine(genesis.tensor(x), 0.05, 0, -10, 10)
    np.testing.assert_allclose(found.numpy(), np.clip(np.round(x / 0.05), -10, 10) * 0.05, rtol=1e-15)


def test_channels_that_fit_nothing() -> None:
    x = genesis.ones(3, 4)
    for scale, axis, said in ((genesis.ones(4), 0, "not consistent"), (genesis.ones(4), 2, "`axis` must be"),
                              (genesis.ones(1, 4), 1, "same dimensions"), (genesis.ones(3), 0, "same dimensions")):
        with pytest.raises(RuntimeError, match=said):
            genesis.fake_quantize_per_channel_affine(x, scale, genesis.zeros(4, dtype=genesis.int32), axis, 0, 255)
