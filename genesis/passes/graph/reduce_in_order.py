"""Reductions read what lies turned in memory in the order of memory.

A kernel counts the elements that it reduces by the axes' order in the operand: over the outermost and the innermost
axis of a permuted tensor neighbours would lie far apart, and each program would read single elements of many lines.
The result, which is smaller, is turned instead.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, make
from genesis.ir.ops import reduction
from genesis.ir.ops.movement import permute, reshape
from genesis.ir.sym_int import hint

REDUCTIONS: Final = (reduction.sum, reduction.prod, reduction.max, reduction.min, reduction.any, reduction.all)

DEEPEST: Final = 8
"""Maximum pointwise ops between a permutation and its reduction."""

SMALLER: Final = 8
"""How many times smaller the result is at the least: what is turned then costs little."""


def reduce_in_order(graph: Graph) -> Graph:
    """A reduction of a permuted value that nothing else reads → the permuted reduction of the value.

    before: %1: f32[8,6,9] = permute(%0: f32[9,8,6], axes=(1,2,0))     after: %1: f32[8,6] = sum(%0, axes=(0,))
            %2: f32[8,6] = sum(%1, axes=(2,))
    """
    readers = Counter(x for node in graph.nodes for x in node.inputs)
    readers.update(graph.roots)
    alone = {node for node in graph.nodes if readers[node] == 1}
    orders = {node: order for node in graph.nodes if node.op in REDUCTIONS
              and hint(node.inputs[0].type.numel) >= SMALLER * hint(node.type.numel)
              and (order := _order(node.inputs[0], alone, DEEPEST)) is not None}
    if not orders:
        return graph
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple(replaced[x] for x in node.inputs)
        new = with_inputs(node, inputs)
        replaced[node] = _reduced(new, orders[node]) if node in orders else new
    return substitute(graph, replaced)


def _order(node: Node, alone: set[Node], depth: int) -> tuple[int, ...] | None:
    """The axes of the permutation behind a value, through pointwise ops of one operand, if nothing else reads it."""
    if node not in alone or not depth:
        return None
    if node.op is permute:
        return tuple(node["axes"])
    if node.op.kind != "pointwise":  # the operand of an item has several types
        return None
    strong = [x for x in node.inputs if not x.type.weak]
    if len(strong) == 1 and strong[0].type.ndim == node.type.ndim:
        return _order(strong[0], alone, depth - 1)
    return None


def _reduced(node: Node, order: tuple[int, ...]) -> Node:
    """A reduction over the same elements in the order of what is permuted."""
    axes = tuple(sorted(order[axis] for axis in node["axes"]))
    found = node.op(_unturned(node.inputs[0]), axes=axes)
    kept = [axis for axis in range(len(order)) if axis not in axes]
    wanted = tuple(kept.index(axis) for axis in order if axis not in axes)
    if wanted != tuple(range(len(kept))):
        found = permute(found, axes=wanted)
    return found if found.shape == node.shape else reshape(found, shape=node.shape)


def _unturned(node: Node) -> Node:
    """The value before its permutation."""
    if node.op is permute:
        return node.inputs[0]
    inputs = tuple(x if x.type.weak else _unturned(x) for x in node.inputs)
    return make(node.op, inputs, node.attrs, node.source)
