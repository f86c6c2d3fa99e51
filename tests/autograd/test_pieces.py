"""A backward through a program whose forward was cut goes piece by piece, and gives eager torch's gradients."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.autograd import pieces
from tests.short_limits import short_limits

NODES, TURNS = 128, 200

limited = short_limits(nodes=NODES, often=8)


def unrolled(lib: Any, turns: int = TURNS, size: int = 3) -> tuple[Any, Any, Any]:
    """A recurrence that reads two leaves each turn, and its last state."""
    w = lib.full((size, size), 0.9 / size, requires_grad=True)
    b = lib.full((size,), 0.1, requires_grad=True)
    h = lib.zeros(2, size)
    for _ in range(turns):
        h = lib.tanh(h @ w + b)
    return w, b, h


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.tolist(), expected.tolist(), rtol=1e-4)  # sums of 200 turns in another order


def test_no_program_of_the_backward_is_longer_than_the_pieces_of_the_forward(plans: list[Any]) -> None:
    w, b, h = unrolled(genesis, 3 * TURNS + 11)
    forward = len(plans)
    h.sum().backward()
    w.grad.tolist()
    steps = [len(compiled.graph.nodes) for compiled in plans]
    assert 1 < len(plans) - forward <= 3
    assert max(steps[forward:]) < 6 * max(steps[:forward])
    expected = unrolled(torch, 3 * TURNS + 11)
    expected[2].sum().backward()
    close(w.grad, expected[0].grad)
    close(b.grad, expected[1].grad)


@pytest.mark.parametrize("over", [0, 3, 5, 6])
def test_the_backward_of_equal_turns_is_one_program_wherever_the_loop_ends(over: int, plans: list[Any]) -> None:
    """Where the last piece has no gradient of a leaf in it, the next is the first to have one."""
    w, _, h = unrolled(genesis, TURNS + over)
    forward = len(plans)
    h.sum().backward()
    w.grad.tolist()
    assert len(plans) - forward <= 3


def test_gradients_that_wait_at_many_ends_are_computed_once(plans: list[Any]) -> None:
    """A piece of the backward gives the gradients of its own ends; those that were there before are no part of it."""
    w, kept = genesis.full((4,), 0.9, requires_grad=True), list[Any]()
    for i in range(3 * TURNS):
        kept.append((w * (i % 3)).sum())
    forward = len(plans)
    genesis.stack(kept).sum().backward()
    w.grad.tolist()
    later = plans[forward:]
    assert len(later) >= 2 and max(len(compiled.plan.outputs) for compiled in later[1:]) < TURNS
    assert w.grad.tolist() == [3.0 * TURNS] * 4  # of 0, 1 and 2


def test_results_of_many_pieces_are_summed() -> None:
    """Every turn's value is alive at the cuts, and has a gradient of its own beside the one of the next turn."""
    def program(lib: Any) -> Any:
        w, h, kept = lib.full((4,), 0.9, requires_grad=True), lib.ones(4), []
        for i in range(TURNS):
            h = lib.sin(h * w) + 0.5
            kept.append((h * (i % 3)).sum())
        sum(kept).backward()
        return w.grad
    close(program(genesis), program(torch))


def test_a_state_that_is_written_in_place() -> None:
    def program(lib: Any) -> Any:
        w, h = lib.full((4,), 0.9, requires_grad=True), lib.ones(4)
        h = h * w
        for _ in range(TURNS):
            h = lib.sin(h * w)
            h.mul_(w).add_(0.5)
        h.sum().backward()
        return w.grad
    close(program(genesis), program(torch))


def test_a_second_backward_adds_to_the_first() -> None:
    def program(lib: Any) -> tuple[Any, ...]:
        w, b, h = unrolled(lib)
        h.sum().backward(retain_graph=True)
        (h * h).sum().backward()
        return w.grad, b.grad
    for found, expected in zip(program(genesis), program(torch), strict=True):
        close(found, expected)


def test_a_root_that_a_cut_has_computed() -> None:
    w, _, h = unrolled(genesis)
    genesis.eval(h)
    h.backward(genesis.ones(2, 3))
    expected = unrolled(torch)
    expected[2].backward(torch.ones(2, 3))
    close(w.grad, expected[0].grad)


def test_gradients_of_one_leaf_are_asked_for() -> None:
    w, b, h = unrolled(genesis)
    (found,) = genesis.autograd.grad(h.sum(), b)
    assert w.grad is None and b.grad is None
    expected = unrolled(torch)
    close(found, torch.autograd.grad(expected[2].sum(), expected[1])[0])


def test_hooks_and_second_derivatives_take_one_program() -> None:
    def hooked(lib: Any) -> tuple[Any, list[int]]:
        w, h, calls = lib.full((4,), 0.9, requires_grad=True), lib.ones(4), []
        for i in range(TURNS):
            h = lib.sin(h * w)
            if i == TURNS // 2:
                h.register_hook(lambda g: (calls.append(1), g * 2)[1])
        h.sum().backward()
        return w.grad, calls

    def second(lib: Any) -> Any:
        w, h = lib.full((4,), 0.9, requires_grad=True), lib.ones(4)
        for _ in range(TURNS):
            h = lib.sin(h * w)
        (first,) = lib.autograd.grad(h.sum(), w, create_graph=True)
        return lib.autograd.grad(first.sum(), w)[0]
    found, expected = hooked(genesis), hooked(torch)
    assert found[1] == expected[1] == [1]
    close(found[0], expected[0])
    close(second(genesis), second(torch))


