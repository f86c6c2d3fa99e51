"""Situations of flushes (`engine/situations.py`): who is alive is asked each time, what follows from it once."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import genesis
from genesis.engine import preparation
from genesis.engine.state import engine_state


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows where a flush asks anew what backwards need of what it overwrites. Programs of earlier tests
    and what these left for the collector are gone."""
    engine_state.plans.programs.clear()
    gc.collect()
    asked: list[int] = []
    plain = preparation.needed_by_backwards

    def noted(updates: Any, *rest: Any) -> Any:
        asked.append(len(updates))
        return plain(updates, *rest)
    monkeypatch.setattr(preparation, "needed_by_backwards", noted)
    return asked


def weight(lib: Any) -> Any:
    return lib.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)


def step(lib: Any, w: Any, optimizer: Any) -> Any:
    """A step whose logits outlive it."""
    logits = (lib.ones(3, 2) @ w).tanh()
    loss = (logits * logits).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return logits


def test_a_step_that_comes_again_is_not_prepared_again(prepared: list[int]) -> None:
    w = weight(genesis)
    optimizer = genesis.optim.SGD([w], lr=0.1)
    for _ in range(3):
        step(genesis, w, optimizer)
    before = len(prepared)
    for _ in range(5):
        step(genesis, w, optimizer)
    assert len(prepared) == before


def test_who_is_alive_is_part_of_the_situation(prepared: list[int]) -> None:
    """Logits that are dropped, held, and held with what they were made of, in turns."""
    found = []
    for lib in (torch, genesis):
        w = weight(lib)
        optimizer = lib.optim.SGD([w], lr=0.1)
        kept: list[Any] = []
        for turn in range(9):
            hidden = lib.ones(3, 2) @ w
            logits = hidden.tanh()
            loss = (logits * logits).sum()
            optimizer.zero_grad()
            loss.backward()
            if turn % 3 == 0:
                del hidden, logits
            elif turn % 3 == 1:
                kept.append(logits)
                del hidden
            optimizer.step()
            kept.append(loss)
            if turn % 3 == 2:
                kept += [hidden, logits]
        found.append([x.detach().numpy().tolist() for x in (*kept, w)])
    assert _close(*found)
    assert len([n for n in prepared if n]) <= 6, "each of three situations twice, the first with new gradients"


def _close(a: list[Any], b: list[Any]) -> bool:
    return all(torch.allclose(torch.tensor(x), torch.tensor(y)) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("retain", [False, True])
def test_a_graph_that_was_let_go_of_is_another_situation(retain: bool) -> None:
    """The same program, once with a backward that keeps its graph: its gradients can be asked for after the step."""
    found = []
    for lib in (torch, genesis):
        w = weight(lib)
        optimizer = lib.optim.SGD([w], lr=0.1)
        for turn in range(4):
            loss = (lib.ones(3, 2) @ w).tanh().sum()
            optimizer.zero_grad()
            loss.backward(retain_graph=retain or turn < 2)
            optimizer.step()
            found.append(loss.item())
            if retain or turn < 2:
                optimizer.zero_grad()
                loss.backward()
                found.append(w.grad.tolist())
    half = len(found) // 2
    assert _close(found[:half], found[half:])


def test_a_value_of_before_that_can_be_differentiated_has_a_say() -> None:
    """The program of the step is the same; a loss that was read before it needs the old weight, or not."""
    w = genesis.full((2000,), 0.5, requires_grad=True)
    optimizer = genesis.optim.SGD([w], lr=0.1)
    old: list[Any] = []
    for turn in range(6):
        if turn >= 4:
            value = (w.detach().clone(), (w * 3).exp().sum())
            value[1].item()
            old.append(value)
        optimizer.zero_grad()
        (w * 2).sum().backward()
        optimizer.step()
        w.tolist()
    for was, loss in old:
        optimizer.zero_grad()
        loss.backward()
        expected = 3 * (was * 3).exp()
        assert (w.grad - expected).abs().max().item() < 1e-5 * expected.max().item()


def test_a_plan_that_was_forgotten_is_made_again() -> None:
    w = weight(genesis)
    optimizer = genesis.optim.SGD([w], lr=0.1)
    for _ in range(3):
        step(genesis, w, optimizer)
    engine_state.plans.programs.clear()
    step(genesis, w, optimizer)
    peer = weight(torch)
    other = torch.optim.SGD([peer], lr=0.1)
    for _ in range(4):
        step(torch, peer, other)
    assert torch.allclose(torch.tensor(w.tolist()), peer.detach())


def read_step(x: Any, w: Any, optimizer: Any, *, read: bool = True, hold: bool = False) -> list[Any]:
    """A step of which a value is read that its loss is made of, as checks of distributions read theirs; what outlives
    it, unread, is returned."""
    hidden = (x @ w).tanh()
    if read:
        assert bool((hidden.detach() <= 1).all())
    logits = hidden * 2
    aside = (hidden.detach() * 3).sum()  # of the value, without its history
    loss = (logits * hidden).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return [aside, *([logits, hidden] if hold else [])]


def test_a_step_whose_forward_was_read_is_not_prepared_again(prepared: list[int]) -> None:
    x, w = genesis.tensor([[1.0, 2.0], [0.5, -1.0]]), weight(genesis)
    optimizer = genesis.optim.SGD([w], lr=0.1)
    kept = [read_step(x, w, optimizer) for _ in range(4)]
    before = len([n for n in prepared if n])
    kept += [read_step(x, w, optimizer) for _ in range(5)]
    assert len([n for n in prepared if n]) == before


def test_what_is_held_of_a_step_that_was_read_is_part_of_the_situation(prepared: list[int]) -> None:
    """The same step with and without reads, and with values that outlive it, in turns."""
    found = []
    for lib in (torch, genesis):
        x = lib.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=lib.float64)
        w = weight(lib).detach().double().requires_grad_()
        optimizer = lib.optim.SGD([w], lr=0.1)
        kept: list[Any] = []
        for turn in range(16):
            kept += read_step(x, w, optimizer, read=turn % 2 == 0, hold=turn % 4 > 1)
        found.append([x.detach().numpy().tolist() for x in (*kept, w)])
    assert _close(*found)
    assert len([n for n in prepared if n]) <= 8, "four situations, each twice: the first has new gradients"


