"""Tensors made with an order of their dimensions in memory, or over a buffer of Python's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure
from genesis.ir.types import DType, as_dtype
from genesis.ops.creation import DeviceLike, empty, finish
from genesis.ops.diagonals import as_strided
from genesis.ops.interop import from_numpy

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["empty_permuted", "empty_strided", "frombuffer"]


def empty_strided(size: Sequence[int], stride: Sequence[int], *, dtype: DType | None = None,
                  device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """A tensor of this shape with these strides, whose content is not specified.

    >>> import genesis
    >>> genesis.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    if len(size) != len(stride):
        raise failure("empty_strided", f"dimensionality of sizes ({len(size)}) must match dimensionality of strides "
                      f"({len(stride)})")
    reach = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return finish(as_strided(empty(reach, dtype=dtype, device=device), size, stride), requires_grad)


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], *, dtype: DType | None = None,
                   device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """A tensor of this shape whose dimensions lie in memory in this order, the outermost first.

    >>> import genesis
    >>> genesis.empty_permuted((2, 3, 5), (0, 2, 1)).stride()
    (15, 1, 3)
    """
    if len(size) != len(physical_layout):
        raise failure("empty_permuted", f"Number of dimensions in size does not match the length of the "
                      f"physical_layout; i.e. len(size) = {len(size)} is not equal to len(physical_layout) = "
                      f"{len(physical_layout)}")
    if sorted(physical_layout) != list(range(len(size))):
        raise failure("empty_permuted", f"Duplicate or missing dimensions in physical_layout {list(physical_layout)}")
    stride, step = [0] * len(size), 1
    for dim in reversed(physical_layout):
        stride[dim], step = step, step * size[dim]
    return empty_strided(size, stride, dtype=dtype, device=device, requires_grad=requires_grad)


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A vector over the memory of a Python buffer, which it shares.

    Args:
        buffer: anything with the buffer protocol.
        dtype: of the elements.
        count: how many; -1 for all.
        offset: bytes to skip.

    >>> import genesis
    >>> genesis.frombuffer(bytearray([1, 0, 2, 0]), dtype=genesis.int16)
    tensor([1, 2], dtype=genesis.int16)
    """
    import numpy as np
    size = memoryview(buffer).nbytes
    dtype = as_dtype(dtype)
    if not 0 <= offset < size or count == 0 or (count > 0 and offset + count * dtype.itemsize > size):
        raise failure("frombuffer", f"{count} elements of {dtype!r} at byte {offset} are not within a buffer of {size} "
                      "bytes", error=ValueError)
    if count < 0 and (size - offset) % dtype.itemsize:
        raise failure("frombuffer", f"buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a "
                      f"multiple of element size ({dtype.itemsize})", error=ValueError)
    return finish(from_numpy(np.frombuffer(buffer, dtype.numpy, count, offset)), requires_grad)


class StridedMethods(TensorBase):
    """The methods that make tensors with strides."""

    __slots__ = ()

    def new_empty_strided(self: Any, size: Sequence[int], stride: Sequence[int], *, dtype: DType | None = None,
                          device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
        """`empty_strided` with this tensor's dtype and device."""
        return empty_strided(size, stride, dtype=dtype or self.spec.dtype, device=device or self.spec.device,
                             requires_grad=requires_grad)
