"""`where` on the CPU: by bits above some thousand elements, by torch's own call below; the same bits from both."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from genesis.codegen.cpu.lowerings import pointwise
from genesis.codegen.cpu.lowerings.table import Outs

SIZE = 3 * pointwise._SELECT_FROM
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64]


def draw(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Any bits, NaNs of all kinds and both zeros among them."""
    found = torch.from_numpy(np.random.default_rng(len(shape)).integers(0, 256, (*shape, dtype.itemsize), np.uint8))
    return (found % 2).bool().squeeze(-1) if dtype is torch.bool else found.view(dtype).squeeze(-1)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_are_torch_s(dtype: torch.dtype) -> None:
    condition, a, b = torch.arange(SIZE) * 7 % 3 == 1, draw(dtype, SIZE), draw(dtype, SIZE).flip(0)
    want = torch.where(condition, a, b)
    assert 0 < condition.sum() < SIZE and not torch.equal(bits(a), bits(b))
    for place in ("elsewhere", "a", "b"):
        operands = {"a": a.clone(), "b": b.clone(), "elsewhere": torch.empty_like(a)}
        pointwise._where((operands[place],), condition, operands["a"], operands["b"])
        assert torch.equal(bits(operands[place]), bits(want)), place


@pytest.mark.parametrize("shapes", [((3, 1), (3, 1 << 13), (1 << 13,)), ((1 << 14,), (2, 1), (2, 1)),
                                    ((2, 1 << 13), (), (1 << 13,)), ((), (2, 1 << 13), (2, 1 << 13))])
def test_operands_are_expanded(shapes: tuple[tuple[int, ...], ...]) -> None:
    condition, a, b = draw(torch.bool, *shapes[0]), draw(torch.float32, *shapes[1]), draw(torch.float32, *shapes[2])
    want = torch.where(condition, a, b)
    outs: Outs = (torch.empty(want.shape),)
    pointwise._where(outs, condition, a, b)
    assert want.numel() >= pointwise._SELECT_FROM and torch.equal(bits(outs[0]), bits(want))


def test_numbers_and_turned_operands() -> None:
    condition, x = draw(torch.bool, 128, 128), draw(torch.float32, 128, 128)
    for a, b in ((2.5, x.T), (x.T, -0.0), (1.0, 2.0)):
        out = torch.empty(128, 128)
        pointwise._where((out,), condition.T, a, b)
        want = torch.where(condition.T, torch.as_tensor(a), torch.as_tensor(b))
        assert torch.equal(bits(out), bits(want))
