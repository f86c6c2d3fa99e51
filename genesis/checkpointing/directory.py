"""A checkpoint on the disk: a directory of files and a manifest that says what belongs to it.

    runs/gpt2/step-00000500/model.safetensors
                            optimizer.safetensors
                            manifest.json       {"step": 500, "files": {"model.safetensors": {"bytes": …, "sha256": …}}}

Of an object that ranks have parts of there is one file more for each rank (`model.part-00003.safetensors`).

The directory is written under another name, each file is brought to the disk, then the manifest, then the directory is
renamed and its parent brought to the disk: whatever stops the program, there is the checkpoint or there is none. To
delete one it is renamed first, so that a half-deleted one is never taken for whole. A directory that is being written
is locked, by which the next writer knows what a killed one left behind.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from genesis.utils.atomic_file import sync_directory
from genesis.utils.safetensors_file import is_nested_deep

MANIFEST: Final = "manifest.json"
FORMAT: Final = "genesis-checkpoint-1"
WRITING, DELETING = ".writing-", ".deleting-"
NAME: Final = re.compile(r"step-(\d{8,})(?:-(\d+))?")
CHUNK: Final = 1 << 20
"""Bytes that are written or read at once."""

NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})
"""What file systems of some clusters say to a lock: then nothing is ever taken for abandoned there."""


class Unusable(Exception):
    """A directory is no checkpoint, or not as it was written."""


@dataclass(frozen=True)
class Stored:
    """A checkpoint that has a manifest.

    Attributes:
        path: its directory.
        step: of the run.
        files: name → (bytes, sha256).
    """

    path: Path
    step: int
    files: Mapping[str, tuple[int, str]]


class _Hashed:
    """A file that is written once, from its start; knows how much and what."""

    def __init__(self, handle: int):
        self._handle = handle
        self.bytes, self.sha256 = 0, hashlib.sha256()

    def write(self, data: Any) -> int:
        """All of the data, in chunks."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), CHUNK):
            part = view[start:start + CHUNK]
            while part:
                part = part[os.write(self._handle, part):]
        self.bytes += len(view)
        self.sha256.update(view)
        return len(view)


Files = dict[str, tuple[int, str]]
"""name → (bytes, sha256)."""

Writers = Mapping[str, Callable[[BinaryIO], None]]
"""File's name → what writes it."""


def write_checkpoint(parent: Path, step: int, writers: Writers) -> Path:
    """Write a checkpoint: for each file's name what writes it. Returns its directory.

    Raises:
        OSError: the disk is full, there is no permission, …; then there is no such checkpoint.
    """
    with written_apart(parent, step) as directory:
        target = publish(directory, step, write_files(directory, writers))
    sync_directory(parent)
    return target


def written_apart(parent: Path, step: int) -> AbstractContextManager[Path]:
    """A directory for a checkpoint's files, under a name that is none of a checkpoint; removed with what is in it if an
    exception comes out of the context."""
    parent.mkdir(parents=True, exist_ok=True)
    return _locked_directory(parent / f"{WRITING}{_name(step)}-{secrets.token_hex(4)}")


def write_files(directory: Path, writers: Writers) -> Files:
    """Write files, and bring each to the disk."""
    return {name: _write_file(directory / name, write) for name, write in writers.items()}


def publish(directory: Path, step: int, files: Files) -> Path:
    """Make a checkpoint of a directory that has all its files: this rename is the moment. Returns its new path, whose
    parent `sync_directory` brings to the disk."""
    manifest = json.dumps({"format": FORMAT, "step": step, "files": {
        name: {"bytes": size, "sha256": digest} for name, (size, digest) in files.items()}}, indent=1)
    _write_file(directory / MANIFEST, lambda file: cast(None, file.write(manifest.encode())))
    sync_directory(directory)
    while True:
        target = _free(directory.parent, step)
        try:
            os.rename(directory, target)
        except OSError as error:  # another program has reached the step, and has taken the name meanwhile
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return target


@contextmanager
def _locked_directory(path: Path) -> Iterator[Path]:
    """A new directory, locked; removed with what is in it if an exception comes out of the context."""
    handle = _made_and_locked(path)
    try:
        yield path
    except BaseException:
        _remove_files(path)
        raise
    finally:
        os.close(handle)


