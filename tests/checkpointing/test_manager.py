"""Runs that are saved and go on: bit by bit as if nothing had stopped them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genesis
from genesis import nn, optim
from genesis.checkpointing import CheckpointManager
from genesis.utils.data import DataLoader, TensorDataset


def fresh() -> dict[str, Any]:
    """A model with everything that has a state: dropout, batch statistics, moments, a schedule."""
    genesis.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    return {"model": model, "optimizer": optimizer,
            "scheduler": optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)}


def train(parts: dict[str, Any], start: int, end: int, manager: CheckpointManager | None = None) -> list[float]:
    """Steps of training on drawn data; the losses."""
    losses = []
    for step in range(start + 1, end + 1):
        parts["optimizer"].zero_grad()
        loss = (parts["model"](genesis.randn(16, 8)) - 1).pow(2).mean()
        loss.backward()
        parts["optimizer"].step()
        parts["scheduler"].step()
        losses.append(loss.item())
        if manager is not None and manager.due(step):
            manager.save(step, **parts, tokens=step * 16)
    return losses


@pytest.mark.parametrize("async_", [True, False])
def test_a_resumed_run_is_the_uninterrupted_one(async_: bool, tmp_path: Path) -> None:
    whole = train(fresh(), 0, 20)
    manager = CheckpointManager(tmp_path, keep=2, every=4, async_=async_)
    assert train(fresh(), 0, 14, manager) == whole[:14], "saving changes nothing"
    manager.wait()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000008", "step-00000012"]
    parts = fresh()
    found = CheckpointManager(tmp_path).resume(**parts)
    assert (found.step, found.values, found.skipped) == (12, {"tokens": 192}, ())
    assert train(parts, 12, 20) == whole[12:]


def passes(parts: dict[str, Any], step: int, end: int, manager: CheckpointManager | None = None) -> list[float]:
    """Steps over shuffled data, pass after pass, with scaled losses."""
    losses = []
    while step < end:
        for batch in parts["loader"]:
            parts["optimizer"].zero_grad()
            loss = (parts["model"](batch) - 1).pow(2).mean()
            parts["scaler"].scale(loss).backward()
            parts["scaler"].step(parts["optimizer"])
            parts["scaler"].update()
            step += 1
            losses.append(loss.item())
            if manager is not None and manager.due(step):
                manager.save(step, **parts)
            if step == end:
                break
    return losses


def with_data() -> dict[str, Any]:
    parts = fresh()
    rows = genesis.randn(20, 8)
    return {**parts, "loader": DataLoader(TensorDataset(rows), 4, shuffle=True, collate_fn=first),
            "scaler": genesis.amp.GradScaler(device="cpu", init_scale=4.0, growth_interval=3)}


def first(samples: list[Any]) -> Any:
    return genesis.stack([row for row, in samples])


def test_a_pass_over_data_goes_on_in_the_middle(tmp_path: Path) -> None:
    """Passes of five batches, saved after the eighth: the batches that were not given come next, in the same order."""
    whole = passes(with_data(), 0, 14)
    passes(with_data(), 0, 9, CheckpointManager(tmp_path, every=4, async_=False))
    parts = with_data()
    found = CheckpointManager(tmp_path).resume(**parts)
    assert found.step == 8
    assert passes(parts, 8, 14) == whole[8:]


def test_the_newest_that_is_whole(tmp_path: Path) -> None:
    parts, manager = fresh(), CheckpointManager(tmp_path, every=1, async_=False)
    train(parts, 0, 3, manager)
    (tmp_path / "step-00000003" / "optimizer.safetensors").write_bytes(b"")
    (tmp_path / "step-00000002" / "manifest.json").unlink()
    found = manager.resume(**fresh())
    assert found.step == 1
    assert [name for name, _ in found.skipped] == ["step-00000003", "step-00000002"]
    assert "0 bytes" in found.skipped[0][1] and "no manifest" in found.skipped[1][1]


def test_values_are_those_of_the_call(tmp_path: Path) -> None:
    """Writing goes on in the background while the program trains."""
    parts, manager = fresh(), CheckpointManager(tmp_path)
    train(parts, 0, 2)
    before = {k: v.tolist() for k, v in parts["model"].state_dict().items()}
    manager.save(2, **parts)
    train(parts, 2, 5)
    again = fresh()
    manager.resume(**again)
    assert {k: v.tolist() for k, v in again["model"].state_dict().items()} == before


def test_an_older_one_goes_after_the_newer_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, manager = fresh(), CheckpointManager(tmp_path, keep=1, every=1, async_=False)
    train(parts, 0, 1, manager)
    from genesis.checkpointing import directory

    def damaged(stored: Any) -> None:
        raise directory.Unusable("the disk lies")
    monkeypatch.setattr(directory, "verify", damaged)
    with pytest.raises(OSError, match="read back otherwise: the disk lies"):
        manager.save(2, **parts)
    assert (tmp_path / "step-00000001").is_dir()


def test_random_states_of_numpy_and_python(tmp_path: Path) -> None:
    """As a program has them beside Genesis' own; an array is what it was when `save` was called."""
    manager, generator, counts = CheckpointManager(tmp_path), np.random.default_rng(1), np.arange(3)
    np.random.seed(3)
    manager.save(1, numpy=np.random.get_state(), python=random.getstate(), generator=generator.bit_generator.state,
                 counts=counts)
    counts += 10
    drawn = np.random.rand(3).tolist(), random.random(), generator.random()
    found = CheckpointManager(tmp_path).resume().values if manager.wait() is None else {}
    np.random.set_state(found["numpy"])
    random.setstate(found["python"])
    generator.bit_generator.state = found["generator"]
    assert (np.random.rand(3).tolist(), random.random(), generator.random()) == drawn
    assert found["counts"].tolist() == [0, 1, 2]


