"""GPUs that stream products: a sum of products of matrices is one product that has several pairs of operands.

A value that several layers read (queries, keys and values; a gate and what it opens) has a gradient for each of them.
Each would be stored, and read again by the kernel that adds them up; and a product over few terms, as a low-rank layer
beside a large one has, takes the time of writing its result. A streamed product's loop over the inner dimension goes on
with the next pair's blocks instead, and the sum is rounded once.

    before: %4: bf16[8192,2048] = matmul(%0, %1)         after: %4: bf16[8192,2048] = matmul_sum(%0, %1, %2, %3)
            %5: bf16[8192,2048] = matmul(%2, %3)
            %6: bf16[8192,2048] = add(%4, %5)
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import Final

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located
from genesis.ir.ops.contraction import matmul, matmul_sum
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.pointwise import add
from genesis.ir.types import bfloat16, float16
from genesis.passes.gpu import Gpu
from genesis.passes.graph.memory_order import strides_of
from genesis.passes.graph.thin_products import product_of, terms_of
from genesis.passes.product_times import in_vectors

MOST_PAIRS: Final = 4
"""Most pairs of one product: each has two maps among the kernel's parameters, and a branch in its loads."""


def sum_products(graph: Graph, gpu: Gpu) -> Graph:
    """The graph with such sums as one product; the graph itself if there are none."""
    users = Counter(x for node in graph.nodes for x in node.inputs)
    users.update(graph.roots)
    inside = {x for node in graph.nodes if node.op is add for x in node.inputs
              if x.op is add and users[x] == 1 and x.type == node.type}
    sums: dict[Node, tuple[list[Node], list[Node]]] = {}
    for node in graph.nodes:
        if node.op is add and node not in inside and node.type.dtype in (float16, bfloat16):
            terms = terms_of(node, inside)
            alike: dict[tuple[bool, bool], list[Node]] = {}
            for term in terms:
                turned = _turned(term, node, users, gpu)
                if turned is not None:
                    alike.setdefault(turned, []).append(term)
            joined = max(alike.values(), key=len, default=[])[:MOST_PAIRS]
            if len(joined) > 1:
                sums[node] = [x for x in terms if x not in joined], joined
    if not sums:
        return graph
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        with located(node.source):
            if node in sums:
                others, joined = sums[node]
                product = matmul_sum(*(replaced[x] for term in joined for x in product_of(term).inputs))
                replaced[node] = reduce(add, [*(replaced[x] for x in others), reshape(product, shape=node.type.shape)])
            else:
                replaced[node] = with_inputs(node, tuple([replaced[x] for x in node.inputs]))
    return substitute(graph, replaced)


def _turned(term: Node, whole: Node, users: Counter[Node], gpu: Gpu) -> tuple[bool, bool] | None:
    """Which operands' columns, not rows, lie side by side, as all pairs of a product must alike; None for a term that
    is no streamed product that nothing else reads."""
    product = product_of(term)
    if product.op is not matmul or product.type.ndim != 2 or term.type != whole.type or not (
            users[term] == users[product] == 1 and gpu.stores_beside_sums(product)
            and all(map(in_vectors, product.inputs))):
        return None
    strides = [strides_of(x) for x in product.inputs]
    turned = [None if found is None or 1 not in found else found[-1] != 1 for found in strides]
    return None if turned[0] is None or turned[1] is None else (turned[0], turned[1])
