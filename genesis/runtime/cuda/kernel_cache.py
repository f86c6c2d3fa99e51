"""Compiled kernels on disk, so that a program compiles once per machine. See `disk_store.py` for how they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from genesis.runtime.disk_store import DiskStore, Facts, default_directory, name_of
from genesis.runtime.plan import KernelImage

FORMAT: Final = 1
"""Version of the entries; it grows when one of an earlier version would be read wrongly."""

MOST_WARPS: Final = 64
"""The most warps that one program can have; an entry that says more is damaged."""


@dataclass(frozen=True)
class CachedKernel:
    """A compiled kernel on disk: the binary, and the compiler's facts about it (names, warps, shared bytes)."""

    cubin: bytes
    meta: Facts

    def image(self, entry: str, source: str | None = None) -> KernelImage | None:
        """The image that the driver loads; None if the entry lacks a fact, as only another version can have written it.

        Args:
            entry: the entry's name.
            source: the kernel's text; by default the text in the entry.
        """
        name, warps, shared = (self.meta.get(part) for part in ("name", "num_warps", "shared_bytes"))
        text = self.meta.get("source") if source is None else source
        maps = self.meta.get("maps", [])
        if not (isinstance(name, str) and name and isinstance(text, str) and type(warps) is int
                and 1 <= warps <= MOST_WARPS and type(shared) is int and shared >= 0 and _are_maps(maps)):
            return None
        return KernelImage(name, self.cubin, warps, shared, text, entry, tuple(map(tuple, maps)))


def _are_maps(given: object) -> bool:
    """Is this what a compiler says of matrices' maps: lists of the swizzle and the sizes of a block?"""
    return isinstance(given, list) and all(isinstance(x, list) and 3 <= len(x) <= 6 and all(
        type(n) is int and 0 <= n <= 256 for n in x) for x in given)


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
        """The directory that the entries are in."""
        return self.store.directory

    @staticmethod
    def name(key: str) -> str:
        """The name of a key's entry. A key holds all that the binary depends on."""
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

    def put(self, key: str, cubin: bytes, meta: Facts) -> bool:
        """Write an entry over the one that is there; returns whether that worked. See `DiskStore.write`."""
        return self.store.write(key, meta, cubin)

    def clear(self) -> int:
        """Remove all entries; returns how many there were."""
        return self.store.clear()


__all__ = ["CachedKernel", "KernelCache", "default_directory"]
