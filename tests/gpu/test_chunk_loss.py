"""Losses by chunks of rows on CUDA: the CPU's values and gradients, also where the number of rows changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import config, engine
from genesis.engine.compilation import Compiled
from genesis.passes.graph import chunk_loss as pass_
from tests.gpu.compare import array, integers, numbers

WIDTH, CLASSES = 16, 40


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of about 16 rows of float32 logits."""
    monkeypatch.setattr(config, "loss_chunk_bytes", 16 * CLASSES * 4)
    monkeypatch.setattr(pass_, "FEWEST_ROWS", 1)
    monkeypatch.setattr(pass_, "SHARE", 1 << 30)
    monkeypatch.setattr(pass_, "LEAST_SAVED", -100.0)
    yield
    engine.reset()


def results(device: str, batch: int, time: int, dtype: Any = None, **how: Any) -> list[np.ndarray]:
    """The loss and the gradients of the hidden states, the weight and the bias."""
    x, weight, bias = (genesis.tensor(each, device=device).requires_grad_()
                       for each in (numbers(batch, time, WIDTH), numbers(CLASSES, WIDTH, seed=1), numbers(CLASSES)))
    targets = genesis.tensor(integers(0, CLASSES, batch, time), device=device)
    with genesis.autocast(device, dtype=dtype or genesis.bfloat16, enabled=dtype is not None):
        loss = F.cross_entropy(F.linear(x, weight, bias).view(-1, CLASSES), targets.view(-1), **how)
    loss.backward()
    genesis.eval(loss, x.grad, weight.grad, bias.grad)
    return [array(each) for each in (loss, x.grad, weight.grad, bias.grad)]


def with_rows(device: str, *sizes: Any, **how: Any) -> tuple[list[np.ndarray], int]:
    """The results, and the most rows of logits that a plan made for them on the device has in memory.

    Not those of the last plan: what else is pending in the process is computed with them, on its own device after.
    """
    plans: list[Compiled] = []
    with engine.observe(plans.append):
        found = results(device, *sizes, **how)
    return found, max(int(x.shape[0]) for plan in plans if plan.plan.device.type == device
                      for group in plan.schedule.groups for x in group.outputs
                      if x.type.ndim == 2 and x.shape[1] == CLASSES)


def test_values_and_gradients_are_the_cpu_s(cuda: Any) -> None:
    how = {"label_smoothing": 0.1, "ignore_index": 3, "reduction": "sum"}
    pending = genesis.zeros(3)
    pending.add_(1)  # of another program, as an earlier test may leave one behind
    found, rows = with_rows("cuda", 2, 16, **how)
    assert rows <= 16
    for ours, wanted in zip(found, results("cpu", 2, 16, **how), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)  # float32 sums in other orders


def test_in_autocast(cuda: Any) -> None:
    """Beside all rows at once: gradients are sums of the same products, in another order."""
    found, rows = with_rows("cuda", 2, 24, genesis.bfloat16)
    assert rows <= 24
    config.loss_chunk_bytes = 0
    for ours, wanted in zip(found, results("cuda", 2, 24, genesis.bfloat16), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=2 ** -7, atol=2 ** -8 * np.abs(wanted).max())


def test_every_number_of_rows(cuda: Any) -> None:
    for batch, time in ((5, 8), (3, 7), (4, 11)):
        found, rows = with_rows("cuda", batch, time)
        assert rows <= 16 + 8  # the last chunk has what is left
        for ours, wanted in zip(found, results("cpu", batch, time), strict=True):
            np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)
