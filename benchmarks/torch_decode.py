"""The peer of `decode.py`: the model in torch, with a static cache, a step under torch.compile's reduce-overhead."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Norm, attention over a cache of fixed size, norm, gated feed-forward layer."""

    def __init__(self, c: dict[str, Any], batch: int, capacity: int):
        super().__init__()
        dim, size = c["hidden_size"], c["head_dim"]
        self.heads, self.shared, self.size = c["num_attention_heads"], c["num_key_value_heads"], size
        self.qkv = nn.Linear(dim, (self.heads + 2 * self.shared) * size, bias=False)
        self.out = nn.Linear(self.heads * size, dim, bias=False)
        self.gate_up = nn.Linear(dim, 2 * c["intermediate_size"], bias=False)
        self.down = nn.Linear(c["intermediate_size"], dim, bias=False)
        self.norms = nn.ModuleList([nn.RMSNorm(dim), nn.RMSNorm(dim), nn.RMSNorm(size), nn.RMSNorm(size)])
        self.register_buffer("keys", torch.zeros(batch, self.shared, capacity, size))
        self.register_buffer("values", torch.zeros(batch, self.shared, capacity, size))

    def forward(self, x: torch.Tensor, place: torch.Tensor, mask: torch.Tensor, cos: torch.Tensor,
                sin: torch.Tensor) -> torch.Tensor:
        """(B, T, dim) → (B, T, dim)."""
        B, T, _ = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(B, T, -1, self.size).split([self.heads, self.shared, self.shared], 2)
        q, k = self.norms[2](q).transpose(1, 2), self.norms[3](k).transpose(1, 2)
        q, k = _turned(q, cos, sin), _turned(k, cos, sin)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v.transpose(1, 2))
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, -1))
        gate, up = self.gate_up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Model(nn.Module):
    """Embedding, blocks, norm, head; the likeliest token."""

    def __init__(self, c: dict[str, Any], batch: int, capacity: int):
        super().__init__()
        self.embed = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.blocks = nn.ModuleList(Block(c, batch, capacity) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"])
        self.head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        if c["tie_word_embeddings"]:
            self.head.weight = self.embed.weight
        self.capacity, self.size = capacity, c["head_dim"]

    def forward(self, ids: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """(B, T) tokens at these places → (B,) what comes next."""
        half = torch.arange(0, self.size, 2, device=ids.device).float() / self.size
        angles = place.float()[:, None] * (1e4 ** -half)
        angles = torch.cat([angles, angles], -1)
        x = self.embed(ids)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        mask = torch.arange(self.capacity, device=ids.device) <= place[:, None]
        for block in self.blocks:
            x = block(x, place, mask, cos, sin)
        return self.head(self.norm(x)[:, -1]).argmax(-1)


@torch.no_grad()
def tokens_per_second(c: dict[str, Any], context: int, batch: int, tokens: int) -> tuple[float, float]:
    """(tokens a second, seconds of compiling and the first steps)."""
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        capacity = -(-(context + 6 * tokens) // 256) * 256
        model = Model(c, batch, capacity).eval()
        ids = torch.randint(0, 1000, (batch, context))
        token = model(ids, torch.arange(context))[:, None]
        step = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        place, start = torch.tensor([context]), perf_counter()
        for _ in range(4):
            token = step(token, place).clone()[:, None]
            place += 1
        torch.cuda.synchronize()
        compiling, best = perf_counter() - start, float("inf")
        for _ in range(4):
            start = perf_counter()
            for _ in range(tokens):
                token = step(token, place).clone()[:, None]
                place += 1
            torch.cuda.synchronize()
            best = min(best, (perf_counter() - start) / tokens)
    return batch / best, compiling


__all__ = ["tokens_per_second"]
