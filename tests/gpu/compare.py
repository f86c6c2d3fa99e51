"""One program on the CPU and on CUDA; the CPU, which the registry's tests hold to references, is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.frontend.host_values import host_copy
from genesis.runtime.plan import Launch

Program = Callable[..., Any]

on_gpu_only = pytest.mark.parametrize("cuda", [pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True)
"""For tests with the fixture `cuda` that are too large for the interpreter."""

TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
"""A few units in the last place of the dtype, relative to the largest value: sums run in another order, and inside
a kernel low-precision values stay float32 while the CPU rounds each result."""


def array(tensor: Any) -> np.ndarray:
    """The values; computed where the tensor is, then copied."""
    genesis.eval(tensor)
    return host_copy(tensor)


def tensors(arrays: Sequence[Any], device: str, grad: bool = False) -> list[Any]:
    """Tensors with these contents; floating ones require grad when `grad`."""
    made = [genesis.tensor(x, device=device) for x in arrays]
    return [x.requires_grad_() if grad and x.is_floating_point() else x for x in made]


def parts(result: Any) -> list[Any]:
    """The tensors of a result, in order."""
    if isinstance(result, (list, tuple)):
        return [x for part in result for x in parts(part)]
    return [result]


def check(program: Program, *arrays: Any, tolerance: float | None = None) -> list[Any]:
    """The program gives the CPU's values on CUDA, from the same seed; returns its tensors there."""
    genesis.manual_seed(0)
    here = parts(program(*tensors(arrays, "cpu")))
    genesis.eval(here)
    wanted = list(map(host_copy, here))
    genesis.manual_seed(0)
    there = parts(program(*tensors(arrays, "cuda")))
    genesis.eval(there)
    for position, (want, y) in enumerate(zip(wanted, there, strict=True)):
        assert y.device.type == "cuda", f"result {position} is on {y.device}"
        same(y, want, tolerance, f"result {position}")
    return there


def check_gradients(program: Program, *arrays: Any, tolerance: float | None = None) -> None:
    """Results, and gradients of all floating arguments of a weighted sum of the results, are the CPU's."""
    found = []
    for device in ("cpu", "cuda"):
        genesis.manual_seed(0)
        leaves = tensors(arrays, device, grad=True)
        results = parts(program(*leaves))
        total = sum((y * ramp(y)).sum() for y in results if y.is_floating_point())
        total.backward()
        wanted = [*(y.detach() for y in results), *(x.grad for x in leaves if x.requires_grad)]
        genesis.eval(*wanted)
        found.append(wanted)
    for position, (x, y) in enumerate(zip(*found, strict=True)):
        same(y, array(x), tolerance, f"result or gradient {position}")


def ramp(y: Any) -> Any:
    """A different weight for each element, between 0.5 and 1.5."""
    count = max(y.numel(), 1)
    return (genesis.arange(y.numel(), device=y.device) * (1 / count) + 0.5).reshape(y.shape).to(y.dtype)


def same(tensor: Any, want: np.ndarray, tolerance: float | None = None, about: str = "") -> None:
    """The tensor has this dtype and shape and these values; floating ones to rounding, NaN and infinity alike."""
    got = array(tensor)
    assert got.dtype == want.dtype and got.shape == want.shape, (
        f"{about}: {got.dtype}{got.shape}, {want.dtype}{want.shape}")
    if not tensor.is_floating_point():
        np.testing.assert_array_equal(got, want, err_msg=about)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    top = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    allowed = TOLERANCE[tensor.dtype.name] if tolerance is None else tolerance
    np.testing.assert_allclose(got, want, rtol=allowed, atol=allowed * top, err_msg=about)


def launches() -> int:
    """Kernels of the plan that ran last."""
    return sum(isinstance(step, Launch) for step in engine.last_plan().plan.steps)


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Standard normal numbers."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def integers(low: int, high: int, *shape: int, seed: int = 0) -> np.ndarray:
    """int64 numbers in [low, high)."""
    return np.random.default_rng((seed, *shape)).integers(low, high, shape)
