"""Scattering that combines what meets: products, means, largest and smallest elements.

Sums are `scatter_add`. The others are found by sorting: of elements in ascending order written one after another the
last to stay is the largest; a product runs through elements that are sorted by their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.ops.control import item
from genesis.ir.ops.indexing import gather, gather_type, index_add, index_copy, take
from genesis.ir.ops.leaves import full, full_like, iota, zeros_like
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.pointwise import cast, eq, floor_divide, maximum, minimum, mul, ne, where_
from genesis.ir.ops.samples import NUMERIC, case, cases, integers, np, reals
from genesis.ir.ops.scan import recurrence, shifted
from genesis.ir.ops.sorting import sort
from genesis.ir.types import TensorType, bool_, float32, float64, int64

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy import ndarray

    from genesis.ir.ops.samples import Samples

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _type(base: TensorType, index: TensorType, source: TensorType, axis: int, reduce: str,
          include_self: bool) -> TensorType:
    gather_type(base, index, axis)
    if source is not base.with_shape(index.shape):
        raise RuntimeError(f"source {source} does not fit the index of shape {index.shape} and base {base}")
    if reduce not in REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    return base


def places(shape: tuple[int, ...], index: Node, axis: int) -> Node:
    """The position of each element of an index in a tensor of this shape, in row-major order, flat."""
    place, stride = full(index.type.shape, 0, int64, index.type.device), 1
    for d in reversed(range(len(shape))):
        at = cast(index, dtype=int64) if d == axis else iota(shape=index.type.shape, axis=d, dtype=int64,
                                                           device=index.type.device)
        place = place + at * stride
        stride *= shape[d]
    return reshape(place, shape=(index.type.numel,))


def _decomposed(base: Node, index: Node, source: Node, axis: int, reduce: str, include_self: bool) -> Node:
    count = base.type.numel
    flat = reshape(base, shape=(count,))
    values = reshape(source, shape=(source.type.numel,))
    at = places(base.type.shape, index, axis)
    touched = index_copy(full((count,), False, bool_, base.type.device), at,
                         full((values.type.numel,), True, bool_, base.type.device), axis=0)
    found = _COMBINED[reduce](flat, values, at, touched, include_self)
    return reshape(found, shape=base.type.shape)


def _summed(flat: Node, values: Node, at: Node, touched: Node, include_self: bool) -> Node:
    start = flat if include_self else where_(touched, zeros_like(flat), flat)
    return index_add(start, at, values, axis=0)


def _mean(flat: Node, values: Node, at: Node, touched: Node, include_self: bool) -> Node:
    summed_in = float32 if flat.type.dtype.itemsize < 4 and flat.type.dtype.kind == "float" else flat.type.dtype
    total = _summed(cast(flat, dtype=summed_in), cast(values, dtype=summed_in), at, touched, include_self)
    ones = full_like(cast(values, dtype=summed_in), 1)
    start = full(flat.type.shape, 1 if include_self else 0, summed_in, flat.type.device)
    counts = maximum(index_add(start, at, ones, axis=0), full_like(start, 1))
    found = total / counts if summed_in.kind == "float" else floor_divide(total, counts)
    return cast(where_(touched, found, cast(flat, dtype=summed_in)), dtype=flat.type.dtype)


def _extreme(largest: bool) -> Callable[..., Node]:
    def found(flat: Node, values: Node, at: Node, touched: Node, include_self: bool) -> Node:
        turned = not largest and values.type.dtype.kind == "float"  # so that NaN, sorted last, stays
        ordered = sort(-values if turned else values, axis=0, descending=not largest and not turned)
        kept, order = item(ordered, index=0), item(ordered, index=1)
        last = index_copy(flat, take(at, order, axis=0), -kept if turned else kept, axis=0)
        both = (maximum if largest else minimum)(flat, last)
        return where_(touched, both if include_self else last, flat)
    return found


def _product(flat: Node, values: Node, at: Node, touched: Node, include_self: bool) -> Node:
    summed_in = float64 if values.type.dtype.kind == "int" or values.type.dtype is float64 else float32
    ordered = sort(at, axis=0, descending=False)
    where, order = item(ordered, index=0), item(ordered, index=1)
    x = cast(take(values, order, axis=0), dtype=summed_in)
    first = ne(where, shifted(where, 0, 1, -1))
    runs = recurrence(where_(first, zeros_like(x), x), where_(first, x, zeros_like(x)), axis=0, reverse=False)
    products = index_copy(full(flat.type.shape, 1, summed_in, flat.type.device), where, runs, axis=0)
    start = cast(flat, dtype=summed_in)
    found = products * start if include_self else products
    return cast(where_(touched, found, start), dtype=flat.type.dtype)


_COMBINED = {"sum": _summed, "mean": _mean, "prod": _product, "amax": _extreme(True), "amin": _extreme(False)}


def _vjp(g: Node, base: Node, index: Node, source: Node, y: Node, axis: int, reduce: str,
         include_self: bool) -> tuple[Node, None, Node]:
    to_base, to_source = _GRADIENTS[reduce](g, base, index, source, y, axis, include_self)
    return to_base, None, to_source


def _counts(base: Node, index: Node, axis: int, of: Node, start: Node) -> Node:
    """start with `of`'s elements added at the index."""
    flat = index_add(reshape(start, shape=(base.type.numel,)), places(base.type.shape, index, axis),
                     reshape(of, shape=(of.type.numel,)), axis=0)
    return reshape(flat, shape=base.type.shape)


