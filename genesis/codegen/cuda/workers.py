"""The processes that compile kernels: started when needed, kept for the next kernel, replaced when they die.

A worker is `python -P -m genesis.codegen.cuda.worker`, which reads and writes JSON lines. It is neither forked nor
spawned by multiprocessing, because a user's script may have no `__main__` guard and its process holds a CUDA context.
It has a session of its own, so that Ctrl-C at a terminal reaches only the program that was started there.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

COMMAND: Final = (sys.executable, "-P", "-m", "genesis.codegen.cuda.worker")
"""-P: `-m` alone would import `base64.py` and the like from the directory that the user happens to be in."""

TRIES: Final = 2
"""How often a kernel is given to a worker: one that dies (killed for memory, say) is replaced once."""

PATIENCE: Final = 10.0
"""Seconds that a worker has for ending when the program ends; it may be in the middle of a kernel."""


FOLDER: Final = "genesis-triton-"
"""How the names of the workers' folders begin."""


@dataclass(frozen=True)
class Used:
    """What processes took: seconds of processor time, with that of their assemblers, and the most bytes of memory."""

    seconds: float = 0.0
    peak_bytes: int = 0

    def __add__(self, other: Used) -> Used:
        return Used(self.seconds + other.seconds, self.peak_bytes + other.peak_bytes)


def used_here() -> Used:
    """What this process took up to now: with the time of its children that have ended, and by the most memory that it
    had itself. (`ru_maxrss` would be that of the process that started it, where that had more.)"""
    here, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    seconds = here.ru_utime + here.ru_stime + children.ru_utime + children.ru_stime
    return Used(round(seconds, 2), int(peak.split()[1]) << 10)


class WorkerDied(RuntimeError):
    """A worker ended, or said something that is no answer."""


class Worker(subprocess.Popen[str]):
    """A process that waits for kernels, with a folder of its own for what it and Triton's assembler write meanwhile.

    A worker that ends by itself removes the folder. One that is killed cannot, so who ends it does.

    Args:
        command: how it is started.
        variables: more of its environment.
        quiet: nobody sees what it writes to standard error.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None, *, quiet: bool = False):
        self.folder = tempfile.mkdtemp(prefix=FOLDER)
        try:
            super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.DEVNULL if quiet else None, start_new_session=True,
                             env={**_environment(), "TMPDIR": self.folder, **(variables or {})})
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        """Remove its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class WorkerPool:
    """Processes that wait for kernels. Threads may ask at the same time, each gets a worker of its own.

    Args:
        most: how many kernels a caller should ask for at once.
        command: how a worker is started.
    """

    def __init__(self, most: int, command: Sequence[str] = COMMAND):
        self.most = most
        self._command = tuple(command)
        self._numbers = count()
        self._forget()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """A worker's answer to a request. A worker that does not answer it leaves the pool, and another one is asked.

        Raises:
            WorkerDied: so did the other one.
            OSError: no process can be started.
        """
        if self._owner != os.getpid():  # forked: the workers are the parent's, who reads from the same pipes
            self._forget()
        for left in reversed(range(TRIES)):
            worker = self._waiting() if left == TRIES - 1 else None
            worker = worker or self._start()
            try:
                answer = _exchange(worker, {**request, "id": next(self._numbers)})
            except WorkerDied:
                if not left:
                    raise
            else:
                if "used" in answer:
                    self._used[worker.pid] = Used(*answer["used"])
                self._idle.put(worker)
                return answer
        raise AssertionError("the last try returns or raises")

    @property
    def used(self) -> Used:
        """What its workers had taken when each gave its last answer."""
        return sum(list(self._used.values()), Used())

    def close(self) -> None:
        """End the idle workers."""
        if self._owner != os.getpid():
            return
        ending = []
        while (worker := self._waiting()) is not None:
            assert worker.stdin is not None
            worker.stdin.close()
            ending.append(worker)
        for worker in ending:
            try:
                worker.wait(PATIENCE)
                worker.forget()  # it died, perhaps, before it read that it was to end
            except subprocess.TimeoutExpired:
                end(worker)

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        self._used: dict[int, Used] = {}

    def _waiting(self) -> Worker | None:
        """A worker that has nothing to do; those that died meanwhile are dropped."""
        while True:
            try:
                worker = self._idle.get_nowait()
            except Empty:
                return None
            if worker.poll() is None:
                return worker
            end(worker)

    def _start(self) -> Worker:
        return Worker(self._command)


def _exchange(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request. Whatever goes wrong, the worker is ended then: what it says next would be stale."""
    assert worker.stdin is not None and worker.stdout is not None
    try:
        try:
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
        except (OSError, UnicodeDecodeError):
            line = ""
        answer = _parsed(line)
        if answer is None or answer.get("id") != request["id"]:
            raise WorkerDied(_complaint(worker, line))
    except BaseException:
        end(worker)
        raise
    return answer


def _parsed(line: str) -> dict[str, Any] | None:
    """A whole line that holds an object; None for one that was cut short."""
    if not line.endswith("\n"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _complaint(worker: Worker, line: str) -> str:
    if line.endswith("\n"):
        return f"the compile worker gave no answer to what it was asked, but {line[:200]!r}"
    try:
        status = worker.wait(1.0)
    except subprocess.TimeoutExpired:
        return "the compile worker closed its output"
    return f"the compile worker ended with status {status}" + (f", in the middle of {line[:80]!r}" if line else "")


def end(worker: Worker) -> None:
    """Kill it and its assembler; leave no zombie, no open pipe, no folder."""
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)  # its session has its number
    worker.wait()
    worker.forget()
    for pipe in (worker.stdin, worker.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:  # what was to be written is lost with the worker
            pass


def _environment() -> dict[str, str]:
    """This process's environment, without the GPU and with Genesis where Python looks for modules.

    An installed Genesis is found anyway. Its folder would come before the standard library's, so it is not named then.
    An empty entry of PYTHONPATH would be the current directory.
    """
    root = str(Path(__file__).resolve().parents[3])
    there = [*site.getsitepackages(), site.getusersitepackages()]
    installed = any(os.path.realpath(folder) == root for folder in there)
    named = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    path = os.pathsep.join(named if installed else [root, *named])
    return {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"}
