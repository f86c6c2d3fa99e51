"""Which calls of a compiled function are captured: a capture costs more than a plain call, and a replay less.

* The first two dozen calls that nothing is replayed for are captured, and one more for each replay since.
* After that, a call like none before is run as it is. One that comes again is captured: a length, a position.
* A call that could not be captured is tried again, for one odd call: at once, then after 32 such calls, 256, 2048.
  Where the line that it failed at is one that each call comes to, or where it reads an object of a kind that no guard
  can stand for, it is not tried at once, nor after 32: what is there may become another thing, but not by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

_EAGER = 24
"""Captures without a replay to pay for them, for two dozen batch sizes, lengths or positions of a cache."""
_WAITS = (0, 32, 256, 2048)
"""Calls after a first, second, … refusal that are run as they are."""
_CERTAIN = 2
"""Refusals that one counts for at a line that each call comes to."""
_UNSETTLED = 3
"""Captures of a call that still changes what it reads, as one that fills a cache does, before it counts as refused."""
_KEPT = 512
"""Refusals, and calls that were seen, that are remembered; beyond, the oldest are forgotten."""


class Attempts:
    """What became of the attempts to capture a function's calls."""

    def __init__(self) -> None:
        self._spent = 0
        self._refusals: dict[Any, _Refusal] = {}
        self._seen: Counter[Any] = Counter()
        self._held_back = False

    def wanted(self, key: Any, hits: int, like: Callable[[], Any]) -> bool:
        """Whether to capture a call now that has this key, which nothing is replayed for.

        Args:
            hits: how many calls were replayed so far.
            like: gives what calls of this key differ in, as far as that is known.
        """
        refusal = self._refusals.get(key)
        if refusal is not None and refusal.left > 0:
            refusal.left -= 1
            return False
        if self._spent < _EAGER + hits:
            return True
        self._held_back = True
        sighting = (key, like())
        self._seen[sighting] += 1
        count = self._seen[sighting]
        if len(self._seen) > _KEPT:
            del self._seen[next(iter(self._seen))]
        return count > 1 and count & (count - 1) == 0

    def refused(self, key: Any, reason: str, unsettled: bool, reached_again: bool = False) -> bool:
        """Note that a call was not captured; returns whether that is more than a beginning (`unsettled`).

        Args:
            reached_again: the next call comes to the same line, or reads the same kind of object.
        """
        self._spent += 1
        refusal = self._refusals.setdefault(key, _Refusal())
        refusal.reason = reason
        if unsettled and refusal.unsettled < _UNSETTLED - 1:
            refusal.unsettled += 1
            return False
        if unsettled:  # no odd call: it was tried again already
            refusal.times = max(refusal.times, 1)
        if reached_again:
            refusal.times = max(refusal.times, _CERTAIN)
        refusal.left = _WAITS[min(refusal.times, len(_WAITS) - 1)]
        refusal.times += 1
        if len(self._refusals) > _KEPT:
            del self._refusals[next(iter(self._refusals))]
        return True

    def kept(self, key: Any) -> None:
        """Note that a call was captured."""
        self._spent += 1
        if key in self._refusals:
            self._refusals[key].unsettled = 0

    def are_refused(self, key: Any) -> bool:
        """Whether calls that have this key could not be captured."""
        refusal = self._refusals.get(key)
        return refusal is not None and refusal.times > 0

    def reasons(self) -> list[str]:
        """Why calls are not captured, each once."""
        found = [x.reason for x in self._refusals.values() if x.times]
        if self._held_back:
            found.append("its arguments, or what it reads, differ from call to call")
        return list(dict.fromkeys(found))


class _Refusal:
    """A call that was not captured.

    Attributes:
        reason: why.
        times: how often, once it had settled.
        unsettled: how often before.
        left: calls that are to be run as they are.
    """

    __slots__ = ("left", "reason", "times", "unsettled")

    def __init__(self) -> None:
        self.reason, self.times, self.unsettled, self.left = "", 0, 0, 0
