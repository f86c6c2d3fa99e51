"""Plant each fault in a copy of the tree and run its tests there: `python -m tests.mutants.run --part 1/8`.

The tree itself is never touched. Starting Python and importing torch takes longer than most of these tests, so one
process does both once, and forks one for each fault. Genesis is imported after the fork.

A mistake may make a loop endless or a list grow, and what it starts may leave its process group. So each process of a
run has limits of time and memory, which what it starts inherits; a run that reaches one is killed, and the line of its
fault says so.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType
from typing import Final

from tests.mutants.table import ROOT, Fault, read


@dataclass(frozen=True)
class Limits:
    """What the tests of a fault may take. Reaching a limit is noticing the fault, too.

    Attributes:
        seconds: of wall-clock time for the run; each of its processes has twice as many of processor time, which also
            ends what left the run's process group.
        nbytes: of private memory for each process; an allocation beyond it raises `MemoryError`.
    """

    seconds: int = 120
    nbytes: int = 4 << 30

    def impose(self) -> None:
        """Limit the calling process, and those that it starts."""
        resource.setrlimit(resource.RLIMIT_DATA, (self.nbytes, self.nbytes))
        resource.setrlimit(resource.RLIMIT_CPU, (2 * self.seconds, 2 * self.seconds))

    def times(self, count: int) -> Limits:
        """The limits of the tests of so many faults in one run."""
        return Limits(self.seconds * count, self.nbytes)


LIMITS: Final = Limits()
"""Those of the table's rows: two runs at their limits leave room on a machine of 16 GB. That the tests themselves need
less is seen first, when they run without any fault."""

OUT_OF_TIME: Final = -1
"""How a run ended that was killed because its time was over."""

OUT_OF_MEMORY: Final = re.compile(r"\bMemoryError\b|can't allocate memory|DefaultCPUAllocator")
"""What the log of a run says, Python's or torch's words, that asked for more memory than it may have."""

HEAD: Final = ("-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-W", "ignore")


@dataclass
class Run:
    """Tests of one tree while they run."""

    place: Place
    fault: Fault | None
    process: int
    started: float
    limits: Limits


@dataclass(frozen=True)
class Place:
    """A copy of the tree, in which one fault at a time is planted."""

    root: Path

    @property
    def log(self) -> Path:
        """What the tests print that run in it."""
        return self.root.with_suffix(".log")

    def plant(self, fault: Fault) -> None:
        """Put the mistake where its text is. The file gets a time of its own, so that no compiled form of it is used,
        nor of another mistake in it."""
        file = self.root / fault.file
        text = fault.planted(file.read_text())
        os.replace(file, _aside(file))
        file.write_text(text)
        before = _aside(file).stat().st_mtime
        time = before + next(_TIMES)
        os.utime(file, (time, time))

    def mend(self, fault: Fault) -> None:
        """Take the mistake out again."""
        file = self.root / fault.file
        os.replace(_aside(file), file)


_TIMES: Final = count(10, 10)
"""Seconds by which planted mistakes are younger than their files."""


def _aside(file: Path) -> Path:
    return file.with_suffix(".before")


def copies(count: int, folder: Path) -> list[Place]:
    """So many copies of what git knows of the tree, and of what it does not ignore, with Genesis compiled in it."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    first = folder / "tree0"
    for name in names:
        if (ROOT / name).is_file():
            (first / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, first / name)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "genesis"], cwd=first, check=True)
    for i in range(1, count):
        shutil.copytree(first, folder / f"tree{i}")
    return [Place(folder / f"tree{i}") for i in range(count)]


def start(place: Place, fault: Fault | None, tests: Sequence[str], more: Sequence[str] = (),
          limits: Limits = LIMITS) -> Run:
    """Run tests in a copy, with a fault planted in it or None."""
    if fault is not None:
        place.plant(fault)
    process = os.fork()
    if not process:
        _child(place, [*HEAD, *(("-x",) if fault is not None else ()), *more, *tests], limits)
    return Run(place, fault, process, monotonic(), limits)


def _child(place: Place, arguments: list[str], limits: Limits) -> None:
    """Be a fresh process of pytest in the copy; does not return."""
    status = 3
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        limits.impose()
        output = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(place.root)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "genesis")]:
            del sys.modules[name]
        sys.modules["__main__"] = ModuleType("__main__")  # not the tree's; who starts ranks asks for one
        sys.path[:] = [str(place.root), *(path for path in sys.path if path not in ("", str(ROOT)))]
        sys.dont_write_bytecode = True
        with tempfile.TemporaryDirectory() as cache:
            os.environ.update(PYTHONPATH=str(place.root), PYTHONDONTWRITEBYTECODE="1", GENESIS_CACHE_DIR=cache)
            import pytest
            status = int(pytest.main(arguments))
            sys.stdout.flush()
    finally:
        os._exit(status)


