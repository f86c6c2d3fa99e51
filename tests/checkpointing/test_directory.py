"""A checkpoint on the disk: the order of the system calls, a kill at each of them, damage of every kind."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from genesis.checkpointing import directory
from genesis.checkpointing.directory import Stored, Unusable
from tests.faults.events import Depths

CALLS = ["mkdir", "open", "write", "fsync", "close", "rename", "rmdir", "unlink", "remove"]
"""What changes a disk, and what brings it there."""


def content(text: str, parts: int = 3) -> Callable[[BinaryIO], None]:
    """Writes a text in parts."""
    def write(file: BinaryIO) -> None:
        size = -(-len(text) // parts)
        for start in range(0, len(text), size):
            file.write(text[start:start + size].encode())
    return write


def save(parent: Path, step: int) -> Path:
    """A checkpoint of two files; the oldest beyond two is deleted."""
    directory.remove_abandoned(parent)
    path = directory.write_checkpoint(parent, step, {
        "model.safetensors": content(f"model {step} " * 20),
        "optimizer.safetensors": content(f"optimizer {step} " * 20)})
    directory.verify(directory.opened(path))
    for old in directory.checkpoints(parent)[2:]:
        directory.delete(directory.opened(old))
    return path


def usable(parent: Path) -> list[Stored]:
    """The checkpoints that verify, newest first."""
    found = []
    for path in directory.checkpoints(parent):
        stored = directory.opened(path)
        directory.verify(stored)
        found.append(stored)
    return found


def test_a_manifest_is_not_damaged_where_its_reader_has_no_stack_left(tmp_path: Path) -> None:
    """Else the checkpoint would be passed over for an older one."""
    path, outcomes = save(tmp_path, 7), set()
    for room in range(40):
        try:
            outcomes.add(Depths().fail(lambda: directory.opened(path).step, room, RecursionError()))
        except RecursionError as error:
            outcomes.add(type(error))
    assert outcomes == {RecursionError, 7}


@contextmanager
def watched(at: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    """Call `at` before each system call of `CALLS`."""
    originals = {name: getattr(os, name) for name in CALLS}

    def instead(name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            at(name, args)
            return originals[name](*args, **options)
        return call
    try:
        for name in CALLS:
            setattr(os, name, instead(name))
        yield
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


def test_the_order_of_the_system_calls(tmp_path: Path) -> None:
    calls: list[str] = []

    def note(name: str, args: tuple[Any, ...]) -> None:
        what = "the folder" if args and str(args[0]) == str(tmp_path) else Path(str(args[0])).name.split("-")[0]
        calls.append(f"{name} {what}" if isinstance(args[0], (str, Path)) else name)
    with watched(note):
        directory.write_checkpoint(tmp_path, 7, {"model.safetensors": content("abc", 1)})
    assert [call for call in calls if not call.startswith("mkdir the")] == [
        "mkdir .writing", "open .writing",
        "open model.safetensors", "write", "fsync", "close",
        "open manifest.json", "write", "fsync", "close",
        "open .writing", "fsync", "close",
        "rename .writing", "close",
        "open the folder", "fsync", "close"]


def count_calls(parent: Path, step: int) -> int:
    """How many system calls a save makes."""
    total = 0

    def count(name: str, args: tuple[Any, ...]) -> None:
        nonlocal total
        total += 1
    with watched(count):
        save(parent, step)
    return total


def killed(work: Callable[[], None], number: int) -> bool:
    """Do it in a child that is gone before its n-th system call: no cleaning up, as after SIGKILL; whether there was
    one."""
    child = os.fork()
    if child == 0:
        left, end = number, os._exit

        def kill(name: str, args: tuple[Any, ...]) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                end(9)
        try:
            with watched(kill):
                work()
        finally:
            end(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def killed_at(parent: Path, step: int, number: int) -> None:
    """Save in a child that is gone before its n-th system call."""
    assert killed(lambda: save(parent, step), number)


def test_a_kill_at_every_system_call(tmp_path: Path) -> None:
    """Before the kill there are checkpoints 1 and 2. Afterwards there is 2 or 3, whole, and a later save cleans up."""
    (tmp_path / "count").mkdir()
    for step in (1, 2):
        save(tmp_path / "count", step)
    total, newest = count_calls(tmp_path / "count", 3), []
    assert total > 30
    for number in range(1, total + 1):
        parent = tmp_path / str(number)
        parent.mkdir()
        for step in (1, 2):
            save(parent, step)
        killed_at(parent, 3, number)
        found = usable(parent)
        newest.append(found[0].step)
        assert found[0].step in (2, 3), number
        assert (found[0].path / "model.safetensors").read_text() == f"model {found[0].step} " * 20
        save(parent, 4)
        assert usable(parent)[0].step == 4
        assert not list(parent.glob(".*")), f"something is left of the save that was killed at call {number}"
    assert newest == sorted(newest) and {2, 3} == set(newest), "the rename is the moment"


def test_a_failing_write_leaves_nothing(tmp_path: Path) -> None:
    save(tmp_path, 1)

    def full(file: BinaryIO) -> None:
        file.write(b"some")
        raise OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        directory.write_checkpoint(tmp_path, 2, {"model.safetensors": content("x"), "optimizer.safetensors": full})
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize(("damage", "message"), [
    (lambda p: (p / "manifest.json").unlink(), "no manifest"),
    (lambda p: (p / "manifest.json").write_text("{"), "manifest is damaged"),
    (lambda p: (p / "manifest.json").write_text("[" * 100000), "manifest is damaged"),
    (lambda p: (p / "manifest.json").write_text('{"format": "x", "step": 1, "files": {}}'), "not of the format"),
    (lambda p: (p / "model.safetensors").unlink(), r"model\.safetensors cannot be read"),
    (lambda p: (p / "model.safetensors").write_text("short"), "has 5 bytes of"),
    (lambda p: flip(p / "model.safetensors"), "sha256"),
    (lambda p: rename_in_manifest(p, "../../x"), "names '../../x'"),
], ids=["no manifest", "cut", "deep", "format", "gone", "short", "a bit", "outside"])
def test_what_is_not_as_it_was_written(damage: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    damage(path)
    with pytest.raises(Unusable, match=message):
        directory.verify(directory.opened(path))


def flip(path: Path) -> None:
    """Turn one bit of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def rename_in_manifest(path: Path, name: str) -> None:
    """Let the manifest name another file."""
    manifest = path / "manifest.json"
    content = json.loads(manifest.read_text())
    content["files"][name] = content["files"].pop("model.safetensors")
    manifest.write_text(json.dumps(content))


