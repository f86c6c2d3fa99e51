"""Small sums of columns that many layers have run in one launch.

A layer's norms and biases have gradients that are sums over rows. Their kernels leave one row of parts for each split,
and another kernel adds these up: 1 to 3 µs for a launch of a dozen programs, six times a layer. Only the norm of all
gradients and the optimizer read the results, so that one launch at the end has time enough.

before: %3 = sum(%1), …, %9 = sum(%7), …      after: group sums_of_columns: %3, %9, …, reads %1, %7, …
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final

from genesis.ir.node import Node
from genesis.ir.ops import pointwise, reduction
from genesis.ir.sym_int import hint
from genesis.ir.types import DType, float32
from genesis.passes.fusion.awaited import awaited
from genesis.passes.fusion.foreach import heights
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory.schedule import order_groups

FEWEST: Final = 8
"""Fewest kernels that are put together: with fewer there is little to gain."""

MOST_ELEMENTS: Final = 1 << 21
"""Most elements that a sum may read: 8 MB, 2 µs of an H200's memory. What takes longer than its launch stays where it
is, and so do its operands' bytes."""

FEWEST_ROWS: Final = 32
"""Fewest rows: a program has blocks of many (`codegen/cuda/many_tensors.py`)."""


@dataclass(frozen=True)
class ColumnSums:
    """The sums of a matrix' columns.

    Attributes:
        parts: the matrix, float32, in memory.
        result: the float32 vector that is stored.
        dtypes: what the sums are rounded to, one after the other.
    """

    parts: Node
    result: Node
    dtypes: tuple[DType, ...]


def sums_together(schedule: Schedule) -> Schedule:
    """The schedule with small sums of columns as one group, where many stand equally far from the program's end.

    Groups of one height do not need each other (`foreach.join_equal_groups`).
    """
    groups = schedule.groups
    alike: dict[tuple[int, int | None], list[int]] = defaultdict(list)
    found = [number for number, group in enumerate(groups) if _is_small(group) and column_sums(group)]
    if len(found) < FEWEST:
        return schedule
    height, waits = heights(groups), awaited(groups)
    updated = {value for _, value in schedule.graph.updates}
    for number in found:
        if updated.isdisjoint(groups[number].outputs):
            alike[height[number], waits[number].last].append(number)
    joined: dict[int, Group] = {}
    dropped: set[int] = set()
    for numbers in alike.values():
        if len(numbers) >= FEWEST:
            joined[numbers[-1]] = _joined([groups[number] for number in numbers])
            dropped.update(numbers[:-1])
    if not joined:
        return schedule
    return replace(schedule, groups=order_groups(
        [joined.get(number, group) for number, group in enumerate(groups) if number not in dropped]))


def column_sums(group: Group) -> list[ColumnSums] | None:
    """The sums that a loop consists of; None if it is anything else."""
    if group.kind != "loop" or [kind for _, kind in group.space] != ["r", "x"] or not group.outputs or (
            group.after or group.slices or group.keeps or group.starts_from):
        return None
    found, known = [], set(group.inputs)
    for result in group.outputs:
        node, dtypes = result, list[DType]()
        while node.op is pointwise.cast:
            dtypes.append(node.dtype)
            known.add(node)
            node = node.inputs[0]
        parts = node.inputs[0] if node.op is reduction.sum else None
        if parts is None or parts not in group.inputs or parts.type.ndim != 2 or node.type.ndim != 1 or not (
                node["axes"] == (0,) and parts.dtype is node.dtype is result.dtype is float32):
            return None
        known.add(node)
        found.append(ColumnSums(parts, result, tuple(reversed(dtypes))))
    return found if known.issuperset(group.nodes) else None


def _is_small(group: Group) -> bool:
    return all(hint(x.type.numel) <= MOST_ELEMENTS and x.type.ndim == 2 and hint(x.shape[0]) >= FEWEST_ROWS
               for x in group.inputs)


def _joined(members: list[Group]) -> Group:
    return Group(
        "sums_of_columns", tuple(dict.fromkeys(node for member in members for node in member.nodes)),
        tuple(dict.fromkeys(x for member in members for x in member.inputs)),
        tuple(x for member in members for x in member.outputs),
        f"the sums of {len(members)} small kernels' columns, which nothing needs before all are there",
        members=tuple(members))
