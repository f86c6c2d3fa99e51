"""The order in which groups run."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from genesis.ir.node import Node
from genesis.ir.ops.block_rows import words_by_block
from genesis.ir.sym_int import hint
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory.arena import aligned

WORTH_REORDERING = 0.98
"""Ratio of the new peak to the old one below which a reordering is taken."""

LONGEST_CHAIN: Final = 8
"""Groups of a chain that are followed to tell what is alive in any order (`Lives.least`)."""

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
    alive = lives.alive(given)
    peak = max(alive, default=0)
    if not peak or lives.least(alive.index(peak)) > WORTH_REORDERING * peak:  # no order is worth it
        return schedule
    candidates = [given, lives.late(given)]
    if (early := lives.early()) != given:
        candidates += [early, lives.late(early)]
    peaks = [peak, *[peak if order == given else lives.peak(order) for order in candidates[1:]]]
    if min(peaks) > WORTH_REORDERING * peak:
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
    if words_by_block not in {node.op for group in schedule.groups for node in group.nodes}:
        return schedule
    groups, written = list(schedule.groups), {value for _, value in schedule.graph.updates}
    for at in range(1, len(groups)):
        loop, words = groups[at - 1], groups[at]
        if may_wait_last(loop, words) and written.isdisjoint((*loop.outputs, *words.outputs)):
            groups[at - 1:at + 1] = [words, loop]
    return replace(schedule, groups=tuple(groups))


class Lives:
    """Which group makes and reads which value, and what must keep its order.

    Values have numbers, the program's inputs first and then what groups make, in their order: what is asked of each of
    tens of thousands for every order is asked of lists.

    Attributes:
        values: number → value.
        size: bytes of each value that has memory of this program's own, 0 of others; views have that of their base, and
            what is joined that of its parts.
        made, read: the values that each group makes and reads.
        readers: value → the groups that read it.
        over: for each group (value that it makes, value of the same size that this may be made over).
        before, after: group → the groups that must run before it, and after it.
    """

    def __init__(self, schedule: Schedule):
        groups, graph = schedule.groups, schedule.graph
        made = [x for group in groups for x in group.outputs]
        outside = {*graph.outputs, *(value for _, value in graph.updates)}
        bytes_of = {kind: aligned(hint(kind.nbytes)) for kind in {x.type for x in made}}
        self.values: list[Node] = [*graph.inputs, *made]
        self.size: list[int] = [0] * len(graph.inputs) + [0 if x in outside else bytes_of[x.type] for x in made]
        self.made: list[Sequence[int]] = []
        self.read: list[list[int]] = []
        self.readers: list[list[int]] = [[] for _ in self.values]
        self.over: list[Sequence[tuple[int, int]]] = []
        self._grown: list[int] = []
        self._updates = graph.updates
        self._groups = groups
        self._given = end = len(graph.inputs)
        self._number = number = {x: at for at, x in enumerate(self.values)}
        self._writer = [at for at, group in enumerate(groups) for _ in group.outputs]  # of values behind the inputs
        base = list(range(len(self.values)))  # value → whose memory it shows
        shown = False  # whether any of these is another one's
        parts: dict[int, Sequence[int]] = {}
        sizes, readers = self.size, self.readers
        for i, group in enumerate(groups):
            start, end = end, end + len(group.outputs)  # what is made before this group has smaller numbers
            operands, own = [number[x] for x in group.inputs], range(start, end)
            kind = group.kind
            if kind == "view":
                shown = True
                for y in own:
                    sizes[y], base[y] = 0, base[operands[0]]
                self.made.append(())
                self._grown.append(0)
            else:
                if kind == "joined":
                    for y in own:
                        sizes[y], parts[y] = 0, operands
                        for x in operands if self.values[y] in outside else ():
                            sizes[x] = 0
                self.made.append(own)
                self._grown.append(sizes[start] if end - start == 1 else sum(sizes[start:end]))
            self.over.append([(number[y], number[x]) for y, x in group.in_place
                              if sizes[number[x]] == sizes[number[y]] > 0] if group.in_place else ())
            read = [base[x] for x in operands] if shown else operands
            if group.keeps:
                read = [*read, *[base[number[x]] for x in group.keeps]]
            if parts:
                read = [y for x in read for y in parts.get(x, (x,))]
            if len(read) > 1 or (read and read[0] >= start):
                read = [x for x in dict.fromkeys(read) if x < start]
            self.read.append(read)
            for x in read:
                readers[x].append(i)

    @cached_property
    def _order(self) -> tuple[list[set[int]], list[list[int]]]:
        """`before` and `after`."""
        groups, number, given, writer = self._groups, self._number, self._given, self._writer
        found: list[set[int]] = []
        after: list[list[int]] = [[] for _ in groups]
        end = given
        for i, group in enumerate(groups):
            start, end = end, end + len(group.outputs)
            operands = [number[x] for x in group.inputs]
            if group.after:
                operands += [number[x] for x in group.after if x in number]
            before = {writer[x - given] for x in operands if given <= x < start}
            found.append(before)
            for first in before:
                after[first].append(i)
        for target, value in self._updates:  # what reads the old content stays on its side of the update
            if (written := number.get(value, -1)) >= given:
                for i in self.readers[number[target]]:
                    first, second = sorted((i, writer[written - given]))
                    if first != second and first not in found[second]:
                        found[second].add(first)
                        after[first].append(second)
        return found, after

    @property
    def before(self) -> list[set[int]]:
        """Group → the groups that must run before it."""
        return self._order[0]

    @property
    def after(self) -> list[list[int]]:
        """Group → the groups that must run after it."""
        return self._order[1]

    def least(self, group: int) -> int:
        """Bytes that are alive at the group in whatever order.

        Alive is what it makes, and what was made before because it needs that, directly or not, and is read by it or by
        what needs it. What was made before, and is read by neither, may be read by groups that can run before or after
        this one, and what they make by others: of such a chain that ends at one that needs this group one value is
        alive. Chains with a value in common count as one. What the group may make over other values does not count.

            %1 = exp(%0)   %2 = mul(%1, %1)   %3 = sum(%1)   %4 = mul(%2, %3)      at %3: %1, and %1 or %2
        """
        size, made, readers = self.size, self.made, self.readers
        before, behind = self._needed(group), self._needing(group)
        seen = bytearray(len(size))  # values of chains
        found = sum([size[x] for x in made[group]])
        for i in range(group):
            for x in made[i] if before[i] else ():
                least, steps = size[x], LONGEST_CHAIN
                while least and steps and not any(map(behind.__getitem__, readers[x])):
                    x = next((y for j in readers[x] if j > group or not before[j] for y in made[j]
                              if size[y] and not seen[y]), -1)
                    if x < 0:
                        break
                    seen[x] = True
                    least, steps = min(least, size[x]), steps - 1
                else:
                    found += least if steps else 0
        return found - sum({y: size[y] for y, _ in self.over[group]}.values())

    def _needed(self, group: int) -> bytearray:
        """Which groups up to this one are this one, or make what it needs."""
        given, writer = self._given, self._writer
        found = bytearray(group + 1)
        found[group] = True
        for i in range(group, -1, -1):
            for x in self.read[i] if found[i] else ():
                if x >= given:
                    found[writer[x - given]] = True
        return found

    def _needing(self, group: int) -> bytearray:
        """Which groups are this one, or need what it makes."""
        found = bytearray(len(self.made))
        found[group] = True
        for i in range(group, len(found)):
            for x in self.made[i] if found[i] else ():
                for j in self.readers[x]:
                    found[j] = True
        return found

    def late(self, order: Sequence[int]) -> list[int]:
        """The order with groups that make more than they end the life of right before their first reader."""
        place = [0] * len(order)
        for at, i in enumerate(order):
            place[i] = at
        size, followers = self.size, self.after
        last = [-1] * len(size)  # value → the last place of its readers among the groups that were looked at
        for i in reversed(order):
            after, grown, read = followers[i], self._grown[i], self.read[i]
            if after and grown:
                first = place[after[0]] if len(after) == 1 else min([place[j] for j in after])
                if sum([size[x] for x in read if last[x] < first]) < grown:
                    place[i] = first
            at = place[i]
            for x in read:
                if last[x] < at:
                    last[x] = at
        return sorted(order, key=place.__getitem__)

    def early(self) -> list[int]:
        """The given order, but that groups which make no more than they end the life of run as soon as they can."""
        waiting = [len(before) for before in self.before]
        left = [len(readers) for readers in self.readers]
        grows = self._grown.copy()
        for readers, size in zip(self.readers, self.size, strict=True):
            if len(readers) == 1:
                grows[readers[0]] -= size
        count = len(waiting)  # a group that grows comes behind all that do not: as the number i + count
        ready = [i + count if grows[i] > 0 else i for i in range(count) if not waiting[i]]
        heapq.heapify(ready)
        order: list[int] = []
        done, after = bytearray(count), self.after
        while ready:
            i = heapq.heappop(ready) % count
            if done[i]:
                continue
            done[i] = True
            order.append(i)
            for x in self.read[i]:
                left[x] -= 1
                if left[x] == 1:
                    j = next(j for j in self.readers[x] if not done[j])
                    grows[j] -= self.size[x]
                    if not waiting[j] and grows[j] <= 0:
                        heapq.heappush(ready, j)
            for j in after[i]:
                waiting[j] -= 1
                if not waiting[j]:
                    heapq.heappush(ready, j + count if grows[j] > 0 else j)
        return order

    def peak(self, order: Sequence[int] | None = None) -> int:
        """The most bytes that are alive at one time, in the given order if there is no other."""
        return max(self.alive(order), default=0)

    def alive(self, order: Sequence[int] | None = None) -> list[int]:
        """The bytes that are alive at each group."""
        order = range(len(self.made)) if order is None else order
        last = [-1] * len(self.size)
        for at, i in enumerate(order):
            for x in self.made[i]:
                last[x] = at
            for x in self.read[i]:
                last[x] = at
        dying = [0] * (len(order) + 1)  # the last is what nobody makes or reads
        for at, size in zip(last, self.size, strict=True):
            dying[at] += size
        found, alive = [], 0
        for at, i in enumerate(order):
            shared = self._shared(i, at, last) if self.over[i] else 0
            alive += self._grown[i] - shared
            found.append(alive)
            alive -= dying[at] - shared
        return found

    def _shared(self, group: int, at: int, last: Sequence[int]) -> int:
        """The bytes of what the group makes over values that end there."""
        ending: dict[int, None] = {}
        taken: set[int] = set()  # what is made over one of these
        for y, x in self.over[group]:
            if last[x] == at and x not in ending and y not in taken:
                ending[x] = None
                taken.add(y)
        return sum(map(self.size.__getitem__, ending))
