"""Which steps of a plan must be done before which: what lets independent ones run at the same time.

A step waits for whoever wrote what it reads (read after write), and for whoever read or wrote what it
overwrites (write after read, write after write). Memory is compared by ranges of bytes, since the planner
gives one part of the arena to many values in turn. What follows from other edges is left out.

    0: a → t        after: ()
    1: b → u               ()          nothing of step 0: they may overlap
    2: t, u → v            (0, 1)
    3: a → t               (2,)        it overwrites what 2 reads, and so comes after 0 as well
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from genesis.ir.place import Memory, Place, memory_of
from genesis.runtime.plan import Copy, Launch, Step, Table

Edges = tuple[tuple[int, ...], ...]
"""For each step the steps that it waits for, in order."""


def edges_of(steps: Sequence[Step]) -> Edges:
    """For each step the earlier ones that it must wait for; those that these wait for are not repeated."""
    memories: dict[Memory, _Spans] = {}
    earlier: list[int] = []  # for each step all that is done before it, as bits
    found: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        conflicts: set[int] = set()
        for places, overwrites in zip(_accesses(step), (False, True), strict=True):
            for place in places:
                if place.type.nbytes and place.where != "errors":  # any order of failures will do
                    memory = memories.setdefault(memory_of(place), _Spans())
                    conflicts |= memory.access(place.offset, place.offset + place.type.nbytes, number, overwrites)
        covered, kept = 0, []
        for other in sorted(conflicts - {number}, reverse=True):
            if not covered >> other & 1:
                kept.append(other)
                covered |= earlier[other] | 1 << other
        earlier.append(covered)
        found.append(tuple(reversed(kept)))
    return tuple(found)


def _accesses(step: Step) -> tuple[list[Place], list[Place]]:
    """(what a step reads, what it writes). A launch that does not say what it writes may write all it can reach."""
    if isinstance(step, Copy):
        return [step.source], [step.destination]
    reached = list(places_of(step))
    return reached, reached if step.writes is None else list(step.writes)


def places_of(step: Launch) -> Iterator[Place]:
    """Everything a launch can reach, also through its tables."""
    for argument in step.args:
        if isinstance(argument, Place):
            yield argument
        elif isinstance(argument, Table):
            yield from (place for _, place in argument.parts.places)


@dataclass
class _Span:
    """Bytes with one history: the last step that wrote them, and those that have read them since."""

    start: int
    end: int
    writer: int | None = None
    readers: list[int] = field(default_factory=list)


class _Spans:
    """The accessed bytes of one memory, as disjoint spans in order."""

    def __init__(self) -> None:
        self._spans: list[_Span] = []

    def access(self, start: int, end: int, step: int, overwrites: bool) -> set[int]:
        """Note that a step reads or overwrites these bytes; returns the steps that must be done before."""
        self._cut(start)
        self._cut(end)
        low = bisect_left(self._spans, start, key=lambda span: span.start)
        high = bisect_left(self._spans, end, key=lambda span: span.start)
        touched = self._spans[low:high]
        before = {span.writer for span in touched if span.writer is not None}
        if overwrites:
            before.update(reader for span in touched for reader in span.readers)
            self._spans[low:high] = [_Span(start, end, step)]
            return before
        at, spans = start, []
        for span in touched:
            if at < span.start:
                spans.append(_Span(at, span.start))
            spans.append(span)
            at = span.end
        if at < end:
            spans.append(_Span(at, end))
        for span in spans:
            span.readers.append(step)
        self._spans[low:high] = spans
        return before

    def _cut(self, at: int) -> None:
        """Let no span go across this byte."""
        index = bisect_right(self._spans, at, key=lambda span: span.start) - 1
        if index >= 0:
            span = self._spans[index]
            if span.start < at < span.end:
                self._spans.insert(index + 1, _Span(at, span.end, span.writer, span.readers.copy()))
                span.end = at
