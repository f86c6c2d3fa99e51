"""Products of groups whose ends the device knows, beside torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis
from genesis.nn import functional

SHAPES = {"rows": ((24, 8), (3, 8, 16)), "inner": ((8, 24), (24, 16)), "columns": ((3, 8, 16), (16, 24)),
          "equal": ((3, 4, 8), (3, 8, 16))}


def ends_of(*ends: int) -> genesis.Tensor:
    """As the function wants them."""
    return genesis.tensor(ends, dtype=genesis.int32)


@pytest.mark.parametrize("name", SHAPES)
def test_as_torch(name) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=generator).to(torch.bfloat16) for shape in SHAPES[name])
    ends = None if name == "equal" else [4, 12, 24]
    want = torch.nn.functional.grouped_mm(a, b, offs=None if ends is None else torch.tensor(ends, dtype=torch.int32))
    found = functional.grouped_mm(*(genesis.tensor(x.float().numpy()).bfloat16() for x in (a, b)),
                                  offs=None if ends is None else ends_of(*ends))
    assert found.dtype is genesis.bfloat16
    torch.testing.assert_close(torch.tensor(found.float().tolist()), want.float(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["rows", "inner", "columns"])
def test_gradients_are_those_of_a_loop_over_groups(name) -> None:
    genesis.manual_seed(0)
    a, b = (genesis.randn(*shape, dtype=genesis.float64, requires_grad=True) for shape in SHAPES[name])
    spans = [(0, 4), (4, 4), (4, 18)]
    y = functional.grouped_mm(a, b, offs=ends_of(4, 4, 18))
    weights = genesis.randn(*y.shape, dtype=genesis.float64)
    (y * weights).sum().backward()
    found = [x.grad.tolist() for x in (a, b)]
    a.grad = b.grad = None
    total: Any = 0
    for i, (s, e) in enumerate(spans):
        if name == "rows":
            total = total + ((a[s:e] @ b[i]) * weights[s:e]).sum()
        elif name == "inner":
            total = total + ((a[:, s:e] @ b[s:e]) * weights[i]).sum()
        else:
            total = total + ((a[i] @ b[:, s:e]) * weights[:, s:e]).sum()
    total.backward()
    for got, x in zip(found, (a, b), strict=True):
        torch.testing.assert_close(torch.tensor(got), torch.tensor(x.grad.tolist()), rtol=1e-12, atol=1e-12)


def test_autocast_multiplies_in_low_precision() -> None:
    a, b = genesis.ones(4, 8), genesis.ones(2, 8, 8)
    with genesis.autocast("cpu", dtype=genesis.bfloat16):
        assert functional.grouped_mm(a, b, offs=ends_of(1, 4)).dtype is genesis.bfloat16


def test_errors_say_what_is_wrong() -> None:
    a, b = genesis.ones(4, 8), genesis.ones(2, 8, 8)
    with pytest.raises(RuntimeError, match="offs says where groups end"):
        functional.grouped_mm(a, b)
    with pytest.raises(RuntimeError, match="3 ends do not fit 2 groups"):
        functional.grouped_mm(a, b, offs=ends_of(1, 2, 4))
    with pytest.raises(RuntimeError, match="ends must be a vector of int32"):
        functional.grouped_mm(a, b, offs=genesis.tensor([1, 4]))
    with pytest.raises(NotImplementedError, match="no bias"):
        functional.grouped_mm(a, b, offs=ends_of(1, 4), bias=genesis.ones(8))
