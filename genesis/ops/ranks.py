"""Ranks along a dimension: the k-th, the median, quantiles, and the most frequent."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from genesis.frontend.engine_protocol import engine
from genesis.frontend.recording import TensorBase, emit, read, record, wrap
from genesis.ir.errors import failure
from genesis.ir.ops import ranks, reduction
from genesis.ir.types import bool_, float32, float64, int64
from genesis.ops import return_types
from genesis.ops.common import axis_in
from genesis.ops.out import into
from genesis.ops.sorting import sort

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["kthvalue", "median", "mode", "nanmedian", "nanquantile", "quantile"]


def _picked(found: Any, input: Tensor, axis: int, place: Any, keepdim: bool) -> Any:
    """A `found` of the elements at these places along an axis, which has size 1 in `place`."""
    values = input.gather(axis, place)
    return found(values, place) if keepdim else found(values.squeeze(axis), place.squeeze(axis))


def _alone(found: Any, input: Tensor) -> Any:
    """A `found` of a tensor without dimensions."""
    return found(input.clone(), input.new_zeros((), dtype=int64))


def _rows(op: str, input: Tensor, dim: int) -> int:
    """The axis; it must have an element."""
    axis = axis_in(op, dim, input.spec.ndim)
    if input.spec.ndim and not input.spec.shape[axis]:
        raise failure(op, f"Expected reduction dim {dim} to have non-zero size.", [("input", input)], error=IndexError)
    return axis


def _without_bool(op: str, input: Tensor) -> None:
    if input.spec.dtype is bool_:
        raise failure(op, "not defined for bool", [("input", input)], hint="x.to(genesis.uint8)")


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *,
             out: tuple[Tensor, Tensor] | None = None) -> return_types.ValuesIndices:
    """The k-th smallest element along `dim`, counted from 1, and where it is. NaN counts as the largest.

    Raises:
        IndexError: there is no such dimension, or it is empty.
        RuntimeError: k is not one of 1 to the dimension's size.

    >>> import genesis
    >>> genesis.kthvalue(genesis.tensor([4, 1, 3]), 2).values.item()
    3
    """
    _without_bool("kthvalue", input)
    axis, k = _rows("kthvalue", input, dim), operator.index(k)
    size = input.spec.shape[axis] if input.spec.ndim else 1
    if not 1 <= k <= size:
        raise failure("kthvalue", f"selected number k out of range for dimension {dim}: k is {k}, size {size}",
                      [("input", input)])
    if not input.spec.ndim:
        return into(out, _alone(return_types.kthvalue, input))
    values, indices = record(ranks.kthvalue, (input,), (k, axis))
    if keepdim:
        values, indices = values.unsqueeze(axis), indices.unsqueeze(axis)
    return into(out, return_types.kthvalue(values, indices))


def median(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The element in the middle, the lower of two; NaN if there is one.

    Without `dim` of all elements, whose gradient goes in equal parts to all that equal it; with it (values, indices)
    along that dimension.

    Raises:
        IndexError: there is no such dimension, or it is empty.

    >>> import genesis
    >>> genesis.median(genesis.tensor([4., 1., 3., 2.])).item()
    2.0
    """
    _without_bool("median", input)
    if dim is None:
        if not input.spec.numel:
            return into(out, input.sum() + float("nan") if input.spec.dtype.kind == "float" else input.new_zeros(()))
        return into(out, record(ranks.median, (input,), (False,)))
    axis = _rows("median", input, dim)
    if not input.spec.ndim:
        return into(out, _alone(return_types.median, input))
    place = record(ranks.argmedian, (input.detach(),), (axis,))
    return into(out, _picked(return_types.median, input, axis, place.unsqueeze(axis), keepdim))


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The element in the middle of those that are not NaN, the lower of two; NaN if there are none.

    >>> import genesis
    >>> genesis.nanmedian(genesis.tensor([4., float("nan"), 1.])).item()
    1.0
    """
    _without_bool("nanmedian", input)
    if input.spec.dtype.kind != "float":
        return into(out, median(input, dim, keepdim))
    if dim is None:
        if not input.spec.numel:
            return into(out, input.sum() + float("nan"))
        return into(out, record(ranks.median, (input,), (True,)))
    axis = _rows("nanmedian", input, dim)
    if not input.spec.ndim:
        return into(out, _alone(return_types.nanmedian, input))
    place = record(ranks.nanargmedian, (input.detach(),), (axis,))
    return into(out, _picked(return_types.nanmedian, input, axis, place.unsqueeze(axis), keepdim))


def mode(input: Tensor, dim: int = -1, keepdim: bool = False, *,
         out: tuple[Tensor, Tensor] | None = None) -> return_types.ValuesIndices:
    """The most frequent element along `dim`, the smallest of several, and where it is for the last time.

    Raises:
        IndexError: there is no such dimension, or it is empty.

    >>> import genesis
    >>> genesis.mode(genesis.tensor([2, 1, 2, 1, 3]))
    genesis.return_types.mode(
    values=tensor(1),
    indices=tensor(3))
    """
    axis = _rows("mode", input, dim)
    if not input.spec.ndim:
        return into(out, _alone(return_types.mode, input))
    values, order = sort(input.detach(), axis)
    size = input.spec.shape[axis]
    places = _along(order.new_zeros((), dtype=int64), size, axis, input.spec.ndim, input.device)
    begins = values.narrow(axis, 1, size - 1) != values.narrow(axis, 0, size - 1)
    starts = begins.to(int64) * places.narrow(axis, 1, size - 1)
    from genesis.ops.parts import cat
    first = order.new_zeros((*input.spec.shape[:axis], 1, *input.spec.shape[axis + 1:]))
    length = places - cat((first, starts), axis).cummax(axis).values
    best = wrap(emit(reduction.argmax, (read(length),), (axis, True)))
    return into(out, _picked(return_types.mode, input, axis, order.gather(axis, best), keepdim))


def _along(like: Any, size: int, axis: int, ndim: int, device: Any) -> Any:
    """0 … size - 1 along the axis of so many dimensions."""
    from genesis.ops.ranges import arange
    return arange(size, device=device).reshape((1,) * axis + (size,) + (1,) * (ndim - axis - 1))


INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def quantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear",
             out: Tensor | None = None) -> Tensor:
    """The values below which the parts `q` of the elements lie; NaN if one is NaN.

    Args:
        input: float32 or float64.
        q: a number in [0, 1], or a tensor of such, with at most one dimension.
        dim: all elements by default.
        interpolation: between the two elements around the place q·(n - 1): "linear", "lower", "higher",
            "midpoint" or "nearest".

    Returns:
        The shape of a reduction, behind a dimension for q if that is a vector.

    Raises:
        RuntimeError: a wrong dtype, q outside [0, 1], nothing to rank.
        ValueError: no such interpolation.

    >>> import genesis
    >>> genesis.quantile(genesis.tensor([0., 1., 2., 3.]), 0.5).item()
    1.5
    """
    return into(out, _quantile("quantile", input, q, dim, keepdim, interpolation, False))


def nanquantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear",
                out: Tensor | None = None) -> Tensor:
    """`quantile` of the elements that are not NaN; NaN where there are none.

    >>> import genesis
    >>> genesis.nanquantile(genesis.tensor([0., float("nan"), 2.]), 0.5).item()
    1.0
    """
    return into(out, _quantile("nanquantile", input, q, dim, keepdim, interpolation, True))


def _quantile(op: str, input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str,
              ignore: bool) -> Tensor:
    q = _checked_parts(op, input, q, interpolation)
    axis = 0 if dim is None else axis_in(op, dim, input.spec.ndim)
    line = input.reshape(-1) if dim is None else input if input.spec.ndim else input.reshape(1)
    size = line.spec.shape[axis]
    if not size or not line.spec.numel:
        raise failure(op, f"{op}() input tensor must be non-empty", [("input", input)])
    rows = sort(line.movedim(axis, -1)).values  # (..., size)
    parts = q.reshape(-1)
    if ignore:
        last = (rows.isnan().logical_not().sum(-1, keepdim=True) - 1).clamp(min=0).to(rows.dtype)
        places = parts * last
    else:
        places = (parts * (size - 1)).expand(*rows.spec.shape[:-1], parts.spec.numel)
        missing = rows.isnan().any(-1, keepdim=True)
        places = places.masked_fill(missing, float(size - 1))
    found = _interpolated(rows, places, interpolation)  # (..., parts)
    if dim is None:
        kept = found.reshape(parts.spec.numel, *(1,) * input.spec.ndim) if keepdim else found.reshape(-1)
    else:
        kept = found.movedim(-1, 0)
        if keepdim and input.spec.ndim:
            kept = kept.unsqueeze(axis + 1)
        elif not input.spec.ndim:
            kept = kept.reshape(parts.spec.numel)
    return kept if q.spec.ndim else kept.squeeze(0)


def _checked_parts(op: str, input: Tensor, q: Any, interpolation: str) -> Any:
    """q as a tensor of the input's dtype."""
    from genesis.ops.creation import tensor
    if input.spec.dtype not in (float32, float64):
        raise failure(op, f"{op}() input tensor must be either float or double dtype", [("input", input)])
    if interpolation not in INTERPOLATIONS:
        raise failure(op, f"{op}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
                      f"but got {interpolation}")
    if not isinstance(q, TensorBase):
        if not 0 <= q <= 1:
            raise failure(op, f"{op}() q must be in the range [0, 1] but got {q}")
        return tensor(float(q), dtype=input.spec.dtype, device=input.device)
    if q.spec.ndim > 1:
        raise failure(op, f"{op}() q must be a scalar or 1D tensor", [("q", q)])
    if q.spec.dtype is not input.spec.dtype:
        raise failure(op, f"{op}() q tensor must be same dtype as the input tensor", [("input", input), ("q", q)])
    if q.spec.device is not input.spec.device:
        raise failure(op, f"{op}() q tensor must be on the same device as the input tensor",
                      [("input", input), ("q", q)])
    checked = q.spec.numel and not engine.backend_of(q.spec.device).asynchronous
    if checked and not bool(((q >= 0) & (q <= 1)).all()):  # type: ignore
        raise failure(op, f"{op}() q values must be in the range [0, 1]", [("q", q)])
    return q


def _interpolated(rows: Any, places: Any, interpolation: str) -> Any:
    """The elements of sorted rows at places between their indices."""
    if interpolation == "lower":
        places = places.floor()
    elif interpolation == "higher":
        places = places.ceil()
    elif interpolation == "nearest":
        places = places.round()
    below = places.to(int64)
    low = rows.gather(-1, below)
    if interpolation not in ("linear", "midpoint"):
        return low
    weight = places - below.to(places.dtype)
    if interpolation == "midpoint":
        weight = (weight > 0).to(places.dtype) * 0.5
    return low.lerp(rows.gather(-1, places.ceil().to(int64)), weight)


class RankMethods(TensorBase):
    """The ranking methods of a tensor."""

    __slots__ = ()

    kthvalue = kthvalue
    median = median
    nanmedian = nanmedian
    mode = mode
    quantile = quantile
    nanquantile = nanquantile
