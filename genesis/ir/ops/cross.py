"""The vector product of space: one op, so recording it is one node and the CPU runs one call."""

from __future__ import annotations

from genesis.ir.node import Node, Op
from genesis.ir.ops.movement import concat, slice
from genesis.ir.ops.pointwise import common, mul, sub
from genesis.ir.ops.samples import NUMERIC, Samples, case, cases, np, reals
from genesis.ir.types import TensorType


def _type(a: TensorType, b: TensorType, axis: int) -> TensorType:
    if a.shape[axis] != 3:
        raise RuntimeError(f"dimension {axis} must have length 3, not {a.shape[axis]}")
    return common((a, b), NUMERIC)


def _turned(x: Node, axis: int, order: tuple[int, ...]) -> Node:
    """The three coordinates in another order."""
    shape, parts = x.type.shape, []
    for i in order:
        starts, stops = [0] * len(shape), list(shape)
        starts[axis], stops[axis] = i, i + 1
        parts.append(slice(x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(shape)))
    return concat(*parts, axis=axis)


def _decompose(a: Node, b: Node, axis: int) -> Node:
    ahead, behind = (1, 2, 0), (2, 0, 1)
    return sub(mul(_turned(a, axis, ahead), _turned(b, axis, behind)),
               mul(_turned(a, axis, behind), _turned(b, axis, ahead)))


def _samples() -> Samples:
    return cases(*(case(reals().of(*shape), reals().of(*shape), axis=axis)
                   for shape, axis in (((3,), 0), ((4, 3), 1), ((3, 2), 0), ((2, 3, 5), 1), ((0, 3), 1))),
                 kinds=NUMERIC, scale=8)


cross: Op = Op("cross", "composite", _type, attrs=("axis",), decompose=_decompose, ulp=4,
               vjp=lambda g, a, b, y, axis: (cross(b, g, axis=axis), cross(g, a, axis=axis)),
               doc="Vector product along a dimension of size 3.", samples=_samples(),
               reference=lambda a, b, axis: np.cross(a, b, axis=axis))
