"""Buckets of gradients: each is reduced over all processes as soon as its last gradient is there.

Which gradients make a bucket follows from their order and sizes alone. These are the same on all ranks, whose programs
may differ otherwise (one reads its loss before backward), and so are the buckets. How large a bucket is the user says
(`bucket_cap_mb`), or what it costs: each reduction takes multiprocessors from products while it waits for its turn on
all GPUs, so few are good; and the last one has nothing of backward beside it, so it is to be small.
"""

from __future__ import annotations

from math import isqrt
from typing import Final

from genesis.ir.graph import Graph, rewrite_nodes, substitute
from genesis.ir.node import Node
from genesis.ir.ops import collectives, control
from genesis.ir.sym_int import hint

ONE_MORE: Final = 24 << 20
"""Bytes that are reduced in the time that one more reduction beside backward costs, about 0.1 ms (four H200s)."""



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


def cap_for(total: int) -> int:
    """Bytes of a bucket where nobody has said how many: n buckets of so many bytes together cost n times what one more
    reduction does, and the n-th part of the whole, which is reduced last. That is least where both are equal.

    >>> [cap_for(mebibytes << 20) >> 20 for mebibytes in (1, 24, 100, 500, 28000)]
    [4, 24, 48, 109, 819]
    """
    return isqrt(total * ONE_MORE)


def _reduced(node: Node) -> list[Node]:
    *gradients, order = node.inputs
    found: list[Node] = []
    sizes = [hint(g.type.nbytes) for g in gradients]
    cap = node["cap"] or cap_for(sum(sizes))
    for bucket in collectives.bucketed(sizes, node["first"] or cap, cap) if gradients else []:
        call = collectives.all_reduce(*(gradients[at] for at in bucket), order, communicator=node["communicator"],
                                      reduce="avg")
        found += [control.item(call, index=at) for at in range(len(bucket))]
        order = control.item(call, index=len(bucket))
    return [*found, order]
