"""Pools on CUDA beside the CPU's: every way to place windows, forward and backward, with NaN, infinities and ties."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import Tensor
from tests.sweeping import sweep_but

PLACED: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [
    # shape, (window, stride, padding, dilation, ceil_mode)
    ((2, 3, 11), (2, 2, 0, 1, False)), ((2, 3, 11), (3, 1, 1, 1, False)), ((2, 3, 11), (3, 2, 1, 1, True)),
    ((2, 3, 11), (3, 2, 0, 3, False)), ((2, 3, 40), (3, 1, 0, 1, False)), ((2, 3, 40), (4, 3, 2, 2, True)),
    ((2, 3, 40), (2, 4, 0, 1, False)),
    ((2, 3, 9, 8), (2, 2, 0, 1, False)), ((2, 3, 9, 8), (3, 2, 1, 1, False)), ((2, 3, 9, 8), (3, 1, 1, 1, False)),
    ((2, 3, 9, 8), (3, 2, 1, 2, True)), ((2, 3, 9, 8), ((3, 2), (2, 1), (1, 0), (1, 2), True)),
    ((1, 2, 20, 19), (8, 3, 4, 1, False)), ((1, 2, 20, 19), (9, 2, 0, 1, False)),
    ((1, 2, 5, 6, 7), (2, 2, 1, 1, False)), ((1, 2, 5, 6, 7), (3, 2, 1, 1, True))]

DTYPES = ["float32", "bfloat16", "float64", "uint8", "int64"]

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0)


def special(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Many equal values, rows of -inf, and some NaN, where the dtype has them."""
    rng = np.random.default_rng(0)
    if not dtype.startswith(("float", "bfloat")):
        return rng.choice([np.iinfo(dtype).min, 0, 5], size=shape).astype(dtype)
    found = rng.choice(SPECIAL, size=shape, p=(0.03, 0.1, 0.5, 0.1, 0.1, 0.17)).astype("float32")
    found[..., :5] = -np.inf
    return found


def on(device: str, array: np.ndarray, dtype: str) -> Tensor:
    return genesis.tensor(array, device=device).to(getattr(genesis, dtype))


def numpy_of(x: Tensor) -> np.ndarray:
    return (x.float() if x.dtype.is_floating_point else x).detach().cpu().numpy()


def both_ways(pool: Callable[[Tensor], Tensor], array: np.ndarray, dtype: str, device: str) -> list[np.ndarray]:
    """A pool's result and its gradient for gradients that differ from each other."""
    x = on(device, array, dtype).requires_grad_()
    y = pool(x)
    g = (genesis.arange(y.numel(), device=device) % 17 - 8).reshape(y.shape).to(y.dtype)
    y.backward(g)
    return [numpy_of(y), numpy_of(x.grad)]


@pytest.mark.parametrize(("placed", "dtype"), sweep_but(
    lambda placed, dtype: PLACED.index(placed) % len(DTYPES) == DTYPES.index(dtype), PLACED, DTYPES))
def test_the_largest_element_is_the_first_of_equal_ones_or_nan(cuda, placed: tuple[Any, Any], dtype: str) -> None:
    shape, how = placed
    array = special(shape, dtype)
    pool = getattr(F, f"max_pool{len(shape) - 2}d")
    want, got = (pool(on(device, array, dtype), *how) for device in ("cpu", "cuda"))
    np.testing.assert_array_equal(numpy_of(got), numpy_of(want))
    array = np.where(array == array, array, 0).astype(array.dtype)  # of several NaN either may be told
    want, got = (pool(on(device, array, dtype), *how, return_indices=True) for device in ("cpu", "cuda"))
    for expected, found in zip(want, got, strict=True):
        np.testing.assert_array_equal(numpy_of(found), numpy_of(expected))


@pytest.mark.parametrize(("placed", "dtype"), sweep_but(
    lambda placed, dtype: PLACED.index(placed) % 2 == (dtype == "float32"), PLACED, ["float32", "float16"]))
def test_gradients_go_to_the_largest_elements(cuda, placed: tuple[Any, Any], dtype: str) -> None:
    shape, how = placed
    array = np.random.default_rng(1).integers(0, 9, shape).astype("float32")
    pool = getattr(F, f"max_pool{len(shape) - 2}d")
    want, got = (both_ways(lambda x: pool(x, *how), array, dtype, device) for device in ("cpu", "cuda"))
    for expected, found in zip(want, got, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("placed", "count_include_pad", "dtype"), sweep_but(
    lambda placed, count_include_pad, dtype: (count_include_pad, dtype == "float32") == (
        PLACED.index(placed) % 2 == 0, PLACED.index(placed) % 4 < 2),
    [row for row in PLACED if row[1][3] == 1], [True, False], ["float32", "bfloat16"]))
def test_means_and_their_gradients(cuda, placed: tuple[Any, Any], count_include_pad: bool, dtype: str) -> None:
    shape, how = placed
    array = np.random.default_rng(2).standard_normal(shape).astype("float32")
    window, stride, padding, _, ceil_mode = how
    pool = getattr(F, f"avg_pool{len(shape) - 2}d")

    def mean(x: Tensor) -> Tensor:
        return pool(x, window, stride, padding, ceil_mode, count_include_pad)
    want, got = (both_ways(mean, array, kind, device) for device, kind in (("cpu", "float64"), ("cuda", dtype)))
    allowed = 1e-5 if dtype == "float32" else 2e-2
    for expected, found in zip(want, got, strict=True):
        np.testing.assert_allclose(found, expected, rtol=allowed, atol=allowed)


def test_gradients_of_grouped_convolutions_for_many_strides(cuda) -> None:
    """Which output an element belongs to is divisions of small numbers by two strides."""
    rng = np.random.default_rng(0)
    cases = [(rng.standard_normal((2, 4, 3 + stride[0], 4 + stride[1])), stride)
             for stride in product((2, 3, 4, 5), repeat=2)]
    weight = rng.standard_normal((4, 1, 3, 3))

    def gradients(device: str) -> list[Tensor]:
        w, found = genesis.tensor(weight, device=device), []
        for array, stride in cases:
            x = genesis.tensor(array, device=device, requires_grad=True)
            y = F.conv2d(x, w, None, stride, groups=4)
            g = (genesis.arange(y.numel(), device=device) % 17 - 8).reshape(y.shape).to(y.dtype)
            found += genesis.autograd.grad(y, (x,), g)
        genesis.eval(*found)
        return found

    for (_, stride), want, got in zip(cases, gradients("cpu"), gradients("cuda"), strict=True):
        np.testing.assert_allclose(got.cpu().numpy(), want.numpy(), atol=1e-12, err_msg=str(stride))
