"""Pooling layers; the formulas are in `genesis.nn.functional`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from genesis.frontend.tensor import Tensor
from genesis.nn import functional as F
from genesis.nn.functional.arguments import Ints
from genesis.nn.modules.module import Module

__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
           "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d",
           "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"]


class _MaxPool(Module):
    """The arguments of a maximum pool, as of `functional.max_pool1d`."""

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
                 return_indices: bool = False, ceil_mode: bool = False):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def extra_repr(self) -> str:
        """The arguments."""
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")


class MaxPool1d(_MaxPool):
    """The largest element of each window of (batch, channels, length)."""

    def forward(self, input: Tensor) -> Any:
        """The maxima; with `return_indices` their positions too."""
        return F.max_pool1d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
                            self.return_indices)


class MaxPool2d(_MaxPool):
    """The largest element of each window of (batch, channels, height, width).

    >>> import genesis
    >>> MaxPool2d(2)(genesis.ones(1, 3, 8, 8)).shape
    genesis.Size([1, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Any:
        """The maxima; with `return_indices` their positions too."""
        return F.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
                            self.return_indices)


class MaxPool3d(_MaxPool):
    """The largest element of each window of (batch, channels, depth, height, width)."""

    def forward(self, input: Tensor) -> Any:
        """The maxima; with `return_indices` their positions too."""
        return F.max_pool3d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
                            self.return_indices)


class _MaxUnpool(Module):
    """The arguments of the pool that is undone."""

    dimensions: ClassVar[int]

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0):
        super().__init__()
        self.kernel_size, self.stride, self.padding = (
            tuple(x) if isinstance(x, Sequence) else (x,) * self.dimensions
            for x in (kernel_size, stride if stride is not None else kernel_size, padding))

    def extra_repr(self) -> str:
        """The arguments, one for each dimension."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The maxima of `MaxPool1d` back where they came from."""

    dimensions = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """Maxima and their positions → (batch, channels, length), 0 elsewhere."""
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpool):
    """The maxima of `MaxPool2d` back where they came from."""

    dimensions = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """Maxima and their positions → (batch, channels, height, width), 0 elsewhere."""
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpool):
    """The maxima of `MaxPool3d` back where they came from."""

    dimensions = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """Maxima and their positions → (batch, channels, depth, height, width), 0 elsewhere."""
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class AvgPool1d(Module):
    """The mean of each window of (batch, channels, length); arguments as of `functional.avg_pool1d`."""

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True):
        super().__init__()
        one = _one(kernel_size)
        self.kernel_size, self.stride = one, _one(stride) if stride is not None else one
        self.padding, self.ceil_mode, self.count_include_pad = _one(padding), ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


def _one(value: Ints) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


class _AvgPool(Module):
    """The arguments of an average pool, as of `functional.avg_pool2d`."""

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True, divisor_override: int | None = None):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def extra_repr(self) -> str:
        """The arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPool):
    """The mean of each window of (batch, channels, height, width)."""

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return F.avg_pool2d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
                            self.divisor_override)


class AvgPool3d(_AvgPool):
    """The mean of each window of (batch, channels, depth, height, width)."""

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return F.avg_pool3d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
                            self.divisor_override)


class _LPPool(Module):
    """The arguments of a p-norm pool, as of `functional.lp_pool1d`."""

    def __init__(self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def extra_repr(self) -> str:
        """The arguments."""
        return (f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
                f"ceil_mode={self.ceil_mode}")


class LPPool1d(_LPPool):
    """(Σ x^p)^(1/p) of each window of (batch, channels, length)."""

    def forward(self, input: Tensor) -> Tensor:
        """The norms."""
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPool):
    """(Σ x^p)^(1/p) of each window of (batch, channels, height, width)."""

    def forward(self, input: Tensor) -> Tensor:
        """The norms."""
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPool):
    """(Σ x^p)^(1/p) of each window of (batch, channels, depth, height, width)."""

    def forward(self, input: Tensor) -> Tensor:
        """The norms."""
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _AdaptiveMaxPool(Module):
    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def extra_repr(self) -> str:
        """The number of windows."""
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest element of `output_size` windows that cover (batch, channels, length) evenly."""

    def forward(self, input: Tensor) -> Any:
        """The maxima; with `return_indices` their positions too."""
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest element of `output_size` windows that cover (batch, channels, height, width) evenly."""

    def forward(self, input: Tensor) -> Any:
        """The maxima; with `return_indices` their positions too."""
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest element of `output_size` windows that cover (batch, channels, depth, height, width) evenly."""

    def forward(self, input: Tensor) -> Any:
        """The maxima; with `return_indices` their positions too."""
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _AdaptiveAvgPool(Module):
    def __init__(self, output_size: Any):
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        """The number of windows."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of `output_size` windows that cover (batch, channels, length) evenly."""

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean of `output_size` windows that cover (batch, channels, height, width) evenly."""

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean of `output_size` windows that cover (batch, channels, depth, height, width) evenly."""

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return F.adaptive_avg_pool3d(input, self.output_size)
