"""GPUs: products of one large matrix by several thin ones are one product, and so are sums of products of thin ones.

Low-rank layers beside those that share an input (queries, keys and values; a gate and what it opens) have such: each
reads all of the input for sixteen columns, and in the backward each writes a whole gradient, which are then summed.

    before: %3: bf16[4096,16] = matmul(%0, %1)           after: %3: bf16[4096,32] = concat(%1, %2, axis=1)
            %4: bf16[4096,16] = matmul(%0, %2)                  %4: bf16[4096,32] = matmul(%0, %3)
                                                                %5: bf16[4096,16] = slice(%4, …)
                                                                %6: bf16[4096,16] = slice(%4, …)

    before: %4: bf16[4096,4096] = matmul(%0, %1)         after: %4: bf16[4096,32] = concat(%0, %2, axis=1)
            %5: bf16[4096,4096] = matmul(%2, %3)                %5: bf16[32,4096] = concat(%1, %3, axis=0)
            %6: bf16[4096,4096] = add(%4, %5)                   %6: bf16[4096,4096] = matmul(%4, %5)

Products that need each other's results are not joined: those that are have equally many such products before them, so
that nothing can wait for itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.movement import concat, permute, reshape, slice
from genesis.ir.sym_int import Size, hint
from genesis.ir.types import bfloat16, float16
from genesis.passes.graph.sum_terms import Joined, readers, sums_of, with_joined

THIN: Final = 32
"""Most columns (rows, terms of a sum) of a thin matrix: by so few a product takes the time of reading or writing the
large one."""

MOST: Final = 128
"""Most of what thin matrices have together: a product by so many takes no longer yet."""

FEWEST_ELEMENTS: Final = 1 << 20
"""Fewest elements of the large matrix: another kernel takes as long as reading them."""


def thin_products(graph: Graph) -> Graph:
    """The graph with such products joined; the graph itself if there are none."""
    return _sums_joined(_side_by_side(graph))


def _is_product(node: Node) -> bool:
    """A product of two matrices of 16 bits."""
    return node.op is matmul and node.type.ndim == 2 and node.type.dtype in (float16, bfloat16)


def _is_thin(size: Size) -> bool:
    """Is it a fixed size, and small?"""
    return type(size) is int and 0 < size <= THIN


# By one matrix

def _side_by_side(graph: Graph) -> Graph:
    groups = _groups(graph)
    if not groups:
        return graph
    members = {node: group for group in groups for node in group}
    at = {node: position for position, node in enumerate(graph.nodes)}
    replaced: dict[Node, Node] = {}
    for root in graph.roots:
        stack = [root]
        while stack:
            node = stack[-1]
            group = members.get(node, (node,))
            waiting = [x for other in group for x in other.inputs if x not in replaced]
            if node in replaced or not waiting:
                stack.pop()
            if node in replaced:
                continue
            if waiting:
                stack.extend(sorted(waiting, key=at.__getitem__, reverse=True))
            elif len(group) == 1:
                replaced[node] = with_inputs(node, tuple([replaced[x] for x in node.inputs]))
            else:
                replaced.update(zip(group, _joined(group, replaced), strict=True))
    replaced.update((x, x) for x in graph.inputs if x not in replaced)
    return substitute(graph, replaced)


def _groups(graph: Graph) -> list[tuple[Node, ...]]:
    """The products that are joined, in the graph's order."""
    by_matrix: dict[tuple[Node, bool], list[Node]] = defaultdict(list)
    for node in filter(_is_product, graph.nodes):
        (rows, depth), columns = node.inputs[0].type.shape, node.type.shape[1]
        if _is_thin(columns) and not _is_thin(rows) and hint(rows * depth) >= FEWEST_ELEMENTS:
            by_matrix[node.inputs[0], True].append(node)
        elif _is_thin(rows) and not _is_thin(columns) and hint(depth * columns) >= FEWEST_ELEMENTS:
            by_matrix[node.inputs[1], False].append(node)
    shared = {key: nodes for key, nodes in by_matrix.items() if len(nodes) > 1}
    if not shared:
        return []
    before = _how_many_before(graph, {node for nodes in shared.values() for node in nodes})
    found: list[tuple[Node, ...]] = []
    for (_, on_the_right), nodes in shared.items():
        by_count: dict[int, list[Node]] = defaultdict(list)
        for node in nodes:
            by_count[before[node]].append(node)
        for equal in by_count.values():
            found += _of_at_most([(node, node.type.shape[int(on_the_right)]) for node in equal])
    return found


