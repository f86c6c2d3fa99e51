"""Attention in the form that needs no score matrix in memory (Dao 2023, FlashAttention-2).

The forward also gives each query's lse = log Σ exp(scores) (∞ where it sees no key), from which the backward makes the
probabilities again: P = exp(scores - lse). With Δ = rowsum(g·y) the gradients are
dv = Pᵀ·g, dS = P·(g·vᵀ - Δ), dq = dS·k·scale, dk = dSᵀ·q·scale.

Recording never makes these ops; a backend that has kernels for them asks for them with a pattern. With `beside` the
results lie as products read them, (..., length, heads, size): all heads of a token beside each other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, literal
from genesis.ir.opaque import Opaque
from genesis.ir.ops.attention import check_operands, for_each_head, group_size, over_groups
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import permute, reshape
from genesis.ir.ops.pointwise import eq, exp, ge, log, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import max, spread, sum
from genesis.ir.ops.samples import Operand, Samples, Values, booleans, case, cases, forward_only, np, reals
from genesis.ir.types import TensorType, float32, int64

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.ops.entry import Accurate


def row_type(q: TensorType) -> TensorType:
    """A number for each query: (..., queries), in at least float32."""
    return q.with_shape(q.shape[:-1]) if q.dtype.itemsize >= 4 else q.with_dtype(float32).with_shape(q.shape[:-1])


def _laid_out(x: TensorType, beside: bool) -> TensorType:
    """(..., heads, length, size), or with the heads of a token beside each other."""
    if not beside:
        return x
    if x.ndim < 3:
        raise RuntimeError(f"there are no heads in {x.shape} to lie beside each other")
    *batch, heads, length, size = x.shape
    return x.with_shape((*batch, length, heads, size))


def beside_each_other(x: Node) -> Node:
    """(..., heads, length, size) as (..., length, heads, size), and the other way round."""
    rank = x.type.ndim
    return permute(x, axes=(*range(rank - 3), rank - 2, rank - 3, rank - 1))


def _forward_type(q: TensorType, k: TensorType, v: TensorType, *mask: TensorType, causal: bool,
                  scale: float, beside: bool) -> tuple[TensorType, ...]:
    check_operands(q, k, v, *mask)
    return _laid_out(q.with_shape((*q.shape[:-1], v.shape[-1])), beside), row_type(q)


def _backward_checked(g: TensorType, q: TensorType, k: TensorType, v: TensorType, lse: TensorType, delta: TensorType,
                      *mask: TensorType) -> None:
    check_operands(q, k, v, *mask)
    if g.shape != (*q.shape[:-1], v.shape[-1]) or g.dtype is not q.dtype:
        raise RuntimeError(f"gradient {g.shape} does not fit query {q.shape} and value {v.shape}")
    if any(x.shape != q.shape[:-1] for x in (lse, delta)):
        raise RuntimeError(f"lse and delta must have the shape {q.shape[:-1]}, not {lse.shape} and {delta.shape}")


def _dq_type(g: TensorType, q: TensorType, k: TensorType, v: TensorType, lse: TensorType, delta: TensorType,
             *mask: TensorType, causal: bool, scale: float, beside: bool) -> TensorType:
    _backward_checked(g, q, k, v, lse, delta, *mask)
    return _laid_out(q, beside)


def _dkv_type(g: TensorType, q: TensorType, k: TensorType, v: TensorType, lse: TensorType, delta: TensorType,
              *mask: TensorType, causal: bool, scale: float, beside: bool) -> tuple[TensorType, ...]:
    _backward_checked(g, q, k, v, lse, delta, *mask)
    return _laid_out(k, beside), _laid_out(v, beside)


def _scores(q: Node, k: Node, mask: tuple[Node, ...], causal: bool, scale: float) -> Node:
    """q·kᵀ·scale + mask in at least float32, never rounded to less, -∞ where a key is not seen."""
    k = for_each_head(upcast(k), group_size(q.type, k.type))
    scores = matmul(upcast(q), swap_last(k)) * scale
    if causal:
        rank, shape, device = scores.type.ndim, scores.type.shape, q.type.device
        row = iota(shape=shape, axis=rank - 2, dtype=int64, device=device)
        column = iota(shape=shape, axis=rank - 1, dtype=int64, device=device)
        scores = where_(ge(row, column), scores, -math.inf)
    if not mask:
        return scores
    return where_(mask[0], scores, -math.inf) if mask[0].dtype.kind == "bool" else scores + downcast(mask[0], scores)


def _forward(q: Node, k: Node, v: Node, *mask: Node, causal: bool, scale: float, beside: bool) -> tuple[Node, Node]:
    scores = _scores(q, k, mask, causal, scale)
    last = (scores.type.ndim - 1,)
    top = max(scores, axes=last)
    if mask:  # a query may see no key: its row sums to 0, and its lse is ∞, so that exp(scores - lse) is 0
        top = where_(eq(top, literal(-math.inf)), 0.0, top)
    e = exp(scores - spread(top, scores, last))
    total = sum(e, axes=last)
    if mask:
        none = eq(total, literal(0.0))
        lse = where_(none, math.inf, top + log(where_(none, 1.0, total)))
        total = where_(none, 1.0, total)
    else:
        lse = top + log(total)
    p = downcast(e / spread(total, e, last), q)
    y = matmul(p, for_each_head(v, group_size(q.type, v.type)))
    return beside_each_other(y) if beside else y, lse


def _each_row(x: Node, like: Node) -> Node:
    """(..., queries) as a column that broadcasts over the keys, in the dtype of `like`."""
    return downcast(reshape(x, shape=(*x.type.shape, 1)), like)


def gradient_of_scores(g: Node, q: Node, k: Node, v: Node, lse: Node, delta: Node, *mask: Node, causal: bool,
                       scale: float) -> tuple[Node, Node]:
    """The probabilities and dS."""
    scores = _scores(q, k, mask, causal, scale)
    p = exp(scores - _each_row(lse, scores))
    to_p = matmul(upcast(g), swap_last(for_each_head(upcast(v), group_size(q.type, v.type))))
    return p, p * (to_p - _each_row(delta, scores))


def _dq(g: Node, q: Node, k: Node, *rest: Node, causal: bool, scale: float, beside: bool) -> Node:
    _, to_scores = gradient_of_scores(g, q, k, *rest, causal=causal, scale=scale)
    to_q = matmul(downcast(to_scores * scale, q), for_each_head(k, group_size(q.type, k.type)))
    return beside_each_other(to_q) if beside else to_q


def _dkv(g: Node, q: Node, k: Node, v: Node, *rest: Node, causal: bool, scale: float,
         beside: bool) -> tuple[Node, Node]:
    p, to_scores = gradient_of_scores(g, q, k, v, *rest, causal=causal, scale=scale)
    shared = group_size(q.type, k.type)
    to_k = over_groups(matmul(swap_last(downcast(to_scores * scale, q)), q), shared, k)
    to_v = over_groups(matmul(swap_last(downcast(p, q)), g), shared, v)
    return (beside_each_other(to_k), beside_each_other(to_v)) if beside else (to_k, to_v)


_LENGTHS: tuple[tuple[tuple[int, ...], int, int, int, bool, Values | None], ...] = (
    # leading sizes, query heads that share a key head, queries, keys, causal, mask
    ((2, 3), 1, 4, 4, True, None), ((2, 3), 1, 5, 3, False, None), ((), 1, 3, 5, True, None),
    ((2,), 1, 37, 70, True, None), ((1,), 1, 20, 18, False, None), ((2, 2), 3, 5, 4, True, None),
    ((2, 2), 2, 5, 4, False, booleans()), ((2,), 1, 18, 20, False, reals()), ((2,), 1, 6, 6, True, reals()))


def _shapes(batch: tuple[int, ...], shared: int, queries: int, keys: int,
            mask: Values | None) -> tuple[tuple[int, ...], tuple[int, ...], list[Operand]]:
    """Shapes without the size of q and of k, and the mask."""
    heads = (*batch[:-1], batch[-1] * shared) if batch else ()
    return (*heads, queries), (*batch, keys), [mask.of(*heads, queries, keys)] if mask else []


def _forward_samples() -> Samples:
    """Fewer and more keys than queries, a value size of its own, groups of heads, masks."""
    found = []
    for number, (batch, shared, queries, keys, causal, wanted) in enumerate(_LENGTHS):
        q, k, mask = _shapes(batch, shared, queries, keys, wanted)
        made = case(reals().of(*q, 8), reals().of(*k, 8), reals().of(*k, 5 if number == 2 else 8), *mask, causal=causal,
                    scale=0.5, beside=len(batch) > 1)
        found.append(forward_only(made) if wanted and wanted.dtype else made)  # an lse of ∞ has no differences
    return cases(*found, scale=1)


def _backward_samples() -> Samples:
    """Whatever lse and Δ are will do: the formulas ask nothing of them."""
    found = []
    for batch, shared, queries, keys, causal, wanted in _LENGTHS:
        q, k, mask = _shapes(batch, shared, queries, keys, wanted)
        found.append(case(reals().of(*q, 8), reals().of(*q, 8), reals().of(*k, 8), reals().of(*k, 8),
                          reals(3, 5).of(*q), reals().of(*q), *mask, causal=causal, scale=0.5,
                          beside=len(batch) > 1))
    return cases(*found, scale=1)


def _scores_value(q: ndarray, k: ndarray, mask: tuple[ndarray, ...], causal: bool, scale: float) -> ndarray:
    scores = q @ k.swapaxes(-1, -2) * scale
    scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -math.inf) if causal else scores
    if not mask:
        return scores
    return np.where(mask[0], scores, -math.inf) if mask[0].dtype == bool else scores + mask[0]


def _for_each_head(q: ndarray, *shared: ndarray) -> list[ndarray]:
    return [np.repeat(x, q.shape[-3] // x.shape[-3], -3) if q.ndim > 2 else x for x in shared]


def _forward_value(q: ndarray, k: ndarray, v: ndarray, *mask: ndarray, causal: bool,
                   scale: float, beside: bool) -> tuple[ndarray, ndarray]:
    k, v = _for_each_head(q, k, v)
    scores = _scores_value(q, k, mask, causal, scale)
    lse = np.log(np.sum(np.exp(scores), -1))
    lse = np.where(np.isneginf(lse), math.inf, lse)
    y = np.exp(scores - lse[..., None]) @ v
    return y.swapaxes(-2, -3) if beside else y, lse


def _gradient_values(g: ndarray, q: ndarray, k: ndarray, v: ndarray, lse: ndarray, delta: ndarray, *mask: ndarray,
                     causal: bool, scale: float, beside: bool) -> tuple:
    heads, (every_k, every_v) = k.shape, _for_each_head(q, k, v)
    p = np.exp(_scores_value(q, every_k, mask, causal, scale) - lse[..., None])
    to_scores = p * (g @ every_v.swapaxes(-1, -2) - delta[..., None]) * scale
    to_k, to_v = to_scores.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g
    if q.shape[:-2] != heads[:-2]:
        to_k, to_v = (x.reshape(*heads[:-2], q.shape[-3] // heads[-3], *x.shape[-2:]).sum(-3) for x in (to_k, to_v))
    found = to_scores @ every_k, to_k, to_v
    return tuple(x.swapaxes(-2, -3) for x in found) if beside else found


_SHARED: Accurate = {"attrs": ("causal", "scale", "beside"), "defaults": {"beside": False}, "ulp": 16}

flash_attention = Op("flash_attention", "composite", _forward_type, **_SHARED, decompose=_forward,
                     opaque=Opaque("attention", views=(0, 1, 2, 3)),
                     doc="(softmax(S)·v, log Σ exp(S) of each query) with S = q·kᵀ·scale + mask; operands as of sdpa. "
                         "The second is ∞ for a query that sees no key.",
                     samples=_forward_samples(), reference=_forward_value)
flash_attention_dq = Op("flash_attention_dq", "composite", _dq_type, **_SHARED, decompose=_dq,
                        opaque=Opaque("attention_backward", views=(0, 1, 2, 3, 6)),
                        doc="Gradient of flash_attention's first result by q, from lse and Δ = rowsum(g·y); a mask "
                            "comes last.",
                        samples=_backward_samples(), reference=lambda *x, **how: _gradient_values(*x, **how)[0])
flash_attention_dkv = Op("flash_attention_dkv", "composite", _dkv_type, **_SHARED, decompose=_dkv,
                         opaque=Opaque("attention_backward", views=(0, 1, 2, 3, 6)),
                         doc="Gradients of flash_attention's first result by k and v, from lse and Δ = rowsum(g·y); a "
                             "mask comes last.",
                         samples=_backward_samples(), reference=lambda *x, **how: _gradient_values(*x, **how)[1:])