def test_a_name_of_another_step_is_no_newer_checkpoint(tmp_path: Path) -> None:
    """Else it would hide all that is written after it."""
    for step in (3, 4):
        save(tmp_path, step)
    (tmp_path / "step-00000003").rename(tmp_path / "step-00000009")
    with pytest.raises(Unusable, match="its manifest is of step 3"):
        directory.opened(tmp_path / "step-00000009")
    (tmp_path / "step-00000004").rename(tmp_path / "step-00000004-7")
    assert directory.opened(tmp_path / "step-00000004-7").step == 4, "the same step, reached again"
    (tmp_path / "step-00000009").rename(tmp_path / "best")
    assert directory.opened(tmp_path / "best").step == 3


def test_deleting_leaves_what_is_not_ours(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "notes.txt").write_text("mine")
    directory.delete(directory.opened(path))
    left = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert [p.name for p in left] == ["notes.txt"] and not directory.checkpoints(tmp_path)


def test_deleting_a_link_leaves_what_it_leads_to(tmp_path: Path) -> None:
    """A checkpoint that was moved to an archive, with a link in its place."""
    folder, archive = tmp_path / "run", tmp_path / "archive"
    path = save(folder, 1)
    archive.mkdir()
    path.rename(archive / path.name)
    path.symlink_to(archive / path.name, target_is_directory=True)
    stored = directory.opened(directory.checkpoints(folder)[0])
    directory.verify(stored)
    directory.delete(stored)
    assert list(folder.iterdir()) == []
    directory.verify(directory.opened(archive / path.name))


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/model\.safetensors'"):
        directory.write_checkpoint(tmp_path, 1, {"model.safetensors": lambda file: file.write(b"x")})
    assert list(tmp_path.iterdir()) == []


