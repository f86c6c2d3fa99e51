"""Values that a loop carries on without gradients are computed with what it reads: no step is computed again."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis
from genesis.engine import preparation

STEPS = 24


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of nodes of the programs that are captured."""
    found: list[int] = []
    plain = preparation.capture

    def noted(outputs: Any, overwritten: Any, contents: Any, snapshots: Any, before: Any) -> Any:
        found.append(len(before[1]))
        return plain(outputs, overwritten, contents, snapshots, before)
    monkeypatch.setattr(preparation, "capture", noted)
    return found


def descend(T: Any) -> list[float]:
    """A training loop of `func.grad`, which makes new parameters at each step and reads the loss."""
    x = T.arange(12.0).view(4, 3) / 7
    w = {"a": T.ones(3, 5) / 3, "b": T.ones(5, 2) / 5}

    def loss(w: Any) -> Any:
        return ((x @ w["a"]).tanh() @ w["b"] - x[:, :2]).square().mean()
    losses = []
    for _ in range(STEPS):
        grads, value = T.func.grad_and_value(loss)(w)
        w = {name: p - 0.1 * grads[name] for name, p in w.items()}
        losses.append(value.item())
    return losses


def filter_signal(T: Any) -> list[float]:
    """A state that moves on before a statistic of what it was is read."""
    state, found = T.ones(40), []
    for i in range(STEPS):
        for _ in range(9):
            state = (state * 0.9).sin() + 0.1 * i
        statistic = (state - state.mean()).norm()
        state = state.roll(1) * 0.99
        found.append(statistic.item())
    return found


@pytest.mark.parametrize("run", [descend, filter_signal])
def test_programs_of_a_loop_do_not_grow(run: Any, sizes: list[int]) -> None:
    assert run(genesis) == pytest.approx(run(torch), rel=1e-5)
    assert max(sizes[-4:]) <= max(sizes[:8]) and max(sizes) < 200


def test_a_value_with_gradients_stays_pending(sizes: list[int]) -> None:
    w = genesis.ones(8, requires_grad=True)
    deep = w
    for _ in range(40):
        deep = (deep * 0.9).sin()
    later = deep * 2
    (deep.detach() + 1).sum().item()
    assert not later.storage.settled
    later.sum().backward()
    assert w.grad is not None and bool(w.grad.isfinite().all())


def test_a_value_of_a_small_program_stays_pending() -> None:
    x = genesis.ones(8) * 3
    later = x.exp() + 1
    assert x.sum().item() == 24
    assert not later.storage.settled
