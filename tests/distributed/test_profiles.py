"""Profiles of several ranks: a row for each says which one the others wait for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis.engine.backends import FakeCUDABackend
from genesis.profiler import profile
from genesis.profiler.ranks import row_of, table
from genesis.profiler.recorder import Kernel, Recorder
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.distributed.ranks import Ranks, on_the_host


def profiled(rank: int, size: int, folder: str) -> dict[str, Any]:
    """Three steps with a collective each."""
    x = genesis.ones(64, 64)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    x.tolist()
    with profile() as p:
        for _ in range(3):
            y = (x @ x).sum().reshape(1)
            dist.all_reduce(y)
            y.tolist()
    rows, text = p.rank_rows(), p.rank_table()
    p.export_chrome_trace(f"{folder}/{rank}.json")
    return {"rows": rows, "text": text}


def profiled_on_gpu(rank: int, size: int, folder: str) -> dict[str, Any]:
    """The same with the driver of a GPU that is none."""
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)), genesis.device("cuda"):
        return profiled(rank, size, folder)


@pytest.mark.parametrize("how", [profiled, pytest.param(profiled_on_gpu, marks=on_the_host("it has one"))])
def test_a_row_a_rank(two: Ranks, tmp_path: Path, how: Any) -> None:
    first, second = two(how, str(tmp_path))
    assert first == second, "all get all rows"
    early, late = first["rows"]
    assert (early.rank, late.rank, early.calls, late.calls) == (0, 1, 3, 3)
    for row in (early, late):
        assert row.collectives > 0 and row.kernels > 0 and row.span >= row.collectives + row.kernels, row
    heading, *rows = first["text"].splitlines()
    assert heading.split() == ["Rank", "Time", "Kernels", "Collectives", "Calls", "Rest", "Memory"]
    assert [row.split()[0] for row in rows] == ["0", "1"]
    for rank in (0, 1):
        events = json.loads((tmp_path / f"{rank}.json").read_text())["traceEvents"]
        assert events[0]["args"]["name"] == f"genesis, rank {rank}"


def test_collectives_are_told_from_other_kernels() -> None:
    recorder = Recorder(memory=False, lines=False)
    recorder.start, recorder.end = 0, 9_000_000
    for name, spent in (("matmul", 2_000_000), ("all_reduce", 3_000_000), ("reduce_scatter", 500_000), ("gelu", 1_000)):
        recorder.kernels.append(Kernel(name, "", 0, spent, 0, 0, "cpu"))
    row = row_of(recorder, 3)
    assert (row.rank, row.span, row.kernels, row.collectives, row.calls) == (3, 9000.0, 2001.0, 3500.0, 2)
    assert table([row]).splitlines()[1].split() == ["3", "9.00", "ms", "2.00", "ms", "3.50", "ms", "2", "3.50", "ms",
                                                    "0", "B"]
