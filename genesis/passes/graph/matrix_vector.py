"""A product of a matrix and one vector is a reduction: written as one, it is fused like one.

The product's own kernel would read the vector and write the result as they lie. A reduction's kernel computes several
products of one vector at a time (a gate and what it gates) and what follows (an activation, a residual).
"""

from __future__ import annotations

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops import contraction
from genesis.ir.ops.movement import expand, permute, reshape
from genesis.ir.ops.pointwise import cast, mul
from genesis.ir.ops.reduction import sum as summed
from genesis.ir.types import bfloat16, float16, float32


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
    each = mul(cast(matrix, dtype=float32), expand(cast(vector, dtype=float32), shape=(*batch, many, depth)))
    total = summed(each, axes=(len(batch) + 1,), keepdims=False)
    return reshape(cast(total, dtype=node.dtype), shape=node.type.shape)


def _is_one(size: object) -> bool:
    return size.__class__ is int and size == 1
