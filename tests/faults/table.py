"""Many faults, counted: by program and kind."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.faults.events import Place, chosen, turns_of
from tests.faults.programs import Unit
from tests.faults.trial import Bench, Program, Verdict
from tests.faults.tried import Tried

KINDS = ("line", "opcode", "allocation", "call", "depth", "limit")
ERRORS: dict[str, tuple[type[BaseException], ...]] = {
    "line": (KeyboardInterrupt, MemoryError), "opcode": (KeyboardInterrupt,), "allocation": (MemoryError,),
    "call": (MemoryError,), "depth": (RecursionError,), "limit": (TimeoutError, KeyError, RuntimeError, AttributeError),
}
"""What is raised at each kind of instants."""


@dataclass
class Row:
    """What came of the faults of a kind in a program.

    Attributes:
        tried: how many faults.
        outcomes: how many of each outcome, of the consistent ones.
        inconsistent: the verdicts with a problem.
    """

    program: str
    device: str
    kind: str
    tried: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    inconsistent: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Count a verdict."""
        self.tried += 1
        if verdict.problem:
            self.inconsistent.append(verdict)
        else:
            self.outcomes[verdict.outcome] += 1

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        wrong = len(self.inconsistent)
        return f"| {self.program} | {self.device} | {self.kind} | {self.tried} | {wrong} | {outcomes} |"


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Garbage is collected seldom, so that the instants of equal runs are the same."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def count(program: str, device: str, kind: str, every: int = 1, first: int = 0, tried: Tried | None = None,
          errors: Sequence[type[BaseException]] = ()) -> Row:
    """Inject each `every`-th fault of a kind into the program, from number `first` on.

    Args:
        errors: what is raised at each, by default `ERRORS` of the kind.
        tried: faults that were tried before, and are not tried again: each place once.
    """
    row = Row(program, device, kind)
    with Bench(device) as bench, quiet_collector():
        running = Program(program, "cuda" if device != "cpu" else "cpu", bench.driver)
        seen = 0
        for unit in running.units:
            places = running.places(unit, kind)
            if not _inject(row, running, unit, places, seen, every, first, tried, errors or ERRORS[kind], True):
                places = running.places(unit, kind)  # it has settled meanwhile
                _inject(row, running, unit, places, seen, every, first, tried, errors or ERRORS[kind], False)
            seen += len(chosen(places))
    return row


def _inject(row: Row, running: Program, unit: Unit, places: list[Place], seen: int, every: int, first: int,
            tried: Tried | None, errors: Sequence[type[BaseException]], stops: bool) -> bool:
    """Inject the faults into a unit; False where it `stops` at the first instant that does not come, as the unit has
    others by now."""
    turns = turns_of(places)
    for number, at in enumerate(chosen(places), seen):
        if number % every != first % every:
            continue
        for error in errors:
            name = (row.device, row.kind, error.__name__)
            if tried is not None and not tried.is_new(*name, unit.statement.text, places[at]):
                continue
            verdict = running.trial(unit, row.kind, at, error, places[at], turns[at])
            if stops and verdict.outcome == "not reached":
                stops = False
                if Counter(running.places(unit, row.kind)) != Counter(places):
                    return False
            row.add(verdict)
            if tried is not None:
                tried.write(*name, places[at], verdict)
    return True
