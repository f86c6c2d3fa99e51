"""Scaled dot-product attention."""

from __future__ import annotations

import math

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.recording import record
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.node import broadcast_shapes
from genesis.ir.ops import composite
from genesis.nn.functional.noise import dropout
from genesis.nn.functional.softmax import softmax
from genesis.ops.ranges import arange

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(q·kᵀ·scale + mask)·v (Vaswani et al. 2017).

    Args:
        query: (..., heads, queries, size), floating point.
        key: (..., heads, keys, size); leading dimensions broadcast.
        value: (..., heads, keys, value size).
        attn_mask: broadcasts to (..., queries, keys). A bool mask keeps where it is true, any
            other is added to the scores.
        dropout_p: probability of dropping an attention weight. Also applies in eval mode: pass 0.
        is_causal: query i sees keys 0..i, of those that a mask leaves.
        scale: 1/√size by default.
        enable_gqa: key and value may have fewer heads, each shared by a group of query heads.

    Returns:
        (..., heads, queries, value size) in the query's dtype; the softmax is in float32 at least.

    Raises:
        RuntimeError: shapes, dtypes or devices do not fit.

    >>> import genesis
    >>> q = genesis.ones(1, 2, 5, 4)
    >>> scaled_dot_product_attention(q, q, q, is_causal=True).shape
    genesis.Size([1, 2, 5, 4])
    """
    query, key, value = cast_for(composite.sdpa, query, key, value)
    fitting = query.spec.ndim == key.spec.ndim == value.spec.ndim >= 2 and (
        query.spec.shape[:-2] == key.spec.shape[:-2] == value.spec.shape[:-2])
    if not fitting:
        query, key, value = _fitted(query, key, value, enable_gqa)
    if scale is None:
        scale = 1 / math.sqrt(query.spec.shape[-1] or 1)
    if attn_mask is not None:
        attn_mask = _expanded(attn_mask, query, key)
        if is_causal:
            triangle, is_causal = _triangle(query, key), False
            attn_mask = (attn_mask & triangle if attn_mask.spec.dtype.kind == "bool" else
                         attn_mask.masked_fill(~triangle, -math.inf))
    if dropout_p > 0.0:
        return _with_dropout(query, key, value, attn_mask, dropout_p, is_causal, scale)
    operands = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    result: Tensor = record(composite.sdpa, operands, (is_causal, scale), "scaled_dot_product_attention")
    return result


def _fitted(query: Tensor, key: Tensor, value: Tensor, gqa: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The three with equal leading dimensions; with `gqa` key and value keep fewer heads."""
    operands = [("query", query), ("key", key), ("value", value)]
    if min(query.spec.ndim, key.spec.ndim, value.spec.ndim) < (3 if gqa else 2):
        raise failure("scaled_dot_product_attention", "the three need the dimensions (..., heads, length, size)",
                      operands)
    if gqa:
        heads, shared = query.spec.shape[-3], key.spec.shape[-3]
        if shared == 0 or heads % shared or value.spec.shape[-3] != shared:
            raise failure("scaled_dot_product_attention",
                          f"{heads} query heads are no multiple of {shared} key and {value.spec.shape[-3]} value heads",
                          operands)
    last = -3 if gqa else -2  # the dimensions before it broadcast
    try:
        batch = broadcast_shapes(query.spec.shape[:last], key.spec.shape[:last], value.spec.shape[:last])
    except RuntimeError as error:
        raise failure("scaled_dot_product_attention", str(error), operands,
                      hint="" if gqa else "enable_gqa=True when query heads share a key head") from None
    return tuple(x if x.spec.shape[:last] == batch else x.expand(*batch, *x.spec.shape[last:])  # type: ignore[return-value]
                 for x in (query, key, value))


def _repeat_heads(x: Tensor, times: int) -> Tensor:
    """(..., heads, length, size) → (..., heads·times, length, size), each head `times` times in a row."""
    if times == 1:
        return x
    *batch, heads, length, size = x.spec.shape
    groups = x.unsqueeze(-3).expand(*batch, heads, times, length, size)
    return groups.reshape(*batch, heads * times, length, size)


def _expanded(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask in the scores' shape, and, when it is added, in a dtype that the scores can add."""
    shape = (*query.spec.shape[:-1], key.spec.shape[-2])
    if mask.spec.dtype.kind == "float" and mask.spec.dtype is not query.spec.dtype:
        mask = mask.to(query.spec.dtype)
    if mask.spec.dtype.kind == "int":
        raise failure("scaled_dot_product_attention", "a mask is bool or floating point", [("attn_mask", mask)],
                      hint="mask.bool() to keep where it is not 0")
    try:
        return mask if mask.spec.shape == shape else mask.expand(shape)
    except RuntimeError:
        raise failure("scaled_dot_product_attention", f"the mask does not broadcast to the scores {shape}",
                      [("attn_mask", mask), ("query", query), ("key", key)]) from None


def _triangle(query: Tensor, key: Tensor) -> Tensor:
    """bool[queries, keys]: query i sees keys 0..i."""
    device = query.device
    return arange(query.spec.shape[-2], device=device).unsqueeze(-1) >= arange(key.spec.shape[-2], device=device)


def _with_dropout(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float, causal: bool,
                  scale: float) -> Tensor:
    """The composite's formula with dropout on the weights."""
    if query.spec.ndim > 2:
        times = query.spec.shape[-3] // max(key.spec.shape[-3], 1)
        key, value = _repeat_heads(key, times), _repeat_heads(value, times)
    scores = (query @ key.transpose(-2, -1)) * scale
    if causal:
        mask = _triangle(query, key)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.spec.dtype.kind == "bool" else scores + mask
    weights = softmax(scores, dim=-1).to(query.spec.dtype)
    return dropout(weights, p) @ value