def test_a_save_under_way_is_not_abandoned(tmp_path: Path) -> None:
    def meanwhile(file: BinaryIO) -> None:
        directory.remove_abandoned(tmp_path)
        file.write(b"still there")
    path = directory.write_checkpoint(tmp_path, 1, {"model.safetensors": meanwhile})
    assert (path / "model.safetensors").read_bytes() == b"still there"


@pytest.mark.parametrize("after", ["mkdir", "open"])
def test_another_program_that_tidies_up_while_a_save_begins(after: str, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Between these calls and the lock nothing says that the directory is being written."""
    plain, tidied = getattr(os, after), []

    def call(path: Any, *rest: Any) -> Any:
        found = plain(path, *rest)
        if Path(path).name.startswith(directory.WRITING) and not tidied:
            tidied.append(path)
            directory.remove_abandoned(tmp_path)
            assert not Path(path).exists()
        return found
    monkeypatch.setattr(os, after, call)
    path = directory.write_checkpoint(tmp_path, 1, {"a.safetensors": lambda file: file.write(b"x")})
    assert tidied and (path / "a.safetensors").read_bytes() == b"x"


def test_a_step_that_is_reached_again(tmp_path: Path) -> None:
    names = [save(tmp_path, 5).name for _ in range(3)]
    assert names == ["step-00000005", "step-00000005-2", "step-00000005-3"]
    assert [p.name for p in directory.checkpoints(tmp_path)] == names[:0:-1]


def test_two_programs_that_reach_a_step_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one takes the name between the choice of it and the rename."""
    plain, others = os.rename, []

    def rename(source: Any, target: Any) -> None:
        if not others:
            others.append(target)
            other = directory.written_apart(tmp_path, 5)
            with other as path:
                found = directory.write_files(path, {"a.safetensors": content("the other")})
                assert directory.publish(path, 5, found) == target
        plain(source, target)
    monkeypatch.setattr(os, "rename", rename)
    path = directory.write_checkpoint(tmp_path, 5, {"a.safetensors": content("this one")})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000005", "step-00000005-2"]
    assert [(p / "a.safetensors").read_text() for p in (others[0], path)] == ["the other", "this one"]
    assert len(usable(tmp_path)) == 2


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS], ids=errno.errorcode.get)
def test_a_file_system_without_locks(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing says what is being written, nothing is taken for abandoned."""
    def refused(*_: Any) -> None:
        raise OSError(code, os.strerror(code))
    monkeypatch.setattr(fcntl, "flock", refused)
    (tmp_path / f"{directory.WRITING}step-00000003-0123abcd").mkdir()
    assert [save(tmp_path, step).name for step in (1, 2)] == ["step-00000001", "step-00000002"]
    assert [stored.step for stored in usable(tmp_path)] == [2, 1]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_lock_that_fails_for_another_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    monkeypatch.setattr(fcntl, "flock", interrupted)
    with pytest.raises(OSError, match="Input/output error"):
        save(tmp_path, 1)


def test_a_file_system_that_brings_no_directory_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of FUSE and of some networks refuse `fsync` of a directory; of a file it must not fail."""
    plain = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        plain(handle)
    monkeypatch.setattr(os, "fsync", fsync)
    assert [save(tmp_path, step).name for step in (1, 2, 3)] == ["step-00000001", "step-00000002", "step-00000003"]
    assert [stored.step for stored in usable(tmp_path)] == [3, 2]
