"""An exception or a handler in the middle of a program: all of it has happened, or nothing."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import mul
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import genesis
from genesis import nn, optim
from genesis.engine import preparation, running
from genesis.engine.state import Record, engine_state
from genesis.frontend import recording
from genesis.frontend.at_once import at_once, attributes, changes
from genesis.ir.interrupting import from_inside, from_outside, interrupts, of_computing, told_later
from genesis.runtime.contexts import uncollected
from genesis.runtime.cpu.executor import CPUExecutor, _Bound
from genesis.runtime.cpu.one_call import OneCall
from tests.faults.events import Depths, Traced, injected


class Stop(BaseException):
    """What a handler raises."""


@contextmanager
def inside(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: Callable[[], None]) -> Iterator[None]:
    """Inside, a call of this function begins with something else, once."""
    function, left = getattr(owner, name), [before]

    def interrupted(*args: Any, **options: Any) -> Any:
        if left:
            left.pop()()
        return function(*args, **options)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        yield


def stop() -> None:
    raise Stop


@pytest.mark.parametrize("place", [(_Bound, "bind"), (CPUExecutor, "call_all"), (CPUExecutor, "start")])
def test_an_interrupted_call_leaves_nothing_in_the_plan(monkeypatch: pytest.MonkeyPatch, place: tuple) -> None:
    def run(x: Any) -> Any:
        return ((x * 2 + 1) @ x).tolist()
    x, y = genesis.ones(2, 2), genesis.ones(2, 2) * 3
    genesis.eval(x, y)
    run(x)
    with inside(monkeypatch, *place, stop), pytest.raises(Stop):
        run(y)
    assert run(y) == [[42, 42], [42, 42]]


def trained() -> tuple[Any, Any, Callable[[], Any]]:
    net = nn.Linear(3, 2)
    optimizer = optim.AdamW(net.parameters(), lr=0.1)
    x = genesis.ones(4, 3)

    @genesis.compile
    def step() -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss
    for _ in range(3):
        step()
    assert step.hits
    return net, optimizer, step


def test_an_interrupted_replay_has_done_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net, optimizer, step = trained()
    before = net.weight.tolist(), net.weight.grad.tolist(), optimizer.state[net.weight]["step"]
    with inside(monkeypatch, CPUExecutor, "call_all", stop), pytest.raises(Stop):
        step()
    assert (net.weight.tolist(), net.weight.grad.tolist(), optimizer.state[net.weight]["step"]) == before
    step()
    assert optimizer.state[net.weight]["step"] == before[2] + 1 and net.weight.tolist() != before[0]


def test_a_handler_that_computes_in_the_middle_of_a_replay_ends_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a timer's handler, however often it comes, does not keep a step from its end. What it read before is whole."""
    net, optimizer, step = trained()
    count, weights, seen = optimizer.state[net.weight]["step"], net.weight.tolist(), []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append((net.weight * 1).tolist()))
    try:
        with inside(monkeypatch, CPUExecutor, "call_all", lambda: signal.raise_signal(signal.SIGUSR1)):
            step()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [weights] and net.weight.tolist() != weights
    assert optimizer.state[net.weight]["step"] == count + 1


def test_after_an_interrupt_pending_work_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = genesis.zeros(2), genesis.zeros(3)
    genesis.eval(x, y)
    x.add_(1)
    y.add_(2)
    with inside(monkeypatch, CPUExecutor, "start", stop), pytest.raises(Stop):
        genesis.eval(x, y)
    assert x.tolist() == [1, 1] and y.tolist() == [2, 2, 2]


class OutOfTime(Exception):
    """A program's own time limit."""


@pytest.mark.parametrize("kind", [TimeoutError, RuntimeError, IndexError, KeyError, OutOfTime])
@pytest.mark.parametrize("place", [(_Bound, "bind"), (CPUExecutor, "call_all"), (running, "_execute"),
                                   (running, "finish")], ids=lambda place: place[1])
