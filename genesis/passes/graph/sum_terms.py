"""Sums of sums as one list of terms each, for passes that make several of a sum's terms one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.pointwise import add


@dataclass(frozen=True)
class Joined:
    """Some terms of a sum as one.

    Attributes:
        others: the terms that stay as they are.
        made: the sum of all others, of nodes of the new graph by those of the old one; of any shape.
    """

    others: list[Node]
    made: Callable[[Mapping[Node, Node]], Node]


def readers(graph: Graph) -> Counter[Node]:
    """How often a node is read, by other nodes and as a result."""
    found = Counter(x for node in graph.nodes for x in node.inputs)
    found.update(graph.roots)
    return found


def sums_of(graph: Graph, users: Counter[Node]) -> dict[Node, list[Node]]:
    """What the sums of a graph add up, from left to right; one that only another one reads is part of that."""
    inside = {x for node in graph.nodes if node.op is add for x in node.inputs
              if x.op is add and users[x] == 1 and x.type == node.type}
    return {node: _terms(node, inside) for node in graph.nodes if node.op is add and node not in inside}


def _terms(node: Node, inside: set[Node]) -> list[Node]:
    found, stack = [], [node]
    while stack:
        x = stack.pop()
        if x is node or x in inside:
            stack.extend(reversed(x.inputs))
        else:
            found.append(x)
    return found


def with_joined(graph: Graph, sums: Mapping[Node, Joined]) -> Graph:
    """The graph with these sums made anew; the graph itself if there are none."""
    if not sums:
        return graph
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        with located(node.source):
            if node in sums:
                joined = sums[node]
                terms = [*(replaced[x] for x in joined.others), reshape(joined.made(replaced), shape=node.type.shape)]
                replaced[node] = reduce(add, terms)
            else:
                replaced[node] = with_inputs(node, tuple([replaced[x] for x in node.inputs]))
    return substitute(graph, replaced)
