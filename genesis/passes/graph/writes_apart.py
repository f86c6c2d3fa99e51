"""A small write to memory whose new content is read: the readers get a copy with the write, the memory the write alone.

What overwrites memory runs last on the CPU (`memory/writes_last.py`), and an attention that reads a cache with a new
row cannot run after that. So the new content is made elsewhere; copied back as a whole, it would take as long again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from genesis.ir.graph import Graph
from genesis.ir.node import Node, make
from genesis.ir.ops import indexing, movement
from genesis.passes.graph.snapshots import copied
from genesis.passes.groups import Group, Late

WRITES: Final = {indexing.index_copy: 2, indexing.index_add: 2, indexing.scatter: 2, indexing.scatter_add: 2,
                 movement.assign: 1}
"""Op → which operand it writes into its first."""

SMALL: Final = 4
"""Minimum ratio of the memory's size to that of what is written."""


def writes_apart(graph: Graph, late_of: Callable[[Group], Late]) -> Graph:
    """Updates by small writes whose value something reads that cannot run at the end.

    before: %3 = index_copy(%0, %i, %x), %4 = sdpa(%q, %3)   after: %3 = cast(%0), %4 = index_copy(%3, %i, %x)
            update %0 = %3                                            %5 = sdpa(%q, %4), %6 = index_copy(%0, %i, %x)
                                                                      update %0 = %6
    """
    written = {value: target for target, value in graph.updates if _is_small(value, target)}
    readers: dict[Node, list[Node]] = {}
    for node in graph.nodes if written else ():
        for x in node.inputs:
            if x in written:
                readers.setdefault(x, []).append(node)
    apart = {value for value, found in readers.items() if value not in graph.outputs and any(
        late_of(Group("call", (node,), (), (), "")) is Late.NEVER for node in found)}
    if not apart:
        return graph
    made: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple([made.get(x, x) for x in node.inputs])
        if node in apart:
            made[node] = make(node.op, (copied(written[node]), *inputs[1:]), node.attrs, node.source)
        elif any(x is not y for x, y in zip(inputs, node.inputs, strict=True)):
            made[node] = make(node.op, inputs, node.attrs, node.source)
    alone = {value: make(value.op, (target, *[made.get(x, x) for x in value.inputs[1:]]), value.attrs, value.source)
             for value, target in written.items() if value in apart}
    return Graph(graph.inputs, tuple([made.get(x, x) for x in graph.outputs]),
                 tuple([(target, alone.get(x) or made.get(x, x)) for target, x in graph.updates]), graph.numbers)


def _is_small(value: Node, target: Node) -> bool:
    place = WRITES.get(value.op)
    return (place is not None and value.inputs[0] is target
            and value.inputs[place].type.numel * SMALL <= value.type.numel)
