"""The gradient of the cross entropy has two forms on the CPU: with few calls for few logits, and in place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import genesis
from genesis.codegen.cpu.lowerings import composite
from genesis.nn import functional as F


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("target_dtype", ["int64", "uint8"])
def test_both_forms_have_torchs_gradient(monkeypatch: pytest.MonkeyPatch, few: bool, target_dtype: str) -> None:
    monkeypatch.setattr(composite, "FEW_ELEMENTS", (1 << 15) * few)
    draws = np.random.default_rng(0)
    logits, classes = draws.standard_normal((6, 5), dtype=np.float32), np.array([0, 4, 2, 3, 2, 1])
    x = genesis.tensor(logits, requires_grad=True)
    y = torch.tensor(logits, requires_grad=True)
    F.cross_entropy(x, genesis.tensor(classes).to(getattr(genesis, target_dtype)), ignore_index=2).backward()
    torch.nn.functional.cross_entropy(y, torch.tensor(classes), ignore_index=2).backward()
    assert x.grad is not None and y.grad is not None
    # a gradient is below 1, and each of its two terms is rounded once
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=0, atol=2 * np.finfo(np.float32).eps)
    assert not x.grad[2].any() and not x.grad[4].any()


@pytest.mark.parametrize("few", [True, False])
def test_a_class_that_is_not_there_is_an_error_in_backward_too(monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    """The gradient may be computed before the loss, or alone."""
    monkeypatch.setattr(composite, "FEW_ELEMENTS", (1 << 15) * few)
    x = genesis.zeros(2, 3, requires_grad=True)
    F.cross_entropy(x, genesis.tensor([1, 3])).backward()
    with pytest.raises(IndexError, match="3"):
        assert x.grad is not None and x.grad.tolist()
