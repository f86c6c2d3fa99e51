"""Only ops that the backend has a lowering for: the others are decomposed, again and again."""

from __future__ import annotations

from collections.abc import Callable

from genesis.ir.errors import Overwritten
from genesis.ir.graph import Graph, rewrite_nodes, substitute
from genesis.ir.node import Node
from genesis.ir.ops import control

Supports = Callable[[Node], bool]


def legalize(graph: Graph, supports: Supports) -> Graph:
    """Decompose every node that the backend does not support.

        before: %1: f32[4] = silu(%0)      after: %1: f32[4] = sigmoid(%0)
                                                  %2: f32[4] = mul(%0, %1)

    Raises RuntimeError for an op that has neither a lowering nor a decomposition, and for a lost value.
    """
    while any(_is_decomposed(node, supports) for node in graph.nodes):
        graph = _decompose_once(graph, supports)
    return graph


def _is_decomposed(node: Node, supports: Supports) -> bool:
    return node.op is not control.item and node.op.kind != "leaf" and not supports(node)


def _decompose_once(graph: Graph, supports: Supports) -> Graph:
    results: dict[Node, tuple[Node, ...]] = {}

    def rule(node: Node) -> Node | None:
        if node.op is control.item:
            several = results.get(node.inputs[0])
            return None if several is None else several[node["index"]]
        if not _is_decomposed(node, supports):
            return None
        if node.op is control.lost:
            raise Overwritten("one of the variables needed for gradient computation has been modified by an inplace "
                              "operation: a value that backward needs was overwritten before backward ran")
        if node.op.decompose is None:
            raise RuntimeError(f"the backend has no lowering for {node.op.name} of "
                               f"{', '.join(str(x.type) for x in node.inputs)}, and it has no decomposition")
        found = node.op.decompose(*node.inputs, **node.attributes)
        if isinstance(found, tuple):
            results[node] = found
            return None
        return found

    return substitute(graph, rewrite_nodes(graph.nodes, rule))
