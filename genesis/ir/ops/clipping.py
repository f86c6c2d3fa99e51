"""The norm of many tensors as one vector, and gradients clipped by it or by their elements, as one op for all."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.norm_parts import chunk_for, norm_parts, reduction_for, term
from genesis.ir.ops.pointwise import cast, maximum, minimum, pow, sqrt
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.samples import Samples, case, cases, np, number, reals
from genesis.ir.types import DType, TensorType, float32, float64, tensor_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy import ndarray


def _in_dtype(x: Node, dtype: DType) -> Node:
    return x if x.dtype is dtype else cast(x, dtype=dtype)


def norm_dtype(tensors: Sequence[Node] | Sequence[TensorType]) -> DType:
    """float64 when a tensor is, else float32: what a sum of many squares needs."""
    return float64 if any(x.dtype is float64 for x in tensors) else float32


def _on_one_device(tensors: tuple[TensorType, ...]) -> None:
    if not tensors:
        raise RuntimeError("there is no tensor to take the norm of")
    if len({x.device for x in tensors}) > 1:
        raise RuntimeError(f"tensors are on several devices: {', '.join(sorted({str(x.device) for x in tensors}))}")


# The norm

def _norm_type(*tensors: TensorType, norm_type: float) -> TensorType:
    _on_one_device(tensors)
    if not norm_type > 0:
        raise RuntimeError(f"total_norm wants a positive norm_type, not {norm_type}")
    return tensor_type((), norm_dtype(tensors), tensors[0].device)


def _total_norm(*tensors: Node, norm_type: float) -> Node:
    dtype = norm_dtype(tensors)
    alike: dict[DType, list[Node]] = {}
    for x in tensors:
        if x.type.numel:
            alike.setdefault(x.dtype, []).append(x)
    parts = [_in_dtype(_reduced(group, norm_type), dtype) for group in alike.values()]
    if not parts:
        return cast(literal(0.0), dtype=dtype)
    if math.isinf(norm_type):
        return functools.reduce(maximum, parts)
    total = functools.reduce(lambda a, b: a + b, parts)
    return total if norm_type == 1 else sqrt(total) if norm_type == 2 else pow(total, literal(1 / norm_type))


def _reduced(tensors: list[Node], norm_type: float) -> Node:
    """What tensors of one dtype add to the norm."""
    reduce = reduction_for(norm_type)
    if len(tensors) == 1:  # which may be computed together with what makes the tensor
        (x,) = tensors
        return reduce(term(x, norm_type, upcast(x).dtype), axes=tuple(range(x.type.ndim)))
    parts = norm_parts(*tensors, norm_type=norm_type, chunk=chunk_for(sum(x.type.numel for x in tensors)))
    return reduce(parts, axes=(0,))


def _norm_value(*tensors: ndarray, norm_type: float) -> ndarray:
    sizes = [np.abs(x) for x in tensors]
    if math.isinf(norm_type):
        return functools.reduce(np.maximum, [np.max(size) for size in sizes])
    return functools.reduce(np.add, [np.sum(size**norm_type) for size in sizes]) ** (1 / norm_type)


def _norms() -> Samples:
    return cases(*(case(reals().of(3, 4), reals().of(5), norm_type=p) for p in (1.0, 2.0, 3.0, math.inf)), scale=1)


total_norm = Op("total_norm", "composite", _norm_type, attrs=("norm_type",), decompose=_total_norm,
                differentiable=False, ulp=8,
                doc="The norm of all operands as one vector, float32 at least: (Σ |x|^norm_type)^(1 / norm_type), or "
                    "the largest |x| when that is infinite.",
                samples=_norms(), reference=_norm_value)


# Scaling by it

def _scaled_type(bound: TensorType, norm: TensorType, *gradients: TensorType) -> tuple[TensorType, ...]:
    _on_one_device((norm, *gradients))
    return gradients


def _clip_by_norm(bound: Node, norm: Node, *gradients: Node) -> tuple[Node, ...]:
    factor = minimum(bound / (norm + 1e-6), literal(1.0))
    return tuple(downcast(w * _in_dtype(factor, w.dtype), g) for g, w in zip(gradients, map(upcast, gradients),
                                                                             strict=True))


clip_by_norm = Op("clip_by_norm", "composite", _scaled_type, decompose=_clip_by_norm, differentiable=False, ulp=4,
                  doc="Operands: the largest norm allowed, the norm, then gradients. Results: the gradients times "
                      "min(1, allowed / (norm + 1e-6)) (Pascanu, Mikolov and Bengio 2013).",
                  samples=cases(*(case(number(bound), reals(1, 4).of(), reals().of(3, 4), reals().of(5))
                                  for bound in (0.5, 1e3)), scale=1),
                  reference=lambda bound, norm, *gradients: tuple(
                      [g * np.minimum(1.0, bound / (norm + 1e-6)) for g in gradients]))


# Each element

def _clamped_type(low: TensorType, high: TensorType, *gradients: TensorType) -> tuple[TensorType, ...]:
    _on_one_device(gradients)
    return gradients


clip_by_value = Op("clip_by_value", "composite", _clamped_type, differentiable=False,
                   decompose=lambda low, high, *gradients: tuple(
                       [minimum(maximum(g, low), high) for g in gradients]),
                   doc="Operands: the least and the largest element allowed, then gradients. Results: the gradients "
                       "with their elements clamped between these.",
                   samples=cases(case(number(-0.5), number(0.25), reals().of(3, 4), reals().of(5))),
                   reference=lambda low, high, *gradients: tuple([np.clip(g, low, high) for g in gradients]))
