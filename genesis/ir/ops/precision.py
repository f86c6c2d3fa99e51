"""The dtype in which a composite computes: float16 and bfloat16 are upcast to float32 and rounded once."""

from __future__ import annotations

from genesis.ir.node import Node
from genesis.ir.ops.pointwise import cast
from genesis.ir.types import float32


def upcast(x: Node) -> Node:
    """x in at least float32, in which sums and norms are computed. Integers stay as they are."""
    return x if x.dtype.itemsize >= 4 or x.dtype.kind != "float" else cast(x, dtype=float32)


def downcast(x: Node, like: Node) -> Node:
    """x back in the dtype of `like`."""
    return x if x.dtype is like.dtype else cast(x, dtype=like.dtype)
