"""Copies of inputs that a program returns, as nodes, where a kernel that there is anyway can make them."""

from __future__ import annotations

from genesis.ir.graph import Graph
from genesis.ir.node import Node, make
from genesis.ir.ops import leaves, pointwise
from genesis.passes.fusion.side_by_side import AROUND


def copy_returned_inputs(graph: Graph) -> Graph:
    """An output that is an updated input's old content is a copy that a kernel can write.

        before: update %0 = %3, return %0        after: %4: f32[8] = cast(%0, dtype=f32)
                                                         update %0 = %3, return %4

    An optimizer reads every parameter anyway. Left alone, each copy would be a launch of its own before all else.

    So is an output that is any input, where a program sorts or adds up at places that are data: the gradient of what is
    added to is the one that came in. Launches take most of such a program's time, and its small loops that do not wait
    for each other are one launch (`fusion/side_by_side.py`).
    """
    copied_ones = {target for target, value in graph.updates if value is not target}
    if any(x.op.opaque is not None and x.op.opaque.kernel in AROUND for x in graph.nodes):
        copied_ones.update(x for x in graph.outputs if x.op is leaves.input)
    if copied_ones.isdisjoint(graph.outputs):
        return graph
    return Graph(graph.inputs, tuple(copied(x) if x in copied_ones else x for x in graph.outputs), graph.updates,
                 graph.numbers)


def copied(x: Node) -> Node:
    """The node that holds a copy: a cast to x's own dtype, which nothing else is by now."""
    return make(pointwise.cast, (x,), (x.dtype,), x.source)


def is_copy(node: Node) -> bool:
    """Is it such a copy?"""
    return node.op is pointwise.cast and node.dtype is node.inputs[0].dtype


def copies_only(node: Node) -> bool:
    """Is it such a copy of an input?"""
    return is_copy(node) and node.inputs[0].op is leaves.input
