"""A disk store: a directory of files that are there whole or not at all, for the kernel cache and the plan cache.

An entry is one file: a line that names the format and the sha256 of the rest, a line of JSON with its full key, bytes.
It is written aside and renamed, so a reader sees a whole entry or none, and two processes may write the same one. An
entry that is damaged all the same counts as missing; so does one that is another key's, or that somebody else may have
written, because what is in a cubin runs on the GPU. Nothing is executed on the host: no pickle, no shared object.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
"""Mode bits of a file or directory that somebody but its owner can write to."""

ABANDONED_SECONDS: Final = 3600.0
"""Age in seconds from which a temporary file is taken to be a killed process's: writing one takes far less."""

TEMPORARY: Final = ".tmp"
"""Ending of an entry's file while it is being written, before it is renamed to its own name."""


Facts = dict[str, Any]
"""What JSON can say of an entry, under names: read from a disk, of whatever types."""


class Entry(NamedTuple):
    """An entry's content: small facts that JSON can say, and bytes."""

    meta: Facts
    content: bytes


class UnsafeDirectory(OSError):
    """Somebody else can have written to the directory. It is left as it is: its owner must decide about it."""


class DiskStore:
    """A store of entries of one kind, in a directory that nobody but its owner can write to.

    Args:
        directory: it is made when first written to, for its owner alone; one that is there is used as it is, or not at
            all.
        kind: what its entries are; the ending of its files.
        version: the format's; entries of another version count as missing.

    >>> import tempfile
    >>> store = DiskStore(Path(tempfile.mkdtemp()), "kernel", 1)
    >>> store.write("add", {"num_warps": 4}, b"ELF...")
    True
    >>> store.get("add")
    Entry(meta={'num_warps': 4}, content=b'ELF...')
    >>> store.get("mul") is None
    True
    """

    def __init__(self, directory: Path, kind: str, version: int):
        self.directory, self.kind = directory, kind
        self._head = f"genesis-{kind}-{version}".encode()
        self._swept = False

    def path(self, name: str) -> Path:
        """The path of an entry's file, given the entry's name."""
        return self.directory / self._file(name)

    def get(self, key: str) -> Entry | None:
        """The entry of a key; None if there is none, it is damaged, or someone else may have written it."""
        return self.read(name_of(key))

    def read(self, name: str) -> Entry | None:
        """The entry of the key with this name, as `get`."""
        try:
            with self._opened() as directory:
                content = _read_own(self._file(name), directory)
        except OSError:
            return None
        head, _, body = content.partition(b"\n")
        if head != self._head + b" " + _digest(body):
            return None
        line, _, rest = body.partition(b"\n")
        try:
            found = json.loads(line)
            key, meta = found["key"], found["meta"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        if not isinstance(key, str) or not isinstance(meta, dict) or name_of(key) != name:
            return None
        return Entry(meta, rest)

    def has(self, key: str) -> bool:
        """Whether there is a file for a key's entry, whatever is in it."""
        try:
            with self._opened() as directory:
                os.stat(self._file(name_of(key)), dir_fd=directory, follow_symlinks=False)
        except OSError:
            return False
        return True

    def write(self, key: str, meta: Facts, content: bytes = b"") -> bool:
        """Write an entry over the one that is there; returns whether that worked.

        A full disk, a read-only home or a directory that others can write to is no error: what was to be kept is made
        again next time.

        Raises:
            TypeError: `meta` has something in it that JSON has no word for.
        """
        line = json.dumps({"key": key, "meta": meta}, sort_keys=True, separators=(",", ":")).encode()
        body = line + b"\n" + content
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened() as directory:
                self._sweep(directory)
                _write_whole(self._file(name_of(key)), directory, self._head + b" " + _digest(body) + b"\n" + body)
        except OSError:
            return False
        return True

    def remove(self, key: str) -> None:
        """Remove a key's entry, if there is one and it can be removed."""
        try:
            with self._opened() as directory:
                os.unlink(self._file(name_of(key)), dir_fd=directory)
        except OSError:
            pass

    def files(self) -> Iterator[Path]:
        """The paths of all entries' files, in order of their names."""
        try:
            with self._opened():
                return iter(sorted(self.directory.glob(f"*.{self.kind}")))
        except OSError:
            return iter(())

    def clear(self) -> int:
        """Remove all entries, and files that killed processes left; returns how many entries there were."""
        files = list(self.files())
        for file in files:
            file.unlink(missing_ok=True)
        try:
            with self._opened() as directory:
                _sweep(directory, 0.0)
        except OSError:
            pass
        return len(files)

    def why_unused(self) -> str | None:
        """Why the directory is not used; None if it is used, or is not there yet."""
        try:
            with self._opened():
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            return str(error)

    def _file(self, name: str) -> str:
        return f"{name}.{self.kind}"

    def _sweep(self, directory: int) -> None:
        if not self._swept:
            self._swept = True
            _sweep(directory, time.time() - ABANDONED_SECONDS)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the directory, in which nobody else can have put something for us to run.

        All is done through the descriptor, so that what was checked is what is used.

        Raises:
            UnsafeDirectory: somebody else owns it, or the link that leads to it, or can write to it.
            OSError: it is not there, or is no directory.
        """
        link = os.lstat(self.directory)
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in (os.geteuid(), 0):
            raise UnsafeDirectory(f"{self.directory} is a link that belongs to user {link.st_uid}")
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            found = os.fstat(directory)
            if found.st_uid != os.geteuid():
                raise UnsafeDirectory(f"{self.directory} belongs to user {found.st_uid}")
            if found.st_mode & WRITABLE_BY_OTHERS:
                mode = stat.S_IMODE(found.st_mode)
                raise UnsafeDirectory(f"{self.directory} can be written to by others (mode {mode:o})")
            yield directory
        finally:
            os.close(directory)


def name_of(key: str) -> str:
    """The name of a key's entry, in which a key of any length fits: its sha256."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def default_directory() -> Path:
    """`$GENESIS_CACHE_DIR`, or `genesis` in the user's cache directory; for a user without a home directory, one by
    the user's number among the temporary files."""
    named, cache = os.environ.get("GENESIS_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME", "")
    if named:
        folder = os.path.expanduser(named)  # unchanged where the home that it names is unknown
        return Path(folder)
    if os.path.isabs(cache):
        return Path(cache) / "genesis"
    home = os.path.expanduser("~")
    if os.path.isabs(home) and home != "/":
        return Path(home) / ".cache" / "genesis"
    from tempfile import gettempdir
    return Path(gettempdir()) / f"genesis-{os.geteuid()}"


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _read_own(file: str, directory: int) -> bytes:
    """The content of a regular file of ours that nobody else can write to. Links are never made, and never followed.

    Raises:
        OSError: it is not there, or is something else.
    """
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    with open(handle, "rb") as opened:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & WRITABLE_BY_OTHERS:
            raise UnsafeDirectory(f"{file} is no file that only this user can have written")
        return opened.read()


def _write_whole(file: str, directory: int, content: bytes) -> None:
    """Write a file so that it is there with all of its content, after a crash of the machine too, or not at all.

    The directory is not brought to the disk: an entry that a crash forgets is made again.
    """
    aside = f"{file[:16]}-{os.urandom(8).hex()}{TEMPORARY}"
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=directory)
    try:
        with open(handle, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(aside, file, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(aside, dir_fd=directory)
        raise


def _sweep(directory: int, before: float) -> None:
    """Remove temporary files that were written before a time (0: at any time) and never became an entry."""
    for file in os.listdir(directory):
        if file.endswith(TEMPORARY):
            try:
                if not before or os.stat(file, dir_fd=directory, follow_symlinks=False).st_mtime < before:
                    os.unlink(file, dir_fd=directory)
            except OSError:  # another process was faster
                continue
