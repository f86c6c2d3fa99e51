"""Row numbers that indices mean: negative ones count from the end, and those outside are the user's error."""

from __future__ import annotations

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.pointwise import cast, lt, where
from genesis.ir.ops.samples import case, cases, integers, np
from genesis.ir.types import TensorType, int32, int64


def _type(index: TensorType, size: int, dim: int) -> TensorType:
    if index.dtype.kind != "int":
        raise IndexError(f"an index must have an integer dtype, not {index.dtype!r}")
    return index.with_dtype(int64)


def _decompose(index: Node, size: int, dim: int) -> Node:
    whole = index if index.type.dtype is int64 else cast(index, dtype=int64)
    return where(lt(whole, literal(0)), whole + size, whole)


row_number = Op("row_number", "index", _type, attrs=("size", "dim"), decompose=_decompose, differentiable=False,
                doc="index, or index + size where it is negative: the position among the `size` along a dimension. "
                    "The CPU raises IndexError for one outside, naming it and `dim`, the dimension as the user counts.",
                samples=cases(case(integers(-5, 5).of(4), size=5, dim=0), case(integers(-2, 2).of(2, 3), size=2, dim=1),
                              case(integers(0, 1).of(), size=1, dim=0),
                              case(integers(-3, 3, int32).of(4), size=3, dim=0),
                              case(integers(0, 1).of(0, 2), size=0, dim=0), kinds=("float",)),
                reference=lambda index, size, dim: np.where(index < 0, index + size, index))
