"""Edges between a plan's steps: which must be done before which, so that independent ones may run at the same time.

A step waits for whoever wrote what it reads (read after write), and for whoever read or wrote what it
overwrites (write after read, write after write). Memory is compared by ranges of bytes, since the planner
gives one part of the arena to many values in turn. What follows from other edges is left out. Steps that write parts
of one value (`Launch.shared`) do not wait for each other, though all parts have the value's range.

    0: a → t        after: ()
    1: b → u               ()          nothing of step 0: they may overlap
    2: t, u → v            (0, 1)
    3: a → t               (2,)        it overwrites what 2 reads, and so comes after 0 as well
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from genesis.ir.place import MemoryRef, Place, memory_of
from genesis.runtime.plan import Collective, Copy, Edges, Launch, MatrixMap, Step, Table


def edges_of(steps: Sequence[Step]) -> Edges:
    """The earlier steps that each step must wait for; those that these wait for are not repeated."""
    memories: dict[MemoryRef, _Spans] = {}
    earlier: list[int] = []  # for each step the set of steps that are done before it, as bits
    found: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        conflicts: set[int] = set()
        shared = set(map(id, step.shared)) if isinstance(step, Launch) else ()
        for places, overwrites in zip(_accesses(step), (False, True), strict=True):
            for place in places:
                nbytes = place.type.nbytes
                if nbytes and place.where != "errors":  # failed checks may be noted in any order
                    memory = memory_of(place)
                    spans = memories.get(memory)
                    if spans is None:
                        spans = memories[memory] = _Spans()
                    if overwrites and id(place) in shared:
                        spans.write_part(place.offset, place.offset + nbytes, number, conflicts)
                    else:
                        spans.access(place.offset, place.offset + nbytes, number, overwrites, conflicts)
        conflicts.discard(number)
        covered, kept = 0, []
        for other in sorted(conflicts, reverse=True):
            if not covered >> other & 1:
                kept.append(other)
                covered |= earlier[other] | 1 << other
        earlier.append(covered)
        found.append(tuple(reversed(kept)))
    return tuple(found)


def _accesses(step: Step) -> tuple[Iterable[Place], Iterable[Place]]:
    """(what a step reads, what it writes). A launch that does not say what it writes may write all it can reach.

    What is written is left out of what is read: a write waits for all that a read does.
    """
    if isinstance(step, Copy):
        return (step.source,), (step.destination,)
    if isinstance(step, Collective):
        return step.operands, step.results
    if step.writes is None:
        return (), places_of(step)
    written = set(map(id, step.writes))
    return [place for place in places_of(step) if id(place) not in written], step.writes


def places_of(step: Launch) -> Iterator[Place]:
    """The places that a launch can reach, directly and through its tables."""
    for argument in step.args:
        if isinstance(argument, Place):
            yield argument
        elif isinstance(argument, Table):
            yield from argument.parts.places
        elif isinstance(argument, MatrixMap):
            yield argument.place


class _Span:
    """Bytes with one history: the last steps that wrote them, and the steps that have read them since.

    Attributes:
        writers: the last step that wrote them, or those that wrote the parts of one value.
        before: what the first writer of a part waited for, and all others do; None where the writer is alone.
    """

    __slots__ = ("before", "end", "readers", "start", "writers")

    def __init__(self, start: int, end: int, writers: list[int], readers: list[int], before: list[int] | None = None):
        self.start, self.end, self.writers, self.readers, self.before = start, end, writers, readers, before


class _Spans:
    """The accessed bytes of one memory, as disjoint spans in order."""

    def __init__(self) -> None:
        self._spans: list[_Span] = []
        self._starts: list[int] = []

    def access(self, start: int, end: int, step: int, overwrites: bool, before: set[int]) -> None:
        """Note that a step reads or overwrites these bytes; the steps that must be done first are added to `before`."""
        low, high = self._between(start, end)
        touched = self._spans[low:high]
        for span in touched:
            before.update(span.writers)
            if overwrites:
                before.update(span.readers)
            else:
                span.readers.append(step)
        if overwrites:
            touched[0].end, touched[0].writers, touched[0].readers, touched[0].before = end, [step], [], None
            if len(touched) > 1:
                self._replace(low, high, touched[:1])

    def write_part(self, start: int, end: int, step: int, before: set[int]) -> None:
        """Note that a step writes a part of the value that these bytes are. Once that was read, what comes there is
        another value."""
        low, high = self._between(start, end)
        for span in self._spans[low:high]:
            if span.before is None or span.readers:
                span.before = [*span.writers, *span.readers]
                span.writers, span.readers = [], []
            before.update(span.before)
            span.writers.append(step)

    def _between(self, start: int, end: int) -> tuple[int, int]:
        """The numbers of the first span of these bytes and of the one behind them; together the spans are the bytes."""
        spans = self._spans
        if len(spans) == 1 and spans[0].start == start and spans[0].end == end:  # most memories hold one value
            return 0, 1
        low, high = self._cut(start), self._cut(end)
        if sum([span.end - span.start for span in spans[low:high]]) != end - start:
            filled = self._filled(spans[low:high], start, end)
            self._replace(low, high, filled)
            high = low + len(filled)
        return low, high

    def _filled(self, spans: list[_Span], start: int, end: int) -> list[_Span]:
        """The spans, and between them others of bytes that nobody has accessed."""
        found = []
        for span in spans:
            if start < span.start:
                found.append(_Span(start, span.start, [], []))
            found.append(span)
            start = span.end
        if start < end:
            found.append(_Span(start, end, [], []))
        return found

    def _replace(self, low: int, high: int, spans: list[_Span]) -> None:
        self._spans[low:high] = spans
        self._starts[low:high] = [span.start for span in spans]

    def _cut(self, at: int) -> int:
        """Split the span that goes across this byte; returns the number of the first span from it on."""
        index = bisect_left(self._starts, at)
        if index:
            span = self._spans[index - 1]
            if at < span.end:
                self._spans.insert(index, _Span(at, span.end, span.writers.copy(), span.readers.copy(), span.before))
                self._starts.insert(index, at)
                span.end = at
        return index
