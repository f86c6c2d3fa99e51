"""Reductions and scans. Low-precision sums accumulate in float32."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from genesis.ir.node import Node, Op, broadcast, literal
from genesis.ir.ops.movement import expand, flip, reshape
from genesis.ir.ops.pointwise import cast, eq, where_
from genesis.ir.ops.samples import ANY, FLOAT, NUMERIC, Array, Samples, Values, case, cases, np, reals
from genesis.ir.types import TensorType, bool_, int64, tensor_type


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """`shape` after reducing `axes`.

    >>> reduced_shape((2, 3, 4), (1,), True), reduced_shape((2, 3, 4), (1,), False)
    ((2, 1, 4), (2, 4))
    """
    if keepdims:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def _type(x: TensorType, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    if builtins.any(not 0 <= a < x.ndim for a in axes) or len(set(axes)) != len(axes):
        raise IndexError(f"axes {axes} are not distinct dimensions of shape {x.shape}")
    return x.with_shape(reduced_shape(x.shape, axes, keepdims))


def _type_of_some(x: TensorType, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    if builtins.any(x.shape[a] == 0 for a in axes):
        raise IndexError(f"no element to reduce: shape {x.shape} has size 0 along {axes}")
    return _type(x, axes, keepdims)


def _bool_type(x: TensorType, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    return _type(x, axes, keepdims).with_dtype(bool_)


def _index_type(x: TensorType, axis: int, keepdims: bool) -> TensorType:
    return _type_of_some(x, (axis,), keepdims).with_dtype(int64)


def spread(reduced: Node, x: Node, axes: tuple[int, ...]) -> Node:
    """A reduction's result repeated over the shape it was reduced from."""
    kept = reshape(reduced, shape=reduced_shape(x.type.shape, axes, keepdims=True))
    return expand(kept, shape=x.type.shape)


