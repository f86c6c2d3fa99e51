"""What a step takes, in bytes: moved, and those that could be moved in the time that it takes."""

from __future__ import annotations

from typing import Final

from genesis.passes.gpu import Gpu
from genesis.passes.groups import Schedule
from genesis.passes.kernel_time import bytes_of, group_microseconds

LAUNCH_BYTES: Final = 8 << 20
"""Bytes that an H200 moves in the time of one more small kernel (`kernel_time.LAUNCH`)."""


def moved_bytes(schedule: Schedule) -> int:
    """Bytes that the groups read and write, each value once a group."""
    return sum(map(bytes_of, schedule.groups))


def step_bytes(schedule: Schedule, gpu: Gpu) -> int:
    """Bytes that the GPU could move in the time that the step takes."""
    return round(sum(group_microseconds(group, gpu) for group in schedule.groups) * gpu.copy_rate / 1e6)
