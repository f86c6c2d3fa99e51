"""A replay writes over memory that only it knows, and leaves alone what others hold: references are counted against
numbers that are measured. A number that is one off breaks these tests."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

import genesis
from genesis import nn
from genesis.tracing import step_gradients, step_writes


def an_unshared_content_stays_where_it_is() -> bool:
    x = genesis.zeros(2)
    genesis.eval(x)
    return step_writes.ended(x.storage) is None


def a_content_that_is_held_ends() -> bool:
    x = genesis.zeros(2)
    genesis.eval(x)
    held = x.storage.cell
    return step_writes.ended(x.storage) is held


def training() -> tuple[nn.Parameter, Callable[[], genesis.Tensor]]:
    """A parameter and a compiled step of its, replayed from the third call on."""
    genesis.manual_seed(0)
    weight = nn.Parameter(genesis.randn(3))
    optimizer = genesis.optim.SGD([weight], lr=0.1)

    @genesis.compile
    def step() -> genesis.Tensor:
        optimizer.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()
    for _ in range(3):
        step()
    return weight, step


def a_gradient_that_nobody_holds_is_written_again() -> bool:
    weight, step = training()
    before = id(weight.grad)
    step()
    return id(weight.grad) == before


def a_gradient_that_somebody_holds_stays() -> bool:
    weight, step = training()
    held = weight.grad
    values = held.tolist()
    step()
    return weight.grad is not held and held.tolist() == values


def test_what_only_the_replay_knows_is_written_over() -> None:
    assert an_unshared_content_stays_where_it_is() and a_gradient_that_nobody_holds_is_written_again()


def test_what_somebody_holds_is_left_alone() -> None:
    assert a_content_that_is_held_ends() and a_gradient_that_somebody_holds_stays()


@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_number_that_is_one_off_is_noticed(monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    monkeypatch.setattr(step_writes, "HELD_AND_NAMED", step_writes.HELD_AND_NAMED + wrong)
    assert not (an_unshared_content_stays_where_it_is() and a_content_that_is_held_ends())
    monkeypatch.setattr(step_gradients, "_OURS", step_gradients._OURS + wrong)
    assert not (a_gradient_that_nobody_holds_is_written_again() and a_gradient_that_somebody_holds_stays())


def a_forward(flag: genesis.Tensor) -> weakref.ref:
    net = nn.Linear(3, 3)
    function = genesis.compile(lambda x: net(x).sum())
    for i in range(12):
        function(genesis.full((2, 3), float(i))).item()
    assert function.hits >= 10
    return weakref.ref(net.weight.storage)


def a_value_read_in_the_middle(flag: genesis.Tensor) -> weakref.ref:
    net = nn.Linear(3, 3)
    function = genesis.compile(lambda x: net(x).sum() if flag == 0 else x)
    for i in range(12):
        function(genesis.full((2, 3), float(i))).item()
    assert function.hits >= 10
    return weakref.ref(net.weight.storage)


def a_step(flag: genesis.Tensor) -> weakref.ref:
    weight, step = training()
    for _ in range(9):
        step()
    return weakref.ref(weight.storage)


@pytest.mark.parametrize("make", [a_forward, a_value_read_in_the_middle, a_step], ids=lambda make: make.__name__)
def test_what_a_compiled_function_knew_is_freed_with_it(make: Callable[[genesis.Tensor], weakref.ref]) -> None:
    """No cycle keeps parameters until Python's collector finds it: on a GPU that would be their memory."""
    flag = genesis.zeros(1)
    make(flag)  # what is imported and kept once
    gc.collect()
    gc.disable()
    try:
        assert make(flag)() is None
    finally:
        gc.enable()
