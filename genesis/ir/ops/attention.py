"""Scaled dot-product attention: q (..., heads, queries, size), k and v (..., heads, keys, size).

Leading dimensions are equal, but k and v may have fewer heads than q: each is shared by a group of query heads that
follow each other (Ainslie et al. 2023).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genesis.ir.errors import Misfit
from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.control import item
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import common, eq, ge, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import max, sum
from genesis.ir.ops.samples import FLOAT, Samples, booleans, case, cases, np, reals
from genesis.ir.ops.softmax import softmax, softmax_value
from genesis.ir.types import TensorType, int64

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.ops.entry import Accurate


def check_operands(q: TensorType, k: TensorType, v: TensorType, *mask: TensorType) -> None:
    """RuntimeError unless these fit each other."""
    fits = q.ndim == k.ndim == v.ndim >= 2 and k.shape[:-2] == v.shape[:-2] and q.shape[:-3] == k.shape[:-3]
    if not (fits and q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]) or (
            q.ndim > 2 and q.shape[-3] != k.shape[-3] and (not k.shape[-3] or q.shape[-3] % k.shape[-3])):
        raise Misfit(f"query {q.shape}, key {k.shape} and value {v.shape} do not fit",
                     "query and key of one last size, key and value of one length")
    if not q.dtype is k.dtype is v.dtype:
        raise RuntimeError(f"dtypes of query {q.dtype!r}, key {k.dtype!r} and value {v.dtype!r} differ")
    scores = (*q.shape[:-1], k.shape[-2])
    if mask and mask[0].shape != scores:
        raise RuntimeError(f"the mask must be expanded to {scores}, not {mask[0].shape}")
    if mask and mask[0].dtype.kind == "int":
        raise RuntimeError(f"a mask is bool or floating point, not {mask[0].dtype!r}")
    common((q,), FLOAT)


def group_size(q: TensorType, k: TensorType) -> int:
    """The number of query heads that share a key head."""
    return q.shape[-3] // k.shape[-3] if q.ndim > 2 and k.shape[-3] else 1


def for_each_head(x: Node, times: int) -> Node:
    """k or v with each head `times` times in a row, as a view."""
    if times == 1:
        return x
    *batch, heads, length, size = x.type.shape
    apart = reshape(x, shape=(*batch, heads, 1, length, size))
    return reshape(expand(apart, shape=(*batch, heads, times, length, size)),
                   shape=(*batch, heads * times, length, size))


def over_groups(x: Node, times: int, like: Node) -> Node:
    """The sum of what the query heads of a group give."""
    if times == 1:
        return downcast(x, like)
    *batch, heads, length, size = x.type.shape
    apart = reshape(upcast(x), shape=(*batch, heads // times, times, length, size))
    return downcast(sum(apart, axes=(apart.type.ndim - 3,)), like)


def _sdpa_type(q: TensorType, k: TensorType, v: TensorType, *mask: TensorType, causal: bool,
               scale: float) -> TensorType:
    check_operands(q, k, v, *mask)
    return q.with_shape((*q.shape[:-1], v.shape[-1]))


def scores_of(q: Node, k: Node, mask: tuple[Node, ...], causal: bool, scale: float) -> Node:
    """q·kᵀ·scale + mask in at least float32."""
    k = for_each_head(k, group_size(q.type, k.type))
    scores = upcast(matmul(q, swap_last(k))) * scale
    rank, shape, device = scores.type.ndim, scores.type.shape, q.type.device
    if causal:
        row = iota(shape=shape, axis=rank - 2, dtype=int64, device=device)
        column = iota(shape=shape, axis=rank - 1, dtype=int64, device=device)
        scores = where_(ge(row, column), scores, -math.inf)
    if mask:
        scores = where_(mask[0], scores, -math.inf) if mask[0].dtype.kind == "bool" else scores + upcast(mask[0])
    return scores


def _probabilities(q: Node, k: Node, mask: tuple[Node, ...], causal: bool, scale: float) -> Node:
    """softmax of the scores; a query whose every key is masked gets 0, as in torch."""
    scores = scores_of(q, k, mask, causal, scale)
    rank, shape = scores.type.ndim, scores.type.shape
    found = softmax(scores, axis=rank - 1)
    if not mask or not shape[-1]:
        return found
    alone = eq(max(scores, axes=(rank - 1,), keepdims=True), literal(-math.inf))
    return where_(expand(alone, shape=shape), 0.0, found)


def _sdpa(q: Node, k: Node, v: Node, *mask: Node, causal: bool, scale: float) -> Node:
    v = for_each_head(v, group_size(q.type, v.type))
    return matmul(downcast(_probabilities(q, k, mask, causal, scale), q), v)


def _sdpa_vjp(g: Node, q: Node, k: Node, v: Node, *mask_and_y: Node, causal: bool, scale: float) -> tuple:
    mask, y = mask_and_y[:-1], mask_and_y[-1]
    found = sdpa_backward(g, q, k, v, y, *mask, causal=causal, scale=scale)
    return tuple(item(found, index=i) for i in range(len(found.types))) + (None,) * (3 + len(mask) - len(found.types))


def _sdpa_backward(g: Node, q: Node, k: Node, v: Node, y: Node, *mask: Node, causal: bool, scale: float) -> tuple:
    """With P the probabilities: dv = Pᵀg, dS = P·(g·vᵀ - rowsum(g·y)), dq = dS·k·scale, dk = dSᵀ·q·scale.

    P is rounded as the forward rounds it for its product, so that one value serves both.
    """
    rounded, shared = downcast(_probabilities(q, k, mask, causal, scale), q), group_size(q.type, k.type)
    p = upcast(rounded)
    last = p.type.ndim - 1
    to_p = upcast(matmul(g, swap_last(for_each_head(v, shared))))
    row = sum(upcast(g) * upcast(y), axes=(last,), keepdims=True)
    to_scores = p * (to_p - row)
    scaled = downcast(to_scores * scale, q)
    results = (matmul(scaled, for_each_head(k, shared)), over_groups(matmul(swap_last(scaled), q), shared, k),
               over_groups(matmul(swap_last(rounded), g), shared, v))
    return (*results, downcast(to_scores, mask[0])) if mask and mask[0].dtype.kind == "float" else results


def _sdpa_backward_type(g: TensorType, q: TensorType, k: TensorType, v: TensorType, y: TensorType, *mask: TensorType,
                        causal: bool, scale: float) -> tuple[TensorType, ...]:
    return (q, k, v, *(m for m in mask if m.dtype.kind == "float"))


def _attended() -> Samples:
    """Two to five dimensions, fewer and more keys than queries, both kinds of masks."""
    found = []
    for batch, queries, keys, causal, masks in (
            ((2, 3), 4, 4, True, ()), ((2, 3), 5, 3, False, ()), ((), 3, 5, True, ()), ((2,), 3, 4, False, (reals(),)),
            ((2, 1), 3, 4, False, (booleans(),)), ((2,), 4, 4, True, (reals(),)), ((2, 1, 2), 3, 3, True, ()),
            ((2,), 37, 70, True, ())):
        q, k = reals().of(*batch, queries, 8), reals().of(*batch, keys, 8)
        mask = [m.of(*batch, queries, keys) for m in masks]
        found.append(case(q, k, k, *mask, causal=causal, scale=0.5))
    shared = reals().of(2, 2, 5, 8)  # four query heads, two key heads
    found.append(case(reals().of(2, 4, 3, 8), shared, shared, booleans().of(2, 4, 3, 5), causal=False, scale=0.5))
    return cases(*found, scale=1)


def _sdpa_value(q: ndarray, k: ndarray, v: ndarray, *mask: ndarray, causal: bool, scale: float) -> ndarray:
    if q.ndim > 2:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -math.inf)
    if mask:
        scores = np.where(mask[0], scores, -math.inf) if mask[0].dtype == bool else scores + mask[0]
    empty = np.all(np.isneginf(scores), -1, keepdims=True)
    return softmax_value(np.where(empty, 0.0, scores), scores.ndim - 1) * ~empty @ v


_SDPA: Accurate = {"attrs": ("causal", "scale"), "ulp": 16}

sdpa = Op("sdpa", "composite", _sdpa_type, **_SDPA, decompose=_sdpa, vjp=_sdpa_vjp, autocast="low",
          doc="softmax(q·kᵀ·scale + mask)·v (Vaswani et al. 2017). The mask is added, or kept where true; causal "
              "query i sees keys 0..i. Groups of query heads may share a head of k and v.",
          samples=_attended(), reference=_sdpa_value)
sdpa_backward = Op("sdpa_backward", "composite", _sdpa_backward_type, **_SDPA, decompose=_sdpa_backward,
                   doc="Gradients of sdpa by q, k, v and a floating-point mask, from its result y.")
