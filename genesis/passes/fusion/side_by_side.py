"""Kernels that leave the GPU half empty run side by side in one launch, where a program has many of the kind.

A model that writes one token multiplies one vector by the matrices of queries, keys and values: products of unequal
sizes, which are no kernel of one loop. As branches of a CUDA graph each would have its own start, and what follows
waits for all of them. Side by side, one launch has the programs of the first, then those of the second.

before: group q: %3 = sum(%1 · %2)     after: group side_by_side: %3, %5, reads %1, %2, %4
        group k: %5 = sum(%1 · %4)

Where an index is sorted, or sums are made at places that are data, a program of a few kernels has each of them once,
and launches take most of its time: 1 to 2 µs each of the 10 that an embedding and its gradient take. There the loops
that need as many others are one launch, and with them the blocks of an index that are sorted, 9 programs beside the
look-up at that index, or an exact sum: the gradient of a gather beside the gather.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from genesis.ir.node import Node
from genesis.ir.ops.block_rows import words_by_block
from genesis.ir.ops.exact_sums import exact_sums
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.sym_int import hint
from genesis.passes.fusion.foreach import heights
from genesis.passes.fusion.views import stored_as
from genesis.passes.gpu import Gpu
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory.schedule import LOOP_BYTES, independent, order_groups
from genesis.passes.structural_memo import group_structure

FEWEST: Final = 8
"""Times that a program has to have the same kernels at one height: each pair is compiled for itself, and saves a few
microseconds at each place. Layers of a model are as many."""

MOST_ELEMENTS: Final = 1 << 17
"""Points of a kernel's loop for each multiprocessor: with more, it fills the GPU for longer than a start takes."""

MOST_GROUPS: Final = 8
"""Kernels of a program up to which those around a sort or sums at places are put together though each comes once."""

SMALL_BYTES: Final = 16 << 20
"""Bytes that a loop writes below which it is put beside others around a sort: 5 µs and more of an H200's, of which a
launch takes 1.5. Beside an index's sorts it is `LOOP_BYTES`: a longer one runs beside them as it is."""

AROUND: Final = frozenset({"scatter", "segment", "sort", "long_sort"})
"""Kinds of kernels around which they are."""


def side_by_side(schedule: Schedule, gpu: Gpu) -> Schedule:
    """The schedule with independent small loops as one group, where the same ones come together many times, or where
    few kernels sort or add at places that are data."""
    groups = schedule.groups
    if len(groups) <= MOST_GROUPS:
        return _around_sorts(schedule)
    most = MOST_ELEMENTS * gpu.multiprocessors
    kinds = {number: kind for number, group in enumerate(groups) if (kind := _kind(group, most)) is not None}
    sets = _alike(kinds, heights(groups))
    if not sets:
        return schedule
    joined: dict[int, Group] = {}
    dropped: set[int] = set()
    for numbers in sets:
        members = [groups[number] for number in numbers]
        if _apart(members):
            joined[numbers[-1]] = _joined(members)
            dropped.update(numbers[:-1])
    found = [joined.get(number, group) for number, group in enumerate(groups) if number not in dropped]
    return replace(schedule, groups=order_groups(found))


def _around_sorts(schedule: Schedule) -> Schedule:
    """The short schedule with its small loops of one depth as one group each, if it sorts or adds at places.

    before: %1 = take(%0, %i), %2 = words_by_block(%i), …    after: %2, %1 = words_by_block(%i), take(%0, %i), …
    """
    groups = schedule.groups
    if AROUND.isdisjoint(group.kind for group in groups):
        return schedule
    at: dict[int, list[Group]] = {}
    for depth, group in zip(_depths(groups), groups, strict=True):
        if _small(group):
            at.setdefault(depth, []).append(group)
    sets = [[group for group in members if _of_template(group) or _written(group) < LOOP_BYTES]
            if any(map(_of_template, members)) else members for members in at.values()]
    sets = [sorted(members, key=_place) for members in sets]
    written = {value for _, value in schedule.graph.updates}
    sets = [members for members in sets if len(members) > 1 and sum(map(_of_template, members)) <= 1
            and _apart(members) and written.isdisjoint(x for member in members for x in member.outputs)
            and all(independent(one, other) for one in members for other in members if one is not other)]
    if not sets:
        return schedule
    dropped = {id(group) for members in sets for group in members}
    found = [group for group in groups if id(group) not in dropped]
    return replace(schedule, groups=order_groups([*found, *map(_joined, sets)]))


