"""Rotary position embedding: queries and keys turned by angles that grow with their position (Su et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from genesis.frontend.tensor import Tensor
from genesis.ir.types import float32
from genesis.nn.modules.module import Module
from genesis.ops.creation import tensor
from genesis.ops.parts import cat

__all__ = ["RotaryEmbedding", "RotaryScaling"]


@dataclass(frozen=True)
class RotaryScaling:
    """How the angles of a model that was trained on short texts are changed for long ones.

    The names and the fields of `parameters` are those of Hugging Face's `rope_parameters`.

    Attributes:
        kind: "default", "linear", "dynamic", "yarn", "longrope" or "llama3".
        parameters: numbers of the kind, such as `factor` and `original_max_position_embeddings`.
    """

    kind: str = "default"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in _FREQUENCIES:
            raise ValueError(f"there is no rotary scaling {self.kind!r}; there are {', '.join(_FREQUENCIES)}")
        missing = [name for name in _REQUIRED.get(self.kind, ()) if self.parameters.get(name) is None]
        if missing:
            raise ValueError(f"rotary scaling {self.kind!r} needs {', '.join(missing)}")
        for name in _NUMBERS:
            value = self.parameters.get(name)
            if value is not None and not (_is_number(value) and (value > 0 or (value == 0 and name in _ZERO_IS_NONE))):
                raise ValueError(f"rotary scaling {self.kind!r}: {name}={value!r} is no positive number")
        for name in ("long_factor", "short_factor"):
            values = self.parameters.get(name)
            if values is not None and not (isinstance(values, (list, tuple)) and all(map(_is_number, values))
                                           and all(values)):
                raise ValueError(f"rotary scaling {self.kind!r}: {name} is no list of numbers other than 0")

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    def get(self, name: str, default: Any) -> Any:
        """A number of the kind, or the default where it is absent or None."""
        found = self.parameters.get(name)
        return default if found is None else found


_REQUIRED: Final = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("original_max_position_embeddings",),
    "longrope": ("long_factor", "short_factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


_ZERO_IS_NONE: Final = frozenset({"beta_fast", "beta_slow", "mscale", "mscale_all_dim"})
"""Parameters that have their default where they are 0."""

_NUMBERS: Final = ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor",
                   "attention_factor", *sorted(_ZERO_IS_NONE))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class _Table:
    """What a scaling sees: the number of turned dimensions, the base, the model's context and the call's length."""

    dim: int
    base: float
    context: int
    length: int

    def frequencies(self, base: float | None = None) -> list[float]:
        """base^(-2i/dim): radians by position of each pair of dimensions."""
        return [(base or self.base) ** (-2 * i / self.dim) for i in range(self.dim // 2)]


Angles = tuple[list[float], float]
"""Radians by position of each pair of dimensions, and a factor of the turned vectors."""


def _default(table: _Table, scaling: RotaryScaling) -> Angles:
    return table.frequencies(), 1.0


def _linear(table: _Table, scaling: RotaryScaling) -> Angles:
    """Positions are divided by the factor (Chen et al. 2023, position interpolation)."""
    return [f / scaling["factor"] for f in table.frequencies()], 1.0


def _dynamic(table: _Table, scaling: RotaryScaling) -> Angles:
    """The base grows with the text once that is longer than the context (NTK-aware scaling, 2023)."""
    length = max(table.length, table.context)
    stretch = scaling["factor"] * length / table.context - (scaling["factor"] - 1)
    return table.frequencies(table.base * stretch ** (table.dim / (table.dim - 2))), 1.0


def _yarn(table: _Table, scaling: RotaryScaling) -> Angles:
    """Fast dimensions as they are, slow ones interpolated, a ramp between them (YaRN, Peng et al. 2023)."""
    original = scaling["original_max_position_embeddings"]
    factor = scaling.get("factor", table.context / original)

    def dimension(turns: float) -> float:
        """The dimension that makes this many turns over the original context."""
        return table.dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(table.base))

    low, high = dimension(scaling.get("beta_fast", 32) or 32), dimension(scaling.get("beta_slow", 1) or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, table.dim - 1)
    width = high - low or 0.001
    ramp = [min(max((i - low) / width, 0.0), 1.0) for i in range(table.dim // 2)]
    frequencies = [f / factor * r + f * (1 - r) for f, r in zip(table.frequencies(), ramp, strict=True)]
    return frequencies, _yarn_attention(factor, scaling)


def _yarn_attention(factor: float, scaling: RotaryScaling) -> float:
    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
    given = scaling.get("attention_factor", None)
    if given is not None:
        return float(given)
    mscale, everywhere = scaling.get("mscale", 0), scaling.get("mscale_all_dim", 0)
    return scale(mscale) / scale(everywhere) if mscale and everywhere else scale(1.0)


def _longrope(table: _Table, scaling: RotaryScaling) -> Angles:
    """A factor for each dimension, one list for short texts and one for long (LongRoPE, Ding et al. 2024)."""
    original = scaling["original_max_position_embeddings"]
    factors: Sequence[float] = scaling["long_factor" if table.length > original else "short_factor"]
    if len(factors) != table.dim // 2:
        raise ValueError(f"rotary scaling 'longrope' has {len(factors)} factors for {table.dim // 2} pairs")
    factor = scaling.get("factor", table.context / original)
    attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return ([f / by for f, by in zip(table.frequencies(), factors, strict=True)],
            float(scaling.get("attention_factor", attention)))


def _llama3(table: _Table, scaling: RotaryScaling) -> Angles:
    """Slow dimensions are divided by the factor, fast ones not, those between partly (Llama 3.1, 2024)."""
    factor, original = scaling["factor"], scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]

    def scaled(frequency: float) -> float:
        turns = original * frequency / (2 * math.pi)  # over the original context
        kept = min(max((turns - low) / (high - low), 0.0), 1.0) if high > low else float(turns >= low)
        return (1 - kept) * frequency / factor + kept * frequency
    return [scaled(f) for f in table.frequencies()], 1.0


_FREQUENCIES: Final = {"default": _default, "linear": _linear, "dynamic": _dynamic, "yarn": _yarn,
                       "longrope": _longrope, "llama3": _llama3}

BY_LENGTH: Final = frozenset({"dynamic", "longrope"})
"""Scalings whose angles depend on how long the text is."""


class RotaryEmbedding(Module):
    """Cosines and sines of the angles by which queries and keys are turned.

    Dimension i of a vector and dimension i + dim/2 are a pair, as in Llama and GPT-NeoX.

    Args:
        dim: even number of dimensions that are turned: a head's size, or the first part of it.
        max_position_embeddings: the model's context, which "dynamic", "yarn" and "longrope" refer to.
        base: θ; pair i turns by base^(-2i/dim) radians a position.
        scaling: for texts longer than the model was trained on.

    Raises:
        ValueError: an odd `dim`, or an unknown scaling.

    >>> import genesis
    >>> rotary = RotaryEmbedding(8)
    >>> cos, sin = rotary(genesis.arange(5))
    >>> cos.shape, rotary.turn(genesis.ones(1, 2, 5, 8), cos, sin).shape
    (genesis.Size([5, 8]), genesis.Size([1, 2, 5, 8]))
    """

    def __init__(self, dim: int, max_position_embeddings: int = 2048, base: float = 10000.0,
                 scaling: RotaryScaling | None = None):
        super().__init__()
        if dim % 2 or dim <= 0:
            raise ValueError(f"RotaryEmbedding: dim={dim} is not an even number of dimensions")
        if not base > 0:
            raise ValueError(f"RotaryEmbedding: base={base} is no positive number")
        self.dim, self.max_position_embeddings, self.base = dim, max_position_embeddings, base
        self.scaling = scaling or RotaryScaling()
        frequencies, self.attention_factor = self.angles(max_position_embeddings)
        self.register_buffer("inv_freq", tensor(frequencies, dtype=float32), persistent=False)

    @property
    def by_length(self) -> bool:
        """Does the scaling ask how long the text is?"""
        return self.scaling.kind in BY_LENGTH

    def angles(self, length: int) -> Angles:
        """Radians by position of each pair in a text of this many tokens, and the factor of the results."""
        table = _Table(self.dim, self.base, self.max_position_embeddings, length)
        try:
            return _FREQUENCIES[self.scaling.kind](table, self.scaling)
        except ArithmeticError as error:
            raise ValueError(f"RotaryEmbedding: there are no angles for {self} with {dict(self.scaling.parameters)} "
                             f"({error})") from None

    def forward(self, positions: Tensor, length: int | None = None) -> tuple[Tensor, Tensor]:
        """Cosines and sines.

        Args:
            positions: (..., T) integers.
            length: how long the text is, for the scalings that ask; the context by default.

        Returns:
            cos, sin: (..., T, dim), float32.
        """
        frequencies = self.inv_freq
        factor = self.attention_factor
        if length is not None and self.by_length:
            values, factor = self.angles(length)
            frequencies = tensor(values, dtype=float32, device=positions.device)
        half = positions.unsqueeze(-1).to(float32) * frequencies.to(float32)
        angles = cat([half, half], dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return (cos, sin) if factor == 1 else (cos * factor, sin * factor)

    @staticmethod
    def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Turn vectors.

        Args:
            x: (..., heads, T, size), size ≥ dim; the dimensions behind the first `dim` stay as they are.
            cos, sin: (..., T, dim), of this dtype.

        Returns:
            x's shape and dtype.
        """
        dim = cos.shape[-1]
        if cos.ndim > 2:  # a batch of positions: every head has the same
            cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)
        turned, rest = (x, None) if x.shape[-1] == dim else (x[..., :dim], x[..., dim:])
        first, second = turned[..., :dim // 2], turned[..., dim // 2:]
        turned = turned * cos + cat([-second, first], dim=-1) * sin
        return turned if rest is None else cat([turned, rest], dim=-1)

    def extra_repr(self) -> str:
        """Sizes and options."""
        return (f"{self.dim}, max_position_embeddings={self.max_position_embeddings}, base={self.base:g}, "
                f"scaling={self.scaling.kind!r}")
