"""Graphs of values that are still held (`engine/old_graphs.py`): which memories they may show."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

import genesis
from genesis.engine import old_graphs, overwritten_leaves, preparation
from genesis.frontend import pending
from genesis.frontend.state import state
from genesis.ir.node import Node, forget_equal
from genesis.ir.verify import VerifyError


def computed_loss(w: Any) -> Any:
    loss = (w * w).tanh().sum()
    loss.item()
    return loss


def test_a_value_shows_the_memory_that_it_was_computed_from():
    w, other = genesis.ones(3, requires_grad=True), genesis.ones(3)
    genesis.eval(w, other)
    loss = computed_loss(w)
    cells = {id(w.storage.cell): w.storage}
    others = {id(other.storage.cell): other.storage}
    node = loss.storage.node
    assert [old_graphs.may_show(node, cells) for _ in range(3)] == [True, True, True]
    assert [old_graphs.may_show(node, others) for _ in range(2)] == [False, False]


def test_what_is_asked_for_the_first_time_may_show_anything():
    loss = computed_loss(genesis.ones(3, requires_grad=True))
    assert old_graphs.may_show(loss.storage.node, {})
    assert not old_graphs.may_show(loss.storage.node, {})


def test_a_large_graph_is_not_listed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(old_graphs, "MOST_NODES", 2)
    loss = computed_loss(genesis.ones(3, requires_grad=True))
    assert [old_graphs.may_show(loss.storage.node, {}) for _ in range(3)] == [True, True, True]


def test_losses_of_former_steps_are_not_walked_again(monkeypatch: pytest.MonkeyPatch):
    """As a list of losses that went through no backward holds them."""
    asked: list[list[Node]] = []
    plain = overwritten_leaves.leaves_to_copy

    def noted(contents: Any, *rest: Any) -> Any:
        asked.append(list(contents))
        return plain(asked[-1], *rest)
    monkeypatch.setattr(preparation, "leaves_to_copy", noted)
    w = genesis.ones(2000, requires_grad=True)
    optimizer = genesis.optim.SGD([w], lr=0.1)
    held = []
    for _ in range(6):
        held.append(computed_loss(w))
        (w * 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        w.tolist()
    assert max(map(len, asked[3:])) <= 2


def test_a_value_of_a_former_step_is_still_differentiated_when_what_it_reads_is_written_to():
    """The list is asked for the memories of its nodes, which a later flush may have given them."""
    w = genesis.full((2000,), 2.0, requires_grad=True)
    buffer = genesis.ones(2000)
    genesis.eval(w, buffer)
    loss = (w * (buffer + 1)).sum()
    loss.item()
    for _ in range(3):
        with genesis.no_grad():
            genesis.ones(2).add_(1).tolist()
    with genesis.no_grad():
        buffer.mul_(5)
        buffer.tolist()
    loss.backward()
    assert w.grad.tolist() == [2.0] * 2000


def carried(lib: Any, turns: int) -> tuple[Any, Any]:
    """A recurrence that writes what it found to its data, and reads of it, at each turn."""
    w, data, h = lib.full((9, 8), 0.1, requires_grad=True), lib.ones(turns + 1, 8), lib.zeros(8, 8)
    found = []
    for t in range(turns):
        h = lib.tanh(lib.cat([data[t][:, None], h], 1) @ w)
        found.append(h.mean(1))
        data[t + 1] = found[-1].detach()
        data[t].sum().item()
    return lib.stack(found), w


def written(lib: Any, turns: int) -> tuple[Any, Any]:
    """Results that are written to one tensor, with their gradients, and a value of each turn that is read."""
    w, out, h = lib.full((8, 8), 0.1, requires_grad=True), lib.zeros(turns, 4, 8), lib.ones(4, 8)
    for t in range(turns):
        h = lib.tanh(h @ w) + 0.5
        out[t] = h
        h.sum().item()
    return out, w


def counted(lib: Any, turns: int) -> tuple[Any, Any]:
    """Running statistics of what gradients flow through."""
    w, seen, h = lib.full((8, 8), 0.1, requires_grad=True), lib.zeros(4, 8), lib.ones(4, 8)
    losses = []
    for _ in range(turns):
        h = lib.tanh(h @ w) * seen.sigmoid() + 0.5
        losses.append(h.square().mean())
        with lib.no_grad():
            seen += h
        seen.sum().item()
    return lib.stack(losses), w


@pytest.mark.parametrize("program", [carried, written, counted])
def test_a_loop_that_overwrites_what_it_reads_has_torchs_gradients(program: Any) -> None:
    found = []
    for lib in (torch, genesis):
        values, w = program(lib, 12)
        values.sum().backward()
        found.append((values.detach().tolist(), w.grad.tolist()))
    (values, gradient), (ours, our_gradient) = found
    assert_close(ours, values, rtol=1e-6)
    assert_close(our_gradient, gradient, rtol=1e-5)  # the order in which the turns' gradients are summed is ours


def assert_close(found: list[Any], expected: list[Any], rtol: float) -> None:
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=rtol, atol=0)


@pytest.mark.parametrize("program", [carried, written])
def test_turns_of_a_loop_are_walked_once_while_its_history_grows(program: Any,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """What is overwritten was written by the turn before: nothing older can read it."""
    asked: list[Node] = []
    plain = overwritten_leaves._step

    def noted(node: Node) -> Any:
        asked.append(node)
        return plain(node)
    monkeypatch.setattr(overwritten_leaves, "_step", noted)
    looked = []
    for turns in (20, 40):
        asked.clear()
        program(genesis, turns)
        looked.append(len(asked))
    assert 0 < looked[1] <= 2.2 * looked[0]


def logged(lib: Any, turns: int) -> tuple[Any, Any]:
    """Running statistics of a training loop, which wait until they are read: their graphs grow at each step."""
    w = lib.full((4,), 0.5, requires_grad=True)
    step = lib.optim.SGD([w], lr=0.1, momentum=0.9)
    running, best = 0.0, lib.full((), 1e9)
    for i in range(turns):
        step.zero_grad()
        loss = (w * (i % 3) - 1).square().sum()
        loss.backward()
        step.step()
        running = running * 0.9 + loss.detach() * 0.1
        best = lib.minimum(best, loss.detach())
    return running, best


def test_statistics_that_wait_are_not_walked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they are made of is older than all that a step computes, or overwrites: but for those of the last step."""
    sizes: list[int] = []
    plain = old_graphs.walk_since

    def noted(*args: Any, **named: Any) -> Any:
        found = plain(*args, **named)
        sizes.append(len(found))
        return found
    monkeypatch.setattr(old_graphs, "walk_since", noted)
    monkeypatch.setattr(preparation, "walk_since", noted)
    waiting = logged(genesis, 60)
    assert len(sizes) > 40 and max(sizes[20:]) <= 2 * max(sizes[:10])
    assert [x.item() for x in waiting] == pytest.approx([x.item() for x in logged(torch, 60)], rel=1e-5)


