"""Faults: a rank that dies, hangs, fails or runs another program is named on all others, with its line, and the run
ends with exit codes that say so."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import nn
from genesis.distributed.fsdp import fully_shard
from genesis.distributed.store import StoreServer
from tests.distributed.ranks import LIMIT, ended, forked, gpus_for, join


def _rank(function: Any, rank: int, size: int, port: int, errors: str, started: Connection) -> None:
    """A rank whose stderr goes to a file, and which ends as Python does: with its hook and its exit code."""
    stream = open(errors, "w")  # noqa: SIM115, as long as the process
    os.dup2(stream.fileno(), 2)
    sys.stderr = stream
    join(rank, size, port, GENESIS_HEARTBEAT_TIMEOUT="4")
    x = genesis.ones(2)
    dist.all_reduce(x)
    x.tolist()  # all have connected
    started.send(os.getpid())
    try:
        function(rank)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        stream.flush()
        os._exit(1)
    dist.destroy_process_group()


def run(function: Any, tmp_path: Path, disturb: Any = lambda pids: None, resume: bool = False, size: int = 2) -> tuple[
        list[int | None], list[str]]:
    """Exit codes and what was written to stderr, of ranks that call the function."""
    store, context = StoreServer(0), forked()
    processes, pipes = [], []
    files = [str(tmp_path / f"{rank}.txt") for rank in range(size)]
    for rank in range(size):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=_rank, args=(function, rank, size, store.port, files[rank], theirs)))
        pipes.append(ours)
        processes[-1].start()
    pids = []
    try:
        for pipe in pipes:
            assert pipe.poll(LIMIT)
            pids.append(pipe.recv())
        disturb(pids)
        if resume:  # the one that was stopped cannot end by itself
            ended([process for rank, process in enumerate(processes) if rank != 1])
            os.kill(pids[1], signal.SIGKILL)
            os.kill(pids[1], signal.SIGCONT)
        codes = ended(processes)
    finally:  # what is left after a failure would be waited for when the tests end
        for process in processes:
            process.kill()
        store.close()
    return codes, [Path(file).read_text() for file in files]


def goes_on(rank: int) -> None:
    x = genesis.ones(4)
    for _ in range(10_000):
        dist.all_reduce(x, dist.ReduceOp.MAX)
        x.tolist()
        time.sleep(0.05)


def test_a_killed_rank_is_named(tmp_path: Path) -> None:
    codes, errors = run(goes_on, tmp_path, lambda pids: os.kill(pids[1], signal.SIGKILL))
    assert codes == [1, -signal.SIGKILL]
    assert "DistBackendError" in errors[0] and "rank 1 has not been heard of" in errors[0]
    assert "all_reduce(float32[4], max): rank 1" in errors[0]
    assert "at test_faults.py:" in errors[0] and "goes_on" in errors[0]


def one_fails(rank: int) -> None:
    x = genesis.ones(4)
    dist.all_reduce(x)
    x.tolist()
    if rank == 1:
        raise ValueError("no such file")
    dist.all_reduce(x)
    x.tolist()


def test_an_exception_on_one_rank_is_told_on_the_others(tmp_path: Path) -> None:
    codes, errors = run(one_fails, tmp_path)
    assert codes == [1, 1]
    assert "rank 1 failed: ValueError: no such file at test_faults.py:" in errors[0] and "one_fails" in errors[0]
    assert "ValueError: no such file" in errors[1]


def another_program(rank: int) -> None:
    x = genesis.ones(4)
    for _ in range(3):
        dist.all_reduce(x)
    if rank == 1:
        dist.barrier()
    else:
        gathered = genesis.empty(8)
        dist.all_gather_into_tensor(gathered, x)
        gathered.tolist()


def test_ranks_that_run_different_programs_are_told_with_both_lines(tmp_path: Path) -> None:
    codes, errors = run(another_program, tmp_path)
    assert codes == [1, 1]
    for told in errors:
        assert "ranks run different programs" in told
        for one in ("all_gather(float32[4])", "all_reduce(float32[1], sum)"):
            assert f"{one} at test_faults.py" in told


def one_ends(rank: int) -> None:
    if rank == 0:
        dist.barrier()


def test_a_rank_that_ends_early_is_named(tmp_path: Path) -> None:
    codes, errors = run(one_ends, tmp_path)
    assert codes == [1, 0]
    assert "rank 1 has ended" in errors[0]


@pytest.mark.sweep
def test_a_stopped_rank_is_named_after_the_time_without_beats(tmp_path: Path) -> None:
    codes, errors = run(goes_on, tmp_path, lambda pids: os.kill(pids[1], signal.SIGSTOP), resume=True)
    assert codes[0] == 1
    assert "rank 1 has not been heard of for" in errors[0]


@gpus_for(4)
def test_all_of_four_ranks_name_the_one_that_fails(tmp_path: Path) -> None:
    codes, errors = run(one_fails, tmp_path, size=4)
    assert codes == [1] * 4
    for rank in (0, 2, 3):
        assert "rank 1 failed: ValueError: no such file at test_faults.py:" in errors[rank], rank


@gpus_for(4)
def test_all_of_four_ranks_name_the_one_that_was_killed(tmp_path: Path) -> None:
    codes, errors = run(goes_on, tmp_path, lambda pids: os.kill(pids[1], signal.SIGKILL), size=4)
    assert codes == [1, -signal.SIGKILL, 1, 1]
    for rank in (0, 2, 3):
        assert "rank 1" in errors[rank] and "goes_on" in errors[rank], rank


def stuck(rank: int) -> None:
    """Rank 1 lives on, and never comes to the collective."""
    group = dist.new_group(timeout=timedelta(seconds=3))
    x = genesis.ones(4)
    dist.all_reduce(x, dist.ReduceOp.MAX, group)
    x.tolist()
    if rank == 1:
        while True:
            time.sleep(0.1)
    dist.all_reduce(x, group=group)
    x.tolist()


def test_a_collective_that_a_living_rank_does_not_come_to_times_out(tmp_path: Path) -> None:
    """The one that is elsewhere is killed when the other has ended."""
    codes, errors = run(stuck, tmp_path, resume=True)
    assert codes[0] == 1
    assert "all_reduce(float32[4], sum)" in errors[0] and "stuck" in errors[0] and "test_faults.py:" in errors[0]
    assert "rank 1 has not come to it; its last collective was all_reduce(float32[4], max)" in errors[0]


# Under fully_shard

def sharded_steps(rank: int, at: int, fault: str) -> None:
    """Steps of a sharded model; before step `at` something happens to rank 1."""
    layers: list[Any] = [nn.Linear(4, 4) for _ in range(3)]
    for layer in layers:
        fully_shard(layer)
    model: Any = fully_shard(nn.Sequential(*layers, nn.Linear(4, 1)))
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10_000):
        if rank == 1 and step == at:
            if fault == "exception":
                raise ValueError("no such row")
            if fault == "program":  # the forward of another model
                layers[0](genesis.ones(2, 4)).sum().backward()
            else:
                os.kill(os.getpid(), getattr(signal, fault))
        optimizer.zero_grad()
        loss = model(genesis.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
        loss.item()


FAULTS = {"SIGKILL": "rank 1 has not been heard of", "SIGSTOP": "rank 1 has not been heard of for",
          "exception": "rank 1 failed: ValueError: no such row at test_faults.py:",
          "program": "ranks run different programs"}


def check_sharded(fault: str, size: int, tmp_path: Path) -> None:
    codes, errors = run(partial(sharded_steps, at=3, fault=fault), tmp_path, resume=fault == "SIGSTOP", size=size)
    others = [rank for rank in range(size) if rank != 1]
    assert all(codes[rank] == 1 for rank in others), codes
    assert codes[1] == (-signal.SIGKILL if fault.startswith("SIG") else 1)
    for rank in others:
        assert FAULTS[fault] in errors[rank], errors[rank]
        assert "sharded_steps" in errors[rank] and "test_faults.py:" in errors[rank]
    if fault == "program":  # both lines are told
        assert "all_gather" in "".join(errors) and errors[0].count("test_faults.py:") >= 2


@pytest.mark.parametrize("fault", ["SIGKILL", "exception", "program",
                                   pytest.param("SIGSTOP", marks=pytest.mark.sweep)])
def test_a_fault_under_fully_shard_is_named_on_the_other_rank(fault: str, tmp_path: Path) -> None:
    check_sharded(fault, 2, tmp_path)


@gpus_for(4)
@pytest.mark.sweep
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_under_fully_shard_is_named_on_all_of_four_ranks(fault: str, tmp_path: Path) -> None:
    check_sharded(fault, 4, tmp_path)


# Rank 0, which serves the store where no launcher does

SCRIPT = """
import os, signal, sys
import genesis
from genesis import distributed as dist
dist.init_process_group("gloo")
x = genesis.ones(4)
for step in range(1000):
    if dist.get_rank() == 0 and step == 3:
        if sys.argv[1] == "exception":
            raise ValueError("no such file")
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    dist.all_reduce(x, dist.ReduceOp.MAX)
    x.tolist()
"""


@pytest.mark.parametrize("fault, told", [
    ("exception", "rank 0 failed: ValueError: no such file at script.py:10"),
    pytest.param("SIGKILL", "rank 0", marks=pytest.mark.sweep),
    pytest.param("SIGSTOP", "rank 0 or torchrun's agent, has ended or was stopped", marks=pytest.mark.sweep)])
def test_what_happens_to_the_rank_that_serves_the_store_is_told_on_the_other(fault: str, told: str,
                                                                             tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    own = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
           "GENESIS_HEARTBEAT_TIMEOUT": "4" if fault == "SIGSTOP" else "60",
           "PYTHONPATH": str(Path(genesis.__file__).parents[1]), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    first, other = [subprocess.Popen([sys.executable, "script.py", fault], cwd=tmp_path, text=True,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                     env={**os.environ, **own, "RANK": str(rank)}) for rank in range(2)]
    try:
        error = other.communicate(timeout=LIMIT)[1]
    finally:
        first.kill() if fault == "SIGSTOP" else first.wait(LIMIT)
        other.kill()
        first.communicate()
    assert other.returncode == 1
    assert told in error and "script.py:" in error, error
