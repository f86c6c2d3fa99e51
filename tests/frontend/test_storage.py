"""What the program notes of storages costs the same however many came and went before, and takes no memory for long."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import pytest

import genesis
from genesis.frontend import pending, storage
from genesis.frontend.state import state


def seconds(call: Callable[[], object], count: int) -> float:
    start = process_time()
    for _ in range(count):
        call()
    return process_time() - start


def test_recording_costs_the_same_after_many_results_that_nobody_kept() -> None:
    """Each result gets the address of the one before: found by that, it would be compared with all that were there.
    Six thousand such results made an op fifty times as slow; a busy machine makes it three times."""
    x = genesis.ones(2)
    genesis.eval(x)
    first = min(seconds(x.exp, 200) for _ in range(5))
    seconds(x.exp, 6000)
    assert min(seconds(x.exp, 200) for _ in range(5)) < 6 * first


def test_results_that_nobody_kept_are_forgotten_by_a_program_that_computes_nothing(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(genesis.config, "pending_nodes", 512)
    monkeypatch.setattr(state, "look_at", 0)
    left = len(pending.live_pending())  # by other tests
    x, kept = genesis.ones(2), []
    for i in range(1000):
        y = x * i
        if i % 250 == 0:
            kept.append(y)
    assert len(state.pending) < left + 200
    assert [y.tolist() for y in kept] == [[0, 0], [250, 250], [500, 500], [750, 750]]


def test_a_flush_forgets_what_it_computed() -> None:
    """Who looks at what is pending does not go through hundreds of parameters of the step before."""
    x, y = genesis.ones(2), genesis.ones(3)
    genesis.eval(x, y)
    x.add_(1)
    y.add_(1)
    z = x * y[:2]
    notes = {tensor.storage._queued for tensor in (x, y, z)}
    assert notes <= state.pending.keys() and 0 not in notes
    genesis.eval(x, y, z)
    assert notes.isdisjoint(state.pending) and not any(t.storage._queued for t in (x, y, z))


def test_the_gradients_of_many_parameters_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are recorded by one line, one after the other, which looks like an endless loop; but no cut parts them."""
    looks: list[int] = []
    monkeypatch.setattr(storage.engine, "look", lambda _, number: looks.append(number))
    parameters = [genesis.ones(2, requires_grad=True) for _ in range(40)]
    genesis.eval(parameters)
    loss = sum((p * p).sum() for p in parameters)
    first = pending.next_number()
    monkeypatch.setattr(state, "look_at", first + 20)  # a mark in the middle of them
    loss.backward()
    assert not looks and state.look_at > first + 40
    few = genesis.ones(2, requires_grad=True)
    monkeypatch.setattr(state, "look_at", 0)
    (few * few).sum().backward()
    assert looks, "a turn of a loop may have so few"


def test_values_that_gradients_flow_through_are_forgotten_with_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation loop overwrites nothing: no flush of its looks them through."""
    monkeypatch.setattr(pending, "FORGET_AFTER", 4)  # of numbers, of which a loss takes two
    pending.live_differentiable()
    before, x = len(state.differentiable), genesis.ones(2, requires_grad=True)
    for i in range(100):
        (x * i).sum().item()
    assert len(state.differentiable) < before + 50


def pending_of(*tensors: genesis.Tensor) -> list[storage.Storage]:
    """Which of the tensors' storages are pending, in order; those that other tests left do not count."""
    own = [tensor.storage for tensor in tensors]
    return [found for found in pending.live_pending() if found in own]


def test_a_storage_that_is_written_again_is_computed_with_its_last_content() -> None:
    x, y = genesis.zeros(2), genesis.zeros(2)
    genesis.eval(x, y)
    for turn in range(1, 4):
        x.add_(1)
        y.add_(x)
        assert pending_of(x, y) == [x.storage, y.storage]
        genesis.eval(x)
        assert x.tolist() == [turn, turn] and pending_of(x, y) == []
    assert y.tolist() == [6, 6]


@pytest.mark.parametrize("touching", [
    pytest.param(lambda x: x.zero_(), id="a write"), pytest.param(lambda x: x + 1, id="the first read"),
    pytest.param(lambda x: x.numpy(), id="sharing the memory")])
def test_who_remembers_what_storages_hold_is_told(touching: Callable[[genesis.Tensor], object]) -> None:
    """A compiled step looks for its memories anew only if `touched` has moved."""
    x = genesis.zeros(3)
    genesis.eval(x)
    before = state.touched
    kept = touching(x)
    assert state.touched > before
    del kept


def test_so_it_is_when_a_pending_content_gets_its_memory() -> None:
    x = genesis.zeros(3) + 1
    before = state.touched
    genesis.eval(x)
    assert x.storage.settled and state.touched > before


def test_a_tensor_without_views_wants_gradients_without_a_look_at_every_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking the collector who has its memory takes 0.1 s for a million objects: it is asked for views alone."""
    def asked(*objects: object) -> list[object]:
        raise AssertionError("the collector was asked")

    x = genesis.ones(3, 4)
    genesis.eval(x)
    monkeypatch.setattr("gc.get_referrers", asked)
    leaf = x.detach().requires_grad_()
    other = x.detach()
    other.requires_grad_()
    fresh = genesis.ones(3, 4).requires_grad_()
    (leaf * 2 + other + fresh).sum().backward()
    assert leaf.grad.sum().item() == 24