def test_a_time_limit_keeps_pending_what_it_interrupts(
        monkeypatch: pytest.MonkeyPatch, place: tuple, kind: type[Exception]) -> None:
    """A handler's error is none of the step that it interrupts: it was lost, and its loss kept the error."""
    net, optimizer, _ = trained()
    count, weights, total = optimizer.state[net.weight]["step"], net.weight.tolist(), genesis.zeros(3)
    genesis.eval(total)
    optimizer.zero_grad()
    loss = net(genesis.ones(4, 3)).pow(2).sum()
    loss.backward()
    optimizer.step()
    total.add_(1)

    def limit(number: int, frame: Any) -> None:
        raise kind("too late")
    before = signal.signal(signal.SIGUSR1, limit)
    try:
        with inside(monkeypatch, *place, lambda: signal.raise_signal(signal.SIGUSR1)), pytest.raises(
                kind, match="too late"):
            total.tolist()
            loss.item()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert loss.item() > 0 and total.tolist() == [1, 1, 1]
    assert optimizer.state[net.weight]["step"] == count + 1 and net.weight.tolist() != weights


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("kind", [TimeoutError, RuntimeError, OutOfTime])
def test_a_short_read_that_a_time_limit_ends_is_read_again(
        monkeypatch: pytest.MonkeyPatch, kind: type[Exception], saves: bool) -> None:
    """A handler that computed first, as it saved a model, lost its error."""
    x = genesis.ones(2, 2)
    genesis.eval(x)
    for _ in range(3):
        assert (x @ x).tolist() == [[2, 2], [2, 2]]
    value = x @ x

    def limit(number: int, frame: Any) -> None:
        if saves:
            assert (x + 1).tolist() == [[2, 2], [2, 2]]
        raise kind("too late")
    before = signal.signal(signal.SIGUSR1, limit)
    try:
        with inside(monkeypatch, OneCall, "run", lambda: signal.raise_signal(signal.SIGUSR1)), pytest.raises(kind):
            value.tolist()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert value.tolist() == [[2, 2], [2, 2]]


def test_a_handler_that_computes_before_it_raises_ends_what_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that saved a model first lost its error: what it interrupted was prepared once more."""
    x, y = genesis.zeros(2), genesis.zeros(3)
    genesis.eval(x, y)
    x.add_(1)

    def limit(number: int, frame: Any) -> None:
        assert (y + 1).tolist() == [1, 1, 1]
        raise TimeoutError
    before = signal.signal(signal.SIGUSR1, limit)
    try:
        with inside(monkeypatch, preparation, "_prepared", lambda: signal.raise_signal(signal.SIGUSR1)), pytest.raises(
                TimeoutError):
            genesis.eval(x)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert x.tolist() == [1, 1]


class Deadline(RuntimeError):
    """A time limit with what it is of: no message alone makes one."""

    def __init__(self, seconds: float, of: str):
        super().__init__(f"{of}: {seconds} s are over")


def test_a_time_limit_is_no_refusal_of_an_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told as "matmul: ..." with the operands, or as a TypeError of its own class."""
    x = genesis.ones(2, 2)
    limit = Deadline(2.0, "the epoch")

    def late(number: int, frame: Any) -> None:
        raise limit
    before = signal.signal(signal.SIGUSR1, late)
    try:
        with inside(monkeypatch, recording, "make", lambda: signal.raise_signal(signal.SIGUSR1)), pytest.raises(
                Deadline) as found:
            x @ x
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found.value is limit


@pytest.mark.parametrize("handled", [False, True])
def test_a_handler_that_puts_the_one_before_back_is_one(monkeypatch: pytest.MonkeyPatch, handled: bool) -> None:
    """It raises when it handles no signal any more: its error was the computation's, and the write was lost."""
    x = genesis.zeros(2)
    genesis.eval(x)
    x.add_(1)

    def once(*given: Any) -> None:
        if not handled:
            signal.signal(signal.SIGUSR1, before)
        raise TimeoutError
    before = signal.signal(signal.SIGUSR1, once)
    try:
        with inside(monkeypatch, CPUExecutor, "start", lambda: signal.raise_signal(signal.SIGUSR1)), pytest.raises(
                TimeoutError):
            genesis.eval(x)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize("first", [np.ones(3), "call", None])
