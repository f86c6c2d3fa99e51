"""What a step takes, in bytes: moved, and those that could be moved in the time that it takes."""

from __future__ import annotations

from typing import Final

from genesis.ir.flops import flops_of_nodes, is_product
from genesis.ir.sym_int import hint
from genesis.passes.gpu import Gpu
from genesis.passes.groups import Group, Schedule

LAUNCH_BYTES: Final = 8 << 20
"""Bytes that could be moved in the time of one more small kernel's launch and end."""


def moved_bytes(schedule: Schedule) -> int:
    """Bytes that the groups read and write, each value once a group."""
    return sum(map(bytes_of, schedule.groups))


def bytes_of(group: Group) -> int:
    """Bytes that a group reads and writes."""
    return 0 if group.runs_nothing else sum(hint(x.type.nbytes) for x in (*group.inputs, *group.outputs))


def step_bytes(schedule: Schedule, gpu: Gpu) -> int:
    """Bytes that the GPU could move in the time that the step takes, as it is reckoned: each kernel moves its bytes, or
    multiplies, whichever takes longer, and is launched and ends."""
    worth = gpu.copy_rate / gpu.product_rate  # bytes that could be moved in the time of an operation
    total = 0.0
    for group in schedule.groups:
        if not group.runs_nothing:
            total += LAUNCH_BYTES + max(bytes_of(group), flops_of_nodes(filter(is_product, group.nodes)) * worth)
    return round(total)
