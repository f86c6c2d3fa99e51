"""Convolutions' gradients on the CPU: windows of one place are products of matrices, in the operands' order."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
import torch

from genesis.codegen.cpu.lowerings.convolution import _convolution_input

LAST = torch.channels_last

GRADIENTS: dict[str, Callable[[], torch.Tensor]] = {
    "channels first": lambda: torch.rand(2, 6, 5, 4),
    "channels last": lambda: torch.rand(2, 6, 5, 4).to(memory_format=LAST),
    "a part of an image": lambda: torch.rand(2, 9, 5, 4).to(memory_format=LAST)[:, 2:8],
    "every second place": lambda: torch.rand(2, 6, 10, 8)[:, :, ::2, ::2],
    "the same at all places": lambda: torch.rand(2, 6, 1, 1).expand(2, 6, 5, 4),
    "one place, channels last": lambda: torch.rand(2, 1, 1, 6).permute(0, 3, 1, 2),
    "a line": lambda: torch.rand(3, 6, 7),
    "a volume": lambda: torch.rand(2, 6, 3, 4, 2),
    "no image": lambda: torch.rand(0, 6, 5, 4),
}


@pytest.mark.parametrize("made", [3, 1, 0])
@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("turned", [False, True])
def test_windows_of_one_place(name: str, made: int, turned: bool) -> None:
    """The gradient by the image: at each place the sum over channels of a weight times what arrives there."""
    g = GRADIENTS[name]()
    sizes = g.shape[2:]
    weight = torch.rand(6, made, *[1] * len(sizes))
    if turned and g.ndim == 4:  # as a weight lies whose channels are last
        weight = weight.as_strided(weight.shape, (made, 1, made, made))
    one = (1,) * len(sizes)
    found = _convolution_input(g, weight, sizes=tuple(sizes), stride=one, padding=(0,) * len(sizes), dilation=one,
                               groups=1)
    wanted = torch.einsum("no...,oc->nc...", g.double(), weight.double().flatten(1))
    assert found.shape == (g.shape[0], made, *sizes)
    torch.testing.assert_close(found, wanted.float())
    if name in ("channels first", "channels last") and made > 1:
        last = turned or name == "channels last"
        assert found.is_contiguous(memory_format=LAST if last else torch.contiguous_format)


@pytest.mark.parametrize(("groups", "padding", "dtype"), [
    (2, 0, torch.float32), (1, 1, torch.float32), (1, 0, torch.float64), (1, 0, torch.bfloat16)])
def test_what_is_no_product_of_one_matrix(groups: int, padding: int, dtype: torch.dtype) -> None:
    g = torch.rand(2, 6, 5 + 2 * padding, 4 + 2 * padding).to(dtype)
    weight = torch.rand(6, 8 // groups, 1, 1).to(dtype)
    found = _convolution_input(g, weight, sizes=(5, 4), stride=(1, 1), padding=(padding, padding), dilation=(1, 1),
                               groups=groups)
    x = torch.zeros(2, 8, 5, 4, dtype=torch.float64, requires_grad=True)
    torch.conv2d(x, weight.double(), padding=padding, groups=groups).backward(g.double())
    assert x.grad is not None
    assert found.shape == x.shape and found.numel() == prod(x.shape)
    torch.testing.assert_close(found, x.grad.to(dtype), rtol=1e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-6)
