"""Layer norm and RMS norm: over the last `ndim` dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.ops.control import item
from genesis.ir.ops.movement import expand
from genesis.ir.ops.pointwise import common, rsqrt
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import mean, spread, sum
from genesis.ir.ops.samples import FLOAT, Samples, Values, case, cases, np, reals
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.ops.entry import Accurate


def _last_axes(x: Node, ndim: int) -> tuple[int, ...]:
    return tuple(range(x.type.ndim - ndim, x.type.ndim))


def _norm_type(x: TensorType, *affine: TensorType, ndim: int, eps: float) -> TensorType:
    shape = x.shape[x.ndim - ndim:] if ndim else ()
    for parameter in affine:
        if parameter.shape != shape:
            raise RuntimeError(f"weight and bias must have shape {shape}, the last {ndim} sizes of {x.shape}, "
                               f"not {parameter.shape}")
        if parameter.device is not x.device:
            raise RuntimeError(f"operands are on two devices, {x.device} and {parameter.device}")
    return common((x,), FLOAT)


def _normalized(x: Node, ndim: int, eps: float) -> tuple[Node, Node]:
    """((x - mean) / std, 1 / std), both in x's shape and at least float32."""
    w, axes = upcast(x), _last_axes(x, ndim)
    centred = w - spread(mean(w, axes=axes), w, axes)
    inverse = rsqrt(mean(centred * centred, axes=axes, keepdims=True) + eps)
    spread_inverse = expand(inverse, shape=w.type.shape)
    return centred * spread_inverse, spread_inverse


def statistics_of(x: Node, ndim: int, eps: float) -> tuple[Node, Node]:
    """(mean, 1 / √(variance + eps)) of each row, with dimensions of size 1 for those that they are over."""
    w, axes = upcast(x), _last_axes(x, ndim)
    middle = mean(w, axes=axes, keepdims=True)
    centred = w - expand(middle, shape=w.type.shape)
    inverse = rsqrt(mean(centred * centred, axes=axes, keepdims=True) + eps)
    return downcast(middle, x), downcast(inverse, x)


def _layer_norm(x: Node, *affine: Node, ndim: int, eps: float) -> Node:
    y, _ = _normalized(x, ndim, eps)
    if affine:
        y = y * upcast(affine[0])
    if len(affine) == 2:
        y = y + upcast(affine[1])
    return downcast(y, x)


def _layer_norm_vjp(g: Node, x: Node, *affine_and_y: Node, ndim: int, eps: float) -> tuple[Node, ...]:
    affine = affine_and_y[:-1]
    found = layer_norm_backward(g, x, *affine[:1], ndim=ndim, eps=eps)
    return tuple(item(found, index=i) for i in range(1 + len(affine)))


def _layer_norm_backward(g: Node, x: Node, *weight: Node, ndim: int, eps: float) -> tuple[Node, ...]:
    """dx = (h - mean(h) - x̂·mean(h·x̂)) / std with h = g·weight; dweight = Σ g·x̂; dbias = Σ g."""
    normalized, inverse = _normalized(x, ndim, eps)
    axes, rows = _last_axes(x, ndim), tuple(range(x.type.ndim - ndim))
    wg = upcast(g)
    h = wg * upcast(weight[0]) if weight else wg
    to_x = downcast(inverse * (h - spread(mean(h, axes=axes), h, axes)
                             - normalized * spread(mean(h * normalized, axes=axes), h, axes)), x)
    if not weight:
        return (to_x,)
    return (to_x, downcast(sum(wg * normalized, axes=rows), weight[0]), downcast(sum(wg, axes=rows), weight[0]))


def _backward_types(g: TensorType, x: TensorType, *weight: TensorType, ndim: int, eps: float) -> tuple[TensorType, ...]:
    return (x, *weight, *weight)


