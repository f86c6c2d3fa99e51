"""The peer of `llm_steps.py`: the same models in torch, with the names of Hugging Face's weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class LowRank(nn.Module):
    """A frozen linear layer with a low-rank one beside it, as `genesis.models.LoRA` makes them."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float = 16.0):
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), alpha / rank
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features, dtype=torch.float32) * base.in_features ** -0.5)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, in) → (…, out)."""
        y = self.base(x)
        low = F.linear(F.linear(x.to(self.lora_A.dtype), self.lora_A), self.lora_B)
        return y + (low * self.scale).to(y.dtype)


class Attention(nn.Module):
    """Grouped queries, rotary positions, perhaps a norm of each head's queries and keys."""

    def __init__(self, c: dict[str, Any], qk_norm: bool):
        super().__init__()
        dim, size = c["hidden_size"], c["head_dim"]
        self.size = size
        self.q_proj = nn.Linear(dim, c["num_attention_heads"] * size, bias=False)
        self.k_proj = nn.Linear(dim, c["num_key_value_heads"] * size, bias=False)
        self.v_proj = nn.Linear(dim, c["num_key_value_heads"] * size, bias=False)
        self.o_proj = nn.Linear(c["num_attention_heads"] * size, dim, bias=False)
        self.q_norm = nn.RMSNorm(size, eps=1e-6) if qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(size, eps=1e-6) if qk_norm else nn.Identity()

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
                cache: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
        """(B, T, dim) → (B, T, dim); keys and values go into the first slots of the cache."""
        B, T, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(B, T, -1, self.size)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(B, T, -1, self.size)).transpose(1, 2)
        v = self.v_proj(x).view(B, T, -1, self.size).transpose(1, 2)
        q, k = _turned(q, cos, sin), _turned(k, cos, sin)
        if cache is not None:
            cache[0][:, :, :T] = k
            cache[1][:, :, :T] = v
        y = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat([-b, a], -1) * sin).to(x.dtype)


class FeedForward(nn.Module):
    """down(silu(gate(x)) · up(x))."""

    def __init__(self, c: dict[str, Any]):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, dim) → (B, T, dim)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention, then the feed-forward part, each behind a norm and added to what came in."""

    def __init__(self, c: dict[str, Any], qk_norm: bool):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c["hidden_size"], eps=1e-6)
        self.self_attn = Attention(c, qk_norm)
        self.post_attention_layernorm = nn.RMSNorm(c["hidden_size"], eps=1e-6)
        self.mlp = FeedForward(c)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
                cache: tuple[torch.Tensor, torch.Tensor] | None = None) -> torch.Tensor:
        """(B, T, dim) → (B, T, dim)."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """Embedding, blocks, norm."""

    def __init__(self, c: dict[str, Any], qk_norm: bool):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Block(c, qk_norm) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"], eps=1e-6)
        self.size = c["head_dim"]

    def forward(self, ids: torch.Tensor, caches: list[tuple[torch.Tensor, torch.Tensor]] | None = None) -> torch.Tensor:
        """(B, T) → (B, T, dim)."""
        half = torch.arange(0, self.size, 2, device=ids.device).float() / self.size
        angles = torch.arange(ids.shape[1], device=ids.device).float()[:, None] * (1e4 ** -half)
        angles = torch.cat([angles, angles], -1)
        x = self.embed_tokens(ids)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for number, layer in enumerate(self.layers):
            x = layer(x, cos, sin, None if caches is None else caches[number])
        return self.norm(x)


class Model(nn.Module):
    """A body and a head, perhaps tied."""

    def __init__(self, c: dict[str, Any], qk_norm: bool):
        super().__init__()
        self.model = Body(c, qk_norm)
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        if c["tie_word_embeddings"]:
            self.lm_head.weight = self.model.embed_tokens.weight
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(B, T) → the mean cross-entropy of each next token."""
        return self.loss(self.model(ids), ids)

    def loss(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """(B, T, dim), (B, T) → the same, from the body's vectors."""
        logits = self.lm_head(x)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())

    def compile_parts(self, **options: Any) -> None:
        """Compile each block, and the head with the loss, apart, as torchtitan does. All blocks are one program, which
        is compiled once: of 28 it takes a fraction of what the whole model takes."""
        for block in self.model.layers:
            block.compile(fullgraph=True, **options)
        self.loss = torch.compile(self.loss, fullgraph=True, **options)  # type: ignore[method-assign]

    def following(self, ids: torch.Tensor, caches: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        """(B, T) → (B,) what comes next."""
        return self.lm_head(self.model(ids, caches)[:, -1]).argmax(-1)


def with_low_rank(model: Model, rank: int) -> Model:
    """The model, frozen but for low-rank layers beside all linear ones of its blocks."""
    model.requires_grad_(False)
    for block in model.model.layers:
        for part in (block.self_attn, block.mlp):
            for name, layer in list(part.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(part, name, LowRank(layer, rank))
    return model
