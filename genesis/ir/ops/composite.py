"""Composites: ops with a name that backends know, and a meaning in simpler ops.

A backend that has a kernel for one runs it; another decomposes it in the legalize pass and lets
the fuser make one kernel of the pieces.
"""

from __future__ import annotations

import math
from typing import Any

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.control import item
from genesis.ir.ops.indexing import gather
from genesis.ir.ops.leaves import full, iota
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import FLOAT, cast, common, eq, exp, ge, log, ne, rsqrt, where_
from genesis.ir.ops.reduction import max, mean, spread, sum
from genesis.ir.ops.samples import Operand, Samples, Values, booleans, case, cases, integers, np, number, positives, reals
from genesis.ir.types import DType, TensorType, bool_, float32, int64, tensor_type


def wide(x: Node) -> Node:
    """x in at least float32, in which sums and norms are computed."""
    return x if x.dtype.itemsize >= 4 else cast(x, dtype=float32)


def narrow(x: Node, like: Node) -> Node:
    """x back in the dtype of `like`."""
    return x if x.dtype is like.dtype else cast(x, dtype=like.dtype)


def _fill(value: Node, type: TensorType) -> Node:
    def same(x: bool, dtype: DType) -> Node:
        return full(type.shape, x, dtype, type.device)
    return where_(same(True, bool_), value, same(False, type.dtype))


fill = Op("fill", "composite", lambda value, type: type, attrs=("type",), decompose=_fill, differentiable=False,
          doc="A number in every element.",
          samples=cases(*(case(number(1.5), type=tensor_type(s, float32)) for s in ((), (2, 3), (0,)))),
          reference=lambda value, type: np.full(type.shape, value))


# Softmax

def _float_type(x: TensorType, axis: int) -> TensorType:
    return common((x,), FLOAT)


def _softmax(x: Node, axis: int) -> Node:
    w = wide(x)
    e = exp(w - spread(max(w, axes=(axis,)), w, (axis,)))
    return narrow(e / spread(sum(e, axes=(axis,)), e, (axis,)), x)


def _softmax_vjp(g: Node, x: Node, y: Node, axis: int) -> Node:
    return softmax_backward(g, y, axis=axis)


def _softmax_backward(g: Node, y: Node, axis: int) -> Node:
    wg, wy = wide(g), wide(y)
    return narrow(wy * (wg - spread(sum(wg * wy, axes=(axis,)), wg, (axis,))), y)


def _rows(*values: Values) -> Samples:
    shapes: tuple[tuple[tuple[int, ...], int], ...] = (((5,), 0), ((3, 4), 1), ((3, 4), 0), ((2, 3, 9), 2), ((2, 1), 1),
                                                       ((0, 3), 1))
    return cases(*(case(*(v.of(*s) for v in values), axis=a) for s, a in shapes))


def _softmax_value(x: Any, axis: int) -> Any:
    e = np.exp(x - np.max(x, axis, keepdims=True))
    return e / np.sum(e, axis, keepdims=True)


softmax = Op("softmax", "composite", _float_type, attrs=("axis",), decompose=_softmax, vjp=_softmax_vjp, ulp=4,
             doc="exp(x) / Σ exp(x) along the axis, with the row's maximum taken out first.",
             samples=_rows(reals(-4, 4)), reference=_softmax_value)
softmax_backward = Op("softmax_backward", "composite", lambda g, y, axis: y, attrs=("axis",),
                      decompose=_softmax_backward, ulp=4, doc="Gradient of softmax from its result y.",
                      samples=_rows(reals(), positives(1)))


def _log_softmax(x: Node, axis: int) -> Node:
    w = wide(x)
    shifted = w - spread(max(w, axes=(axis,)), w, (axis,))
    return narrow(shifted - spread(log(sum(exp(shifted), axes=(axis,))), w, (axis,)), x)


def _log_softmax_backward(g: Node, y: Node, axis: int) -> Node:
    wg, wy = wide(g), wide(y)
    return narrow(wg - exp(wy) * spread(sum(wg, axes=(axis,)), wg, (axis,)), y)


