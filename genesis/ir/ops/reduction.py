"""Reductions and scans. Low-precision sums accumulate in float32."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, broadcast, literal
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import cast, eq
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.samples import ANY, FLOAT, NUMERIC, Array, Samples, Values, case, cases, np, reals
from genesis.ir.ops.scan import cumprod, cumsum, shifted
from genesis.ir.sym_int import real
from genesis.ir.types import TensorType, bool_, int64, tensor_type

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.ops.entry import Attributes


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """`shape` after reducing `axes`.

    >>> reduced_shape((2, 3, 4), (1,), True), reduced_shape((2, 3, 4), (1,), False)
    ((2, 1, 4), (2, 4))
    """
    if keepdims:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def reduced_type(x: TensorType, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    if builtins.any(not 0 <= a < x.ndim for a in axes) or len(set(axes)) != len(axes):
        raise IndexError(f"axes {axes} are not distinct dimensions of shape {x.shape}")
    return x.with_shape(reduced_shape(x.shape, axes, keepdims))


def _type_of_some(x: TensorType, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    if builtins.any(x.shape[a] == 0 for a in axes):
        raise IndexError(f"no element to reduce: shape {x.shape} has size 0 along {axes}")
    return reduced_type(x, axes, keepdims)


def _bool_type(x: TensorType, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    return reduced_type(x, axes, keepdims).with_dtype(bool_)


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
    axis = rows.type.ndim - 1
    before = cumprod(shifted(rows, axis, 1, 1), axis=axis)
    return before * cumprod(shifted(rows, axis, -1, 1), axis=axis, reverse=True)


def over(values: Values, kinds: tuple[str, ...], empty: bool = True, scale: float = 0.0) -> Samples:
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
    """Samples along one axis, with ties and NaN: the first one counts."""
    return cases(case(values.of(3, 70), axis=1, keepdims=False), case(values.of(3, 4), axis=0, keepdims=True),
                 case(Array((1.0, 0.0, 1.0, 0.0)), axis=0, keepdims=False),
                 case(values.of(2, 1), axis=1, keepdims=False),
                 case(Array((1.0, float("nan"), 3.0, float("nan"))), axis=0, keepdims=False), kinds=kinds)


def reduced(function: Callable[..., ndarray]) -> Callable[..., ndarray]:
    """A numpy reduction with the op's attributes."""
    return lambda x, axes, keepdims: function(x, axes, keepdims=keepdims)


REDUCE: Attributes = {"attrs": ("axes", "keepdims"), "defaults": {"keepdims": False}}

sum = Op("sum", "reduction", reduced_type, **REDUCE, doc="Sum over the axes; 0 of nothing.", ulp=4, autocast="float32",
         associative=True,
         vjp=lambda g, x, y, axes, keepdims: spread(g, x, axes),
         samples=over(reals(), NUMERIC, scale=4), reference=reduced(np.sum))
prod = Op("prod", "reduction", reduced_type, **REDUCE, doc="Product over the axes; 1 of nothing.", vjp=_prod_vjp, ulp=8,
          associative=True,
          autocast="float32",
          samples=over(reals(0.5, 2), NUMERIC), reference=reduced(np.prod))
max = Op("max", "reduction", _type_of_some, **REDUCE, doc="Largest element over the axes; NaN if any is.",
         associative=True,
         vjp=_extremum_vjp,
         samples=over(reals(), ANY, empty=False), reference=reduced(np.max))
min = Op("min", "reduction", _type_of_some, **REDUCE, doc="Smallest element over the axes; NaN if any is.",
         associative=True,
         vjp=_extremum_vjp,
         samples=over(reals(), ANY, empty=False), reference=reduced(np.min))
any = Op("any", "reduction", _bool_type, **REDUCE, doc="True if any element over the axes is not 0.", associative=True,
         samples=over(reals(-0.5, 1), ANY), reference=reduced(np.any))
all = Op("all", "reduction", _bool_type, **REDUCE, doc="True if every element over the axes is not 0.",
         associative=True,
         samples=over(reals(-0.5, 1), ANY), reference=reduced(np.all))

_ARG: Attributes = {"attrs": ("axis", "keepdims"), "defaults": {"keepdims": False}}

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
    total = sum(upcast(x), axes=axes, keepdims=keepdims)  # a float16 may hold the mean, and not the sum
    return downcast(total / (real(count) if count else float("nan")), x)


mean = Op("mean", "composite", reduced_type, **REDUCE, doc="Arithmetic mean over the axes; NaN of nothing.",
          decompose=_mean, ulp=4,
          samples=over(reals(), FLOAT, empty=False, scale=2), reference=reduced(np.mean))

__all__ = ["all", "any", "argmax", "argmin", "broadcast", "cumprod", "cumsum", "literal", "max", "mean", "min", "prod",
           "reduced_shape", "spread", "sum", "tensor_type"]
