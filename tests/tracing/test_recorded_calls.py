"""What a call of a compiled function costs that is recorded, and not replayed: little more than the plain call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import genesis
from genesis import nn, optim
from genesis.runtime.cpu.storage import CPUStorage
from genesis.tracing.certain_refusals import certain_refusal
from genesis.tracing.compiled_function import CompiledFunction


def step_of_a_net() -> Callable[[Any], Any]:
    net = nn.Linear(3, 2)
    optimizer = optim.AdamW(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss
    return step


def of_an_iterator() -> tuple[Callable[..., Any], Callable[[], Any]]:
    step, batches = step_of_a_net(), iter(lambda: genesis.ones(4, 3), None)

    def function(batches: Iterator[Any]) -> Any:
        return step(next(batches))
    return function, lambda: batches


def of_a_view() -> tuple[Callable[..., Any], Callable[[], Any]]:
    step, data = step_of_a_net(), genesis.ones(8, 3)

    def function(x: Any) -> Any:
        x.mul_(1)  # a view that is written to is never copied
        return step(x)
    return function, lambda: data[:4]


def of_a_clock() -> tuple[Callable[..., Any], Callable[[], Any]]:
    step, x = step_of_a_net(), genesis.ones(4, 3)

    def function(x: Any) -> Any:
        time.perf_counter()
        return step(x)
    return function, lambda: x


@pytest.mark.parametrize("make", [of_an_iterator, of_a_view, of_a_clock])
def test_a_recorded_call_copies_no_parameter(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its frames hold no content that the step overwrites. Each call copied all parameters and their state."""
    plain, given = make()
    function = genesis.compile(plain)
    for _ in range(4):
        function(given())
    clones: list[CPUStorage] = []
    clone = CPUStorage.clone
    monkeypatch.setattr(CPUStorage, "clone", lambda memory: clones.append(memory) or clone(memory))
    for _ in range(2):
        function(given())
    genesis.eval()
    assert function.hits == 0 and not clones


def test_a_line_that_each_call_comes_to_is_found_without_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    function = genesis.compile(of_a_clock()[0])
    captured: list[Any] = []
    monkeypatch.setattr(CompiledFunction, "_capture", lambda *given, **options: captured.append(given))
    for _ in range(3):
        function(genesis.ones(4, 3))
    assert not captured
    assert "it calls perf_counter at" in str(function.explain()) and "test_recorded_calls.py" in str(function.explain())


def test_what_may_be_another_function_or_not_be_reached_is_captured() -> None:
    told: list[Any] = []

    def print(x: Any) -> None:
        told.append(x.shape)

    def own(x: Any) -> Any:
        print(x)
        return x + 1

    def sometimes(x: Any, tell: bool) -> Any:
        if tell:
            time.perf_counter()
        return x + 1

    def handed_on(x: Any) -> Any:
        clock = time.perf_counter
        return (x + 1, clock)[0]
    assert [certain_refusal(x) for x in (own, sometimes, handed_on, nn.Linear(2, 2))] == [None] * 4
    function = genesis.compile(sometimes)
    for _ in range(4):
        assert function(genesis.zeros(2), False).tolist() == [1, 1]
    assert function.hits == 3


def test_a_clock_that_is_replaced_is_looked_up_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many calls as a line that each call comes to is left alone for."""
    def function(x: Any) -> Any:
        time.monotonic_ns()
        return x + 1
    compiled = genesis.compile(function)
    compiled(genesis.zeros(2))
    monkeypatch.setattr(time, "monotonic_ns", lambda: 0)
    for _ in range(260):
        compiled(genesis.zeros(2))
    assert compiled.hits > 0
