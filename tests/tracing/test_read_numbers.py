"""Numbers that the code reads from attributes, variables and classes, and that change from call to call."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from calls import Pair, counts, ramp, values

import genesis
from genesis import nn
from genesis.frontend.pending import live_pending
from genesis.runtime.own_threads import OwnThread


class Scaled(nn.Module):
    """A number on the module, which somebody sets between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: float = 1.0

    def forward(self, x: Any) -> Any:
        return x * self.scale if self.scale < 3 else x - self.scale


@pytest.mark.parametrize("start", [0.0, 10])
def test_a_number_on_the_module_that_others_set(start: float) -> None:
    plain, ours = Scaled(), Scaled()
    compiled = genesis.compile(ours)
    for i in range(20):
        plain.scale = ours.scale = start + i / 8 if start == 0.0 else start + i
        assert values(compiled(ramp(3))) == values(plain(ramp(3)))
        assert type(ours.scale) is type(plain.scale)
    assert counts(compiled)[0] <= 4
    plain.scale = ours.scale = 2
    assert values(compiled(ramp(3))) == values(plain(ramp(3)))


@pytest.mark.parametrize("looks_on", [True, False])
def test_a_number_while_another_thread_runs(looks_on: bool) -> None:
    """One that may read it finds it as it is: no stand-in takes its place, and each value is captured."""
    module, done = Scaled(), threading.Event()
    compiled = genesis.compile(module)
    thread = (OwnThread if looks_on else threading.Thread)(target=done.wait)
    thread.start()
    try:
        for i in range(9):
            module.scale = 3.5 + i
            assert values(compiled(ramp(3))) == values(ramp(3) - module.scale)
        assert counts(compiled)[0] <= 3 if looks_on else counts(compiled)[0] == 9
    finally:
        done.set()
        thread.join()


RATE = 0.5


def test_a_global_and_a_variable_that_others_set(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = 1.0
    pair = Pair(lambda x: x * RATE + factor * x.shape[0])
    for i in range(20):
        monkeypatch.setattr(f"{__name__}.RATE", 0.5 / (i + 1))
        factor = i / 4
        pair.same(ramp(3 + i % 4))
    captures, hits = counts(pair.compiled)
    assert captures <= 6 and captures + hits == 20


class Warm(nn.Module):
    """A count that the code reads: a decay that goes on from call to call, up to a limit."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.last = 0, 0.0

    def forward(self, x: Any) -> Any:
        decay = min(0.8, (1 + self.step) / (10 + self.step))
        self.step += 1
        self.last = decay * self.step
        if self.step == 17:
            return x * 100
        return x * decay + self.last


def test_a_count_that_the_code_reads() -> None:
    plain, ours = Warm(), Warm()
    compiled = genesis.compile(ours)
    for _ in range(60):
        assert values(compiled(ramp(3))) == values(plain(ramp(3)))
        assert (repr(ours.step), repr(ours.last)) == (repr(plain.step), repr(plain.last))
        assert (type(ours.step), type(ours.last)) == (int, float)
    assert counts(compiled)[0] <= 7, genesis.explain(compiled)
    for step in (5, -3, 16, 1.5, 0, 10**6, 9):
        plain.step = ours.step = step
        assert values(compiled(ramp(3))) == values(plain(ramp(3)))
        assert (repr(ours.step), repr(ours.last)) == (repr(plain.step), repr(plain.last))


class Positioned(nn.Module):
    """A cache that is written to at a position, which counts on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", genesis.zeros(16, 3))
        self.position = 0

    def forward(self, x: Any) -> Any:
        self.kept[self.position] = x
        self.position += 1
        return self.kept[:self.position].sum(0)


def test_a_position_that_counts_on() -> None:
    plain, ours = Positioned(), Positioned()
    compiled = genesis.compile(ours)
    with genesis.no_grad():
        for i in range(40):
            if i % 16 == 0:
                plain.position = ours.position = 0
            assert values(compiled(ramp(3, start=i))) == values(plain(ramp(3, start=i)))
            assert values(ours.kept) == values(plain.kept) and type(ours.position) is int


def test_a_number_in_a_list_or_dictionary() -> None:
    settings, rates = {"rate": 1.0, 3: 2.0}, [0.5, 0.25]

    def step(x: Any) -> Any:
        return x * settings["rate"] + settings[3] * rates[-1]
    pair = Pair(step)
    for i in range(12):
        settings["rate"], settings[3], rates[1] = i / 2, i / 4, -i / 8
        pair.same(ramp(3))
    assert list(settings) == ["rate", 3] and all(type(x) is float for x in (*settings.values(), *rates))


class Noting(nn.Module):
    """What it notes follows from the size."""

    def __init__(self) -> None:
        super().__init__()
        self.length, self.state, self.text = 0, None, ""

    def forward(self, x: Any) -> Any:
        self.length = x.shape[0] * 2
        self.state = x if self.state is None else genesis.cat([self.state, x])
        self.pair = (x.shape, self.state.shape[0] / 2, [x.sum()])
        return self.state.sum()


def test_what_is_noted_follows_from_the_size() -> None:
    plain, ours = Noting(), Noting()
    compiled = genesis.compile(ours)
    for length in (4, 5, 7, 9, 6, 12, 3, 5):
        assert values(compiled(ramp(length))) == values(plain(ramp(length)))
        assert (ours.length, values(ours.state)) == (plain.length, values(plain.state))
        assert (tuple(ours.pair[0]), ours.pair[1], values(ours.pair[2])) == (
            tuple(plain.pair[0]), plain.pair[1], values(plain.pair[2]))
        assert type(ours.length) is int and type(ours.pair[0][0]) is int and type(ours.pair[1]) is float
    assert counts(compiled)[1] >= 3


# Numbers of classes

class Tally:
    """Counts for all, and what its subclass has of its own."""

    calls, rate = 0, 1.0


class OwnTally(Tally):
    calls = 0


def test_a_counter_of_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tally, "calls", 0)
    monkeypatch.setattr(OwnTally, "calls", 5)

    def step(x: Any) -> Any:
        Tally.calls += 1
        OwnTally.calls -= 2
        return x * 2
    compiled = genesis.compile(step)
    for i in range(6):
        assert values(compiled(ramp(2, start=i))) == values(ramp(2, start=i) * 2)
    assert (Tally.calls, OwnTally.calls) == (6, -7) and counts(compiled) == (1, 5)
    Tally.calls = 100  # nobody reads it: no guard
    compiled(ramp(2))
    assert (Tally.calls, counts(compiled)) == (101, (1, 6))
    Tally.calls = 1.5  # type: ignore[assignment]
    compiled(ramp(2))
    assert Tally.calls == 2.5


