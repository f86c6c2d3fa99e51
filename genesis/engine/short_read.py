"""The usual read: one value of a few ops, over memories that stay as they are, that no gradient flows through.

Capturing a program for the engine asks what else depends on it: other live tensors, pending writes, a backward. A read
without any of that is written down in one walk, and its key finds the plan that the engine made for an equal one.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from genesis.engine.capture import NUMBERED
from genesis.frontend.storage import Storage
from genesis.ir.node import Node
from genesis.ir.ops import control, leaves
from genesis.ir.types import cpu

DEEPEST: Final = 12
"""Ops in a row: a longer chain takes longer to compute than to capture."""

_HISTORY: Final = frozenset({*NUMBERED, control.grad, control.known, control.lost, control.overwritten, leaves.data})
"""Ops that say how a value came to be, or whose memory is gone: the engine looks further."""


class Reading(NamedTuple):
    """What computes a value.

    Attributes:
        key: its structure, equal for equal programs: ops, attributes, types and positions.
        memories: those that it reads, in the order of `capture`.
        numbers: values of the user's numbers, one for each use, in that order.
    """

    key: tuple[Any, ...]
    memories: list[Any]
    numbers: list[bool | int | float]


def reading_of(storage: Storage) -> Reading | None:
    """What computes the content of a storage; None if that takes the engine.

    >>> import genesis
    >>> x = genesis.zeros(2)
    >>> genesis.eval(x)
    >>> reading_of((x + 1.5).storage).numbers
    [1.5]
    """
    node = storage._node
    if (node is None or node.needs_grad or node.buffer is not None or storage.cell is not None
            or storage.error is not None or storage.type.device is not cpu):
        return None
    key: list[Any] = []
    memories: list[Any] = []
    numbers: list[bool | int | float] = []
    return Reading(tuple(key), memories, numbers) if _describe(node, key, {}, memories, numbers, 0) else None


def _describe(node: Node, key: list[Any], places: dict[Node, int], memories: list[Any], numbers: list[Any],
              depth: int) -> bool:
    """Append a node that is to be computed to the key, behind its operands. False if the engine has to look further."""
    if depth == DEEPEST or node.op in _HISTORY:
        return False
    number, inputs = leaves.number, node.inputs
    for x in inputs:
        if x.op is number or x in places:
            continue
        cell = x.buffer
        if cell is None or cell.memory is None:
            if not _describe(x, key, places, memories, numbers, depth + 1):
                return False
            continue
        places[x] = len(places)
        memory = cell.memory
        if memory not in memories:
            memories.append(memory)
        key.append(x.type)
        key.append(memories.index(memory))
    key.append(node.op)
    key.append(node.attrs)
    for x in inputs:
        if x.op is number:  # no position: whether two numbers are equal, and so one node, is not structure
            key.append(x.type)
            numbers.append(x.attrs[0])
        else:
            key.append(places[x])
    if not inputs:
        key.append(node.type)
    places[node] = len(places)
    return True
