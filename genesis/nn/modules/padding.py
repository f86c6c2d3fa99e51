"""Padding layers: a border of zeros or a number, of reflected or repeated elements, or of those from the other end."""

from __future__ import annotations

from typing import ClassVar

from genesis.frontend.tensor import Tensor
from genesis.nn import functional as F
from genesis.nn.functional.arguments import Ints, each
from genesis.nn.modules.module import Module

__all__ = ["CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
           "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
           "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d"]


class _Pad(Module):
    """`padding`: for all sides, or (before, after) of the last dimension, then of the one before it, and so on."""

    dimensions: ClassVar[int]
    mode: ClassVar[str] = "constant"

    def __init__(self, padding: Ints):
        super().__init__()
        self.padding = each(type(self).__name__, "padding", padding, 2 * self.dimensions)

    def forward(self, input: Tensor) -> Tensor:
        """The input with its border."""
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        """The sizes of the border."""
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Ints, value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The input with its border."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The sizes of the border, and what it holds."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """A border of one value around the last dimension."""

    dimensions = 1


class ConstantPad2d(_ConstantPad):
    """A border of one value around the last two dimensions."""

    dimensions = 2


class ConstantPad3d(_ConstantPad):
    """A border of one value around the last three dimensions."""

    dimensions = 3


class ZeroPad1d(_Pad):
    """A border of zeros around the last dimension."""

    dimensions = 1


class ZeroPad2d(_Pad):
    """A border of zeros around the last two dimensions."""

    dimensions = 2


class ZeroPad3d(_Pad):
    """A border of zeros around the last three dimensions."""

    dimensions = 3


class ReflectionPad1d(_Pad):
    """A border of the elements in reverse around the last dimension."""

    dimensions, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """A border of the elements in reverse around the last two dimensions."""

    dimensions, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """A border of the elements in reverse around the last three dimensions."""

    dimensions, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """A border of the element next to it around the last dimension."""

    dimensions, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """A border of the element next to it around the last two dimensions."""

    dimensions, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """A border of the element next to it around the last three dimensions."""

    dimensions, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """A border of the elements from the other end around the last dimension."""

    dimensions, mode = 1, "circular"


class CircularPad2d(_Pad):
    """A border of the elements from the other end around the last two dimensions."""

    dimensions, mode = 2, "circular"


class CircularPad3d(_Pad):
    """A border of the elements from the other end around the last three dimensions."""

    dimensions, mode = 3, "circular"
