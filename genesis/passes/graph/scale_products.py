"""GPUs: a factor of all of a matrix is a factor of what products make of it, where that is smaller.

The gradient of `y + (x @ a @ b) * 2` multiplies all of y's gradient by 2, and stores it a second time, for two products
of few columns that read it. A product's kernel multiplies what it stores at no cost.

    before: %2: bf16[4096,14336] = mul(%0, %s)           after: %3: bf16[4096,16] = matmul(%0, %1)
            %3: bf16[4096,16] = matmul(%2, %1)                  %4: bf16[4096,16] = mul(%3, %s)

Sums of bfloat16 products are float32, which has no other range: what is summed up without the factor overflows where
float32 would. float16 is left, as factors there are what keeps sums in range.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.movement import permute, reshape
from genesis.ir.ops.pointwise import mul
from genesis.ir.sym_int import hint
from genesis.ir.types import bfloat16

SMALLER: Final = 4
"""How many times smaller than the matrix a product is whose result is multiplied instead."""

FEWEST_ELEMENTS: Final = 1 << 20
"""Fewest elements of such a matrix: to write it takes a microsecond and more."""

VIEWS: Final = (permute, reshape)
"""What may be between a matrix and a product that reads it."""


def scale_products(graph: Graph) -> Graph:
    """The graph with numbers that multiply matrices behind the products that read these; the graph itself if there are
    none."""
    found = {node: factor for node in graph.nodes if (factor := _factor_of(node)) is not None}
    if not found:
        return graph
    users: dict[Node, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for x in dict.fromkeys(node.inputs):
            users[x].append(node)
    kept = set(graph.roots)
    factors = {node: factor for node, factor in found.items()
               if _feeds_small_products(node, hint(node.type.numel), users, kept)}
    if not factors:
        return graph
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        with located(node.source):
            if node in factors:
                matrix, = (x for x in node.inputs if x is not factors[node])
                new = replaced[matrix]
            else:
                new = with_inputs(node, tuple([replaced[x] for x in node.inputs]))
                if node.op is matmul:
                    for factor in [factors[x] for x in map(_behind_views, node.inputs) if x in factors]:
                        new = mul(new, replaced[factor])
        replaced[node] = new
    return substitute(graph, replaced)


def _factor_of(node: Node) -> Node | None:
    """The number that a large matrix is multiplied by."""
    if node.op is not mul or node.type.dtype is not bfloat16 or hint(node.type.numel) < FEWEST_ELEMENTS:
        return None
    numbers = [x for x in node.inputs if x.type.weak and x.type.ndim == 0]
    return numbers[0] if len(numbers) == 1 else None


def _feeds_small_products(node: Node, elements: int, users: dict[Node, list[Node]], kept: set[Node]) -> bool:
    """Do products alone read it, through views, all of which are small?"""
    if node in kept:
        return False
    for user in users[node]:
        if user.op is matmul:
            if SMALLER * hint(user.type.numel) > elements:
                return False
        elif user.op not in VIEWS or not _feeds_small_products(user, elements, users, kept):
            return False
    return True


def _behind_views(x: Node) -> Node:
    while x.op in VIEWS:
        x = x.inputs[0]
    return x
