"""LBFGS takes torch's steps: equal losses after equal numbers of evaluations, with its line search and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import genesis
from genesis.engine.state import engine_state
from genesis.optim import lbfgs
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


@pytest.mark.parametrize("most", [1, 2, 3, 5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_search_ends_where_the_steps_evaluations_do(name: str, most: int) -> None:
    """What was evaluated before the search counts: the first loss of the step, and the searches of its iterations."""
    for rate in (0.01, 100.0):  # searches that have to go far, forth or back
        options = {"line_search_fn": "strong_wolfe", "max_iter": 8, "max_eval": most, "lr": rate}
        ours, theirs = (run(T, *FUNCTIONS[name], options) for T in (genesis, torch))
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)


def _from_a_flat_place(T: Any) -> list[float]:
    """A step whose slope is within the tolerance, though the gradient is not; then steps down another function."""
    w = T.tensor([1.0, -2.0], dtype=T.float64, requires_grad=True)
    optimizer, slope = T.optim.LBFGS([w], max_iter=3), 1e-5

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (slope * w).sum() + (0 if slope < 1e-3 else w.square().sum())
        loss.backward()
        return loss
    losses = [optimizer.step(closure).item()]
    slope = 0.5
    return [*losses, *(optimizer.step(closure).item() for _ in range(3)), *w.tolist()]


def test_a_step_behind_one_that_ended_before_it_moved() -> None:
    assert _from_a_flat_place(genesis) == pytest.approx(_from_a_flat_place(torch), rel=1e-9)


def test_an_iteration_reads_what_it_looks_at_together() -> None:
    """The loss, the steepest element and products with the last move; then the slope and the direction's reach."""
    w = genesis.tensor([3.0, -4.0, 1.0], requires_grad=True)
    optimizer = genesis.optim.LBFGS([w], lr=0.1, max_iter=10, history_size=lbfgs.PIECE - 1)  # longer: more programs
    calls = 0

    def closure() -> genesis.Tensor:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = (w ** 4 - 3 * w).sum()
        loss.backward()
        return loss
    optimizer.step(closure)
    before, calls = engine_state.ran, 0
    optimizer.step(closure)
    assert calls == 10 and engine_state.ran - before <= 2 * calls + 2


def test_a_line_search_runs_a_program_for_each_evaluation_and_one_for_each_direction() -> None:
    """What is asked of the length that is taken was computed with its loss."""
    w = genesis.tensor([0.3, -0.1, 2.0], dtype=genesis.float64, requires_grad=True)
    optimizer = genesis.optim.LBFGS([w], line_search_fn="strong_wolfe", max_iter=4, tolerance_change=0)
    calls = 0

    def closure() -> Any:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = (w ** 4 - 3 * w).sum()
        loss.backward()
        return loss
    optimizer.step(closure)
    before, calls = engine_state.ran, 0
    iterations = optimizer.state[w]["n_iter"]
    optimizer.step(closure)
    iterations = optimizer.state[w]["n_iter"] - iterations
    assert iterations == 4 and engine_state.ran - before <= calls + iterations + 2


def test_a_history_that_grows_is_gone_through_by_programs_that_come_again(
        plans: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind two pieces and a rest of each length nothing is compiled any more; the losses are torch's."""
    def losses(lib: Any) -> list[float]:
        w = lib.tensor([0.5 * i - 3 for i in range(12)], dtype=lib.float64, requires_grad=True)
        optimizer = lib.optim.LBFGS([w], lr=0.02, max_iter=5, tolerance_change=0)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = (w ** 4 - 3 * w).sum() + (w[1:] * w[:-1]).sum().cos()
            loss.backward()
            return loss
        found = []
        for _ in range(5):
            found.append(optimizer.step(closure).item())
            compiled.append(len(plans))
        return found
    compiled: list[int] = []
    monkeypatch.setattr(lbfgs, "PIECE", 3)
    assert losses(genesis) == pytest.approx(losses(torch), rel=1e-9)
    assert compiled[2] == compiled[4], "of 25 pairs the last ten"
