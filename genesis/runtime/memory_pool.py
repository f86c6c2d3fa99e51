"""Device memory in segments: taken from the driver rarely, handed out in blocks often.

cuMemAlloc and cuMemFree cost tens of microseconds and wait for the GPU, so memory that a tensor gives
back is kept. There are two places to look for it:

1. The shelf of its exact size: a dictionary from size to a stack of blocks. A training step asks for
   the same sizes again and again, so nearly every request ends here, at the address it had before.
2. The free list: blocks of a segment ordered by (size, address), best fit, split when larger, merged
   with free neighbours. The shelves are emptied into it before a new segment is taken.

Memory is reused in stream order: a block that is given back may still be read by kernels in flight,
and whoever gets it next must use it on the same stream. `genesis.cuda.stream` orders streams so that
this holds; `Block.stream` is there for a finer rule.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from genesis.runtime.cuda_driver import cached_per_driver, driver
from genesis.runtime.driver import Driver, DriverOutOfMemory

ALIGNMENT: Final = 512  # bytes: what cuMemAlloc's blocks keep too; enough for any vector load and TMA
MIB: Final = 1 << 20
SMALL_REQUEST: Final = MIB  # up to here blocks come from segments of their own, so that they do not cut up large ones
SMALL_SEGMENT: Final = 2 * MIB  # the granularity of the GPU's page tables
LARGE_SEGMENT: Final = 20 * MIB


T = TypeVar("T")


class OutOfMemoryError(RuntimeError):
    """The GPU's memory, or this process's share of it, is exhausted. `genesis.cuda.OutOfMemoryError`."""


class Segment:
    """One allocation of the driver. `small` says which requests it serves."""

    __slots__ = ("address", "first", "size", "small")

    def __init__(self, address: int, size: int, small: bool):
        self.address, self.size, self.small = address, size, small
        self.first = Block(self, address, size)


class Block:
    """A part of a segment: handed out, on a shelf, or free.

    The blocks of a segment tile it and are linked in order of address.
    """

    __slots__ = ("address", "after", "before", "free", "held", "segment", "size", "stream")

    def __init__(self, segment: Segment, address: int, size: int):
        self.segment, self.address, self.size = segment, address, size
        self.before: Block | None = None
        self.after: Block | None = None
        self.free = False  # whether it is in the free list
        self.held = False  # whether somebody has it
        self.stream: Any = None  # where its last user worked


@dataclass
class PoolStats:
    """True numbers of a pool. Bytes are of blocks, which are multiples of `ALIGNMENT`."""

    allocated_bytes: int = 0  # held by somebody
    reserved_bytes: int = 0  # taken from the driver
    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    allocations: int = 0  # blocks handed out so far
    frees: int = 0  # blocks given back so far
    segments: int = 0
    segments_taken: int = 0  # so far
    retries: int = 0  # driver failures after which cached memory was given up
    out_of_memory_errors: int = 0


class MemoryPool:
    """The memory of one GPU.

    >>> from genesis.runtime.host_driver import HostDriver
    >>> pool = MemoryPool(HostDriver(), device=0)
    >>> block = pool.allocate(1000)
    >>> block.size, pool.stats().reserved_bytes
    (1024, 2097152)
    >>> pool.give_back(block)
    >>> pool.stats().allocated_bytes
    0
    """

    def __init__(self, driver: Driver, device: int):
        self.device = device
        self._driver = driver
        self._poisons = driver.poisons
        self._stats = PoolStats()
        self._shelves: dict[int, list[Block]] = {}
        self._free: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])  # (size, address); [small]
        self._free_at: dict[int, Block] = {}
        self._segments: list[Segment] = []
        self._limit: int | None = None
        self._lock = threading.RLock()
        # Storages die whenever Python's collector likes, inside `allocate` too. So giving back only
        # queues, which is atomic, and `allocate` takes the queue in before it looks for memory.
        self._returned: deque[Block] = deque()
        self.give_back = self._returned.append

    def allocate(self, nbytes: int, stream: Any = None) -> Block:
        """A block of at least `nbytes` > 0 bytes. Its contents are undefined.

        Raises:
            OutOfMemoryError: neither the pool nor the driver has it.
        """
        size = (nbytes + ALIGNMENT - 1) & -ALIGNMENT
        with self._lock:
            if self._returned:
                self._take_in()
            shelf = self._shelves.get(size)
            block = shelf.pop() if shelf else self._find(size, nbytes)
            block.held = True
            block.stream = stream
            stats = self._stats
            stats.allocations += 1
            stats.allocated_bytes += size
            if stats.allocated_bytes > stats.peak_allocated_bytes:
                stats.peak_allocated_bytes = stats.allocated_bytes
        if self._poisons:
            self._driver.fill(block.address, 0xFF, size, stream)
        return block

    def empty_cache(self) -> None:
        """Give the driver every segment that no block is held of."""
        with self._lock:
            self._merge_shelves()
            unused = [segment for segment in self._segments if segment.first.free and segment.first.after is None]
            if not unused:
                return
            self._driver.use(self.device)
            self._driver.synchronize()  # kernels in flight may still read what was given back
            for segment in unused:
                self._drop_free(segment.first)
                self._segments.remove(segment)
                self._driver.free(segment.address)
                self._stats.reserved_bytes -= segment.size
                self._stats.segments -= 1

    def reclaiming(self, action: Callable[[], T]) -> T:
        """`action()`; if the driver is out of memory, once more after the cache was emptied.

        For driver calls that take memory behind the pool's back: loading a module, making a graph.

        Raises:
            OutOfMemoryError: there was not enough the second time either.
        """
        try:
            return action()
        except DriverOutOfMemory:
            self._stats.retries += 1
            self.empty_cache()
        try:
            return action()
        except DriverOutOfMemory as error:
            self._stats.out_of_memory_errors += 1
            raise OutOfMemoryError(self._report(f"{error.call} needs more memory")) from error

    def set_memory_fraction(self, fraction: float) -> None:
        """Let this pool take at most that part of the GPU's memory.

        Raises:
            ValueError: the fraction is not in [0, 1].
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"memory fraction must be in [0, 1], got {fraction}")
        self._limit = int(fraction * self._driver.properties(self.device).total_memory)

    def stats(self) -> PoolStats:
        """The numbers now, as a copy."""
        with self._lock:
            self._take_in()
            return replace(self._stats)

    def reset_peaks(self) -> None:
        """Let the peaks start from what is allocated and reserved now."""
        with self._lock:
            self._take_in()
            self._stats.peak_allocated_bytes = self._stats.allocated_bytes
            self._stats.peak_reserved_bytes = self._stats.reserved_bytes

    def snapshot(self) -> list[dict[str, Any]]:
        """The segments and their blocks, in order of address; sizes in bytes, state "held" or "free"."""
        with self._lock:
            self._merge_shelves()
            return [{"device": self.device, "address": segment.address, "total_size": segment.size,
                     "segment_type": "small" if segment.small else "large",
                     "allocated_size": sum(block.size for block in _blocks(segment) if block.held),
                     "blocks": [{"address": block.address, "size": block.size,
                                 "state": "held" if block.held else "free"} for block in _blocks(segment)]}
                    for segment in sorted(self._segments, key=lambda segment: segment.address)]

    def _find(self, size: int, nbytes: int) -> Block:
        small = size <= SMALL_REQUEST
        block = self._best_fit(size, small)
        if block is None and any(self._shelves.values()):
            self._merge_shelves()
            block = self._best_fit(size, small)
        if block is None:
            block = self._grow(size, small, nbytes).first
        return self._split(block, size)

    def _best_fit(self, size: int, small: bool) -> Block | None:
        """The smallest free block that fits, the lowest of equals; no longer in the free list."""
        entries = self._free[small]
        position = bisect_left(entries, (size, 0))
        if position == len(entries):
            return None
        block = self._free_at[entries[position][1]]
        self._drop_free(block)
        return block

    def _split(self, block: Block, size: int) -> Block:
        if block.size > size:
            rest = Block(block.segment, block.address + size, block.size - size)
            block.size = size
            rest.before, rest.after = block, block.after
            if rest.after is not None:
                rest.after.before = rest
            block.after = rest
            self._add_free(rest)
        return block

    def _grow(self, size: int, small: bool, nbytes: int) -> Segment:
        """A new segment from the driver; cached segments are given up for it if need be."""
        taken = _segment_size(size, small)
        self._driver.use(self.device)
        address = self._ask_driver(taken)
        if address is None:
            self._stats.retries += 1
            self.empty_cache()
            address = self._ask_driver(taken)
        if address is None and taken > size:
            # The last bytes of a nearly full GPU: what was asked for may fit where a whole segment does not.
            taken = size
            address = self._ask_driver(taken)
        if address is None:
            self._stats.out_of_memory_errors += 1
            raise OutOfMemoryError(self._report(f"tried to allocate {_size(nbytes)} ({nbytes} bytes)"))
        segment = Segment(address, taken, small)
        self._segments.append(segment)
        stats = self._stats
        stats.segments += 1
        stats.segments_taken += 1
        stats.reserved_bytes += taken
        stats.peak_reserved_bytes = max(stats.peak_reserved_bytes, stats.reserved_bytes)
        return segment

    def _ask_driver(self, size: int) -> int | None:
        if self._limit is not None and self._stats.reserved_bytes + size > self._limit:
            return None
        try:
            return self._driver.alloc(size)
        except DriverOutOfMemory:
            return None

    def _report(self, what: str) -> str:
        free, total = self._driver.mem_get_info()
        limit = "" if self._limit is None else f" The process's share is {_size(self._limit)}."
        return (f"CUDA out of memory on cuda:{self.device}: {what}; "
                f"{_size(self._stats.allocated_bytes)} allocated, {_size(self._stats.reserved_bytes)} reserved by this "
                f"process, {_size(free)} of {_size(total)} free.{limit} Try a smaller batch, drop tensors that are "
                f"no longer needed, or look at genesis.cuda.memory_snapshot().")

    def _take_in(self) -> None:
        """Put what was given back on the shelves."""
        returned, shelves, stats = self._returned, self._shelves, self._stats
        while returned:
            block = returned.popleft()
            block.held = False
            size = block.size
            stats.frees += 1
            stats.allocated_bytes -= size
            shelf = shelves.get(size)
            if shelf is None:
                shelves[size] = [block]
            else:
                shelf.append(block)

    def _merge_shelves(self) -> None:
        """Move every block on a shelf to the free list, merged with its free neighbours."""
        self._take_in()
        shelves, self._shelves = self._shelves, {}
        for shelf in shelves.values():
            for block in shelf:
                self._merge(block)

    def _merge(self, block: Block) -> None:
        after, before = block.after, block.before
        if after is not None and after.free:
            self._drop_free(after)
            self._join(block, after)
        if before is not None and before.free:
            self._drop_free(before)
            self._join(before, block)
            block = before
        self._add_free(block)

    @staticmethod
    def _join(block: Block, after: Block) -> None:
        block.size += after.size
        block.after = after.after
        if after.after is not None:
            after.after.before = block

    def _add_free(self, block: Block) -> None:
        block.free = True
        self._free_at[block.address] = block
        insort(self._free[block.segment.small], (block.size, block.address))

    def _drop_free(self, block: Block) -> None:
        block.free = False
        del self._free_at[block.address]
        entries = self._free[block.segment.small]
        del entries[bisect_left(entries, (block.size, block.address))]


@cached_per_driver
def pool_of(device: int) -> MemoryPool:
    """The pool of GPU number `device`."""
    return MemoryPool(driver(), device)


def _segment_size(size: int, small: bool) -> int:
    """How much to ask the driver for; huge requests get what they need, in whole pages."""
    if small:
        return SMALL_SEGMENT
    return max(LARGE_SEGMENT, (size + SMALL_SEGMENT - 1) & -SMALL_SEGMENT)


def _blocks(segment: Segment) -> list[Block]:
    found: list[Block] = []
    block: Block | None = segment.first
    while block is not None:
        found.append(block)
        block = block.after
    return found


def _size(nbytes: int) -> str:
    """1536 → '1.5 KiB'"""
    value = float(nbytes)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"
