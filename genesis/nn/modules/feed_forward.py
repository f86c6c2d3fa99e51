"""Gated feed-forward layers."""

from __future__ import annotations

from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn.modules.linear import Linear
from genesis.nn.modules.module import Module

__all__ = ["FeedForwardSwiGLU", "FeedFowardSwiGLU"]


class FeedForwardSwiGLU(Module):
    """down(silu(gate(x)) · up(x)) (Shazeer 2020, "GLU variants improve transformer").

    Args:
        dim: size of a token's vector.
        hidden_dim: size between the layers.
        bias: whether the three layers have one.
        device, dtype: of the parameters.

    >>> import genesis
    >>> FeedForwardSwiGLU(8, 32)(genesis.ones(2, 5, 8)).shape
    genesis.Size([2, 5, 8])
    """

    def __init__(self, dim: int, hidden_dim: int, bias: bool = False, device: Any = None, dtype: DType | None = None):
        super().__init__()
        self.gate_proj = Linear(dim, hidden_dim, bias=bias, device=device, dtype=dtype)
        self.up_proj = Linear(dim, hidden_dim, bias=bias, device=device, dtype=dtype)
        self.down_proj = Linear(hidden_dim, dim, bias=bias, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) → (..., dim)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


FeedFowardSwiGLU = FeedForwardSwiGLU
