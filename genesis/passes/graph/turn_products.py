"""GPUs: a product of which only the transpose is handed out is computed transposed.

The gradient of a matrix that lies transposed in memory is one: torch lays it out like the matrix. A product reads
operands that lie either way, so that the kernel that copies the result is saved.

    before: %2 = matmul(%0, %1)                  after: %2 = permute(%1, axes=(1,0))
            %3 = permute(%2, axes=(1,0))                %3 = permute(%0, axes=(1,0))
                                                        %4 = matmul(%2, %3)
"""

from __future__ import annotations

from collections import Counter

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.movement import permute


def turn_products(graph: Graph) -> Graph:
    """The graph with products in the order of the results that they are."""
    transposes = {node.inputs[0]: node for node in graph.roots if _is_transpose(node)}
    turned = _turned(graph, transposes) if transposes else set()
    if not turned:
        return graph
    replaced: dict[Node, Node] = {}
    across: dict[Node, Node] = {}  # product → the product that is its transpose
    for node in graph.nodes:
        if node in turned:
            with located(transposes[node].source):
                a, b = (across.get(x) or swap_last(replaced[x]) for x in node.inputs)
                across[node] = matmul(b, a)
        source = node.inputs[0] if node.inputs else node
        if source in turned and transposes[source] is node:
            with located(node.source):
                replaced[node] = _permuted(across[source], node["axes"])
        else:
            replaced[node] = with_inputs(node, tuple([replaced[x] for x in node.inputs]))
    return substitute(graph, replaced)


def _turned(graph: Graph, transposes: dict[Node, Node]) -> set[Node]:
    """The products to turn: those that nothing but their transpose reads, once the products behind them are turned."""
    readers = Counter((*graph.roots, *(x for node in graph.nodes for x in node.inputs)))
    found: set[Node] = set()
    for product in reversed(graph.nodes):
        if product in transposes and readers[product] == 1:
            found.add(product)
            # It will read the transposes of its operands, where they are there, and not the operands.
            readers.subtract([x for x in product.inputs if x in transposes and transposes[x] is swap_last(x)])
    return found


def _is_transpose(node: Node) -> bool:
    """Is it a product whose rows lie side by side?"""
    return node.op is permute and node.inputs[0].op is matmul and node["axes"][-1] == len(node["axes"]) - 2


def _permuted(transposed: Node, axes: tuple[int, ...]) -> Node:
    """A permutation of a product, made of the product's transpose."""
    rank = len(axes)
    swapped = {rank - 2: rank - 1, rank - 1: rank - 2}
    axes = tuple([swapped.get(axis, axis) for axis in axes])
    return transposed if axes == tuple(range(rank)) else permute(transposed, axes=axes)
