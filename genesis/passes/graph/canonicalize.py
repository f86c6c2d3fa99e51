"""One form for programs that mean the same: control markers gone, constants folded, views merged.

Rules are rows of a table, by op. Each must keep the value bit for bit, so what holds only for real
numbers has no row: x · 0 is NaN for NaN and -0.0 for negative x, x + 0.0 turns -0.0 into 0.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, Op
from genesis.ir.ops import control, leaves, recompute
from genesis.passes.graph import simplify_arithmetic as arithmetic
from genesis.passes.graph import simplify_movement as movement

Rule = Callable[[Node], "Node | None"]


def canonicalize(graph: Graph) -> Graph:
    """Apply the rules to every node, operands first, until nothing changes.

        before: %1: f32[2,3] = reshape(%0, shape=(2,3))    after: %1: f32[6] = reshape(%0, shape=(6,))
                %2: f32[6] = reshape(%1, shape=(6,))              (or %0 itself, if it has that shape)
    """
    while True:
        after = rewrite(graph, _apply)
        if after.roots == graph.roots:
            return after
        graph = after


def _apply(node: Node) -> Node | None:
    for rule in RULES.get(node.op, ()):
        found = rule(node)
        if found is not None and found is not node:
            again = _apply(found)
            return found if again is None else again
    return arithmetic.fold(node) if node.op.kind == "pointwise" else None


def _first(node: Node) -> Node:
    """The value itself: the op only marks it."""
    return node.inputs[0]


def _second(node: Node) -> Node:
    """The value in memory: the first operand only says how it came to be."""
    return node.inputs[1]


def _result(node: Node) -> Node | None:
    """A result of a region is what the region was given to return."""
    region = node.inputs[0]
    return region.inputs[node["index"]] if region.op is recompute.leave else None


def _leaf(node: Node) -> Node | None:
    """A constant is made wherever it is read."""
    x = node.inputs[0]
    return x if x.op.kind == "leaf" and x.op is not leaves.input else None


RULES: Final[dict[Op, tuple[Rule, ...]]] = {
    control.watch: (_first,),
    control.stop_gradient: (_first,),
    control.alias: (_first,),
    control.known: (_second,),
    control.overwritten: (_second,),
    control.released: (_first,),
    recompute.enter: (_first,),
    control.item: (_result,),
    recompute.recompute: (_leaf,),
    **arithmetic.RULES,
    **movement.RULES,
}
