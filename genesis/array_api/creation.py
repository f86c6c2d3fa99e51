"""Making arrays."""

from __future__ import annotations

from typing import Any

import genesis
from genesis import Tensor

Shape = Any  # an int or a tuple of ints


def _shape(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array of this data; copy=False raises ValueError where a copy would be needed, None copies if needed."""
    return genesis.asarray(obj, dtype=dtype, device=device, copy=copy)


def arange(start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None,
           device: Any = None) -> Tensor:
    """Numbers from start up to stop, without it; empty where step leads away."""
    first, end = (0, start) if stop is None else (start, stop)
    if (end - first) * step <= 0:
        kind = dtype or (genesis.float32 if any(isinstance(x, float) for x in (first, end, step)) else genesis.int64)
        return genesis.empty(0, dtype=kind, device=device)
    return genesis.arange(first, end, step, dtype=dtype, device=device)


def linspace(start: float, stop: float, /, num: int, *, dtype: Any = None, device: Any = None,
             endpoint: bool = True) -> Tensor:
    """num evenly spaced numbers from start to stop, which is left out without `endpoint`."""
    if endpoint:
        return genesis.linspace(start, stop, num, dtype=dtype, device=device)
    return genesis.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def empty(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of this shape, of any content."""
    return genesis.empty(_shape(shape), dtype=dtype, device=device)


def zeros(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros."""
    return genesis.zeros(_shape(shape), dtype=dtype, device=device)


def ones(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones."""
    return genesis.ones(_shape(shape), dtype=dtype, device=device)


def full(shape: Shape, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """fill_value everywhere."""
    return genesis.full(_shape(shape), fill_value, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`empty` of x's shape, dtype and device."""
    return genesis.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`zeros` of x's shape, dtype and device."""
    return genesis.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`ones` of x's shape, dtype and device."""
    return genesis.ones_like(x, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`full` of x's shape, dtype and device."""
    return genesis.full_like(x, fill_value, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    dtype = genesis.float32 if dtype is None else dtype
    rows = genesis.arange(n_rows, device=device).reshape(-1, 1)
    return (genesis.arange(columns, device=device) - rows == k).to(dtype)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Vectors as coordinates of a grid."""
    return list(genesis.meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangles of matrices."""
    return genesis.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangles of matrices."""
    return genesis.triu(x, k)
