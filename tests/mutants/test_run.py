"""A planted fault that makes something endless, or grow, is ended and counts as noticed, with what it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import pytest

from tests.mutants.table import ROOT

RUNS: Final = """
import json, sys
from pathlib import Path
from tests.mutants.run import Limits, Place, each, terminable, verdict
from tests.mutants.table import Fault
terminable()
place, limits = Place(Path(sys.argv[1])), Limits(int(sys.argv[2]), 1 << 30)
faults = [Fault(new, "", "work.py", "return 1", new, ("test_work.py",)) for new in json.loads(sys.argv[3])]
for run, status, _ in each([place], [(fault, fault.tests) for fault in faults], limits=limits):
    print(json.dumps([run.fault.name, verdict(run, status)]), flush=True)
"""
"""Runs the faults that its third argument lists, in the tree that its first names, with so many seconds for each."""

ENDLESS: Final = "while True: pass"
GROWS: Final = "return [bytearray(1 << 24) for _ in iter(int, 1)]"
SURVIVES: Final = "return 1 + 0"
NOTICED: Final = "return 2"
DIES: Final = "import os; os.abort()"
LEAVES: Final = ("import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'while True: pass', 'left behind'], "
                 "start_new_session=True); return 2")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A tree of one function and its test. What a test that failed left running in it ends with it."""
    place = tmp_path / "tree0"
    place.mkdir()
    (place / "work.py").write_text("def work():\n    return 1\n")
    (place / "test_work.py").write_text("from work import work\n\n\ndef test_work():\n    assert work() == 1\n")
    yield place
    for process in _left_in(place):
        os.kill(process, signal.SIGKILL)


def _begin(tree: Path, seconds: int, faults: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", RUNS, str(tree), str(seconds), json.dumps(faults)], cwd=ROOT,
                            stdout=subprocess.PIPE, text=True)


def _verdicts(tree: Path, seconds: int, faults: list[str]) -> dict[str, str]:
    with _begin(tree, seconds, faults) as runs:
        assert runs.stdout is not None
        return dict(json.loads(line) for line in runs.stdout)


def _left_in(tree: Path) -> list[int]:
    """The processes that work in a tree."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(os.readlink(f"/proc/{process}/cwd")) == tree:
                found.append(int(process))
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


def test_a_limit_that_is_reached_counts_as_noticed(tree: Path) -> None:
    assert _verdicts(tree, 5, [ENDLESS, GROWS, SURVIVES, NOTICED, DIES]) == {
        ENDLESS: "killed (no end in 5 s)", GROWS: "killed (more than 1 GiB)", SURVIVES: "SURVIVED",
        NOTICED: "killed", DIES: "killed (died of SIGABRT)"}
    assert (tree / "work.py").read_text() == "def work():\n    return 1\n"


def _waits_until_none_is_left(tree: Path, seconds: float) -> bool:
    until = monotonic() + seconds
    while _left_in(tree) and monotonic() < until:
        sleep(0.1)
    return not _left_in(tree)


@pytest.mark.sweep
def test_what_left_the_group_of_a_run_ends_by_its_processor_time(tree: Path) -> None:
    assert _verdicts(tree, 3, [LEAVES]) == {LEAVES: "killed"}
    assert len(_left_in(tree)) == 1
    assert _waits_until_none_is_left(tree, 60)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_runs_end_with_the_one_who_started_them(tree: Path, sent: signal.Signals) -> None:
    with _begin(tree, 100, [ENDLESS]) as runs:
        until = monotonic() + 60
        while len(_left_in(tree)) != 1 and monotonic() < until:
            sleep(0.1)
        assert len(_left_in(tree)) == 1
        runs.send_signal(sent)
    assert _waits_until_none_is_left(tree, 10)
    assert (tree / "work.py").read_text() == "def work():\n    return 1\n"
