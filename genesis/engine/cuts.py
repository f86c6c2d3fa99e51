"""Where a long program is cut: at a position of the recorded code that repeats, so that the pieces are equal programs.

A position is the whole stack of calls: the layers of a model that are made by one line of one loop are one position,
the same layer in the next batch is it again. Of the positions that come again while some are watched, the rarest
stands for the outermost loop that turns there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from opcode import opmap
from operator import eq
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from genesis.engine.odd_turns import OddTurns
    from genesis.engine.saved_values import Usage
    from genesis.engine.unlike_turns import UnlikeTurns

_RETURN: Final = opmap["RETURN_VALUE"]
_CACHE: Final = 0
"""The opcode of what the interpreter keeps behind an instruction."""

DEEPEST: Final = 64
"""Frames, from the innermost on, that a position is told by: a recursion has no others."""


def position(frame: FrameType | None) -> int:
    """A number for the place in the program that a frame and its callers are at: equal for equal stacks of calls.

    >>> import sys
    >>> here = [position(sys._getframe()) for _ in range(2)]
    >>> here[0] == here[1] != position(sys._getframe())
    True
    """
    found: list[int] = []
    append = found.append
    for _ in range(DEEPEST):
        if frame is None:
            break
        append(id(frame.f_code))
        append(frame.f_lasti)
        frame = frame.f_back
    return hash(tuple(found))


ALIKE: Final = (120, 60, 24, 8)
"""A piece of a loop has a multiple of so many turns, the first of these that it is about as long as: what comes again
every second turn, as a matrix that is turned in each, every fifth or every eighth, as a row of a small ring, is in all
pieces alike."""

NEAR: Final = 8
"""A turn is as long as one of so many before it, where turns are alike."""


def whole_turns(values: int, period: int) -> int:
    """The spacing of about so many values in whole turns: a multiple of `ALIKE`, unless these are longer than a piece.

    >>> whole_turns(500, 4), whole_turns(500, 10), whole_turns(500, 100), whole_turns(50, 400)
    (480, 600, 500, 400)
    """
    turns = -(-values // period)
    for multiple in ALIKE:
        if 3 * turns >= 2 * multiple:
            return max(round(turns / multiple), 1) * multiple * period
    return turns * period


def period_of(places: Sequence[int]) -> int | None:
    """The number of places after which all come again, if these hold that one and a half times; None if none do.

    >>> period_of([*b"abacabacab"]), period_of([*b"abacabad"]), period_of([*b"abcdab"])
    (4, None, 4)
    """
    borders = [0]  # of the first, the first two, ...: how many places they begin and end with alike
    for place in places[1:]:
        border = borders[-1]
        while border and places[border] != place:
            border = borders[border - 1]
        borders.append(border + (places[border] == place))
    period = len(places) - borders[-1]
    return period if 3 * period <= 2 * len(places) else None


MOST_SPACINGS: Final = 64
"""Positions of cuts whose spacing is remembered, at most."""


def comes_again(lengths: Sequence[int]) -> bool:
    """Whether most of the turns of these lengths are as long as one of the `NEAR` before.

    >>> comes_again([3, 3, 3, 3, 9, 3, 3, 3, 3, 3]), comes_again([2, 5, 2, 5, 2, 5])
    (True, True)
    >>> comes_again([2, 5, 5, 2, 2, 9, 2, 5, 9, 2])
    False
    """
    return len(lengths) < 2 or any(
        4 * sum(map(eq, lengths, lengths[period:])) >= 3 * (len(lengths) - period)
        for period in range(1, min(NEAR + 1, len(lengths) // 2 + 1)))


@lru_cache(1 << 12)
def _returns_after(code: CodeType, place: int) -> bool:
    return next((op for op in code.co_code[place + 2::2] if op != _CACHE), None) == _RETURN


def returns_next(frame: FrameType) -> bool:
    """Whether a function returns what it calls: it reads none of its variables any more.

    >>> def returns():
    ...     return returns_next(sys._getframe())
    >>> def goes_on():
    ...     found = returns_next(sys._getframe())
    ...     return found
    >>> import sys
    >>> returns(), goes_on()
    (True, False)
    """
    return _returns_after(frame.f_code, frame.f_lasti)


class Turns:
    """The positions of the last values, as long as they are the turns of one loop.

    Attributes:
        first: the number of the first value.
        began: the number of the first value that was pending then.
        piece: how many values a piece of the loop is to have, 0 until it is to be cut.
    """

    def __init__(self, ran: int, first: int, began: int):
        self.first, self.began, self._last, self._ran = first, began, first - 1, ran
        self.piece = 0
        self._seen: list[int] = []
        self._period = 0

    def period_with(self, place: int, number: int, ran: int, longest: int) -> int | None:
        """How many values a turn has, with one more value; 0 where that is not known yet; None if these are no equal
        turns of `longest` values at the most.

        >>> turns = Turns(0, 1, began=1)
        >>> [turns.period_with(ord(place), i, 0, 4) for i, place in enumerate("abcabcab?", 1)]
        [0, 0, 0, 3, 3, 3, 3, 3, None]
        """
        if ran != self._ran or number != self._last + 1:  # something was computed, or recorded by another thread
            return None
        self._last = number
        seen = self._seen
        if self._period:
            if seen[(number - self.first) % self._period] != place:
                return None
        elif seen and seen[0] == place:
            self._period = len(seen)
        elif len(seen) < longest:
            seen.append(place)
        else:
            return None
        return self._period

    def is_full(self, number: int, ran: int, often: int) -> bool:
        """Whether so many more turns have passed, or something was computed: what is pending is looked at again."""
        return ran != self._ran or not (number - self.first) % (often * max(self._period, 1))


class Found(NamedTuple):
    """The turns of a loop, as they were seen.

    Attributes:
        places: the positions that come least often: those of the outermost loop.
        period: values from one of these to the next, on average.
        alike: whether turns are as long as others before.
        exact: whether all positions came in the same order in each.
    """

    places: set[int]
    period: int
    alike: bool
    exact: bool = False


@dataclass(eq=False, repr=False)
class Cuts:
    """What is known of the program that is being recorded and cut.

    Attributes:
        cut_at: the position of the last cut, None where none is known to come again.
        spacing: how many values are recorded from one cut to the next, 0 if memory decides.
        last: the number of the value at which the last cut was.
        ran: how many programs had run after it: as long as that stays, all is recorded since.
        watched: positions and the numbers of the values that were recorded there, while positions are watched.
        looked: how many there were when turns were looked for.
        found: the turns of the loop that is watched, None as long as they are not known.
        measured: (number, nodes, programs that had run) when the pending nodes were counted last.
        spacings: position of a loop's cuts → the spacing that it had when it came first.
        overdue: the count of fresh bytes at which memory is cut wherever the program is, 0 while it is not due.
        blocked: how many programs had run when a cut had to wait for the step that follows a backward.
        cutting: the program that runs is a cut.
        in_op: the cut is in the middle of an op, which may hold contents that are about to be overwritten.
        usage: what the last cut kept for a backward.
        apart: equal numbers are recorded as two, since what is recorded is the turns of a loop.
        repeats: the last piece used a few numbers again and again (`repeated_numbers.py`).
        turns: the turns that are followed, where a program may be a loop of short ones.
        patience: the number of the value at which the first cut of a loop waits no longer, 0 while none waits.
        misses: how many pieces in a row had to be compiled.
        exact: the spacing is of whole turns, all of which are alike.
        alike: the last piece was no new program.
        unlike: the loop whose turns are pieces by themselves, or which is looked for: long pieces were not alike.
        odd: the turns of the loop, followed since a piece was not like those before.
        ran_to: the number of the last value that was recorded before a program ran.
        noted: how many programs had run then.
        left_to: the number of the last value before a cut that left out what cannot be computed.
        collects: Python's collector is to look at young objects when the op in whose middle a cut was is over.
        then: the number of the value to look at next after that, 0 where none is waited for.
        waits_until: how many programs will have run when what waits is looked at next (`waiting.py`).
        waits_since: the number of a node at the last such look.
    """

    cut_at: int | None = None
    spacing: int = 0
    last: int = 0
    ran: int = -1
    watched: list[tuple[int, int]] = field(default_factory=list)
    looked: int = 0
    found: Found | None = None
    measured: tuple[int, int, int] = (0, 0, -1)
    spacings: dict[int, int] = field(default_factory=dict)
    overdue: int = 0
    blocked: int = -1
    cutting: bool = False
    in_op: bool = False
    usage: Usage | None = None
    apart: bool = False
    repeats: bool = False
    turns: Turns | None = None
    patience: int = 0
    misses: int = 0
    exact: bool = False
    alike: bool = False
    unlike: UnlikeTurns | None = None
    odd: OddTurns | None = None
    ran_to: int = 0
    noted: int = 0
    left_to: int = 0
    collects: bool = False
    then: int = 0
    waits_until: int = 0
    waits_since: int = 0

    def begin(self, place: int, exact: bool) -> None:
        """Note the first cut of a loop, at this position. What was learned of another loop is over."""
        if place != self.cut_at:
            self.odd = self.unlike = None
            self.alike, self.misses = False, min(max(self.misses, 0), 1)
        self.cut_at, self.exact = place, exact

    def watch(self, place: int, number: int) -> None:
        """Note that a value with this number was recorded at this position."""
        self.watched.append((place, number))

    def find_turns(self, enough: int, most: int) -> None:
        """Look for the turns in what was watched: where all positions come again, once there are `enough` of them and
        again when there are twice as many; of the `most`, for turns that are not quite alike.

        >>> cuts = Cuts()
        >>> for number, place in enumerate(b"abbabbabb", 1):
        ...     cuts.watch(place, number)
        >>> cuts.find_turns(8, 64), cuts.found
        (None, Found(places={97}, period=3, alike=True, exact=True))
        """
        if self.found is None and len(self.watched) >= max(enough, 2 * self.looked):
            self.looked = len(self.watched)
            period = period_of([place for place, _ in self.watched])
            if period is not None:
                turn = Counter([place for place, _ in self.watched[-period:]])
                fewest = min(turn.values())
                values = self.watched[-1][1] - self.watched[-1 - period][1]
                places = {place for place, times in turn.items() if times == fewest}
                self.found = Found(places, values, alike=True, exact=True)
            elif self.looked >= most:
                self.found = self.rarest()

    def rarest(self) -> Found | None:
        """Turns as the positions tell that came again, and did so least often; None if none came again.

        >>> cuts = Cuts()
        >>> for number, place in enumerate(b"abbabbabb"):
        ...     cuts.watch(place, number)
        >>> cuts.rarest()
        Found(places={97}, period=3, alike=True, exact=False)
        """
        seen: dict[int, list[int]] = {}
        for place, number in self.watched:
            seen.setdefault(place, []).append(number)
        again = {place: numbers for place, numbers in seen.items() if len(numbers) > 1}
        if not again:
            return None
        fewest = min(map(len, again.values()))
        found = {place for place, numbers in again.items() if len(numbers) == fewest}
        numbers = again[next(iter(found))]
        return Found(found, (numbers[-1] - numbers[0]) // (len(numbers) - 1), comes_again([
            after - before for before, after in pairwise(numbers)]))

    def spacing_at(self, place: int, spacing: int, period: int) -> int:
        """The spacing of a loop that is cut at this position: the one that it had before, so that its pieces are the
        same programs when it comes again after a read.

        Args:
            spacing: what it is to have else.
            period: values of a turn.

        >>> cuts = Cuts()
        >>> [cuts.spacing_at(1, spacing, 8) for spacing in (64, 48)], cuts.spacing_at(1, 45, 5)
        ([64, 64], 45)
        """
        if len(self.spacings) >= MOST_SPACINGS:
            self.spacings.clear()
        if self.spacings.setdefault(place, spacing) % period:  # its turns are others by now
            self.spacings[place] = spacing
        return self.spacings[place]

    def forget_watched(self) -> None:
        """What was watched is over."""
        self.watched, self.looked, self.found = [], 0, None
