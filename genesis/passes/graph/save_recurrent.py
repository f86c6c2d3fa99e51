"""A recurrent layer and its backward in the form in which the first keeps what the second needs."""

from __future__ import annotations

from collections.abc import Callable

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located, make
from genesis.ir.ops.control import item
from genesis.ir.ops.recurrent import recurrent, recurrent_backward, recurrent_from_saved, recurrent_saving


def save_recurrent(graph: Graph, supports: Callable[[Node], bool]) -> Graph:
    """Layers whose backward is in the program keep for it what their kernels computed.

        before: %5 = recurrent(%0, …)                       after: %5 = recurrent_saving(%0, …)
                %9 = recurrent_backward(%8, %0, …)                 %9 = recurrent_from_saved(%7, %8, %6, …, %0, …)

    Equal nodes are one: what a backward wants kept is the program's own layer, or one that is computed again where
    that ran in a program before. A backward that the backend has no lowering for stays, and is written out.
    """
    wanted: dict[Node, set[int]] = {node: set() for node in graph.nodes
                                    if node.op is recurrent_backward and supports(node)}
    if not wanted:
        return graph
    for node in graph.nodes:
        if node.op is item and node.inputs[0] in wanted:
            wanted[node.inputs[0]].add(node["index"])
    layers = {_layer_of(node.inputs, node.attrs) for node in wanted}
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple([replaced[x] for x in node.inputs])
        with located(node.source):
            if node in wanted:
                replaced[node] = _from_saved(inputs, node.attrs, wanted[node])
            elif node.op is recurrent and (node.inputs, node.attrs) in layers:
                replaced[node] = make(recurrent_saving, inputs, node.attrs, node.source)
            else:
                replaced[node] = with_inputs(node, inputs)
    return substitute(graph, replaced)


def _layer_of(inputs: tuple[Node, ...], attrs: tuple) -> tuple[tuple[Node, ...], tuple]:
    """The operands and attributes of the layer that a node with these is the backward of."""
    arriving, *rest = attrs
    return inputs[arriving.count(True):], tuple(rest)


def _from_saved(inputs: tuple[Node, ...], attrs: tuple, wanted: set[int]) -> Node:
    arriving, *rest = attrs
    operands, _ = _layer_of(inputs, attrs)
    layer = make(recurrent_saving, operands, tuple(rest))
    results = [item(layer, index=i) for i in range(len(layer.types))]
    gradients = inputs[:arriving.count(True)]
    asked = tuple(i in wanted for i in range(len(operands) - rest[-1]))
    return make(recurrent_from_saved, (results[-1], *gradients, *results[:-1], *operands), (arriving, asked, *rest))
