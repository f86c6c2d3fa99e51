"""A DAG of clusters that can be merged without ever making a cycle.

The order of the clusters is kept topological while they merge, as Pearce and Kelly (2006) keep it while edges are
added: only what lies between the two merged clusters moves. What that is, is looked for from both ends in turns, and
the side that is done first decides (Bender, Fineman, Gilbert and Tarjan 2015 do so for added edges): a cluster that
half of the program reads costs no more than its small neighbour. Places in the order are labels with room between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

N = TypeVar("N")

STEPS: Final = 20_000
"""Maximum edges that a search for a path between two clusters follows; beyond it the merge is refused."""

IN_BETWEEN: Final = "another kernel must run in between"
"""Why clusters that a path through a third one joins cannot be one."""


class Refused(Exception):
    """Two clusters stay apart; the text says why."""

ROOM: Final = 1 << 40
"""Distance between the labels of neighbours at first: room for as many insertions as halvings of it."""


class ClusterGraph(Generic[N]):
    """Clusters, numbered, with the edges (producer node, consumer node) between them.

    Attributes:
        of: the cluster of each node.
        readers: cluster → consumer cluster → the edges to it.
        sources: cluster → the clusters it reads.
    """

    def __init__(self, nodes: Iterable[N], reads: dict[N, tuple[N, ...]]):
        self.of: dict[N, int] = {node: number for number, node in enumerate(nodes)}
        self.readers: dict[int, dict[int, list[tuple[N, N]]]] = {number: {} for number in self.of.values()}
        self.sources: dict[int, dict[int, None]] = {number: {} for number in self.of.values()}
        self._order = _Order(self.readers)
        for consumer, number in self.of.items():
            for producer in reads[consumer]:
                self.readers[self.of[producer]].setdefault(number, []).append((producer, consumer))
                self.sources[number][self.of[producer]] = None

    def order(self) -> list[int]:
        """The clusters, each after all that it reads."""
        return sorted(self.readers, key=self._order.label.__getitem__)

    def waits_for_later(self, first: int, second: int) -> bool:
        """Does the second read a cluster that comes after the first, so that a merged one would run later?"""
        label = self._order.label
        return any(label[source] > label[first] for source in self.sources[second])

    def merge(self, first: int, second: int, nodes_of_second: Iterable[N]) -> None:
        """Put `second` into `first`.

        Raises:
            Refused: they are joined by a path through a third cluster (`IN_BETWEEN`), or too far apart to know.
        """
        label = self._order.label
        low, high = sorted((first, second), key=label.__getitem__)
        forward, backward = self._walk(low, high, self.readers), self._walk(high, low, self.sources)
        for _ in range(STEPS):
            after, before = next(forward), next(backward)
            if after is not None or before is not None:
                break
        else:
            raise Refused("too far apart")
        if high in (after or ()) or low in (before or ()):
            raise Refused(IN_BETWEEN)
        if before is not None:  # the pair at the place of the lower, behind what the higher reads
            self._order.move(sorted(before, key=label.__getitem__), before=low)
            self._order.drop(high, into=low, named=first)
        else:
            self._order.move(sorted(after or (), key=label.__getitem__), after=high)
            self._order.drop(low, into=high, named=first)
        self._join(first, second, nodes_of_second)

    def between(self, low: int, high: int, most: int) -> list[int]:
        """The clusters on the paths from one to a later one, in order; none when there are more than a few."""
        label = self._order.label
        behind, pending = {high}, [high]
        while pending:
            for number in self.sources[pending.pop()]:
                if number not in behind and label[number] > label[low]:
                    behind.add(number)
                    pending.append(number)
            if len(behind) > 8 * most:
                return []
        found = {low}
        for number in sorted(behind, key=label.__getitem__):
            if not found.isdisjoint(self.sources[number]):
                found.add(number)
        return sorted(found - {low, high}, key=label.__getitem__)

    def _walk(self, start: int, end: int, edges: dict) -> Iterator[set[int] | None]:
        """None for each edge looked at, then what start leads to between the two; with `end` when a third one does."""
        label = self._order.label
        low, high = sorted((label[start], label[end]))
        seen: set[int] = set()
        pending = [start]
        while pending:
            at = pending.pop()
            for number in edges[at]:
                yield None
                if number == end:
                    if at != start:
                        seen.add(end)
                        yield seen
                elif number not in seen and low < label[number] < high:
                    seen.add(number)
                    pending.append(number)
        yield seen

    def _join(self, first: int, second: int, nodes_of_second: Iterable[N]) -> None:
        for node in nodes_of_second:
            self.of[node] = first
        for reader, edges in self.readers.pop(second).items():
            del self.sources[reader][second]
            if reader != first:
                self.readers[first].setdefault(reader, []).extend(edges)
                self.sources[reader][first] = None
        for source in self.sources.pop(second):
            edges = self.readers[source].pop(second)
            if source != first:
                self.readers[source].setdefault(first, []).extend(edges)
                self.sources[first][source] = None
        self.sources[first].pop(second, None)


class _Order:
    """Items in a line, each with a label that grows along it."""

    def __init__(self, items: Iterable[int]):
        line = list(items)
        self.label = {item: (i + 1) * ROOM for i, item in enumerate(line)}
        ends = [*line[:1], -1]  # -1: both ends
        self._next = dict(zip(line, [*line[1:], -1][:len(line)], strict=True)) | {-1: ends[0]}
        self._back = {after: item for item, after in self._next.items()}

    def move(self, items: list[int], before: int | None = None, after: int | None = None) -> None:
        """Put items, in this order, right before or after one that stays."""
        for item in items:
            self._unlink(item)
        if before is None:
            assert after is not None
            left, right = after, self._next[after]
        else:
            left, right = self._back[before], before
        low = 0 if left == -1 else self.label[left]
        high = low + (len(items) + 1) * ROOM if right == -1 else self.label[right]
        for i, item in enumerate(items, 1):
            self.label[item] = low + (high - low) * i // (len(items) + 1)
            self._next[left], self._back[item] = item, left
            left = item
        self._next[left], self._back[right] = right, left
        if items and (high - low) // (len(items) + 1) == 0:
            self._spread()

    def drop(self, item: int, into: int, named: int) -> None:
        """One of the two leaves; the other's place goes by the name that is kept."""
        self._unlink(item)
        if named != into:
            self.label[named] = self.label.pop(into)
            left, right = self._back.pop(into), self._next.pop(into)
            self._next[left] = self._back[right] = named
            self._back[named], self._next[named] = left, right
        else:
            del self.label[item]

    def _unlink(self, item: int) -> None:
        left, right = self._back.pop(item), self._next.pop(item)
        self._next[left], self._back[right] = right, left

    def _spread(self) -> None:
        """Labels with room again."""
        at, number = self._next[-1], 0
        while at != -1:
            number += 1
            self.label[at] = number * ROOM
            at = self._next[at]
