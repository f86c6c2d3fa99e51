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


def test_a_matrix_that_lies_across_is_not_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction, "_read_alone", None)
    x, weight = torch.randn(1, 64), torch.randn(64, READ_ALONE // 64).t()
    out = torch.empty(1, READ_ALONE // 64)
    _linear((out,), x, weight)
    torch.testing.assert_close(out, x @ weight.t(), rtol=1e-5, atol=1e-5)
