"""Processes that prepare at the same time, compiling on all cores, and use the GPU for timing one after another.

    run_in_turn(commands, ready_within=120)      # the parent: each prepares at once, is given its turn, and ends
    wait_for_turn()                              # a child, between its preparation and what it times
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

READY: Final = "READY FOR ITS TURN"
"""The line that a child writes when it has prepared."""


def wait_for_turn() -> bool:
    """Tell the parent that this process has prepared, and wait until it may time. Returns False if it may not."""
    print(READY, flush=True)
    return bool(sys.stdin.readline())


class Child:
    """A process; its output is shown as it comes, but for the line that says that it is ready.

    Attributes:
        late: whether it was killed because it was not ready in time.
    """

    def __init__(self, command: Sequence[str]):
        self.command, self.late = command, False
        self.ready = threading.Event()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == READY:
                self.ready.set()
            else:
                self.lines.append(line)
                print(line, end="", flush=True)
        self.ready.set()  # it ended

    def take_turn(self, seconds: float) -> int:
        """Let it time, for at most so many seconds; returns its exit status."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # of one that died while it prepared
            self.process.stdin.write("go\n")
            self.process.stdin.close()
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self.process.wait()
        self.reader.join(10)
        return status

    def kill(self) -> None:
        """End it and the compilers that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def run_in_turn(commands: Sequence[Sequence[str]], ready_within: float, turn: float = 600.0) -> list[Child]:
    """Start all, wait until each is ready or has ended, then let each take its turn.

    Args:
        ready_within: seconds for all preparations together; who is not ready then is killed: it would disturb the
            others' times.
        turn: seconds a turn may take.
    """
    children = [Child(command) for command in commands]
    limit = time.monotonic() + ready_within
    try:
        for child in children:
            if not child.ready.wait(max(0.0, limit - time.monotonic())):
                print(f"not ready within {ready_within:g} s: {shlex.join(child.command)}", flush=True)
                child.late = True
                child.kill()
        for child in children:
            child.take_turn(turn)
    finally:
        for child in children:
            child.kill()
    return children
