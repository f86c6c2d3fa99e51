"""Device memory in segments: taken from the driver rarely, handed out in blocks often.

cuMemAlloc and cuMemFree cost tens of microseconds and wait for the GPU, so memory that is given back is kept.
A request looks for it in this order:

1. The shelf of its size, a stack of blocks. A training step asks for the same sizes again and again, so
   nearly every request ends here, at the address it had before. `CUDAStorage` looks here itself. Where sizes hardly
   ever come again, large ones are rounded up to classes (`memory_sizes`), which do.
2. The free blocks of its lane, and those that no work in flight can touch (`MemoryPool.idle`): best fit, split when
   larger, merged with free neighbours.
3. A new segment from the driver, within `SLACK`: sizes that take turns then have a shelf each.
4. The shelves, emptied into the free blocks; then the free blocks of other lanes; then a new segment. Where there is
   no class to be had, the same for the size itself.
5. Cached segments go back to the driver, and it is asked again.

A signal's handler that takes memory while it interrupts one of these steps gets a segment of its own (`_apart`): what
is interrupted has looked up places in lists, which stay as they are.

A block that is given back belongs to a *lane*: the stream whose later work may use it without waiting. Taking it
into another lane makes that stream wait for an event of this one.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import starmap
from operator import attrgetter, call, itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from genesis.runtime.contexts import in_order
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.cuda.driver import Driver, DriverOutOfMemory
from genesis.runtime.cuda.memory_blocks import Block, Segment, lost_blocks
from genesis.runtime.cuda.memory_lanes import Lane
from genesis.runtime.cuda.memory_report import out_of_memory_message, size_text
from genesis.runtime.cuda.memory_sizes import ALIGNMENT, MIB, SMALL_REQUEST, block_size, segment_size

if TYPE_CHECKING:
    from genesis.runtime.cuda.stream import Stream

SLACK: Final = 256 * MIB
"""Bytes that may be reserved beyond the peak of held memory before shelves are emptied and streams made to wait: room
for sizes that take turns to have a shelf each."""

_SIZE: Final = attrgetter("size")
_FIRST: Final = itemgetter(0)

T = TypeVar("T")


class OutOfMemoryError(RuntimeError):
    """The GPU's memory, or this process's share of it, is exhausted. `genesis.cuda.OutOfMemoryError`."""


@dataclass
class PoolStats:
    """Counts of a pool. Bytes are those of whole blocks, whose sizes are multiples of `ALIGNMENT`."""

    allocated_bytes: int = 0  # held by somebody
    reserved_bytes: int = 0  # taken from the driver
    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    allocations: int = 0  # blocks handed out so far
    frees: int = 0  # blocks given back so far
    segments: int = 0
    segments_taken: int = 0  # segments allocated so far
    retries: int = 0  # driver failures after which cached memory was given up
    out_of_memory_errors: int = 0


class Keeper(Protocol):
    """Holds blocks only to be quick the next time."""

    def let_go(self) -> None:
        """Give back the blocks that nobody else holds."""


class _Asked(NamedTuple):
    """What the driver is asked for: a segment of a size, for small requests or others, and its address once there."""

    size: int
    small: bool
    addresses: list[int]


class MemoryPool:
    """The memory of one GPU.

    Attributes:
        held: how much memory is held, in units of `ALIGNMENT` bytes: sums of numbers below 2**30 cost CPython half of
            what sums of larger ones do (`benchmarks/allocator.py`).
        peak: the most that `held` was.
        handed_out: how many blocks were handed out so far.
        idle: the lane of free memory that no work in flight can touch.
        keepers: executors that hold blocks only to be quick in the next run; their `let_go()` gives these back.
        outside: memory that is in no segment, by address: its size and what it is for.

    >>> from genesis.runtime.fake_cuda.driver import HostDriver
    >>> pool = MemoryPool(HostDriver(), device=0)
    >>> block = pool.allocate(1000)
    >>> block.size, pool.stats().reserved_bytes
    (1024, 2097152)
    >>> pool.give_back(block)
    >>> pool.stats().allocated_bytes
    0
    """

    def __init__(self, driver: Driver, device: int, slack: int = SLACK):
        self.device = device
        self._slack = slack
        # Blocks come and go without the lock: a list's `pop` and `append` are atomic, and so is a sum of two
        # attributes with no call between (CPython switches threads, looks for signals and collects garbage at calls,
        # where functions begin and at jumps back). Where a signal's exception comes on another way between a list and a
        # holder, the block is lost until memory is short, and the sums are wrong until then (`_find_lost`).
        self.held = self.peak = self.handed_out = 0
        self.idle = Lane(self, None)
        self.keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()
        self.outside: dict[int, tuple[int, object]] = {}
        self._driver = driver
        self._poisons = driver.poisons
        self._lanes: dict[Stream | None, Lane] = {}
        self._segments: list[Segment] = []
        self._asked: list[_Asked] = []
        self._peak_reserved = self._taken = self._retries = self._errors = 0
        self._limit: int | None = None
        self._lock = threading.RLock()
        # Blocks that cannot go straight to a shelf: other streams used them, or the driver poisons fresh memory.
        self._returned: deque[Block] = deque()

    def lane(self, stream: Stream | None) -> Lane:
        """The lane of that stream: free memory whose reuse is ordered by the stream's work."""
        found = self._lanes.get(stream)
        if found is None:
            with self._lock:
                found = self._lanes.setdefault(stream, Lane(self, stream))
        return found

    def allocate(self, nbytes: int, stream: Stream | None = None, source: object = None) -> Block:
        """A block of at least `nbytes` > 0 bytes for work on `stream`. Its contents are undefined.

        Args:
            source: what the block is for: `genesis.cuda.memory_snapshot` and the error when memory runs out show it.

        Raises:
            OutOfMemoryError: neither the pool nor the driver has it.
        """
        return self.allocate_in(self.lane(stream), nbytes, source)

    def allocate_in(self, lane: Lane, nbytes: int, source: object = None) -> Block:
        """`allocate` for the lane's stream."""
        alone = self._is_alone
        with self._lock:
            if alone and self._returned:
                self._take_in()
            block = (lane.take(nbytes) or self._find(lane, nbytes)) if alone else self._apart(lane, nbytes)
            if self._poisons:
                block.home = self._returned
            block.source = source
            self.handed_out += 1
            held = self.held = self.held + block.units
            if held > self.peak:
                self.peak = held
        if self._poisons:
            self._driver.fill(block.address, 0xFF, block.size, None if lane.stream is None else lane.stream.handle)
        return block

    def give_back(self, block: Block) -> None:
        """Give a block back to the pool. This never waits, and is safe inside the garbage collector."""
        self.held -= block.units
        block.home.append(block)

    def used_on(self, block: Block, stream: Stream) -> None:
        """Note that work on another stream uses the block: its memory is not reused before that work is done."""
        if stream is not block.lane.stream:
            block.users = {**(block.users or {}), stream: None}
            block.home = self._returned

    def empty_cache(self) -> None:
        """Free every segment of which no block is held, after the keepers have let go of theirs. Nothing where a
        signal's handler asks that interrupts the pool."""
        if self._is_alone:
            self._empty()

    def _empty(self) -> None:
        for keeper in tuple(self.keepers):
            keeper.let_go()
        self._give_up()

    @property
    def _is_alone(self) -> bool:
        """Whether this thread is in no other call of the pool's, which it has interrupted: by a signal's handler, or to
        let go of memory."""
        return not self._lock._is_owned()  # type: ignore[attr-defined]

    def _give_up(self, enough: int | None = None) -> None:
        """Free segments of which no block is held: all, or the first that together have `enough` bytes."""
        with self._lock:
            self._take_in()
            self._find_lost()
            if not any(True for lane in self._all_lanes() for _ in lane.blocks()):
                return
            self._driver.use(self.device)
            self._driver.synchronize()  # kernels in flight may still read what was given back
            self._idle_all()
            unused = [segment for segment in self._segments if segment.first.free and segment.first.after is None]
            given = 0
            for segment in sorted(unused, key=lambda segment: segment.size, reverse=True):
                if enough is not None and given >= enough:
                    break
                self.idle.free[segment.small].remove(segment.first)
                in_order(starmap(call, [(self._driver.free_call(segment.address),), (self._segments.remove, segment)]))
                given += segment.size

    def reclaiming(self, action: Callable[[], T]) -> T:
        """The result of `action()`; if the driver is out of memory, the action runs once more over an emptied cache.

        For driver calls that take memory behind the pool's back: loading a module, making a graph.

        Raises:
            OutOfMemoryError: there was not enough the second time either.
        """
        return self._reclaiming(action, self._is_alone)

    def _reclaiming(self, action: Callable[[], T], alone: bool) -> T:
        """`alone`: whether the cache may be emptied, as no call of the pool's is interrupted."""
        try:
            return action()
        except DriverOutOfMemory:
            self._retries += 1
            if alone:
                self._empty()
        try:
            return action()
        except DriverOutOfMemory as error:
            self._errors += 1
            raise OutOfMemoryError(self._report(f"{error.call} needs more memory")) from error

    def take_outside(self, address: int, nbytes: int, action: Callable[[], T], source: object = None) -> T:
        """`reclaiming(action)` for an action that takes memory in no segment: the pool counts and limits that too.

        `nbytes` is a multiple of `ALIGNMENT`.

        Raises:
            OutOfMemoryError: nothing was taken.
        """
        alone = self._is_alone
        with self._lock:
            if alone and self._limit is not None and self._reserved + nbytes > self._limit:
                self._empty()
            if self._limit is not None and self._reserved + nbytes > self._limit:
                self._errors += 1
                raise OutOfMemoryError(self._report(f"tried to allocate {size_text(nbytes)} ({nbytes} bytes)"))
            found = self._reclaiming(action, alone)
            self.outside[address] = nbytes, source
            self.held += nbytes // ALIGNMENT
            self.peak = max(self.peak, self.held)
            self._note_reserved()
            return found

    def give_outside(self, address: int, nbytes: int) -> None:
        """Stop counting memory in this range, which went back to the driver; `take_outside` counted it."""
        with self._lock:
            for start in [start for start in tuple(self.outside) if address <= start < address + nbytes]:
                del self.outside[start]
            self.held -= nbytes // ALIGNMENT

    @property
    def _reserved(self) -> int:
        """Bytes that were taken from the driver. Added up each time, where the driver is about to be asked: a handler
        that takes a segment between the two halves of a sum would not be counted."""
        return sum(map(_SIZE, self._segments)) + sum(map(_FIRST, self.outside.values()))

    def _note_reserved(self) -> None:
        reserved = self._reserved
        if reserved > self._peak_reserved:
            self._peak_reserved = reserved

    @property
    def held_bytes(self) -> int:
        """Bytes of blocks that are held now."""
        return self.held * ALIGNMENT

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were held at one time."""
        return self.peak * ALIGNMENT

    @property
    def memory_fraction(self) -> float:
        """The part of the GPU's memory that this pool may take."""
        return 1.0 if self._limit is None else self._limit / self._driver.properties(self.device).total_memory

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit this pool to that part of the GPU's memory.

        Raises:
            ValueError: the fraction is not in [0, 1].
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"memory fraction must be in [0, 1], got {fraction}")
        self._limit = int(fraction * self._driver.properties(self.device).total_memory)

    def stats(self) -> PoolStats:
        """The pool's counts now."""
        with self._lock:
            held = sum(1 for segment in self._segments for _ in segment.blocks()) - len(self.unheld())
            return PoolStats(self.held_bytes, self._reserved, self.peak_bytes, self._peak_reserved, self.handed_out,
                             self.handed_out - held, len(self._segments), self._taken, self._retries, self._errors)

    def reset_peaks(self) -> None:
        """Start the peaks anew at what is allocated and reserved now."""
        with self._lock:
            self.peak, self._peak_reserved = self.held, self._reserved

    def segments(self) -> list[Segment]:
        """The segments in order of address; free neighbours in them are merged, unless a handler that interrupts the
        pool asks."""
        alone = self._is_alone
        with self._lock:
            if alone:
                self._take_in()
                for lane in self._all_lanes():
                    lane.merge()
            return sorted(self._segments, key=lambda segment: segment.address)

    def unheld(self) -> set[Block]:
        """The blocks that nobody holds."""
        with self._lock:
            return {*self._returned, *(block for lane in self._all_lanes() for block in lane.blocks())}

    def _all_lanes(self) -> list[Lane]:
        return [self.idle, *self._lanes.values()]

    def _apart(self, lane: Lane, nbytes: int) -> Block:
        """A block for a signal's handler that interrupts the pool: a segment of its own. No list is changed that what
        it interrupts may have looked at, and the block is set apart when it is given back.

        Raises:
            OutOfMemoryError: the driver has none. What is cached cannot be given up here.
        """
        size = block_size(nbytes)
        block = self._new_segment(lane, size, size <= SMALL_REQUEST)
        if block is None:
            self._errors += 1
            raise OutOfMemoryError(self._report(f"tried to allocate {size_text(nbytes)} ({nbytes} bytes) in a signal's "
                                                "handler that interrupts another allocation"))
        block.pool, block.units, block.home = self, size // ALIGNMENT, self._returned
        return block

    def _find(self, lane: Lane, nbytes: int) -> Block:
        """A block for a request that no shelf can serve; from now on it belongs to this lane.

        Raises:
            OutOfMemoryError: there is none.
        """
        size, exact = lane.size_for(nbytes), block_size(nbytes)
        small = size <= SMALL_REQUEST
        lane.merge_loose()
        block = lane.free[small].best_fit(size) or self.idle.free[small].best_fit(size)
        if block is None and self._reserved + segment_size(size) <= self.peak_bytes + self._slack:
            block = self._new_segment(lane, segment_size(size), small)
        if block is None:
            block = self._regained(lane, size)
        if block is None and size != exact:
            size, block = exact, self._regained(lane, exact)
        if block is None:
            block = self._make_room(lane, size)
        if block is None:
            self._errors += 1
            raise OutOfMemoryError(self._report(f"tried to allocate {size_text(nbytes)} ({nbytes} bytes)"))
        if block.size != size:
            rest = block.split(size)
            rest.lane.free[rest.segment.small].add(rest)  # its neighbours are not free, or they were one with it
        block.lane = lane
        lane.make_home(block, nbytes)
        return block

    def _regained(self, lane: Lane, size: int) -> Block | None:
        """A block of at least `size` bytes for which shelves are emptied, streams wait, or the driver is asked."""
        lane.merge()
        return (lane.cut(size) or self._from_other_lane(lane, size)
                or self._new_segment(lane, segment_size(size), size <= SMALL_REQUEST))

    def _from_other_lane(self, lane: Lane, size: int) -> Block | None:
        """A free block of another stream; this lane's stream waits for that stream's work so far."""
        for other in tuple(self._lanes.values()):
            if other is lane:
                continue
            other.merge()
            block = other.cut(size)
            if block is not None:
                assert lane.stream is not None and other.stream is not None  # only a pool of one lane has no streams
                self._wait(lane.stream, other.stream)
                return block
        return None

    def _wait(self, stream: Stream, other: Stream) -> None:
        """Make later work of `stream` wait for the work that `other` was given so far."""
        self._driver.use(other.device.index)  # a copy between GPUs may have left another one current
        event = self._driver.create_event(timing=False)
        self._driver.record_event(event, other.handle)
        self._driver.use(self.device)
        self._driver.wait_event(stream.handle, event)
        self._driver.destroy_event(event)  # the stream's pending wait stays

    def _make_room(self, lane: Lane, size: int) -> Block | None:
        """A block of memory for which cached segments went back to the driver."""
        small, taken = size <= SMALL_REQUEST, segment_size(size)
        self._retries += 1
        self._give_up(taken)
        block = self.idle.free[small].best_fit(size)  # lanes are one now: neighbours may have merged
        if block is None:
            block = self._new_segment(lane, taken, small)
        if block is None:
            self._empty()
            block = self.idle.free[small].best_fit(size) or self._new_segment(lane, taken, small)
        if block is None and taken > size:
            # A nearly full GPU may have room for the request where it has none for a whole segment.
            block = self._new_segment(lane, size, small)
        return block

    def _new_segment(self, lane: Lane, size: int, small: bool) -> Block | None:
        """A new segment as one block; None if the driver has no memory for it."""
        if self._limit is not None and self._reserved + size > self._limit:
            return None
        self._driver.use(self.device)
        asked = _Asked(size, small, [])
        self._asked.append(asked)
        try:
            self._driver.alloc_call(size, asked.addresses.append)()
        except DriverOutOfMemory:
            self._asked.remove(asked)
            return None
        return self._arrived(asked, lane).first

    def _arrived(self, asked: _Asked, lane: Lane) -> Segment:
        """The segment that the driver was asked for, with the first address that it gave."""
        segment = Segment(asked.addresses[0], asked.size, asked.small, lane)
        in_order(starmap(call, [(self._segments.append, segment), (self._asked.remove, asked)]))
        self._taken += 1
        self._note_reserved()
        return segment

    def _report(self, what: str) -> str:
        return out_of_memory_message(self, what, self._driver.mem_get_info(), self._limit)

    def _take_in(self) -> None:
        """Put the blocks that were set apart when given back on shelves, ordered after all work that uses them."""
        while self._returned:
            block = self._returned.popleft()
            lane = block.lane
            for user in block.users or ():
                assert lane.stream is not None
                self._wait(lane.stream, user)
            block.users, block.home = None, lane.loose if block.shelf is None else block.shelf.blocks
            block.home.append(block)

    def _find_lost(self) -> None:
        """Take the segments and blocks back that an exception came to on their way (`lost_blocks`), and count what is
        held anew."""
        for asked in tuple(self._asked):
            if asked.addresses:
                self._arrived(asked, self.idle)
            else:
                self._asked.remove(asked)
        for block in lost_blocks(self._segments, self.unheld()):
            block.lane.leaves_shelf(block)
            if block.users:
                self._returned.append(block)
            else:
                block.lane.add_free(block)
        self._take_in()
        before = self.handed_out, self.held
        unheld = self.unheld()
        held = sum(block.size for segment in self._segments for block in segment.blocks() if block not in unheld)
        units = (held + sum(map(_FIRST, self.outside.values()))) // ALIGNMENT
        if (self.handed_out, self.held) == before:  # else another thread has held or given back something meanwhile
            self.held = units

    def _idle_all(self) -> None:
        """Move all free memory to the idle lane, when the GPU has no work left."""
        for lane in tuple(self._lanes.values()):
            lane.merge(everything=True)
            for free in lane.free:
                for block in free:
                    if block.free and block.lane is lane:  # any other block is part of a neighbour by now
                        free.remove(block)
                        block.lane = self.idle
                        self.idle.add_free(block)


@cached_per_driver
def pool_of(device: int) -> MemoryPool:
    """The pool of GPU number `device`."""
    return MemoryPool(driver(), device)