def test_a_backward_after_a_step_that_was_remembered() -> None:
    """A value that was read before the step is differentiated after it, in one turn of several alike."""
    w = genesis.full((2000,), 0.5, requires_grad=True)
    optimizer = genesis.optim.SGD([w], lr=0.1)
    for turn in range(6):
        was = w.detach().clone()
        value = (w * 3).exp()
        value.sum().item()
        other = (value * 2).sum()
        optimizer.zero_grad()
        (w * 2 + value * 0).sum().backward(retain_graph=True)
        optimizer.step()
        if turn > 3:
            optimizer.zero_grad()
            other.backward()
            expected = 6 * (was * 3).exp()
            assert w.grad is not None
            assert (w.grad - expected).abs().max().item() < 1e-5 * expected.max().item()


def test_values_that_a_read_saves_are_saved_again(prepared: list[int]) -> None:
    """A read beside which something is written keeps what its backward needs as long as backwards come, and again when
    they come again."""
    losses = []
    for lib in (torch, genesis):
        w, seen = weight(lib), lib.zeros(3)
        optimizer = lib.optim.SGD([w], lr=0.1)
        found = []
        for turn in range(24):
            seen += 1
            hidden = (lib.ones(3, 2) @ w).tanh().exp()
            found.append(hidden.sum().item())
            if turn < 8 or turn >= 16:
                optimizer.zero_grad()
                (hidden * hidden).sum().backward()
                optimizer.step()
        losses.append([*found, *seen.tolist()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert len([n for n in prepared if n]) <= 8


def test_logits_that_outlive_a_step_by_hand_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are larger than each leaf, and smaller than all that the step overwrites one by one: copies of these would
    take more, and each flush would go through all that they are computed from."""
    asked: list[tuple[int, int]] = []
    plain = preparation._still_needed

    def noted(computed_here: Any, updates: Any, rest_of: Any, content: Any) -> Any:
        kept, copied = plain(computed_here, updates, rest_of, content)
        asked.append((len(rest_of), len(copied)))
        return kept, copied
    monkeypatch.setattr(preparation, "_still_needed", noted)
    results = []
    for lib in (torch, genesis):
        values = torch.linspace(-1, 1, 900).view(30, 30).tolist()
        leaves = [lib.tensor(values, requires_grad=True) for _ in range(6)]
        genesis.eval(*[w for w in leaves if lib is genesis])
        x = lib.ones(60, 30)
        logits = x
        for w in leaves:
            logits = (logits @ w).tanh()
        loss = (logits * logits).sum()
        loss.backward()
        with lib.no_grad():
            for w in leaves:
                w.add_(w.grad, alpha=-1e-3 * max(1.0, w.norm().item()))
        results.append([loss.item(), logits.tolist(), [w.tolist() for w in leaves]])
    assert asked and not any(copied for _, copied in asked)
    assert sum(alive for alive, _ in asked[2:]) == 0, asked
    torch.testing.assert_close(*[torch.tensor(found[1]) for found in results])
    torch.testing.assert_close(*[torch.tensor(found[2]) for found in results])
