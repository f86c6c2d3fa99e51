"""Scratch memory of a stream, shared by all plans that run on it: what one plan leaves there no other reads.

An arena is a reserved range of addresses with memory mapped behind its first part. It grows in place, so the
addresses in graphs stay good when a larger plan comes between two runs of a smaller one.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial

from genesis.runtime.contexts import Attempt
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.cuda.driver import MAP_GRANULARITY, DriverError
from genesis.runtime.cuda.memory_pool import pool_of
from genesis.runtime.cuda.owed_launches import owed_launches
from genesis.runtime.cuda.stream import Stream


class Arena:
    """Memory for the intermediates of one stream's plans, which run one after the other.

    Attributes:
        device: the number of its GPU.
        ptr: its address, which never changes; 0 until memory was first asked for.
        nbytes: how many bytes are mapped there.
        lock: a plan holds it while it gives the GPU its work, so that two threads' plans do not mix.
    """

    def __init__(self, stream: Stream):
        self.device = stream.device.index
        self.ptr = 0
        self.nbytes = 0
        self.lock = threading.RLock()
        self._doubtful: tuple[int, int] | None = None  # what is being mapped or unmapped: where, and how many bytes

    def reserve(self, nbytes: int) -> None:
        """Map memory until the arena has at least that many bytes; its contents and its address stay.

        Raises:
            OutOfMemoryError: the GPU has no such memory; the arena is as it was.
        """
        if nbytes <= self.nbytes:
            return
        gpu, pool = driver(), pool_of(self.device)
        gpu.use(self.device)
        self._settle()
        if not self.ptr:
            total = gpu.properties(self.device).total_memory
            self.ptr = gpu.reserve_range(-(-total // MAP_GRANULARITY) * MAP_GRANULARITY)
        grown = -(-nbytes // MAP_GRANULARITY) * MAP_GRANULARITY
        start, more = self.ptr + self.nbytes, grown - self.nbytes
        self._doubtful = start, more
        pool.take_outside(start, more, partial(gpu.map_memory, start, more), "scratch memory of plans")
        self.nbytes = grown
        self._doubtful = None

    def release(self) -> None:
        """Wait for the GPU and give the arena's memory back; its addresses stay reserved."""
        if self.nbytes:
            self._settle()
            self._doubtful = self.ptr, self.nbytes
            self.nbytes = 0
        self._settle()

    def _settle(self) -> None:
        """Give back what a call that was interrupted left in doubt: it may be mapped or not, and counted or not."""
        if self._doubtful is None:
            return
        (start, nbytes), gpu, pool = self._doubtful, driver(), pool_of(self.device)
        gpu.use(self.device)
        gpu.synchronize()
        with suppress(DriverError):
            gpu.unmap_memory(start, nbytes)
        if start in pool.outside:
            pool.give_outside(start, nbytes)
        self._doubtful = None


@cached_per_driver
def arena_of(stream: Stream) -> Arena:
    """The arena of that stream."""
    arena = Arena(stream)
    _arenas().append(arena)
    return arena


class Exchange(Arena):
    """Memory in which the programs of a stream's kernels hand over parts of a sum: zeros at first.

    Attributes:
        zeros: how many of its first bytes were made 0 since they were mapped, and are between kernels.
        lock: the stream's arena's. A plan holds that, and uses both.
    """

    def __init__(self, stream: Stream):
        super().__init__(stream)
        self.zeros = 0
        self.lock = arena_of(stream).lock
        self._stream = stream.handle

    def reserve(self, nbytes: int) -> None:
        """Does what `Arena.reserve` does; memory that is new holds zeros, also where an earlier call ended before it
        had made them."""
        super().reserve(nbytes)
        if self.zeros < nbytes:
            driver().fill(self.ptr + self.zeros, 0, self.nbytes - self.zeros, self._stream)
            self.zeros = self.nbytes

    def release(self) -> None:
        """Does what `Arena.release` does."""
        self.zeros = 0  # first: an exception may come before or after the memory is gone
        super().release()


@cached_per_driver
def exchange_of(stream: Stream) -> Exchange:
    """That of a stream."""
    exchange = Exchange(stream)
    _arenas().append(exchange)
    return exchange


@cached_per_driver
def _arenas() -> list[Arena]:
    return []


def release_idle_arenas(device: int) -> None:
    """Give back the scratch memory of a GPU's streams that no plan is being started on in another thread, and no
    launch is owed on."""
    kept = {id(arena) for owed in owed_launches() for arena in owed.scratch}
    for arena in tuple(_arenas()):
        if arena.device == device and id(arena) not in kept:
            with (attempt := Attempt(arena.lock)):
                if attempt.taken == [True]:
                    arena.release()
