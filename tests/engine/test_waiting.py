"""Values that wait while other programs run are computed after a while (`engine/waiting.py`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis
from genesis import engine
from genesis.engine import compilation, waiting


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PROGRAMS", 12)
    monkeypatch.setattr(waiting, "FEW", 8)
    genesis.eval()
    engine.reset()


def kept_losses(lib: Any, turns: int) -> tuple[Any, float]:
    """A list of losses with their graphs, beside a counter that is read at each turn."""
    w, x, losses, seen = lib.full((4,), 0.3, requires_grad=True), lib.linspace(0, 1, 4), [], 0.0
    counter = lib.zeros(())
    for i in range(turns):
        losses.append((w * x * (i % 3 + 1)).tanh().sum())
        counter += 1
        seen += counter.item()
    return losses, seen


def best_of(lib: Any, turns: int) -> tuple[Any, float]:
    """A best loss that is not read, in a training loop."""
    w, best = lib.full((4,), 0.5, requires_grad=True), lib.full((), 1e9)
    step = lib.optim.SGD([w], lr=0.1)
    for i in range(turns):
        step.zero_grad()
        loss = (w * (i % 3) - 1).square().sum()
        loss.backward()
        step.step()
        best = lib.minimum(best, loss.detach())
    return [best], 0.0


def total_of_inputs(lib: Any, turns: int) -> tuple[Any, float]:
    """A total of what a training loop's losses are made of, too, that is not read."""
    w, total, data = lib.full((4,), 0.5, requires_grad=True), lib.zeros(4), lib.linspace(0, 1, 4)
    step = lib.optim.SGD([w], lr=0.1)
    for i in range(turns):
        step.zero_grad()
        x = (data * (i * 0.1 + 1)).tanh()
        total = total * 0.5 + x
        (w * x - 1).square().sum().backward()
        step.step()
    return [total, w.detach()], 0.0


@pytest.mark.parametrize("program", [kept_losses, best_of])
def test_what_has_waited_is_computed(program: Any, plans: list[Any]) -> None:
    (found, seen), (expected, theirs) = program(genesis, 60), program(torch, 60)
    waits = sum(not x.storage.settled for x in found)
    assert waits <= 24, "those of two looks"
    made = len(plans)
    assert [x.item() for x in found] == pytest.approx([x.item() for x in expected], rel=1e-5) and seen == theirs
    assert made <= 8
    assert max(len(compiled.graph.nodes) for compiled in plans) < 160


def test_gradients_of_what_has_waited() -> None:
    gradients = []
    for lib in (genesis, torch):
        losses, _ = kept_losses(lib, 50)
        w = lib.full((4,), 0.3, requires_grad=True)
        (lib.stack(losses).sum() * w.sum()).backward()
        gradients.append(w.grad.tolist())
    assert gradients[0] == pytest.approx(gradients[1], rel=1e-5)


def test_a_few_values_go_on_waiting() -> None:
    x, counter = genesis.ones(3), genesis.zeros(())
    y = x * 2 + 1
    for _ in range(50):
        counter += 1
        counter.item()
    assert not y.storage.settled and y.tolist() == [3.0] * 3


@pytest.mark.parametrize("stepped", [False, True])
def test_an_error_of_what_waits_is_told_by_itself_alone(stepped: bool) -> None:
    """Whatever else runs, or is stepped, goes on without it."""
    table, wrong = genesis.ones(4), genesis.tensor([7])
    lost = genesis.take(table, wrong)
    for _ in range(20):
        lost = lost * 2
    w = genesis.ones(3, requires_grad=True)
    step = genesis.optim.SGD([w], lr=1.0)
    counter = genesis.zeros(())
    for _ in range(50):
        if stepped:
            step.zero_grad()
            w.sum().backward()
            step.step()
        else:
            counter += 1
            counter.item()
    assert not lost.storage.settled
    assert (w.tolist() == [-49.0] * 3) if stepped else (counter.item() == 50)
    with pytest.raises(IndexError):
        lost.tolist()


@pytest.mark.parametrize("program", [best_of, total_of_inputs])
def test_a_step_has_memory_where_what_waits_has_none(monkeypatch: pytest.MonkeyPatch, program: Any) -> None:
    """Also where both are made of one value, so that neither is a part of the program that could be left out."""
    plain, refused = compilation.Compiled.start, []

    def start(self: Any, *args: Any) -> Any:
        if len(self.plan.steps) > 24:
            refused.append(self)
            raise MemoryError("no room")
        return plain(self, *args)
    monkeypatch.setattr(compilation.Compiled, "start", start)
    found, _ = program(genesis, 50)
    assert len(refused) >= 2
    monkeypatch.undo()
    for x, expected in zip(found, program(torch, 50)[0], strict=True):
        assert x.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
