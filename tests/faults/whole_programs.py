"""Time limits in ordinary programs (`tests/programs`): a signal's handler raises at a random time of a run.

    python -m tests.faults.whole_programs --limits 10    # twenty programs, every second one compiled
    python -m tests.faults.whole_programs --device cuda --programs vae

Its error comes out as it is, the modes are those before, and the next run of the program gives all numbers by the bit.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

import genesis
from tests.faults.observing import modes
from tests.faults.signals import _machine_of, _timer
from tests.faults.trial import Bench
from tests.programs.families import PROGRAMS
from tests.programs.lab import results

ERRORS = (TimeoutError, KeyError, RuntimeError, AttributeError)


def main() -> int:
    """Print each program's limits, those that came, and what was wrong; returns whether anything was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="", help="names, separated by commas; each third one by default")
    parser.add_argument("--limits", type=int, default=10, help="in each program")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for the fake GPU")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    names, chance = given.programs.split(",") if given.programs else [*PROGRAMS][::3], random.Random(given.seed)
    wrong = 0
    with Bench(given.device) as bench, _machine_of(bench.driver), _timer() as timer, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for at, name in enumerate(names):
            def run(name: str = name, compiled: bool = at % 2 == 1) -> list[np.ndarray]:
                return results(name, genesis, compiled, given.device)
            came, problems = limited(run, given.limits, timer, chance)
            wrong += len(problems)
            print(f"| {name} | {given.limits} | {came} | {len(problems)} |", *islice(problems, 3), flush=True)
    print(f"{wrong} wrong")
    return 1 if wrong else 0


def limited(run: Callable[[], list[np.ndarray]], limits: int, timer: Any,
            chance: random.Random) -> tuple[int, list[str]]:
    """(how many limits came while it ran, what was wrong)."""
    run()
    expected, before = run(), modes()
    began = time.perf_counter()
    run()
    seconds, came, problems = time.perf_counter() - began, 0, list[str]()
    for number in range(limits):
        limit, fired, dropped = ERRORS[number % len(ERRORS)]("too late"), list[str](), list[object]()
        sys.unraisablehook = lambda found, dropped=dropped: dropped.append(found.exc_type)  # in a finalizer

        def handle(sent: int, frame: Any, limit: Exception = limit, fired: list[str] = fired) -> None:
            fired.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
            raise limit
        raised: BaseException | None = None
        try:
            try:
                signal.signal(signal.SIGINT, handle)
                timer.start(chance.uniform(1e-5, seconds))
                run()
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                timer.start(0)
                sys.unraisablehook = sys.__unraisablehook__
        except BaseException as error:
            raised = error
        came += len(fired)
        if fired and raised is not limit and not dropped:
            problems.append(f"{type(limit).__name__} at {fired[0]}: {raised!r:.200}")
        limit.__traceback__ = None
        raised = None
        if (now := modes()) != before:
            problems.append(f"modes after {fired}: {now}")
        if not all(map(np.array_equal, run(), expected)):
            problems.append(f"other numbers after {type(limit).__name__} at {fired}")
    return came, problems


if __name__ == "__main__":
    raise SystemExit(main())
