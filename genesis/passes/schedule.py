"""The order in which groups run."""

from __future__ import annotations

import heapq

from genesis.passes.groups import Group


def order_groups(groups: list[Group]) -> tuple[Group, ...]:
    """Groups in dependency order, otherwise as early as the program recorded them.

    A group's turn is when all that it reads is written; among those whose turn it is, the one given
    first goes first, so the order follows the program and lifetimes stay short.
    """
    writer = {node: number for number, group in enumerate(groups) for node in group.outputs}
    waiting: list[set[int]] = []
    followers: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        needed = {writer[node] for node in group.inputs if node in writer} - {number}
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

