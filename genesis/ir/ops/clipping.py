"""Clipping of all gradients by their common norm as one op."""

from __future__ import annotations

import functools
import math
from typing import Any

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.pointwise import abs, cast, maximum, minimum, pow, sqrt
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import max, sum
from genesis.ir.ops.samples import case, cases, np, number, reals
from genesis.ir.types import DType, TensorType, float32, float64, tensor_type


def _norm_dtype(gradients: tuple[Any, ...]) -> DType:
    """float64 when a gradient is, else float32: what a sum of many squares needs."""
    return float64 if any(g.dtype is float64 for g in gradients) else float32


def _clip_type(bound: TensorType, *gradients: TensorType, norm_type: float) -> tuple[TensorType, ...]:
    if not gradients:
        raise RuntimeError("there is no gradient to clip")
    if len({g.device for g in gradients}) > 1:
        raise RuntimeError(f"gradients are on several devices: {', '.join(sorted({str(g.device) for g in gradients}))}")
    return (tensor_type((), _norm_dtype(gradients), gradients[0].device), *gradients)


def _in_dtype(x: Node, dtype: DType) -> Node:
    return x if x.dtype is dtype else cast(x, dtype=dtype)


def _part(x: Node, norm_type: float) -> Node:
    """What a gradient adds to the norm: Σ |x|^p, or max |x| when p is infinite."""
    w, axes = upcast(x), tuple(range(x.type.ndim))
    if math.isinf(norm_type):
        return max(abs(w), axes=axes) if x.type.numel else sum(w, axes=axes)
    if norm_type == 2:
        return sum(w * w, axes=axes)
    return sum(abs(w) if norm_type == 1 else pow(abs(w), literal(norm_type)), axes=axes)


def _clip_gradients(bound: Node, *gradients: Node, norm_type: float) -> tuple[Node, ...]:
    dtype = _norm_dtype(gradients)
    parts = [_in_dtype(_part(g, norm_type), dtype) for g in gradients]
    if math.isinf(norm_type):
        norm = functools.reduce(maximum, parts)
    else:
        total = functools.reduce(lambda a, b: a + b, parts)
        norm = total if norm_type == 1 else sqrt(total) if norm_type == 2 else pow(total, literal(1 / norm_type))
    factor = minimum(bound / (norm + 1e-6), literal(1.0))
    scaled = []
    for g in gradients:
        w = upcast(g)
        scaled.append(downcast(w * _in_dtype(factor, w.dtype), g))
    return (norm, *scaled)


def _clip_value(bound: float, *gradients: Any, norm_type: float) -> tuple[Any, ...]:
    sizes = [np.abs(g) for g in gradients]
    if math.isinf(norm_type):
        norm = functools.reduce(np.maximum, [np.max(size) for size in sizes])
    else:
        norm = functools.reduce(np.add, [np.sum(size**norm_type) for size in sizes]) ** (1 / norm_type)
    return (norm, *(g * np.minimum(1.0, bound / (norm + 1e-6)) for g in gradients))


clip_gradients = Op("clip_gradients", "composite", _clip_type, attrs=("norm_type",), decompose=_clip_gradients,
                    differentiable=False, ulp=8,
                    doc="Operands: the largest norm allowed, then gradients. Results: the norm of all gradients as "
                        "one vector, float32 at least, then the gradients times min(1, allowed / (norm + 1e-6)) "
                        "(Pascanu, Mikolov and Bengio 2013).",
                    samples=cases(*(case(number(bound), reals().of(3, 4), reals().of(5), norm_type=p)
                                    for bound in (0.5, 1e3) for p in (1.0, 2.0, 3.0, math.inf)), scale=1),
                    reference=_clip_value)