def test_a_function_that_is_given_frames_and_arrays_is_no_handler(first: Any) -> None:
    """As a profiler is."""
    def computing(*given: Any) -> None:
        raise ValueError
    with pytest.raises(ValueError) as found:
        computing(np.ones(3), first, sys._getframe(), np.ones(3))
    assert not interrupts(found.value)


@pytest.mark.parametrize("kind", [TimeoutError, RuntimeError, OutOfTime])
def test_what_a_handler_raises_is_not_left_to_who_reads_later(kind: type[Exception]) -> None:
    def limit(number: int, frame: object) -> None:
        raise kind
    before = signal.signal(signal.SIGUSR1, limit)
    try:
        with pytest.raises(kind), told_later:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    reached = []
    with told_later:
        reached.append("an error of what is computed")
        raise ValueError
    with pytest.raises(Stop), told_later:
        raise Stop
    assert reached


def test_who_asks_where_an_error_came_from_is_not_kept_by_it() -> None:
    """A copy of the variables of the function that caught it held the error, and this the function: what a flush had
    met lived on until the collector came."""
    class Met:
        pass

    def caught() -> Any:
        met = Met()
        try:
            return {}[met]
        except KeyError as error:
            assert not from_outside(error) and not interrupts(error)
        return weakref.ref(met)
    with uncollected:
        assert caught()() is None


class Worded(Exception):
    """A time limit that says what it is."""

    def __init__(self) -> None:
        super().__init__("the time is over")


def raised_by_another(kind: type[BaseException]) -> None:
    """Have it raised in this thread, as another one does: it comes at the next place where Python looks."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(kind))


def turning(kind: type[BaseException]) -> None:
    raised_by_another(kind)
    for _ in [1, 2, 3]:
        pass


def calling(kind: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(kind))


def beginning(kind: type[BaseException]) -> None:
    def begun() -> None:
        pass
    (*map(raised_by_another, [kind]), begun())


@pytest.mark.parametrize("where", [turning, calling, beginning])
@pytest.mark.parametrize("kind", [OutOfTime, Worded, TimeoutError, RuntimeError, KeyError])
def test_what_another_thread_raises_keeps_all_pending(
        monkeypatch: pytest.MonkeyPatch, kind: type[Exception], where: Callable[[type], None]) -> None:
    """Such an exception has no handler in its traceback, and no arguments but those that its class gives it."""
    x = genesis.zeros(2)
    genesis.eval(x)
    x.add_(1)
    with inside(monkeypatch, CPUExecutor, "start", partial(where, kind)), pytest.raises(kind) as found:
        genesis.eval(x)
    assert x.tolist() == [1, 1] and interrupts(found.value) and from_outside(found.value) != (kind is Worded)


def test_an_error_without_arguments_that_is_raised_here_is_the_computations() -> None:
    class Chain:
        def __matmul__(self, other: Any) -> Any:
            raise RuntimeError

    def without_memory() -> Any:
        return bytes(1 << 62)  # Python says nothing of it

    def ended() -> Any:
        return next(iter(()))
    for does in (without_memory, ended, SimpleQueue().get_nowait, lambda: Chain() @ 1, lambda: exec("assert 0")):
        with pytest.raises(Exception) as found:
            does()
        assert not found.value.args and not from_outside(found.value)


@pytest.mark.parametrize("classes", [of_computing, from_inside])
def test_an_except_lets_through_what_came_from_outside(classes: Callable[..., tuple[type[Exception], ...]]) -> None:
    def caught(does: Callable[[], Any]) -> str:
        try:
            does()
        except classes(LookupError, TimeoutError) as error:
            return type(error).__name__
        except Exception as error:
            return f"past it: {type(error).__name__}"
        return ""

    def late(number: int, frame: Any) -> None:
        raise KeyError("too late")
    assert caught(lambda: {}[1]) == "KeyError" and caught(lambda: 1 // 0) == "past it: ZeroDivisionError"
    before = signal.signal(signal.SIGUSR1, late)
    try:
        assert caught(lambda: signal.raise_signal(signal.SIGUSR1)) == "past it: KeyError"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert caught(lambda: turning(TimeoutError)) == "past it: TimeoutError"


def test_a_record_that_an_exception_left_behind_is_no_program_that_runs() -> None:
    x = genesis.zeros(2)
    genesis.eval(x)
    x.add_(1)

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_name == "run" and frame.f_code.co_filename.endswith("engine/running.py"):
            if event == "line" and engine_state.record is not None and x.storage.settled:
                sys.settrace(None)
                raise Stop
            return trace
        return None
    sys.settrace(trace)
    try:
        with pytest.raises(Stop):
            genesis.eval(x)
    finally:
        sys.settrace(None)
    assert x.tolist() == [1, 1] and (x + 1).tolist() == [2, 2] and engine_state.record is None


def test_a_second_interrupt_while_storages_are_told_of_the_first_ones_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is overwritten by then: what was computed of the old content is nowhere else."""
    x = genesis.ones(2)
    genesis.eval(x)
    y = x * 3
    x.add_(1)
    plain, left = running._settle, [stop, stop]

    def settle(*what: Any) -> None:
        if left:
            left.pop()()
        plain(*what)
    monkeypatch.setattr(running, "_settle", settle)
    with pytest.raises(Stop):
        genesis.eval(x, y)
    assert not left and (y.tolist(), x.tolist()) == ([3, 3], [2, 2]) and engine_state.record is None


