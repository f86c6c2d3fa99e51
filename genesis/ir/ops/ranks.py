"""The element of a rank, medians, and how often each number occurs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.bounds import clamp_min
from genesis.ir.ops.control import item
from genesis.ir.ops.indexing import gather, index_add, scatter
from genesis.ir.ops.leaves import full, zeros_like
from genesis.ir.ops.movement import reshape, take_range
from genesis.ir.ops.pointwise import bitwise_and, bitwise_not, bitwise_or, cast, eq, floor_divide, isnan, where, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import any, argmax, spread, sum
from genesis.ir.ops.samples import FLOAT, NUMERIC, Array, case, cases, integers, np, shuffled
from genesis.ir.ops.sorting import sort, topk
from genesis.ir.types import TensorType, int64

if TYPE_CHECKING:
    from numpy import ndarray


def _kth_type(x: TensorType, k: int, axis: int) -> tuple[TensorType, TensorType]:
    if not 0 <= axis < x.ndim or not 1 <= k <= x.shape[axis]:
        raise RuntimeError(f"selected number k out of range for dimension {axis}: k is {k}, the shape {x.shape}")
    one = x.with_shape((*x.shape[:axis], *x.shape[axis + 1:]))
    return one, one.with_dtype(int64)


def _kth_vjp(g: tuple[Node | None, ...], x: Node, y: Node, k: int, axis: int) -> Node | None:
    if g[0] is None:
        return None
    kept = (*x.type.shape[:axis], 1, *x.type.shape[axis + 1:])
    return scatter(zeros_like(x), reshape(item(y, index=1), shape=kept), reshape(g[0], shape=kept), axis=axis)


def _kth(x: Node, k: int, axis: int) -> tuple[Node, ...]:
    """The last of the k smallest, or of the largest, whichever are fewer."""
    size = x.type.shape[axis]
    few, largest = (k, False) if 2 * k <= size else (size - k + 1, True)
    found = topk(x, k=few, axis=axis, largest=largest)
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1:])
    return tuple(reshape(take_range(item(found, index=i), axis, few - 1, few), shape=shape) for i in (0, 1))


def _reference_kth(x: ndarray, k: int, axis: int) -> tuple[ndarray, ndarray]:
    order = np.argsort(x, axis, kind="stable")
    places = np.take(order, [k - 1], axis)
    return np.take_along_axis(x, places, axis).squeeze(axis), places.squeeze(axis)


kthvalue: Op = Op("kthvalue", "sort", _kth_type, attrs=("k", "axis"), vjp=_kth_vjp, decompose=_kth, differentiable=True,
                  doc="The k-th smallest element along the axis, counted from 1, and where it is (int64). NaN is the "
                      "largest; which of equal ones is left to the backend.",
                  samples=cases(*(case(shuffled(n).of(*s), k=k, axis=a) for n, s, a, k in (
                      (7, (7,), 0, 3), (60, (2, 30), 1, 28), (12, (4, 3), 0, 1), (24, (2, 4, 3), 1, 4))),
                      kinds=NUMERIC),
                  reference=_reference_kth)


def _middle_type(x: TensorType, axis: int) -> TensorType:
    return _kth_type(x, 1, axis)[1]


def _middle(x: Node, axis: int) -> Node:
    present = cast(bitwise_not(isnan(x)), dtype=int64)
    before = floor_divide(sum(present, axes=(axis,), keepdims=True) - 1, literal(2))
    order = item(sort(x, axis=axis, descending=False), index=1)
    return reshape(gather(order, clamp_min(before, literal(0)), axis=axis), shape=_middle_type(x.type, axis).shape)


def _reference_middle(x: ndarray, axis: int) -> ndarray:
    order = np.argsort(x, axis, kind="stable")
    before = np.maximum((~np.isnan(x)).sum(axis, keepdims=True) - 1, 0) // 2
    return np.take_along_axis(order, before, axis).squeeze(axis)


nanargmedian: Op = Op("nanargmedian", "sort", _middle_type, attrs=("axis",), decompose=_middle, differentiable=False,
                      doc="Where the middle one of the elements along the axis that are not NaN is, the lower of two: "
                          "int64. A NaN's place if there is no other; which of equal ones is left to the backend.",
                      samples=cases(*(case(shuffled(n).of(*s), axis=a) for n, s, a in (
                          (7, (7,), 0), (60, (2, 30), 1), (12, (4, 3), 0), (24, (2, 4, 3), 1))),
                          case(Array((3.0, math.nan, 1.0, 2.0, math.nan)), axis=0), kinds=FLOAT),
                      reference=_reference_middle)


def _first_middle(x: Node, axis: int) -> Node:
    place = item(kthvalue(x, k=(x.type.shape[axis] + 1) // 2, axis=axis), index=1)
    if x.type.dtype.kind != "float":
        return place
    missing = isnan(x)
    return where(any(missing, axes=(axis,)), argmax(missing, axis=axis), place)


argmedian: Op = Op("argmedian", "sort", _middle_type, attrs=("axis",), decompose=_first_middle, differentiable=False,
                   doc="Where the middle one of the elements along the axis is, the lower of two: int64. The first "
                       "NaN's place if there is one; which of equal ones is left to the backend.",
                   samples=cases(*(case(shuffled(n).of(*s), axis=a) for n, s, a in (
                       (7, (7,), 0), (60, (2, 30), 1), (12, (4, 3), 0), (24, (2, 4, 3), 1))), kinds=NUMERIC),
                   reference=lambda x, axis: np.take(np.argsort(x, axis), (x.shape[axis] - 1) // 2, axis))


def _median_type(x: TensorType, skip_nan: bool) -> TensorType:
    if not x.numel:
        raise RuntimeError("the median of no element")
    return x.with_shape(())


def _median(x: Node, skip_nan: bool) -> Node:
    flat = reshape(x, shape=(x.type.numel,))
    place = (nanargmedian if skip_nan and x.type.dtype.kind == "float" else argmedian)(flat, axis=0)
    return reshape(gather(flat, reshape(place, shape=(1,)), axis=0), shape=())


def _median_vjp(g: Node, x: Node, y: Node, skip_nan: bool) -> Node:
    """The gradient goes in equal parts to all elements that equal the median; a NaN equals a NaN here."""
    axes = tuple(range(x.type.ndim))
    middle = spread(y, x, axes)
    hit = bitwise_or(eq(x, middle), bitwise_and(isnan(x), isnan(middle)))
    count = sum(upcast(cast(hit, dtype=x.type.dtype)), axes=axes)
    return where_(hit, spread(downcast(upcast(g) / count, g), x, axes), 0.0)


median: Op = Op("median", "sort", _median_type, attrs=("skip_nan",), decompose=_median, vjp=_median_vjp,
                differentiable=True,
                doc="The middle one of all elements, the lower of two. NaN if there is one, or with `skip_nan` if "
                    "there is nothing else. The gradient goes in equal parts to all elements that equal it.",
                samples=cases(*(case(shuffled(n).of(*s), skip_nan=skip) for n, s in (
                    (7, (7,)), (60, (2, 30)), (1, ()), (24, (2, 4, 3))) for skip in (False, True)),
                    case(Array((3.0, math.nan, 1.0)), skip_nan=False), case(Array((3.0, math.nan, 1.0)), skip_nan=True),
                    kinds=FLOAT),
                reference=lambda x, skip_nan: _reference_median(x, skip_nan))


def _reference_median(x: ndarray, skip_nan: bool) -> ndarray:
    present = np.sort(x[~np.isnan(x)] if skip_nan else x, axis=None)
    return np.asarray(math.nan if np.isnan(present).any() else present[(present.size - 1) // 2])


def _counts_type(ids: TensorType, size: int) -> TensorType:
    if ids.ndim != 1 or ids.dtype.kind != "int":
        raise RuntimeError(f"numbers to count are a vector of integers, not {ids}")
    return ids.with_shape((size,)).with_dtype(int64)


def _counts(ids: Node, size: int) -> Node:
    device = ids.type.device
    return index_add(full((size,), 0, int64, device), ids, full(ids.type.shape, 1, int64, device), axis=0)


bincount: Op = Op("bincount", "index", _counts_type, attrs=("size",), decompose=_counts, differentiable=False,
                  doc="How often each of the numbers below `size` occurs: int64.",
                  samples=cases(case(integers(0, 5).of(30), size=5), case(integers(0, 5).of(30), size=9),
                                case(integers(0, 5).of(0), size=3), kinds=("int",)),
                  reference=lambda ids, size: np.bincount(ids, minlength=size))

__all__ = ["argmedian", "bincount", "kthvalue", "median", "nanargmedian"]
