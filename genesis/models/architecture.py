"""What a transformer is made of: the one description that the families' configurations are turned into.

    config.json ─ family ─▶ Architecture ─▶ Transformer (parts.py, transformer.py)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from genesis.nn import RotaryScaling

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh", "relu": "relu",
}
"""Names of activations in `config.json` → what they compute."""


def activation_named(name: str) -> Activation:
    """The activation that `config.json` names.

    >>> activation_named("gelu_new")
    'gelu_tanh'
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"there is no activation {name!r} for feed-forward layers; there are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


@dataclass(frozen=True)
class Rotary:
    """Rotary positions: the base, and the scaling for long texts."""

    base: float = 10000.0
    scaling: RotaryScaling = field(default_factory=RotaryScaling)


@dataclass(frozen=True)
class Experts:
    """A feed-forward part of many networks, of which a token goes through the best few.

    Attributes:
        count, chosen: how many there are, and how many a token goes through.
        hidden: size between an expert's layers.
        normalized: the weights of the chosen are divided by their sum.
    """

    count: int
    chosen: int
    hidden: int
    normalized: bool


@dataclass(frozen=True)
class Dropout:
    """Probabilities: behind the embedding, of attention weights, behind each branch."""

    embedding: float = 0.0
    attention: float = 0.0
    branch: float = 0.0


@dataclass(frozen=True)
class Architecture:
    """A transformer.

    Attributes:
        vocab_size: how many tokens there are.
        dim: size of a token's vector.
        layers: number of blocks.
        heads, kv_heads: of queries; of keys and values. The second divides the first.
        head_dim: size of a head, which need not be dim / heads.
        hidden: size between the layers of a feed-forward part.
        context: the longest text that the model was made for.
        causal: a token sees those before it only.
        norm, norm_eps: root mean square or layer norm, and what is added to the variance.
        norm_first: norms stand before each branch and at the end; False: behind each sum, as in BERT.
        activation, gated: of the feed-forward part; a gated one has three layers.
        qkv_bias, out_bias, mlp_bias: whether those layers have one.
        qk_norm: a norm of each head's queries and keys.
        scales: of the scores of each layer; None for 1/√head_dim.
        rotary: positions as rotations, or None.
        position_table: rows of a learned table of positions; 0 for none.
        segments: rows of a table of segments (BERT's token types); 0 for none.
        windows: how many tokens each layer looks back, itself included; None for all.
        experts: for each layer, None for a plain feed-forward part.
        tied: the head is the embedding's table.
        padding: the token whose vector gets no gradient where it is read, or None; a head that is tied to the table has
            one for it all the same.
        initial_deviation: standard deviation of weights that are drawn.
    """

    vocab_size: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    context: int
    causal: bool = True
    norm: Literal["rms", "layer"] = "rms"
    norm_eps: float = 1e-6
    norm_first: bool = True
    activation: Activation = "silu"
    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    scales: tuple[float, ...] | None = None
    rotary: Rotary | None = None
    position_table: int = 0
    segments: int = 0
    windows: tuple[int | None, ...] = ()
    experts: tuple[Experts | None, ...] = ()
    tied: bool = False
    padding: int | None = None
    dropout: Dropout = Dropout()
    initial_deviation: float = 0.02

    def __post_init__(self) -> None:
        for name in ("vocab_size", "dim", "layers", "heads", "kv_heads", "head_dim", "hidden", "context"):
            if (size := getattr(self, name)) < 1:
                raise ValueError(f"a transformer with {name} = {size}: it needs one at the least")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads of queries cannot share {self.kv_heads} of keys and values evenly")
        if self.padding is not None and not -self.vocab_size <= self.padding < self.vocab_size:
            raise ValueError(f"a transformer with a padding token {self.padding}: it is one of {self.vocab_size}")
        if self.initial_deviation < 0:
            raise ValueError(f"weights of a standard deviation of {self.initial_deviation}: it is 0 or more")
        for name in ("windows", "experts"):
            if not getattr(self, name):
                object.__setattr__(self, name, (None,) * self.layers)
