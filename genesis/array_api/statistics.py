"""Reductions and running ones."""

from __future__ import annotations

from typing import Any

import genesis
from genesis import Tensor

Axis = Any  # an int, a tuple of ints or None


def _axes(x: Tensor, axis: Axis) -> tuple[int, ...]:
    """Axes from the start, the last first: all for None, none for ().

    Raises:
        IndexError: there is no such axis.
    """
    if axis is None:
        return tuple(range(x.ndim))[::-1]
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for one in axes:
        if not -x.ndim <= one < x.ndim:
            raise IndexError(f"axis {one} of an array of shape {tuple(x.shape)}")
    return tuple(sorted((one % x.ndim for one in axes), reverse=True))


def _over(reduce: Any, x: Tensor, axis: Axis, keepdims: bool, **how: Any) -> Tensor:
    """The reduction over these axes; x itself if there are none, which torch takes for all."""
    axes = _axes(x, axis)
    return reduce(x, axes, keepdim=keepdims, **how) if axes or axis is None else x


def _summed(x: Tensor, dtype: Any) -> Tensor:
    """x in the dtype that its sums and products have: small integers add up in int64."""
    return x.to(dtype or (x.dtype if x.dtype.kind == "float" else genesis.int64))


def sum(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sum; small integers add up in int64."""
    return _over(genesis.sum, _summed(x, dtype), axis, keepdims)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Product; small integers multiply in int64."""
    return _one_by_one(genesis.prod, _summed(x, dtype), axis, keepdims)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Largest element."""
    return _over(genesis.amax, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Smallest element."""
    return _over(genesis.amin, x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Arithmetic mean."""
    return _over(genesis.mean, x, axis, keepdims)


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variance; squares over (count - correction)."""
    if axis == ():  # of single elements
        return x * 0 / (1 - correction)
    return _over(genesis.var, x, axis, keepdims, correction=correction)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviation."""
    return genesis.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims)) if axis == () else _over(
        genesis.std, x, axis, keepdims, correction=correction)


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether every element is not 0."""
    return _one_by_one(genesis.all, x != 0, axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether some element is not 0."""
    return _one_by_one(genesis.any, x != 0, axis, keepdims)


def _one_by_one(reduce: Any, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """The reduction, which takes one axis, over several: from the last, so that the others keep their numbers."""
    for one in _axes(x, axis):
        x = reduce(x, one, keepdim=keepdims)
    return x


def _running(scan: Any, start: int, x: Tensor, axis: int | None, dtype: Any, include_initial: bool) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ValueError("an axis is needed for an array of more than one dimension")
        axis = 0
    found = scan(x if dtype is None else x.to(dtype), axis)
    if not include_initial:
        return found
    shape = [1 if i == axis % x.ndim else n for i, n in enumerate(x.shape)]
    return genesis.cat([genesis.full(shape, start, dtype=found.dtype, device=x.device), found], axis)


def cumulative_sum(x: Tensor, /, *, axis: int | None = None, dtype: Any = None,
                   include_initial: bool = False) -> Tensor:
    """Sums of all elements so far; with `include_initial` 0 comes first."""
    return _running(genesis.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Tensor, /, *, axis: int | None = None, dtype: Any = None,
                    include_initial: bool = False) -> Tensor:
    """Products of all elements so far; with `include_initial` 1 comes first."""
    return _running(genesis.cumprod, 1, x, axis, dtype, include_initial)


def diff(x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None,
         append: Tensor | None = None) -> Tensor:
    """n times the difference of neighbours."""
    return genesis.diff(x, n, axis, prepend, append)