def _reached(base: Node, index: Node, axis: int) -> Node:
    """The number of elements that meet at each place."""
    return _counts(base, index, axis, full(index.type.shape, 1, base.type.dtype, base.type.device), zeros_like(base))


def _sum_gradient(g: Node, base: Node, index: Node, source: Node, y: Node, axis: int,
                  include_self: bool) -> tuple[Node, Node]:
    to_base = g if include_self else where_(eq(_reached(base, index, axis), 0.0), g, 0.0)
    return to_base, gather(g, index, axis=axis)


def _mean_gradient(g: Node, base: Node, index: Node, source: Node, y: Node, axis: int,
                   include_self: bool) -> tuple[Node, Node]:
    reached = _reached(base, index, axis)
    share = g / maximum(reached + (1.0 if include_self else 0.0), full_like(reached, 1))
    to_base = where_(eq(reached, 0.0), g, share if include_self else zeros_like(g))
    return to_base, gather(share, index, axis=axis)


def _extreme_gradient(g: Node, base: Node, index: Node, source: Node, y: Node, axis: int,
                      include_self: bool) -> tuple[Node, Node]:
    """Elements that are the extreme share the gradient evenly."""
    dtype = base.type.dtype
    hit = cast(eq(source, gather(y, index, axis=axis)), dtype=dtype)
    own = cast(eq(base, y), dtype=dtype)
    if not include_self:
        own = where_(eq(_reached(base, index, axis), 0.0), own, 0.0)
    share = g / maximum(_counts(base, index, axis, hit, own), full_like(own, 1))
    return share * own, gather(share, index, axis=axis) * hit


def _product_gradient(g: Node, base: Node, index: Node, source: Node, y: Node, axis: int,
                      include_self: bool) -> tuple[Node, Node]:
    """The product of the others: of all over this one, or where one is 0 of all that are not.

    Where one of the others is 0 so is that, but not its derivative by that one: it is written as that one's value times
    the product of the rest.
    """
    dtype = base.type.dtype
    untouched = eq(_reached(base, index, axis), 0.0)
    start = base if include_self else where_(untouched, base, 1.0)
    zero, own_zero = cast(eq(source, 0.0), dtype=dtype), cast(eq(start, 0.0), dtype=dtype)
    filled, own_filled = where_(eq(source, 0.0), 1.0, source), where_(eq(start, 0.0), 1.0, start)
    whole = scatter_reduce(own_filled, index, filled, axis=axis, reduce="prod", include_self=True)
    zeros = _counts(base, index, axis, zero, own_zero)
    null, own_null = where_(eq(source, 0.0), source, 0.0), where_(eq(start, 0.0), start, 0.0)  # 0, each with its own
    nulls = _counts(base, index, axis, null, own_null)  # derivative

    def of_others(x: Node, is_zero: Node, own: Node, total: Node, count: Node, all_nulls: Node) -> Node:
        rest, others = total / x, count - is_zero
        return where_(eq(others, 0.0), rest, where_(eq(others, 1.0), (all_nulls - own) * rest, 0.0))
    to_source = of_others(filled, zero, null, *[gather(x, index, axis=axis) for x in (whole, zeros, nulls)])
    to_base = g * of_others(own_filled, own_zero, own_null, whole, zeros, nulls)
    if not include_self:
        to_base = where_(untouched, g, 0.0)
    return to_base, mul(gather(g, index, axis=axis), to_source)


_GRADIENTS = {"sum": _sum_gradient, "mean": _mean_gradient, "prod": _product_gradient, "amax": _extreme_gradient,
              "amin": _extreme_gradient}


def _value(base: ndarray, index: ndarray, source: ndarray, axis: int, reduce: str, include_self: bool) -> ndarray:
    reduces: dict[str, Callable[[list[float]], float]] = {
        "sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}
    met: dict[tuple[int, ...], list[float]] = {}
    for at in np.ndindex(index.shape):
        place = (*at[:axis], int(index[at]), *at[axis + 1:])
        met.setdefault(place, [float(base[place])] if include_self else []).append(float(source[at]))
    found = base.astype("float64")
    for place, values in met.items():
        found[place] = reduces[reduce](values)
    return np.floor(found) if base.dtype.kind == "i" else found


def _samples() -> Samples:
    return cases(*(case(reals().of(*shape), integers(0, shape[axis]).of(*index), reals().of(*index), axis=axis,
                        reduce=reduce, include_self=include)
                   for shape, index, axis in (((4, 3), (6, 3), 0), ((2, 5), (2, 4), 1), ((3,), (0,), 0))
                   for reduce in REDUCTIONS for include in (True, False)), kinds=NUMERIC, scale=8)


scatter_reduce: Op = Op("scatter_reduce", "composite", _type, attrs=("axis", "reduce", "include_self"),
                        defaults={"include_self": True}, decompose=_decomposed, vjp=_vjp, ulp=8, samples=_samples(),
                        reference=_value,
                        doc="base with the sum, product, mean, largest or smallest of all source[i..] that meet at "
                            "[i.. with index[i..] at the axis], base's own element among them with `include_self`.")

