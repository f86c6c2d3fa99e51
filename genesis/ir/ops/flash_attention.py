"""Attention in the form that needs no score matrix in memory (Dao 2023, FlashAttention-2).

The forward also gives each query's lse = log Σ exp(scores), from which the backward makes the
probabilities again: P = exp(scores - lse). With Δ = rowsum(g·y) the gradients are
dv = Pᵀ·g, dS = P·(g·vᵀ - Δ), dq = dS·k·scale, dk = dSᵀ·q·scale.

Recording never makes these ops; a backend that has kernels for them asks for them with a pattern.
"""

from __future__ import annotations

import math
from typing import Any

from genesis.ir.node import Node, Op
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.pointwise import common, exp, ge, log, where_
from genesis.ir.ops.precision import narrow, wide
from genesis.ir.ops.reduction import max, spread, sum
from genesis.ir.ops.samples import FLOAT, Samples, case, cases, np, reals
from genesis.ir.types import TensorType, float32, int64


def row_type(q: TensorType) -> TensorType:
    """A number for each query: (..., queries), in at least float32."""
    return q.with_shape(q.shape[:-1]) if q.dtype.itemsize >= 4 else q.with_dtype(float32).with_shape(q.shape[:-1])


def _checked(q: TensorType, k: TensorType, v: TensorType) -> None:
    if not (q.ndim == k.ndim == v.ndim >= 2 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
            and q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]):
        raise RuntimeError(f"query {q.shape}, key {k.shape} and value {v.shape} do not fit")
    if not q.dtype is k.dtype is v.dtype:
        raise RuntimeError(f"dtypes of query {q.dtype!r}, key {k.dtype!r} and value {v.dtype!r} differ")
    common((q,), FLOAT)


def _forward_type(q: TensorType, k: TensorType, v: TensorType, causal: bool, scale: float) -> tuple[TensorType, ...]:
    _checked(q, k, v)
    return q.with_shape((*q.shape[:-1], v.shape[-1])), row_type(q)


def _backward_checked(g: TensorType, q: TensorType, k: TensorType, v: TensorType, *rows: TensorType) -> None:
    _checked(q, k, v)
    if g.shape != (*q.shape[:-1], v.shape[-1]) or g.dtype is not q.dtype:
        raise RuntimeError(f"gradient {g.shape} does not fit query {q.shape} and value {v.shape}")
    if any(x.shape != q.shape[:-1] for x in rows):
        raise RuntimeError(f"lse and delta must have the shape {q.shape[:-1]}, not {[x.shape for x in rows]}")


def _dq_type(g: TensorType, q: TensorType, k: TensorType, v: TensorType, lse: TensorType, delta: TensorType,
             causal: bool, scale: float) -> TensorType:
    _backward_checked(g, q, k, v, lse, delta)
    return q


def _dkv_type(g: TensorType, q: TensorType, k: TensorType, v: TensorType, lse: TensorType, delta: TensorType,
              causal: bool, scale: float) -> tuple[TensorType, ...]:
    _backward_checked(g, q, k, v, lse, delta)
    return k, v


def _scores(q: Node, k: Node, causal: bool, scale: float) -> Node:
    """q·kᵀ·scale in at least float32, never rounded to less, -∞ where a key is not seen."""
    scores = matmul(wide(q), swap_last(wide(k))) * scale
    if not causal:
        return scores
    rank, shape, device = scores.type.ndim, scores.type.shape, q.type.device
    row = iota(shape=shape, axis=rank - 2, dtype=int64, device=device)
    column = iota(shape=shape, axis=rank - 1, dtype=int64, device=device)
    return where_(ge(row, column), scores, -math.inf)


def _forward(q: Node, k: Node, v: Node, causal: bool, scale: float) -> tuple[Node, Node]:
    scores = _scores(q, k, causal, scale)
    last = (scores.type.ndim - 1,)
    top = max(scores, axes=last)
    e = exp(scores - spread(top, scores, last))
    total = sum(e, axes=last)
    return matmul(narrow(e / spread(total, e, last), q), v), top + log(total)


def _each_row(x: Node, like: Node) -> Node:
    """(..., queries) as a column that broadcasts over the keys, in the dtype of `like`."""
    return narrow(reshape(x, shape=(*x.type.shape, 1)), like)


