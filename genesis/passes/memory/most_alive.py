"""What is alive where a plan takes the most memory: to see what a lower peak would have to do without."""

from __future__ import annotations

from dataclasses import dataclass

from genesis.ir.node import Node
from genesis.ir.place import Place
from genesis.ir.sym_int import hint
from genesis.passes.groups import Schedule
from genesis.passes.memory.arena import aligned
from genesis.passes.memory.plan_memory import MemoryPlan


@dataclass(frozen=True)
class Alive:
    """A value of the plan's own.

    Attributes:
        value, place: what it is, and where.
        nbytes: what it takes.
        made, last: the first group that writes there, and the last that needs it.
    """

    value: Node
    place: Place
    nbytes: int
    made: int
    last: int


def most_alive(schedule: Schedule, memory: MemoryPlan) -> tuple[int, list[Alive]]:
    """(the first group at which the most bytes of the arena are alive, what is alive there): largest values first,
    those in lent memory among them. Of values that are made in place, one over the other, the one that is there."""
    count = len(schedule.groups)
    spans = _spans(schedule, memory)
    grows = [0] * (count + 1)
    for parts in spans.values():
        if parts[0].place.where == "arena":
            grows[parts[0].made] += parts[0].nbytes
            grows[max(part.last for part in parts) + 1] -= parts[0].nbytes
    alive, most, at = 0, -1, 0
    for group, more in enumerate(grows[:count]):
        alive += more
        if alive > most:
            most, at = alive, group
    found = [[part for part in parts if part.made <= at] for parts in spans.values()
             if parts[0].made <= at <= max(part.last for part in parts)]
    return at, sorted((parts[-1] for parts in found), key=lambda x: -x.nbytes)


def _spans(schedule: Schedule, memory: MemoryPlan) -> dict[int, list[Alive]]:
    """Each value of the arena → the nodes that these groups make in its place, in order."""
    base: dict[Node, Node] = {}
    made: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for at, group in enumerate(schedule.groups):
        for x in group.inputs:
            last[base.get(x, x)] = at
        base.update((x.part, x.whole) for x in group.slices)
        for y in group.outputs:
            if group.kind == "view":
                base[y] = base.get(group.inputs[0], group.inputs[0])
            else:  # the memory of a whole is there from its first part on
                made.setdefault(base.get(y, y), at)
                last.setdefault(base.get(y, y), at)
    end = len(schedule.groups) - 1
    kept = {id(source) for source, _ in memory.after}  # until the end, when they are copied
    found: dict[int, list[Alive]] = {}
    for node, place in memory.places.items():
        value = memory.value_at.get(id(place))
        if value is not None and node in made:
            found.setdefault(value, []).append(Alive(
                node, place, aligned(hint(node.type.nbytes)), made[node], end if id(place) in kept else last[node]))
    for parts in found.values():
        parts.sort(key=lambda part: part.made)
    return found
