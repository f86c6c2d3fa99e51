"""torch's memory formats: the orders of dimensions that a program can ask for by name.

They decide where elements lie and so what is a view of what. In which order a convolution on CUDA reads its operands is
the compiler's choice all the same (`passes/graph/channels_last.py`).
"""

from __future__ import annotations

from typing import Any, Final

from genesis.frontend import layouts
from genesis.ir.errors import failure

__all__ = ["channels_last", "channels_last_3d", "contiguous_format", "layout", "memory_format", "preserve_format",
           "strided"]


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
memory_format = layout = MemoryFormat
strided: Final = MemoryFormat("strided")
ORDERS: Final = {channels_last: layouts.CHANNELS_LAST[4], channels_last_3d: layouts.CHANNELS_LAST[5]}
"""Dimensions from the outermost to the innermost."""


def strides_like(op: str, input: Any, memory_format: MemoryFormat | None) -> tuple[int, ...] | None:
    """Dense strides of what is made like the input, or in the format if one is given; None for row-major.

    Raises:
        RuntimeError: the format is one of tensors with another number of dimensions.
    """
    if memory_format is None or memory_format is preserve_format:
        return layouts.like(input.spec, input.part)
    order = ORDERS.get(memory_format, ())
    if order and len(order) != input.spec.ndim:
        raise failure(op, f"required rank {len(order)} tensor to use {memory_format.name} format", [("input", input)])
    return layouts.like(input.spec, None, order)


def format_of(input: Any) -> MemoryFormat:
    """The format that torch calls the tensor's: `channels_last` or `channels_last_3d` where it lies so."""
    part, ndim = input.part, input.spec.ndim
    if part is None or not layouts.is_channels_last(input.spec.shape, part.strides):
        return contiguous_format
    return channels_last if ndim == 4 else channels_last_3d