log_softmax = Op("log_softmax", "composite", _float_type, attrs=("axis",), decompose=_log_softmax, ulp=4,
                 vjp=lambda g, x, y, axis: log_softmax_backward(g, y, axis=axis), doc="log(softmax(x)) along the axis.",
                 samples=_rows(reals(-4, 4)), reference=lambda x, axis: np.log(_softmax_value(x, axis)))
log_softmax_backward = Op("log_softmax_backward", "composite", lambda g, y, axis: y, attrs=("axis",),
                          decompose=_log_softmax_backward, ulp=4, doc="Gradient of log_softmax from its result y.",
                          samples=_rows(reals(), reals(-4, 0)))


# Norms: over the last `ndim` dimensions

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
    w, axes = wide(x), _last_axes(x, ndim)
    centred = w - spread(mean(w, axes=axes), w, axes)
    inverse = rsqrt(mean(centred * centred, axes=axes, keepdims=True) + eps)
    spread_inverse = expand(inverse, shape=w.type.shape)
    return centred * spread_inverse, spread_inverse


def _layer_norm(x: Node, *affine: Node, ndim: int, eps: float) -> Node:
    y, _ = _normalized(x, ndim, eps)
    if affine:
        y = y * wide(affine[0])
    if len(affine) == 2:
        y = y + wide(affine[1])
    return narrow(y, x)


def _layer_norm_vjp(g: Node, x: Node, *affine_and_y: Node, ndim: int, eps: float) -> tuple[Node, ...]:
    affine = affine_and_y[:-1]
    found = layer_norm_backward(g, x, *affine[:1], ndim=ndim, eps=eps)
    return tuple(item(found, index=i) for i in range(1 + len(affine)))


def _layer_norm_backward(g: Node, x: Node, *weight: Node, ndim: int, eps: float) -> tuple[Node, ...]:
    """dx = (h - mean(h) - x̂·mean(h·x̂)) / std with h = g·weight; dweight = Σ g·x̂; dbias = Σ g."""
    normalized, inverse = _normalized(x, ndim, eps)
    axes, rows = _last_axes(x, ndim), tuple(range(x.type.ndim - ndim))
    wg = wide(g)
    h = wg * wide(weight[0]) if weight else wg
    to_x = narrow(inverse * (h - spread(mean(h, axes=axes), h, axes)
                             - normalized * spread(mean(h * normalized, axes=axes), h, axes)), x)
    if not weight:
        return (to_x,)
    return (to_x, narrow(sum(wg * normalized, axes=rows), weight[0]), narrow(sum(wg, axes=rows), weight[0]))


def _backward_types(g: TensorType, x: TensorType, *weight: TensorType, ndim: int, eps: float) -> tuple[TensorType, ...]:
    return (x, *weight, *weight)


def _normed(*values: Values, affine: int) -> Samples:
    """Each set of parameters up to weight and bias, over one and over two dimensions."""
    shapes: tuple[tuple[tuple[int, ...], int], ...] = (((3, 8), 1), ((2, 3, 4), 2), ((1, 5), 1), ((2, 2, 8), 1))
    return cases(*(case(*(v.of(*s) for v in values), *(reals().of(*s[len(s) - n:]) for _ in range(count)), ndim=n, eps=1e-5)
                   for s, n in shapes for count in range(affine + 1)), scale=1)


def _layer_norm_value(x: Any, *affine: Any, ndim: int, eps: float) -> Any:
    axes = tuple(range(-ndim, 0))
    y = (x - np.mean(x, axes, keepdims=True)) / np.sqrt(np.var(x, axes, keepdims=True) + eps)
    return y * (affine[0] if affine else 1) + (affine[1] if len(affine) > 1 else 0)


def _rms_norm_value(x: Any, *weight: Any, ndim: int, eps: float) -> Any:
    scale = np.sqrt(np.mean(x * x, tuple(range(-ndim, 0)), keepdims=True) + eps)
    return x / scale * (weight[0] if weight else 1)


_NORM = {"attrs": ("ndim", "eps"), "ulp": 8}

