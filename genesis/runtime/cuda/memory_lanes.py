"""The free memory of one stream: shelves with blocks of sizes that were asked for before, and free lists of the rest.

A block that is given back may still be read by kernels in flight, so it belongs to a *lane*: the stream whose
later work may use it without waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat, starmap
from typing import TYPE_CHECKING, Final

from genesis.runtime.contexts import in_order
from genesis.runtime.cuda.memory_blocks import Block, FreeList
from genesis.runtime.cuda.memory_sizes import (
    ALIGNMENT,
    CLASSES,
    SIZES_EXACT,
    SMALL_REQUEST,
    block_size,
    class_keys,
    class_size,
)

if TYPE_CHECKING:
    from genesis.runtime.cuda.memory_pool import MemoryPool
    from genesis.runtime.cuda.stream import Stream

SIZES_KNOWN: Final = 1 << 16
"""Sizes of requests that a lane remembers; after so many it starts over, so that a long process's table stays small."""


class Stack(list[Block]):
    """Blocks that were given back: the last one is handed out first.

    Attributes:
        taken: gives the last block at each step, and raises IndexError where there is none. Between a loop's step and
            the storing of what that gives Python looks for no signals and switches no threads, as it does behind a call
            of `pop`: a block is on the stack, or its holder has it.
    """

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = map(list[Block].pop, repeat(self))


class Shelf:
    """A stack of blocks of one size that were given back: the last one is handed out first.

    Attributes:
        blocks: the blocks on the shelf.
        count: how many blocks are on it or will come back to it; one more for a shelf that stays when there are none.
        keys: the keys of `Lane.quick` that lead to this shelf.
    """

    __slots__ = ("blocks", "count", "keys")

    def __init__(self) -> None:
        self.blocks = Stack()
        self.count = 0
        self.keys: set[int] = set()


