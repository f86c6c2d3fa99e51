"""einops' layers over Genesis' modules, as `einops.layers.genesis`: what `einops.layers.torch` is over torch's.

    from einops.layers.genesis import Rearrange, Reduce, EinMix

This file is that module: Python finds it under this name once Genesis is imported. It needs einops.
"""

from __future__ import annotations

from typing import Any

from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

from genesis.nn.modules.module import Module
from genesis.nn.parameter import Parameter
from genesis.ops.creation import zeros
from genesis.ops.einsum import einsum

__all__ = ["EinMix", "Rearrange", "Reduce"]


class Rearrange(RearrangeMixin, Module):
    """`einops.rearrange` by a pattern, as a module."""

    def forward(self, input: Any) -> Any:
        """The input with its axes rearranged."""
        return self._apply_recipe(input)


class Reduce(ReduceMixin, Module):
    """`einops.reduce` by a pattern, as a module."""

    def forward(self, input: Any) -> Any:
        """The input reduced over the axes that the pattern leaves out."""
        return self._apply_recipe(input)


class EinMix(_EinmixMixin, Module):
    """A product with a weight over axes that have names, and a bias: einops says which, and how they are made."""

    def _create_parameters(self, weight_shape: list[int], weight_bound: float, bias_shape: list[int] | None,
                           bias_bound: float) -> None:
        self.weight = Parameter(zeros(weight_shape).uniform_(-weight_bound, weight_bound))
        self.bias = None if bias_shape is None else Parameter(zeros(bias_shape).uniform_(-bias_bound, bias_bound))

    def _create_rearrange_layers(self, pre_reshape_pattern: str | None, pre_reshape_lengths: dict[str, int] | None,
                                 post_reshape_pattern: str | None, post_reshape_lengths: dict[str, int] | None) -> None:
        self.pre_rearrange = _rearrange(pre_reshape_pattern, pre_reshape_lengths)
        self.post_rearrange = _rearrange(post_reshape_pattern, post_reshape_lengths)

    def forward(self, input: Any) -> Any:
        """The input mixed with the weight."""
        if self.pre_rearrange is not None:
            input = self.pre_rearrange(input)
        result = einsum(self.einsum_pattern, input, self.weight)
        if self.bias is not None:
            result = result + self.bias
        return result if self.post_rearrange is None else self.post_rearrange(result)


def _rearrange(pattern: str | None, lengths: dict[str, int] | None) -> Any:
    """The layer of a pattern; None where there is none."""
    layer: Any = Rearrange
    return None if pattern is None else layer(pattern, **(lengths or {}))
