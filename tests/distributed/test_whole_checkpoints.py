"""Checkpoints of models that each rank has whole: called on all ranks, one of them writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import nn
from genesis.checkpointing import CheckpointManager, directory
from genesis.distributed import run
from genesis.distributed.fsdp import fully_shard
from tests.distributed.ranks import Ranks, device_type


def network() -> Any:
    genesis.manual_seed(0)
    return nn.parallel.DistributedDataParallel(nn.Linear(3, 2, device=device_type()))


def saved_by_all(rank: int, size: int, folder: str, async_: bool) -> dict[str, Any]:
    """Four checkpoints, each twice as far as the one before, and what is found right behind the last."""
    model = network()
    manager = CheckpointManager(folder, keep=2, every=1, async_=async_)
    for step in range(1, 5):
        with genesis.no_grad():
            model.module.weight.fill_(float(step))
        manager.save(step, model=model.module, seen={"step": step})
    manager.wait()
    names = [path.name for path in manager.checkpoints()]
    with genesis.no_grad():
        model.module.weight.zero_()
    found = manager.resume(model=model.module)
    dist.barrier()
    return {"names": names, "step": found.step, "seen": found.values["seen"], "skipped": found.skipped,
            "weight": model.module.weight.tolist()}


@pytest.mark.parametrize("async_", [False, True])
def test_all_ranks_save_and_one_of_them_writes(four: Ranks, tmp_path: Path, async_: bool) -> None:
    """Otherwise there were four of a step, of which the last to come deleted some while others read theirs back."""
    for found in four(saved_by_all, str(tmp_path), async_):
        assert found["names"] == ["step-00000004", "step-00000003"]
        assert (found["step"], found["seen"], found["skipped"]) == (4, {"step": 4}, ())
        assert found["weight"] == [[4.0] * 3] * 2


def saved_by_the_first(rank: int, size: int, folder: str) -> int:
    model = network()
    manager = CheckpointManager(folder, every=1)
    if rank == 0:
        manager.save(7, model=model)
        manager.wait()
    dist.barrier()
    return manager.resume(model=model).step


def test_the_first_rank_may_save_alone(two: Ranks, tmp_path: Path) -> None:
    assert two(saved_by_the_first, str(tmp_path)) == [7, 7]


def saved_again(rank: int, size: int, folder: str) -> list[str]:
    """The same step by another manager of the same run: it is another checkpoint."""
    for _ in range(2):
        CheckpointManager(folder, async_=False).save(3, model=network())
    dist.barrier()
    return sorted(path.name for path in Path(folder).iterdir())


def test_a_step_that_is_saved_again_is_written_again(two: Ranks, tmp_path: Path) -> None:
    assert two(saved_again, str(tmp_path)) == [["step-00000003", "step-00000003-2"]] * 2


def saved_apart(rank: int, size: int, folder: str) -> list[str]:
    own = Path(folder) / str(rank)
    CheckpointManager(own, async_=False).save(3, model=network())
    return [path.name for path in own.iterdir()]


def test_ranks_with_folders_of_their_own_write_them_all(two: Ranks, tmp_path: Path) -> None:
    assert two(saved_apart, str(tmp_path)) == [["step-00000003"]] * 2


def not_written(rank: int, size: int, folder: str) -> str:
    def refused(stored: Any) -> None:
        raise directory.Unusable("the disk is worn")
    before, directory.verify = directory.verify, refused
    try:
        CheckpointManager(folder, async_=False).save(3, model=network())
    except OSError as error:
        return str(error)
    finally:
        directory.verify = before
    return ""


def test_all_hear_that_it_could_not_be_written(two: Ranks, tmp_path: Path) -> None:
    for said in two(not_written, str(tmp_path)):
        assert said.endswith("was written and read back otherwise: the disk is worn")


def without_a_store(rank: int, size: int, folder: str) -> list[str]:
    """The store's rank has ended before this one saves for the last time."""
    def gone(*_: Any) -> int:
        raise dist.DistNetworkError("the store is gone")
    model, kept = network(), run.current().store.__class__.add
    own = Path(folder) / str(rank)
    run.current().store.__class__.add = gone  # type: ignore[method-assign, assignment]
    try:
        CheckpointManager(own, async_=False).save(3, model=model)
    finally:
        run.current().store.__class__.add = kept  # type: ignore[method-assign]
    return [path.name for path in own.iterdir()]


def test_a_rank_that_reaches_no_store_writes(two: Ranks, tmp_path: Path) -> None:
    assert two(without_a_store, str(tmp_path)) == [["step-00000003"]] * 2


def read_by_the_first(rank: int, size: int, folder: str, cut: bool) -> list[float]:
    """A mean over all ranks that the first one reads, and the others have recorded, while it writes a checkpoint."""
    model: Any = nn.Linear(4, 2, device=device_type())
    if cut:
        fully_shard(model)
    manager, before = CheckpointManager(folder), directory.write_files

    def late(path: Path, writers: directory.Writers) -> directory.Files:
        time.sleep(0.5)  # until the first rank is in the collective
        return before(path, writers)
    directory.write_files = late
    try:
        if rank and not cut:  # so that the first one is the writer
            dist.barrier()
        manager.save(3, model=model)
        if rank == 0 and not cut:
            dist.barrier()
        mean = genesis.tensor(float(rank), device=device_type())
        dist.all_reduce(mean)
        found = [mean.item()] if rank == 0 else []
        manager.wait()
    finally:
        directory.write_files = before
    return [*found, manager.resume(model=model).step]


@pytest.mark.parametrize("cut", [False, True])
def test_who_waits_for_a_writer_runs_what_that_rank_waits_for(two: Ranks, tmp_path: Path, cut: bool) -> None:
    assert two(read_by_the_first, str(tmp_path), cut) == [[1.0, 3], [3]]
