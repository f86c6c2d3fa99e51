"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn import init
from genesis.nn.modules.affine import register_affine, reset_affine
from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import weight_and_bias
from genesis.nn.parameter import Parameter
from genesis.ops.creation import ones

__all__ = ["LayerNorm", "RMSNorm"]


def _sizes(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class LayerNorm(Module):
    """(x - mean) / √(variance + eps) · weight + bias over the last dimensions (Ba et al. 2016).

    Args:
        normalized_shape: sizes of the last dimensions, or the size of the last one.
        eps: added to the variance.
        elementwise_affine: False leaves weight (initially 1) and bias (initially 0) out.
        bias: False leaves the bias out.
        device, dtype: of the parameters.

    >>> LayerNorm(8)
    LayerNorm((8,), eps=1e-05, elementwise_affine=True, bias=True)
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
                 bias: bool = True, device: Any = None, dtype: DType | None = None):
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _sizes(normalized_shape), eps, elementwise_affine
        register_affine(self, self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype)

    def reset_parameters(self) -> None:
        """Weight 1 and bias 0 again."""
        reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype."""
        weight, bias = weight_and_bias(self, LayerNorm)
        return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)

    def extra_repr(self) -> str:
        """Sizes and options."""
        return (f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
                f"bias={self.bias is not None}")


class RMSNorm(Module):
    """x / √(mean(x²) + eps) · weight over the last dimensions (Zhang and Sennrich 2019).

    Args:
        normalized_shape: sizes of the last dimensions, or the size of the last one.
        eps: added to the mean; None for the eps of the input's dtype.
        elementwise_affine: False leaves the weight (initially 1) out.
        device, dtype: of the weight.
    """

    weight: Parameter | None

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = None,
                 elementwise_affine: bool = True, device: Any = None, dtype: DType | None = None):
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _sizes(normalized_shape), eps, elementwise_affine
        shape = self.normalized_shape
        self.register_parameter(
            "weight", Parameter(ones(shape, device=device, dtype=dtype)) if elementwise_affine else None)

    def reset_parameters(self) -> None:
        """Weight 1 again."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Sizes and options."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
