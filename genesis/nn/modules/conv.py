"""Convolution layers; the formulas are in `genesis.nn.functional`."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn import init
from genesis.nn.functional.arguments import Ints, each
from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import weight_and_bias
from genesis.nn.parameter import Parameter
from genesis.ops.creation import empty

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """The base of all convolution layers: sizes, parameters, their first values. `dimensions` are the spatial ones."""

    dimensions: ClassVar[int]
    transposed: ClassVar[bool] = False
    bias: Parameter | None
    padding: tuple[int, ...] | str

    def _set_up(self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints, padding: Ints | str,
                output_padding: Ints, dilation: Ints, groups: int, bias: bool, padding_mode: str, device: Any,
                dtype: DType | None) -> None:
        name, n = type(self).__name__, self.dimensions
        if groups <= 0:
            raise failure(name, "groups must be a positive integer", error=ValueError)
        for what, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise failure(name, f"{what} must be divisible by groups, but {channels} is not by {groups}",
                              error=ValueError)
        if padding_mode not in PADDING_MODES or (self.transposed and padding_mode != "zeros"):
            raise failure(name, f"padding_mode={padding_mode!r} is unknown",
                          hint="'zeros'" if self.transposed else f"one of {PADDING_MODES}", error=ValueError)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = each(name, "kernel_size", kernel_size, n), each(name, "stride", stride, n)
        self.dilation = each(name, "dilation", dilation, n)
        self.output_padding = each(name, "output_padding", output_padding, n)
        self.groups, self.padding_mode = groups, padding_mode
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise failure(name, f"Invalid padding string {padding!r}", hint="'same' or 'valid'", error=ValueError)
            if padding == "same" and any(s != 1 for s in self.stride):
                raise failure(name, "padding='same' is not supported for strided convolutions", error=ValueError)
            self.padding = padding
        else:
            self.padding = each(name, "padding", padding, n)
        ends = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty(*ends, *self.kernel_size, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values: both parameters uniform within 1/√(inputs of an output)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan_in, _ = init.fan_in_and_fan_out(self.weight)
        if self.bias is not None and fan_in:
            init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def _bordered(self, input: Tensor) -> tuple[Tensor, tuple[int, ...] | str]:
        """The input with a border of the layer's mode around it, and what is left to pad with zeros."""
        if self.padding_mode == "zeros":
            return input, self.padding
        border = self._reversed_padding_repeated_twice
        return F.pad(input, border, mode=self.padding_mode), (0,) * self.dimensions

    @property
    def _reversed_padding_repeated_twice(self) -> list[int]:
        """The border as `F.pad` takes it, under torch's name for it, as programs pad by themselves."""
        sides: list[int] = []
        for position in reversed(range(self.dimensions)):
            if isinstance(self.padding, str):
                total = self.dilation[position] * (self.kernel_size[position] - 1) if self.padding == "same" else 0
                sides += (total // 2, total - total // 2)
            else:
                sides += (self.padding[position],) * 2
        return sides

    def extra_repr(self) -> str:
        """Sizes, and what is not at its default."""
        n = self.dimensions
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        parts += [f"padding={self.padding}"] if self.padding != (0,) * n else []
        parts += [f"dilation={self.dilation}"] if self.dilation != (1,) * n else []
        parts += [f"output_padding={self.output_padding}"] if self.output_padding != (0,) * n else []
        parts += [f"groups={self.groups}"] if self.groups != 1 else []
        parts += ["bias=False"] if self.bias is None else []
        parts += [f"padding_mode={self.padding_mode}"] if self.padding_mode != "zeros" else []
        return ", ".join(parts)


class _Forward(_Convolution):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1,
                 padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device: Any = None, dtype: DType | None = None):
        super().__init__()
        self._set_up(in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias, padding_mode,
                     device, dtype)


