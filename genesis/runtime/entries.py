"""A directory of files that are there whole or not at all: what the kernel cache and the plan cache keep.

An entry is one file: a line that names the format and the sha256 of the rest, a line of JSON, bytes. It is written
aside and renamed, so a reader sees a whole entry or none, and two processes may write the same one; an entry that is
damaged all the same counts as missing. Nothing in it is executed on the host: no pickle, no shared object.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """What an entry holds."""

    meta: dict[str, Any]
    content: bytes


class Entries:
    """Entries of one kind, in a directory that only its owner can read or write.

    Args:
        directory: made when first written to.
        kind: of entry; the ending of its files.
        version: of the format; entries of another one count as missing.

    >>> import tempfile
    >>> entries = Entries(Path(tempfile.mkdtemp()), "kernel", 1)
    >>> entries.write("add", {"num_warps": 4}, b"ELF...")
    True
    >>> entries.read("add")
    Entry(meta={'num_warps': 4}, content=b'ELF...')
    >>> entries.read("mul") is None
    True
    """

    def __init__(self, directory: Path, kind: str, version: int):
        self.directory, self.kind = directory, kind
        self._head = f"genesis-{kind}-{version}".encode()

    def path(self, name: str) -> Path:
        """The file of an entry."""
        return self.directory / f"{name}.{self.kind}"

    def read(self, name: str) -> Entry | None:
        """The entry; None if there is none, it is damaged, or someone else may have written it."""
        try:
            if not self._is_ours():
                return None
            content = self.path(name).read_bytes()
        except OSError:
            return None
        head, _, body = content.partition(b"\n")
        if head != self._head + b" " + _digest(body):
            return None
        meta, _, rest = body.partition(b"\n")
        return Entry(json.loads(meta), rest)

    def write(self, name: str, meta: dict[str, Any], content: bytes = b"") -> bool:
        """Write an entry, over what is there; whether that worked.

        A full disk or a read-only home is no error: what was to be kept is made again next time.

        Raises:
            TypeError: `meta` has something in it that JSON has no word for.
        """
        body = json.dumps(meta, sort_keys=True, separators=(",", ":")).encode() + b"\n" + content
        try:
            return self._make_directory() and _write_whole(
                self.path(name), self._head + b" " + _digest(body) + b"\n" + body)
        except OSError:
            return False

    def files(self) -> Iterator[Path]:
        """The files of all entries."""
        return iter(sorted(self.directory.glob(f"*.{self.kind}")) if self._is_ours() else ())

    def clear(self) -> int:
        """Remove all entries; how many there were."""
        files = list(self.files())
        for file in files:
            file.unlink(missing_ok=True)
        return len(files)

    def _make_directory(self) -> bool:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.directory.stat().st_uid == os.getuid():
            self.directory.chmod(0o700)  # also when it was there, or the umask said otherwise
        return self._is_ours()

    def _is_ours(self) -> bool:
        """Whether nobody else can have put something here for us to run."""
        try:
            found = self.directory.stat()
        except FileNotFoundError:
            return False
        return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def name_of(key: str) -> str:
    """A key of any length as the name of a file."""
    return hashlib.sha256(key.encode()).hexdigest()


def default_directory() -> Path:
    """`$GENESIS_CACHE_DIR`, or `genesis` in the user's cache directory."""
    named = os.environ.get("GENESIS_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "genesis"


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _write_whole(path: Path, content: bytes) -> bool:
    """Write a file so that it is there with all of its content, after a crash of the machine too, or not at all."""
    import tempfile  # with shutil, random and three compressors: only for who writes
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem[:16], suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return True
