"""torch's memory formats, for programs that name them. Results here are row-major: a format asked for changes nothing.

What a convolution on CUDA reads with its channels last is the compiler's choice (`passes/channels_last.py`).
"""

from __future__ import annotations

from typing import Final


class MemoryFormat:
    """An order of dimensions in memory, or the layout of all tensors, by torch's name."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"genesis.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format: Final = MemoryFormat("contiguous_format")
preserve_format: Final = MemoryFormat("preserve_format")
channels_last: Final = MemoryFormat("channels_last")
channels_last_3d: Final = MemoryFormat("channels_last_3d")
strided: Final = MemoryFormat("strided")
ORDERS: Final = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}
"""Dimensions from the outermost to the innermost."""