def _made_and_locked(path: Path) -> int:
    """A handle of a new directory, locked. Before it is locked another program that saves into the same parent may take
    it for one that a killed program left, and remove it: then it is made again."""
    while True:
        os.mkdir(path)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            _lock(handle)
            if path.exists():
                return handle
        except BaseException:
            os.close(handle)
            _remove_empty(path)
            raise
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock it, where the file system can."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _write_file(path: Path, write: Callable[[BinaryIO], None]) -> tuple[int, str]:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        file = _Hashed(handle)
        write(cast(BinaryIO, file))
        os.fsync(handle)
    except OSError as error:  # which a handle's calls raise without a name: which disk is full?
        if error.filename is None:
            error.filename = os.fspath(path)
        raise
    finally:
        os.close(handle)
    return file.bytes, file.sha256.hexdigest()


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _free(parent: Path, step: int) -> Path:
    """A name for the step that none has: a step that was reached again, from an older checkpoint, gets a number."""
    taken = [order(path)[1] for path in parent.iterdir() if NAME.fullmatch(path.name) and order(path)[0] == step]
    return parent / (_name(step) + (f"-{max(taken) + 1}" if taken else ""))


def order(path: Path) -> tuple[int, int]:
    """The key that checkpoints are sorted by: the step, and how often it was reached."""
    found = NAME.fullmatch(path.name)
    assert found is not None
    return int(found[1]), int(found[2] or 1)


def checkpoints(parent: Path) -> list[Path]:
    """The directories that are named as checkpoints, newest first."""
    if not parent.is_dir():
        return []
    return sorted((p for p in parent.iterdir() if NAME.fullmatch(p.name) and p.is_dir()), key=order, reverse=True)


def opened(path: Path) -> Stored:
    """What a checkpoint's manifest says.

    Raises:
        Unusable: there is none, or it is malformed.
        RecursionError: the caller's stack has no room for reading it.
    """
    text = ""
    try:
        text = (path / MANIFEST).read_bytes().decode()
        content = json.loads(text)
        files = {name: (entry["bytes"], entry["sha256"]) for name, entry in content["files"].items()}
        if content["format"] != FORMAT or type(content["step"]) is not int:
            raise Unusable(f"its manifest is not of the format {FORMAT}")
    except FileNotFoundError:
        raise Unusable("it has no manifest") from None
    except OSError as error:
        raise Unusable(f"its manifest cannot be read ({error.strerror})") from None
    except RecursionError:
        if not is_nested_deep(text):
            raise
        raise Unusable("its manifest is damaged") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unusable("its manifest is damaged") from None
    if NAME.fullmatch(path.name) and order(path)[0] != content["step"]:
        raise Unusable(f"its manifest is of step {content['step']}")
    for name in files:
        if not isinstance(name, str) or "/" in name or name in ("", ".", "..", MANIFEST):
            raise Unusable(f"its manifest names {name!r}, which is no file of it")
    return Stored(path, content["step"], files)


def verify(stored: Stored) -> None:
    """Read all files.

    Raises:
        Unusable: one is missing or is not what was written.
    """
    verify_files(stored.path, stored.files)


def verify_files(path: Path, files: Mapping[str, tuple[int, str]]) -> None:
    """Read these files of a directory.

    Raises:
        Unusable: one is missing or is not what was written.
    """
    for name, (size, digest) in files.items():
        try:
            with open(path / name, "rb") as file:
                found = hashlib.sha256()
                length = 0
                while part := file.read(CHUNK):
                    found.update(part)
                    length += len(part)
        except OSError as error:
            raise Unusable(f"{name} cannot be read ({error.strerror})") from None
        if length != size:
            raise Unusable(f"{name} has {length} bytes of {size}")
        if found.hexdigest() != digest:
            raise Unusable(f"{name} is damaged: its sha256 is not the manifest's")


def delete(stored: Stored) -> None:
    """Remove what the manifest owns. A file of somebody else's stays, in a directory of another name. Of a link only
    itself goes: what it leads to is kept elsewhere, on purpose."""
    if stored.path.is_symlink():
        stored.path.unlink()
        sync_directory(stored.path.parent)
        return
    gone = stored.path.with_name(f"{DELETING}{stored.path.name}-{secrets.token_hex(4)}")
    os.rename(stored.path, gone)
    sync_directory(gone.parent)
    for name in (*stored.files, MANIFEST):
        (gone / name).unlink(missing_ok=True)
    _remove_empty(gone)


def remove_abandoned(parent: Path) -> None:
    """Remove what killed programs left half-written or half-deleted."""
    for path in parent.iterdir() if parent.is_dir() else ():
        if not path.name.startswith((WRITING, DELETING)) or not path.is_dir():
            continue
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # another program removes it
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_files(path)
        except OSError:
            pass  # it is being written
        finally:
            os.close(handle)


def _remove_files(path: Path) -> None:
    """Remove a directory of ours with the files that we write; others stay."""
    for file in path.iterdir() if path.is_dir() else ():
        if file.name == MANIFEST or file.suffix == ".safetensors":
            file.unlink(missing_ok=True)
    _remove_empty(path)


def _remove_empty(path: Path) -> None:
    with suppress(OSError):  # it holds what is not ours
        os.rmdir(path)
