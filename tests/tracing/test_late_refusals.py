"""A call that cannot be captured costs little more than the plain one: it is not tried where it would fail again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import genesis
from genesis.tracing import compiled_function
from genesis.tracing.call_capture import CallCapture


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CallCapture]]:
    """The captures that are begun."""
    found: list[CallCapture] = []

    class Noted(CallCapture):
        def __init__(self, *args: Any):
            super().__init__(*args)
            found.append(self)
    monkeypatch.setattr(compiled_function, "CallCapture", Noted)
    yield found


class Model(genesis.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = genesis.nn.ModuleList([genesis.nn.Linear(2, 2) for _ in range(3)])
        self.calls = 0

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        self.tell()
        return x

    def tell(self) -> None:
        time.sleep(0)


def sleeps(x: Any) -> Any:
    y = x * 2
    time.sleep(0)
    return y


def sleeps_in_a_loop(x: Any) -> Any:
    for _ in range(2):
        x = x * 2
        with genesis.no_grad():
            time.sleep(0)
    return x


def reads(x: Any) -> Any:
    y = x * 2
    return y * y.sum().item() + len(str(y.mean().item()))


@pytest.mark.parametrize("make", [lambda: sleeps, lambda: sleeps_in_a_loop, lambda: reads, Model])
def test_a_line_that_each_call_comes_to_is_tried_once_in_a_hundred_calls(make: Callable[[], Any],
                                                                         tried: list[CallCapture]) -> None:
    function, x = make(), genesis.ones(2)
    compiled = genesis.compile(function)
    for _ in range(100):
        assert compiled(x).tolist() == function(x).tolist()
    tries = function is not sleeps  # whose code says so
    assert len(tried) == tries
    for _ in range(200):
        compiled(x)
    assert len(tried) == 2 * tries  # never for good


def counts(at: Any) -> Callable[[Any], Any]:
    def read(x: Any) -> Any:
        return x * next(at)
    return read


def test_an_object_that_no_guard_can_stand_for_is_not_tried_at_once_again(tried: list[CallCapture]) -> None:
    """An iterator of a closure: each of a loop's first tries cost three to five calls' time."""
    compiled, x = genesis.compile(counts(iter(range(1000)))), genesis.ones(2)
    for i in range(300):
        assert compiled(x).tolist() == [i, i]
    assert len(tried) == 2
    assert "iterator" in str(genesis.explain(compiled))


def test_what_changes_what_it_reads_is_tried_three_times_first(tried: list[CallCapture]) -> None:
    kept: deque[Any] = deque(maxlen=3)

    @genesis.compile
    def mean(x: Any) -> Any:
        kept.append(x * 1)
        return sum(kept) / len(kept)
    for i in range(34):
        mean(genesis.full((1,), float(i)))
    assert len(tried) == 3
    for i in range(34, 70):
        mean(genesis.full((1,), float(i)))
    assert len(tried) == 4


def test_a_line_behind_a_choice_is_tried_again(tried: list[CallCapture]) -> None:
    odd = [True]

    def helper(x: Any) -> Any:
        return x * float(x.sum()) if odd[0] else x * 2

    @genesis.compile
    def calls(x: Any) -> Any:
        return helper(x)
    x = genesis.ones(2)
    calls(x)
    odd[0] = False
    for _ in range(3):
        assert calls(x).tolist() == [2, 2]
    assert len(tried) == 2 and calls.hits == 2
