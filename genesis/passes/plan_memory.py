"""A place for every value that is in memory while a plan runs.

Lifetimes follow from the order of the groups. An output is written where the caller gets it, an
update straight into the memory it overwrites if nobody needs the old content any more, anything
else into one arena: best fit among the blocks that are free at that point, in place where a
group may write over an operand that dies in it.

Where sizes are open (`ir/size.py`) offsets are numbers all the same, those of the run at hand: another size is planned
anew, which decides nothing but offsets.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, replace

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.ir.place import Place
from genesis.ir.size import estimate
from genesis.passes.groups import Group, Schedule

ALIGNMENT = 512

MayOverwrite = Callable[[Group, Node, Node], bool]
"""(group, output, operand) → the output may be written to the operand's memory."""


@dataclass(frozen=True)
class MemoryPlan:
    """Where each value is.

    Attributes:
        places: value → place. On the CPU a view has none: it shows its operand's.
        before: values to copy to a place before anything runs (inputs that are outputs as well).
        after: (from, to): copies when all has run, of updates that could not be written in place.
        copies: (group index, from, output place): copies right after a group.
        starts: (group index, from, to): copies right before a group that writes only a part of its output.
        arena_bytes: size of the arena.
        max_live_bytes: the most bytes of arena values that are alive at one point.
    """

    places: dict[Node, Place]
    before: tuple[tuple[Place, Place], ...]
    after: tuple[tuple[Place, Place], ...]
    copies: tuple[tuple[int, Node, Place], ...]
    arena_bytes: int
    max_live_bytes: int
    starts: tuple[tuple[int, Place, Place], ...] = ()


def plan_memory(schedule: Schedule, may_overwrite: MayOverwrite) -> MemoryPlan:
    """Give every group output a place. See the module's docstring for how."""
    return _Planner(schedule, may_overwrite).run()


class _Planner:
    def __init__(self, schedule: Schedule, may_overwrite: MayOverwrite):
        self.graph: Graph = schedule.graph
        self.groups = schedule.groups
        self.may_overwrite = may_overwrite
        self.base: dict[Node, Node] = {}  # a view → the value whose memory it shows
        self.made: dict[Node, int] = {}
        self.last: dict[Node, int] = {}
        self.reads: list[dict[Node, list[Node]]] = []  # for each group: value → the operands that show its memory
        self.returned: set[Node] = set()  # values whose memory an output shows
        self.places: dict[Node, Place] = {}
        self.before: list[tuple[Place, Place]] = []
        self.after: list[tuple[Place, Place]] = []
        self.copies: list[tuple[int, Node, Place]] = []
        self.arena = _Arena()

    def run(self) -> MemoryPlan:
        for node in self.graph.inputs:
            self.places[node] = Place("input", node["index"], 0, node.type)
        self._lifetimes()
        self._place_outputs()
        self._place_updates()
        self._place_rest()
        return MemoryPlan(self.places, tuple(self.before), tuple(self.after), tuple(self.copies), self.arena.size,
                          self.arena.peak, self._starts())

    def _starts(self) -> tuple[tuple[int, Place, Place], ...]:
        """Copies for outputs that start from an input whose memory they do not share."""
        return tuple((at, self.places[x], self.places[node]) for at, group in enumerate(self.groups)
                     for node, x in group.starts_from if _memory(self.places[x]) != _memory(self.places[node]))

    def root(self, node: Node) -> Node:
        """The value whose memory a node shows: itself, unless it is a view."""
        return self.base.get(node, node)

    def _lifetimes(self) -> None:
        for at, group in enumerate(self.groups):
            shown: dict[Node, list[Node]] = {}
            for node in group.inputs:
                self.last[self.root(node)] = at
                shown.setdefault(self.root(node), []).append(node)
            self.reads.append(shown)
            for node in group.outputs:
                self.made[node] = at
                if group.kind == "view":
                    self.base[node] = self.root(group.inputs[0])
                self.last.setdefault(self.root(node), at)
        self.returned = {self.root(out) for out in self.graph.outputs if out.op is not leaves.input}

    def _place_outputs(self) -> None:
        for index, node in enumerate(self.graph.outputs):
            place = Place("output", index, 0, node.type)
            if node.op is leaves.input:
                self.before.append((self.places[node], place))
            elif node in self.base or node in self.places:
                at = self.made[node]
                self.copies.append((at, node, place))
                self.last[self.root(node)] = max(self.last[self.root(node)], at)
            else:
                self.places[node] = place

    def _place_updates(self) -> None:
        for target, value in self.graph.updates:
            place = Place("input", target["index"], 0, target.type)
            if value is target:
                continue
            if value.op is leaves.input or value in self.base or value in self.places:
                self._copy_at_end(value, place)
            elif self._can_update(target, value):
                self.places[value] = place
            else:
                self.after.append((Place("", 0, 0, value.type), place))
                self.last[value] = len(self.groups)
                self._pending_copy(value)

    def _can_update(self, target: Node, value: Node) -> bool:
        """Nobody reads the old content after the new one is written, and the writer may overwrite what it reads."""
        at = self.made[value]
        if self.last.get(target, -1) > at or target in self.returned:
            return False
        group = self.groups[at]
        return all(x is target and self.may_overwrite(group, value, x) for x in self.reads[at].get(target, ()))

    def _pending_copy(self, value: Node) -> None:
        """`after` gets the arena place once it is known."""
        self._late = getattr(self, "_late", [])
        self._late.append((len(self.after) - 1, value))

    def _copy_at_end(self, value: Node, place: Place) -> None:
        """The value is in memory that may change before the end: keep a copy in the arena first."""
        held = self.arena.take(value.type.nbytes)  # and never given back
        staged = Place("arena", 0, held, value.type)
        if value.op is leaves.input:
            self.before.append((self.places[value], staged))
        else:
            self.copies.append((self.made[value], value, staged))
        self.after.append((staged, place))

    def _place_rest(self) -> None:
        dying: dict[int, list[Node]] = {}
        for node, at in self.last.items():
            dying.setdefault(at, []).append(node)
        offsets: dict[Node, int] = {}
        started = {x: node for group in self.groups for node, x in group.starts_from if (node, x) in group.in_place}
        for at, group in enumerate(self.groups):
            taken: set[Node] = set()
            for node in group.outputs:
                if node in self.places or node in self.base:
                    continue
                follower = started.get(node)
                if follower is not None and self._starts_output(node, follower):
                    self.places[node] = replace(self.places[follower], type=node.type)
                    continue
                over = self._dying_operand(group, node, at, offsets, taken)
                if over is not None:
                    taken.add(over)
                    offsets[node] = offsets.pop(over)
                else:
                    offsets[node] = self.arena.take(node.type.nbytes)
                self.places[node] = Place("arena", 0, offsets[node], node.type)
            for node in dying.get(at, ()):
                if node in offsets:
                    self.arena.give(offsets.pop(node), node.type.nbytes)
        for index, value in getattr(self, "_late", []):
            self.after[index] = (self.places[value], self.after[index][1])

    def _starts_output(self, node: Node, follower: Node) -> bool:
        """Can this value be made where the program's output is that starts from it?"""
        place = self.places.get(follower)
        return (place is not None and place.where == "output" and self.last[node] == self.made[follower]
                and node not in self.returned)

    def _dying_operand(self, group: Group, output: Node, at: int, offsets: dict[Node, int],
                       taken: set[Node]) -> Node | None:
        """An operand of the output's size that nobody needs after this group, and that it may overwrite.

        One that the group reads through a view as well (`y + y.T`) is read at other elements than it
        is written at, so it stays.
        """
        for x in group.inputs:
            if (x in offsets and x not in taken and self.last[x] == at
                    and estimate(x.type.nbytes) == estimate(output.type.nbytes) and x.type.dtype is output.type.dtype
                    and self.reads[at][x] == [x] and self.may_overwrite(group, output, x)):
                return x
        return None


