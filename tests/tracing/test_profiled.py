"""Programs under a profiler: it goes on behind a call that was captured, and the call is captured all the same."""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable
from typing import Any

import pytest

import genesis
from genesis import nn, optim


def told() -> None:
    """A function to count the calls of."""


def scheduled_step() -> Callable[[], Any]:
    """A step of training that ends with its schedule's, which replays do again in Python."""
    genesis.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    @genesis.compile
    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        return loss
    x = genesis.ones(2, 3)

    def run() -> list[float]:
        losses = []
        for _ in range(4):
            losses.append(step(x).item())
            told()
        assert genesis.explain(step).hits == 3
        return losses
    return run


def refused() -> Callable[[], Any]:
    """A function that is not captured: who follows it gives up in the middle."""
    @genesis.compile
    def printing(x: Any) -> Any:
        y = x + 1
        print(end="")
        return y * 2
    x = genesis.ones(3)

    def run() -> list[list[float]]:
        found = []
        for _ in range(4):
            found.append(printing(x).tolist())
            told()
        return found
    return run


@pytest.mark.parametrize("make", [scheduled_step, refused])
def test_a_profiler_counts_all_calls(make: Callable[[], Callable[[], Any]]) -> None:
    wanted, profile = make()(), cProfile.Profile()
    run = make()
    profile.enable()
    try:
        found = run()
    finally:
        profile.disable()
    assert found == wanted
    counts = {name: calls for (_, _, name), (calls, *_) in pstats.Stats(profile).stats.items()}  # type: ignore[attr-defined]
    assert counts["told"] == 4


def test_a_profile_function_stays() -> None:
    seen = []
    run = scheduled_step()

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code is told.__code__:
            seen.append(event)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
        assert sys.getprofile() is note
    finally:
        sys.setprofile(before)
    assert seen == ["call"] * 4
