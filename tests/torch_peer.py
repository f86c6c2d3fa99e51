"""Genesis beside torch: the same weights, the same inputs, the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import genesis


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def both(array: Any, grad: bool = False) -> tuple[Any, torch.Tensor]:
    """The array as a tensor of each framework."""
    array = np.asarray(array)
    ours, theirs = genesis.tensor(array), torch.tensor(array)
    return (ours.requires_grad_(), theirs.requires_grad_()) if grad else (ours, theirs)


def array_of(tensor: Any) -> np.ndarray:
    """The content of a tensor of either framework; bfloat16, which numpy lacks, as float32."""
    tensor = tensor.detach().cpu()
    return np.array(tensor.float().numpy() if "bfloat16" in str(tensor.dtype) else tensor.numpy())


def assert_same(ours: Any, theirs: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Equal shapes, and values that differ by rounding only: sums in another order, libm's last bit."""
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    np.testing.assert_allclose(array_of(ours), array_of(theirs), rtol=rtol, atol=atol)


def copy_weights(ours: Any, theirs: Any) -> None:
    """Load torch's state dict into our module: equal keys, equal shapes."""
    ours.load_state_dict({name: genesis.tensor(value.detach().numpy()) for name, value in theirs.state_dict().items()})


def check_module(ours: Any, theirs: Any, array: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Result, gradient of the input and gradients of all parameters are torch's."""
    copy_weights(ours, theirs)
    x, tx = both(array, grad=np.asarray(array).dtype.kind == "f")
    check_result(ours(x), theirs(tx), [(x, tx)] if tx.requires_grad else [], rtol, atol)
    expected = dict(theirs.named_parameters())
    assert [name for name, _ in ours.named_parameters()] == list(expected)
    for name, parameter in ours.named_parameters():
        assert_same(parameter.grad, expected[name].grad, rtol, atol)


def check_result(y: Any, ty: torch.Tensor, leaves: list[tuple[Any, torch.Tensor]], rtol: float = 1e-5,
                 atol: float = 1e-6) -> None:
    """Equal results, and equal gradients of the leaves for a random weight of each element."""
    weight, tweight = both(numbers(*ty.shape, seed=9))
    (y * weight.to(y.dtype)).sum().backward()
    (ty * tweight.to(ty.dtype)).sum().backward()
    assert_same(y, ty, rtol, atol)
    for leaf, tleaf in leaves:
        assert_same(leaf.grad, tleaf.grad, rtol, atol)
