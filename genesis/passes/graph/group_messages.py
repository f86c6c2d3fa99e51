"""Neighbouring messages as one: a process that receives before it sends waits for nobody who does the same.

On a GPU messages have a place in the order of their group's collectives, and one waits for the one before. In a ring of
which every process first receives, none would ever send. So messages that follow each other in that order, and of which
none is made of what another one brings, begin at once (NCCL's group). Which of them one process groups need not be what
another one does: between two processes messages in one direction keep their order.

A message joins those before it only if its operands need no collective that these do not need: what comes by another
one may wait for a process that waits for the first message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located
from genesis.ir.ops import collectives, control


def group_messages(graph: Graph) -> Graph:
    """One op for messages that need not wait for each other.

    before: %3 = messages(%order, sources=(1,))              after: %4 = messages(%x, %order, to=(2,), sources=(1,))
            %4 = messages(%x, item(%3, 1), to=(2,))
    """
    together = _together(graph.nodes)
    if not together:
        return graph
    number = {node: i for i, found in enumerate(together) for node in found}
    made: dict[int, list[Node]] = {}
    replaced: dict[Node, Node] = {}
    for node in _in_order(graph, together, number):
        at = number.get(node)
        if at is not None:
            if at not in made:
                made[at] = _one(together[at], replaced)
            replaced[node] = made[at][-1]  # only its items are read
            continue
        of = number.get(node.inputs[0]) if node.op is control.item else None
        with located(node.source):
            replaced[node] = (with_inputs(node, tuple([replaced[x] for x in node.inputs])) if of is None
                              else _item(together[of], node, made[of]))
    return substitute(graph, replaced)


def _together(nodes: Sequence[Node]) -> list[list[Node]]:
    """Lists of messages that become one, each in the order of its group."""
    if sum(node.op is collectives.messages for node in nodes) < 2:
        return []
    needs: dict[Node, int] = {}  # the collectives that a node needs, itself included, as bits
    bit = 1
    found: list[list[Node]] = []
    of: dict[Node, list[Node]] = {}
    for node in nodes:
        needed = 0
        for x in node.inputs:
            needed |= needs[x]
        if node.op.kind == "collective":
            needs[node] = needed | bit
            bit <<= 1
        else:
            needs[node] = needed
        if node.op is collectives.messages:
            before = _maker(node.inputs[-1])
            own = 0
            for x in node.inputs[:-1]:
                own |= needs[x]
            group = of.get(before) if before is not None else None
            if group is not None and before is group[-1] and not own & ~_needed_before(group[0], needs):
                group.append(node)
            else:
                group = [node]
                found.append(group)
            of[node] = group
    return [group for group in found if len(group) > 1]


def _maker(order: Node) -> Node | None:
    return order.inputs[0] if order.op is control.item else None


def _needed_before(node: Node, needs: dict[Node, int]) -> int:
    found = 0
    for x in node.inputs:
        found |= needs[x]
    return found


def _in_order(graph: Graph, together: list[list[Node]], number: dict[Node, int]) -> Iterator[Node]:
    """The nodes, operands first, where a message also needs the operands of those that it becomes one with."""
    def operands(node: Node) -> tuple[Node, ...]:
        if node not in number:
            return node.inputs
        first, *others = together[number[node]]
        return (*first.inputs, *(x for other in others for x in other.inputs[:-1]))

    done: set[Node] = set()
    for root in graph.nodes:
        stack = [root]
        while stack:
            node = stack[-1]
            waiting = [] if node in done else [x for x in operands(node) if x not in done]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            if node not in done:
                done.add(node)
                yield node


def _one(found: list[Node], replaced: dict[Node, Node]) -> list[Node]:
    """The items of one op for several: what each brings, then the communicator's next order."""
    first = found[0]
    operands = [replaced[x] for node in found for x in node.inputs[:-1]]
    several = {name: tuple([x for node in found for x in node[name]]) for name in ("to", "sources", "shapes", "dtypes")}
    with located(first.source):
        call = collectives.messages(*operands, replaced[first.inputs[-1]], communicator=first["communicator"],
                                    device=first["device"], **several)
        return [control.item(call, index=at) for at in range(len(call.types))]


def _item(found: list[Node], item: Node, made: list[Node]) -> Node:
    """What an item of one of several is of the one op."""
    node, at = item.inputs[0], item["index"]
    if at == len(node.types) - 1:
        return made[-1]
    return made[sum(len(other["sources"]) for other in found[:found.index(node)]) + at]
