"""What overwrites the program's memory runs last.

An exception between any two lines of Python must find memory that is all old, or all new. So an executor computes
first what it likes, and overwrites at the end, in one loop that no line of Python interrupts. For that the groups that
overwrite, and those that read what they wrote, have to stand at the end; and what runs them has to be ready to be
called from such a loop (`Late`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from genesis.ir.node import Node
from genesis.passes.groups import Group, Late, Schedule

LateOf = Callable[[Group], Late]


def writes_last(schedule: Schedule, late_of: LateOf) -> Schedule:
    """The schedule with the groups that overwrite memory, and what depends on them, at the end.

    before: %1 = add(%0, 1), %2 = matmul(%a, %b)  update %0 = %1
    after:  %2 = matmul(%a, %b), %1 = add(%0, 1)  update %0 = %1

    What has to be followed by something that cannot be called late stays where it is: it is made elsewhere and copied.
    """
    groups = schedule.groups
    maker = {node: at for at, group in enumerate(groups) for node in group.outputs}
    writers = {maker[value] for _, value in schedule.graph.updates if value in maker}
    if not writers:
        return schedule
    reads = [{maker[x] for x in (*group.inputs, *group.after) if x in maker} - {at} for at, group in enumerate(groups)]
    late = [late_of(group) for group in groups]
    while True:
        last = with_followers(writers, reads)
        wrong = {at for at in last if late[at] is Late.NEVER or (
            late[at] is Late.OF_EARLIER_VALUES and not reads[at].isdisjoint(last))}
        if not wrong:
            break
        writers -= _with_leaders(wrong, reads)
    if not last:
        return schedule
    order = [at for at in range(len(groups)) if at not in last] + sorted(last)
    return replace(schedule, groups=tuple([groups[at] for at in order]))


def first_late(groups: Iterable[Group], made: dict[Node, int], late_of: LateOf) -> int:
    """The number of the group from which on all can be called late."""
    groups = tuple(groups)
    first, least = len(groups), 0
    for at in reversed(range(len(groups))):
        kind = late_of(groups[at])
        if at < least or kind is Late.NEVER:
            break
        if kind is Late.OF_EARLIER_VALUES:
            least = max([least, *(made[x] + 1 for x in groups[at].inputs if x in made)])
        first = at
    return first


def with_followers(starts: set[int], reads: list[set[int]]) -> set[int]:
    """These groups and all that read, directly or not, what they make."""
    found = set(starts)
    for at, read in enumerate(reads):
        if not read.isdisjoint(found):
            found.add(at)
    return found


def _with_leaders(ends: set[int], reads: list[set[int]]) -> set[int]:
    """These groups and all that make, directly or not, what they read."""
    found, stack = set(ends), list(ends)
    while stack:
        for at in reads[stack.pop()] - found:
            found.add(at)
            stack.append(at)
    return found