layer_norm = Op("layer_norm", "composite", _norm_type, **_NORM, decompose=_layer_norm, vjp=_layer_norm_vjp,
                doc="(x - mean) / √(variance + eps) · weight + bias over the last `ndim` dimensions (Ba et al. 2016).",
                samples=_normed(reals(), affine=2), reference=_layer_norm_value)
layer_norm_backward = Op("layer_norm_backward", "composite", _backward_types, **_NORM, decompose=_layer_norm_backward,
                         doc="Gradients of layer_norm by x and, when weight is given, by weight and bias.",
                         samples=_normed(reals(), reals(), affine=1))


def _rms_scale(x: Node, ndim: int, eps: float) -> Node:
    w, axes = wide(x), _last_axes(x, ndim)
    return expand(rsqrt(mean(w * w, axes=axes, keepdims=True) + eps), shape=w.type.shape)


def _rms_norm(x: Node, *weight: Node, ndim: int, eps: float) -> Node:
    y = wide(x) * _rms_scale(x, ndim, eps)
    return narrow(y * wide(weight[0]) if weight else y, x)


def _rms_norm_vjp(g: Node, x: Node, *weight_and_y: Node, ndim: int, eps: float) -> tuple[Node, ...]:
    weight = weight_and_y[:-1]
    found = rms_norm_backward(g, x, *weight, ndim=ndim, eps=eps)
    return tuple(item(found, index=i) for i in range(1 + len(weight)))


def _rms_norm_backward(g: Node, x: Node, *weight: Node, ndim: int, eps: float) -> tuple[Node, ...]:
    scale = _rms_scale(x, ndim, eps)
    axes, rows = _last_axes(x, ndim), tuple(range(x.type.ndim - ndim))
    wg, normalized = wide(g), wide(x) * scale
    h = wg * wide(weight[0]) if weight else wg
    to_x = narrow(scale * (h - normalized * spread(mean(h * normalized, axes=axes), h, axes)), x)
    return (to_x, narrow(sum(wg * normalized, axes=rows), weight[0])) if weight else (to_x,)


rms_norm = Op("rms_norm", "composite", _norm_type, **_NORM, decompose=_rms_norm, vjp=_rms_norm_vjp,
              doc="x / √(mean(x²) + eps) · weight over the last `ndim` dimensions (Zhang and Sennrich 2019).",
              samples=_normed(reals(), affine=1), reference=_rms_norm_value)
rms_norm_backward = Op("rms_norm_backward", "composite",
                       lambda g, x, *weight, ndim, eps: (x, *weight), **_NORM, decompose=_rms_norm_backward,
                       doc="Gradients of rms_norm by x and, when given, by weight.",
                       samples=_normed(reals(), reals(), affine=1))


# Cross-entropy from logits (rows, classes) and class numbers (rows)

def _cross_entropy_type(logits: TensorType, target: TensorType, ignore_index: int, label_smoothing: float) -> TensorType:
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise RuntimeError(f"logits of shape {logits.shape} need class numbers of shape {logits.shape[:1]}, "
                           f"not {target.shape}")
    if target.dtype.kind != "int":
        raise RuntimeError(f"class numbers must be integers, not {target.dtype!r}")
    return common((logits,), FLOAT).with_shape(logits.shape[:1])


def _valid(target: Node, ignore_index: int) -> Node:
    return ne(target, literal(ignore_index))


def _cross_entropy(logits: Node, target: Node, ignore_index: int, label_smoothing: float) -> Node:
    rows, classes = logits.type.shape
    logs = log_softmax(wide(logits), axis=1)
    chosen = where_(_valid(target, ignore_index), target, 0)
    loss = -reshape(gather(logs, reshape(chosen, shape=(rows, 1)), axis=1), shape=(rows,))
    if label_smoothing:
        loss = loss * (1 - label_smoothing) - mean(logs, axes=(1,)) * label_smoothing
    return narrow(where_(_valid(target, ignore_index), loss, 0.0), logits)


