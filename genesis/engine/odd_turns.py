"""A loop with another turn now and then: every five hundredth clears a list, or evaluates.

Its long pieces are alike but for those with such a turn, which would be at another place in each. So the positions of a
turn are followed once a piece was not like the others, and the loop is cut after an odd turn: what lies between two of
these is cut at the same places each time.
"""

from __future__ import annotations

from typing import Final

MOST_MISSES: Final = 3
"""Pieces with an odd turn at their end that are compiled, from which on these turns come at random. Two are where they
come regularly: the first begins after a piece that was not cut there."""


class OddTurns:
    """The positions of a loop's usual turn, and where the program is in it.

    Args:
        last: the position of the last value of a turn, at which the loop is cut.

    Attributes:
        misses: pieces that were cut after an odd turn and had to be compiled.

    >>> turns = OddTurns(ord("c"))
    >>> [turns.ended(ord(place)) for place in "abcabcaxbcabc"]
    [False, False, False, False, False, False, False, False, False, True, False, False, False]
    """

    __slots__ = ("_at", "_known", "_last", "_odd", "_turn", "misses")

    def __init__(self, last: int):
        self._last, self._turn = last, list[int]()
        self._known = self._odd = False
        self._at = self.misses = 0

    def ended(self, place: int) -> bool:
        """Follow one more value, recorded at this position; whether it is the last of an odd turn."""
        if not self._known:
            self._turn.append(place)
            self._known = place == self._last
            return False
        odd = self._odd = self._odd or place != self._turn[self._at]
        if place == self._last:
            self._at, self._odd = 0, False
            return odd
        self._at = (self._at + 1) % len(self._turn)
        return False