@pytest.mark.parametrize("turns", [60, 62, 90])
def test_a_gradient_of_a_gradient_through_pieces(turns: int) -> None:
    """The gradient depends on what each piece computed by itself, not only through what the last piece returned."""
    def second(lib: Any) -> Any:
        w, h = lib.full((4,), 0.9, requires_grad=True), lib.ones(4)
        for _ in range(turns):
            h = lib.sin(h * w)
        (first,) = lib.autograd.grad(h.sum(), w, create_graph=True)
        return lib.autograd.grad(first.sum(), w)[0]
    close(second(genesis), second(torch))


def test_an_overwritten_leaf_is_an_error_and_gives_no_gradient() -> None:
    w, b, h = unrolled(genesis, size=40)  # a few bytes would be copied before they are overwritten
    with genesis.no_grad():
        w.mul_(2)
    genesis.eval(w)
    with pytest.raises(RuntimeError):
        h.sum().backward()
        b.grad.tolist()


def test_a_loop_over_detached_losses_lets_go_of_its_batches() -> None:
    w, losses, batches = genesis.ones(64, requires_grad=True), [], []
    for i in range(4 * NODES):
        x = genesis.tensor(np.full(64, i % 3, np.float32))
        batches.append(weakref.ref(x.storage.cell.memory))
        losses.append((x * w).exp().mean().detach())
    gc.collect()
    assert sum(batch() is not None for batch in batches) <= NODES
    assert float(sum(losses)) == pytest.approx(sum(float(np.exp(i % 3)) for i in range(4 * NODES)), rel=1e-4)


@pytest.mark.parametrize("kept", [lambda y: y.detach(), lambda y: y.detach()[:1], lambda y: y.detach().requires_grad_(),
                                  lambda y: y.data.view(2, 1)])
def test_what_was_detached_keeps_no_history(kept: Any) -> None:
    w, x = genesis.ones(2, requires_grad=True), genesis.ones(2) * 3
    genesis.eval(x)
    memory = weakref.ref(x.storage.cell.memory)
    y = (x * w).exp()
    y.tolist()
    held = kept(y)
    del x, y
    genesis.eval(genesis.ones(2) * 2)
    (genesis.ones(3) + 1).cos().sum().tolist()
    genesis.eval(held, held * 2)
    gc.collect()
    assert memory() is None and held.detach().view(-1)[0].item() == pytest.approx(float(np.exp(3)))


@pytest.mark.parametrize("other", [lambda y: y, lambda y: y[:1], lambda y: y.view(2, 1)])
def test_a_view_with_history_keeps_it_beside_a_detached_tensor(other: Any) -> None:
    w = genesis.ones(2, requires_grad=True)
    y = (w * 3).exp()
    held, tracked = y.detach(), other(y)
    del y
    genesis.eval(genesis.ones(2) * 2, held)
    (genesis.ones(3) + 1).cos().sum().tolist()
    tracked.sum().backward()
    assert w.grad.tolist()[0] == pytest.approx(3 * float(np.exp(3)), rel=1e-5)


def read_each_turn(lib: Any, turns: int) -> tuple[Any, float]:
    """A recurrence of which a number is read at each turn, so that nothing of it waits until it is cut."""
    w, h, kept, seen = lib.full((4, 4), 0.2, requires_grad=True), lib.ones(2, 4), [], 0.0
    for i in range(turns):
        h = lib.tanh(h @ w + 0.1 * (i % 3))
        kept.append(h.mean())
        seen += kept[-1].item()
    lib.stack(kept).sum().backward()
    return w.grad, seen


@pytest.mark.parametrize("turns", [40, 47])
def test_the_backward_of_a_loop_that_reads_at_each_turn(turns: int, plans: list[Any],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of several turns, so that no program has all of them."""
    monkeypatch.setattr(pieces, "MOST_RUNS", 16)
    monkeypatch.setattr(pieces, "TURNS", 4)
    found, expected = read_each_turn(genesis, turns), read_each_turn(torch, turns)
    close(found[0], expected[0])
    assert found[1] == pytest.approx(expected[1], rel=1e-5)
    assert len(plans) <= 8
    assert max(sum(node.op.name in ("dot", "matmul", "linear") for node in compiled.graph.nodes)
               for compiled in plans) < turns


def test_the_backward_of_a_few_turns_that_were_read_is_one_program(plans: list[Any]) -> None:
    """An episode's, as there are a hundred and more."""
    found = read_each_turn(genesis, 40)
    forward = len(plans)
    found[0].tolist()
    assert len(plans) - forward <= 1
    close(found[0], read_each_turn(torch, 40)[0])


@pytest.mark.parametrize("reads", [0, 1, 3])
def test_a_leaf_that_was_not_computed_when_it_was_read_first(reads: int) -> None:
    """It is another node from then on, and both lie in one piece: its gradient is no sum of two."""
    def program(lib: Any) -> Any:
        w, h = lib.full((4,), 0.9, requires_grad=True), lib.ones(4)
        for i in range(TURNS):
            h = h + lib.sin(w * (i % 3))  # each turn has as much of the gradient
            if i < reads:
                h.sum().item()
        h.sum().backward()
        return w.grad
    close(program(genesis), program(torch))
