"""Compiled kernels on disk, so that a program compiles once per machine. See `entries.py` for how they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from genesis.runtime.entries import Entries, default_directory, name_of

FORMAT: Final = 1


@dataclass(frozen=True)
class CachedKernel:
    """What an entry holds: the binary, and what else the compiler had to say (names, warps, shared bytes)."""

    cubin: bytes
    meta: dict[str, Any]


class KernelCache:
    """A directory of compiled kernels that only its owner can read or write.

    Args:
        directory: None is `$GENESIS_CACHE_DIR`, and without that ~/.cache/genesis. Made when first written to.

    >>> import tempfile
    >>> cache = KernelCache(tempfile.mkdtemp())
    >>> cache.get("source of add, sm_90, triton 3.6.0") is None
    True
    >>> cache.put("source of add, sm_90, triton 3.6.0", b"ELF...", {"num_warps": 4})
    True
    >>> cache.get("source of add, sm_90, triton 3.6.0")
    CachedKernel(cubin=b'ELF...', meta={'num_warps': 4})
    """

    def __init__(self, directory: str | Path | None = None):
        self.entries = Entries(Path(directory) if directory is not None else default_directory(), "kernel", FORMAT)

    @property
    def directory(self) -> Path:
        """Where the entries are."""
        return self.entries.directory

    @staticmethod
    def name(key: str) -> str:
        """What the entry of a key is called. The key holds all that the binary depends on."""
        return name_of(key)

    def path(self, key: str) -> Path:
        """The file of a key's entry."""
        return self.entries.path(name_of(key))

    def get(self, key: str) -> CachedKernel | None:
        """The entry of a key; None if there is none, it is damaged, or someone else may have written it."""
        return self.named(name_of(key))

    def named(self, name: str) -> CachedKernel | None:
        """The entry with this name, as `get`."""
        found = self.entries.read(name)
        return None if found is None else CachedKernel(found.content, found.meta)

    def put(self, key: str, cubin: bytes, meta: dict[str, Any]) -> bool:
        """Write an entry, over what is there; whether that worked. See `Entries.write`."""
        return self.entries.write(name_of(key), meta, cubin)

    def clear(self) -> int:
        """Remove all entries; how many there were."""
        return self.entries.clear()


__all__ = ["CachedKernel", "KernelCache", "default_directory"]
