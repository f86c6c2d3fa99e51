"""A memory plan is run symbolically: every byte remembers which value was written there last."""

from __future__ import annotations

from dataclasses import dataclass, field

from genesis.ir import Node
from genesis.ir.place import Place
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory.arena import ALIGNMENT
from genesis.passes.memory.plan_memory import MayOverwrite, MemoryPlan

Block = tuple[str, int]


@dataclass
class Memory:
    """Which value each range of bytes holds; a value that was written over in part is gone."""

    held: dict[Block, list[tuple[int, int, Node]]] = field(default_factory=dict)
    parts: dict[Node, set[Node]] = field(default_factory=dict)

    def write(self, place: Place, value: Node) -> None:
        """Put a value there; whatever it overlaps is lost."""
        start, end = extent(place)
        block = self.held.setdefault((place.where, place.index), [])
        block[:] = [(a, b, old) for a, b, old in block if b <= start or end <= a]
        block.append((start, end, value))

    def write_part(self, place: Place, part: Node, whole: Node) -> None:
        """Put a part of a value there: the first one takes all of its memory, the others must find it so."""
        if whole not in self.parts:
            self.write(place, whole)
        assert self.read(place) is whole, f"other values were written over the parts of {whole}"
        self.parts.setdefault(whole, set()).add(part)

    def read(self, place: Place) -> Node | None:
        """The value that is exactly there."""
        start, end = extent(place)
        return next((value for a, b, value in self.held.get((place.where, place.index), ()) if (a, b) == (start, end)),
                    None)


def extent(place: Place) -> tuple[int, int]:
    """First byte and the one after the last; an empty value has one byte, so that it is still somewhere."""
    return place.offset, place.offset + max(place.type.nbytes, 1)


def overlap(one: Place, other: Place) -> bool:
    """Do two places share a byte?"""
    (a, b), (c, d) = extent(one), extent(other)
    return (one.where, one.index) == (other.where, other.index) and a < d and c < b


def check_plan(schedule: Schedule, plan: MemoryPlan, may_overwrite: MayOverwrite) -> None:
    """Every read finds its value, every output and update is where it belongs, everything is aligned."""
    graph, memory = schedule.graph, Memory()
    base: dict[Node, Node] = {}
    for x in graph.inputs:
        memory.write(plan.places[x], x)

    def copy(source: Place, target: Place) -> None:
        value = memory.read(source)
        assert value is not None, f"{source} holds nothing whole"
        memory.write(target, value)

    for source, target in plan.before:
        copy(source, target)
    for at, group in enumerate(schedule.groups):
        if group.kind == "view":
            base[group.outputs[0]] = base.get(group.inputs[0], group.inputs[0])
        base.update((x.part, x.whole) for x in group.slices)
        if group.kind == "joined":
            assert memory.parts[group.outputs[0]] == set(group.inputs), "a part is missing"
        for x in group.inputs:
            root = base.get(x, x)
            assert memory.read(plan.places[root]) is root, f"group {at} does not find {root}"
        _check_writes(group, plan, base, may_overwrite)
        for y in group.outputs:
            if y in memory.parts:
                assert group.kind == "joined" and memory.read(plan.places[y]) is y
            elif group.slice_of(y) is not None:
                memory.write_part(plan.places[y], y, base[y])
            elif y not in base:
                memory.write(plan.places[y], y)
        for after, value, place in plan.copies:
            if after == at:
                root = base.get(value, value)
                assert memory.read(plan.places[root]) is root
                memory.write(place, value)
    for source, target in plan.after:
        copy(source, target)
    for index, y in enumerate(graph.outputs):
        assert memory.read(Place("output", index, 0, y.type)) is y
    written = dict(graph.updates)
    for x in graph.inputs:
        assert memory.read(plan.places[x]) is written.get(x, x)
    for place in arena_places(plan):
        assert place.offset % ALIGNMENT == 0 and extent(place)[1] <= plan.arena_bytes


def _check_writes(group: Group, plan: MemoryPlan, base: dict[Node, Node], may_overwrite: MayOverwrite) -> None:
    """Results are apart, and over an operand only where the group may: not where a view shows it as well."""
    if group.runs_nothing:
        return
    for y in group.outputs:
        place = plan.places[y]
        assert not any(other is not y and overlap(place, plan.places[other])
                       and base.get(y, y) is not base.get(other, other) for other in group.outputs)
        under = [x for x in group.inputs if overlap(place, plan.places[base.get(x, x)])]
        for x in under:
            assert x not in base, "an operand that is read through a view is written over"
            assert plan.places[x].offset == place.offset and may_overwrite(group, y, x)


def arena_places(plan: MemoryPlan) -> list[Place]:
    """Every place in the arena."""
    staged = [source for source, _ in plan.after if source.where == "arena"]
    return staged + [place for place in plan.places.values() if place.where == "arena"]


def most_live_bytes(schedule: Schedule, plan: MemoryPlan) -> int:
    """The most arena bytes that are needed at one group, by trying each: what the plan reports as max_live_bytes."""
    graph, base = schedule.graph, {}
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for at, group in enumerate(schedule.groups):
        for y in group.outputs:
            if group.kind == "view":
                base[y] = base.get(group.inputs[0], group.inputs[0])
            else:
                first[y] = last[y] = at
        for x in group.inputs:
            last[base.get(x, x)] = at
    late = {source for source, _ in plan.after}
    staged = late - {plan.places[y] for y in first}
    for y in first:
        if plan.places[y] in late and y in {value for _, value in graph.updates}:
            last[y] = len(schedule.groups)
    most = 0
    for at in range(len(schedule.groups) + 1):
        live = {plan.places[y].offset: _padded(y.type.nbytes) for y in first
                if plan.places[y].where == "arena" and first[y] <= at <= last[y]}
        most = max(most, sum(live.values()) + sum(_padded(place.type.nbytes) for place in staged))
    return most


def _padded(nbytes: int) -> int:
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
