"""Offsets in one block of memory for values that come and go: best fit.

What is asked of an arena, in order, is the *requests*. They are the same whatever the sizes are, so another batch
size is planned by making the same requests with its numbers of bytes, and needs no schedule.

    take 0: 4096 B     take 1: 512 B     give 0     take 2: 1024 B          value 2 gets offset 0

A program's outputs are memory, too, and nothing needs it before they are written. Such a memory is *lent* to values
that are gone by then: the gradients of a step are as large as its weights, and nearly all of them are written after
the point where the most is kept for backward.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from genesis.ir.sym_int import value_of

if TYPE_CHECKING:
    from genesis.ir.sym_int import Size

ALIGNMENT = 512
"""Bytes of which a value's place is a multiple, as the address of an allocation of CUDA's is."""

SMALLEST_SHARE: Final = 64
"""A value takes no less than this part of a lent memory: small ones would leave no whole room for large ones, and save
nothing."""

Request = tuple[int, "Size | None"]
"""(value, bytes), or (value, None) when it is gone. Values are numbered as they come."""


@dataclass(frozen=True)
class Lent:
    """The memory of an output, as long as it is not written.

    Attributes:
        output: its number.
        nbytes: its size, which is the same whatever the sizes of the program are.
        until: how many requests are made before it is written.
    """

    output: int
    nbytes: int
    until: int


class ArenaLayout:
    """Where values are: in lent memory, or in one block that grows at its end; best fit in either.

    Args:
        lent: memories that may be used besides.

    Attributes:
        size: bytes of the block.
        peak: the most of its bytes that were taken at one point.
        offsets: of each value, in the block or in the lent memory.
        lent_to: for each value the number of the output whose memory it is in, None if it is in the block.
        requests: what was asked for.
    """

    def __init__(self, lent: Sequence[Lent] = ()) -> None:
        self.size = 0
        self.peak = 0
        self.offsets: list[int] = []
        self.lent_to: list[int | None] = []
        self.requests: list[Request] = []
        self._live = 0
        self._bytes_of: list[int] = []
        self._block = _FreeRanges()
        self._lent = _LentRanges(lent)

    def take(self, nbytes: Size, until: int | None = None) -> int:
        """Room for another value; returns its number. It gets the smallest free range that has the bytes, the first
        of equals.

        Args:
            until: the number of the request that gives it back, where that is known: it may be in lent memory.
        """
        value = len(self.offsets)
        self.requests.append((value, nbytes))
        need = aligned(nbytes)
        self._bytes_of.append(need)
        found = None if until is None else self._lent.take(need, until)
        if found is not None:
            self.lent_to.append(found[0])
            self.offsets.append(found[1])
            return value
        self._live += need
        if self._live > self.peak:
            self.peak = self._live
        start = self._block.take(need)
        if start is None:
            start = self._block.ending_at(self.size)  # grow the last free range
            self.size = start + need
        self.lent_to.append(None)
        self.offsets.append(start)
        return value

    def give(self, value: int) -> None:
        """The value is gone: its range is free, and joined with its neighbours."""
        self.requests.append((value, None))
        start, size, output = self.offsets[value], self._bytes_of[value], self.lent_to[value]
        if output is None:
            self._live -= size
            self._block.give(start, size)
        else:
            self._lent.give(output, start, size)


class _FreeRanges:
    """The free ranges of one block."""

    def __init__(self) -> None:
        self._bytes_at: dict[int, int] = {}  # start of a free range → bytes
        self._start_of: dict[int, int] = {}  # its end → start
        self.by_size: list[tuple[int, int]] = []  # (bytes, start), sorted

    def take(self, need: int) -> int | None:
        """The start of the smallest range of so many bytes, which is free no longer; None if there is none."""
        at = bisect_left(self.by_size, (need, 0))
        if at == len(self.by_size):
            return None
        size, start = self.by_size[at]
        self.split(start, size, need)
        return start

    def split(self, start: int, size: int, need: int) -> None:
        """The first bytes of a range are free no longer."""
        self._remove(start)
        if size > need:
            self._insert(start + need, size - need)

    def ending_at(self, end: int) -> int:
        """The start of the range that ends there, which is free no longer; the end itself if there is none."""
        start = self._start_of.get(end, end)
        if start != end:
            self._remove(start)
        return start

    def give(self, start: int, size: int) -> None:
        """The range is free, and joined with its neighbours."""
        end = start + size
        start = self.ending_at(start)
        if end in self._bytes_at:
            size = self._bytes_at[end]
            self._remove(end)
            end += size
        self._insert(start, end - start)

    def _insert(self, start: int, size: int) -> None:
        self._bytes_at[start], self._start_of[start + size] = size, start
        insort(self.by_size, (size, start))

    def _remove(self, start: int) -> None:
        size = self._bytes_at.pop(start)
        del self._start_of[start + size]
        del self.by_size[bisect_left(self.by_size, (size, start))]


class _LentRanges:
    """The free ranges of lent memories, which lie in one line of addresses with gaps between them."""

    def __init__(self, lent: Sequence[Lent]):
        # Of equal ranges the first is taken: the one that is of use least long.
        self._lent = sorted(lent, key=lambda x: (x.until, x.output))
        self._starts: list[int] = []
        self._ranges = _FreeRanges()
        end = 0
        for memory in self._lent:
            self._starts.append(end)
            self._ranges.give(end, memory.nbytes // ALIGNMENT * ALIGNMENT)
            end += aligned(memory.nbytes) + ALIGNMENT
        self._start_of = {memory.output: start for memory, start in zip(self._lent, self._starts, strict=True)}

    def take(self, need: int, until: int) -> tuple[int, int] | None:
        """(output, offset) of the smallest range of so many bytes in a memory that is lent for long enough."""
        by_size = self._ranges.by_size
        for at in range(bisect_left(by_size, (need, 0)), len(by_size)):
            size, start = by_size[at]
            number = bisect_right(self._starts, start) - 1
            memory = self._lent[number]
            if until < memory.until and need * SMALLEST_SHARE >= memory.nbytes:
                self._ranges.split(start, size, need)
                return memory.output, start - self._starts[number]
        return None

    def give(self, output: int, offset: int, size: int) -> None:
        """The range of that output is free."""
        self._ranges.give(self._start_of[output] + offset, size)


def arranged(requests: Iterable[Request], lent: Sequence[Lent] = ()) -> ArenaLayout:
    """An arena that was asked this.

    >>> arranged([(0, 4096), (1, 512), (0, None), (2, 1024)]).offsets
    [0, 4096, 0]
    >>> arranged([(0, 4096), (0, None), (1, 4096)], [Lent(output=3, nbytes=4096, until=2)]).lent_to
    [3, None]
    """
    asked = list(requests)
    until = {value: number for number, (value, nbytes) in enumerate(asked) if nbytes is None} if lent else {}
    arena = ArenaLayout(lent)
    for value, nbytes in asked:
        if nbytes is None:
            arena.give(value)
        else:
            arena.take(nbytes, until.get(value))
    return arena


def aligned(nbytes: Size) -> int:
    """Bytes that a value takes in the arena."""
    return -(-max(value_of(nbytes), 1) // ALIGNMENT) * ALIGNMENT
