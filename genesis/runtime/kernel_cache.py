"""Compiled kernels on disk, so that a program compiles once per machine.

An entry is one file, named by the sha256 of its key and made of three parts: a line that names the format and
the sha256 of the rest, a line of JSON, the cubin. It is written aside and renamed, so a reader sees a
whole entry or none; one that is damaged all the same counts as missing. Nothing in it is executed on
the host: no pickle, no shared object.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FORMAT: Final = b"genesis-kernel-1"


@dataclass(frozen=True)
class CachedKernel:
    """What an entry holds: the binary, and what else the compiler had to say (names, warps, shared bytes)."""

    cubin: bytes
    meta: dict[str, Any]


class KernelCache:
    """A directory of compiled kernels that only its owner can read or write.

    Args:
        directory: None is `$GENESIS_CACHE_DIR`, and without that ~/.cache/genesis. Made when first written to.

    >>> cache = KernelCache(tempfile.mkdtemp())
    >>> cache.get("source of add, sm_90, triton 3.6.0") is None
    True
    >>> cache.put("source of add, sm_90, triton 3.6.0", b"ELF...", {"num_warps": 4})
    True
    >>> cache.get("source of add, sm_90, triton 3.6.0")
    CachedKernel(cubin=b'ELF...', meta={'num_warps': 4})
    """

    def __init__(self, directory: str | Path | None = None):
        self.directory = Path(directory) if directory is not None else default_directory()

    def path(self, key: str) -> Path:
        """The file of a key's entry. The key holds all that the binary depends on."""
        return self.directory / f"{hashlib.sha256(key.encode()).hexdigest()}.kernel"

    def get(self, key: str) -> CachedKernel | None:
        """The entry; None if there is none, it is damaged, or someone else may have written it."""
        try:
            if not self._is_ours():
                return None
            content = self.path(key).read_bytes()
        except OSError:
            return None
        return _parse(content)

    def put(self, key: str, cubin: bytes, meta: dict[str, Any]) -> bool:
        """Write an entry, over what is there; whether that worked.

        A full disk or a read-only home is no error: the program has its kernel, it will compile again
        next time.

        Raises:
            TypeError: `meta` has something in it that JSON has no word for.
        """
        body = json.dumps(meta, sort_keys=True).encode() + b"\n" + cubin
        content = FORMAT + b" " + _digest(body) + b"\n" + body
        try:
            return self._make_directory() and _write_whole(self.path(key), content)
        except OSError:
            return False

    def clear(self) -> int:
        """Remove all entries; how many there were."""
        entries = list(self.directory.glob("*.kernel")) if self._is_ours() else []
        for entry in entries:
            entry.unlink(missing_ok=True)
        return len(entries)

    def _make_directory(self) -> bool:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.directory.stat().st_uid == os.getuid():
            self.directory.chmod(0o700)  # also when it was there, or the umask said otherwise
        return self._is_ours()

    def _is_ours(self) -> bool:
        """Whether nobody else can have put a kernel here for us to run."""
        try:
            found = self.directory.stat()
        except FileNotFoundError:
            return False
        return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def default_directory() -> Path:
    """`$GENESIS_CACHE_DIR`, or `genesis` in the user's cache directory."""
    named = os.environ.get("GENESIS_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "genesis"


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _parse(content: bytes) -> CachedKernel | None:
    head, _, body = content.partition(b"\n")
    if head != FORMAT + b" " + _digest(body):
        return None
    meta, _, cubin = body.partition(b"\n")
    return CachedKernel(cubin, json.loads(meta))


def _write_whole(path: Path, content: bytes) -> bool:
    """Write a file so that it is there with all of its content, after a crash of the machine too, or not at all."""
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
