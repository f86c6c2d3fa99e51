"""What this process does between processes: the collectives that it has begun, which the watchdog reads
(`distributed/watchdog.py`) and compares with other ranks'.

A CUDA graph begins all of its collectives at once, and is written down as one (`Together`): a step's forty buckets cost
what one does. They are told one by one when somebody asks.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat, starmap
from operator import add
from typing import Final, NamedTuple

from genesis.runtime.collectives import DistBackendError, group_entry
from genesis.runtime.contexts import in_order

KEPT: Final = 256
"""Collectives that are remembered, to be compared with other ranks'."""

POINT_TO_POINT: Final = ""
"""Stands for the group of what two ranks do alone: it is not compared."""


def message_way(group: str, sender: int, receiver: int) -> str:
    """Stands for the messages of a group from one rank of the run to another.

    >>> message_way("group0", 2, 1)
    'group0 2>1'
    """
    return f"{group} {sender}>{receiver}"


class Entry(NamedTuple):
    """A collective that ran, or was begun.

    Attributes:
        group: name of its group.
        number: how many were before it in the group.
        text: op, operands and what else has to be equal on all ranks.
        line: the user's line.
    """

    group: str
    number: int
    text: str
    line: str


class Together:
    """Collectives that begin at once, in order.

    Attributes:
        groups, amounts: the groups, and each `message_way`, and how many there are of each.

    Args:
        collectives: (group, text, line) of each.
        ways: a `message_way` for each message that they send or receive.

    >>> [entry.number for entry in Together([("a", "x", "1"), ("b", "y", "2"), ("a", "z", "3")]).entries({"a": 5})]
    [5, 0, 6]
    """

    def __init__(self, collectives: Sequence[tuple[str, str, str]], ways: Sequence[str] = ()):
        self.collectives = tuple(collectives)
        counts = Counter([*(group for group, _, _ in collectives), *ways])
        self.groups, self.amounts = tuple(counts), tuple(counts.values())

    def entries(self, before: dict[str, int]) -> list[Entry]:
        """Each of them, where so many of its group were begun before."""
        numbers, found = dict(before), []
        for group, text, line in self.collectives:
            number = numbers.get(group, 0)
            numbers[group] = number + 1
            found.append(Entry(group, number, text, line))
        return found


class Ledger:
    """The collectives that this process has begun, in order.

    Attributes:
        waiting: the one that runs now and the time when it began, None where none does.
        counts: how many there were of each group; and of messages on GPUs, by `message_way`, how many were sent and
            received each way.
        problem: why nothing can be run any more.
        rank: of this process in the run.
        aborted: what whoever waits for a GPU is told: its collectives were ended before they were done, so that all
            that it computes from then on is wrong.
        explain: makes an error of a transport's, given the collective and what the transport said.
    """

    def __init__(self) -> None:
        self._begun: deque[Entry | tuple[Together, dict[str, int]]] = deque(maxlen=KEPT)
        self.waiting: tuple[Entry, float] | None = None
        self.problem: str | None = None
        self.aborted: str | None = None
        self.counts: dict[str, int] = {}
        self.rank = 0
        self.explain: Callable[[Entry, str], str] = lambda entry, said: said

    def recent(self, count: int = KEPT) -> list[Entry]:
        """The last ones, as many at most."""
        found: list[Entry] = []
        for begun in reversed(list(self._begun)):
            if len(found) >= count:
                break
            found += [begun] if isinstance(begun, Entry) else reversed(begun[0].entries(begun[1]))
        return found[:count][::-1]

    @property
    def last(self) -> Entry | None:
        """The last one, None before the first."""
        found = self.recent(1)
        return found[0] if found else None

    def note(self, group: str, text: str, line: str) -> Entry:
        """A collective begins.

        Raises:
            DistBackendError: another rank failed.
        """
        if self.problem is not None:
            raise DistBackendError(f"{text}: {self.problem}\n  at {line}")
        number = self.counts.get(group, 0)
        self.counts[group] = number + 1
        entry = Entry(group, number, text, line)
        self._begun.append(entry)
        return entry

    def note_together(self, together: Together) -> None:
        """Collectives begin at once, and the messages among them (`ways_of`).

        Raises:
            DistBackendError: another rank failed.
        """
        for call in self.beginning(together):
            call()

    def beginning(self, together: Together) -> list[Callable[[], object]]:
        """Calls into C that do what `note_together` does, once: no exception comes between that collectives are counted
        and that they begin, where these calls and theirs are one loop (`frontend/at_once.py`).

        Raises:
            DistBackendError: another rank failed.
        """
        if self.problem is not None:
            _, text, line = together.collectives[0]
            raise DistBackendError(f"{text}: {self.problem}\n  at {line}")
        groups, amounts = together.groups, together.amounts
        seen, again = (map(self.counts.get, groups, repeat(0)) for _ in range(2))
        before: Iterator[dict[str, int]] = starmap(dict, ((zip(groups, seen, strict=True),),))
        counts = map(add, again, amounts)
        return [partial(in_order, map(self._begun.append, zip(repeat(together, 1), before, strict=True))),
                partial(self.counts.update, zip(groups, counts, strict=True))]

    def ways_of(self, group: str, to: Sequence[int], sources: Sequence[int]) -> list[str]:
        """A `message_way` for each message that goes to, or comes from, one of these of a group's processes."""
        entry = group_entry(group)
        if entry is None:
            return []
        own = self.rank
        return [*(message_way(group, own, entry.ranks[peer]) for peer in to),
                *(message_way(group, entry.ranks[peer], own) for peer in sources)]

    def note_messages(self, group: str, to: Sequence[int], sources: Sequence[int]) -> None:
        """Messages of a GPU begin, to and from these of a group's processes: whoever receives can tell that the other
        one has not sent."""
        for way in self.ways_of(group, to, sources):
            self.counts[way] = self.counts.get(way, 0) + 1

    @contextmanager
    def running(self, group: str, text: str, line: str) -> Iterator[None]:
        """Inside, a collective runs, which returns when it is done."""
        with self.in_(self.note(group, text, line)):
            yield

    @contextmanager
    def in_(self, entry: Entry) -> Iterator[None]:
        """Inside, this process waits for others: the watchdog looks for what keeps them."""
        self.waiting = entry, time.monotonic()
        try:
            yield
        except DistBackendError as error:
            problem = self.explain(entry, str(error))
            raise DistBackendError(f"{entry.text}: {problem}\n  at {entry.line}") from None
        finally:
            self.waiting = None

    def abort(self) -> None:
        """What the GPUs are in is about to be ended."""
        if self.aborted is None:
            last = self.last or Entry("", 0, "a collective", "an unknown line")
            self.aborted = f"{last.text}: {self.problem or 'it was aborted'}\n  at {last.line}"

    def forget(self) -> None:
        """Begin anew: all groups were destroyed."""
        self._begun.clear()
        self.counts.clear()
        self.problem = self.waiting = self.aborted = None
        self.explain = lambda entry, said: said


ledger: Final = Ledger()
"""The process's one ledger."""
