"""Searching, sorting, sets."""

from __future__ import annotations

from typing import Any, NamedTuple

import genesis
from genesis import Tensor
from genesis.array_api import statistics


class UniqueAll(NamedTuple):
    """Distinct values, where each is first, which one each element is, and how often each occurs."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct values and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct values and which one each element is."""

    values: Tensor
    inverse_indices: Tensor


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first largest element."""
    return genesis.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first smallest element."""
    return genesis.argmin(x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The number of elements that are not 0."""
    return statistics.sum(x != 0, axis=axis, keepdims=keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Indices of the elements that are not 0, an array for each dimension."""
    if x.ndim == 0:
        raise ValueError("nonzero is not defined for arrays without dimensions")
    return genesis.nonzero(x, as_tuple=True)


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """The indices at which x2's elements go into x1 so that it stays sorted."""
    return genesis.searchsorted(x1, x2, side=side, sorter=sorter)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """x between min and max, in x's dtype."""
    return x.clone() if min is None and max is None else genesis.clip(x, min, max).to(x.dtype)


def round(x: Tensor, /) -> Tensor:
    """The nearest integer, halves to even ones."""
    return genesis.round(x)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis."""
    return genesis.sort(x, dim=axis, descending=descending, stable=True)[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that sort."""
    return genesis.sort(x, dim=axis, descending=descending, stable=True)[1]


def unique_all(x: Tensor, /) -> UniqueAll:
    """Distinct values with all about them."""
    values, inverse, counts = genesis.unique(x, return_inverse=True, return_counts=True)
    flat = genesis.ravel(inverse)
    places = genesis.arange(flat.numel(), device=x.device)
    first = genesis.full((values.numel(),), flat.numel(), dtype=genesis.int64, device=x.device)
    first = genesis.scatter_reduce(first, 0, flat, places, "amin") if flat.numel() else first
    return UniqueAll(values, first, inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Distinct values and their counts."""
    values, counts = genesis.unique(x, return_counts=True)
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Distinct values, and the number of each element's."""
    values, inverse = genesis.unique(x, return_inverse=True)
    return UniqueInverse(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """Distinct values."""
    return genesis.unique(x)
