"""Functions that draw, or write to what stays, without ending a step: replayed over sizes and numbers that change."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from calls import counts, ramp, values
from stops import stopped

import genesis
import genesis.nn.functional as F
from genesis import nn
from genesis.tracing import symbolic_call

ROWS = (7, 9, 12, 5, 31, 8, 7, 9, 6, 40)


class Net(nn.Module):
    """A net with what training writes to in its forward: running means, a count of batches, dropout's draws."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Dropout(0.3),
                                    nn.Linear(6, 2))
        self.rows = 0

    def forward(self, x: Any) -> Any:
        self.rows += 1
        return self.layers(x)


class Beside:
    """A compiled net in a plain training loop, beside the net itself in another."""

    def __init__(self, make: Callable[[], Any] = Net):
        self.nets, self.optimizers = [], []
        for _ in range(2):
            genesis.manual_seed(0)
            net = make()
            self.nets.append(net)
            self.optimizers.append(genesis.optim.AdamW(net.parameters(), lr=0.01))
        self.compiled = genesis.compile(self.nets[1])
        self.functions = [self.nets[0], self.compiled]
        self.draws = [genesis.get_rng_state()] * 2

    def step(self, which: int, x: Any) -> Any:
        """A training step of one of them, and all that it leaves."""
        net, optimizer = self.nets[which], self.optimizers[which]
        genesis.set_rng_state(self.draws[which])
        optimizer.zero_grad()
        loss = self.functions[which](x).square().mean()
        if net.training:
            loss.backward()
            optimizer.step()
        self.draws[which] = genesis.get_rng_state()
        return values([loss.detach(), *net.parameters(), *net.buffers(), self.draws[which], net.rows])

    def same(self, rows: int) -> None:
        x = ramp(rows, 4) / 20
        assert self.step(1, x) == self.step(0, x)


def test_a_net_with_running_means_and_dropout_in_a_plain_loop() -> None:
    beside = Beside()
    for rows in ROWS:
        beside.same(rows)
    assert counts(beside.compiled) == (2, len(ROWS) - 2), genesis.explain(beside.compiled)


def test_training_and_evaluation_in_turn() -> None:
    beside = Beside()
    for at, rows in enumerate(ROWS * 2):
        for net in beside.nets:
            net.train(at % 4 != 3)
        beside.same(rows)
    assert counts(beside.compiled)[1] > len(ROWS)


@pytest.mark.parametrize("backward", [False, True])
def test_what_is_written_is_read_between_calls(backward: bool) -> None:
    """A read computes what the call that is captured wrote, before the next one runs on stand-ins; or nothing does."""
    found = []
    for compiled in (False, True):
        genesis.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
        function = genesis.compile(net) if compiled else net
        seen = []
        for at, rows in enumerate(ROWS):
            y = function(ramp(rows, 4) / 20)
            if at % 3 == 1:
                seen.append(values(net[1].running_mean))
            if backward:
                y.square().sum().backward()
            seen.append(values(y.detach()))
        found.append((seen, values([*net.buffers(), *[p.grad for p in net.parameters()], genesis.get_rng_state()])))
    assert found[0] == found[1]


def test_numbers_that_change_beside_draws_and_writes() -> None:
    found = []
    for compiled in (False, True):
        genesis.manual_seed(0)
        mean = genesis.zeros(3)

        def noisy(x: Any, scale: float, mean: Any = mean) -> Any:
            mean.lerp_(x.detach().mean(0), 0.1 * scale)
            return x + scale * genesis.randn(x.shape[0], 3), mean.sum()
        function = genesis.compile(noisy) if compiled else noisy
        found.append([values(function(ramp(rows, 3) / 9, 0.5 / rows)) for rows in ROWS])
        if compiled:
            assert genesis.explain(function).hits >= 6, genesis.explain(function)
    assert found[0] == found[1]


def test_a_state_that_is_carried_in_a_buffer_under_no_grad() -> None:
    """Under no_grad its plan runs at once, as a step's."""
    found = []
    for compiled in (False, True):
        genesis.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
        function = genesis.compile(net) if compiled else net
        with genesis.no_grad():
            found.append([values([function(ramp(rows, 4) / 20), *net.buffers()]) for rows in ROWS])
        if compiled:
            assert counts(function) == (2, len(ROWS) - 2)
    assert found[0] == found[1]


# What a run on stand-ins leaves

@pytest.mark.parametrize("each", [197, pytest.param(5, marks=pytest.mark.sweep)])
def test_an_exception_at_any_line_of_a_run_on_stand_ins_leaves_the_net(each: int) -> None:
    """Every such line, each once. What the captured call has written is pending then."""
    lines, at = interrupted(-1), 0
    assert lines > 500
    while (came := interrupted(at)) == at + 1:
        at += each
    assert came > lines - 50  # of a run to its end: what is kept from earlier ones saves lines