def test_what_was_just_written_stays_beside_a_later_one_that_is_damaged(tmp_path: Path) -> None:
    """A run that went on from step 2, as step 3 was damaged, is stopped before it comes to step 3 again."""
    parts, manager = fresh(), CheckpointManager(tmp_path, keep=1, every=1, async_=False)
    train(parts, 0, 3, manager)
    (tmp_path / "step-00000003" / "model.safetensors").write_bytes(b"")
    assert manager.resume(**fresh()).step == 0
    manager.save(1, **parts)
    manager.save(2, **parts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    assert manager.resume(**fresh()).step == 2
    manager.save(3, **parts)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003-2"]


def test_a_program_that_goes_to_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's name is of where the program was: the thread that writes looks at it later."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    manager = CheckpointManager("runs")
    manager.save(1, x=1)
    os.chdir("other")
    manager.save(2, x=2)
    manager.wait()
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["step-00000001", "step-00000002"]
    assert list((tmp_path / "other").iterdir()) == [] and manager.resume().values["x"] == 2


def test_an_error_in_the_background_is_raised_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, manager = fresh(), CheckpointManager(tmp_path)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "write", full)
    manager.save(1, **parts)
    with pytest.raises(OSError, match="No space"):
        manager.wait()
    monkeypatch.undo()
    manager.save(2, **parts)
    assert manager.resume(**parts).step == 2 and [p.name for p in tmp_path.iterdir()] == ["step-00000002"]


def test_an_error_that_no_call_raises_is_told_at_the_programs_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    program = ("from genesis import nn\nfrom genesis.checkpointing import CheckpointManager\n"
               f"CheckpointManager({str(tmp_path / 'file' / 'runs')!r}).save(1, model=nn.Linear(1, 1))")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "RuntimeWarning: CheckpointManager: the last checkpoint was not written: NotADirectoryError" in found.stderr


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"step": -1}, ValueError, "negative"), ({"step": 2.0}, TypeError, "step=2.0 is no whole number"),
    ({"step": "3"}, TypeError, "step='3' is no whole number"),
    ({"step": 1, "rng": 3}, ValueError, "taken"),
    ({"step": 1, "a/b": 3}, ValueError, "no name for a file"),
    ({"step": 1, "x": object()}, TypeError, "cannot be saved"),
])
def test_what_cannot_be_saved(arguments: dict[str, Any], error: type[Exception], message: str, tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    with pytest.raises(error, match=message):
        manager.save(**arguments)
    manager.wait()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("step", "number"), [(np.int64(4), 4), (True, 1), (np.int32(0), 0)])
def test_steps_of_other_kinds_of_integers(step: Any, number: int, tmp_path: Path) -> None:
    """JSON has no numpy.int64, and `true` is another thing than 1."""
    manager = CheckpointManager(tmp_path)
    manager.save(step, x=3)
    manager.wait()
    assert manager.resume().step == number and [p.name for p in manager.checkpoints()] == [f"step-{number:08d}"]


def test_objects_that_were_not_saved(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    assert manager.resume(model=nn.Linear(2, 2)).step == 0
    manager.save(1, model=nn.Linear(2, 2))
    with pytest.raises(ValueError, match="has no 'optimizer'; it has model"):
        manager.resume(optimizer=3)
    with pytest.raises((ValueError, RuntimeError), match="weight"):
        manager.resume(model=nn.Linear(3, 2))


@pytest.mark.parametrize("options", [{"keep": 0}, {"every": 0}])
def test_numbers_that_make_no_sense(options: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        CheckpointManager(tmp_path, **options)


RUN = """
import sys
sys.path.insert(0, {root!r})
from tests.checkpointing.test_manager import fresh, train
from genesis.checkpointing import CheckpointManager
from genesis.utils.data import DataLoader, TensorDataset
parts, manager = fresh(), CheckpointManager({folder!r}, keep=2, every=2)
found = manager.resume(**parts)
print("resumed", found.step, flush=True)
for step in range(found.step, {end}):
    print(step, train(parts, step, step + 1, manager), flush=True)
manager.wait()
print("done", flush=True)
"""


def killed_runs(folder: Path, kills: int, seed: int, end: int = 60) -> int:
    """Runs that are killed at random moments until one comes to the end; every loss is that of the uninterrupted run.
    Returns how many were killed."""
    root = str(Path(__file__).parents[2])
    whole: list[float] = []
    draw, done = random.Random(seed), -1  # the first run is the uninterrupted one
    while True:
        program = RUN.format(root=root, folder=f"{folder}/{done >= 0}", end=end)
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": root}) as run:
            assert run.stdout is not None
            first = run.stdout.readline()
            assert first.startswith("resumed"), first
            if 0 <= done < kills:
                time.sleep(draw.random() * 0.3)
                run.send_signal(signal.SIGKILL)
            lines = run.stdout.read().splitlines()
        for line in lines:
            step, _, losses = line.partition(" ")
            if done < 0 and losses.endswith("]"):
                whole += eval(losses)
            elif losses.endswith("]"):
                assert eval(losses) == [whole[int(step)]], f"step {step} after {done} kills"
        if lines and lines[-1] == "done" and done >= 0:
            return done
        done += 1


def test_random_kills_of_real_runs(tmp_path: Path) -> None:
    assert killed_runs(tmp_path, kills=1, seed=0, end=20) <= 1


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(10))
def test_two_hundred_random_kills(seed: int, tmp_path: Path) -> None:
    """Twenty a seed: as many runs as it takes, each killed until it comes to its end."""
    total, runs = 0, 0
    while total < 20:
        total += killed_runs(tmp_path / str(runs), kills=20 - total, seed=seed * 100 + runs)
        runs += 1
