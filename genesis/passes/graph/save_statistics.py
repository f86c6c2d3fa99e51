"""CPU: norms and attention keep the statistics of their rows for the backward that is in the same program.

torch's kernels give them and want them; else each backward computes the forward again for their sake, 3 to 5 % of a
transformer's step.

    before: %5 = layer_norm(%0, %1, %2)               after: %5 = layer_norm_saving(%0, %1, %2)
            %9 = layer_norm_backward(%8, %0, %1)             %6 = item(%5, index=0)   %3, %4 = item(%5, index=1), …
                                                             %9 = layer_norm_from_saved(%8, %3, %4, %0, %1)

A backward whose forward ran in a program before stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located, make
from genesis.ir.ops.attention import sdpa, sdpa_backward
from genesis.ir.ops.channel_norm import group_norm, group_norm_backward
from genesis.ir.ops.control import item
from genesis.ir.ops.norm import layer_norm, layer_norm_backward
from genesis.ir.ops.saving import (
    group_norm_from_saved,
    group_norm_saving,
    layer_norm_from_saved,
    layer_norm_saving,
    sdpa_from_saved,
    sdpa_saving,
)

SAVING = {layer_norm: layer_norm_saving, group_norm: group_norm_saving, sdpa: sdpa_saving}
FROM_SAVED = {layer_norm_backward: layer_norm_from_saved, group_norm_backward: group_norm_from_saved,
              sdpa_backward: sdpa_from_saved}
FORWARD = {layer_norm_backward: layer_norm, group_norm_backward: group_norm}
"""Backward of a norm → the norm."""


def save_statistics(graph: Graph, supports: Callable[[Node], bool]) -> Graph:
    """The graph with statistics kept where both sides have kernels for these forms."""
    forwards: dict[Hashable, Node] = {}
    for node in graph.nodes:
        if node.op in SAVING and (node.op is not sdpa or len(node.inputs) == 3):
            forwards.setdefault(_rows(node), node)
    pairs = {node: forwards[rows] for node in graph.nodes
             if node.op in FROM_SAVED and (rows := _rows(node)) in forwards}
    pairs = {node: made for node, made in pairs.items()
             if supports(_saving(made, made.inputs)) and supports(_from_saved(node, node.inputs, made))}
    if not pairs:
        return graph
    savings = set(pairs.values())
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple([replaced[x] for x in node.inputs])
        with located(node.source):
            if node in savings:
                replaced[node] = item(_saving(node, inputs), index=0)
            elif (made := pairs.get(node)) is not None and all(x in replaced for x in made.inputs):
                replaced[node] = _from_saved(node, inputs, make(made.op, tuple([replaced[x] for x in made.inputs]),
                                                                made.attrs, made.source))
            else:
                replaced[node] = with_inputs(node, inputs)
    return substitute(graph, replaced)


def _rows(node: Node) -> Hashable:
    """What the statistics are of: alike for a forward and its backward."""
    if node.op in FORWARD.values() or node.op in FORWARD:
        return (FORWARD.get(node.op, node.op), node.inputs[node.op in FORWARD], node.attrs)
    operands, mask = (node.inputs[:3], node.inputs[3:]) if node.op is sdpa else (node.inputs[1:4], node.inputs[5:])
    return ("attention", operands, mask, node.attrs)


def _saving(made: Node, inputs: tuple[Node, ...]) -> Node:
    return make(SAVING[made.op], inputs, made.attrs, made.source)


def _from_saved(node: Node, inputs: tuple[Node, ...], made: Node) -> Node:
    """The backward's form.

    Args:
        inputs: its operands.
        made: the forward, over the operands of which the statistics are kept.
    """
    saving = _saving(made, made.inputs)
    kept = tuple([item(saving, index=i) for i in range(1, len(saving.types))])
    if node.op is sdpa_backward:
        inputs = (*inputs[:4], item(saving, index=0))
    return make(FROM_SAVED[node.op], (inputs[0], *kept, *inputs[1:]), node.attrs, node.source)
