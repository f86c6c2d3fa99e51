"""The order in which groups run."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from genesis.ir.node import Node
from genesis.ir.ops.block_rows import words_by_block
from genesis.ir.sym_int import hint
from genesis.ir.types import TensorType
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory.arena import aligned

WORTH_REORDERING = 0.98
"""Ratio of the new peak to the old one below which a reordering is taken."""


LOOP_BYTES: Final = 5 << 20
"""Bytes that a loop writes from which on it runs beside the sorts of an index's blocks: a class of sizes is weighed as
its largest. With its gradient a look-up of 6.4 MB took 21.0 µs for 25.5, 3.8 MB 19.0 for 20.0, 3.6 MB 24.3 for 23.1,
2.2 MB 11.1 for 9.9 (H200)."""


def order_groups(groups: list[Group]) -> tuple[Group, ...]:
    """Groups in dependency order, otherwise as early as the program recorded them.

    A group's turn is when all that it reads is written; among those whose turn it is, the one given
    first goes first, so the order follows the program and lifetimes stay short.
    """
    writer = {node: number for number, group in enumerate(groups) for node in group.outputs}
    waiting: list[set[int]] = []
    followers: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        needed = {writer[node] for node in (*group.inputs, *group.after) if node in writer} - {number}
        waiting.append(needed)
        for other in needed:
            followers.setdefault(other, []).append(number)
    ready = [number for number, needed in enumerate(waiting) if not needed]
    heapq.heapify(ready)
    found: list[Group] = []
    while ready:
        number = heapq.heappop(ready)
        found.append(groups[number])
        for other in followers.get(number, ()):
            waiting[other].discard(number)
            if not waiting[other]:
                heapq.heappush(ready, other)
    if len(found) != len(groups):
        raise AssertionError("groups depend on each other in a circle")
    return tuple(found)


def lower_peak(schedule: Schedule) -> Schedule:
    """The schedule in another order, if the most bytes that are alive at one time get fewer.

    before: %1 = exp(%0), …, %9 = sum(%1)        after: …, %1 = exp(%0), %9 = sum(%1)

    What makes more bytes than it ends the life of can go down to its first reader: a second computation of something
    that the forward had, for one, is made when the backward wants it. What makes fewer can run as soon as it is ready:
    a weight's gradient, when the program asks for those of the first layers first.
    """
    lives = Lives(schedule)
    given = list(range(len(schedule.groups)))
    candidates = [given, lives.late(given)]
    if (early := lives.early()) != given:
        candidates += [early, lives.late(early)]
    peaks = list(map(lives.peak, candidates))
    if min(peaks) > WORTH_REORDERING * peaks[0]:
        return schedule
    best = candidates[peaks.index(min(peaks))]
    return replace(schedule, groups=tuple(schedule.groups[i] for i in best))


def may_wait_last(group: Group, before: Group) -> bool:
    """Whether a loop runs beside the group before it, waiting for that at its end (`codegen/cuda/source.waiting_last`):
    one that sorts the blocks of an index, in few programs, of which it needs nothing. Not a short loop, which would
    wait for the sorts."""
    sorts = any(node.op is words_by_block for node in before.nodes)
    written = sum(hint(x.type.nbytes) for x in group.outputs)
    return sorts and group.kind == "loop" and written >= LOOP_BYTES and independent(group, before)


def independent(one: Group, other: Group) -> bool:
    """Whether neither group reads, waits for or keeps what the other writes."""
    def needs(group: Group, made: Group) -> bool:
        shown = {stored_as(x) for x in (*group.inputs, *group.after, *group.keeps)}
        return not shown.isdisjoint(map(stored_as, made.outputs))
    return not needs(one, other) and not needs(other, one)


def words_first(schedule: Schedule) -> Schedule:
    """The schedule with an index's blocks sorted before the loop that stood before that, such as the look-up at the
    same index: it runs beside the sorts then, which are few programs, and takes the multiprocessors that these leave.

    before: %1 = take(%0, %i), %2 = words_by_block(%i)    after: %2 = words_by_block(%i), %1 = take(%0, %i)
    """
    groups, written = list(schedule.groups), {value for _, value in schedule.graph.updates}
    for at in range(1, len(groups)):
        loop, words = groups[at - 1], groups[at]
        if may_wait_last(loop, words) and written.isdisjoint((*loop.outputs, *words.outputs)):
            groups[at - 1:at + 1] = [words, loop]
    return replace(schedule, groups=tuple(groups))


class Lives:
    """Which group makes and reads which value, and what must keep its order.

    Attributes:
        size: bytes of each value that has memory of this program's own; views have that of their base, and what is
            joined that of its parts.
        made, read: the values that each group makes and reads.
        readers: value → the groups that read it.
        over: for each group (value that it makes, value of the same size that this may be made over).
        before, after: group → the groups that must run before it, and after it.
    """

    def __init__(self, schedule: Schedule):
        groups, graph = schedule.groups, schedule.graph
        base: dict[Node, Node] = {}
        parts: dict[Node, tuple[Node, ...]] = {}
        writer: dict[Node, int] = {}
        outside = {*graph.outputs, *(value for _, value in graph.updates)}
        bytes_of: dict[TensorType, int] = {}
        self.size: dict[Node, int] = {}
        self.made: list[list[Node]] = []
        self.read: list[list[Node]] = []
        self.readers: dict[Node, list[int]] = {}
        self.over: list[list[tuple[Node, Node]]] = []
        self._grown: list[int] = []
        self.before: list[set[int]] = [set() for _ in groups]
        self.after: list[set[int]] = [set() for _ in groups]
        for i, group in enumerate(groups):
            for node in group.outputs:
                writer[node] = i
                if group.kind == "view":
                    base[node] = base.get(group.inputs[0], group.inputs[0])
                elif group.kind == "joined":
                    parts[node] = group.inputs
                    self.size |= dict.fromkeys((node, *(group.inputs if node in outside else ())), 0)
                elif node in outside:
                    self.size[node] = 0
                else:
                    size = bytes_of.get(node.type)
                    if size is None:
                        size = bytes_of[node.type] = aligned(hint(node.type.nbytes))
                    self.size[node] = size
            made = [] if group.kind == "view" else list(group.outputs)
            self.made.append(made)
            self._grown.append(sum([self.size[x] for x in made]))
            self.over.append([(y, x) for y, x in group.in_place if self.size.get(x) == self.size.get(y, 0) > 0])
            read = [base.get(x, x) for x in (*group.inputs, *group.keeps)]
            if parts:
                read = [y for x in read for y in parts.get(x, (x,))]
            read = _without(read, made)
            self.read.append(read)
            for x in read:
                readers = self.readers.get(x)
                if readers is None:
                    readers = self.readers[x] = []
                readers.append(i)
            for x in (*group.inputs, *group.after):
                first = writer.get(x, i)
                if first != i:
                    self._keep(first, i)
        for target, value in graph.updates:  # what reads the old content stays on its side of the update
            for i in self.readers.get(target, ()):
                if value in writer and i != writer[value]:
                    self._keep(*sorted((i, writer[value])))

    def _keep(self, first: int, second: int) -> None:
        self.before[second].add(first)
        self.after[first].add(second)

    def late(self, order: Sequence[int]) -> list[int]:
        """The order with groups that make more than they end the life of right before their first reader."""
        place = {i: at for at, i in enumerate(order)}
        last = {x: _LastTwo(readers, place) for x, readers in self.readers.items()}
        for i in reversed(order):
            after, grown = self.after[i], self._grown[i]
            if not after or not grown:
                continue
            first = min([place[j] for j in after])
            if sum([self.size.get(x, 0) for x in self.read[i] if last[x].but(i) < first]) < grown:
                place[i] = first
                for x in self.read[i]:
                    last[x].move(i, first)
        at = {i: number for number, i in enumerate(order)}
        return sorted(order, key=lambda i: (place[i], at[i]))

    def early(self) -> list[int]:
        """The given order, but that groups which make no more than they end the life of run as soon as they can."""
        waiting = [len(before) for before in self.before]
        left = {x: len(readers) for x, readers in self.readers.items()}
        grows = self._grown.copy()
        for x, readers in self.readers.items():
            if len(readers) == 1:
                grows[readers[0]] -= self.size.get(x, 0)
        ready = [(grows[i] > 0, i) for i, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        order: dict[int, None] = {}
        while ready:
            _, i = heapq.heappop(ready)
            if i in order:
                continue
            order[i] = None
            for x in self.read[i]:
                left[x] -= 1
                if left[x] == 1:
                    j = next(j for j in self.readers[x] if j not in order)
                    grows[j] -= self.size.get(x, 0)
                    if not waiting[j] and grows[j] <= 0:
                        heapq.heappush(ready, (False, j))
            for j in self.after[i]:
                waiting[j] -= 1
                if not waiting[j]:
                    heapq.heappush(ready, (grows[j] > 0, j))
        return list(order)

    def peak(self, order: Sequence[int] | None = None) -> int:
        """The most bytes that are alive at one time, in the given order if there is no other."""
        return max(self.alive(order), default=0)

    def alive(self, order: Sequence[int] | None = None) -> list[int]:
        """The bytes that are alive at each group."""
        order = range(len(self.made)) if order is None else order
        last: dict[Node, int] = {}
        for at, i in enumerate(order):
            for x in self.made[i]:
                last[x] = at
            for x in self.read[i]:
                last[x] = at
        dying: dict[int, int] = {}
        for x, at in last.items():
            dying[at] = dying.get(at, 0) + self.size.get(x, 0)
        found, alive = [], 0
        for at, i in enumerate(order):
            shared = self._shared(i, at, last) if self.over[i] else 0
            alive += self._grown[i] - shared
            found.append(alive)
            alive -= dying.get(at, 0) - shared
        return found

    def _shared(self, group: int, at: int, last: Mapping[Node, int]) -> int:
        """The bytes of what the group makes over values that end there."""
        ending: dict[Node, None] = {}
        taken: set[Node] = set()  # what is made over one of these
        for y, x in self.over[group]:
            if last[x] == at and x not in ending and y not in taken:
                ending[x] = None
                taken.add(y)
        return sum(map(self.size.__getitem__, ending))


def _without(read: Sequence[Node], made: Sequence[Node]) -> list[Node]:
    """What is read, each value once, and is not made here: an optimizer's group reads and makes thousands."""
    own = made if len(made) == 1 else set(made)
    return [x for x in dict.fromkeys(read) if x not in own]


class _LastTwo:
    """The last two readers of a value, while readers move to later places: whether one of thousands is the last is
    asked for each."""

    __slots__ = ("_last", "_last_place", "_place")

    def __init__(self, readers: Sequence[int], place: Mapping[int, int]):
        self._last = self._last_place = self._place = -1
        for reader in readers:
            self.move(reader, place[reader])

    def move(self, reader: int, place: int) -> None:
        """The reader is at this place from now on, which is no earlier one."""
        if reader == self._last:
            self._last_place = place
        elif place > self._last_place:
            self._last, self._last_place, self._place = reader, place, self._last_place
        elif place > self._place:
            self._place = place

    def but(self, reader: int) -> int:
        """The place of the last reader other than this one, -1 if there is no other."""
        return self._place if reader == self._last else self._last_place