def _cross_entropy_backward(g: Node, logits: Node, target: Node, ignore_index: int, label_smoothing: float) -> Node:
    """(softmax - target distribution) · g, and 0 in ignored rows."""
    rows, classes = logits.type.shape
    w = wide(logits)
    column = iota(shape=(rows, classes), axis=1, dtype=target.dtype, device=logits.type.device)
    hit = eq(column, expand(reshape(target, shape=(rows, 1)), shape=(rows, classes)))
    goal = where_(hit, full((), 1 - label_smoothing, w.dtype, logits.type.device), 0.0)
    if label_smoothing:
        goal = goal + label_smoothing / classes
    scale = where_(_valid(target, ignore_index), wide(g), 0.0)
    return narrow((softmax(w, axis=1) - goal) * reshape(scale, shape=(rows, 1)), logits)


def _classified(*operands: Operand) -> Samples:
    """Class numbers 0 to 6 of which, with ignore_index=3, some rows are left out."""
    return cases(*(case(*operands, integers(0, 7).of(5), ignore_index=i, label_smoothing=s)
                   for i in (-100, 3) for s in (0.0, 0.25)), scale=1)


def _cross_entropy_value(logits: Any, target: Any, ignore_index: int, label_smoothing: float) -> Any:
    logs = np.log(_softmax_value(logits, 1))
    chosen = np.take_along_axis(logs, target[:, None], 1)[:, 0]
    loss = -(1 - label_smoothing) * chosen - label_smoothing * np.mean(logs, 1)
    return np.where(target == ignore_index, 0.0, loss)


_CROSS_ENTROPY = {"attrs": ("ignore_index", "label_smoothing"), "defaults": {"ignore_index": -100, "label_smoothing": 0.0}}

cross_entropy = Op("cross_entropy", "composite", _cross_entropy_type, **_CROSS_ENTROPY, decompose=_cross_entropy, ulp=8,
                   vjp=lambda g, logits, target, y, **how: (cross_entropy_backward(g, logits, target, **how), None),
                   doc="-log softmax(logits)[target], a loss for each row; 0 where the target is ignore_index.",
                   samples=_classified(reals(-4, 4).of(5, 7)), reference=_cross_entropy_value)
cross_entropy_backward = Op("cross_entropy_backward", "composite", lambda g, logits, target, **how: logits,
                            **_CROSS_ENTROPY, decompose=_cross_entropy_backward, ulp=8,
                            doc="Gradient of cross_entropy by the logits.",
                            samples=_classified(reals().of(5), reals(-4, 4).of(5, 7)))


# Attention: q (..., queries, size), k and v (..., keys, size), one head and batch layout for all

def _sdpa_type(q: TensorType, k: TensorType, v: TensorType, *mask: TensorType, causal: bool, scale: float) -> TensorType:
    if not (q.ndim == k.ndim == v.ndim >= 2 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
            and q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]):
        raise RuntimeError(f"query {q.shape}, key {k.shape} and value {v.shape} do not fit")
    if not q.dtype is k.dtype is v.dtype:
        raise RuntimeError(f"dtypes of query {q.dtype!r}, key {k.dtype!r} and value {v.dtype!r} differ")
    scores = (*q.shape[:-1], k.shape[-2])
    if mask and mask[0].shape != scores:
        raise RuntimeError(f"the mask must be expanded to {scores}, not {mask[0].shape}")
    return common((q,), FLOAT).with_shape((*q.shape[:-1], v.shape[-1]))


def _probabilities(q: Node, k: Node, mask: tuple[Node, ...], causal: bool, scale: float) -> Node:
    """softmax(q·kᵀ·scale + mask) in at least float32."""
    scores = wide(matmul(q, swap_last(k))) * scale
    rank, shape, device = scores.type.ndim, scores.type.shape, q.type.device
    if causal:
        row = iota(shape=shape, axis=rank - 2, dtype=int64, device=device)
        column = iota(shape=shape, axis=rank - 1, dtype=int64, device=device)
        scores = where_(ge(row, column), scores, -math.inf)
    if mask:
        scores = where_(mask[0], scores, -math.inf) if mask[0].dtype.kind == "bool" else scores + wide(mask[0])
    return softmax(scores, axis=rank - 1)