def _how_many_before(graph: Graph, products: set[Node]) -> dict[Node, int]:
    """Count for each node how many of these products need each other, one after the other, up to it."""
    found: dict[Node, int] = {}
    for node in graph.nodes:
        found[node] = max((found[x] for x in node.inputs), default=0) + (node in products)
    return found


def _of_at_most(sizes: Iterable[tuple[Node, int]]) -> list[tuple[Node, ...]]:
    """The nodes in groups of two or more, none of a larger size in all than `MOST`."""
    groups: list[list[Node]] = [[]]
    filled = 0
    for node, size in sizes:
        if filled + size > MOST:
            groups.append([])
            filled = 0
        groups[-1].append(node)
        filled += size
    return [tuple(group) for group in groups if len(group) > 1]


def _joined(group: Sequence[Node], replaced: dict[Node, Node]) -> list[Node]:
    """The products, each as a part of one."""
    on_the_right = group[0].inputs[0] is group[1].inputs[0]
    axis = int(on_the_right)
    thin = [replaced[node.inputs[axis]] for node in group]
    with located(group[0].source):
        beside = _beside(thin, axis)
        large = replaced[group[0].inputs[1 - axis]]
        product = matmul(large, beside) if on_the_right else matmul(beside, large)
    found, first = [], 0
    for node in group:
        last = first + node.type.shape[axis]
        starts, stops = [0, 0], list(product.type.shape)
        starts[axis], stops[axis] = first, last
        with located(node.source):
            found.append(slice(product, starts=tuple(starts), stops=tuple(stops), steps=(1, 1)))
        first = last
    return found


def _beside(matrices: Sequence[Node], axis: int) -> Node:
    """Matrices beside each other; transposes as the transpose of what lies so in memory."""
    if all(x.op is permute for x in matrices):
        return swap_last(concat(*[x.inputs[0] for x in matrices], axis=1 - axis))
    return concat(*matrices, axis=axis)


# Sums

def _sums_joined(graph: Graph) -> Graph:
    if not any(_is_product(node) and _is_thin(node.inputs[0].type.shape[1]) for node in graph.nodes):
        return graph
    users = readers(graph)
    at = {node: position for position, node in enumerate(graph.nodes)}
    beside = {frozenset(node.inputs): node.inputs for node in graph.nodes if node.op is concat and node["axis"] == 1}
    sums: dict[Node, Joined] = {}
    for node, terms in sums_of(graph, users).items():
        if node.type.dtype not in (float16, bfloat16):
            continue
        thin = [(x, _product_of(x).inputs[0].type.shape[1]) for x in terms if _is_thin_term(x, node, users)]
        for group in _of_at_most(thin)[:1]:
            products = sorted(map(_product_of, group), key=lambda x: at[x.inputs[0]])
            lying = beside.get(frozenset(x.inputs[0] for x in products), ())  # as another product reads them together
            if len(lying) == len(products):
                products.sort(key=lambda x: lying.index(x.inputs[0]))
            sums[node] = Joined([x for x in terms if x not in group], partial(_one_product, products))
    return with_joined(graph, sums)


def _one_product(products: Sequence[Node], replaced: Mapping[Node, Node]) -> Node:
    left, right = ([replaced[x.inputs[side]] for x in products] for side in (0, 1))
    return matmul(_beside(left, 1), _beside(right, 0))


def _product_of(term: Node) -> Node:
    return term.inputs[0] if term.op is reshape else term


def _is_thin_term(term: Node, whole: Node, users: Counter[Node]) -> bool:
    """Is it a product over few terms that nothing else reads, of the sum's size?"""
    product = _product_of(term)
    return (_is_product(product) and users[term] == users[product] == 1 and term.type == whole.type
            and _is_thin(product.inputs[0].type.shape[1]) and hint(product.type.numel) >= FEWEST_ELEMENTS)