class Conv1d(_Forward):
    """Convolution over one dimension.

    Args:
        in_channels, out_channels: channels of the input and of the result.
        kernel_size: taps of the window.
        stride: elements from one window to the next.
        padding: elements added on both sides, or "same" or "valid".
        dilation: elements from one tap to the next.
        groups: groups of output channels, each of which sees its group of input channels.
        bias: False leaves the bias out.
        padding_mode: what the border holds: "zeros", "reflect", "replicate" or "circular".
        device, dtype: of the parameters.

    The weight is (out_channels, in_channels / groups, taps).

    >>> import genesis
    >>> Conv1d(3, 4, 3, padding=1)(genesis.ones(2, 3, 8)).shape
    genesis.Size([2, 4, 8])
    """

    dimensions = 1

    def forward(self, input: Tensor) -> Tensor:
        """(batch, in_channels, length) → (batch, out_channels, length')."""
        return self._conv_forward(input, *weight_and_bias(self, Conv1d))

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The result with these parameters, which a layer of a user's own may have made of its own."""
        input, padding = self._bordered(input)
        return F.conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Forward):
    """Convolution over two dimensions; arguments as of `Conv1d`, sizes as one int or a pair.

    >>> Conv2d(3, 8, 3, stride=2, padding=1)
    Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1))
    """

    dimensions = 2

    def forward(self, input: Tensor) -> Tensor:
        """(batch, in_channels, height, width) → (batch, out_channels, height', width')."""
        return self._conv_forward(input, *weight_and_bias(self, Conv2d))

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The result with these parameters, which a layer of a user's own may have made of its own."""
        input, padding = self._bordered(input)
        return F.conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Forward):
    """Convolution over three dimensions; arguments as of `Conv1d`, sizes as one int or three."""

    dimensions = 3

    def forward(self, input: Tensor) -> Tensor:
        """(batch, in_channels, depth, height, width) → (batch, out_channels, depth', height', width')."""
        return self._conv_forward(input, *weight_and_bias(self, Conv3d))

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The result with these parameters, which a layer of a user's own may have made of its own."""
        input, padding = self._bordered(input)
        return F.conv3d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class _Transposed(_Convolution):
    transposed = True
    padding: tuple[int, ...]

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints = 0,
                 output_padding: Ints = 0, groups: int = 1, bias: bool = True, dilation: Ints = 1,
                 padding_mode: str = "zeros", device: Any = None, dtype: DType | None = None):
        super().__init__()
        self._set_up(in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation, groups, bias,
                     padding_mode, device, dtype)

    def _extra(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        """The output padding that gives the wanted sizes."""
        if output_size is None:
            return self.output_padding
        n, name = self.dimensions, type(self).__name__
        wanted = tuple(output_size)[-n:]
        if len(tuple(output_size)) not in (n, n + input.ndim - n) or len(wanted) != n:
            raise failure(name, f"output_size {tuple(output_size)} needs {n} spatial sizes", [("input", input)],
                          error=ValueError)
        found = []
        for m, s, p, d, k, size in zip(input.shape[-n:], self.stride, self.padding, self.dilation, self.kernel_size,
                                       wanted, strict=True):
            least = (m - 1) * s - 2 * p + d * (k - 1) + 1
            if not least <= size <= least + s - 1:
                raise failure(name, f"an output size of {size} is not between {least} and {least + s - 1}",
                              [("input", input)], error=ValueError)
            found.append(size - least)
        return tuple(found)


class ConvTranspose1d(_Transposed):
    """Transposed convolution over one dimension: the gradient of a convolution by its input, as a layer.

    Args:
        in_channels, out_channels: channels of the input and of the result.
        kernel_size: taps of the window.
        stride: how far an element of the input moves the window over the result.
        padding: elements that are cut off the result on both sides.
        output_padding: elements that the result is longer by.
        groups: groups of input channels, each of which makes its group of output channels.
        bias: False leaves the bias out.
        dilation: elements from one tap to the next.
        padding_mode: only "zeros".
        device, dtype: of the parameters.

    The weight is (in_channels, out_channels / groups, taps).

    >>> import genesis
    >>> ConvTranspose1d(3, 4, 4, stride=2, padding=1)(genesis.ones(2, 3, 8)).shape
    genesis.Size([2, 4, 16])
    """

    dimensions = 1

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """(batch, in_channels, length) → (batch, out_channels, length'), of `output_size` if that is given."""
        return F.conv_transpose1d(input, self.weight, self.bias, self.stride, self.padding,
                                  self._extra(input, output_size), self.groups, self.dilation)


class ConvTranspose2d(_Transposed):
    """Transposed convolution over two dimensions; arguments as of `ConvTranspose1d`."""

    dimensions = 2

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """(batch, in_channels, height, width) → (batch, out_channels, height', width')."""
        return F.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding,
                                  self._extra(input, output_size), self.groups, self.dilation)


class ConvTranspose3d(_Transposed):
    """Transposed convolution over three dimensions; arguments as of `ConvTranspose1d`."""

    dimensions = 3

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """(batch, in_channels, depth, height, width) → (batch, out_channels, depth', height', width')."""
        return F.conv_transpose3d(input, self.weight, self.bias, self.stride, self.padding,
                                  self._extra(input, output_size), self.groups, self.dilation)


_ConvNd, _ConvTransposeNd = _Convolution, _Transposed  # the names that programs ask `isinstance` with