def limited(room: int, function: Callable[[], Any]) -> Any:
    """What the function does where the stack has room for so many calls into one another."""
    return Depths().fail(function, room, RecursionError())


def test_where_the_stack_ends_all_stays_pending() -> None:
    """A step, its gradients, and a total beside it: RecursionError tells where its caller stands, and nothing of what
    is computed."""
    net, optimizer, _ = trained()
    total, outcomes = genesis.zeros(3), set()
    genesis.eval(total)
    for turn, room in enumerate(range(2, 40), 1):
        before, count = net.weight.tolist(), optimizer.state[net.weight]["step"]
        optimizer.zero_grad()
        loss = net(genesis.ones(4, 3)).pow(2).sum()
        loss.backward()
        total.add_(1)
        raised = False
        try:
            limited(room, optimizer.step)
        except RecursionError:
            raised = True
        stepped = optimizer.state[net.weight]["step"] - count
        assert (net.weight.tolist() != before) == stepped and (stepped or raised)
        assert total.tolist() == [turn] * 3 and loss.item() > 0 and net.weight.grad.tolist()[0][0] != 0
        outcomes.add((raised, stepped))
    assert outcomes == {(True, 0), (True, 1), (False, 1)}


def test_where_the_stack_ends_while_a_plan_runs_all_stays_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """In what a plan calls: the step that was asked for, its gradients and a total beside it are made afterwards."""
    net, optimizer, _ = trained()
    total = genesis.zeros(3)
    genesis.eval(total)
    before, count = net.weight.tolist(), optimizer.state[net.weight]["step"]
    optimizer.zero_grad()
    net(genesis.ones(4, 3)).pow(2).sum().backward()
    total.add_(1)
    with monkeypatch.context() as patch:
        patch.setattr(CPUExecutor, "start", no_stack)
        with pytest.raises(RecursionError):
            optimizer.step()
    assert optimizer.state[net.weight]["step"] == count + 1
    assert net.weight.tolist() != before and total.tolist() == [1] * 3 and net.weight.grad.tolist()[0][0] != 0


