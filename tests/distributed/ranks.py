"""Ranks for tests: processes that have joined a run with gloo, and call functions of the tests.

They are forked from a server that has imported what they need, so that one costs no import. A function is named by its
module, takes rank and world size, and returns what can be pickled.

Tensors are on the CPU. With GENESIS_TEST_DEVICE=cuda each rank has a GPU and NCCL, and the same tests run there; with
"host", each has the driver of a GPU that is none.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from genesis.distributed.store import StoreServer

VARIABLE = "GENESIS_TEST_DEVICE"
"""Environment variable: "cpu", "cuda" or "host"."""

LIMIT = 60
"""Seconds that an answer is waited for: only what hangs takes so long, however slow the machine."""


def forked() -> Any:
    """The way to start processes."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["genesis", "genesis.distributed", "genesis.nn.parallel", "torch.distributed",
                                  "genesis.runtime.cpu.gloo", "genesis.engine.plans", "genesis.passes.pipeline",
                                  "genesis.codegen.cpu.lower", "genesis.runtime.cpu.executor"])
    return found


def join(rank: int, size: int, port: int, backend: str | None = None, **variables: str) -> None:
    """Set what torchrun sets where its agent serves the store, and join the run."""
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True", **variables})
    import torch

    from genesis import distributed as dist
    torch.set_num_threads(1)
    use_device(rank)
    dist.init_process_group(backend or (None if os.environ.get(VARIABLE) == "cuda" else "gloo"))


def device_type() -> str:
    """Where this process' tensors are: "cpu" or "cuda". Tests compare what ranks do with one process on the CPU."""
    import genesis
    return str(genesis.get_default_device().type)


def use_device(rank: int) -> None:
    """Make this rank's GPU the place of new tensors, where the tests run on GPUs."""
    import genesis
    if os.environ.get(VARIABLE) == "host":
        from genesis.engine.backends import FakeCUDABackend
        from genesis.runtime.fake_cuda.driver import HostDriver
        FakeCUDABackend(HostDriver(memory_bytes=256 << 20)).__enter__()
    elif os.environ.get(VARIABLE) == "cuda":
        genesis.cuda.set_device(rank)
    if os.environ.get(VARIABLE, "cpu") != "cpu":
        genesis.set_default_device("cuda")


def on_the_host(reason: str) -> pytest.MarkDecorator:
    """Marks a test that is of the CPU alone."""
    return pytest.mark.skipif(os.environ.get(VARIABLE, "cpu") != "cpu", reason=reason)


def gpus_for(ranks: int) -> pytest.MarkDecorator:
    """Marks a test that starts so many ranks itself: on GPUs each needs its own."""
    import genesis
    return pytest.mark.skipif(os.environ.get(VARIABLE) == "cuda" and genesis.cuda.device_count() < ranks,
                              reason=f"a GPU for each of {ranks} ranks")


def _serve(rank: int, size: int, port: int, connection: Connection) -> None:
    from genesis import distributed as dist
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1)
    join(rank, size, port)
    while True:
        asked = connection.recv()
        if asked is None:
            break
        function, args = asked
        try:
            connection.send((True, function(rank, size, *args)))
        except BaseException:
            connection.send((False, traceback.format_exc()))
    dist.destroy_process_group()


class Ranks:
    """Processes of one run, which call a function of a test's together and give what each returns."""

    def __init__(self, size: int):
        self.size = size
        self._start()

    def _start(self) -> None:
        self.store = StoreServer(0)
        context = forked()
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, self.size, self.store.port, theirs), daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def __call__(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """function(rank, size, *args) of each rank; an exception of one fails the test with its traceback.

        If one does not answer, all print where they are, and others take their places.
        """
        for connection in self._connections:
            connection.send((function, args))
        answers = []
        for rank, connection in enumerate(self._connections):
            try:
                assert connection.poll(LIMIT), f"rank {rank} of {self.size} does not answer"
                answers.append(connection.recv())
            except (AssertionError, EOFError, ConnectionError) as error:
                self._start_again()
                raise AssertionError(f"rank {rank} of {self.size}: {error!r}") from error
        wrong = [f"rank {rank}:\n{answer}" for rank, (fine, answer) in enumerate(answers) if not fine]
        assert not wrong, "\n".join(wrong)
        return [answer for _, answer in answers]

    def _start_again(self) -> None:
        for process in self._processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(1)
        for process in self._processes:
            process.kill()
            process.join(LIMIT)
        self.store.close()
        self._start()

    def close(self) -> None:
        """End the processes."""
        for connection in self._connections:
            connection.send(None)
        for process in self._processes:
            process.join(LIMIT)
            if process.is_alive():
                process.kill()
        self.store.close()


def ended(processes: Sequence[BaseProcess]) -> list[int | None]:
    """The exit codes of processes, waited for."""
    left = list(processes)
    while left:
        done = wait([process.sentinel for process in left], timeout=LIMIT)
        assert done, f"{len(left)} processes do not end"
        left = [process for process in left if process.sentinel not in done]
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]
