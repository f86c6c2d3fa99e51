"""GPT-2 in torch with the parameter names of `genesis.models.gpt`, the peer of the benchmarks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class MLP(nn.Module):
    """The feed-forward branch."""

    def __init__(self, dim: int):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    """Two residual branches."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(dim), Attention(dim, heads)
        self.norm2, self.mlp = nn.LayerNorm(dim), MLP(dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TorchGPT(nn.Module):
    """GPT-2 with a tied head."""

    def __init__(self, vocab: int, context: int, layers: int, heads: int, dim: int):
        super().__init__()
        self.position = nn.Parameter(torch.zeros(context, dim))
        self.token = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T) twice → logits (B, T, V), mean loss."""
        x = self.token(ids) + self.position[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.token.weight)
        return logits, F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def parameter_shapes(vocab: int, context: int, layers: int, dim: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the parameters, the tied head's among them."""
    with torch.device("meta"):
        model = TorchGPT(vocab, context, layers, 12, dim)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return {**shapes, "lm_head.weight": shapes["token.weight"]}
