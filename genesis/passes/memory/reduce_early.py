"""Reductions over ranks in the schedule as soon as what they reduce can be made.

A graph's order follows its results: the updates of parameters need the last bucket of gradients, that one the whole
backward of the layers' inputs, and the bucket before it only through the order of collectives. So weights' gradients
would come after all of backward, layer by layer from the first, and all reductions when nothing is left that could
hide them. Here what a collective moves is made before what only later ones need.

What a collective finds in memory, or what is made of that by casts alone, as gathers of parameters do, says nothing of
when: these run where what needs them does, and `overlap_collectives.py` places them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from genesis.ir.flops import is_product
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory.schedule import Lives


def reduce_early(schedule: Schedule) -> Schedule:
    """The schedule with all that a collective needs, and itself, before what it does not need.

    before: matmul x1, matmul x0, matmul w0, matmul w1, all_reduce w1, all_reduce w0
    after:  matmul x1, matmul w1, all_reduce w1, matmul x0, matmul w0, all_reduce w0
    """
    groups = schedule.groups
    if not any(_is_collective(group) for group in groups):
        return schedule
    before = Lives(schedule).before
    order = dict.fromkeys(_in_turn(groups, before))
    return replace(schedule, groups=tuple([groups[at] for at in order]))


def _in_turn(groups: tuple[Group, ...], before: list[set[int]]) -> Iterator[int]:
    """The groups in the order of the collectives that need them, otherwise as they are; some come several times."""
    computed: set[int] = set()  # groups that need a product
    for at, group in enumerate(groups):
        if any(map(is_product, group.nodes)) or not before[at].isdisjoint(computed):
            computed.add(at)
    done: set[int] = set()
    for at, group in enumerate(groups):
        if _is_collective(group) and at in computed:
            found = _needed(at, before, done)
            done |= found
            yield from sorted(found)
    yield from range(len(groups))


def _needed(last: int, before: list[set[int]], done: set[int]) -> set[int]:
    """The group and all that it needs, without what is done."""
    found, stack = {last}, [last]
    while stack:
        for other in before[stack.pop()] - found - done:
            found.add(other)
            stack.append(other)
    return found


def _is_collective(group: Group) -> bool:
    return any(node.op.kind == "collective" for node in group.nodes)
