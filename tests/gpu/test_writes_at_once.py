"""From the first launch that overwrites memory to the last storage that is told of it no line of Python runs, in which
a signal's exception could part them. A GPU that is pretended is a machine of lines, which do not count."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genesis
from genesis.engine import running
from genesis.frontend import at_once
from genesis.runtime import fake_cuda, shadow_weights

from .compare import numbers

MACHINE = str(Path(fake_cuda.__file__).parent)


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """For each loop of writes that the engine makes, the functions of Python that it called."""
    found: list[list[str]] = []

    def looked_at(loop: Any) -> None:
        own, calls = sys._getframe(), list[str]()

        def enters(frame: Any, event: str, argument: Any) -> None:
            if frame.f_back is own and not frame.f_code.co_filename.startswith(MACHINE):
                calls.append(frame.f_code.co_qualname)
        found.append(calls)
        sys.settrace(enters)
        at_once.at_once(loop)
        sys.settrace(None)
    monkeypatch.setattr(running, "at_once", looked_at)
    return found


def training(compiled: bool) -> Callable[[], Any]:
    model = genesis.nn.Sequential(genesis.nn.Linear(8, 16), genesis.nn.GELU(), genesis.nn.Linear(16, 4)).to("cuda")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-2)
    x = genesis.tensor(numbers(5, 8), device="cuda")

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return genesis.compile(step) if compiled else step


@pytest.mark.parametrize("compiled", [True, False])
def test_of_a_training_step(cuda, entered, compiled):
    step = training(compiled)
    losses = [step().item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert len(entered) >= 4 and not any(entered)


def test_of_a_few_launches(cuda, entered):
    x = genesis.tensor(numbers(6, 6), device="cuda")
    for _ in range(3):
        x.mul_(2).add_(x.sum())
        genesis.eval(x)
    assert len(entered) == 3 and not any(entered)


def test_beside_a_second_stream(cuda, entered):
    """What others wait for is noted among the writes."""
    x, stream = genesis.tensor(numbers(6, 6), device="cuda"), genesis.cuda.Stream()
    with genesis.cuda.stream(stream):
        for _ in range(3):
            x.mul_(2)
            genesis.eval(x)
    x.add_(1)
    np.testing.assert_allclose(x.cpu().numpy(), numbers(6, 6) * 8 + 1, rtol=1e-6)
    assert len(entered) >= 4 and not any(entered)


def test_of_a_step_with_shadow_weights(cuda, entered):
    """That the copies in bfloat16 show their weights is told among the writes."""
    model = genesis.nn.Linear(16, 16).to("cuda")
    optimizer = genesis.optim.SGD(model.parameters(), lr=1e-2)
    x = genesis.tensor(numbers(8, 16), device="cuda")

    @genesis.compile
    def step() -> Any:
        optimizer.zero_grad()
        with genesis.autocast("cuda", genesis.bfloat16):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    losses = [step().item() for _ in range(4)]
    assert losses[-1] < losses[0]
    assert len(entered) >= 4 and not any(entered)
    assert shadow_weights.copies
