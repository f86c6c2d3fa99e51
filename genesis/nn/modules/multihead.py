"""Attention with several heads as a layer."""

from __future__ import annotations

from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn import init
from genesis.nn.modules.linear import NonDynamicallyQuantizableLinear
from genesis.nn.modules.module import Module
from genesis.nn.parameter import Parameter
from genesis.ops.creation import empty

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of several heads with its projections (Vaswani et al. 2017, 3.2.2).

    Args:
        embed_dim: size of queries and of the result; the heads share it out.
        num_heads: how many heads.
        dropout: probability of dropping an attention weight, in training.
        bias: False leaves the projections' biases out.
        add_bias_kv: a learned key and value that every query sees besides.
        add_zero_attn: a key and a value of 0 besides.
        kdim, vdim: sizes of keys and of values, embed_dim by default.
        batch_first: tensors are (batch, length, size), not (length, batch, size).
        device, dtype: of the parameters.

    >>> import genesis
    >>> x = genesis.ones(2, 5, 8)
    >>> y, weights = MultiheadAttention(8, 2, batch_first=True)(x, x, x)
    >>> y.shape, weights.shape
    (genesis.Size([2, 5, 8]), genesis.Size([2, 5, 5]))
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, device: Any = None, dtype: DType | None = None):
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise failure("MultiheadAttention", f"embed_dim and num_heads must be greater than 0, got embed_dim="
                          f"{embed_dim} and num_heads={num_heads} instead", error=ValueError)
        if embed_dim % num_heads:
            raise failure("MultiheadAttention", f"embed_dim must be divisible by num_heads, but {embed_dim} is not by "
                          f"{num_heads}", error=AssertionError)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim

        def made(*shape: int) -> Parameter:
            return Parameter(empty(*shape, device=device, dtype=dtype))
        apart = not self._qkv_same_embed_dim
        for name, size in (("q_proj_weight", embed_dim), ("k_proj_weight", self.kdim), ("v_proj_weight", self.vdim)):
            self.register_parameter(name, made(embed_dim, size) if apart else None)
        self.register_parameter("in_proj_weight", None if apart else made(3 * embed_dim, embed_dim))
        self.register_parameter("in_proj_bias", made(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, made(1, 1, embed_dim) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draw new initial values."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
                need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """(result, attention weights or None); arguments as of `functional.multi_head_attention_forward`.

        Without `need_weights` the weights are never in memory: that is the fast way.
        """
        turned = self.batch_first and query.ndim == 3
        if turned:
            same = query is key, key is value
            query = query.transpose(0, 1)
            key = query if same[0] else key.transpose(0, 1)
            value = key if same[1] else value.transpose(0, 1)
        y, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training,
            key_padding_mask, need_weights, attn_mask, not self._qkv_same_embed_dim, self.q_proj_weight,
            self.k_proj_weight, self.v_proj_weight, average_attn_weights=average_attn_weights, is_causal=is_causal)
        return y.transpose(0, 1) if turned else y, weights
