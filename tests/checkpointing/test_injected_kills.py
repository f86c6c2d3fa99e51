"""Saves of a real run that end before each of their system calls: what is resumed is the old step or the new, whole.

A kill shows what the kernel was told; what a power cut leaves is less. `lost` keeps of a save only what had been
brought to the disk by then: contents of files that were synced, names in directories that were synced.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis.checkpointing import CheckpointManager
from tests.checkpointing.test_directory import CALLS, killed


def states(step: int) -> dict[str, Any]:
    """What a run saves: every value says which step it is of."""
    return {name: {"w": genesis.full((count,), float(step)), "step": step}
            for name, count in (("model", 50), ("optimizer", 100), ("scheduler", 1), ("scaler", 1), ("loader", 1))}


def check(found: Any) -> None:
    """All of a resumed run is of one step."""
    for value in found.values.values():
        assert value["step"] == found.step and set(value["w"].tolist()) == {float(found.step)}


def save(folder: Path, step: int) -> None:
    CheckpointManager(folder, keep=2, async_=False).save(step, **states(step))


def empty(folder: Path) -> None:
    folder.mkdir()


def two_before(folder: Path) -> None:
    folder.mkdir()
    for step in (1, 2):
        save(folder, step)


def two_before_and_a_killed_one(folder: Path) -> None:
    two_before(folder)
    killed(lambda: save(folder, 3), 40)


def reached_again(folder: Path) -> None:
    two_before(folder)
    save(folder, 3)


SITUATIONS: dict[str, tuple[Callable[[Path], None], int]] = {
    "the first": (empty, 0), "one more": (two_before, 2), "after a killed one": (two_before_and_a_killed_one, 2),
    "a step that is there": (reached_again, 3)}
"""How the folder is before the save of step 3, and the step that is resumed from it then."""


def points(situation: str, folder: Path, every: int = 1) -> tuple[int, list[int]]:
    """Kill a save before each of its calls: how many kills, and the step that is resumed after each."""
    prepare, before = SITUATIONS[situation]
    number, found = 1, []
    while True:
        here = folder / f"{situation} {number}"
        prepare(here)
        alive = not killed(lambda here=here: save(here, 3), number)  # type: ignore[misc]
        resumed = CheckpointManager(here).resume()
        check(resumed)
        assert resumed.step in (before, 3) and resumed.skipped == ()
        save(here, 4)
        assert CheckpointManager(here).resume().step == 4 and not list(here.glob(".*"))
        shutil.rmtree(here)
        if alive:
            assert resumed.step == 3 and found == sorted(found), "the rename is the moment"
            return len(found), found
        found.append(resumed.step)
        number += every


def test_some_calls_of_a_save(tmp_path: Path) -> None:
    for situation in SITUATIONS:
        count, found = points(situation, tmp_path, every=17)
        assert count >= 3 and set(found) <= {SITUATIONS[situation][1], 3}


@pytest.mark.sweep
@pytest.mark.parametrize(("situation", "least"), [
    ("the first", 40), ("one more", 50), ("after a killed one", 60), ("a step that is there", 50)])
def test_every_call_of_a_save(situation: str, least: int, tmp_path: Path) -> None:
    """More than 200 kills in all."""
    count, _ = points(situation, tmp_path)
    print(situation, count)
    assert count >= least


class Disk:
    """What is on a disk for certain, of the calls that were made.

    Attributes:
        tree: directory → name → directory or file, by number, as the kernel shows it.
        names: the same, as it was brought to the disk.
        content, synced: the bytes of files; those that are on the disk.
    """

    def __init__(self) -> None:
        self.count = 0
        self.tree: dict[int, dict[str, int]] = {0: {}}
        self.names: dict[int, dict[str, int]] = {0: {}}
        self.content: dict[int, bytes] = {}
        self.synced: dict[int, bytes] = {}
        self.open: dict[int, int] = {}

    def at(self, path: Path) -> int:
        """The number of what is at a path below the folder."""
        number = 0
        for part in path.parts:
            number = self.tree[number][part]
        return number

    def make(self, path: Path, directory: bool) -> int:
        self.count += 1
        self.tree[self.at(path.parent)][path.name] = self.count
        if directory:
            self.tree[self.count], self.names[self.count] = {}, {}
        else:
            self.content[self.count] = self.synced[self.count] = b""
        return self.count

    def sync(self, number: int) -> None:
        if number in self.tree:
            self.names[number] = dict(self.tree[number])
        else:
            self.synced[number] = self.content[number]

    def lay_out(self, folder: Path, names: dict[int, dict[str, int]], number: int = 0) -> None:
        """Make it real, with these names and the contents that were synced."""
        folder.mkdir()
        for name, inside in names[number].items():
            if inside in self.tree:
                self.lay_out(folder / name, names, inside)
            else:
                (folder / name).write_bytes(self.synced[inside])


def lost(folder: Path, work: Callable[[], None], look: Callable[[Disk], None]) -> None:
    """Do the work on an empty folder, and look at the disk after each of its system calls."""
    disk, originals = Disk(), {name: getattr(os, name) for name in CALLS}

    def below(path: Any) -> Path | None:
        path = Path(path)
        return path.relative_to(folder) if path.is_relative_to(folder) else None

    def instead(name: str) -> Callable[..., Any]:
        def call(first: Any, *rest: Any, **options: Any) -> Any:
            found = originals[name](first, *rest, **options)
            path = None if isinstance(first, int) else below(first)
            if name == "write":
                disk.content[disk.open[first]] += bytes(rest[0][:found])
            elif name == "fsync":
                disk.sync(disk.open[first])
            elif name == "close":
                disk.open.pop(first, None)
            elif path is not None and path.parts:
                if name == "mkdir" or (name == "open" and rest[0] & os.O_CREAT):
                    number = disk.make(path, name == "mkdir")
                elif name == "open":
                    number = disk.at(path)
                elif name == "rename":
                    target = below(rest[0])
                    assert target is not None
                    number = disk.tree[disk.at(path.parent)].pop(path.name)
                    disk.tree[disk.at(target.parent)][target.name] = number
                else:
                    number = disk.tree[disk.at(path.parent)].pop(path.name)
                if name == "open":
                    disk.open[found] = number
            elif path is not None and name == "open":
                disk.open[found] = 0
            look(disk)
            return found
        return call
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, instead(name))
        work()


def power_cuts(tmp_path: Path, every: int) -> int:
    """Saves of steps 1 to 4; after every n-th call what is on the disk, with names as they were synced, and as the
    kernel had them (a disk may bring names before contents). How many were looked at."""
    folder, looked, done = tmp_path / "run", 0, 0
    folder.mkdir()
    finished = 0

    def look(disk: Disk) -> None:
        nonlocal looked, done
        done += 1
        if done % every:
            return
        for names in (disk.names, disk.tree):
            looked += 1
            copy = tmp_path / f"copy{looked}"
            with pytest.MonkeyPatch.context() as patch:
                for name in CALLS:
                    patch.setattr(os, name, REAL[name])
                disk.lay_out(copy, names)
                found = CheckpointManager(copy).resume()
                shutil.rmtree(copy)
            check(found)
            assert finished <= found.step <= finished + 1, f"after call {done}: {found}"

    def work() -> None:
        nonlocal finished
        for step in (1, 2, 3, 4):
            save(folder, step)
            finished = step
    lost(folder, work, look)
    return looked


REAL = {name: getattr(os, name) for name in CALLS}


def test_some_power_cuts(tmp_path: Path) -> None:
    assert power_cuts(tmp_path, every=11) > 30


@pytest.mark.sweep
def test_a_power_cut_after_every_call(tmp_path: Path) -> None:
    print(power_cuts(tmp_path, every=1))