def _extremum_vjp(g: Node, x: Node, y: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """Elements tied for the extremum share the gradient equally, as torch's amax does."""
    hit = cast(eq(x, spread(y, x, axes)), dtype=x.type.dtype)
    return hit * spread(g, x, axes) / spread(sum(hit, axes=axes, keepdims=True), x, axes)


def _prod_vjp(g: Node, x: Node, y: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """g · product of the others, exact where x is 0: products before and after each element."""
    moved = tuple(i for i in range(x.type.ndim) if i not in axes) + axes
    from genesis.ir.ops.movement import inverse, permute
    kept = tuple(x.type.shape[i] for i in moved[:x.type.ndim - len(axes)])
    count = 1
    for a in axes:
        count *= x.type.shape[a]
    rows = reshape(permute(x, axes=moved), shape=(*kept, count))
    others = _exclusive_products(rows)
    back = permute(reshape(others, shape=tuple(x.type.shape[i] for i in moved)), axes=inverse(moved))
    return spread(g, x, axes) * back


def _exclusive_products(rows: Node) -> Node:
    from genesis.ir.ops.movement import pad, take_range
    axis = rows.type.ndim - 1
    size = rows.type.shape[axis]
    if size == 0:
        return rows
    low = (0,) * axis + (1,)
    none = (0,) * (axis + 1)
    before = cumprod(pad(take_range(rows, axis, 0, size - 1), low=low, high=none, value=1), axis=axis)
    turned = flip(rows, axes=(axis,))
    after = flip(cumprod(pad(take_range(turned, axis, 0, size - 1), low=low, high=none, value=1), axis=axis),
                 axes=(axis,))
    return before * after


def _over(values: Values, kinds: tuple[str, ...], empty: bool = True, scale: float = 0.0) -> Samples:
    """Several shapes and axes; with `empty` also sums of nothing."""
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((), ()), ((5,), (0,)), ((3, 4), (1,)), ((3, 4), (0,)), ((3, 70), (1,)), ((70, 3), (0,)), ((2, 3, 4), (0, 2)),
        ((2, 3), (0, 1)), ((2, 3), ()),
        ((0, 3), (1,)), *([((0, 3), (0,)), ((2, 0), (0, 1))] if empty else []))
    found = [case(values.of(*s), axes=a, keepdims=k) for s, a in shapes for k in (False, True)]
    if "float" in kinds:
        found.append(case(Array((1.0, float("nan"), 2.0)), axes=(0,), keepdims=False))
        found.append(case(Array((1.0, float("inf"), 2.0)), axes=(0,), keepdims=False))
    return cases(*found, kinds=kinds, scale=scale)


def _along(values: Values, kinds: tuple[str, ...]) -> Samples:
    """Along one axis, with ties and NaN: the first one counts."""
    return cases(case(values.of(3, 70), axis=1, keepdims=False), case(values.of(3, 4), axis=0, keepdims=True),
                 case(Array((1.0, 0.0, 1.0, 0.0)), axis=0, keepdims=False),
                 case(values.of(2, 1), axis=1, keepdims=False),
                 case(Array((1.0, float("nan"), 3.0, float("nan"))), axis=0, keepdims=False), kinds=kinds)


def _scanned(values: Values) -> Samples:
    return cases(case(values.of(5), axis=0), case(values.of(3, 4), axis=0), case(values.of(2, 3, 4), axis=2),
                 case(values.of(0, 2), axis=0), kinds=NUMERIC, scale=2)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    """A numpy reduction with the op's attributes."""
    return lambda x, axes, keepdims: function(x, axes, keepdims=keepdims)


_REDUCE: dict[str, Any] = {"attrs": ("axes", "keepdims"), "defaults": {"keepdims": False}}

sum = Op("sum", "reduction", _type, **_REDUCE, doc="Sum over the axes; 0 of nothing.", ulp=4,
         vjp=lambda g, x, y, axes, keepdims: spread(g, x, axes),
         samples=_over(reals(), NUMERIC, scale=4), reference=_reduced(np.sum))
prod = Op("prod", "reduction", _type, **_REDUCE, doc="Product over the axes; 1 of nothing.", vjp=_prod_vjp, ulp=8,
          samples=_over(reals(0.5, 2), NUMERIC), reference=_reduced(np.prod))
max = Op("max", "reduction", _type_of_some, **_REDUCE, doc="Largest element over the axes; NaN if any is.",
         vjp=_extremum_vjp,
         samples=_over(reals(), ANY, empty=False), reference=_reduced(np.max))
min = Op("min", "reduction", _type_of_some, **_REDUCE, doc="Smallest element over the axes; NaN if any is.",
         vjp=_extremum_vjp,
         samples=_over(reals(), ANY, empty=False), reference=_reduced(np.min))
any = Op("any", "reduction", _bool_type, **_REDUCE, doc="True if any element over the axes is not 0.",
         samples=_over(reals(-0.5, 1), ANY), reference=_reduced(np.any))
all = Op("all", "reduction", _bool_type, **_REDUCE, doc="True if every element over the axes is not 0.",
         samples=_over(reals(-0.5, 1), ANY), reference=_reduced(np.all))

_ARG: dict[str, Any] = {"attrs": ("axis", "keepdims"), "defaults": {"keepdims": False}}

argmax = Op("argmax", "reduction", _index_type, **_ARG,
            doc="Index of the first largest element (the first NaN if any).",
            samples=_along(reals(), ANY), reference=lambda x, axis, keepdims: np.argmax(x, axis, keepdims=keepdims))
argmin = Op("argmin", "reduction", _index_type, **_ARG,
            doc="Index of the first smallest element (the first NaN if any).",
            samples=_along(reals(), ANY), reference=lambda x, axis, keepdims: np.argmin(x, axis, keepdims=keepdims))


def _mean(x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    count = 1
    for a in axes:
        count *= x.type.shape[a]
    return sum(x, axes=axes, keepdims=keepdims) / (float(count) if count else float("nan"))


mean = Op("mean", "composite", _type, **_REDUCE, doc="Arithmetic mean over the axes; NaN of nothing.", decompose=_mean,
          ulp=4,
          samples=_over(reals(), FLOAT, empty=False, scale=2), reference=_reduced(np.mean))

cumsum: Op = Op("cumsum", "scan", lambda x, axis: x, attrs=("axis",), doc="Sums of x[0..i] along the axis.",
                vjp=lambda g, x, y, axis: flip(cumsum(flip(g, axes=(axis,)), axis=axis), axes=(axis,)),
                samples=_scanned(reals()), reference=lambda x, axis: np.cumsum(x, axis))


def _cumprod_vjp(g: Node, x: Node, y: Node, axis: int) -> Node:
    """Σ over j ≥ i of g_j · Π of x_k for k ≤ j, k ≠ i; by rows of a triangle, so exact where x is 0."""
    from genesis.ir.ops.leaves import iota
    rank, size = x.type.ndim, x.type.shape[axis]
    moved = tuple(i for i in range(rank) if i != axis) + (axis,)
    from genesis.ir.ops.movement import inverse, permute
    rows = permute(x, axes=moved)
    shape = (*rows.type.shape[:-1], size, size)  # [..., i, k]: x_k with x_i replaced by 1, and 0 for j < i
    repeated = expand(reshape(rows, shape=(*rows.type.shape[:-1], 1, size)), shape=shape)
    i = iota(shape=shape, axis=rank - 1, dtype=int64, device=x.type.device)
    k = iota(shape=shape, axis=rank, dtype=int64, device=x.type.device)
    from genesis.ir.ops.pointwise import ge
    others = cumprod(where_(eq(i, k), 1.0, repeated), axis=rank)
    others = where_(ge(k, i), others, 0.0)
    spread_g = expand(reshape(permute(g, axes=moved), shape=(*rows.type.shape[:-1], 1, size)), shape=shape)
    return permute(sum(spread_g * others, axes=(rank,)), axes=inverse(moved))


cumprod = Op("cumprod", "scan", lambda x, axis: x, attrs=("axis",), doc="Products of x[0..i] along the axis.",
             vjp=_cumprod_vjp, samples=_scanned(reals(0.5, 2)), reference=lambda x, axis: np.cumprod(x, axis))

__all__ = ["all", "any", "argmax", "argmin", "broadcast", "cumprod", "cumsum", "literal", "max", "mean", "min", "prod",
           "reduced_shape", "spread", "sum", "tensor_type"]
