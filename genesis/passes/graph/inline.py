"""Calls of compiled functions become their graphs, so that everything around sees through them."""

from __future__ import annotations

from genesis.ir.graph import Graph, apply, rewrite, rewrite_nodes, substitute
from genesis.ir.node import Node, make
from genesis.ir.ops import control, recompute

_NUMBERED = frozenset({control.watch, control.alias, recompute.enter, recompute.leave})
"""Ops whose first attribute tells nodes of one program apart."""


def inline(graph: Graph) -> Graph:
    """Replace `call` nodes by the nodes of their graphs.

        before: %1: (f32[4],) = call(%0, graph={ %0 → mul(%0, %0) })    after: %2: f32[4] = mul(%0, %0)
                %2: f32[4] = item(%1, index=0)
    """
    if not any(node.op is control.call for node in graph.nodes):
        return graph
    results: dict[Node, tuple[Node, ...]] = {}

    def rule(node: Node) -> Node | None:
        if node.op is control.call:
            results[node] = apply(_renumbered(node["graph"], len(results)), node.inputs)
        elif node.op is control.item and node.inputs[0] in results:
            return results[node.inputs[0]][node["index"]]
        return None

    return inline(substitute(graph, rewrite_nodes(graph.nodes, rule)))


def _renumbered(graph: Graph, call: int) -> Graph:
    """The graph with leaves, aliases and regions that no other call of it, and nothing around it, has."""
    if not any(node.op in _NUMBERED for node in graph.nodes):
        return graph
    return rewrite(graph, lambda node: make(node.op, node.inputs, ((call, node.attrs[0]),), node.source)
                   if node.op in _NUMBERED else None)