def _sdpa(q: Node, k: Node, v: Node, *mask: Node, causal: bool, scale: float) -> Node:
    return matmul(narrow(_probabilities(q, k, mask, causal, scale), q), v)


def _sdpa_vjp(g: Node, q: Node, k: Node, v: Node, *mask_and_y: Node, causal: bool, scale: float) -> tuple:
    mask, y = mask_and_y[:-1], mask_and_y[-1]
    found = sdpa_backward(g, q, k, v, y, *mask, causal=causal, scale=scale)
    return tuple(item(found, index=i) for i in range(len(found.type))) + (None,) * (3 + len(mask) - len(found.type))


def _sdpa_backward(g: Node, q: Node, k: Node, v: Node, y: Node, *mask: Node, causal: bool, scale: float) -> tuple[Node, ...]:
    """With P the probabilities: dv = Pᵀg, dS = P·(g·vᵀ - rowsum(g·y)), dq = dS·k·scale, dk = dSᵀ·q·scale."""
    p = _probabilities(q, k, mask, causal, scale)
    last = p.type.ndim - 1
    to_p = wide(matmul(g, swap_last(v)))
    row = sum(wide(g) * wide(y), axes=(last,), keepdims=True)
    to_scores = p * (to_p - row)
    scaled = narrow(to_scores * scale, q)
    results = (matmul(scaled, k), matmul(swap_last(scaled), q), matmul(swap_last(narrow(p, q)), g))
    return (*results, narrow(to_scores, mask[0])) if mask and mask[0].dtype.kind == "float" else results


def _sdpa_backward_type(g: TensorType, q: TensorType, k: TensorType, v: TensorType, y: TensorType, *mask: TensorType,
                        causal: bool, scale: float) -> tuple[TensorType, ...]:
    return (q, k, v, *(m for m in mask if m.dtype.kind == "float"))


def _attended() -> Samples:
    """Two to five dimensions, fewer and more keys than queries, both kinds of masks."""
    found = []
    for batch, queries, keys, causal, masks in (
            ((2, 3), 4, 4, True, ()), ((2, 3), 5, 3, False, ()), ((), 3, 5, True, ()), ((2,), 3, 4, False, (reals(),)),
            ((2, 1), 3, 4, False, (booleans(),)), ((2,), 4, 4, True, (reals(),)), ((2, 1, 2), 3, 3, True, ())):
        q, k = reals().of(*batch, queries, 8), reals().of(*batch, keys, 8)
        mask = [m.of(*batch, queries, keys) for m in masks]
        found.append(case(q, k, k, *mask, causal=causal, scale=0.5))
    return cases(*found, scale=1)


def _sdpa_value(q: Any, k: Any, v: Any, *mask: Any, causal: bool, scale: float) -> Any:
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -math.inf)
    if mask:
        scores = np.where(mask[0], scores, -math.inf) if mask[0].dtype == bool else scores + mask[0]
    empty = np.all(np.isneginf(scores), -1, keepdims=True)
    return _softmax_value(np.where(empty, 0.0, scores), scores.ndim - 1) * ~empty @ v


_SDPA = {"attrs": ("causal", "scale"), "ulp": 16}

sdpa = Op("sdpa", "composite", _sdpa_type, **_SDPA, decompose=_sdpa, vjp=_sdpa_vjp,
          doc="softmax(q·kᵀ·scale + mask)·v (Vaswani et al. 2017). The mask is added, or kept where true; causal "
              "query i sees keys 0..i.", samples=_attended(), reference=_sdpa_value)
sdpa_backward = Op("sdpa_backward", "composite", _sdpa_backward_type, **_SDPA, decompose=_sdpa_backward,
                   doc="Gradients of sdpa by q, k, v and a floating-point mask, from its result y.")

__all__ = ["cross_entropy", "layer_norm", "log_softmax", "narrow", "rms_norm", "sdpa", "softmax", "tensor_type", "wide"]
