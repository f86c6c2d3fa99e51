"""One fault, and what is asked afterwards: is all readable, is the state one that the program had, does it go on?"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch

import genesis
from genesis.ir.suggest import MissingName
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.faults import (  # noqa: F401  (they add to the programs)
    adverse_programs,
    combined_programs,
    further_programs,
    later_programs,
    loop_programs,
    part_programs,
    sized_programs,
    stateful_programs,
    waiting_programs,
    written_programs,
)
from tests.faults.events import Instants, Place, Traced, injected, instants_of, was_injected
from tests.faults.observing import Observed, Raises, differences, set_draws
from tests.faults.programs import PROGRAMS, Case, Unit
from tests.faults.rank_programs import RANK_PROGRAMS
from tests.faults.remembered import remembered_kernels

RUNS = 6
"""Runs of a program after which its instants are taken as they are."""


@dataclass(frozen=True)
class Verdict:
    """What came of a fault.

    Attributes:
        outcome: "before" or "after" for the state before or after the statement, "between" for one of a function's
            own statements; "lost" where the statement is done and what it returns is lost; "dropped" where a failed
            plan's writes are gone; "finished" where nothing was raised; "not reached" where there was no fault, as the
            statement came to its end without the instant; "at a with's end" where a context was not left, as the
            exception came between its block and its `__exit__`, where Python protects nothing.
        problem: what is inconsistent, "" for nothing.
        place: where the fault was.
        text: the statement.
    """

    outcome: str
    problem: str
    place: Place
    text: str


class Program:
    """A program on a device, with the states that it has between its statements."""

    def __init__(self, name: str, device: str = "cpu", driver: Any = None):
        self.name, self.device, self._driver = name, device, driver
        self.make: Callable[[str], Case] = PROGRAMS[name] if name in PROGRAMS else RANK_PROGRAMS[name]
        self._references: dict[int, Observed] = {}
        self._ends: dict[int, Observed] = {}
        self._exact = device == "cpu"

    def case(self, until: int) -> Case:
        """The program, run up to statement `until`."""
        case = self.make(self.device)
        case.run_all(0, until)
        return case

    def reference(self, at: int) -> Observed:
        """The state of the uninterrupted run between statements at - 1 and at."""
        if at not in self._references:
            case = self.make(self.device)
            first, last = case.target
            case.run_all(0, min(at, first))
            if first < at <= last and not any(u.last == at for u in case.units(first, last)):
                for statement in case.statements[first:at]:
                    case.run(statement)
            elif at > first:
                case.run_all(first, at)
            self._references[at] = case.observe()
        return self._references[at]

    def _know(self, unit: Unit) -> None:
        """Have all references that a verdict may ask for: after a fault nothing else is to run before it is judged."""
        for at in (*range(self._since(unit)[0], unit.last + 1), *self._starts):
            if at not in self._references:
                self.reference(at)

    @cached_property
    def units(self) -> list[Unit]:
        """What faults are injected into."""
        case = self.make(self.device)
        return case.units(*case.target)

    def places(self, unit: Unit, kind: str) -> list[Place]:
        """The instants of a unit, as each trial has them: what an earlier run leaves is not compiled or imported.

        How many runs that takes depends on what ran before in this process (places that were seen to move, sizes that
        were seen to change), so it is looked at until two runs in a row are the same.
        """
        case = self.case(unit.first)
        case.run(unit_of(case, unit).statement)
        found: list[Place] = []
        for _ in range(RUNS):
            before, case = found, self.case(unit.first)
            found = self._instants(kind).places(unit_of(case, unit).statement.run)
            if Counter(before) == Counter(found):
                break
        return found

    def _instants(self, kind: str) -> Instants:
        return instants_of(kind, self.device, self._driver)

    def trial(self, unit: Unit, kind: str, at: int, error: type[BaseException], place: Place, turn: int,
              by_place: bool = False) -> Verdict:
        """Inject a fault at an instant, which is its place's of number `turn`, and judge.

        Args:
            by_place: on a GPU, too, the instant is found by its place and turn, not by its number: where no part of
                the machine's work is there.
        """
        self._know(unit)
        case = self.case(unit.first)
        statement = unit_of(case, unit).statement
        fault, raised, instants = injected(error), None, self._instants(kind)
        dropped: list[object] = []  # in a finalizer
        unraisable, sys.unraisablehook = sys.unraisablehook, lambda found: dropped.append(found.exc_type)
        try:
            traced = kind in ("line", "opcode", "limit")
            if traced and (by_place or self.device == "cpu"):  # a GPU's frames are told apart by their callers'
                assert isinstance(instants, Traced)
                case.bind(instants.fail_in_turn(statement.run, place, turn, fault))
            else:
                case.bind(instants.fail(statement.run, at, fault))
        except BaseException as caught:
            if isinstance(caught, KeyboardInterrupt) and not was_injected(caught):
                raise
            raised = caught.with_traceback(None)
        finally:
            sys.unraisablehook = unraisable
            fault.__traceback__ = fault.__context__ = None  # its frames hold what the statement was about
        try:
            if kind != "limit":
                outcome, problem = self._judged(case, unit, raised, error)
            elif raised is None and not dropped and instants.last.place is not None:
                outcome, problem = "swallowed", "the handler's error is swallowed"
            elif raised is not None and raised is not fault and not _of_a_property(raised, error):
                outcome, problem = "other error", f"raised {type(raised).__name__}: {str(raised)[:120]}"
            else:  # it has nothing to do with what was computed: nothing of that may be given up
                outcome, problem = self._judged(case, unit, raised and injected(KeyboardInterrupt), KeyboardInterrupt)
        finally:
            case.restore_modes()
        if outcome in ("modes", "unreadable") and instants.last.unprotected:  # what the context puts back is as it was
            outcome, problem = "at a with's end", ""
        if not problem and isinstance(instants, Traced) and instants.last.code is None:
            outcome = "not reached"
        return Verdict(outcome, problem, instants.last.place or place, unit.statement.text)

    def _judged(self, case: Case, unit: Unit, raised: BaseException | None,
                error: type[BaseException]) -> tuple[str, str]:
        if raised is not None and not isinstance(raised, error):
            return "other error", f"raised {type(raised).__name__}: {str(raised)[:120]}"
        seen = case.observe()
        outcome, at, problem = self._placed(seen, unit, raised, error)
        if problem:
            return outcome, problem
        if at is None:
            return outcome, ""
        return outcome, self._goes_on(case, at, seen)

    def _placed(self, seen: Observed, unit: Unit, raised: BaseException | None,
                error: type[BaseException]) -> tuple[str, int | None, str]:
        """(outcome, the statement to go on with, problem)."""
        before = self.reference(unit.first)
        if wrong := differences(seen.modes, before.modes):
            return "modes", None, f"modes {', '.join(f'{name}={seen.modes[name]}' for name in wrong)}"
        if unreadable := [name for name, x in seen.kept.items() if isinstance(x, Raises)]:
            return "unreadable", None, f"unreadable: {unreadable[0]} {seen.kept[unreadable[0]].error}"
        ends = [unit.last] if raised is None else [unit.first, unit.last, *range(unit.first + 1, unit.last)]
        for at in ends[:2]:
            if not self._different(seen, at):
                return "before" if at == unit.first else "after", at, ""
        if raised is None:
            return "finished", None, f"finished with {self._different(seen, unit.last)}"
        if not self._different(seen, unit.last, unit.statement.binds):
            following = next(start for start in self._starts if start >= unit.last)
            return "lost", following if unit.last - unit.first > 1 else None, ""  # what follows needs the result
        for at in ends[2:]:
            if not self._different(seen, at):
                return "between", None, ""  # the function's variables are gone: there is no way on
        if issubclass(error, Exception):
            earliest, start = self._since(unit)
            for at in range(earliest, unit.last + 1):
                if not differences(seen.kept, self.reference(at).kept, self._exact) and not self._foreign(seen):
                    restarts = not differences(seen.kept, self.reference(start).kept, self._exact)
                    return "dropped", start if restarts else None, ""
        closest = min((self._different(seen, at) for at in ends), key=len)
        raises = [f"{name}: {x.error}" for name, x in seen.bound.items() if isinstance(x, Raises)]
        return "state", None, f"no state between statements: {', '.join(closest)}" + (
            f" ({raises[0]})" if raises else "")

    def _looked_at(self, at: int) -> Observed:
        """The end of a run without a fault whose state is looked at before statement `at`."""
        if at not in self._ends:
            case = self.case(at)
            set_draws(*case.observe().draws)
            case.run_all(at, len(case.statements))
            self._ends[at] = case.observe()
        return self._ends[at]

    def _since(self, unit: Unit) -> tuple[int, int]:
        """The starts of the iteration before, whose last writes may be pending, and of the unit's."""
        starts = [start for start in self._starts if start <= unit.first]
        return starts[-2:][0], starts[-1]

    @cached_property
    def _starts(self) -> list[int]:
        return self.make(self.device).starts

    @staticmethod
    def _foreign(seen: Observed) -> list[str]:
        """Names that raise something else than what was injected."""
        return [name for name, x in seen.bound.items() if isinstance(x, Raises) and not x.injected]

    def _different(self, seen: Observed, at: int, but: tuple[str, ...] = ()) -> list[str]:
        expected = self.reference(at)
        found = differences({**seen.kept, **seen.bound}, {**expected.kept, **expected.bound}, self._exact)
        return [name for name in found if name not in but]

    def _goes_on(self, case: Case, at: int, seen: Observed) -> str:
        """Run the rest; "" if its numbers are those of the uninterrupted run."""
        set_draws(*self.reference(at).draws)
        end = len(case.statements)
        try:
            case.resume(at)
            case.run_all(at, end)
        except BaseException as error:
            return f"going on raises {type(error).__name__}: {str(error)[:120]}"
        last = case.observe()
        expected = self.reference(end)
        # A flush more, for the look at the state, keeps other values for the backward: sums may be rounded otherwise,
        # and in low precision those values are rounded themselves, as in a run that is only looked at.
        wrong = differences({**last.kept, **last.bound}, {**expected.kept, **expected.bound}, False)
        if wrong:
            expected = self._looked_at(at)
            wrong = differences({**last.kept, **last.bound}, {**expected.kept, **expected.bound}, False)
        if at == end:  # the last iteration would have bound its results again
            wrong = [name for name in wrong if name in last.kept]
        return f"going on gives other {', '.join(wrong[:4])}" if wrong else ""


def _of_a_property(raised: BaseException, error: type[BaseException]) -> bool:
    """Python asks a class' `__getattr__` where one of its properties raises an AttributeError, and drops that: a weight
    that is computed is missed, as torch's is."""
    return error is AttributeError and isinstance(raised, MissingName)


def unit_of(case: Case, unit: Unit) -> Unit:
    """The same unit of another case of the program."""
    return next(u for u in case.units(*case.target) if u.first == unit.first)


class Bench:
    """A context in which programs run on a device: the host ("cpu"), a GPU ("gpu"), or a fake one."""

    def __init__(self, device: str):
        self._device, self._stack = device, ExitStack()
        self.driver: Any = None

    def __enter__(self) -> Bench:
        self._stack.callback(partial(setattr, genesis.config, "loss_chunk_bytes", genesis.config.loss_chunk_bytes))
        torch.set_num_threads(1)  # the tensors are tiny, and threads wait for one another where others use the cores
        if self._device not in ("cpu", "gpu"):
            from genesis.engine.backends import FakeCUDABackend
            self.driver = HostDriver(memory_bytes=256 << 20)
            self._stack.enter_context(FakeCUDABackend(self.driver))
            self._stack.enter_context(remembered_kernels())
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()
