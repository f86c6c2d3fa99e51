"""Where in the schedule gathers of parameters begin, and how long the gradients that are scattered keep their memory.

On a GPU a plan is a graph: a collective runs as soon as its operands are there, the collective before it is done, and
nothing uses the memory any more that its results are written to. The place in the schedule decides the last of these:
a gather that stands right before its first reader gets memory that the kernels before it have just used, and waits for
them. One that stands earlier has memory of its own from there on, and runs beside these kernels. The gradients that a
reduce_scatter reads give their memory to the next kernel of backward, which waits for the collective, unless they keep
it until that is done.

Both cost bytes that are alive, and buy time only as far as there is something to hide: a gather of b bytes from n
ranks takes b · (n - 1) / n over the bus' rate. So each gather begins as many kernels before its first reader as take
that time as they are reckoned (and earlier, where later collectives wait for it), and each scattered gradient keeps its
memory for as many, as far as the most bytes that are alive at one time grow by no more than `config.prefetch_bytes`.
Where the program holds less than at its peak that costs nothing.

Collectives stay in their order, in which all ranks run them. It is the order in which they were recorded, and not a
pass's to change: of one step a rank may compute the forward alone, and another one all of it at once. What backward
gathers ahead of a reduction is therefore decided where it is recorded (`nn/parallel/fsdp/gathered.py`), by sizes
alone, which are the same on all ranks; how long that takes, and where it begins, is decided here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final

from genesis.ir.flops import is_product
from genesis.ir.node import Node
from genesis.ir.ops import collectives as ops
from genesis.ir.sym_int import hint
from genesis.passes.gpu import Gpu
from genesis.passes.groups import Group, Schedule
from genesis.passes.kernel_time import group_microseconds
from genesis.passes.memory.schedule import Lives

LATENCY: Final = 15.0
"""Microseconds that a collective takes beside what it moves over the bus: NCCL's start, and ranks that wait for each
other."""

ROUNDING: Final = 1e-3
"""Microseconds by which two sums of times that are equal may differ."""


def overlap_collectives(schedule: Schedule, gpu: Gpu, budget: int) -> Schedule:
    """The schedule with gathers ahead of what reads them, and scattered gradients kept till these are reduced.

    before: matmul 1, all_gather 2, matmul 2      after: all_gather 2, matmul 1, matmul 2
            reduce_scatter 2, matmul 3                   reduce_scatter 2, matmul 3 (keeps the gradients)

    Args:
        budget: bytes by which the most that is alive at one time may grow, from what it is with each gather right
            before its first reader.
    """
    calls = {at: call for at, group in enumerate(schedule.groups) if (call := group.collective) is not None}
    if not any(call.op in (ops.all_gather, ops.reduce_scatter) for call in calls.values()):
        return schedule
    return _Placement(schedule, calls, gpu, budget).schedule()


class _Placement:
    """Slots: slot s is right before the fixed group number s. Gathers, and what only they need or that shows them, have
    a slot; all other groups are fixed.

    Attributes:
        slot: movable group → its slot.
        begins: slot → microseconds from the program's start, where nothing waits for a collective.
        alive: slot → the most bytes that are alive there.
        notes: (collective, why it is where it is).
    """

    def __init__(self, schedule: Schedule, calls: dict[int, Node], gpu: Gpu, budget: int):
        self.given, self.groups, self.calls = schedule, schedule.groups, calls
        self.lives = Lives(schedule)
        self.from_inputs = self._made_of_inputs()
        self.gathers = {at for at, call in calls.items() if call.op is ops.all_gather and self._reads_what_is_there(at)}
        self.before_gathers = self._needed_by_gathers()
        moved = self.gathers | self.before_gathers | self._views()
        self.fixed = [at for at in range(len(self.groups)) if at not in moved]
        self.number = {at: slot for slot, at in enumerate(self.fixed)}
        self.begins = list(accumulate([_microseconds(self.groups[at], gpu) for at in self.fixed], initial=0.0))
        self.takes = {at: _collective_microseconds(call, gpu) for at, call in calls.items()}
        self.following = dict(pairwise(calls))
        self.slot: dict[int, int] = {}
        for at in sorted(moved, reverse=True):
            after = [*self.lives.after[at], *([self.following[at]] if at in self.following else [])]
            self.slot[at] = min(map(self._slot, after), default=self._slots_before(at))
        self.late = self.slot.copy()
        self.alive = self._alive()
        self.most = max(self.alive) + budget
        self.keeps: dict[int, list[Node]] = {}
        self.notes: list[tuple[Node, str]] = []

    def schedule(self) -> Schedule:
        """The schedule with everything in its place."""
        self._place()
        self._keep()
        groups = [replace(self.groups[at], keeps=tuple(self.keeps[at])) if at in self.keeps else self.groups[at]
                  for at in self._order()]
        return replace(self.given, groups=tuple(groups), placed=(*self.given.placed, *self.notes))

    # What moves

    def _reads_what_is_there(self, at: int) -> bool:
        """Whether a gather moves what the program finds in memory, or casts of it: parameters, not activations."""
        return (self.lives.before[at] - self.calls.keys()) <= self.from_inputs

    def _made_of_inputs(self) -> set[int]:
        """The groups that compute no product, and nothing that was computed by one or came by a collective."""
        found: set[int] = set()
        for at, group in enumerate(self.groups):
            if at not in self.calls and self.lives.before[at] <= found and not any(
                    map(is_product, group.nodes)):
                found.add(at)
        return found

    def _needed_by_gathers(self) -> set[int]:
        """The casts and paddings of parts: what is made of the program's inputs, and for gathers alone."""
        written = {value for _, value in self.given.graph.updates}
        found: set[int] = set()
        for at in reversed(range(len(self.groups))):
            after = self.lives.after[at]
            if at in self.from_inputs and after and (self.gathers | found).issuperset(after) and written.isdisjoint(
                    self.groups[at].outputs):
                found.add(at)
        return found

    def _views(self) -> set[int]:
        """What shows a gather's results and computes nothing: it has no time of its own."""
        found: set[int] = set()
        for at, group in enumerate(self.groups):
            before = self.lives.before[at]
            if group.kind == "view" and before and before <= (self.gathers | found):
                found.add(at)
        return found

    # Where things are

    def _slot(self, at: int) -> int:
        return self.slot[at] if at in self.slot else self.number[at]

    def _slots_before(self, at: int) -> int:
        return bisect_left(self.fixed, at)

    def _order(self) -> list[int]:
        """Groups by slot, those that have one right before the fixed group of its number."""
        return sorted(range(len(self.groups)), key=lambda at: (self._slot(at), at in self.number, at))

    def _alive(self) -> list[int]:
        found = [0] * (len(self.fixed) + 1)
        order = self._order()
        for at, nbytes in zip(order, self.lives.alive(order), strict=True):
            found[self._slot(at)] = max(found[self._slot(at)], nbytes)
        return found

    def _is_read_at(self, at: int) -> int:
        """The slot of the first group that needs what a collective makes, the last slot if none does."""
        results = set(self.groups[at].outputs)
        first = len(self.fixed)
        for other in self.lives.after[at]:
            if other in self.calls and results.intersection(self.groups[other].inputs) <= {self.groups[at].outputs[-1]}:
                continue  # the order of collectives alone
            first = min(first, self._slot(other))
        return first

    # Gathers

    def _place(self) -> None:
        """Move gathers to where they have to begin, the first ones first, as far as there is memory."""
        begin = self._has_to_begin()
        first = 0
        for at in self.calls:
            if at in self.gathers:
                last = self.slot[at]
                needed = set().union(*(self.lives.before[x] for x in (at, *self._made_for(at))))
                lowest = max([first, *(self.number[x] + 1 for x in needed if x in self.number)])
                wanted = max(lowest, min(last, bisect_right(self.begins, begin[at] + ROUNDING) - 1))
                self._move(at, wanted, last)
                self.notes.append((self.calls[at], self._said(at, wanted)))
            first = self._slot(at) + (at in self.number)

    def _has_to_begin(self) -> dict[int, float]:
        """When each collective has to begin so that nothing waits for it, nor for one behind it."""
        found: dict[int, float] = {}
        following = self.begins[-1]
        for at in reversed(self.calls):
            following = min(self.begins[self._is_read_at(at)], following) - self.takes[at]
            if at in self.number:  # not before what it moves is there
                following = max(following, self.begins[self.number[at]])
            found[at] = following
        return found

    def _move(self, at: int, wanted: int, last: int) -> None:
        own = self._made_for(at)
        size = sum(self.lives.size[x] for x in self.lives.made[at])
        extra = sum(self.lives.size[x] for other in own for x in self.lives.made[other])
        slot = last
        while slot > wanted and self.alive[slot - 1] + size + extra <= self.most:
            slot -= 1
        for between in range(slot, last):
            self.alive[between] += size
        self.slot[at] = slot
        for other in own:
            self.slot[other] = min(self.slot[other], slot)

    def _made_for(self, at: int) -> set[int]:
        found: set[int] = set()
        stack = [at]
        while stack:
            for other in self.lives.before[stack.pop()] & self.before_gathers - found:
                found.add(other)
                stack.append(other)
        return found

    def _said(self, at: int, wanted: int) -> str:
        slot, read = self.slot[at], self._is_read_at(at)
        if read == len(self.fixed):
            return f"nothing reads it: it takes {_time(self.takes[at])}, for which the next collective waits"
        hidden, takes = self.begins[read] - self.begins[slot], self.takes[at]
        text = f"begins {_kernels(read - slot)} before it is read, which take {_time(hidden)} of its {_time(takes)}"
        if slot > wanted:
            return f"{text}; earlier, more would be alive at one time than prefetch_bytes allow"
        if hidden < takes:
            return f"{text}; " + ("it is the program's first" if not slot else
                                  "the collective before it, or what it moves, is not ready earlier")
        return text

    # Scattered gradients

    def _keep(self) -> None:
        """Let what is scattered, or gathered, keep its memory until that is done, as far as there is memory."""
        done = 0.0
        for at, call in self.calls.items():
            done = max(done, self.begins[self._slot(at)]) + self.takes[at]
            if at not in self.gathers and call.op is not ops.reduce_scatter:
                continue
            end = min(bisect_left(self.begins, done - ROUNDING), len(self.fixed))
            operands = [x for x in self.lives.read[at] if self.lives.size[x]]
            held, wanted = 0, 0
            for x in operands:
                last = max(self._slot(reader) - (reader in self.slot) for reader in self.lives.readers[x])
                wanted = max(wanted, end - 1 - last)
                held = max(held, self._kept(x, last, end))
            if call.op is ops.reduce_scatter:
                self.notes.append((call, f"takes {_time(self.takes[at])}; what it moves keeps its memory for "
                                         f"{_kernels(held)} behind it" + (
                    "" if held >= wanted else f" of {wanted}: for more of them, more would be alive at one time than "
                                              "prefetch_bytes allow")))

    def _kept(self, x: int, last: int, end: int) -> int:
        """Keep a value from the slot of its last reader until a slot begins; returns for how many groups that went."""
        size, until = self.lives.size[x], last
        while until + 1 < end and self.alive[until + 1] + size <= self.most:
            until += 1
            self.alive[until] += size
        if until > last:
            self.keeps.setdefault(self.fixed[until], []).append(self.lives.values[x])
        return until - last


def _microseconds(group: Group, gpu: Gpu) -> float:
    """The time of a group's kernel; collectives run beside kernels."""
    return 0.0 if group.collective is not None else group_microseconds(group, gpu)


def _collective_microseconds(call: Node, gpu: Gpu) -> float:
    """What a collective takes at the bus' rate: a gather moves all but the own part of its results, a reduction twice
    that."""
    nbytes = max(sum(int(hint(x.nbytes)) for x in call.types[:-1]), sum(int(hint(x.type.nbytes))
                                                                       for x in call.inputs[:-1]))
    share = 1 - 1 / call["world"] if "world" in call.op.attrs else 1
    return LATENCY + 1e6 * nbytes * share * (2 if call.op is ops.all_reduce else 1) / gpu.bus_rate


def _kernels(count: int) -> str:
    return "1 kernel" if count == 1 else f"{count} kernels"


def _time(microseconds: float) -> str:
    return f"{microseconds / 1e3:.2f} ms" if microseconds >= 100 else f"{microseconds:.0f} µs"

