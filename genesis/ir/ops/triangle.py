"""The triangles of matrices: one op that says what is zero, so recording it is one node and the CPU runs one call."""

from __future__ import annotations

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.pointwise import ge, le, where_
from genesis.ir.ops.samples import ANY, Samples, case, cases, np, number, reals
from genesis.ir.types import TensorType, int64


def _type(x: TensorType, diagonal: TensorType, upper: bool) -> TensorType:
    if x.ndim < 2:
        raise RuntimeError("the input must have at least 2 dimensions")
    return x


def _decompose(x: Node, diagonal: Node, upper: bool) -> Node:
    shape = x.type.shape
    row, column = (iota(shape=shape, axis=len(shape) + i, dtype=int64, device=x.type.device) for i in (-2, -1))
    keep = (ge if upper else le)(column - row, diagonal)
    return where_(keep, x, literal(False if x.type.dtype.kind == "bool" else 0))


def _samples() -> Samples:
    return cases(*(case(reals().of(*shape), number(diagonal), upper=upper)
                   for shape, diagonal in (((3, 5), 0), ((5, 3), -1), ((2, 3, 4), 1), ((4, 4), 9), ((0, 3), 0))
                   for upper in (False, True)), kinds=ANY)


triangle: Op = Op("triangle", "composite", _type, attrs=("upper",), decompose=_decompose,
                  vjp=lambda g, x, diagonal, y, upper: (triangle(g, diagonal, upper=upper), None),
                  doc="The elements of the last two dimensions on one side of a diagonal (0 is the main one, 1 the one "
                      "above), zeros on the other.",
                  samples=_samples(),
                  reference=lambda x, diagonal, upper: (np.triu if upper else np.tril)(x, int(diagonal)))
