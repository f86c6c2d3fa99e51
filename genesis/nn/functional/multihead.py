"""Attention with several heads, from the projections of queries, keys and values to that of the result."""

from __future__ import annotations

import math
from typing import Any

from genesis.frontend.recording import require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn.functional.attention import scaled_dot_product_attention
from genesis.nn.functional.dense import linear
from genesis.nn.functional.noise import dropout
from genesis.nn.functional.padding import pad
from genesis.nn.functional.softmax import softmax
from genesis.ops.comparison import where
from genesis.ops.parts import cat, chunk

__all__ = ["multi_head_attention_forward"]

OP = "multi_head_attention_forward"


def multi_head_attention_forward(
        query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
        in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None,
        add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor, out_proj_bias: Tensor | None,
        training: bool = True, key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None,
        k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None, static_k: Tensor | None = None,
        static_v: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
    """Attention of `num_heads` heads (Vaswani et al. 2017, 3.2.2).

    Args:
        query, key, value: (length, batch, size) or (length, size).
        embed_dim_to_check: the query's size, divisible by the heads.
        in_proj_weight, in_proj_bias: (3 · size, size) and (3 · size): of queries, keys and values. With
            `use_separate_proj_weight` the weights are `q_proj_weight`, `k_proj_weight`, `v_proj_weight`.
        bias_k, bias_v: (1, 1, size): a key and a value that every query sees besides.
        add_zero_attn: a key and a value of 0 besides.
        dropout_p, training: of the attention weights.
        out_proj_weight, out_proj_bias: of the result.
        key_padding_mask: (batch, keys) or (keys): true where a key is not to be seen, or numbers to add.
        need_weights: also give the attention weights, which are then made in memory.
        attn_mask: (queries, keys) or (batch · heads, queries, keys), of the same kinds.
        static_k, static_v: (batch · heads, keys, size of a head), taken instead of key and value.
        average_attn_weights: the weights' mean over the heads, not each head's.
        is_causal: says that attn_mask is causal; it must be given all the same.

    Returns:
        ((length, batch, size), and the weights (batch, queries, keys), or (batch, heads, queries, keys), or None).

    Raises:
        RuntimeError: shapes do not fit.
        AssertionError: sizes that torch asserts.
    """
    require_tensors(query, key, value, bias_k, bias_v)
    _check(query, key, value, embed_dim_to_check, num_heads, is_causal and attn_mask is None)
    alone = query.spec.ndim == 2
    if alone:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    queries, batch, size = query.spec.shape
    causal = is_causal and not need_weights and key_padding_mask is None and bias_k is None and not add_zero_attn
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _projected(query, key, value, in_proj_weight, weights, in_proj_bias)
    kept = _mask(attn_mask, key_padding_mask, batch, num_heads, queries, key.spec.shape[0], causal)
    if bias_k is not None and bias_v is not None:
        k, v = (cat([x, b.expand(1, batch, size)]) for x, b in ((k, bias_k), (v, bias_v)))
    q, k, v = (_by_heads(x, num_heads) for x in (q, k, v))
    k = k if static_k is None else static_k.reshape(batch, num_heads, *static_k.spec.shape[-2:])
    v = v if static_v is None else static_v.reshape(batch, num_heads, *static_v.spec.shape[-2:])
    if add_zero_attn:
        k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
    if kept is not None:
        kept = _seeing_more(kept, (bias_k is not None and bias_v is not None) + bool(add_zero_attn))
    dropout_p = dropout_p if training else 0.0
    if need_weights:
        y, seen = _with_weights(q, k, v, kept, dropout_p)
        seen = seen.mean(dim=1) if average_attn_weights else seen
    else:
        y = scaled_dot_product_attention(q, k, v, kept, dropout_p, causal)
        seen = None
    y = linear(y.permute(2, 0, 1, 3).reshape(queries, batch, size), out_proj_weight, out_proj_bias)
    if alone:
        return y.squeeze(1), None if seen is None else seen.squeeze(0)
    return y, seen


def _check(query: Tensor, key: Tensor, value: Tensor, size: int, heads: int, lacks_mask: bool) -> None:
    """Raise the error of what does not fit."""
    if query.spec.ndim not in (2, 3) or not query.spec.ndim == key.spec.ndim == value.spec.ndim:
        raise failure(OP, f"query should be unbatched 2D or batched 3D tensor, and key and value alike, but received "
                      f"{query.spec.ndim}-D, {key.spec.ndim}-D and {value.spec.ndim}-D tensors",
                      [("query", query), ("key", key), ("value", value)], error=AssertionError)
    alike = query.spec.ndim - 1  # the dimensions in which keys and values agree
    if key.spec.shape[:alike] != value.spec.shape[:alike]:
        raise failure(OP, f"key's sequence and batch dims {list(key.spec.shape[:alike])} do not match value's "
                      f"{list(value.spec.shape[:alike])}", [("key", key), ("value", value)], error=AssertionError)
    if alike == 2 and key.spec.shape[1] != query.spec.shape[1]:
        raise failure(OP, f"queries are of {query.spec.shape[1]} examples, keys of {key.spec.shape[1]}",
                      [("query", query), ("key", key)])
    if lacks_mask:
        raise failure(OP, "Need attn_mask if specifying the is_causal hint.", [("query", query)])
    given = query.spec.shape[-1]
    if given != size or given % heads:
        raise failure(OP, f"was expecting embedding dimension of {size}, but got {given}; it must be "
                      f"divisible by num_heads {heads}", [("query", query)], error=AssertionError)


def _by_heads(x: Tensor, heads: int) -> Tensor:
    """(length, batch, size) → (batch, heads, length, size of a head)."""
    length, batch, size = x.spec.shape
    return x.reshape(length, batch, heads, size // heads).permute(1, 2, 0, 3)


def _seeing_more(mask: Tensor, more: int) -> Tensor:
    """The mask with so many keys more, which every query sees."""
    return pad(mask, (0, more), value=1 if mask.spec.dtype.kind == "bool" else 0) if more else mask


def _projected(query: Tensor, key: Tensor, value: Tensor, packed: Tensor | None, weights: Any,
               bias: Tensor | None) -> tuple[Tensor, ...]:
    """Queries, keys and values. Of one tensor they are one product."""
    if weights is None:
        assert packed is not None
        if query is key is value:
            return chunk(linear(query, packed, bias), 3, -1)
        weights = chunk(packed, 3)
    biases: tuple[Any, ...] = (None, None, None) if bias is None else chunk(bias, 3)
    return tuple(linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))


def _mask(attn_mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, queries: int, keys: int,
          causal: bool) -> Tensor | None:
    """One mask for `scaled_dot_product_attention`: true where a key is seen, or numbers to add to the scores.

    None where there is none, or where it says no more than `causal` does.
    """
    parts = []
    if attn_mask is not None:
        shapes = ((queries, keys), (batch * heads, queries, keys))
        if attn_mask.spec.shape not in shapes:
            raise failure(OP, f"The shape of the attn_mask is {attn_mask.spec.shape}, but should be one of {shapes}.",
                          [("attn_mask", attn_mask)])
        parts.append(attn_mask if attn_mask.spec.ndim == 2 else attn_mask.reshape(batch, heads, queries, keys))
    if padding is not None:
        if padding.spec.shape != (batch, keys):
            raise failure(OP, f"expecting key_padding_mask shape of {(batch, keys)}, but got {padding.spec.shape}",
                          [("key_padding_mask", padding)], error=AssertionError)
        parts.append(padding.reshape(batch, 1, 1, keys))
    if not parts or causal:
        return None
    if all(part.spec.dtype.kind == "bool" for part in parts):
        hidden = parts[0] if len(parts) == 1 else parts[0] | parts[1]
        return ~hidden
    numbers = [_added(part) for part in parts]
    return numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]


def _added(mask: Tensor) -> Tensor:
    """-inf where a bool mask hides."""
    if mask.spec.dtype.kind != "bool":
        return mask
    found: Tensor = where(mask, -math.inf, 0.0)
    return found


def _with_weights(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
    scores = (q * (1 / math.sqrt(q.spec.shape[-1]))) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.spec.dtype.kind == "bool" else scores + mask
    seen = dropout(softmax(scores, -1), p)
    return seen @ v, seen
