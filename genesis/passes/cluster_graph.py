"""A DAG of clusters that can be merged without ever making a cycle.

The order of the clusters is kept topological while they merge, as Pearce and Kelly (2006) keep it
while edges are added: only what lies between the two merged clusters moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

N = TypeVar("N")

REACH = 2000
"""Most clusters that are looked at before a merge is given up as too far apart."""


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
        self.sources: dict[int, set[int]] = {number: set() for number in self.of.values()}
        self._position = {number: number for number in self.of.values()}
        for consumer, number in self.of.items():
            for producer in reads[consumer]:
                self.readers[self.of[producer]].setdefault(number, []).append((producer, consumer))
                self.sources[number].add(self.of[producer])

    def order(self) -> list[int]:
        """The clusters, each after all that it reads."""
        return sorted(self._position, key=self._position.__getitem__)

    def merge(self, first: int, second: int, nodes_of_second: Iterable[N]) -> str:
        """Put `second` into `first`. Returns why not, '' when done.

        They must not be joined by a path through a third cluster.
        """
        low, high = sorted((first, second), key=self._position.__getitem__)
        after = self._reach(low, high, self.readers)
        before = self._reach(high, low, self.sources)
        if after is None or before is None:
            return "too far apart"
        if high in after:
            return "another kernel must run in between"
        self._reorder(low, high, before - {low}, after, first)
        self._join(first, second, nodes_of_second)
        return ""

    def _reach(self, start: int, end: int, edges: dict) -> set[int] | None:
        """What start leads to between the two; `end` is among it if a third cluster leads there."""
        low, high = sorted((self._position[start], self._position[end]))
        seen: set[int] = set()
        pending = [n for n in edges[start] if n != end]
        while pending:
            number = pending.pop()
            if number in seen or not low <= self._position[number] <= high:
                continue
            seen.add(number)
            if len(seen) > REACH:
                return None
            if number != end:
                pending.extend(edges[number])
        return seen

    def _reorder(self, low: int, high: int, before: set[int], after: set[int], kept: int) -> None:
        """What the pair reads, then the pair, then what reads it, on the places that these had."""
        if not before and not after:
            self._position[kept] = self._position[high]
            return
        places = sorted(self._position[n] for n in (*before, low, high, *after))
        at = self._position.__getitem__
        ordered = [*sorted(before, key=at), kept, *sorted(after, key=at)]
        del places[len(before) + 1]  # one place of the pair is left over
        for number, place in zip(ordered, places, strict=True):
            self._position[number] = place

    def _join(self, first: int, second: int, nodes_of_second: Iterable[N]) -> None:
        for node in nodes_of_second:
            self.of[node] = first
        for reader, edges in self.readers.pop(second).items():
            self.sources[reader].discard(second)
            if reader != first:
                self.readers[first].setdefault(reader, []).extend(edges)
                self.sources[reader].add(first)
        for source in self.sources.pop(second):
            edges = self.readers[source].pop(second)
            if source != first:
                self.readers[source].setdefault(first, []).extend(edges)
                self.sources[first].add(source)
        self.sources[first].discard(second)
        del self._position[second]
