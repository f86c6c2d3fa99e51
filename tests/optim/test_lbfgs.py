"""LBFGS takes torch's steps: equal losses after equal numbers of evaluations, with its line search and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import genesis
from tests.sweeping import each_value

FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], list[float]]] = {
    "a curved valley": (lambda T, w: (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2, [-1.2, 1.0]),
    "a valley from afar": (lambda T, w: (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2, [3.0, -4.0]),
    "waves": (lambda T, w: (w.sin() * 3).sum() + 0.05 * (w * w).sum(), [2.0, -1.0, 5.0]),
    "a bowl that is wide": (lambda T, w: 1e-3 * (w - 40).square().sum() + (w[0] * w[1]).tanh(), [0.0, 1.0]),
    "quartic": (lambda T, w: (w ** 4 - 16 * w ** 2 + 5 * w).sum(), [0.3, -0.1]),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "line search": {"line_search_fn": "strong_wolfe", "max_iter": 10},
    "few evaluations": {"line_search_fn": "strong_wolfe", "max_iter": 8, "max_eval": 6},
    "short memory": {"line_search_fn": "strong_wolfe", "max_iter": 6, "history_size": 2, "lr": 0.5},
    "no line search": {"lr": 0.05, "max_iter": 5},
}


def run(T: Any, function: Callable[[Any, Any], Any], start: list[float], options: dict[str, Any]) -> list[float]:
    """The losses of four steps, and how often the function was asked up to each."""
    w = T.tensor(start, dtype=T.float64, requires_grad=True)
    optimizer = T.optim.LBFGS([w], **options)
    found, calls = [], 0

    def closure() -> Any:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = function(T, w)
        loss.backward()
        return loss
    for _ in range(4):
        found += [optimizer.step(closure).item(), float(calls)]
    return [*found, *w.tolist()]


@each_value
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_steps_are_torchs(name: str, options: str) -> None:
    ours, theirs = (run(T, *FUNCTIONS[name], OPTIONS[options]) for T in (genesis, torch))
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)