def _normed(*values: Values, affine: int) -> Samples:
    """Each set of parameters up to weight and bias, over one and over two dimensions."""
    shapes: tuple[tuple[tuple[int, ...], int], ...] = (((3, 8), 1), ((2, 3, 4), 2), ((1, 5), 1), ((2, 2, 37), 1))
    return cases(*(case(*(v.of(*s) for v in values), *[reals().of(*s[len(s) - n:])] * count, ndim=n, eps=1e-5)
                   for s, n in shapes for count in range(affine + 1)), scale=1)


def _layer_norm_value(x: ndarray, *affine: ndarray, ndim: int, eps: float) -> ndarray:
    axes = tuple(range(-ndim, 0))
    y = (x - np.mean(x, axes, keepdims=True)) / np.sqrt(np.var(x, axes, keepdims=True) + eps)
    return y * (affine[0] if affine else 1) + (affine[1] if len(affine) > 1 else 0)


def _rms_norm_value(x: ndarray, *weight: ndarray, ndim: int, eps: float) -> ndarray:
    scale = np.sqrt(np.mean(x * x, tuple(range(-ndim, 0)), keepdims=True) + eps)
    return x / scale * (weight[0] if weight else 1)


_NORM: Accurate = {"attrs": ("ndim", "eps"), "ulp": 8}

layer_norm = Op("layer_norm", "composite", _norm_type, **_NORM, decompose=_layer_norm, vjp=_layer_norm_vjp,
                autocast="float32",
                doc="(x - mean) / √(variance + eps) · weight + bias over the last `ndim` dimensions (Ba et al. 2016).",
                samples=_normed(reals(), affine=2), reference=_layer_norm_value)
layer_norm_backward = Op("layer_norm_backward", "composite", _backward_types, **_NORM, decompose=_layer_norm_backward,
                         doc="Gradients of layer_norm by x and, when weight is given, by weight and bias.",
                         samples=_normed(reals(), reals(), affine=1))


def _rms_scale(x: Node, ndim: int, eps: float) -> Node:
    w, axes = upcast(x), _last_axes(x, ndim)
    return expand(rsqrt(mean(w * w, axes=axes, keepdims=True) + eps), shape=w.type.shape)


def _rms_norm(x: Node, *weight: Node, ndim: int, eps: float) -> Node:
    y = upcast(x) * _rms_scale(x, ndim, eps)
    return downcast(y * upcast(weight[0]) if weight else y, x)


def _rms_norm_vjp(g: Node, x: Node, *weight_and_y: Node, ndim: int, eps: float) -> tuple[Node, ...]:
    weight = weight_and_y[:-1]
    found = rms_norm_backward(g, x, *weight, ndim=ndim, eps=eps)
    return tuple(item(found, index=i) for i in range(1 + len(weight)))


def _rms_norm_backward(g: Node, x: Node, *weight: Node, ndim: int, eps: float) -> tuple[Node, ...]:
    scale = _rms_scale(x, ndim, eps)
    axes, rows = _last_axes(x, ndim), tuple(range(x.type.ndim - ndim))
    wg, normalized = upcast(g), upcast(x) * scale
    h = wg * upcast(weight[0]) if weight else wg
    to_x = downcast(scale * (h - normalized * spread(mean(h * normalized, axes=axes), h, axes)), x)
    return (to_x, downcast(sum(wg * normalized, axes=rows), weight[0])) if weight else (to_x,)


rms_norm = Op("rms_norm", "composite", _norm_type, **_NORM, decompose=_rms_norm, vjp=_rms_norm_vjp, autocast="float32",
              doc="x / √(mean(x²) + eps) · weight over the last `ndim` dimensions (Zhang and Sennrich 2019).",
              samples=_normed(reals(), affine=1), reference=_rms_norm_value)
rms_norm_backward = Op("rms_norm_backward", "composite",
                       lambda g, x, *weight, ndim, eps: (x, *weight), **_NORM, decompose=_rms_norm_backward,
                       doc="Gradients of rms_norm by x and, when given, by weight.",
                       samples=_normed(reals(), reals(), affine=1))
