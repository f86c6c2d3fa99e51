"""Start a script in several processes of this host, which find each other.

    genesis launch -n 4 train.py --epochs 3
    genesis launch -n 2 -m genesis why train.py

Each gets what torchrun would set: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Output of rank 0 is shown as
it comes; the others' only what they write to stderr. When one fails, the others have a while to say why, then they are
ended; the exit status is that of the first that failed. A signal that ends this process (SIGTERM, SIGHUP) goes to all,
which have a while to save what they did.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

HELP = "start a script in several processes of this host"

PATIENCE: Final = 15.0
"""Seconds that the others have to end by themselves after one failed: they say which rank it was."""


TIME_TO_SAVE: Final = 30.0
"""Seconds that all have to end by themselves after such a signal, as with torchrun."""


class Told(BaseException):
    """A signal that ends this process has come.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int):
        super().__init__(number)
        self.number = signal.Signals(number)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("-n", "--nproc", type=int, required=True, help="how many processes")
    parser.add_argument("--port", type=int, default=0, help="where rank 0 serves the store (a free port)")
    parser.add_argument("--all-output", action="store_true", help="show what all ranks write, not only rank 0")
    parser.add_argument("-m", "--module", action="store_true", help="the script is a module, as `python -m` takes one")
    parser.add_argument("script", help="a Python file, or the name of a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    parser.set_defaults(rest=[])  # what is behind a --, which is the script's, too


def run(arguments: argparse.Namespace) -> int:
    """Start the processes and wait for them."""
    if arguments.nproc < 1:
        print("genesis launch: -n is at least 1", file=sys.stderr)
        return 2
    command = [sys.executable, *["-m"] * arguments.module, arguments.script, *arguments.arguments]
    command += ["--", *arguments.rest] if arguments.rest else []
    processes: list[subprocess.Popen[bytes]] = []
    before = {number: signal.signal(number, _raise) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        processes += start(command, arguments.nproc, arguments.port, arguments.all_output)
        return wait(processes)
    except Told as told:
        _end(processes, told.number, TIME_TO_SAVE)
        return 128 + told.number
    except BaseException:
        _end(processes, signal.SIGINT)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Told(number)


def start(command: Sequence[str], count: int, port: int = 0, all_output: bool = False) -> list[subprocess.Popen[bytes]]:
    """The processes of a run."""
    port = port or free_port()
    found = []
    for rank in range(count):
        variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
                     "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        silent = rank > 0 and not all_output
        found.append(subprocess.Popen(command, env={**os.environ, **variables},
                                      stdout=subprocess.DEVNULL if silent else None))
    return found


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


def wait(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """The exit status of the run: 0, or that of the first process that failed (128 + n if signal n ended it)."""
    failed: int | None = None
    deadline = float("inf")
    while True:
        codes = [process.poll() for process in processes]
        if failed is None:
            rank = next((rank for rank, code in enumerate(codes) if code), None)
            if rank is not None:
                failed, deadline = codes[rank], time.monotonic() + PATIENCE
                how = f"signal {-failed}" if failed and failed < 0 else f"exit status {failed}"
                print(f"genesis launch: rank {rank} ended with {how}", file=sys.stderr, flush=True)
        if all(code is not None for code in codes):
            break
        if time.monotonic() > deadline:
            _end(processes, signal.SIGTERM)
            deadline = time.monotonic() + PATIENCE
        time.sleep(0.05)
    return 0 if not failed else 128 - failed if failed < 0 else failed


def _end(processes: Sequence[subprocess.Popen[bytes]], how: signal.Signals, seconds: float = PATIENCE / 3) -> None:
    """End the processes that still run: asked first, then killed."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(how)
    end = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
