"""All tests that want a GPU, with an account however the run ends: `python -m tests.on_gpu --seconds 400`.

A failure is printed when it happens, and each test's line is in the log as soon as it ended. When the seconds are
over, or SIGTERM comes, pytest is interrupted, so that it prints its summary, and what was running is named. If it does
not come to its end within `GRACE` seconds, as a process waits for a GPU that hangs, the account comes without it.

    python -m tests.on_gpu --seconds 400 --jobs 16 --log gpu.txt          # a machine with a GPU
    python -m tests.on_gpu --jobs 2 -- --pretend-gpu 60 tests/gpu         # one without: the host driver
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, TextIO

import pytest

from tests.conftest import missing_gpu

GRACE: Final = 30.0
"""Seconds that pytest has for its summary after an interruption: xdist gives its processes ten to end."""

SHOWN: Final = 12
"""Lines of a failure's report that are printed at once; the log has all."""


class Account:
    """What became of the tests so far: a plugin of the process that hands them out."""

    def __init__(self, log: TextIO):
        self.log = log
        self.start = time.monotonic()
        self.running: dict[str, float] = {}
        self.outcomes: Counter[str] = Counter()
        self.failed: list[str] = []
        self.terminal: pytest.TerminalReporter | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Remember who can print while output is captured."""
        self.terminal = config.pluginmanager.get_plugin("terminalreporter")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self.running[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's part has ended: its set-up, its call or its tear-down."""
        if report.failed:
            self.failed.append(report.nodeid)
            self._say(f"\nFAILED {report.nodeid} ({report.when})\n" + "\n".join(
                report.longreprtext.splitlines()[-SHOWN:]))
            self._note(report.longreprtext)
        if report.when == "call" or not report.passed:
            self.outcomes[report.outcome] += 1
            self._note(f"{self.seconds():7.1f} {report.outcome} {report.duration:.2f} s {report.nodeid}")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test has ended."""
        self.running.pop(nodeid, None)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file cannot be imported."""
        if report.failed:
            self.failed.append(report.nodeid)
            self._say(f"\nFAILED {report.nodeid} (collection)\n{report.longreprtext}")

    def summary(self) -> str:
        """The account."""
        now = time.monotonic()
        lines = [f"Account: {', '.join(f'{count} {outcome}' for outcome, count in sorted(self.outcomes.items()))}"
                 f" in {self.seconds():.0f} s"]
        lines += [f"not ended after {now - begun:.0f} s: {test}" for test, begun in self.running.items()]
        lines += [f"failed: {test}" for test in dict.fromkeys(self.failed)]
        return "\n".join(lines)

    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.start

    def _say(self, text: str) -> None:
        if self.terminal is not None:
            self.terminal.write_line(text)
            self.terminal.flush()

    def _note(self, line: str) -> None:
        print(line, file=self.log, flush=True)


def main(arguments: list[str]) -> int:
    """Run them; pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.on_gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600, help="after which the run is interrupted")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes; 0 for this one alone")
    parser.add_argument("--log", type=Path, default=Path("gpu_tests.txt"), help="a line for each test, as it ends")
    parser.add_argument("rest", nargs="*", metavar="pytest's", help="options and files, after --")
    given = parser.parse_args(arguments)
    if "--pretend-gpu" not in " ".join(given.rest) and (reason := missing_gpu()) is not None:
        print(f"{reason}: every test would be skipped. Without a GPU: -- --pretend-gpu 60", file=sys.stderr)
        return int(pytest.ExitCode.USAGE_ERROR)
    processes = ["-n", str(given.jobs), "--dist", "worksteal"] if given.jobs else []
    with given.log.open("w") as log:
        account = Account(log)
        limit(given.seconds, account)
        code = pytest.main(["-m", "gpu", "-rf", "--tb=short", "-q", *processes, *given.rest], [account])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print(account.summary(), flush=True)
        print(account.summary(), file=log)
    return int(code)


def limit(seconds: float, account: Account) -> None:
    """Interrupt pytest when the time is over or SIGTERM comes, and end the process if that does not help."""
    def give_up() -> None:
        print(f"{account.summary()}\npytest did not end when it was interrupted", flush=True)
        print(account.summary(), file=account.log, flush=True)
        os._exit(int(pytest.ExitCode.INTERRUPTED))

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        after(GRACE, give_up)
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupt)
    after(seconds, lambda: os.kill(os.getpid(), signal.SIGTERM))


def after(seconds: float, what: Callable[[], object]) -> None:
    """Have a thread do it then, if the process is still there."""
    timer = threading.Timer(seconds, what)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
