"""Checkpoints of which each rank writes its parts: they load at any number of ranks, and are whole or not there."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import nn
from genesis.checkpointing import CheckpointManager, directory
from genesis.checkpointing.together import Save
from genesis.distributed.fsdp import fully_shard
from tests.checkpointing.test_directory import CALLS, content
from tests.distributed.ranks import Ranks, device_type
from tests.distributed.test_fully_sharded import network, sharded
from tests.distributed.training import REASSOCIATED, one_step, over_all, rank_batch

STEPS = 4


def run(rank: int, size: int, folder: str, first: int, last: int, how: str = "plain") -> dict[str, Any]:
    """Steps of a run that goes on from the folder's newest checkpoint; saves behind each second step."""
    model = network()
    if size > 1:
        mesh = dist.init_device_mesh(device_type(), (2, size // 2)) if how == "replicas" else None
        sharded(model, mesh=mesh)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = genesis.optim.lr_scheduler.StepLR(optimizer, 3)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    manager = CheckpointManager(folder, every=2, async_=how != "at once")
    if first:
        genesis.manual_seed(rank)
        for p in model.parameters():
            p.data.fill_(7.0)
    found = manager.resume(**parts)
    losses = []
    for step in range(found.step, last):
        loss = one_step(model, optimizer, *rank_batch(step, rank, size))
        scheduler.step()
        losses.append(over_all(loss, size))
        if manager.due(step + 1):
            manager.save(step + 1, **parts, seen={"rows": 16 * (step + 1)})
    manager.wait()
    return {"from": found.step, "values": dict(found.values), "losses": losses, "skipped": found.skipped,
            "draw": genesis.rand(2).tolist() if first else None}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of one process that never stops."""
    found: list[float] = run(0, 1, str(tmp_path_factory.mktemp("alone")), 0, 8)["losses"]
    return found


def elements(file: Path) -> int:
    """The numbers that a file of parts has."""
    return sum(x.numel() for x in genesis.load(file)["tensors"].values())


@pytest.mark.parametrize("how", ["plain", pytest.param("replicas", marks=pytest.mark.sweep)])
def test_four_ranks_then_two_then_one(four: Ranks, two: Ranks, alone: list[float], how: str, tmp_path: Path) -> None:
    folder = str(tmp_path)
    for found in four(run, folder, 0, 3, how):
        assert found["from"] == 0
        assert found["losses"] == pytest.approx(alone[:3], rel=REASSOCIATED)
    files: dict[str, dict[str, int]] = json.loads((tmp_path / "step-00000002" / "manifest.json").read_text())["files"]
    assert len(files) == (5 + 2 * 4 if how == "plain" else 5 + 2 * 2), "a part that replicas have is written once"
    shares = [elements(file) for file in sorted((tmp_path / "step-00000002").glob("model.part-*"))]
    whole = sum(p.numel() for p in network().parameters())
    assert sum(shares) == whole and max(shares) <= whole / len(shares) + 3 * 67 + 16 + 9, "a row of each at most"
    for found in two(run, folder, 3, 5):
        assert found["from"] == 2 and found["values"] == {"seen": {"rows": 32}}
        assert found["losses"] == pytest.approx(alone[2:5], rel=REASSOCIATED)
    found = run(0, 1, folder, 5, 7)
    assert found["from"] == 4 and found["losses"] == pytest.approx(alone[4:7], rel=REASSOCIATED)
    assert found["draw"] is not None
    for again in two(run, folder, 7, 8, "at once"):  # what one process has written
        assert again["from"] == 6 and again["losses"] == pytest.approx(alone[6:8], rel=REASSOCIATED)


def damaged(rank: int, size: int, folder: str, name: str) -> tuple[int, tuple[tuple[str, str], ...]]:
    found = run(rank, size, folder, 1, 0)
    return found["from"], found["skipped"]


def test_a_checkpoint_of_which_a_part_is_damaged_is_skipped_by_all(two: Ranks, tmp_path: Path) -> None:
    two(run, str(tmp_path), 0, 4)
    file = tmp_path / "step-00000004" / "optimizer.part-00001.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    for found in two(damaged, str(tmp_path), file.name):
        assert found[0] == 2
        assert found[1] == (("step-00000004", f"{file.name} is damaged: its sha256 is not the manifest's"),)


def differing(rank: int, size: int, folder: str) -> list[str]:
    model = fully_shard(nn.Linear(4, 4))
    manager, said = CheckpointManager(folder), []
    bad = {"x": object()} if rank == 1 else {"x": 3}
    for step, extra in ((1, bad), (rank + 1, {"x": 3}), (1, {f"x{rank}": 3})):
        try:
            manager.save(step, model=model, **extra)
        except (TypeError, ValueError, RuntimeError) as error:
            said.append(str(error).split("\n")[0])
    write = os.write

    def full(handle: int, data: Any) -> int:
        if rank == 1 and threading.current_thread().name == "genesis-checkpoint":
            raise OSError(28, "No space left on device")
        return write(handle, data)
    os.write = full
    try:
        manager.save(2, model=model)
        manager.wait()
    except OSError as error:
        said.append(str(error))
    finally:
        os.write = write
    return [*said, *sorted(p.name for p in Path(folder).iterdir())]


def test_what_one_rank_cannot_save_is_not_there_and_is_told_on_all(two: Ranks, tmp_path: Path) -> None:
    first, second = two(differing, str(tmp_path))
    assert "rank 1 cannot save: TypeError" in first[0] and "a object at 'x' cannot be saved" in second[0]
    for found in (first, second):
        assert "rank 0 saves step 1 with ['model', 'x'], rank 1 step 2" in found[1]
        assert "['model', 'x1']" in found[2]
        assert "rank 1: [Errno 28] No space left on device" in found[3]
        assert len(found) == 4, "nothing is left"


# Ends in between

class Threads:
    """Ranks as threads of one process, which tell each other by a dictionary."""

    def __init__(self, size: int):
        self.size, self._said, self._changed = size, dict[str, Any](), threading.Condition()

    def of(self, rank: int) -> Any:
        everyone = self

        class One:
            size = everyone.size

            def __init__(self) -> None:
                self.rank = rank

            def tell(self, key: str, value: Any) -> None:
                with everyone._changed:
                    everyone._said[key] = json.loads(json.dumps(value))
                    everyone._changed.notify_all()

            def hear(self, key: str) -> Any:
                with everyone._changed:
                    everyone._changed.wait_for(lambda: key in everyone._said)
                    return everyone._said[key]
        return One()


def save_together(folder: Path, step: int, size: int = 3) -> None:
    """A checkpoint of three ranks, as threads: every file says which step it is of."""
    held, ranks = ExitStack(), Threads(size)
    directory.remove_abandoned(folder)
    target = held.enter_context(directory.written_apart(folder, step))
    saves = [Save(ranks.of(rank), target, step, {f"model.part-{rank:05d}.safetensors": content(f"{step} " * 30)},
                  held if rank == 0 else ExitStack()) for rank in range(size)]
    threads = [threading.Thread(target=save.write, name=f"rank {rank}", daemon=True)
               for rank, save in enumerate(saves)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def cut_short(folder: Path, step: int, chosen: str, number: int) -> bool:
    """Save in a child in which one rank is gone before its n-th call; the others go on until nothing moves, and are
    killed. Whether it came to that call."""
    child = os.fork()
    if child == 0:
        end, originals, left = os._exit, {name: getattr(os, name) for name in CALLS}, number
        stuck, moved = threading.Event(), threading.Event()

        def instead(name: str) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                nonlocal left
                moved.set()
                if threading.current_thread().name == chosen:
                    left -= 1
                    if left == 0:
                        stuck.set()
                        threading.Event().wait()
                return originals[name](*args, **options)
            return call
        for name in CALLS:
            setattr(os, name, instead(name))

        def killer() -> None:
            stuck.wait()
            while moved.is_set():
                moved.clear()
                threading.Event().wait(0.02)
            end(9)
        threading.Thread(target=killer, daemon=True).start()
        try:
            save_together(folder, step)
        finally:
            end(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def usable(folder: Path) -> int:
    """The step of the newest checkpoint, of which every file is of that step."""
    newest = directory.opened(directory.checkpoints(folder)[0])
    directory.verify(newest)
    assert len(newest.files) == 3
    for name in newest.files:
        assert set((newest.path / name).read_text().split()) == {str(newest.step)}
    return newest.step


def ends(tmp_path: Path, every: int) -> int:
    """End each rank before every n-th of its calls: how many ends."""
    count = 0
    for rank in range(3):
        number, found = 1 + rank % every, []
        while True:
            folder = tmp_path / f"{rank} {number}"
            folder.mkdir()
            save_together(folder, 1)
            gone = cut_short(folder, 2, f"rank {rank}", number)
            found.append(usable(folder))
            save_together(folder, 3)
            assert usable(folder) == 3 and not list(folder.glob(".*"))
            if not gone:
                break
            number, count = number + every, count + 1
        assert found[-1] == 2 and found == sorted(found), "the rename is the moment"
    return count


def test_a_rank_that_is_gone_leaves_the_old_checkpoint_or_the_new(tmp_path: Path) -> None:
    """Some calls of each rank."""
    assert ends(tmp_path, every=5) >= 6


@pytest.mark.sweep
def test_a_rank_that_is_gone_before_each_of_its_calls(tmp_path: Path) -> None:
    count = ends(tmp_path, every=1)
    print(count)
    assert count >= 25
