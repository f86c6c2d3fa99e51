"""Updates of buckets stand at the end of the schedule, though they may run when their bucket has arrived.

On a GPU a plan is a graph: what runs when follows from what each step reads and writes, not from the order in which
they stand. That order decides which values are alive together, and so which share memory. If a bucket's update stood in
the middle of backward, the memory of its gradients would go to later values of backward, which would then have to wait
for the update, and with it for the bucket. So gradients that ranks reduce are alive to the end.

Updates stand in the order in which their buckets arrive: where a GPU puts branches of a graph one behind another, in
the order of their nodes, none is behind one that waits longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from genesis.passes.fusion.awaited import Awaited, awaited
from genesis.passes.groups import Schedule
from genesis.passes.memory.writes_last import with_followers


def hold_updates(schedule: Schedule) -> Schedule:
    """The schedule with groups that write to memory what a collective brought, and what reads that, at the end.

    before: all_reduce 1, matmul, all_reduce 2, adamw 2, adamw 1
    after:  all_reduce 1, matmul, all_reduce 2, adamw 1, adamw 2
    """
    groups = schedule.groups
    maker = {node: at for at, group in enumerate(groups) for node in group.outputs}
    waits = awaited(groups)
    updates = {maker[value] for _, value in schedule.graph.updates if value in maker}
    held = {at for at in updates if waits[at].own is not None}
    if not held:
        return schedule
    reads = [{maker[x] for x in (*group.inputs, *group.after) if x in maker} - {at} for at, group in enumerate(groups)]
    last = with_followers(held, reads)
    order = [at for at in range(len(groups)) if at not in last] + _by_arrival(last, waits)
    return replace(schedule, groups=tuple([groups[at] for at in order]))


def _by_arrival(held: set[int], waits: Sequence[Awaited]) -> list[int]:
    """These groups by the last collective that each needs, which is none before that of what it reads."""
    last = {at: -1 if (found := waits[at].last) is None else found for at in held}
    return sorted(held, key=lambda at: (last[at], at))
