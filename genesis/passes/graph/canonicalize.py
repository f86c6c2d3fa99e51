"""One form for programs that mean the same: control markers gone, constants folded, views merged.

Rules are rows of a table, by op. Each must keep the value bit for bit, so what holds only for real
numbers has no row: x · 0 is NaN for NaN and -0.0 for negative x, x + 0.0 turns -0.0 into 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

from genesis.ir.graph import Graph, substitute
from genesis.ir.node import Node, Op, located, make
from genesis.ir.ops import control, leaves, recompute
from genesis.passes.graph import simplify_arithmetic as arithmetic
from genesis.passes.graph import simplify_movement as movement

Rule = Callable[[Node], "Node | None"]


def canonicalize(graph: Graph, simple: set[Node] | None = None) -> Graph:
    """Apply the rules to every node, operands first, until nothing changes.

        before: %1: f32[2,3] = reshape(%0, shape=(2,3))    after: %1: f32[6] = reshape(%0, shape=(6,))
                %2: f32[6] = reshape(%1, shape=(6,))              (or %0 itself, if it has that shape)

    Args:
        simple: nodes that no rule changes, which are not asked again; it gets all of the graph's. What a rule says of a
            node follows from the node, which never changes.
    """
    simple = set() if simple is None else simple
    while not simple.issuperset(graph.nodes):
        graph = substitute(graph, _simplified(graph.nodes, simple))
    return graph


def _simplified(nodes: Iterable[Node], simple: set[Node]) -> dict[Node, Node]:
    """old → new for nodes in topological order; what became of them is `simple`, but for operands that rules made."""
    replaced: dict[Node, Node] = {}
    add = simple.add
    with located(None) as here:
        for node in nodes:
            inputs, new = node.inputs, node
            here.move(node.source)
            if inputs and (others := tuple([replaced[x] for x in inputs])) != inputs:
                new = make(node.op, others, node.attrs, node.source)
            while new not in simple:
                found = _applied(new)
                if found is None:
                    add(new)
                else:
                    new = found
            replaced[node] = new
    return replaced


def _applied(node: Node) -> Node | None:
    """What the first rule that changes the node makes of it; None if none does."""
    for rule in _rules_of(node.op):
        found = rule(node)
        if found is not None and found is not node:  # -0.0 is written as neg(0.0), and folded into that
            return found
    return None


@cache
def _rules_of(op: Op) -> tuple[Rule, ...]:
    rules = RULES.get(op, ())
    return (*rules, arithmetic.fold) if op.kind == "pointwise" else rules


def _first(node: Node) -> Node:
    """The value itself: the op only marks it."""
    return node.inputs[0]


def _second(node: Node) -> Node:
    """The value in memory: the first operand only says how it came to be."""
    return node.inputs[1]


def _result(node: Node) -> Node | None:
    """A result of a region is what the region was given to return."""
    region = node.inputs[0]
    return region.inputs[node["index"]] if region.op is recompute.leave else None


def _leaf(node: Node) -> Node | None:
    """A constant is made wherever it is read."""
    x = node.inputs[0]
    return x if x.op.kind == "leaf" and x.op is not leaves.input else None


RULES: Final[dict[Op, tuple[Rule, ...]]] = {
    control.watch: (_first,),
    control.stop_gradient: (_first,),
    control.alias: (_first,),
    control.known: (_second,),
    control.overwritten: (_second,),
    control.released: (_first,),
    recompute.enter: (_first,),
    control.item: (_result,),
    recompute.recompute: (_leaf,),
    **arithmetic.RULES,
    **movement.RULES,
}