def interrupted(at: int) -> int:
    """Train with an exception at the `at`-th line that a run on stand-ins comes to; returns how many it came to."""
    beside = Beside()
    beside.same(7)
    x = ramp(9, 4) / 20
    genesis.set_rng_state(beside.draws[0])
    beside.nets[0](x)  # the call is done, and its result is lost
    beside.draws[0] = genesis.get_rng_state()
    genesis.set_rng_state(beside.draws[1])
    lines = stopped(lambda: beside.compiled(x), symbolic_call.SymbolicCall.__init__.__code__, at)
    beside.draws[1] = genesis.get_rng_state()
    assert values([*beside.nets[1].buffers(), beside.draws[1]]) == values([*beside.nets[0].buffers(), beside.draws[0]])
    for rows in (9, 12, 5):
        beside.same(rows)
    return lines


class Remembers(nn.Module):
    """A net with a cache, a rate that falls and a count, which writes to no tensor that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.cache, self.rate, self.calls = genesis.zeros(2, 4), 0.5, 0

    def forward(self, x: Any) -> Any:
        self.rate /= 2
        self.calls += 1
        self.cache = genesis.cat([self.cache[-12:], x * self.rate])
        return self.cache.mean(0)


@pytest.mark.parametrize("each", [101, pytest.param(1, marks=pytest.mark.sweep)])
def test_a_signal_handler_finds_no_stand_ins(each: int) -> None:
    """It found a cache that nobody can read, and raised AttributeError in the user's program."""
    expected = [genesis.cat([ramp(7, 4) / 4, ramp(7, 4) / 8])[-12:], ramp(9, 4) / 16]
    state = genesis.cat(expected).tolist(), 0.0625, 3

    def lines(at: int) -> int:
        net, seen = Remembers(), list[Any]()
        compiled = genesis.compile(net)
        before = signal.signal(signal.SIGUSR1, lambda *_: seen.append((net.cache.tolist(), net.rate, net.calls)))
        try:
            for _ in range(2):
                compiled(ramp(7, 4))
            found = stopped(lambda: compiled(ramp(9, 4)), symbolic_call.SymbolicCall.__init__.__code__, at,
                            lambda: signal.raise_signal(signal.SIGUSR1))
            compiled(ramp(6, 4))
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert seen == [state] * (0 <= at < found) and net.calls == 4 and counts(compiled) == (3, 1)
        return found
    for at in range(0, lines(-1), each):
        lines(at)


def test_what_another_thread_raises_in_a_run_on_stand_ins_ends_the_call() -> None:
    """Of a function that only computes, beside which other threads may run. It passed for the function's own error."""
    def raised() -> None:
        here = ctypes.c_ulong(threading.get_ident())
        ctypes.pythonapi.PyThreadState_SetAsyncExc(here, ctypes.py_object(TimeoutError))

    def lines(at: int) -> int:
        compiled = genesis.compile(lambda x: (x * 2).sum() + x.shape[0])
        compiled(ramp(7, 4))
        raising = nullcontext() if at < 0 else pytest.raises(TimeoutError)
        found = 0
        with raising:
            found = stopped(lambda: compiled(ramp(9, 4)), symbolic_call.SymbolicCall.__init__.__code__, at, raised)
        assert float(compiled(ramp(9, 4))) == float((ramp(9, 4) * 2).sum() + 9)
        return found
    for at in range(0, lines(-1), 151):
        lines(at)


OTHER = genesis.zeros(4)


def test_what_is_written_on_stand_ins_alone_is_not_written() -> None:
    """A C function that takes no stand-in raises there, and the code goes on otherwise."""
    mean = genesis.zeros(4)

    def writes(x: Any) -> Any:
        try:
            int.bit_count(x.shape[0])
        except TypeError:
            OTHER.add_(1)
        mean.add_(x.sum(0) + 0 * OTHER)
        return x * 2
    compiled = genesis.compile(writes)
    for rows in (7, 9, 12):
        compiled(ramp(rows, 4))
    assert OTHER.tolist() == [0] * 4 and OTHER._version == 0
    assert mean.tolist() == sum(ramp(rows, 4).sum(0) for rows in (7, 9, 12)).tolist()


def test_a_net_beside_another_thread_has_a_capture_for_each_size() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        beside = Beside()
        for rows in (7, 9, 12, 7):
            beside.same(rows)
        assert counts(beside.compiled) == (3, 1) and "another thread" in genesis.explain(beside.compiled)
    finally:
        over.set()
        thread.join()


def test_a_function_that_writes_to_its_argument_has_a_capture_for_each_size() -> None:
    def drops(x: Any) -> Any:
        return F.dropout(x, 0.5, inplace=True)
    compiled = genesis.compile(drops)
    for rows in (7, 9, 12):
        compiled(ramp(rows, 4))
    assert counts(compiled) == (3, 0) and "writes to an argument" in genesis.explain(compiled)