def test_a_counter_by_the_type_of_self() -> None:
    class Counted(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            type(self).calls += 1
            return x * 2

    class Below(Counted):
        pass
    for module in (Counted(), Below()):
        kind, compiled = type(module), genesis.compile(module)
        before = kind.calls
        for _ in range(6):
            assert values(compiled(ramp(2))) == values(ramp(2) * 2)
        assert type(module).calls == before + 6


def test_a_count_of_a_class_that_the_code_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(x: Any) -> Any:
        Tally.calls += 1
        return x * Tally.calls * Tally.rate if Tally.calls < 8 else x - Tally.calls
    for function in (step, compiled := genesis.compile(step)):
        monkeypatch.setattr(Tally, "calls", 0)
        found = []
        for i in range(20):
            monkeypatch.setattr(Tally, "rate", 1.0 + i // 5)
            found.append((values(function(ramp(2))), Tally.calls, type(Tally.calls)))
        if function is step:
            expected = found
    assert found == expected and counts(compiled)[1] >= 10


def test_a_class_with_rules_of_its_own_for_setting() -> None:
    noted: list[Any] = []

    class Noting(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            noted.append(value)
            super().__setattr__(name, value)

    class Kept(metaclass=Noting):
        calls = 0

    def step(x: Any) -> Any:
        Kept.calls += 1
        return x + 1
    compiled = genesis.compile(step)
    for _ in range(5):
        compiled(ramp(2))
    assert (Kept.calls, noted) == (5, [1, 2, 3, 4, 5])


def test_an_interrupt_while_the_function_runs_on_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ours = Noting(), Noting()
    compiled = genesis.compile(ours)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt
    for at, length in enumerate((4, 5, 7, 9, 6, 12)):
        with monkeypatch.context() as patch:
            if at == 2:  # the first call beside which there is another of its kind
                patch.setattr("genesis.tracing.slots.Slots.values_now", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    compiled(ramp(length))
        if at == 2:  # the call itself is done
            plain(ramp(length))
        else:
            assert values(compiled(ramp(length))) == values(plain(ramp(length)))
        assert (ours.length, values(ours.state)) == (plain.length, values(plain.state))
        assert type(ours.length) is int
    genesis.eval(ramp(3) * 2)


def test_nothing_of_a_value_over_stand_ins_is_left_to_be_computed() -> None:
    """The sum has no symbol in its type; a write to what it reads would compute it before."""
    weight, before = ramp(3).requires_grad_(), [*live_pending()]

    @genesis.compile
    def f(x: Any) -> Any:
        return (x * weight).sum().item(), x
    assert [f(ramp(rows, 3))[0] for rows in (2, 4)] == [46.0, 164.0]
    with genesis.no_grad():
        weight.mul_(0.5)
    assert {id(x) for x in live_pending()} <= {id(x) for x in (*before, weight.storage)}
    assert weight.tolist() == [0.5, 1.0, 1.5]
    assert f(ramp(5, 3))[0] == 125.0
