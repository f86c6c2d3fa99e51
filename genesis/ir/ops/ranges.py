"""Evenly spaced values."""

from __future__ import annotations

from genesis.ir.node import Node, Op
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.pointwise import cast, lt, where_
from genesis.ir.ops.samples import case, cases, np, number
from genesis.ir.types import Device, DType, TensorType, cpu, float32, float64, int64, tensor_type


def _type(start: TensorType, end: TensorType, count: int, dtype: DType, device: Device) -> TensorType:
    return tensor_type((count,), dtype, device)


def _linspace(start: Node, end: Node, count: int, dtype: DType, device: Device) -> Node:
    """Computed in float64. The second half is counted from the end, so that the end is exact."""
    index = cast(iota(shape=(count,), axis=0, dtype=int64, device=device), dtype=float64)
    step = (end - start) / float(max(count - 1, 1))
    early = lt(index, index * 0.0 + float(max(count // 2, 1)))
    return cast(where_(early, index * step + start, end - (float(count - 1) - index) * step), dtype=dtype)


linspace: Op = Op("linspace", "composite", _type, attrs=("count", "dtype", "device"), defaults={"device": cpu},
                  decompose=_linspace, differentiable=False, ulp=2,
                  doc="`count` evenly spaced values from a first number to a last one, both included.",
                  samples=cases(*(case(number(start), number(end), count=count, dtype=dtype)
                                  for start, end in ((0.0, 1.0), (5.0, -3.0)) for count in (0, 1, 2, 37)
                                  for dtype in (float32, float64)), scale=5),
                  reference=lambda start, end, count, dtype, device: np.linspace(start, end, count))
