"""GPUs: what a product reads token by token is laid out so, where it was made head by head.

Between attention and a linear layer, (batch, heads, length, size) is read as (batch, length, heads · size). A kernel
whose operands the copy engine moves takes matrices that have one distance between rows, and that memory has two:
without this pass a product by it, and both its gradients, go the slower way.

    before: %2, %3 = flash_attention(…)                 after: %2, %3 = flash_attention(…, beside=True)
            %4: [8,1024,12,64] = permute(%2, (0,2,1,3))        %4: [8192,768] = reshape(%2)
            %5: [8192,768] = reshape(%4)                       %5 = matmul(%4, …)
            %6 = matmul(%5, …)

Pointwise ops and concatenations (a rotation's gradient, that of what was split into queries, keys and values) are
computed in the other order from the start; whoever reads them by heads does so through a view, which costs nothing. A
value that leaves the program, or that products read in two orders, stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located, make
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.control import item
from genesis.ir.ops.flash_attention import (
    beside_each_other,
    flash_attention,
    flash_attention_dkv,
    flash_attention_dq,
)
from genesis.ir.ops.movement import concat, pad, permute, reshape, slice

Axes = tuple[int, ...]

ATTENTION: Final = (flash_attention, flash_attention_dq, flash_attention_dkv)
ALONG: Final = (concat, pad, slice)
"""Movement ops that keep the order of dimensions: what is computed from attention's results through them and pointwise
ops alone is read as they lie."""


def heads_beside(graph: Graph) -> Graph:
    """The graph with such values in the order of the products that read them; the graph itself if there are none."""
    users: dict[Node, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for x in dict.fromkeys(node.inputs):
            users[x].append(node)
    kept = {*graph.outputs, *(node for _, node in graph.updates)}
    orders = {node: axes for node in graph.nodes if node not in kept and _may_turn(node)
              and (axes := _order_of_products(node, users)) is not None}
    if not orders:
        return graph
    attention = _attention_behind(graph, orders, kept)
    return substitute(graph, _turned(graph, {x: a for x, a in orders.items() if not _is_attention(x)}, attention))


def _may_turn(node: Node) -> bool:
    if type(node.type) is tuple or node.type.ndim < 3:
        return False
    if _is_attention(node):
        return type(node.type.shape[-3]) is int and not _op_of(node)["beside"]
    return node.op is concat or (node.op.kind == "pointwise" and not node.type.weak)


def _op_of(node: Node) -> Node:
    """The op that an attention's result belongs to."""
    return node.inputs[0] if node.op is item else node


def _is_attention(node: Node) -> bool:
    """Is it y, or the gradient of q, k or v?"""
    if node.op is item:
        made = node.inputs[0].op
        return made is flash_attention_dkv or (made is flash_attention and node["index"] == 0)
    return node.op is flash_attention_dq


def _order_of_products(node: Node, users: dict[Node, list[Node]]) -> Axes | None:
    """The one order of dimensions in which matrix products read a value; None if they take it as it is, or in two."""
    found: set[Axes] = set()
    for user in users[node]:
        if user.op is permute and user["axes"][-1] == len(user["axes"]) - 1:
            if _feeds_a_product(user, users):
                found.add(user["axes"])
        elif _feeds_a_product(user, users):
            return None
    axes = found.pop() if len(found) == 1 else None
    if axes is None or (_is_attention(node) and axes != _swapped(len(axes))):
        return None
    return axes


def _feeds_a_product(node: Node, users: dict[Node, list[Node]]) -> bool:
    """Does a product read it through views?"""
    if node.op is matmul:
        return True
    return node.op in (permute, reshape) and any(_feeds_a_product(user, users) for user in users[node])


def _swapped(rank: int) -> Axes:
    return (*range(rank - 3), rank - 2, rank - 3, rank - 1)


def _attention_behind(graph: Graph, orders: dict[Node, Axes], kept: set[Node]) -> set[Node]:
    """The attention ops with a result that is turned, or that what is turned is computed from element by element."""
    wanted = {node for node, axes in orders.items() if axes == _swapped(len(axes))}
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if node not in wanted:
            continue
        if _is_attention(node):
            found.add(_op_of(node))
        elif node.op.kind == "pointwise" or node.op in ALONG:
            wanted.update(x for x in node.inputs if type(x.type) is not tuple and x.type.ndim == node.type.ndim
                          and (_may_turn(x) or x.op in ALONG))
    results = defaultdict(list)
    for node in graph.nodes:
        if _is_attention(node):
            results[_op_of(node)].append(node)
    return {op for op in found if not any(x in kept for x in results[op])}


def _turned(graph: Graph, orders: dict[Node, Axes], attention: set[Node]) -> dict[Node, Node]:
    """old → new for all nodes."""
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple([replaced[x] for x in node.inputs])
        with located(node.source):
            if node in orders:
                new = _computed_in(node, inputs, orders[node])
            elif node in attention:
                beside = make(node.op, inputs, (*node.attrs[:-1], True), node.source)
                new = beside_each_other(beside) if _is_attention(node) else beside
            else:
                new = with_inputs(node, inputs)
                if node.op is item and node.inputs[0] in attention and _is_attention(node):
                    new = beside_each_other(new)
        replaced[node] = new
    return replaced


def _computed_in(node: Node, inputs: tuple[Node, ...], axes: Axes) -> Node:
    """The value, computed in another order and seen in the old one."""
    turned = tuple(permute(x, axes=axes) if x.type.ndim == len(axes) else x for x in inputs)
    attrs = (axes.index(node["axis"]),) if node.op is concat else node.attrs
    back = tuple(axes.index(axis) for axis in range(len(axes)))
    return permute(make(node.op, turned, attrs, node.source), axes=back)
