"""A program's text, run once with Genesis and once with torch, must give the same values.

A test of the semantics is an ordinary PyTorch program: `def program(T, nn, optim, np)` that
returns what it computed, tensors, arrays, numbers and strings in any nesting. The oracle is eager torch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

import genesis

torch.set_num_threads(1)

Program = Callable[..., Any]


class Framework(NamedTuple):
    """What a program is run with."""

    T: ModuleType
    nn: ModuleType
    optim: ModuleType


GENESIS = Framework(genesis, genesis.nn, genesis.optim)
TORCH = Framework(torch, torch.nn, torch.optim)


def run(program: Program, framework: Framework) -> Any:
    """The program's results with one framework, from the same seeds."""
    framework.T.manual_seed(0)
    return program(framework.T, framework.nn, framework.optim, np)


def check(program: Program, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The program gives torch's results. The tolerances allow for another order of summation in float32."""
    same(run(program, GENESIS), run(program, TORCH), rtol, atol)


def same(ours: Any, theirs: Any, rtol: float = 1e-5, atol: float = 1e-6, where: str = "result") -> None:
    """Assert that both results have one structure, one dtype and shape each, and the same values."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, genesis.Tensor), f"{where}: {type(ours).__name__} instead of a tensor"
        same_tensor(ours, theirs, rtol, atol, where)
    elif isinstance(theirs, np.ndarray):
        same_array(ours, theirs, rtol, atol, where)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key in theirs:
            same(ours[key], theirs[key], rtol, atol, f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            same(a, b, rtol, atol, f"{where}[{i}]")
    elif isinstance(theirs, float):
        np.testing.assert_allclose(ours, theirs, rtol, atol, err_msg=where)
    else:
        assert type(ours) is type(theirs) and ours == theirs, f"{where}: {ours!r} instead of {theirs!r}"


def same_tensor(ours: Any, theirs: torch.Tensor, rtol: float, atol: float, where: str) -> None:
    """Assert that tensors agree in shape, strides' contiguity, dtype, gradient flag and values."""
    assert tuple(ours.shape) == tuple(theirs.shape), f"{where}: shape {tuple(ours.shape)} is not {tuple(theirs.shape)}"
    assert name_of(ours.dtype) == name_of(theirs.dtype), f"{where}: {ours.dtype} is not {theirs.dtype}"
    assert ours.requires_grad == theirs.requires_grad, f"{where}: requires_grad is {ours.requires_grad}"
    theirs = theirs.detach()
    if theirs.dtype is torch.bfloat16:
        ours, theirs = ours.detach().float(), theirs.float()
    same_array(np.array(ours.detach().numpy()), theirs.resolve_neg().numpy(), rtol, atol, where)


def same_array(ours: Any, theirs: np.ndarray, rtol: float, atol: float, where: str) -> None:
    """Assert that arrays agree: exactly for integers and bools."""
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, f"{where}: {ours.dtype}{ours.shape}"
    if theirs.dtype.kind == "f":
        np.testing.assert_allclose(ours, theirs, rtol, atol, err_msg=where)
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=where)


def name_of(dtype: Any) -> str:
    """float32 for genesis.float32 and torch.float32."""
    return str(dtype).rsplit(".", 1)[-1]
