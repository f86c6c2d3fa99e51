"""GPUs: a product of which only the transpose is handed out is computed transposed.

The gradient of a matrix that lies transposed in memory is one: torch lays it out like the matrix. A product reads
operands that lie either way, so that the kernel that copies the result is saved.

    before: %2 = matmul(%0, %1)                  after: %2 = permute(%1, axes=(1,0))
            %3 = permute(%2, axes=(1,0))                %3 = permute(%0, axes=(1,0))
                                                        %4 = matmul(%2, %3)
"""

from __future__ import annotations

from collections import Counter

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.movement import permute


def turn_products(graph: Graph) -> Graph:
    """The graph with products in the order of the results that they are."""
    while True:
        readers = Counter(x for node in graph.nodes for x in node.inputs)
        readers.update(graph.roots)
        turned = {node.inputs[0]: node for node in graph.roots if _turns(node) and readers[node.inputs[0]] == 1}
        if not turned:
            return graph
        graph = rewrite(graph, lambda node: _product(node) if turned.get(  # noqa: B023  # called in this round alone
            node.inputs[0] if node.inputs else node) is node else None)


def _turns(node: Node) -> bool:
    """Is it a product whose rows lie side by side?"""
    return node.op is permute and node.inputs[0].op is matmul and node["axes"][-1] == len(node["axes"]) - 2


def _product(node: Node) -> Node:
    """The same elements as a product whose columns lie side by side."""
    product, rank = node.inputs[0], len(node["axes"])
    a, b = product.inputs
    found = matmul(swap_last(b), swap_last(a))
    swapped = {rank - 2: rank - 1, rank - 1: rank - 2}
    axes = tuple([swapped.get(axis, axis) for axis in node["axes"]])
    return found if axes == tuple(range(rank)) else permute(found, axes=axes)
