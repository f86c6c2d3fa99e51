"""Signal handlers of the program's wait for a function, and come behind it."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from signal import SIGALRM, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, raise_signal
from typing import Any

import pytest

from genesis.frontend.held_handlers import handlers_left, undisturbed
from genesis.ir.interrupting import from_outside
from tests.faults.events import Depths, Traced, injected


@contextmanager
def handled(**handlers: Any) -> Iterator[None]:
    """These functions handle signals, by name."""
    before = {name: signal.signal(getattr(signal, name), handler) for name, handler in handlers.items()}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def noting(found: list[Any]) -> Callable[..., None]:
    return lambda number, frame: found.append(signal.Signals(number).name)


def test_handlers_come_behind_it_in_order_and_once() -> None:
    found: list[Any] = []
    note = noting(found)

    def function() -> str:
        for number in (SIGTERM, SIGUSR1, SIGTERM):
            raise_signal(number)
        found.append("done")
        return "result"
    with handled(SIGUSR1=note, SIGTERM=note):
        assert undisturbed(function) == "result" and signal.getsignal(SIGUSR1) is signal.getsignal(SIGTERM) is note
    assert found == ["done", "SIGTERM", "SIGUSR1"]


def test_all_handlers_come_where_the_function_and_some_of_them_raise() -> None:
    found: list[Any] = []

    def late(number: int, frame: Any) -> None:
        found.append(number)
        raise TimeoutError(number)

    def function() -> None:
        for number in (SIGUSR1, SIGUSR2, SIGALRM):
            raise_signal(number)
        raise ValueError("its own")
    with handled(SIGUSR1=late, SIGUSR2=late, SIGALRM=late):
        with pytest.raises(TimeoutError) as caught:
            undisturbed(function)
        assert all(signal.getsignal(x) is late for x in (SIGUSR1, SIGUSR2, SIGALRM))
        assert from_outside(caught.value)
    assert found == [SIGUSR1, SIGUSR2, SIGALRM] and isinstance(caught.value.__context__, TimeoutError)


def test_a_handler_that_the_function_sets_stays_and_comes_at_once() -> None:
    found: list[Any] = []

    def own(number: int, frame: Any) -> None:
        found.append("own")

    def function() -> None:
        raise_signal(SIGUSR1)
        signal.signal(SIGUSR1, own)
        raise_signal(SIGUSR1)
        found.append("done")
    with handled(SIGUSR1=noting(found)):
        undisturbed(function)
        assert signal.getsignal(SIGUSR1) is own
    assert found == ["own", "done", "own"]  # the first is handled by who handles it when its turn comes, as Python does


@pytest.mark.parametrize("ignored", [signal.SIG_IGN, signal.SIG_DFL], ids=["ignored", "default"])
def test_a_handler_may_set_that_of_the_next(ignored: Any) -> None:
    found: list[Any] = []
    with handled(SIGUSR1=lambda *_: signal.signal(SIGUSR2, ignored), SIGUSR2=noting(found)):
        undisturbed(lambda: (raise_signal(SIGUSR1), raise_signal(SIGUSR2)))
        assert signal.getsignal(SIGUSR2) == ignored
    assert not found


def test_what_it_finds_in_a_handlers_place_calls_that_handler_ever_after() -> None:
    found: list[Any] = []
    with handled(SIGUSR1=noting(found), SIGUSR2=signal.SIG_DFL):
        kept = undisturbed(lambda: signal.getsignal(SIGUSR1))
        assert kept is not signal.getsignal(SIGUSR1)
        undisturbed(lambda: signal.signal(SIGUSR2, signal.getsignal(SIGUSR1)))
        for _ in range(2):
            raise_signal(SIGUSR2)
        signal.signal(SIGUSR1, kept)
        raise_signal(SIGUSR1)
        undisturbed(lambda: (raise_signal(SIGUSR1), found.append("done")))
    assert found == ["SIGUSR2", "SIGUSR2", "SIGUSR1", "done", "SIGUSR1"]


def test_inside_of_one_another_they_wait_for_the_outer_one() -> None:
    found: list[Any] = []

    def inner() -> None:
        raise_signal(SIGUSR1)
        found.append("inner")
    with handled(SIGUSR1=noting(found)):
        undisturbed(lambda: (undisturbed(inner), found.append("outer")))
    assert found == ["inner", "outer", "SIGUSR1"]


def test_ctrl_c_comes_at_once_but_by_a_handler_of_the_programs() -> None:
    found: list[Any] = []

    def function() -> None:
        raise_signal(SIGINT)
        found.append("done")
    with handled(SIGUSR1=noting(found)):
        with pytest.raises(KeyboardInterrupt):
            undisturbed(function)
        assert not found
        with handled(SIGINT=noting(found)):
            undisturbed(function)
    assert found == ["done", "SIGINT"]


def test_only_the_main_threads_are_held_back() -> None:
    """Elsewhere Python calls none, and none may be set."""
    found: list[Any] = []
    with handled(SIGUSR1=noting(found)):
        assert handlers_left() and not undisturbed(handlers_left)
        thread = threading.Thread(target=lambda: found.append(undisturbed(handlers_left)))
        thread.start()
        thread.join()
    assert found == [True] and not handlers_left()


def test_what_c_does_with_a_signal_goes_on() -> None:
    """`faulthandler` in front of a handler of Python's writes once, before and behind it; calls go on where
    `siginterrupt` says so."""
    def flags() -> bytes:
        """Its function and its flags, on Linux."""
        action = ctypes.create_string_buffer(512)
        ctypes.PyDLL(None).sigaction(int(SIGUSR2), None, action)
        return action.raw[:8] + action.raw[136:140]
    found: list[Any] = []
    with tempfile.TemporaryFile() as file, handled(SIGUSR1=noting(found), SIGUSR2=noting(found)):
        faulthandler.register(SIGUSR1, file, all_threads=False, chain=True)
        try:
            interrupting = flags()
            signal.siginterrupt(SIGUSR2, False)
            before = flags()
            assert before != interrupting
            assert undisturbed(lambda: (raise_signal(SIGUSR1), flags()))[1] == before == flags()
            raise_signal(SIGUSR1)
        finally:
            faulthandler.unregister(SIGUSR1)
        file.seek(0)
        assert file.read().count(b"most recent call first") == 2 and found == ["SIGUSR1"] * 2


def test_a_wakeup_fd_is_told_once() -> None:
    """As asyncio's, which handles a signal for each byte."""
    ours, its = socket.socketpair()
    with ours, its, handled(SIGUSR1=noting([])):
        its.setblocking(False)
        before = signal.set_wakeup_fd(its.fileno())
        try:
            undisturbed(lambda: raise_signal(SIGUSR1))
        finally:
            signal.set_wakeup_fd(before)
        assert ours.recv(8) == bytes([SIGUSR1])