def _memory(place: Place) -> tuple[str, int, int]:
    return place.where, place.index, place.offset


class _Arena:
    """Offsets in one block: best fit among free ranges, growing at the end."""

    def __init__(self) -> None:
        self.size = 0
        self.peak = 0
        self._live = 0
        self._bytes_at: dict[int, int] = {}  # start of a free range → bytes
        self._start_of: dict[int, int] = {}  # its end → start
        self._by_size: list[tuple[int, int]] = []  # (bytes, start), sorted

    def take(self, nbytes: int) -> int:
        """The offset of this many bytes: the smallest free range that has them, the first of equals."""
        need = aligned(nbytes)
        self._live += need
        self.peak = max(self.peak, self._live)
        at = bisect_left(self._by_size, (need, 0))
        if at < len(self._by_size):
            size, start = self._by_size[at]
            self._remove(start)
            if size > need:
                self._insert(start + need, size - need)
            return start
        start = self._start_of.get(self.size, self.size)
        if start != self.size:  # grow the last free range
            self._remove(start)
        self.size = start + need
        return start

    def give(self, offset: int, nbytes: int) -> None:
        """Free a range, and join it with its neighbours."""
        start, end = offset, offset + aligned(nbytes)
        self._live -= end - start
        if start in self._start_of:
            start = self._start_of[start]
            self._remove(start)
        if end in self._bytes_at:
            size = self._bytes_at[end]
            self._remove(end)
            end += size
        self._insert(start, end - start)

    def _insert(self, start: int, size: int) -> None:
        self._bytes_at[start], self._start_of[start + size] = size, start
        insort(self._by_size, (size, start))

    def _remove(self, start: int) -> None:
        size = self._bytes_at.pop(start)
        del self._start_of[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]


def aligned(nbytes: int) -> int:
    """Bytes that a value takes in the arena."""
    return -(-max(estimate(nbytes), 1) // ALIGNMENT) * ALIGNMENT


__all__ = ["MemoryPlan", "plan_memory"]