def _to_scores(g: Node, q: Node, k: Node, v: Node, lse: Node, delta: Node, causal: bool,
               scale: float) -> tuple[Node, Node]:
    """The probabilities and dS."""
    scores = _scores(q, k, causal, scale)
    p = exp(scores - _each_row(lse, scores))
    return p, p * (matmul(wide(g), swap_last(wide(v))) - _each_row(delta, scores))


def _dq(g: Node, q: Node, k: Node, v: Node, lse: Node, delta: Node, causal: bool, scale: float) -> Node:
    _, to_scores = _to_scores(g, q, k, v, lse, delta, causal, scale)
    return matmul(narrow(to_scores * scale, q), k)


def _dkv(g: Node, q: Node, k: Node, v: Node, lse: Node, delta: Node, causal: bool, scale: float) -> tuple[Node, Node]:
    p, to_scores = _to_scores(g, q, k, v, lse, delta, causal, scale)
    return matmul(swap_last(narrow(to_scores * scale, q)), q), matmul(swap_last(narrow(p, q)), g)


_LENGTHS = (((2, 3), 4, 4, True), ((2, 3), 5, 3, False), ((), 3, 5, True), ((2,), 37, 70, True), ((1,), 20, 18, False))


def _forward_samples() -> Samples:
    """Two to four dimensions, fewer and more keys than queries, a value size of its own."""
    return cases(*(case(reals().of(*batch, queries, 8), reals().of(*batch, keys, 8), reals().of(*batch, keys, size),
                        causal=causal, scale=0.5) for (batch, queries, keys, causal), size in zip(
                            _LENGTHS, (8, 8, 5, 8, 8), strict=True)), scale=1)


def _backward_samples() -> Samples:
    """Any lse and Δ will do: the formulas ask nothing of them."""
    return cases(*(case(reals().of(*batch, queries, 8), reals().of(*batch, queries, 8), reals().of(*batch, keys, 8),
                        reals().of(*batch, keys, 8), reals(3, 5).of(*batch, queries), reals().of(*batch, queries),
                        causal=causal, scale=0.5) for batch, queries, keys, causal in _LENGTHS), scale=1)


def _scores_value(q: Any, k: Any, causal: bool, scale: float) -> Any:
    scores = q @ k.swapaxes(-1, -2) * scale
    return np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -math.inf) if causal else scores


def _forward_value(q: Any, k: Any, v: Any, causal: bool, scale: float) -> tuple[Any, Any]:
    scores = _scores_value(q, k, causal, scale)
    lse = np.log(np.sum(np.exp(scores), -1))
    return np.exp(scores - lse[..., None]) @ v, lse


def _gradient_values(g: Any, q: Any, k: Any, v: Any, lse: Any, delta: Any, causal: bool, scale: float) -> tuple:
    p = np.exp(_scores_value(q, k, causal, scale) - lse[..., None])
    to_scores = p * (g @ v.swapaxes(-1, -2) - delta[..., None]) * scale
    return to_scores @ k, to_scores.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g


_SHARED: dict[str, Any] = {"attrs": ("causal", "scale"), "ulp": 16}

flash_attention = Op("flash_attention", "composite", _forward_type, **_SHARED, decompose=_forward,
                     doc="(softmax(q·kᵀ·scale)·v, log Σ exp(q·kᵀ·scale) of each query); causal query i sees keys 0..i.",
                     samples=_forward_samples(), reference=_forward_value)
flash_attention_dq = Op("flash_attention_dq", "composite", _dq_type, **_SHARED, decompose=_dq,
                        doc="Gradient of flash_attention's first result by q, from lse and Δ = rowsum(g·y).",
                        samples=_backward_samples(), reference=lambda *x, **how: _gradient_values(*x, **how)[0])
flash_attention_dkv = Op("flash_attention_dkv", "composite", _dkv_type, **_SHARED, decompose=_dkv,
                         doc="Gradients of flash_attention's first result by k and v, from lse and Δ = rowsum(g·y).",
                         samples=_backward_samples(), reference=lambda *x, **how: _gradient_values(*x, **how)[1:])