def _depths(groups: Sequence[Group]) -> list[int]:
    """The longest chain of groups that each group needs. Groups come in dependency order."""
    depth: dict[Node, int] = {}
    found = []
    for group in groups:
        needed = map(stored_as, (*group.inputs, *group.after))
        found.append(max((depth[x] + 1 for x in needed if x in depth), default=0))
        depth |= {stored_as(x): found[-1] for x in group.outputs}
    return found


def _sorts(group: Group) -> bool:
    """Does it sort the blocks of an index?"""
    return any(node.op is words_by_block for node in group.nodes)


def _sums(group: Group) -> bool:
    """Does it make sums exactly, in one launch?"""
    return any(node.op is exact_sums for node in group.nodes)


def _of_template(group: Group) -> bool:
    """Is it a kernel that loops may be beside, of which a launch has one?"""
    return _sorts(group) or _sums(group)


def _place(group: Group) -> int:
    """Which programs begin first: sorts, which take longest; then loops; then sums, whose last programs wait for their
    first ones."""
    return 0 if _sorts(group) else 2 if _sums(group) else 1


def _small(group: Group) -> bool:
    """Does a launch of its own take a good part of this kernel's time, and may it be one of several in one?"""
    if group.after or group.slices or group.keeps or group.starts_from or not all(x.type.numel for x in group.outputs):
        return False
    loop = group.kind == "loop" and not any(node.op is reduce_splits for node in group.nodes)
    return _of_template(group) or (loop and _written(group) < SMALL_BYTES)


def _written(group: Group) -> int:
    """The bytes that it writes, about."""
    return sum(hint(x.type.nbytes) for x in group.outputs)


def _kind(group: Group, most: int) -> Hashable | None:
    """What groups of one kernel have in common; None for a group that is not put beside others."""
    if group.kind != "loop" or group.after or group.slices or any(node.op is reduce_splits for node in group.nodes):
        return None
    if prod(hint(size) for size, _ in group.space) > most or not all(x.type.numel for x in group.outputs):
        return None
    shown = {x: i for i, x in enumerate(group.inputs)} | {stored_as(x): i for i, x in enumerate(group.inputs)}
    found = group_structure(group.nodes, shown)
    return None if found is None else (group.space, found[0])


def _alike(kinds: dict[int, Hashable], height: Sequence[int]) -> list[list[int]]:
    """The sets of groups of equal height that are of the same kinds as often as it takes, each in order."""
    often = Counter(kind for _, kind in {(height[number], kind) for number, kind in kinds.items()})
    at: dict[int, list[int]] = {}
    for number, kind in kinds.items():
        if often[kind] >= FEWEST:
            at.setdefault(height[number], []).append(number)
    sets = [numbers for numbers in at.values() if len(numbers) > 1]
    names = [tuple(sorted([hash(kinds[number]) for number in numbers])) for numbers in sets]
    count = Counter(names)
    return [numbers for numbers, name in zip(sets, names, strict=True) if count[name] >= FEWEST]


def _apart(members: Sequence[Group]) -> bool:
    """Does none write into memory that another one reads?"""
    return not any(stored_as(written) is stored_as(x) for one in members for _, written in one.starts_from
                   for other in members if other is not one for x in other.inputs)


def _joined(members: Sequence[Group]) -> Group:
    readers = Counter(x for member in members for x in member.inputs)
    return Group(
        "side_by_side", tuple(dict.fromkeys(node for member in members for node in member.nodes)),
        tuple(dict.fromkeys(x for member in members for x in member.inputs)),
        tuple(x for member in members for x in member.outputs),
        f"{len(members)} small kernels that do not wait for each other", members=tuple(members),
        in_place=tuple(pair for member in members for pair in member.in_place if readers[pair[1]] == 1),
        starts_from=tuple(pair for member in members for pair in member.starts_from))
