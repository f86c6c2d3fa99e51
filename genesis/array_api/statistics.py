"""Reductions and running ones."""

from __future__ import annotations

from typing import Any

import genesis
from genesis import Tensor

Axis = Any  # an int, a tuple of ints or None


def _axes(x: Tensor, axis: Axis) -> Any:
    return tuple(range(x.ndim)) if axis is None else axis


def sum(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sum; small integers add up in int64."""
    return genesis.sum(x, _axes(x, axis), keepdim=keepdims, dtype=dtype) if axis != () else x.to(dtype or x.dtype)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Product."""
    found = x if dtype is None else x.to(dtype)
    axes = _axes(x, axis)
    if dtype is None and x.dtype not in (genesis.float32, genesis.float64):
        found = found.to(genesis.int64)
    for one in sorted(((axes,) if isinstance(axes, int) else axes), key=lambda a: a % x.ndim, reverse=True):
        found = genesis.prod(found, one, keepdim=keepdims)
    return found


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Largest element."""
    return genesis.amax(x, _axes(x, axis), keepdim=keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Smallest element."""
    return genesis.amin(x, _axes(x, axis), keepdim=keepdims)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Arithmetic mean."""
    return genesis.mean(x, _axes(x, axis), keepdim=keepdims)


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variance; squares over (count - correction)."""
    return genesis.var(x, _axes(x, axis), correction=correction, keepdim=keepdims)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviation."""
    return genesis.std(x, _axes(x, axis), correction=correction, keepdim=keepdims)


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether every element is not 0."""
    return _over_axes(genesis.all, x != 0, axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether some element is not 0."""
    return _over_axes(genesis.any, x != 0, axis, keepdims)


def _over_axes(reduce: Any, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    axes = _axes(x, axis)
    for one in sorted(((axes,) if isinstance(axes, int) else axes), key=lambda a: a % x.ndim, reverse=True):
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
