"""Composite reductions: variance, norms, log Σ exp, and sums that look at which elements count."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.pointwise import (
    abs,
    bitwise_not,
    cast,
    eq,
    exp,
    isinf,
    isnan,
    log,
    ne,
    pow,
    sign,
    sqrt,
    where_,
)
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import REDUCE, max, min, over, reduced, reduced_shape, reduced_type, spread, sum
from genesis.ir.ops.samples import ANY, FLOAT, Array, Samples, case, cases, forward_only, np, reals
from genesis.ir.sym_int import real
from genesis.ir.types import TensorType, int64

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.node import Attr
    from genesis.ir.ops.entry import Attributes

Axes = tuple[int, ...]


def _count(x: Node, axes: Axes) -> int:
    return math.prod(x.type.shape[a] for a in axes)


# Variance

def _divisor(x: Node, axes: Axes, correction: float) -> float:
    """n - correction; where that is nothing the variance is NaN or infinite, as of 0 / 0 and x / 0."""
    found = _count(x, axes) - (int(correction) if correction == int(correction) else correction)
    return real(found) if found > 0 else 0.0


def _var(x: Node, axes: Axes, keepdims: bool, correction: float) -> Node:
    wider = upcast(x)
    centred = wider - spread(sum(wider, axes=axes, keepdims=True) / (real(_count(x, axes)) or math.nan), x, axes)
    return downcast(sum(centred * centred, axes=axes, keepdims=keepdims) / _divisor(x, axes, correction), x)


def _var_vjp(g: Node, x: Node, y: Node, axes: Axes, keepdims: bool, correction: float) -> Node:
    wider = upcast(x)
    mean = sum(wider, axes=axes, keepdims=True) / (real(_count(x, axes)) or math.nan)
    slope = literal(2.0) / (_divisor(x, axes, correction) or math.nan)
    return downcast(spread(upcast(g), x, axes) * slope * (wider - spread(mean, x, axes)), x)


def _std_vjp(g: Node, x: Node, y: Node, axes: Axes, keepdims: bool, correction: float) -> Node:
    """The gradient; that of equal elements is 0, as in torch."""
    slope = where_(eq(y, literal(0)), 0.0, g / (y * 2))
    return _var_vjp(slope, x, y, axes, keepdims, correction)


def _variance_type(x: TensorType, axes: Axes, keepdims: bool, correction: float) -> TensorType:
    if x.dtype.kind != "float":
        raise RuntimeError(f"only floating-point dtypes are supported, not {x.dtype!r}")
    return reduced_type(x, axes, keepdims)


def _variance_samples() -> Samples:
    shapes: tuple[tuple[tuple[int, ...], Axes], ...] = (
        ((5,), (0,)), ((3, 4), (1,)), ((3, 70), (0, 1)), ((2, 3, 4), (0, 2)), ((0, 3), (1,)))
    found = [case(reals().of(*shape), axes=axes, keepdims=keep, correction=correction)
             for shape, axes in shapes for keep, correction in ((False, 1), (True, 0))]
    return cases(*found, case(Array((1.0, math.nan, 2.0)), axes=(0,), keepdims=False, correction=1), scale=4)


_VARIANCE: Attributes = {"attrs": ("axes", "keepdims", "correction"), "defaults": {"keepdims": False,
                                                                                      "correction": 1}}

var: Op = Op("var", "composite", _variance_type, **_VARIANCE, decompose=_var, vjp=_var_vjp, ulp=8,
             doc="Σ (x - mean)² / (n - correction) over the axes.", samples=_variance_samples(),
             reference=lambda x, axes, keepdims, correction: np.var(x, axes, ddof=correction, keepdims=keepdims))
std: Op = Op("std", "composite", _variance_type, **_VARIANCE, vjp=_std_vjp, ulp=8,
             decompose=lambda x, axes, keepdims, correction: sqrt(
                 var(x, axes=axes, keepdims=keepdims, correction=correction)),
             doc="The square root of the variance.", samples=_variance_samples(),
             reference=lambda x, axes, keepdims, correction: np.std(x, axes, ddof=correction, keepdims=keepdims))


# Norms

def _norm_type(x: TensorType, axes: Axes, keepdims: bool, p: float) -> TensorType:
    if x.dtype.kind != "float":
        raise RuntimeError(f"expected a floating-point tensor, got {x.dtype!r}")
    if (p < 0 or p == math.inf) and any(x.shape[a] == 0 for a in axes):
        raise RuntimeError(f"the norm of order {p} has no identity: there is no element along {axes} of {x.shape}")
    return reduced_type(x, axes, keepdims)


def _norm(x: Node, axes: Axes, keepdims: bool, p: float) -> Node:
    wider = upcast(x)
    size = abs(wider)
    how: dict[str, Attr] = {"axes": axes, "keepdims": keepdims}
    if math.isinf(p):
        return downcast((max if p > 0 else min)(size, **how), x)
    if p == 0:
        return downcast(sum(cast(ne(wider, literal(0)), dtype=wider.type.dtype), **how), x)
    if p == 1:
        return downcast(sum(size, **how), x)
    if p == 2:
        return downcast(sqrt(sum(wider * wider, **how)), x)
    return downcast(pow(sum(pow(size, literal(float(p))), **how), literal(1 / p)), x)


def _norm_vjp(g: Node, x: Node, y: Node, axes: Axes, keepdims: bool, p: float) -> Node | None:
    """A subgradient where the norm has no gradient: 0 at 0, shared equally between elements tied for the maximum."""
    if p == 0:
        return None
    slope = spread(g, x, axes)
    if p == 1:
        return slope * sign(x)
    whole = spread(y, x, axes)
    if math.isinf(p):
        hit = cast(eq(abs(x), whole), dtype=x.type.dtype)
        return sign(x) * slope * hit / spread(sum(hit, axes=axes, keepdims=True), x, axes)
    at_zero = eq(whole, literal(0))
    safe = where_(at_zero, 1.0, whole)
    if p == 2:
        return where_(at_zero, 0.0, slope * (x / safe))
    flat = eq(x, literal(0))
    part = where_(flat, 0.0, sign(x) * pow(abs(where_(flat, 1.0, x)), literal(p - 1.0)))
    return where_(at_zero, 0.0, part * slope * pow(safe, literal(1.0 - p)))


def _norm_value(x: ndarray, axes: Axes, keepdims: bool, p: float) -> ndarray:
    size = np.abs(x)
    if math.isinf(p):
        return (np.max if p > 0 else np.min)(size, axes, keepdims=keepdims)
    if p == 0:
        return np.sum(x != 0, axes, keepdims=keepdims)
    return np.sum(size**p, axes, keepdims=keepdims) ** (1 / p)


vector_norm: Op = Op("vector_norm", "composite", _norm_type, attrs=("axes", "keepdims", "p"), decompose=_norm,
                     defaults={"keepdims": False, "p": 2}, vjp=_norm_vjp, ulp=16,
                     doc="(Σ |x|^p)^(1/p) over the axes; the largest or smallest |x| for p = ±∞, for p = 0 the number "
                         "of elements that are not 0.",
                     samples=cases(*(case(reals().of(*shape), axes=axes, keepdims=keep, p=p)
                                     for shape, axes, keep in (((5,), (0,), False), ((3, 40), (1,), True),
                                                               ((2, 3, 4), (0, 2), False))
                                     for p in (2, 1, 3.5, 0.5, math.inf, -math.inf, 0))),
                     reference=_norm_value)


# log Σ exp

def _logsumexp(x: Node, axes: Axes, keepdims: bool) -> Node:
    """log Σ exp with the largest element taken out first, unless that is infinite."""
    wider = upcast(x)
    if _count(x, axes) == 0:
        return downcast(log(sum(exp(wider), axes=axes, keepdims=keepdims)), x)
    top = max(wider, axes=axes, keepdims=True)
    top = where_(isinf(top), 0.0, top)
    total = log(sum(exp(wider - spread(top, x, axes)), axes=axes, keepdims=True)) + top
    return downcast(reshape(total, shape=reduced_shape(x.type.shape, axes, keepdims)), x)


def _logsumexp_vjp(g: Node, x: Node, y: Node, axes: Axes, keepdims: bool) -> Node:
    return spread(g, x, axes) * exp(x - spread(y, x, axes))


logsumexp: Op = Op("logsumexp", "composite", lambda x, axes, keepdims: _float_type("logsumexp", x, axes, keepdims),
                   **REDUCE, decompose=_logsumexp, vjp=_logsumexp_vjp, ulp=8,
                   doc="log Σ exp(x) over the axes, without overflow.",
                   samples=cases(*(case(reals(-4, 4).of(*s), axes=a, keepdims=k)
                                   for s, a in (((5,), (0,)), ((3, 70), (1,)), ((2, 3, 4), (0, 2)))
                                   for k in (False, True)),
                                 forward_only(case(reals().of(0, 3), axes=(0,), keepdims=False)), scale=4),
                   reference=lambda x, axes, keepdims: np.log(np.sum(np.exp(x), axes, keepdims=keepdims)))


def _float_type(name: str, x: TensorType, axes: Axes, keepdims: bool) -> TensorType:
    if x.dtype.kind != "float":
        raise RuntimeError(f"{name} is for floating-point dtypes, not {x.dtype!r}")
    return reduced_type(x, axes, keepdims)


# What counts

def _nansum_vjp(g: Node, x: Node, y: Node, axes: Axes, keepdims: bool) -> Node:
    return where_(isnan(x), 0.0, spread(g, x, axes))


nansum: Op = Op("nansum", "composite", lambda x, axes, keepdims: _float_type("nansum", x, axes, keepdims), **REDUCE,
                decompose=lambda x, axes, keepdims: sum(where_(isnan(x), 0.0, x), axes=axes, keepdims=keepdims),
                vjp=_nansum_vjp, ulp=4, doc="Sum of the elements that are not NaN.",
                samples=over(reals(), FLOAT, scale=4), reference=reduced(np.nansum))


def _nanmean(x: Node, axes: Axes, keepdims: bool) -> Node:
    wider = upcast(x)
    count = sum(cast(bitwise_not(isnan(wider)), dtype=wider.type.dtype), axes=axes, keepdims=keepdims)
    return downcast(nansum(wider, axes=axes, keepdims=keepdims) / count, x)


nanmean: Op = Op("nanmean", "composite", lambda x, axes, keepdims: _float_type("nanmean", x, axes, keepdims), **REDUCE,
                 decompose=_nanmean, ulp=4, doc="Mean of the elements that are not NaN; NaN of none.",
                 samples=over(reals(), FLOAT, empty=False, scale=4), reference=reduced(np.nanmean))


def _count_type(x: TensorType, axes: Axes, keepdims: bool) -> TensorType:
    return reduced_type(x, axes, keepdims).with_dtype(int64)


def _count_nonzero(x: Node, axes: Axes, keepdims: bool) -> Node:
    return sum(cast(ne(x, literal(0)), dtype=int64), axes=axes, keepdims=keepdims)


count_nonzero: Op = Op("count_nonzero", "composite", _count_type, **REDUCE, decompose=_count_nonzero,
                       differentiable=False, doc="Number of elements over the axes that are not 0.",
                       samples=over(reals(-1, 1), ANY), reference=reduced(np.count_nonzero))

