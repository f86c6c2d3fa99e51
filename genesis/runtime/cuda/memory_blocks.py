"""Segments of device memory and the blocks that tile them: split when handed out, merged when free.

A segment is one allocation of the driver. Its blocks are linked in order of address. Each block belongs to a
lane (`memory_pool.Lane`): the stream in whose order it may be written again.

A signal's exception may come between any two lines. The blocks tile their segment all the same, as what cuts or joins
them is one call of C; a block that is in no list then, and that nobody holds, is lost until `lost_blocks` is asked.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Container, Iterable, Iterator
from itertools import starmap
from operator import call
from sys import getrefcount
from typing import TYPE_CHECKING

from genesis.runtime.contexts import in_order
from genesis.runtime.references import HELD_ONCE

if TYPE_CHECKING:
    from genesis.runtime.cuda.memory_lanes import Lane, Shelf
    from genesis.runtime.cuda.memory_pool import MemoryPool
    from genesis.runtime.cuda.stream import Stream


class Segment:
    """One allocation of the driver. `small` says which requests it serves."""

    __slots__ = ("address", "first", "size", "small")

    def __init__(self, address: int, size: int, small: bool, lane: Lane):
        self.address, self.size, self.small = address, size, small
        self.first = Block(self, address, size, lane)

    def blocks(self) -> list[Block]:
        """The blocks that tile the segment, in order of address."""
        found: list[Block] = []
        block: Block | None = self.first
        while block is not None:
            found.append(block)
            block = block.after
        return found


class Block:
    """A part of a segment: held by somebody, on a shelf, or free.

    Attributes:
        lane: the lane of the stream in whose order it may be used again.
        home: the list that it is put on when its holder gives it back.
        pool: the `MemoryPool` that counts it.
        shelf: the shelf that counts it while it is held or on that shelf; None if none does.
        free: whether it is in its lane's `FreeList`.
        units: its size in units of `ALIGNMENT`, for `MemoryPool.held`.
        users: streams other than its lane's that its holder used it on, None for none.
        source: what its holder says it is for: a line of the user's program, or a text.
    """

    __slots__ = ("address", "after", "before", "free", "home", "lane", "pool", "segment", "shelf", "size", "source",
                 "units", "users")

    home: list[Block] | deque[Block]  # set when the block is handed out, as are the two fields below
    pool: MemoryPool
    units: int

    def __init__(self, segment: Segment, address: int, size: int, lane: Lane):
        self.segment, self.address, self.size, self.lane = segment, address, size, lane
        self.before: Block | None = None
        self.after: Block | None = None
        self.free = False
        self.shelf: Shelf | None = None
        self.source: object = None
        self.users: dict[Stream, None] | None = None

    def split(self, size: int) -> Block:
        """Cut the block after its first `size` bytes; returns the rest as a block of its own."""
        rest = Block(self.segment, self.address + size, self.size - size, self.lane)
        rest.before, rest.after = self, self.after
        changes: list[tuple[Block, str, object]] = [(self, "size", size), (self, "after", rest)]
        if rest.after is not None:
            changes.append((rest.after, "before", rest))
        in_order(starmap(setattr, changes))
        return rest

    def absorb_next(self) -> None:
        """Merge the block behind into this one; that block exists no more."""
        after = self.after
        assert after is not None
        changes: list[tuple[Block, str, object]] = [(self, "size", self.size + after.size),
                                                    (self, "after", after.after)]
        if after.after is not None:
            changes.append((after.after, "before", self))
        in_order(starmap(setattr, changes))


def lost_blocks(segments: Iterable[Segment], unheld: Container[Block]) -> list[Block]:
    """The blocks that nobody holds and that are in none of the pool's lists: an exception came to them on their way
    between the two. Whoever is about to hold one, or to put it somewhere, has it in a variable.

    >>> segment = Segment(address=4096, size=2048, small=True, lane=None)
    >>> mine = segment.first.split(512)
    >>> [block.address for block in lost_blocks([segment], set())]
    [4096]
    """
    found: list[Block] = []
    for segment in segments:
        blocks = segment.blocks()
        counts = list(map(getrefcount, blocks))
        found += [block for block, count in zip(blocks, counts, strict=True)
                  if count == HELD_ONCE + 1 + (block.after is not None) and block not in unheld]
    return found


class FreeList:
    """Free blocks of one lane, in order of (size, address).

    >>> segment = Segment(address=4096, size=2048, small=True, lane=None)
    >>> blocks = FreeList()
    >>> blocks.add(segment.first)
    >>> blocks.best_fit(512).size, blocks.best_fit(512)
    (2048, None)
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Block]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __iter__(self) -> Iterator[Block]:
        return iter([block for _, _, block in self._entries])

    def add(self, block: Block) -> None:
        """Put a block in."""
        in_order(starmap(call, [(insort, self._entries, (block.size, block.address, block)),
                                (setattr, block, "free", True)]))

    def remove(self, block: Block) -> None:
        """Take this block out."""
        self._take(bisect_left(self._entries, (block.size, block.address)))

    def _take(self, position: int) -> Block:
        block = self._entries[position][2]
        in_order(starmap(call, [(self._entries.pop, position), (setattr, block, "free", False)]))
        return block

    def best_fit(self, size: int) -> Block | None:
        """Take out the smallest block of at least `size` bytes, the lowest of equals."""
        entries = self._entries
        position = bisect_left(entries, (size,))
        return None if position == len(entries) else self._take(position)
