"""CPU: operands that are transposed in memory are copied into row-major order before pointwise ops read them.

torch writes a result in the order of its memory. Where an operand is a transposed view each step lands on another cache
line: adding to a 1024 × 1024 transpose takes 4.1 ms on one core. Its copy kernel goes by tiles: 0.5 ms, and 0.1 for the
addition after it.

    before: %1 = permute(%0, axes=(1,0))      after: %1 = permute(%0, axes=(1,0))
            %2 = add(%1, 1.0)                        %2 = cast(%1, dtype=f32)
                                                     %3 = add(%2, 1.0)
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, make
from genesis.passes.graph.memory_order import strides_of
from genesis.passes.graph.row_rules import SLOPES
from genesis.passes.graph.snapshots import copied, is_copy

FEWEST: Final = 1 << 14
"""Minimum elements of an operand that is copied: fewer fit in the L1 cache in any order."""


def make_contiguous(graph: Graph) -> Graph:
    """The graph with contiguous copies of transposed operands of pointwise ops, gradients of activations among them."""
    def rule(node: Node) -> Node | None:
        if not _copies(node):
            return None
        inputs = tuple([copied(x) if is_transposed(x) else x for x in node.inputs])
        return make(node.op, inputs, node.attrs, node.source)
    return rewrite(graph, rule) if any(_copies(node) for node in graph.nodes) else graph


def _copies(node: Node) -> bool:
    """Whether it is to read copies of some of its operands."""
    if (node.op.kind != "pointwise" and node.op not in SLOPES) or type(node.type) is tuple or node.type.weak:
        return False
    moved = [x for x in node.inputs if x.op.kind == "movement"]
    return bool(moved) and not is_copy(node) and any(map(is_transposed, moved))


def is_transposed(x: Node) -> bool:
    """Is it a large view whose neighbours along the last dimension are no neighbours in memory, but others are?

    Elements that several places share (`expand`) stay shared. How many elements there are is asked last: the answer is
    a guard of a plan for several sizes.
    """
    if x.op.kind != "movement" or x.type.weak:
        return False
    strides = strides_of(x)
    if strides is None:
        return False
    along = [stride for stride, size in zip(strides, x.shape, strict=True) if size > 1]
    return (bool(along) and 0 not in along and along[-1] != 1 and any(a < b for a, b in pairwise(along))
            and x.type.numel >= FEWEST)
