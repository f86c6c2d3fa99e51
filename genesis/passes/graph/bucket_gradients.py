"""Buckets of gradients: each is reduced over all processes as soon as its last gradient is there.

Which gradients make a bucket follows from their order and sizes, and from how large a bucket may be, alone. These are
the same on all ranks, whose programs may differ otherwise (one reads its loss before backward), and so are the buckets.
"""

from __future__ import annotations

from genesis.ir.graph import Graph, rewrite_nodes, substitute
from genesis.ir.node import Node
from genesis.ir.ops import collectives, control
from genesis.ir.sym_int import hint


def bucket_gradients(graph: Graph) -> Graph:
    """An all_reduce of each bucket, one after another, for a reduction of all gradients.

        before: %5 = reduce_gradients(%a, %b, %c, %order)     after: %5 = all_reduce(%a, %order)
                                                                     %6 = all_reduce(%b, %c, item(%5, 1))
    """
    if not any(node.op is collectives.reduce_gradients for node in graph.nodes):
        return graph
    results: dict[Node, list[Node]] = {}

    def rule(node: Node) -> Node | None:
        if node.op is collectives.reduce_gradients:
            results[node] = _reduced(node)
        elif node.op is control.item and node.inputs[0] in results:
            return results[node.inputs[0]][node["index"]]
        return None

    return substitute(graph, rewrite_nodes(graph.nodes, rule))


def _reduced(node: Node) -> list[Node]:
    *gradients, order = node.inputs
    found: list[Node] = []
    sizes = [hint(g.type.nbytes) for g in gradients]
    for bucket in collectives.bucketed(sizes, node["first"], node["cap"]) if gradients else []:
        call = collectives.all_reduce(*(gradients[at] for at in bucket), order, communicator=node["communicator"],
                                      reduce="avg")
        found += [control.item(call, index=at) for at in range(len(bucket))]
        order = control.item(call, index=len(bucket))
    return [*found, order]
