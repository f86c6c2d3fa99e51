"""Compiled kernels on disk, so that a program compiles once per machine. See `disk_store.py` for how they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from genesis.runtime.disk_store import DiskStore, default_directory, name_of
from genesis.runtime.plan import KernelImage

FORMAT: Final = 1
"""Raised when an entry of an earlier version would be read wrongly; those without a key count as missing anyway."""

MOST_WARPS: Final = 64
"""Warps of one program; what an entry says beyond that is no number of warps."""


@dataclass(frozen=True)
class CachedKernel:
    """What an entry holds: the binary, and what else the compiler had to say (names, warps, shared bytes)."""

    cubin: bytes
    meta: dict[str, Any]

    def image(self, entry: str, source: str | None = None) -> KernelImage | None:
        """What the driver loads; None if the entry does not say all of it, which only another version can have written.

        Args:
            entry: its name.
            source: the kernel's text; that of the entry by default.
        """
        name, warps, shared = (self.meta.get(part) for part in ("name", "num_warps", "shared_bytes"))
        text = self.meta.get("source") if source is None else source
        if not (isinstance(name, str) and name and isinstance(text, str) and type(warps) is int
                and 1 <= warps <= MOST_WARPS and type(shared) is int and shared >= 0):
            return None
        return KernelImage(name, self.cubin, warps, shared, text, entry)


class KernelCache:
    """A directory of compiled kernels that nobody but its owner can write to.

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
        self.store = DiskStore(Path(directory) if directory is not None else default_directory(), "kernel", FORMAT)

    @property
    def directory(self) -> Path:
        """Where the entries are."""
        return self.store.directory

    @staticmethod
    def name(key: str) -> str:
        """What the entry of a key is called. The key holds all that the binary depends on."""
        return name_of(key)

    def path(self, key: str) -> Path:
        """The file of a key's entry."""
        return self.store.path(name_of(key))

    def get(self, key: str) -> CachedKernel | None:
        """The entry of a key; None if there is none, it is damaged, or someone else may have written it."""
        return self.named(name_of(key))

    def named(self, name: str) -> CachedKernel | None:
        """The entry with this name, as `get`."""
        found = self.store.read(name)
        return None if found is None else CachedKernel(found.content, found.meta)

    def put(self, key: str, cubin: bytes, meta: dict[str, Any]) -> bool:
        """Write an entry, over what is there; whether that worked. See `DiskStore.write`."""
        return self.store.write(key, meta, cubin)

    def clear(self) -> int:
        """Remove all entries; how many there were."""
        return self.store.clear()


__all__ = ["CachedKernel", "KernelCache", "default_directory"]
