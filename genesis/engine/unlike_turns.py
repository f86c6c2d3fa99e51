"""Loops whose turns differ, as where a random number chooses the body: no two long pieces are alike, but turns are.

Which loop it is, its frame tells: the place in it goes back when a turn begins. It is looked for once pieces were
compiled one after the other, and is the outermost frame that went back again and again in one piece. A place at which a
turn has begun once begins one whenever it comes: of bodies that stand one below the other in the code and come in any
order, each is a piece by itself, not each way to follow one by another further down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from genesis.ir.source import PACKAGE

AGAIN: Final = 3
"""Times that a frame goes back in a piece, from which on it is the frame of a loop."""

MOST_MISSES: Final = 16
"""Turns that are compiled one after the other, from which on single turns are no more alike than long pieces."""

Stack = list[tuple[int, int, bool]]
"""What is kept of each frame, the outermost first: its code (by id), the place in it, whether it is the user's."""


def stack_of(frame: FrameType | None) -> Stack:
    """Where a frame and its callers are.

    >>> import sys
    >>> [(place >= 0, users) for _, place, users in stack_of(sys._getframe())][-1]
    (True, True)
    """
    found: Stack = []
    while frame is not None:
        code = frame.f_code
        found.append((id(code), frame.f_lasti, not code.co_filename.startswith(PACKAGE)))
        frame = frame.f_back
    found.reverse()
    return found


def went_back(before: Stack, now: Stack) -> int | None:
    """The depth of the frame that went back from one value to the next, None if all went on. Where all are at the same
    place, that is the user's innermost.

    >>> inner = (2, 8, True)
    >>> went_back([(1, 10, True), inner], [(1, 4, True)]), went_back([(1, 4, True)], [(1, 10, True), inner])
    (0, None)
    >>> went_back([(1, 10, True), inner], [(1, 10, True), (2, 6, True)]), went_back([inner, inner], [inner, inner])
    (1, 1)
    """
    for depth, (mine, theirs) in enumerate(zip(now, before, strict=False)):
        if mine != theirs:
            return depth if mine[0] == theirs[0] and mine[1] < theirs[1] else None
    if len(now) != len(before):
        return None
    return max((depth for depth, (_, _, users) in enumerate(now) if users), default=None)


@dataclass(eq=False, repr=False)
class UnlikeTurns:
    """The turns of such a loop.

    Attributes:
        depth: of the loop's frame, None while it is looked for.
        misses: turns in a row that had to be compiled.
        certain: turns are not alike, whether the piece in which the frame is looked for is a new program or not.
    """

    depth: int | None = None
    misses: int = 0
    certain: bool = False
    _last: Stack = field(default_factory=list)
    _times: dict[int, int] = field(default_factory=dict)
    _begun: dict[int, set[int]] = field(default_factory=dict)

    def begins(self, frame: FrameType) -> bool:
        """Note where the next value is recorded; whether a turn of the loop begins with it."""
        now = stack_of(frame)
        at, self._last = went_back(self._last, now), now
        if self.depth is None:
            if at is not None:
                self._times[at] = self._times.get(at, 0) + 1
                self._begun.setdefault(at, set()).add(hash(tuple(now)))
            return False
        if at is not None and at <= self.depth:
            self._begun[self.depth].add(hash(tuple(now)))
            return True
        return hash(tuple(now)) in self._begun[self.depth]

    def found(self) -> bool:
        """Take the outermost frame that went back several times for the loop's; False if none did."""
        self.depth = min((depth for depth, times in self._times.items() if times >= AGAIN), default=None)
        return self.depth is not None