def no_stack(*what: Any) -> None:
    raise RecursionError("the stack's end")


def test_a_value_for_which_there_was_no_memory_is_computed_when_it_is_read_again(
        monkeypatch: pytest.MonkeyPatch) -> None:
    x = genesis.ones(2)
    genesis.eval(x)
    for beside in (False, True):
        for _ in range(3):  # the first is a program, and those behind it are read by its plan
            assert (x * 3 + 1).tolist() == [4, 4]
        value, other = x * 3 + 1, x * 5 if beside else None
        with monkeypatch.context() as patch:
            patch.setattr(CPUExecutor, "start", no_memory)
            patch.setattr(CPUExecutor, "run", no_memory)
            with pytest.raises(MemoryError):
                value.tolist()
        assert value.tolist() == [4, 4] and (other is None or other.tolist() == [5, 5])


def no_memory(*what: Any) -> None:
    raise MemoryError("no room")


def test_a_context_that_cannot_be_left_is_not_entered() -> None:
    """Leaving one takes more calls into one another than entering it. Some of these are of C, which Python 3.11 counts,
    too."""
    def inside() -> None:
        with uncollected:
            pass
    collects, finished = gc.isenabled(), 0
    gc.enable()
    try:
        for room in range(40):
            with suppress(RecursionError):
                limited(room, inside)
                finished += 1
            assert gc.isenabled(), f"with room for {room} calls"
    finally:
        if not collects:
            gc.disable()
    assert 0 < finished < 40


def test_changes_that_the_stack_has_no_room_for_are_not_made() -> None:
    """A later one of them may take more calls into one another than the first."""
    class Thing:
        a = b = 0
    finished, thing = 0, Thing()

    def change() -> None:
        at_once(changes([], [(setattr, thing, "a", thing.a + 1), attributes([thing], "b", [thing.b + 1])]))
    for room in range(40):
        with suppress(RecursionError):
            limited(room, change)
            finished += 1
        assert thing.a == thing.b == finished and gc.isenabled()
    assert 0 < finished < 40


def test_the_journal_has_one_record_a_program_whatever_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing a node or a storage; a replay of a step has one, too."""
    made: list[Any] = []

    def noted(*what: Any) -> Record:
        made.append(Record(*what))
        return made[-1]
    _, _, step = trained()
    monkeypatch.setattr(running, "Record", noted)
    step()
    assert len(made) == 1
    x = [genesis.zeros(2) for _ in range(50)]
    genesis.eval(*x)
    made.clear()
    for y in x:
        y.add_(1)
    genesis.eval(*x)
    assert len(made) == 1 and engine_state.record is None


def test_changes_are_made_in_order_or_not_at_all() -> None:
    class Thing:
        a = b = 0
    thing, collects = Thing(), gc.isenabled()
    at_once(changes([lambda: setattr(thing, "a", 1)], [(setattr, thing, "a", 2), attributes([thing], "b", [3])]))
    assert (thing.a, thing.b) == (2, 3)
    with pytest.raises(KeyError):
        at_once(changes([lambda: setattr(thing, "a", 4)], (), [((getattr, thing, "b"), 0)]))
    assert thing.a == 2 and gc.isenabled() == collects


def test_a_value_that_numpy_saw_keeps_its_history_through_an_exception_at_any_line() -> None:
    def loss() -> Any:
        found = (w * w).sum()
        found.detach().numpy().item()  # an array that is gone by now
        return found
    w, instants = genesis.ones(2, requires_grad=True), Traced("line")
    for at in range(len(instants.places(partial(mul, loss(), 2)))):
        seen = loss()
        with suppress(KeyboardInterrupt):  # the last lines may not come again: what is looked up once is remembered
            instants.fail(partial(mul, seen, 2), at, injected(KeyboardInterrupt))
        assert seen.requires_grad
        w.grad = None
        seen.backward()
        assert w.grad.tolist() == [2, 2]
