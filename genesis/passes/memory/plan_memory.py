"""A place for every value that is in memory while a plan runs.

Lifetimes follow from the order of the groups. An output is written where the caller gets it, an update straight into
the memory it overwrites if nobody needs the old content any more and nothing comes after it that cannot be called late
(`writes_last.py`), anything else into one arena: best fit among the blocks that are free at that point, in place where
a group may write over an operand that dies in it. Where that is wanted, the memory of an output is lent to values that
are gone before it is written. A slice (`Group.slices`) is in the memory of the value that it is a part of, which is
there from its first part on.

Where sizes are symbolic (`ir/sym_int.py`) offsets are numbers all the same, those of the run at hand. What is decided
here is right for every size: another one makes the same requests of its arena (`arena.py`), which decide nothing but
offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.ir.place import Place
from genesis.passes.groups import Group, Late, Schedule
from genesis.passes.memory.arena import Lent, Request, arranged
from genesis.passes.memory.writes_last import LateOf, first_late

if TYPE_CHECKING:
    from genesis.ir.sym_int import Size
    from genesis.ir.types import TensorType

MayOverwrite = Callable[[Group, Node, Node], bool]
"""(group, output, operand) → the output may be written to the operand's memory."""

LEAST_LENT: Final = 1 << 20
"""Bytes of the smallest output whose memory is lent: those of biases and norms are not worth what looking costs."""


@dataclass(frozen=True)
class MemoryPlan:
    """Where each value is.

    Attributes:
        places: value → place. On the CPU a view has none: it shows its operand's. A slice has that of the whole value.
        before: values to copy to a place before anything runs (inputs that are outputs as well).
        after: (from, to): copies when all has run, of updates that could not be written in place.
        copies: (group index, from, output place): copies right after a group.
        starts: (group index, from, to): copies right before a group that writes only a part of its output.
        arena_bytes: size of the arena.
        max_live_bytes: the most bytes of arena values that are alive at one point.
        requests: what the arena was asked for.
        lent: the outputs' memories that values of the arena may be in.
        value_at: id of a place in the arena, or in lent memory → the number of its value among the requests. Nodes of
            one type that are made over each other share a place.
    """

    places: dict[Node, Place]
    before: tuple[tuple[Place, Place], ...]
    after: tuple[tuple[Place, Place], ...]
    copies: tuple[tuple[int, Node, Place], ...]
    arena_bytes: int
    max_live_bytes: int
    requests: tuple[Request, ...]
    value_at: dict[int, int]
    starts: tuple[tuple[int, Place, Place], ...] = ()
    lent: tuple[Lent, ...] = ()


def plan_memory(schedule: Schedule, may_overwrite: MayOverwrite,
                late_of: LateOf = lambda group: Late.ALWAYS, lend: bool = False) -> MemoryPlan:
    """Give every group output a place. See the module's docstring for how.

    Args:
        lend: whether values may be in the memory of outputs that are written later.
    """
    return _Planner(schedule, may_overwrite, late_of, lend).run()


