"""Offsets in one block of memory for values that come and go: best fit.

What is asked of an arena, in order, is the *requests*. They are the same whatever the sizes are, so another batch
size is planned by making the same requests with its numbers of bytes, and needs no schedule.

    take 0: 4096 B     take 1: 512 B     give 0     take 2: 1024 B          value 2 gets offset 0
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

from genesis.ir.sym_int import value_of

if TYPE_CHECKING:
    from genesis.ir.sym_int import Size

ALIGNMENT = 512

Request = tuple[int, "Size | None"]
"""(value, bytes), or (value, None) when it is gone. Values are numbered as they come."""


class ArenaLayout:
    """Offsets in one block: best fit among free ranges, growing at the end.

    Attributes:
        size: bytes of the block.
        peak: the most bytes that were taken at one point.
        offsets: of each value.
        requests: what was asked for.
    """

    def __init__(self) -> None:
        self.size = 0
        self.peak = 0
        self.offsets: list[int] = []
        self.requests: list[Request] = []
        self._live = 0
        self._bytes_of: list[int] = []
        self._bytes_at: dict[int, int] = {}  # start of a free range → bytes
        self._start_of: dict[int, int] = {}  # its end → start
        self._by_size: list[tuple[int, int]] = []  # (bytes, start), sorted

    def take(self, nbytes: Size) -> int:
        """Room for another value; returns its number. It gets the smallest free range that has the bytes, the first
        of equals."""
        value = len(self.offsets)
        self.requests.append((value, nbytes))
        need = aligned(nbytes)
        self._bytes_of.append(need)
        self._live += need
        if self._live > self.peak:
            self.peak = self._live
        at = bisect_left(self._by_size, (need, 0))
        if at < len(self._by_size):
            size, start = self._by_size.pop(at)
            del self._bytes_at[start], self._start_of[start + size]
            if size > need:
                self._insert(start + need, size - need)
        else:
            start = self._start_of.get(self.size, self.size)
            if start != self.size:  # grow the last free range
                self._remove(start)
            self.size = start + need
        self.offsets.append(start)
        return value

    def give(self, value: int) -> None:
        """The value is gone: its range is free, and joined with its neighbours."""
        self.requests.append((value, None))
        start, size = self.offsets[value], self._bytes_of[value]
        end = start + size
        self._live -= size
        if start in self._start_of:
            start = self._start_of[start]
            self._remove(start)
        if end in self._bytes_at:
            size = self._bytes_at[end]
            self._remove(end)
            end += size
        self._insert(start, end - start)

    def _insert(self, start: int, size: int) -> None:
        self._bytes_at[start], self._start_of[start + size] = size, start
        insort(self._by_size, (size, start))

    def _remove(self, start: int) -> None:
        size = self._bytes_at.pop(start)
        del self._start_of[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]


def arranged(requests: Iterable[Request]) -> ArenaLayout:
    """An arena that was asked this.

    >>> arranged([(0, 4096), (1, 512), (0, None), (2, 1024)]).offsets
    [0, 4096, 0]
    """
    arena = ArenaLayout()
    for value, nbytes in requests:
        if nbytes is None:
            arena.give(value)
        else:
            arena.take(nbytes)
    return arena


def aligned(nbytes: Size) -> int:
    """Bytes that a value takes in the arena."""
    return -(-max(value_of(nbytes), 1) // ALIGNMENT) * ALIGNMENT
