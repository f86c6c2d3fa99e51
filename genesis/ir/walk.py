"""The nodes that a value needs: a walk over recorded nodes that stops at those in memory."""

from __future__ import annotations

from collections.abc import Container, Iterable
from operator import attrgetter
from typing import Final

from genesis.ir.node import Node

_number: Final = attrgetter("number")


def computed(node: Node) -> bool:
    """True if the node's value is in memory."""
    cell = node.buffer
    return cell is not None and cell.memory is not None


def walk(roots: Iterable[Node], through: Container[Node] | None = None,
         order: dict[Node, None] | None = None) -> dict[Node, None]:
    """The nodes that the roots need, operands before users, stopping at computed ones.

    Computed nodes in `through` are not stopped at. With `order`, an earlier walk goes on.
    """
    order = {} if order is None else order
    for root in roots:
        if root in order:
            continue
        operands = root.inputs
        if len(operands) == 1 and operands[0] in order:  # a step writes hundreds of results of one op
            order[root] = None
            continue
        stack: list[Node | None] = [root]
        while stack:
            node = stack.pop()
            if node is None:  # what the node below it needs is there
                order[stack.pop()] = None  # type: ignore[index]
                continue
            if node in order:
                continue
            inputs = node.inputs
            if inputs:
                cell = node.buffer
                if cell is None or cell.memory is None or (through is not None and node in through):
                    if len(inputs) == 1:  # most have one, and need no list
                        if inputs[0] not in order:
                            stack += (node, None, inputs[0])
                            continue
                    else:
                        waiting = [x for x in inputs if x not in order]
                        if waiting:
                            stack += (node, None)
                            waiting.reverse()
                            stack += waiting
                            continue
            order[node] = None
    return order


def needed(roots: Iterable[Node]) -> set[Node]:
    """The nodes of `walk`, in no order, in a third of the time."""
    found: set[Node] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            if node.inputs and ((cell := node.buffer) is None or cell.memory is None):
                waiting += node.inputs
    return found


def walk_since(roots: Iterable[Node], number: int, through: bool = False, most: int = 0) -> list[Node]:
    """The nodes that the roots need, operands before users, but for those older than the node with this number.

    Args:
        through: go on behind nodes that are in memory, where `walk` stops.
        most: stop when there are more, without all of them.
    """
    found: set[Node] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node.number >= number and node not in found:
            found.add(node)
            if through or not computed(node):
                waiting += node.inputs
            if 0 < most < len(found):
                break
    return sorted(found, key=_number)