class Lane:
    """The free memory of a pool that one stream's later work may use without waiting.

    Attributes:
        stream: the stream (with a `handle` for the driver); None for memory that all may use.
        varied: whether sizes hardly ever come again, so that large ones are rounded up to classes.
        shelves: size of blocks → their shelf, while there are blocks that belong on it.
        quick: the shelves' blocks by request: a size in bytes as asked for → blocks of just that size; minus a
            number of MiB (`-nbytes >> 20` of a request) → blocks of the class for up to that many.
        loose: blocks that were given back and have no shelf, because their size was asked for only once.
        free: the other free blocks: those for large requests, and those for small ones.
    """

    __slots__ = ("_asked", "_large_sizes", "free", "loose", "pool", "quick", "shelves", "stream", "varied")

    def __init__(self, pool: MemoryPool, stream: Stream | None):
        self.pool, self.stream = pool, stream
        self.varied = False
        self.shelves: dict[int, Shelf] = {}
        self.quick: dict[int, Stack] = {}
        self.loose: list[Block] = []
        self.free = (FreeList(), FreeList())
        self._asked: set[int] = set()  # sizes of blocks
        self._large_sizes = 0  # how many large sizes were asked for

    def size_for(self, nbytes: int) -> int:
        """The size that a block for this request should have."""
        return class_size(nbytes) if self._has_class(nbytes) else block_size(nbytes)

    def _has_class(self, nbytes: int) -> bool:
        return self.varied and SMALL_REQUEST < nbytes <= CLASSES[-1]

    def take(self, nbytes: int) -> Block | None:
        """A block of the request's size, of its class, or of the next class, looked up as `CUDAStorage` does."""
        shelf = self.shelves.get(block_size(nbytes))
        if shelf is not None:
            self._lead_to(shelf, (nbytes,))
        for key in (nbytes, -nbytes >> 20, -3 * nbytes >> 21):
            block = _pop(self.quick.get(key))
            if block is not None:
                return block
        return None

    def make_home(self, block: Block, nbytes: int) -> None:
        """Make the block come back to the shelf of its size, unless the size is asked for the first time."""
        size, shelf = block.size, self.shelves.get(block.size)
        block.pool, block.units = self.pool, size // ALIGNMENT
        if shelf is None:
            if self._is_new(size):
                block.shelf, block.home = None, self.loose
                return
            shelf = self.shelves[size] = Shelf()
        in_order(starmap(setattr, [(shelf, "count", shelf.count + 1), (block, "shelf", shelf),
                                   (block, "home", shelf.blocks)]))
        if size - nbytes < ALIGNMENT:
            self._lead_to(shelf, (nbytes,))

    def _is_new(self, size: int) -> bool:
        """Whether no block of this size was asked for before; from then on the size is known."""
        large = size > SMALL_REQUEST
        if size in self._asked or (large and self.varied):
            return False
        if len(self._asked) >= SIZES_KNOWN:
            self._asked.clear()
        self._asked.add(size)
        self._large_sizes += large
        if large and self._large_sizes > SIZES_EXACT:
            self._use_classes()
        return True

    def _use_classes(self) -> None:
        """Round large requests up to classes from now on. Each class has a shelf, which stays when it is empty."""
        self.varied = True
        for size, keys in class_keys():
            shelf = self.shelves.setdefault(size, Shelf())
            shelf.count += 1
            self._lead_to(shelf, keys)

    def _lead_to(self, shelf: Shelf, keys: Iterable[int]) -> None:
        for key in keys:
            self.quick[key] = shelf.blocks
            shelf.keys.add(key)  # last: what is deleted with the shelf is there

    def merge_loose(self) -> None:
        """Move the loose blocks to the free lists."""
        if self.loose:
            for block in _emptied(self.loose):
                self.add_free(block)

    def merge(self, everything: bool = False) -> None:
        """Empty the shelves into the free lists, where neighbours become one.

        Where sizes vary, large blocks that have no free neighbour stay, unless it is for `everything`: they would be
        cut for other classes, and missed.
        """
        self.merge_loose()
        free = {block for shelf in self.shelves.values() for block in tuple(shelf.blocks)} if self.varied else set()
        left = []
        for size, shelf in list(self.shelves.items()):
            stay = self.varied and size > SMALL_REQUEST and not everything
            for block in _emptied(shelf.blocks):
                if stay and not _beside(block, free):
                    shelf.blocks.append(block)
                else:
                    left.append(block)
                    self.leaves_shelf(block)
        for block in left:
            self.add_free(block)

    def leaves_shelf(self, block: Block) -> None:
        """Have the block's shelf, if it has one, count it no more among those that are on it or will come back to it.
        """
        shelf = block.shelf
        if shelf is None:
            return
        in_order(starmap(setattr, [(shelf, "count", shelf.count - 1), (block, "shelf", None)]))
        if not shelf.count:
            del self.shelves[block.size]
            for key in shelf.keys:
                del self.quick[key]

    def cut(self, size: int) -> Block | None:
        """Take the smallest free block of at least `size` bytes; it belongs to no shelf any more."""
        small = size <= SMALL_REQUEST
        block = self.free[small].best_fit(size)
        if block is None and not small:
            for larger in sorted(other for other in self.shelves if other >= size):
                block = _pop(self.shelves[larger].blocks)
                if block is not None:
                    self.leaves_shelf(block)
                    break
        return block

    def add_free(self, block: Block) -> None:
        """Put one of the lane's blocks in the free list, merged with free neighbours of this lane and the idle one."""
        small, idle = block.segment.small, self.pool.idle
        after, before = block.after, block.before
        if after is not None and after.free and (after.lane is self or after.lane is idle):
            after.lane.free[small].remove(after)
            block.absorb_next()
        if before is not None and before.free and (before.lane is self or before.lane is idle):
            before.lane.free[small].remove(before)
            before.lane = self  # first: of two lanes' memory the later lane's work may still use a part
            before.absorb_next()
            block = before
        self.free[small].add(block)

    def blocks(self) -> Iterator[Block]:
        """All free blocks of the lane."""
        yield from tuple(self.loose)
        for shelf in list(self.shelves.values()):
            yield from tuple(shelf.blocks)
        for free in self.free:
            yield from free


def _beside(block: Block, free: set[Block]) -> bool:
    """Whether a block has a free neighbour: one in a free list, or one of these blocks."""
    return any(other is not None and (other.free or other in free) for other in (block.before, block.after))


def _pop(blocks: list[Block] | None) -> Block | None:
    """Pop the last block of a list from which other threads pop without the pool's lock; None if it is empty."""
    try:
        return blocks.pop() if blocks else None
    except IndexError:
        return None


def _emptied(blocks: list[Block]) -> list[Block]:
    """Pop all blocks of a list that other threads change without the pool's lock."""
    found = []
    while blocks:
        try:
            found.append(blocks.pop())
        except IndexError:
            break
    return found