def ended(run: Run) -> int | None:
    """How a run ended: pytest's status, `OUT_OF_TIME`, or less, a signal's number below that; None while it runs."""
    done, status = os.waitpid(run.process, os.WNOHANG)
    if not done and monotonic() - run.started < run.limits.seconds:
        return None
    end(run, alive=not done)
    if not done:
        return OUT_OF_TIME
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else OUT_OF_TIME - os.WTERMSIG(status)


def end(run: Run, alive: bool = True) -> None:
    """Kill what is left of a run, and take its fault out of the copy."""
    with suppress(ProcessLookupError):
        os.killpg(run.process, signal.SIGKILL)  # also what its tests started
    if alive:
        os.waitpid(run.process, 0)
    if run.fault is not None:
        run.place.mend(run.fault)


def verdict(run: Run, status: int) -> str:
    """What a fault's line says of how its run ended.

    >>> verdict(Run(Place(Path("/nowhere/tree0")), None, 0, 0.0, Limits(120)), OUT_OF_TIME)
    'killed (no end in 120 s)'
    """
    if status in (0, 1):
        if not status:
            return "SURVIVED"
        beyond = OUT_OF_MEMORY.search(run.place.log.read_text())
        return f"killed (more than {run.limits.nbytes / 2**30:g} GiB)" if beyond else "killed"
    if status == OUT_OF_TIME:
        return f"killed (no end in {run.limits.seconds} s)"
    return f"killed (died of {signal.Signals(OUT_OF_TIME - status).name})" if status < OUT_OF_TIME else "BROKEN"


def each(places: Sequence[Place], work: Sequence[tuple[Fault | None, Sequence[str]]],
         more: Sequence[str] = (), limits: Limits = LIMITS) -> Iterator[tuple[Run, int, float]]:
    """Run all of this, one in each copy at a time: the runs as they end, how, and after how many seconds. Who stops
    before the last one leaves none running."""
    rest, free, running = list(reversed(work)), list(places), list[Run]()
    try:
        while rest or running:
            while rest and free:
                fault, tests = rest.pop()
                own = limits if fault is not None else limits.times(max(len(tests), 1))
                running.append(start(free.pop(), fault, tests, more, own))
            sleep(0.02)
            for run in list(running):
                status = ended(run)
                if status is not None:
                    running.remove(run)
                    yield run, status, monotonic() - run.started
                    free.append(run.place)
    finally:
        for run in running:
            end(run)


def terminable() -> None:
    """Let SIGTERM be an exception, as SIGINT is: runs have process groups of their own, and would go on."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def warm() -> None:
    """Import what all tests import and no fault is in."""
    import hypothesis
    import numpy
    import pytest
    import torch
    del hypothesis, numpy, pytest, torch


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a part of the table; prints each fault and whether it was noticed. Returns 0 if all were."""
    options = _options(arguments)
    number, count = (int(x) for x in options.part.split("/"))
    faults = [fault for fault in read()[number - 1::count] if options.only in fault.name]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    terminable()
    begun = monotonic()
    warm()
    with tempfile.TemporaryDirectory() as folder:
        places = copies(options.jobs, Path(folder))
        tests = sorted({test for fault in faults for test in fault.tests})
        shares = [tests[i::options.jobs] for i in range(options.jobs)]
        failing: list[str] = []
        for run, status, _ in each(places, [(None, share) for share in shares if share]):
            failing += re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", run.place.log.read_text(), re.MULTILINE)
            if status not in (0, 1):
                print(run.place.log.read_text())
                print("tests of the table are not there, or cannot run")
                return 2
        survivors, broken = [], [fault for fault in faults if _any_of(fault.tests, failing)]
        for run, status, seconds in each(places, [(fault, fault.tests) for fault in faults if fault not in broken]):
            assert run.fault is not None
            word = verdict(run, status)
            print(f"{seconds:5.1f} s  {word:8}  {run.fault.file}: {run.fault.name}", flush=True)
            if status == 0:
                survivors.append(run.fault)
            elif word == "BROKEN":
                broken.append(run.fault)
                print(run.place.log.read_text())
    return _report(faults, survivors, broken, (monotonic() - begun) / 60)


def _any_of(tests: Sequence[str], failing: Sequence[str]) -> bool:
    """Whether one of these tests fails without any fault."""
    return any(name == test or name.startswith(f"{test}[") for test in tests for name in failing)


def _report(faults: list[Fault], survivors: list[Fault], broken: list[Fault], minutes: float) -> int:
    killed = len(faults) - len(survivors) - len(broken)
    print(f"{len(faults)} faults, {killed} killed, {len(survivors)} survived, {minutes:.1f} minutes")
    for fault in survivors:
        print(f"survived: {fault.name} ({fault.file}): {fault.why}")
    for fault in broken:
        print(f"broken: {fault.name} ({fault.file}): its tests fail without it, or cannot run")
    return int(bool(broken or survivors))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="1/1", help="i/n: every n-th row, from the i-th on")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--only", default="", help="rows whose names hold this text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
