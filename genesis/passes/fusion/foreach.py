"""Pointwise groups of equal structure become one launch over many tensors.

before: adamw of parameter 1, adamw of parameter 2, …      after: foreach adamw ×148

An optimizer's update is the same program for each parameter. Its groups differ in the number of
elements and in the tensors they touch, so one kernel runs them all from a table of addresses. Where ranks reduce
gradients bucket by bucket there is one for each bucket, which runs when that bucket has arrived.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from genesis.ir.node import Node
from genesis.ir.ops import leaves, movement, recompute
from genesis.ir.ops.recompute import inputs_read
from genesis.ir.ops.row_number import in_range
from genesis.passes.fusion.awaited import awaited
from genesis.passes.groups import Group

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

FEWEST = 2
"""Minimum groups that are joined."""

SHOWN = (movement.expand, movement.reshape, recompute.recompute)
"""Ops that show their operand element by element, or repeat a constant or a number in memory."""


def join_equal_groups(groups: list[Group]) -> list[Group]:
    """Join pointwise groups of one structure that stand equally far from the end of the program.

    Groups of one height cannot depend on each other, and joining them makes no cycle: every
    dependency goes from a greater height to a smaller one.
    """
    height, waits = heights(groups), awaited(groups)
    alike: dict[tuple, dict[tuple[int, ...] | None, list[int]]] = {}
    for number, group in enumerate(groups):
        structure = pointwise_structure(group)
        if structure is not None:
            program, shared = structure
            place = height[number], waits[number].together
            alike.setdefault((*place, program), {}).setdefault(shared, []).append(number)
    joined: dict[int, Group] = {}
    dropped: set[int] = set()
    for numbers in chain.from_iterable(map(_with_single_elements, alike.values())):
        if len(numbers) >= FEWEST and any(groups[n].space[0][0] > 1 for n in numbers):
            joined[numbers[-1]] = _foreach([groups[n] for n in numbers])
            dropped.update(numbers[:-1])
    return [joined.get(number, group) for number, group in enumerate(groups) if number not in dropped]


def _with_single_elements(found: dict[tuple[int, ...] | None, list[int]]) -> list[list[int]]:
    """Groups of one program by which inputs are numbers; those of a single element fit any."""
    single = found.pop(None, [])
    lists = list(found.values()) or [[]]
    lists[0] = sorted([*lists[0], *single])
    return lists


def heights(groups: Sequence[Group]) -> list[int]:
    """The longest chain of groups that need each group. Groups come in dependency order."""
    writer = {node: number for number, group in enumerate(groups) for node in group.outputs}
    height = [0] * len(groups)
    for number in reversed(range(len(groups))):
        for node in (*groups[number].inputs, *groups[number].after):
            if node in writer:
                height[writer[node]] = max(height[writer[node]], height[number] + 1)
    return height


def pointwise_structure(group: Group) -> tuple[tuple, tuple[int, ...] | None] | None:
    """What two groups have in common when one kernel can run both, None when it is more than pointwise ops.

    Tensors are numbered in the order they are met; numbers of the plan and constants stand for themselves.

    Returns:
        The program, and the positions of the inputs that are one number in memory, which all elements read; None for
        these in a group of a single element, where every input is.
    """
    if group.kind != "loop" or group.slices or len(group.space) != 1 or group.space[0][1] != "x":
        return None
    size = group.space[0][0]
    if any(node.type.numel != size and node.type.numel != 1 for node in group.inputs) or any(
            node.type.numel != size for node in group.outputs):
        return None
    known: dict[Node, Hashable] = {node: ("input", position, node.dtype) for position, node in enumerate(group.inputs)}
    rows: list[Hashable] = []
    for node in _in_order_of_use(group):
        if node.op.kind == "pointwise":
            if node.op is in_range or any(x not in known for x in node.inputs):  # each tells of its own line
                return None
            known[node] = len(rows)
            rows.append((node.op, node.attrs, node.dtype, tuple(known[x] for x in node.inputs)))
        elif node.op is leaves.scalar:
            known[node] = len(rows)
            rows.append(("scalar", node))
        elif node.op is leaves.const:
            known[node] = ("const", node["value"], type(node["value"]), node.dtype, node.type.weak)
            rows.append(known[node])
        elif node.op in SHOWN and node.inputs[0] in known and (
                node.inputs[0].op is leaves.const or node.inputs[0].type.numel == 1 or node.op is not movement.expand):
            known[node] = known[node.inputs[0]]
        else:
            return None
    numbers = None if size == 1 else tuple(i for i, node in enumerate(group.inputs) if node.type.numel == 1)
    return (tuple(rows), tuple(known[node] for node in group.outputs if node in known)), numbers


def _in_order_of_use(group: Group) -> tuple[Node, ...]:
    """The group's nodes as they are met from its outputs: equal programs give equal orders."""
    inside = set(group.nodes)
    order: dict[Node, None] = {}
    stack = [(node, False) for node in reversed(group.outputs)]
    while stack:
        node, ready = stack.pop()
        if node in order or node not in inside:
            continue
        if ready:
            order[node] = None
        else:
            stack.append((node, True))
            stack += [(x, False) for x in reversed(inputs_read(node))]
    return tuple(order)


def _foreach(members: list[Group]) -> Group:
    readers = Counter(x for member in members for x in member.inputs)
    nodes = tuple(dict.fromkeys(node for member in members for node in member.nodes))
    return Group("foreach", nodes, tuple(dict.fromkeys(x for member in members for x in member.inputs)),
                 tuple(dict.fromkeys(x for member in members for x in member.outputs)),
                 f"{len(members)} groups of equal structure: {members[0].reason}", members=tuple(members),
                 in_place=tuple(pair for member in members for pair in member.in_place if readers[pair[1]] == 1),
                 after=tuple(dict.fromkeys(x for member in members for x in member.after)))
