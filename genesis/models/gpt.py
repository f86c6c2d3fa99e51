"""GPT-2: a decoder-only transformer (Radford et al. 2019).

Shapes in the comments: B sequences of T tokens, D = config.dim, H heads of size D/H, V tokens in
the vocabulary.

    ids ─▶ token + position embedding ─▶ Block × layers ─▶ norm ─▶ lm_head ─▶ logits
                                           │
                 x + attention(norm(x)), then x + mlp(norm(x))
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import genesis
import genesis.nn.functional as F
from genesis import Tensor, nn


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a model.

    Attributes:
        vocab_size: how many tokens there are.
        context: the longest sequence it sees.
        layers: number of blocks.
        heads: attention heads a block; divides dim.
        dim: size of a token's vector.
        dropout: probability, after the embedding and at the end of each branch.
        bias: whether linear layers and norms have one.
    """

    vocab_size: int = 50257
    context: int = 1024
    layers: int = 12
    heads: int = 12
    dim: int = 768
    dropout: float = 0.0
    bias: bool = True

    def __post_init__(self) -> None:
        if self.dim % self.heads:
            raise ValueError(f"dim={self.dim} is not a multiple of heads={self.heads}")

    @classmethod
    def gpt2(cls, padded: bool = False) -> GPTConfig:
        """The smallest GPT-2, 124 M parameters.

        Args:
            padded: a vocabulary of 50304, a multiple of 128, which matrix products like better.
        """
        return cls(vocab_size=50304 if padded else 50257)

    @classmethod
    def gpt2_medium(cls) -> GPTConfig:
        """GPT-2 with 355 M parameters."""
        return cls(layers=24, heads=16, dim=1024)


class Attention(nn.Module):
    """Causal self-attention: each token looks at itself and at those before it."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.out = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        B, T, D = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.heads, D // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)                  # (B, H, T, D/H) each
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)     # (B, H, T, D/H)
        y = y.transpose(1, 2).reshape(B, T, D)                          # heads side by side
        return self.dropout(self.out(y))


class MLP(nn.Module):
    """The same small network for every token."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.up = nn.Linear(config.dim, 4 * config.dim, bias=config.bias)
        self.gelu = nn.GELU(approximate="tanh")
        self.down = nn.Linear(4 * config.dim, config.dim, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        return self.dropout(self.down(self.gelu(self.up(x))))


class Block(nn.Module):
    """Two residual branches, each with its norm before it: tokens communicate, then compute."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, bias=config.bias)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.dim, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """The language model.

    >>> model = GPT(GPTConfig(vocab_size=65, context=8, layers=1, heads=2, dim=16))
    >>> logits, loss = model(genesis.zeros(2, 8, dtype=genesis.int64))
    >>> logits.shape, loss
    (genesis.Size([2, 8, 65]), None)
    """

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.token = nn.Embedding(config.vocab_size, config.dim)
        self.position = nn.Parameter(genesis.empty(config.context, config.dim))
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim, bias=config.bias)
        self.lm_head = nn.Linear(config.dim, config.vocab_size, bias=False)
        self.lm_head.weight = self.token.weight  # one table reads tokens and predicts them
        self._initialize()

    def _initialize(self) -> None:
        """GPT-2's: normal of deviation 0.02. A block's two outputs are smaller by √(2·layers), so
        that the sum of all branches keeps its variance whatever the depth."""
        residual = 0.02 / math.sqrt(2 * self.config.layers)
        nn.init.normal_(self.position, std=0.02)
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                is_output = name.endswith(("attention.out", "mlp.down"))
                nn.init.normal_(module.weight, std=residual if is_output else 0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Predict each next token.

        Args:
            ids: (B, T) tokens, int64, T ≤ context.
            targets: (B, T) the tokens that follow; -100 where none counts.

        Returns:
            logits (B, T, V), and the mean cross-entropy in nats, or None without targets.
        """
        logits = self.lm_head(self.features(ids))                       # (B, T, V)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def features(self, ids: Tensor) -> Tensor:
        """(B, T) tokens → (B, T, D), what the head predicts from."""
        T = ids.shape[1]
        if self.config.context < T:
            raise ValueError(f"a sequence of {T} tokens is longer than the context, {self.config.context}")
        x = self.dropout(self.token(ids) + self.position[:T])           # (B, T, D)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def parameter_count(self) -> int:
        """Number of parameters, the shared table once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @genesis.no_grad()
    def generate(self, ids: Tensor, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None,
                 seed: int | None = None) -> Tensor:
        """Continue sequences, one sampled token after another.

        Each token is read once while all are within the context: their keys and values are kept, as `GPT2LMHeadModel`
        does it. From there on the model sees the last `context` tokens anew for each: all their positions are others.

        Args:
            ids: (B, T) the beginnings, int64, T ≥ 1.
            max_new_tokens: how many to add.
            temperature: below 1 prefers likely tokens; 0 takes the likeliest.
            top_k: sample among the k likeliest only.
            seed: of the sampling; None for another result each time.

        Returns:
            (B, T + max_new_tokens), beginnings included, on the device of `ids`.

        >>> model = GPT(GPTConfig(vocab_size=65, context=8, layers=1, heads=2, dim=16))
        >>> model.generate(genesis.tensor([[1, 2, 3]]), 9, seed=0).shape
        genesis.Size([1, 12])
        """
        from genesis.models.generation import generate
        from genesis.models.generation.sampling import Sampling
        from genesis.models.gpt2 import GPT2LMHeadModel
        context, device, was_training = self.config.context, self.position.device, self.training
        within = max(0, min(max_new_tokens, context + 1 - ids.shape[1]))    # the last new token is not read
        text = ids.tolist()                                                 # B rows, which grow
        if within:
            text = generate(GPT2LMHeadModel.from_gpt(self), text, within, temperature, top_k, seed=seed).tolist()
        sampling, generator = Sampling(temperature, top_k), genesis.Generator(device=device)
        generator.seed() if seed is None else generator.manual_seed(seed + within)
        self.eval()
        for _ in range(max_new_tokens - within):
            recent = genesis.tensor([row[-context:] for row in text], device=device)
            logits = self.lm_head(self.features(recent)[:, -1])             # (B, V)
            chosen, _ = sampling.choose(logits, generator=generator)
            text = [[*row, token] for row, token in zip(text, chosen.tolist(), strict=True)]
        self.train(was_training)
        return genesis.tensor(text, dtype=genesis.int64, device=ids.device)