class _Planner:
    def __init__(self, schedule: Schedule, may_overwrite: MayOverwrite, late_of: LateOf, lend: bool):
        self.graph: Graph = schedule.graph
        self.groups = schedule.groups
        self.may_overwrite = may_overwrite
        self.late_of = late_of
        self.lend = lend
        self.first_late = 0
        self.base: dict[Node, Node] = {}  # a view, or a slice → the value whose memory it shows
        self.slices = {x.part: x.whole for group in schedule.groups for x in group.slices}
        self.made: dict[Node, int] = {}
        self.last: dict[Node, int] = {}
        self.reads: list[dict[Node, list[Node]] | None] = []  # for each group: value → the operands that show its
        # memory; None where each operand shows its own, and stands there once
        self.operands: dict[int, frozenset[Node]] = {}  # of groups that were asked for theirs
        self.returned: set[Node] = set()  # values whose memory an output shows
        self.places: dict[Node, Place] = {}
        self.before: list[tuple[Place, Place]] = []
        self.after: list[tuple[Place, Place]] = []
        self.copies: list[tuple[int, Node, Place]] = []
        self.late: list[tuple[int, Node]] = []  # where in `after` a copy starts at this value, which has no place yet
        self.requests: list[Request] = []  # of the arena; what it answers is known when all are there
        self.begun: list[int] = []  # for each group how many requests are made before its own
        self.values = 0  # of the arena
        self.open: dict[int, tuple[Place, int]] = {}  # id of a copy's place in the arena → itself, its value there
        self.value_of: dict[Node, int] = {}  # node → its value in the arena; its place waits
        self.waiting: dict[TensorType, Place] = {}  # the places of such nodes, by their types

    def run(self) -> MemoryPlan:
        for node in self.graph.inputs:
            self.places[node] = Place("input", node["index"], 0, node.type)
        self._lifetimes()
        self.first_late = first_late(self.groups, self.made, self.late_of) if self.graph.updates else 0
        self._place_outputs()
        self._place_updates()
        self._place_rest()
        return self._arranged()

    def _arranged(self) -> MemoryPlan:
        """The plan, as the arena answers all that it was asked."""
        lent = self._lent() if self.lend else ()
        arena = arranged(self.requests, lent)
        settled: dict[int, Place] = {}
        shared: dict[tuple[int, TensorType], Place] = {}
        value_at: dict[int, int] = {}

        def settle(value: int, type: TensorType) -> Place:
            output = arena.lent_to[value]
            found = Place("arena" if output is None else "output", output or 0, arena.offsets[value], type)
            value_at[id(found)] = value
            return found

        for key, (place, value) in self.open.items():
            settled[key] = settle(value, place.type)
        for node, value in self.value_of.items():
            kind = self.places[node].type
            if (value, kind) not in shared:
                shared[value, kind] = settle(value, kind)
            self.places[node] = shared[value, kind]
        for index, node in self.late:  # its place stays its own until the end
            self.places[node] = settle(self.value_of[node], node.type) if node in self.value_of else self.places[node]
            self.after[index] = self.places[node], self.after[index][1]

        def of(place: Place) -> Place:
            return settled.get(id(place), place)

        before, after = ([(of(source), of(target)) for source, target in pairs] for pairs in (self.before, self.after))
        return MemoryPlan(self.places, tuple(before), tuple(after),
                          tuple([(at, node, of(place)) for at, node, place in self.copies]), arena.size, arena.peak,
                          tuple(self.requests), value_at, self._starts(), lent)

    def _lent(self) -> tuple[Lent, ...]:
        """The outputs of a size that is always the same, and when they are written."""
        made = [(self.places[node], at) for node, at in self.made.items() if node in self.places]
        written: dict[int, int] = {}  # output → the first group that writes to its memory
        for place, at in (*made, *((place, at) for at, _, place in self.copies)):
            if place.where == "output":
                written[place.index] = min(at, written.get(place.index, at))
        copied = {target.index for _, target in self.before if target.where == "output"}
        sizes = {index: self.graph.outputs[index].type.nbytes for index in written if index not in copied}
        return tuple([Lent(index, nbytes, self.begun[written[index]]) for index, nbytes in sizes.items()
                      if isinstance(nbytes, int) and nbytes >= LEAST_LENT])

    def _take(self, nbytes: Size) -> int:
        """Room in the arena for another value; returns its number."""
        self.requests.append((self.values, nbytes))
        self.values += 1
        return self.values - 1

    def _waiting(self, type: TensorType) -> Place:
        """What stands for a place in the arena until that is known."""
        place = self.waiting.get(type)
        if place is None:
            place = self.waiting[type] = Place("arena", 0, 0, type)
        return place

    def _starts(self) -> tuple[tuple[int, Place, Place], ...]:
        """Copies for outputs that start from an input whose memory they do not share."""
        return tuple((at, self.places[x], self.places[node]) for at, group in enumerate(self.groups)
                     for node, x in group.starts_from if _memory(self.places[x]) != _memory(self.places[node]))

    def root(self, node: Node) -> Node:
        """The value whose memory a node shows: itself, unless it is a view."""
        return self.base.get(node, node)

    def _lifetimes(self) -> None:
        base, last, made, slices = self.base, self.last, self.made, self.slices
        for at, group in enumerate(self.groups):
            inputs = group.inputs
            if base and not base.keys().isdisjoint(inputs):
                shown: dict[Node, list[Node]] | None = {}
            else:
                shown = None if len(inputs) < 2 or len(inputs) == len(set(inputs)) else {}
            for node in inputs:
                root = node if shown is None else base.get(node, node)
                last[root] = at
                if shown is not None:
                    shown.setdefault(root, []).append(node)
            for node in group.keeps:
                last[base.get(node, node)] = at
            self.reads.append(shown)
            for node in group.outputs:
                made[node] = at
                root = node
                if group.kind == "view":
                    root = base[node] = base.get(inputs[0], inputs[0])
                elif node in slices:
                    root = base[node] = slices[node]
                if root not in last:
                    last[root] = at
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
                self.late.append((len(self.after), value))
                self.after.append((Place("", 0, 0, value.type), place))
                self.last[value] = len(self.groups)

    def _can_update(self, target: Node, value: Node) -> bool:
        """Nobody reads the old content after the new one is written, and the writer may overwrite what it reads."""
        at = self.made[value]
        if self.last.get(target, -1) > at or target in self.returned or at < self.first_late:
            return False
        group = self.groups[at]
        shown = self.reads[at]
        reading = shown.get(target, ()) if shown is not None else (target,) if self._is_read(at, target) else ()
        return all(x is target and self.may_overwrite(group, value, x) for x in reading)

    def _is_read(self, at: int, target: Node) -> bool:
        """Whether it is among the group's operands: an optimizer's group has thousands, and asks for each."""
        found = self.operands.get(at)
        if found is None:
            found = self.operands[at] = frozenset(self.groups[at].inputs)
        return target in found

    def _alone(self, at: int, x: Node) -> bool:
        """Whether the group reads the memory of this operand as the operand alone, and through no view."""
        shown = self.reads[at]
        return shown is None or shown[x] == [x]

    def _copy_at_end(self, value: Node, place: Place) -> None:
        """The value is in memory that may change before the end: keep a copy in the arena first."""
        staged = Place("arena", 0, 0, value.type)
        self.open[id(staged)] = staged, self._take(value.type.nbytes)  # and never given back
        if value.op is leaves.input:
            self.before.append((self.places[value], staged))
        else:
            self.copies.append((self.made[value], value, staged))
        self.after.append((staged, place))

    def _place_rest(self) -> None:
        dying: dict[int, list[Node]] = {}
        for node, at in self.last.items():
            dying.setdefault(at, []).append(node)
        values: dict[Node, int] = {}  # node → its value in the arena
        started = {x: node for group in self.groups for node, x in group.starts_from if (node, x) in group.in_place}
        replaced = self._replaced_by_outputs()
        places, base, slices, value_of = self.places, self.base, self.slices, self.value_of
        inside = bool(started or replaced)
        for at, group in enumerate(self.groups):
            self.begun.append(len(self.requests))
            taken: set[Node] = set()
            for output in group.outputs:
                node = slices.get(output, output)  # memory of a whole is there from its first part on
                if node not in places and node not in base:
                    place = self._place_inside(node, started, replaced) if inside else None
                    if place is None:
                        over = self._dying_operand(group, node, at, values, taken) if node is output else None
                        if over is not None:
                            taken.add(over)
                        value = values.pop(over) if over is not None else self._take(node.type.nbytes)
                        values[node] = value_of[node] = value
                        place = self._waiting(node.type)
                    places[node] = place
                if node is not output:
                    places[output] = places[node]
                    if node in value_of:
                        value_of[output] = value_of[node]
            for node in dying.get(at, ()):
                if node in values:
                    self.requests.append((values.pop(node), None))

    def _place_inside(self, node: Node, started: dict[Node, Node], replaced: dict[Node, Node]) -> Place | None:
        """The place of a value that is made in an output's memory; None for others."""
        follower = started.get(node)
        if follower is not None and self._starts_output(node, follower):
            return replace(self.places[follower], type=node.type)
        return self.places[replaced[node]] if node in replaced else None

    def _replaced_by_outputs(self) -> dict[Node, Node]:
        """Values that end where an output of their type may be written over them: they are made in the output's memory,
        which nothing else needs before. Only where a group has several: gradients that are clipped are all there at
        once, and would take twice their memory; and where a product is added to a sum that began as other products."""
        found: dict[Node, Node] = {}
        for at, group in reversed(list(enumerate(self.groups))):
            outputs = [] if len(group.outputs) == 1 and group.kind != "matmul" else [
                node for node in group.outputs if node in found or (
                    node in self.places and self.places[node].where == "output")]
            ending = [x for x in group.inputs if x not in self.places and x not in self.base and self.last[x] == at
                      and self._alone(at, x) and x not in self.returned] if outputs else []
            for node in outputs:
                x = next((x for x in ending if x.type is node.type and self.may_overwrite(group, node, x)), None)
                if x is not None:
                    found[x] = found.get(node, node)
                    ending.remove(x)
        return found

    def _starts_output(self, node: Node, follower: Node) -> bool:
        """Can this value be made where the program's output is that starts from it?"""
        place = self.places.get(follower)
        return (place is not None and place.where == "output" and self.last[node] == self.made[follower]
                and node not in self.returned)

    def _dying_operand(self, group: Group, output: Node, at: int, values: dict[Node, int],
                       taken: set[Node]) -> Node | None:
        """An operand of the output's size that nobody needs after this group, and that it may overwrite.

        Two symbolic sizes must be one formula: those that are equal by chance may part at another batch. One that the
        group reads through a view as well (`y + y.T`) is read at other elements than it is written at, so it stays.
        """
        kind = output.type
        for x in group.inputs:
            if (x in values and self.last[x] == at and x not in taken and (x.type is kind or (
                    x.type.dtype is kind.dtype and _same(x.type.numel, kind.numel)))
                    and self._alone(at, x) and self.may_overwrite(group, output, x)):
                return x
        return None


def _same(a: Size, b: Size) -> bool:
    """Are the sizes equal, whatever the batch is? Asked without a guard: equal formulas are one object."""
    return a is b or (a.__class__ is int and b.__class__ is int and a == b)


def _memory(place: Place) -> tuple[str, int, int]:
    return place.where, place.index, place.offset


__all__ = ["MemoryPlan", "plan_memory"]
