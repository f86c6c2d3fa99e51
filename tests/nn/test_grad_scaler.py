"""GradScaler beside torch's: scales, steps that are left out, errors."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import torch

import genesis
from tests.faults.events import Traced, chosen

HOW = {"init_scale": 8.0, "growth_interval": 2, "growth_factor": 4.0, "backoff_factor": 0.25}


def trained(lib: Any, factors: list[float], **how: Any) -> tuple[list[float], list[float], Any]:
    """(parameters, scales) after steps whose losses have these factors."""
    w = lib.ones(2, requires_grad=True)
    optimizer, scaler = lib.optim.SGD([w], lr=0.125), lib.amp.GradScaler("cpu", **how)
    scales = []
    for factor in factors:
        optimizer.zero_grad()
        scaler.scale((w * w).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return w.tolist(), scales, scaler


@pytest.mark.parametrize("how", [HOW, {"enabled": False}])
def test_steps_and_scales_are_torchs(how: dict[str, Any]) -> None:
    factors = [1.0, 1.0, 0.5, float("inf") if how.get("enabled", True) else 2.0, 1.0, 1.0]
    (found, scales, ours), (wanted, other, theirs) = (trained(lib, factors, **how) for lib in (genesis, torch))
    assert found == pytest.approx(wanted) and scales == other
    assert ours.state_dict() == theirs.state_dict() and ours.is_enabled() == theirs.is_enabled()


def test_an_interval_that_has_passed_when_it_is_lowered_never_ends_as_torchs() -> None:
    """torch compares the count by ==: behind a lowered interval the scale grows only once an overflow begins anew."""
    def scales(lib: Any) -> list[float]:
        w = lib.ones(1, requires_grad=True)
        optimizer, scaler = lib.optim.SGD([w], lr=0.125), lib.amp.GradScaler("cpu", **{**HOW, "growth_interval": 5})
        found = []
        for turn, factor in enumerate([1.0, 1.0, 1.0, 1.0, 1.0, float("inf"), 1.0, 1.0, 1.0]):
            if turn == 3:
                scaler.set_growth_interval(2)
            optimizer.zero_grad()
            scaler.scale((w * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            found += [scaler.get_scale(), scaler.state_dict()["_growth_tracker"]]
        return found
    assert scales(genesis) == scales(torch)


def test_gradients_can_be_looked_at_before_the_step() -> None:
    for lib in (genesis, torch):
        w = lib.ones(2, requires_grad=True)
        optimizer, scaler = lib.optim.SGD([w], lr=1.0), lib.amp.GradScaler("cpu", **HOW)
        scaler.scale([w.sum() * 3])[0].backward()
        assert w.grad.tolist() == [24.0, 24.0]
        scaler.unscale_(optimizer)
        assert w.grad.tolist() == [3.0, 3.0]
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.step(optimizer)
        assert w.tolist() == [-2.0, -2.0]


def test_a_state_goes_from_one_to_another() -> None:
    _, _, first = trained(genesis, [1.0, 1.0, 1.0], **HOW)
    second = genesis.amp.GradScaler()
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()
    second.update(2.0)
    assert second.get_scale() == 2.0


def test_what_is_refused() -> None:
    for lib in (genesis, torch):
        with pytest.raises(AssertionError):
            lib.amp.GradScaler("cpu", growth_factor=0.5)
        with pytest.raises(AssertionError):
            lib.amp.GradScaler("cpu").update()
        with pytest.raises(RuntimeError, match="empty"):
            lib.amp.GradScaler("cpu").load_state_dict({})
        w = lib.ones(2, dtype=lib.float16, requires_grad=True)
        w.sum().backward()
        with pytest.raises(ValueError, match="FP16"):
            scaler = lib.amp.GradScaler("cpu")
            scaler.scale(lib.ones(1))
            scaler.unscale_(lib.optim.SGD([w], lr=1.0))


def test_one_infinite_gradient_of_several_leaves_the_step_out() -> None:
    w, v = (genesis.ones(2, requires_grad=True) for _ in range(2))
    optimizer, scaler = genesis.optim.SGD([w, v], lr=0.125), genesis.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((w * 3).sum() + (v * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == v.tolist() == [1.0, 1.0] and scaler.get_scale() == 4.0


def about_to_step(kind: str) -> tuple[Any, Any, Any]:
    """A parameter with a scaled gradient, its optimizer and the scaler."""
    w = genesis.ones(2, requires_grad=True)
    optimizer: Any = {"SGD": genesis.optim.SGD, "Adam": genesis.optim.Adam}[kind]([w], lr=0.125)
    scaler = genesis.amp.GradScaler("cpu", **HOW)
    scaler.scale((w * w).sum()).backward()
    return w, optimizer, scaler


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_an_interrupted_step_is_noted_where_it_was_made(kind: str) -> None:
    """Whoever steps again after an interrupt makes the one step, or is told that it was made."""
    w, optimizer, scaler = about_to_step(kind)
    scaler.step(optimizer)
    after, lines = w.tolist(), Traced("line", ("optim/", "amp/", "frontend/writes.py"))
    w, optimizer, scaler = about_to_step(kind)
    places, made = lines.places(lambda: scaler.step(optimizer)), set()
    for at in chosen(places):
        w, optimizer, scaler = about_to_step(kind)
        with suppress(KeyboardInterrupt):
            lines.interrupt(lambda scaler=scaler, optimizer=optimizer: scaler.step(optimizer), at)
        first = w.tolist()
        made.add(first == after)
        try:
            scaler.step(optimizer)
            again = True
        except RuntimeError as error:
            assert "already been called" in str(error)
            again = False
        assert (w.tolist(), again) == (after, first != after), f"interrupted at {places[at]}"
        scaler.update()
    assert made == {True, False}


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_a_step_that_has_no_memory_can_be_made_again(kind: str) -> None:
    w, optimizer, scaler = about_to_step(kind)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    after, calls = w.tolist(), Traced("call")
    w, optimizer, scaler = about_to_step(kind)
    scaler.unscale_(optimizer)
    scaler._seen[id(optimizer)].overflow.item()
    count = len(calls.places(partial(scaler.step, optimizer)))
    for at in range(count):
        w, optimizer, scaler = about_to_step(kind)
        scaler.unscale_(optimizer)
        scaler._seen[id(optimizer)].overflow.item()
        with pytest.raises(MemoryError):
            calls.fail(lambda scaler=scaler, optimizer=optimizer: scaler.step(optimizer), at, MemoryError("injected"))
        assert w.tolist() == [1.0, 1.0]
        scaler.step(optimizer)
        assert w.tolist() == after


@pytest.mark.filterwarnings("ignore:optimizer contains")
def test_the_gradient_of_a_parameter_that_is_listed_twice_is_divided_twice() -> None:
    def run(T: Any, scaler: Any) -> tuple[list[float], ...]:
        p, q = T.nn.Parameter(T.ones(2)), T.nn.Parameter(T.ones(2))
        optimizer = T.optim.SGD([p, q, p], lr=1.0)
        scaler.scale((p * 3 + q).sum()).backward()
        scaler.unscale_(optimizer)
        gradients = p.grad.tolist(), q.grad.tolist()
        scaler.step(optimizer)
        return *gradients, p.tolist(), q.tolist()
    theirs = run(torch, torch.amp.GradScaler("cpu", init_scale=4.0))
    assert run(genesis, genesis.amp.GradScaler(init_scale=4.0)) == theirs


def test_a_step_that_raises_before_it_writes_leaves_gradients_as_they_were():
    """It divides them itself, and has not then: called again it makes the step of an undisturbed run."""
    w = genesis.ones(2, requires_grad=True)
    optimizer, scaler = genesis.optim.SGD([w], lr=0.5), genesis.amp.GradScaler(init_scale=8.0)
    scaler.scale((w * w).sum()).backward()

    def stops(*_):
        raise KeyboardInterrupt
    hook = optimizer.register_step_pre_hook(stops)
    with pytest.raises(KeyboardInterrupt):
        scaler.step(optimizer)
    hook.remove()
    assert w.grad.tolist() == [16, 16] and w.tolist() == [1, 1]
    scaler.step(optimizer)
    assert w.grad.tolist() == [2, 2] and w.tolist() == [0, 0]
    scaler.update()


def test_gradients_whose_division_was_dropped_are_divided_by_the_step():
    """Of a second backward that cannot be computed: the sum and its division are dropped, the first one's stay."""
    w = genesis.ones(2, requires_grad=True)
    optimizer, scaler = genesis.optim.SGD([w], lr=0.5), genesis.amp.GradScaler(init_scale=8.0)
    scaler.scale((w * w).sum()).backward()
    genesis.eval(w.grad)
    scaler.scale(w[genesis.tensor([7])].sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(IndexError):
        w.grad.tolist()
    assert w.grad.tolist() == [16, 16]
    scaler.step(optimizer)
    assert w.grad.tolist() == [2, 2] and w.tolist() == [0, 0]


def test_a_step_without_memory_counts_as_none_whatever_was_divided(monkeypatch):
    """At each allocation of it, and all behind: gradients are divided and that is known, or neither."""
    from genesis.runtime.cpu import executor
    allocate, left = executor.allocate, [-1]

    def scarce(*what, **how):
        left[0] -= 1
        if left[0] == 0:
            left[0] = 1
            raise MemoryError("injected")
        return allocate(*what, **how)
    monkeypatch.setattr(executor, "allocate", scarce)
    for most in range(1, 40):
        genesis.engine.reset()
        w = genesis.ones(2, requires_grad=True)
        optimizer = genesis.optim.AdamW([w], lr=0.5)
        count, scaler = genesis.zeros(1), genesis.amp.GradScaler(init_scale=8.0)
        genesis.eval(w, count)
        scaler.scale((w * w).sum()).backward()
        count += 1
        left[0] = most
        try:
            scaler.step(optimizer)
            failed = False
        except MemoryError:
            failed = True
        done, left[0] = left[0] > 1, -1
        if failed:
            assert w.tolist() == [1, 1] and count.tolist() in ([0], [1])
            known = scaler._seen[id(optimizer)].is_unscaled()
            assert w.grad.tolist() == ([2, 2] if known else [16, 16])
            scaler.step(optimizer)
        assert w.grad.tolist() == [2, 2] and optimizer.state[w]["step"] == 1
        scaler.update()
        if done:
            break
    else:
        raise AssertionError("no end")
    assert most > 2


def test_a_division_that_had_no_memory_is_made_by_the_next_step(monkeypatch):
    """Whether gradients overflowed was read before: that is in memory, and they are not divided."""
    from genesis.engine.compilation import Compiled
    w = genesis.ones(2, requires_grad=True)
    optimizer, scaler = genesis.optim.SGD([w], lr=0.5), genesis.amp.GradScaler(init_scale=8.0)
    genesis.eval(w)
    scaler.scale((w * w).sum()).backward()
    start, left = Compiled.start, [1]

    def scarce(*given):
        left[0] -= 1
        if left[0] < 0:
            raise MemoryError("injected")
        return start(*given)
    with monkeypatch.context() as patch:
        patch.setattr(Compiled, "start", scarce)
        with pytest.raises(MemoryError):
            scaler.step(optimizer)
    assert w.grad.tolist() == [16, 16] and w.tolist() == [1, 1]
    scaler.step(optimizer)
    assert w.grad.tolist() == [2, 2] and w.tolist() == [0, 0]
