"""A product of a matrix and one vector is a reduction: written as one, it is fused like one.

The product's own kernel would read the vector and write the result as they lie. A reduction's computes the vector
from what it reads (a norm), several products of it at a time (a gate and what it gates) and what follows (an
activation, a residual).
"""

from __future__ import annotations

from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops import contraction
from genesis.ir.ops.movement import expand, permute, reshape
from genesis.ir.ops.pointwise import cast, mul
from genesis.ir.ops.reduction import sum as summed
from genesis.ir.types import bfloat16, float16, float32

CHEAP: Final = 16
"""Most weighted ops for each element of a vector that are done again for each line of the matrix: those of a norm."""


def matrix_vector(graph: Graph) -> Graph:
    """Products of one row, or of one column, as sums of products.

    before: %2: bf16[1,768] = matmul(%0, %1)     after: %2: f32[768,1024] = mul(%0, %1)     # both cast and expanded
                                                          %3: f32[768] = sum(%2, axes=(1,))
                                                          %4: bf16[1,768] = cast(%3)        # reshaped
    """
    return rewrite(graph, lambda node: _summed(node) if node.op is contraction.matmul else None)


def _summed(node: Node) -> Node | None:
    a, b = node.inputs
    *batch, rows, columns = node.type.shape
    depth = a.type.shape[-1]
    if node.dtype not in (float16, bfloat16, float32) or not node.type.numel or not depth:
        return None
    if _is_one(rows):
        matrix = permute(b, axes=(*range(len(batch)), len(batch) + 1, len(batch)))       # (batch…, columns, depth)
        vector, many = reshape(a, shape=(*batch, 1, depth)), columns
    elif _is_one(columns):
        matrix, vector, many = a, reshape(b, shape=(*batch, 1, depth)), rows
    else:
        return None
    across = cast(_for_each_line(vector, many, depth), dtype=float32) if not batch else expand(
        cast(vector, dtype=float32), shape=(*batch, many, depth))
    total = summed(mul(cast(matrix, dtype=float32), across), axes=(len(batch) + 1,), keepdims=False)
    return reshape(cast(total, dtype=node.dtype), shape=node.type.shape)


def _for_each_line(vector: Node, lines: int, depth: int) -> Node:
    """The vector, (1, depth), for each line of the matrix: (lines, depth).

    A norm of the vector is computed for each line anew: it reads the vector alone, which is near, and a kernel of one
    program before the product takes longer than all programs' looking at it.
    """
    lifted = _Lifted(lines, depth)
    found = lifted.of(vector)
    return found if lifted.reduces and lifted.weight <= CHEAP else expand(vector, shape=(lines, depth))


class _Lifted:
    """What is computed from vectors and numbers, for each of several lines: of a vector (lines, depth), of a number
    (lines, 1). Where it cannot be computed so, it is what it was, expanded.

    Attributes:
        reduces: some vector is reduced to a number on the way.
        weight: of the ops for each element of a line.
    """

    def __init__(self, lines: int, depth: int):
        self._lines, self._depth = lines, depth
        self._made: dict[Node, Node] = {}
        self.reduces, self.weight = False, 0

    def of(self, node: Node) -> Node:
        """The node for each line; it has `depth` elements, or one."""
        found = self._made.get(node)
        if found is None:
            found = self._made[node] = self._computed(node)
        return found

    def _computed(self, node: Node) -> Node:
        size = node.type.numel
        wide = size == self._depth
        if node.op in (reshape, expand) and self._fits(node.inputs[0]):
            inner = self.of(node.inputs[0])
            return expand(inner, shape=(self._lines, self._depth)) if wide and inner.type.shape[1] == 1 else inner
        if node.op.kind == "pointwise" and not self._joins(node) and all(
                x.type.weak or x.type.numel == size for x in node.inputs):
            self.weight += node.op.weight if wide else 0
            return node.op(*[x if x.type.weak else self.of(x) for x in node.inputs], **node.attributes)
        if node.op.kind == "reduction" and self._is_whole(node):
            self.reduces = True
            return node.op(self.of(node.inputs[0]), axes=(1,), keepdims=True)
        row = self._depth if wide else 1
        return expand(reshape(node, shape=(1, row)), shape=(self._lines, row))

    def _joins(self, node: Node) -> bool:
        """Does it join two vectors that were computed, as a residual does? What it makes is needed elsewhere, too."""
        return len({_computed_from(x) for x in node.inputs if x.type.numel == self._depth} - {None}) > 1

    def _fits(self, node: Node) -> bool:
        return bool(node.type.numel == self._depth or node.type.numel == 1)

    def _is_whole(self, node: Node) -> bool:
        """Does it reduce a vector of the inner dimension to a number?"""
        return bool(node.op.associative and node.type.numel == 1 and node.inputs[0].type.numel == self._depth)


def _computed_from(node: Node) -> Node | None:
    """The op behind views and casts that made the values; None for an input, or a number for all elements."""
    while node.op.kind == "movement" or node.op is cast:
        if node.inputs[0].type.numel != node.type.numel:
            return None
        node = node.inputs[0]
    return None if node.op.kind == "leaf" else node


def _is_one(size: object) -> bool:
    return size.__class__ is int and size == 1
