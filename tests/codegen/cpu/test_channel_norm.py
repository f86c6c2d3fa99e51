"""Batch norms on the CPU, over images of any strides."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from genesis.codegen.cpu.lowerings.channel_norm import _batch_norm_backward


def laid_out(x: torch.Tensor, order: tuple[int, ...], alone: int) -> torch.Tensor:
    """The image with its dimensions in that order in memory, and that stride along dimensions of size 1."""
    there = x.permute(order).contiguous().permute([order.index(dim) for dim in range(x.ndim)])
    return there.as_strided(x.shape, [alone if size == 1 else stride
                                      for size, stride in zip(x.shape, there.stride(), strict=True)])


@pytest.mark.parametrize("shape", [(6, 2, 1, 8), (6, 2, 8, 1), (6, 2, 1, 1), (1, 2, 4, 8), (6, 1, 4, 8), (6, 2, 4, 8)])
def test_gradients_do_not_depend_on_strides(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    x, g = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    variance, middle = torch.var_mean(x, (0, 2, 3), correction=0)
    want = _batch_norm_backward(g, x, middle, variance, torch.ones(shape[1], dtype=torch.float64), eps=1e-5)
    for order in permutations(range(4)):
        for alone in (1, 2, 100):
            g_there, x_there = laid_out(g, order, alone), laid_out(x, order, alone)
            for operands in ((g_there, x), (g, x_there), (g_there, x_there)):
                found = _batch_norm_backward(*operands, middle, variance, torch.ones(shape[1], dtype=torch.float64),
                                             eps=1e-5)
                for want_part, part in zip(want, found, strict=True):  # sums run in another order
                    torch.testing.assert_close(part, want_part, rtol=1e-9, atol=1e-9)
