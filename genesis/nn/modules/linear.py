"""Linear and bilinear maps, and the modules that only pass on: Flatten, Unflatten and Identity."""

from __future__ import annotations

import math
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn import init
from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import weight_and_bias
from genesis.nn.parameter import Parameter
from genesis.ops.creation import empty

__all__ = ["Bilinear", "Flatten", "Identity", "Linear", "Unflatten"]


class Linear(Module):
    """x · weightᵀ + bias, over the last dimension.

    Args:
        in_features: size of the last dimension of the input.
        out_features: size of the last dimension of the result.
        bias: False leaves the bias out.
        device, dtype: of the parameters.

    The weight is (out_features, in_features); both parameters start uniform within
    1/√in_features, as torch's do.

    >>> import genesis
    >>> layer = Linear(3, 2)
    >>> layer, layer(genesis.ones(5, 3)).shape
    (Linear(in_features=3, out_features=2, bias=True), genesis.Size([5, 2]))
    """

    bias: Parameter | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: DType | None = None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        if self.in_features == 0:
            return
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))  # this slope makes the bound 1/√in_features
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features)
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) → (..., out_features)."""
        weight, bias = weight_and_bias(self, Linear)
        return F.linear(input, weight, bias)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """A `Linear` inside another layer, which reads its parameters: torch's name of it shows in texts of models."""


class Bilinear(Module):
    """y[o] = Σ x1[i] · weight[o, i, j] · x2[j] + bias[o].

    Args:
        in1_features, in2_features: last sizes of the two inputs.
        out_features: last size of the result.
        bias: False leaves the bias out.
        device, dtype: of the parameters, which start uniform within 1/√in1_features.

    >>> Bilinear(2, 3, 4)
    Bilinear(in1_features=2, in2_features=3, out_features=4, bias=True)
    """

    bias: Parameter | None

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: DType | None = None):
        super().__init__()
        if in1_features <= 0:
            raise failure("Bilinear", f"in1_features must be > 0, but got {in1_features}", error=ValueError)
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1 / math.sqrt(self.in1_features)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """(..., in1_features) and (..., in2_features) → (..., out_features)."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes."""
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")


class Flatten(Module):
    """Joins the dimensions start_dim to end_dim into one.

    >>> import genesis
    >>> Flatten()(genesis.ones(2, 3, 4)).shape
    genesis.Size([2, 12])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """A view where the memory allows one."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """The dimensions."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits a dimension into several: undoes `Flatten`.

    >>> import genesis
    >>> Unflatten(1, (3, 4))(genesis.ones(2, 12)).shape
    genesis.Size([2, 3, 4])
    """

    def __init__(self, dim: int, unflattened_size: Any):
        super().__init__()
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        """A view."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """The dimension and its sizes."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Identity(Module):
    """Returns its input; takes and ignores any arguments, so it can stand for any layer."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """The input."""
        return input
