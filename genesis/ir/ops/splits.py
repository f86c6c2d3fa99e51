"""Split reductions: many programs reduce a split of the elements each, then one kernel reduces their results.

`passes/graph/split_reductions.py` makes them where a single program for each result would leave most of a GPU idle.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.ops import reduction
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import expand, pad, permute, reshape
from genesis.ir.ops.pointwise import cast, div, exp, isinf, lt, maximum, minimum, mul, sub, where_
from genesis.ir.ops.samples import Samples, case, cases, np, reals
from genesis.ir.types import Device, DType, TensorType, bool_, float32, int64, tensor_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy import ndarray

SPREADS = ("squares", "exponentials")
"""What a split is reduced to around a number of its own, so that one reading of it gives both: the sum of the squares
around its mean, beside its sum, and the sum of exp(x - its maximum), beside that; of exp(x) where that is infinite."""

IDENTITY = {"squares": 0, "exponentials": float("-inf"), "sum": 0, "prod": 1, "any": False, "all": True}
"""The number that leaves a reduction as it is. A maximum has the smallest number of its dtype."""


def split_length(count: int, splits: int, multiple: int) -> int:
    """The elements of every split but the last ones, which may have fewer or none.

    >>> split_length(100, 8, 1), split_length(100, 8, 16)
    (13, 16)
    """
    shortest = -(-count // splits)
    return -(-shortest // multiple) * multiple


def split_start(count: int, splits: int, multiple: int, at: int) -> int:
    """The first element of the split `at` (of `splits`, their end) where blocks of `multiple` elements are shared out
    evenly: none is empty where there are as many blocks.

    >>> [split_start(100, 3, 16, at) for at in range(4)], [split_start(32, 3, 16, at) for at in range(4)]
    ([0, 32, 64, 100], [0, 0, 16, 32])
    """
    return count if at == splits else at * -(-count // multiple) // splits * multiple


def accumulated(how: str, dtype: DType) -> DType:
    """The dtype of a reduction before it is rounded."""
    if how in ("any", "all"):
        return bool_
    return float32 if how in ("sum", "prod", *SPREADS) and dtype.kind == "float" and dtype.itemsize == 2 else dtype


def identity(how: str, dtype: DType) -> int | float | bool:
    """The number of a dtype that changes no reduction."""
    if how in IDENTITY:
        return IDENTITY[how]
    if dtype.kind == "float":
        return float("-inf") if how == "max" else float("inf")
    bound = dtype.min if how == "max" else dtype.max
    assert bound is not None
    return int(bound)


def _type(x: TensorType, how: str, axes: tuple[int, ...], splits: int, multiple: int) -> TensorType:
    if how not in reduction_of and (how not in SPREADS or x.dtype.kind != "float"):
        raise RuntimeError(f"no reduction of {x.dtype} is named {how!r}")
    if any(not 0 <= a < x.ndim for a in axes) or len(set(axes)) != len(axes):
        raise IndexError(f"axes {axes} are not distinct dimensions of shape {x.shape}")
    kept = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    return tensor_type((splits, *kept), accumulated(how, x.dtype), x.device)


def _decompose(x: Node, how: str, axes: tuple[int, ...], splits: int, multiple: int) -> Node:
    kept = tuple(axis for axis in range(x.type.ndim) if axis not in axes)
    sizes = tuple(x.shape[axis] for axis in kept)
    count = prod(x.shape[axis] for axis in axes)
    length = split_length(count, splits, multiple)
    flat = reshape(permute(x, axes=(*sorted(axes), *kept)), shape=(count, *sizes))
    none = (0,) * len(sizes)
    padded = pad(flat, low=(0, *none), high=(splits * length - count, *none), value=identity(how, x.dtype))
    by_split = reshape(padded, shape=(splits, length, *sizes))
    upcast = by_split if how in ("any", "all") else cast(by_split, dtype=accumulated(how, x.dtype))
    return _spread(upcast, how, count, length) if how in SPREADS else reduction_of[how](upcast, axes=(1,))


def _spread(parts: Node, how: str, count: int, length: int) -> Node:
    """Dimension 1 of the padded splits is reduced around a number of each."""
    shape = parts.shape
    if how == "exponentials":
        largest = expand(reduction.max(parts, axes=(1,), keepdims=True), shape=shape)
        return reduction.sum(exp(sub(parts, where_(isinf(largest), 0.0, largest))), axes=(1,))
    counts = split_counts(count, shape[0], length, parts.dtype, parts.type.device)
    counts = reshape(counts, shape=(shape[0], *(1 for _ in shape[1:])))
    means = div(reduction.sum(parts, axes=(1,), keepdims=True), expand(maximum(counts, 1.0), shape=(
        shape[0], 1, *shape[2:])))
    at = [iota(shape=shape, axis=axis, dtype=int64, device=parts.type.device) for axis in (0, 1)]
    inside = lt(at[0] * length + at[1], count)
    off = where_(inside, sub(parts, expand(means, shape=shape)), 0.0)
    return reduction.sum(mul(off, off), axes=(1,))


def split_counts(count: int, splits: int, length: int, dtype: DType, device: Device) -> Node:
    """How many elements each split has."""
    begins = mul(iota(shape=(splits,), axis=0, dtype=int64, device=device), length)
    left = maximum(sub(count, begins), 0)
    return cast(minimum(left, length), dtype=dtype)


def _value(x: ndarray, how: str, axes: tuple[int, ...], splits: int, multiple: int) -> ndarray:
    kept = [size for axis, size in enumerate(x.shape) if axis not in axes]
    flat = np.moveaxis(x, sorted(axes), range(len(axes))).reshape(-1, *kept)
    length = split_length(len(flat), splits, multiple)
    functions: dict[str, Callable[..., ndarray]] = {
        "sum": np.sum, "prod": np.prod, "any": np.any, "all": np.all, "max": np.max, "min": np.min,
        "squares": lambda part, axis: np.sum((part - part.mean(axis)) ** 2, axis),
        "exponentials": lambda part, axis: np.exp(part - part.max(axis)).sum(axis)}
    parts = [flat[split * length:(split + 1) * length] for split in range(splits)]
    nothing = 0 if how in SPREADS else IDENTITY.get(how, float("-inf") if how == "max" else float("inf"))
    return np.stack([functions[how](part, 0) if len(part) else np.full(kept, nothing) for part in parts])


def _samples() -> Samples:
    """All axes, some, splits that do not come out even, and empty ones."""
    rows = (((7, 3), (0,), 3, 1), ((4, 5), (0, 1), 2, 8), ((5,), (0,), 4, 1), ((3, 4, 5), (0, 2), 4, 1),
            ((2, 9), (1,), 3, 4))
    return cases(*(case(reals().of(*shape), how="sum", axes=axes, splits=splits, multiple=multiple)
                   for shape, axes, splits, multiple in rows),
                 *(case(reals().of(7, 3), how=how, axes=(0,), splits=3, multiple=1) for how in SPREADS), scale=4)


reduction_of: dict[str, Op] = {name: getattr(reduction, name) for name in ("sum", "prod", "max", "min", "any", "all")}

reduce_splits: Op = Op("reduce_splits", "reduction", _type, attrs=("how", "axes", "splits", "multiple"),
                       decompose=_decompose,
                     doc="The elements along the axes, in row-major order, cut into `splits` parts of one length (a "
                         "multiple of `multiple`; the last ones are shorter, or empty) and each reduced: dimension 0 "
                         "of the result counts these parts. Sums and products of 16-bit floats stay float32. "
                         "`squares` and `exponentials` are sums around a number of each part (`SPREADS`).",
                     ulp=4, samples=_samples(), reference=_value)
