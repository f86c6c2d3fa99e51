"""Indexing by integer tensors. An index is ≥ 0 here; negative ones are wrapped when recorded."""

from __future__ import annotations

from genesis.ir.node import Op
from genesis.ir.ops.leaves import zeros_like
from genesis.ir.ops.movement import full_like
from genesis.ir.types import TensorType


def _integer(index: TensorType) -> None:
    if index.dtype.kind != "int":
        raise IndexError(f"an index must have an integer dtype, not {index.dtype!r}")


def _take_type(x: TensorType, index: TensorType, axis: int) -> TensorType:
    _integer(index)
    return x.with_shape(x.shape[:axis] + index.shape + x.shape[axis + 1:])


def _rows_type(base: TensorType, index: TensorType, source: TensorType, axis: int) -> TensorType:
    expected = _take_type(base, index, axis)
    if source is not expected:
        raise RuntimeError(f"the source is {source}, but these rows are {expected}")
    return base


take = Op("take", "index", _take_type, attrs=("axis",),
          doc="result[..., i.., ...] = x[..., index[i..], ...] along the axis: rows of a table.",
          vjp=lambda g, x, index, y, axis: (index_add(zeros_like(x), index, g, axis=axis), None))

index_add = Op("index_add", "index", _rows_type, attrs=("axis",),
               doc="base with source's rows added at the index; equal indices add up.",
               vjp=lambda g, base, index, source, y, axis: (g, None, take(g, index, axis=axis)))

index_copy = Op("index_copy", "index", _rows_type, attrs=("axis",),
                doc="base with its rows at the index replaced by source's; of equal indices the last wins.",
                vjp=lambda g, base, index, source, y, axis: (
                    index_copy(g, index, full_like(source, 0), axis=axis), None, take(g, index, axis=axis)))


def _gather_type(x: TensorType, index: TensorType, axis: int) -> TensorType:
    _integer(index)
    if index.ndim != x.ndim or any(i > n for d, (i, n) in enumerate(zip(index.shape, x.shape, strict=True)) if d != axis):
        raise RuntimeError(f"index of shape {index.shape} does not fit {x.shape} along dimension {axis}")
    return x.with_shape(index.shape)


def _scatter_type(base: TensorType, index: TensorType, source: TensorType, axis: int) -> TensorType:
    _gather_type(base, index, axis)
    if source.shape != index.shape or source.dtype is not base.dtype:
        raise RuntimeError(f"source {source} does not fit the index of shape {index.shape} and base {base}")
    return base


gather = Op("gather", "index", _gather_type, attrs=("axis",),
            doc="result[i..] = x[i.. with index[i..] at the axis].",
            vjp=lambda g, x, index, y, axis: (scatter_add(zeros_like(x), index, g, axis=axis), None))

scatter_add = Op("scatter_add", "index", _scatter_type, attrs=("axis",),
                 doc="base with source[i..] added at [i.. with index[i..] at the axis].",
                 vjp=lambda g, base, index, source, y, axis: (g, None, gather(g, index, axis=axis)))

scatter = Op("scatter", "index", _scatter_type, attrs=("axis",),
             doc="base with source[i..] written at [i.. with index[i..] at the axis]; of equal indices the last wins.",
             vjp=lambda g, base, index, source, y, axis: (
                 scatter(g, index, full_like(source, 0), axis=axis), None, gather(g, index, axis=axis)))