def test_a_statistic_of_what_a_step_overwrites_is_computed_before() -> None:
    """It waits among others that have nothing to do with the step."""
    def program(lib: Any) -> list[Any]:
        w = lib.full((3,), 2.0, requires_grad=True)
        step, norm, found = lib.optim.SGD([w], lr=0.5, momentum=0.5), lib.zeros(()), []
        for i in range(6):
            step.zero_grad()
            (w * w).sum().backward()
            if i % 2:
                norm = norm * 0.5 + w.detach().square().sum()
            step.step()
            found.append(norm)
        return [x.item() for x in found]
    assert program(genesis) == pytest.approx(program(torch), rel=1e-6)


def test_values_of_former_turns_are_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that keeps a value of each turn: a flush asks for those that are new."""
    asked = [0]
    plain = pending._notes

    def noted(since: int) -> Any:
        found = plain(since)
        asked[0] += len(found)
        return found
    monkeypatch.setattr(pending, "_notes", noted)
    looked = []
    for turns in (100, 200):
        asked[0] = 0
        carried(genesis, turns)
        looked.append(asked[0])
    assert 0 < looked[1] <= 2.5 * looked[0]


def test_histories_of_older_values_are_let_go_of_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values whose last tensor with a history dies many turns after they were computed."""
    monkeypatch.setattr(pending, "LOOKED", 4)
    genesis.eval()
    x, counter = genesis.full((3,), 0.5, requires_grad=True), genesis.zeros(2)
    losses, detached = [], []
    for _ in range(40):
        losses.append((x * 2).exp().sum())
        losses[-1].item()
        detached.append(losses[-1].detach())

    def count(times: int) -> None:
        for _ in range(times):
            counter.add_(1)
            counter.tolist()
    count(2)  # from then on it is known that what is overwritten is younger
    assert all(loss.storage.needs_grad for loss in losses)
    del losses[:30]
    count(len(detached) + 8)
    assert [x.storage.needs_grad for x in detached] == [False] * 30 + [True] * 10


def test_whether_any_value_may_be_differentiated() -> None:
    pending.live_differentiable()
    before = pending.any_differentiable()
    held = [computed_loss(genesis.ones(3, requires_grad=True)) for _ in range(5)]
    assert pending.any_differentiable()
    count = len(state.differentiable)
    del held
    assert pending.any_differentiable() == before and len(state.differentiable) <= count - 5


@pytest.mark.parametrize("program", [carried, written, counted, logged])
def test_ages_of_nodes_are_verified(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENESIS_VERIFY", "1")
    looked = []
    plain = old_graphs.verify_ages
    monkeypatch.setattr(old_graphs, "verify_ages", lambda *args: looked.append(plain(*args)))
    program(genesis, 6)
    assert len(looked) >= 5


@pytest.mark.parametrize("verify", ["1", "0"])
def test_what_is_wrong_about_ages_is_told(verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENESIS_VERIFY", verify)
    x, y = genesis.ones(3), genesis.zeros(3)
    genesis.eval(x, y)
    old = (x + 2).storage.node
    young = (y + 1).storage.node
    x.storage.cell.since = old.inputs[0].number + 1  # the leaf that the sum reads is older than that
    told = contextlib.nullcontext() if verify == "0" else pytest.raises(VerifyError, match="younger values only")
    with told:
        old_graphs.verify_ages([old], [x.storage])
    x.storage.cell.since = 0
    forget_equal([old])
    before, old.inputs = old.inputs, (young, old.inputs[1])
    told = contextlib.nullcontext() if verify == "0" else pytest.raises(VerifyError, match="no younger than")
    with told:
        old_graphs.verify_ages([old], [x.storage])
    old.inputs = before


def test_many_values_of_one_graph_are_asked_about_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A roll-out whose states are all held: each node below them is looked at once, not once for each state."""
    w = genesis.tensor([[0.5, -0.25], [0.125, 0.75]], requires_grad=True)
    other = genesis.ones(2, 2)
    genesis.eval(w, other)
    states = [genesis.ones(3, 2)]
    for _ in range(20):
        states.append((states[-1] @ w).tanh())
    nodes = [state.storage.node for state in states[1:]]
    listed: list[Node] = []
    monkeypatch.setattr(old_graphs, "_below", lambda root: listed.append(root) or ())
    for _ in range(3):
        assert old_graphs.that_may_show(nodes, {id(w.storage.cell): w.storage}, 0) == nodes
        assert old_graphs.that_may_show(nodes, {id(other.storage.cell): other.storage}, 0, listed=True) == []
    assert not listed
