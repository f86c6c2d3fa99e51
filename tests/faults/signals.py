"""SIGINT at random times over training runs: what a user's Ctrl-C does."""

from __future__ import annotations

import ctypes
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from genesis.engine import running
from tests.faults.events import Place
from tests.faults.observing import Observed, has_nan, set_draws
from tests.faults.programs import Case, Unit
from tests.faults.table import Row, quiet_collector
from tests.faults.trial import Bench, Program, Verdict

ITERATIONS = 30
"""Iterations that a training run has at least, after which the next run begins."""

LONGEST = 6e-3
"""Seconds within which a signal comes once it is asked for: a few iterations."""


class _Event(ctypes.Structure):
    """The `sigevent` of timer_create: send a signal."""

    _fields_ = (("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int),
                ("rest", ctypes.c_char * 48))


class _Times(ctypes.Structure):
    _fields_ = (("interval", ctypes.c_long * 2), ("value", ctypes.c_long * 2))


class Timer:
    """Sends this process a SIGINT after a delay. No thread does it: with other threads the engine takes other ways."""

    def __init__(self) -> None:
        self._libc, self._timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
        event = _Event(None, signal.SIGINT, 0, b"")
        if self._libc.timer_create(1, ctypes.byref(event), ctypes.byref(self._timer)):
            raise OSError(ctypes.get_errno(), "timer_create")

    def start(self, seconds: float) -> None:
        """Send the signal in so many seconds; 0 is never."""
        self._libc.timer_settime(self._timer, 0, ctypes.byref(_Times((0, 0), (0, int(seconds * 1e9)))), None)

    def close(self) -> None:
        """Send no signal any more."""
        self._libc.timer_delete(self._timer)


@contextmanager
def _timer() -> Iterator[Timer]:
    before, timer = signal.signal(signal.SIGINT, signal.SIG_IGN), Timer()
    try:
        yield timer
    finally:
        timer.close()
        signal.signal(signal.SIGINT, before)


class _Long(Program):
    """A program whose statements come again and again, and the state at each of its boundaries, from one run."""

    def __init__(self, name: str, device: str, driver: object):
        super().__init__(name, device, driver)
        short = self.make

        def long(device: str) -> Case:
            case = short(device)
            one, starts = len(case.statements), sorted({0, *case.starts} - {len(case.statements)})
            times = -(-ITERATIONS // len(starts))
            case.statements = case.statements * times
            case.starts = [one * i + start for i in range(times) for start in starts] + [one * times]
            case.target = (0, one * times)
            return case
        self.make = long
        case = long(self.device)
        self._references[0] = case.observe()
        for unit in case.units(*case.target):
            case.run(unit.statement)
            self._references[unit.last] = case.observe()
        if unfit := [name for name, x in self._references[case.target[1]].kept.items() if has_nan(x)]:
            raise ValueError(f"the run of {name} ends with NaN in {unfit[0]}, from which no other state is told")

    def reference(self, at: int) -> Observed:
        """The state of the run that nothing interrupted; inside of a compiled call, by the plain statements."""
        if at not in self._references:
            super().reference(at)
        return self._references[at]

    def interrupted(self, case: Case, unit: Unit, raised: KeyboardInterrupt) -> tuple[Verdict, int | None]:
        """The verdict, and the statement to go on with."""
        seen = case.observe()
        outcome, at, problem = self._placed(seen, unit, raised, KeyboardInterrupt)
        return Verdict(outcome, problem, Place("signal", unit.first), unit.statement.text), at


@contextmanager
def _machine_of(driver: Any) -> Iterator[None]:
    """The pretended GPU stands for hardware and its driver, which are no lines of Python: a signal that comes inside of
    them is met behind them, and one among the writes of a program behind all of these, which one loop of C starts."""
    if driver is None:
        yield
        return
    names = [name for name in dir(type(driver)) if not name.startswith("_") and callable(getattr(driver, name))]
    started = running.at_once
    for name in names:
        setattr(driver, name, _undisturbed(getattr(driver, name)))
    running.at_once = _undisturbed(started)  # type: ignore[misc]
    try:
        yield
    finally:
        running.at_once = started  # type: ignore[misc]
        for name in names:
            delattr(driver, name)


def _undisturbed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, behind which a signal is met that came inside of it. A mask would not do: any of the process's
    threads gets the signal, and the handler runs in the main one all the same."""
    def run(*what: Any, **how: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():  # where no handler runs
            return function(*what, **how)
        came: list[int] = []
        before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
        try:
            return function(*what, **how)
        finally:
            signal.signal(signal.SIGINT, before)
            if came:
                signal.raise_signal(signal.SIGINT)
    return run


SOON = 2e-4
"""Seconds within which a second signal comes: while the first one's exception is on its way, or right behind it."""


def _raises_twice(timer: Timer, chance: random.Random) -> Callable[[int, Any], None]:
    """A handler that raises KeyboardInterrupt, and has another signal come soon after each second one."""
    seen: list[int] = []

    def handle(number: int, frame: Any) -> None:
        seen.append(number)
        if len(seen) % 2:
            timer.start(chance.uniform(1e-6, SOON))
        raise KeyboardInterrupt
    return handle


def count_signals(name: str, device: str, wanted: int, seed: int = 0, twice: bool = False) -> Row:
    """Interrupt training runs of a program until so many signals came; `twice`: in pairs, one soon after the other."""
    row, chance = Row(name, device, "signal"), random.Random(seed)
    unraisable, sys.unraisablehook = sys.unraisablehook, lambda found: None  # in a finalizer Python drops it
    with Bench(device) as bench, _machine_of(bench.driver), quiet_collector(), _timer() as timer:
        program = _Long(name, "cuda" if device != "cpu" else "cpu", bench.driver)
        handler = _raises_twice(timer, chance) if twice else signal.default_int_handler
        try:
            while row.tried < wanted:
                _run(program, timer, chance, row, wanted, handler)
        finally:
            sys.unraisablehook = unraisable
    return row


def _interrupted(run: Callable[[], Any], handler: Callable[[int, Any], Any]) -> tuple[Any, KeyboardInterrupt | None]:
    """What the function gives, and the interrupt that ended it. No signal comes behind it."""
    raised, result = None, None
    try:
        try:
            signal.signal(signal.SIGINT, handler)
            result = run()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt as caught:
            raised = caught
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt as caught:  # a second one, where the first is caught
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raised = caught
    if raised is not None:
        raised.__traceback__ = raised.__context__ = None  # their frames hold what the statement was about
    return result, raised


def _run(program: _Long, timer: Timer, chance: random.Random, row: Row, wanted: int,
         handler: Callable[[int, Any], Any]) -> None:
    """One training run; it ends where a signal left something inconsistent.

    The first signal is asked for at any of the statements: a first call, which is captured or compiled, takes so long
    that else all signals would come in it.
    """
    case = program.make(program.device)
    units = {unit.first: unit for unit in case.units(*case.target)}
    at, end, first = 0, case.target[1], chance.choice([*units])
    while at < end:
        unit = units[at]
        if at == first:
            first = -1
            timer.start(chance.uniform(1e-6, LONGEST))
        try:
            result, raised = _interrupted(unit.statement.run, handler)
        except Exception as error:  # an earlier signal left something that shows now
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            timer.start(0)
            row.inconsistent.append(Verdict("going on", f"raises {type(error).__name__}: {str(error)[:160]}",
                                            Place("signal", at), unit.statement.text))
            case.restore_modes()
            return
        if raised is None:
            case.bind(result)
            at = unit.last
            continue
        timer.start(0)
        verdict, following = program.interrupted(case, unit, raised)
        row.add(verdict)
        bound_nothing = verdict.outcome == "after" and unit.statement.binds  # its result is lost, a stale one is there
        if verdict.problem or following is None or verdict.outcome in ("lost", "between") or bound_nothing:
            # There is no way on.
            timer.start(0)
            case.restore_modes()
            return
        at = following
        case.resume(at)
        set_draws(*program.reference(at).draws)
        timer.start(chance.uniform(1e-6, LONGEST) if row.tried < wanted else 0)
    timer.start(0)
    last = case.observe()
    if wrong := [name for name, x in program.reference(end).kept.items() if last.kept[name] != x] if (
            program.device == "cpu") else []:
        row.inconsistent.append(Verdict("end", f"the run ends with other {', '.join(wrong[:4])}", Place("signal", end),
                                        ""))
