"""The CPU's grouping: one op or composite a group, so that the memory plan sees every value."""

from __future__ import annotations

from collections.abc import Callable

from genesis.ir.graph import Graph
from genesis.ir.node import Node, make
from genesis.ir.ops import control, leaves
from genesis.ir.ops.recompute import inputs_read
from genesis.passes.groups import Group, Schedule

IsView = Callable[[Node], bool]


def group_per_op(graph: Graph, is_view: IsView, place: str = "the CPU") -> Schedule:
    """A group for every node that is computed, in the graph's order.

    Numbers (weakly typed values) are operands of groups, not values in memory, so they make none.
    """
    groups, reason = [], f"on {place} every op is a call of its own"
    for node in graph.nodes:
        if node.op is leaves.input or node.op is control.item or _is_number(node):
            continue
        inputs = tuple(dict.fromkeys([x for x in inputs_read(node) if type(x.type) is tuple or not x.type.weak]))
        nodes = outputs = (node,)
        if type(node.type) is tuple:
            outputs = tuple([make(control.item, (node,), (i,), node.source) for i in range(len(node.types))])
            nodes = (node, *outputs)
        view = node.op.kind == "movement" and is_view(node)
        groups.append(Group("view" if view else "call", nodes, inputs, outputs, reason))
    return Schedule(graph, tuple(groups))


def _is_number(node: Node) -> bool:
    return type(node.type) is not tuple and node.type.weak