def test_a_process_that_is_forked_meanwhile_has_its_handlers() -> None:
    """It may never leave the function, as a worker of a loader."""
    def function() -> int:
        process = os.fork()
        if not process:
            raise_signal(SIGUSR1)
            os._exit(3)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with handled(SIGUSR1=lambda *_: os._exit(7)):
        assert undisturbed(function) == 7


def test_a_signal_that_comes_where_handlers_are_set_raises_with_all_in_their_places() -> None:
    """Setting a handler calls those that wait."""
    def late(number: int, frame: Any) -> None:
        raise TimeoutError

    def another(number: int, frame: Any) -> None:
        pass
    from _thread import interrupt_main
    for number in (SIGUSR1, SIGUSR2, SIGTERM, SIGINT):
        with handled(SIGUSR1=late, SIGUSR2=late, SIGTERM=another):
            before = [signal.getsignal(x) for x in (SIGUSR1, SIGUSR2, SIGTERM)]
            with suppress(TimeoutError, KeyboardInterrupt):
                undisturbed(lambda number=number: (*map(interrupt_main, (number,)),))
            assert [signal.getsignal(x) for x in (SIGUSR1, SIGUSR2, SIGTERM)] == before


@pytest.mark.parametrize("kind", ["line", "opcode"])
def test_an_exception_at_any_instant_leaves_the_handlers(kind: str) -> None:
    found: list[Any] = []

    def function() -> None:
        undisturbed(lambda: raise_signal(SIGUSR1))
    instants = Traced(kind, ("frontend/held_handlers.py",))
    note = noting(found)
    with handled(SIGUSR1=note, SIGTERM=note):
        function()
        places = instants.places(function)
        found.clear()
        assert len(places) > 20
        for at, place in enumerate(places):
            with suppress(KeyboardInterrupt):
                instants.fail(function, at, injected(KeyboardInterrupt))
            assert signal.getsignal(SIGUSR1) is signal.getsignal(SIGTERM) is note, place
            assert len(found) <= 1, place
            found.clear()


def test_where_the_stack_ends_handlers_are_back() -> None:
    def function() -> None:
        undisturbed(lambda: None)
    finished, note = 0, noting([])
    with handled(SIGUSR1=note, SIGTERM=note):
        for room in range(40):
            with suppress(RecursionError):
                Depths().fail(function, room, RecursionError())
                finished += 1
            assert signal.getsignal(SIGUSR1) is signal.getsignal(SIGTERM) is note, room
    assert 0 < finished < 40
