"""Products on the CPU: those of few rows with a large matrix are read by oneDNN, and are as exact as the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genesis.codegen.cpu.lowerings import contraction
from genesis.codegen.cpu.lowerings.contraction import FEW_ROWS, READ_ALONE, _linear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "features", "alone"), [
    ((1, 1), READ_ALONE // 64, True), ((FEW_ROWS,), READ_ALONE // 64, True), ((FEW_ROWS + 1,), READ_ALONE // 64, False),
    ((1,), READ_ALONE // 128, False)], ids=["one row", "few", "more", "a small matrix"])
def test_few_rows(rows: tuple[int, ...], features: int, alone: bool, bias: bool,
                  monkeypatch: pytest.MonkeyPatch) -> None:
    if contraction._read_alone is None:
        pytest.skip("torch was built without oneDNN")
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(*rows, 64, generator=generator), torch.randn(features, 64, generator=generator)
    added = torch.randn(features, generator=generator) if bias else None
    called: list[Any] = []
    read = contraction._read_alone
    monkeypatch.setattr(contraction, "_read_alone", lambda *operands: called.append(1) or read(*operands))
    out = torch.full((*rows, features), torch.nan)
    _linear((out,), x, weight, added)
    assert bool(called) == alone
    expected = x.double() @ weight.double().t() + (0 if added is None else added.double())
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)  # sums of 64 products in float32


@pytest.mark.parametrize("apart", ["x", "weight", "bias"])
def test_operands_whose_elements_lie_apart(apart: str) -> None:
    features = READ_ALONE // 64
    x, weight, bias = torch.randn(4, 64), torch.randn(features, 64), torch.randn(features)
    if apart == "x":
        x = torch.randn(64, 4).t()
    elif apart == "weight":
        weight = torch.randn(64, features).t()
    else:
        bias = torch.randn(2 * features)[::2]
    out = torch.empty(4, features)
    _linear((out,), x, weight, bias)
    expected = x.double() @ weight.double().t() + bias.double()
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-4)  # sums of 64 products in float32
