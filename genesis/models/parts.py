"""The parts of a transformer: norm, attention, feed-forward, experts, block.

Shapes in the comments: B texts of T tokens, S keys, D = dim, H heads of queries and G of keys and values, size d each.
The names of the parts are those of Llama's weights in Hugging Face's folders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import genesis
import genesis.nn.functional as F
from genesis import Tensor, nn
from genesis.frontend.draw_parts import drawing_part
from genesis.models.architecture import Activation, Architecture, Experts
from genesis.models.masks import Mask

if TYPE_CHECKING:
    from genesis.distributed import DeviceMesh


class LayerCache(Protocol):
    """The keys and values of one layer, of tokens that the model has seen.

    Attributes:
        kind: layers of one kind have their keys in the same places, and share a mask.
    """

    kind: str

    def slots(self, new: Tensor) -> Tensor:
        """The places of all keys that attention looks at, the new tokens' included: (S,)."""
        ...

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, G, T, d) each; returns all that attention looks at, (B, G, S, d) each."""
        ...


def norm_of(spec: Architecture, size: int | None = None) -> nn.Module:
    """A norm of vectors of this size; `dim` by default."""
    if spec.norm == "layer":
        return nn.LayerNorm(size or spec.dim, eps=spec.norm_eps)
    return nn.RMSNorm(size or spec.dim, eps=spec.norm_eps)


def activate(x: Tensor, activation: Activation) -> Tensor:
    """The nonlinearity of a feed-forward part."""
    if activation == "silu":
        return F.silu(x)
    if activation == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


class Attention(nn.Module):
    """Heads of queries look at heads of keys, which several of them share.

    Attributes:
        kv_heads: how many heads of keys this process has.
        mesh: the processes that have the others; None: there are none.
        place: this process' place among them, and how many they are.
    """

    def __init__(self, spec: Architecture, layer: int):
        super().__init__()
        self.kv_heads = spec.kv_heads
        self.mesh: DeviceMesh | None = None
        self.place = 0, 1
        self.head_dim, self.causal = spec.head_dim, spec.causal
        self.groups = spec.heads // spec.kv_heads
        self.scale = None if spec.scales is None else spec.scales[layer]
        self.dropout = spec.dropout.attention
        inner, shared = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        self.q_proj = nn.Linear(spec.dim, inner, bias=spec.qkv_bias)
        self.k_proj = nn.Linear(spec.dim, shared, bias=spec.qkv_bias)
        self.v_proj = nn.Linear(spec.dim, shared, bias=spec.qkv_bias)
        self.o_proj = nn.Linear(inner, spec.dim, bias=spec.out_bias)
        if spec.qk_norm:
            self.q_norm, self.k_norm = norm_of(spec, spec.head_dim), norm_of(spec, spec.head_dim)
        self.qk_norm = spec.qk_norm

    def share_heads(self, mesh: DeviceMesh) -> None:
        """Keep the heads of this process alone; what they give is summed by the layer behind."""
        self.mesh, self.kv_heads = mesh, max(1, self.kv_heads // mesh.size())
        self.place = mesh.get_local_rank(), mesh.size()

    def forward(self, x: Tensor, mask: Mask, angles: tuple[Tensor, Tensor] | None,
                cache: LayerCache | None = None) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, -1, self.head_dim)                # (B, T, H, d)
        k = self.k_proj(x).view(B, T, -1, self.head_dim)                # (B, T, G, d)
        v = self.v_proj(x).view(B, T, -1, self.head_dim).transpose(1, 2)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        if angles is not None:
            q, k = nn.RotaryEmbedding.turn(q, *angles), nn.RotaryEmbedding.turn(k, *angles)
        if cache is not None:
            held = cache.update(k, v)                                   # (B, G, S, d)
            k, v = (k, v) if mask.own else held
        with drawing_part(-3, *self.place):
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask.visible, is_causal=mask.is_causal, scale=self.scale,
                dropout_p=self.dropout if self.training else 0.0, enable_gqa=self.groups > 1)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


class FeedForward(nn.Module):
    """down(act(up(x))): two layers with an activation between them."""

    def __init__(self, spec: Architecture):
        super().__init__()
        self.activation = spec.activation
        self.up_proj = nn.Linear(spec.dim, spec.hidden, bias=spec.mlp_bias)
        self.down_proj = nn.Linear(spec.hidden, spec.dim, bias=spec.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        return self.down_proj(activate(self.up_proj(x), self.activation))


class GatedFeedForward(nn.FeedForwardSwiGLU):
    """down(act(gate(x)) · up(x)), with any activation."""

    def __init__(self, spec: Architecture):
        super().__init__(spec.dim, spec.hidden, bias=spec.mlp_bias)
        self.activation = spec.activation

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        return self.down_proj(activate(self.gate_proj(x), self.activation) * self.up_proj(x))


class ExpertWeights(nn.Module):
    """The gated feed-forward layers of E experts: (E, hidden, D), (E, hidden, D) and (E, D, hidden)."""

    def __init__(self, spec: Architecture, experts: Experts):
        super().__init__()
        size = experts.count, experts.hidden, spec.dim
        self.gate_proj = nn.Parameter(genesis.empty(size))
        self.up_proj = nn.Parameter(genesis.empty(size))
        self.down_proj = nn.Parameter(genesis.empty(experts.count, spec.dim, experts.hidden))


class MixtureOfExperts(nn.Module):
    """Each token goes through the few experts that a router gives the highest probability (Shazeer et al. 2017)."""

    def __init__(self, spec: Architecture, experts: Experts):
        super().__init__()
        self.chosen, self.normalized, self.activation = experts.chosen, experts.normalized, spec.activation
        self.gate = nn.Linear(spec.dim, experts.count, bias=False)
        self.experts = ExpertWeights(spec, experts)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        tokens = x.flatten(0, -2)                                       # (N, D)
        probabilities = F.softmax(self.gate(tokens), dim=-1, dtype=genesis.float32)
        weights, chosen = probabilities.topk(self.chosen, dim=-1)       # (N, K) each
        if self.normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights.to(x.dtype)
        if tokens.shape[0] * self.chosen <= self.experts.gate_proj.shape[0]:
            return self._gathered(tokens, weights, chosen).view(x.shape)
        return self._all(tokens, weights, chosen).view(x.shape)

    def _gathered(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Few tokens: the chosen experts' layers are gathered for each."""
        held = self.experts
        x = tokens.unsqueeze(1).unsqueeze(-1)                           # (N, 1, D, 1)
        gate = genesis.matmul(held.gate_proj[chosen], x).squeeze(-1)    # (N, K, hidden)
        up = genesis.matmul(held.up_proj[chosen], x).squeeze(-1)
        inner = activate(gate, self.activation) * up
        out = genesis.matmul(held.down_proj[chosen], inner.unsqueeze(-1)).squeeze(-1)
        return (out * weights.unsqueeze(-1)).sum(1)

    def _all(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Many tokens: all go through each expert, and what was not chosen has weight zero."""
        held = self.experts
        share = genesis.zeros(tokens.shape[0], held.gate_proj.shape[0], dtype=weights.dtype, device=weights.device)
        share = share.scatter(1, chosen, weights)                       # (N, E)
        gate = genesis.matmul(tokens, held.gate_proj.transpose(1, 2))   # (E, N, hidden)
        up = genesis.matmul(tokens, held.up_proj.transpose(1, 2))
        inner = activate(gate, self.activation) * up
        out = genesis.matmul(inner, held.down_proj.transpose(1, 2))     # (E, N, D)
        return (out * share.transpose(0, 1).unsqueeze(-1)).sum(0)


def feed_forward_of(spec: Architecture, layer: int) -> nn.Module:
    """The feed-forward part of a layer."""
    experts = spec.experts[layer]
    if experts is not None:
        return MixtureOfExperts(spec, experts)
    return GatedFeedForward(spec) if spec.gated else FeedForward(spec)


class Block(nn.Module):
    """Attention, then the feed-forward part, each added to what came in."""

    def __init__(self, spec: Architecture, layer: int):
        super().__init__()
        self.norm_first = spec.norm_first
        self.input_layernorm = norm_of(spec)
        self.self_attn = Attention(spec, layer)
        self.post_attention_layernorm = norm_of(spec)
        self.mlp = feed_forward_of(spec, layer)
        self.dropout = nn.Dropout(spec.dropout.branch)

    def forward(self, x: Tensor, mask: Mask, angles: tuple[Tensor, Tensor] | None,
                cache: LayerCache | None = None) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        if self.norm_first:
            x = x + self.dropout(self.self_attn(self.input_layernorm(x), mask, angles, cache))
            return x + self.dropout(self.mlp(self.post_attention_layernorm(x)))
        x = self.input_layernorm(x + self.dropout(self.self_attn(x, mask, angles, cache)))
        return self.post_attention_layernorm(x + self.dropout(self.mlp(x)))
