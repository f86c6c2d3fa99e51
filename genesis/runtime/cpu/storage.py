"""Host memory of a tensor. Plain numpy: creating, printing and saving tensors needs no torch.

A plan's results lie in memory that torch allocated; numpy looks at those bytes only when somebody asks for them.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

import numpy as np

from genesis.ir.types import Device, TensorType, cpu
from genesis.runtime.host_bytes import address_of, as_bytes, byte_of

if TYPE_CHECKING:
    import torch
    from typing_extensions import Buffer

ALIGNMENT: Final = 64
"""Bytes that every address is a multiple of: a cache line, and the widest vector register."""

_uint8 = np.dtype(np.uint8)


def allocate(nbytes: int) -> tuple[np.ndarray, int]:
    """Allocate memory: its bytes, whose contents are undefined, and its address, a multiple of `ALIGNMENT`.

    Every allocation of a `CPUStorage` but a plan's outputs comes from here.

    Raises:
        MemoryError: the host has no such block.
    """
    if nbytes == 0:
        return np.empty(0, _uint8), 0
    block = np.empty(nbytes + ALIGNMENT - 1, _uint8)
    address = ctypes.addressof(byte_of(block))
    skip = -address % ALIGNMENT
    return block[skip:skip + nbytes], address + skip


class CPUStorage:
    """A block of host memory.

    Attributes:
        nbytes: its size in bytes.
        tensor: a torch tensor that shows all of it; None until somebody has computed with it.
        shown: the type of `tensor`.
        device: always `cpu`.

    >>> from genesis.ir.types import float32, tensor_type
    >>> memory = CPUStorage(8)
    >>> memory.copy_from_host(np.array([1, 2], np.float32))
    >>> memory.numpy(tensor_type((2, 1), float32))
    array([[1.],
           [2.]], dtype=float32)
    """

    __slots__ = ("__weakref__", "_bytes", "_ptr", "nbytes", "shown", "tensor")

    device: Final[Device] = cpu

    def __init__(self, nbytes: int):
        self._bytes: np.ndarray | None
        self._ptr: int
        self._bytes, self._ptr = allocate(nbytes)
        self.nbytes = nbytes
        self.tensor: torch.Tensor | None = None
        self.shown: TensorType | None = None

    @classmethod
    def wrap(cls, array: np.ndarray) -> CPUStorage:
        """A storage over the memory of a contiguous array; both see what either writes.

        Raises:
            ValueError: the array is not C-contiguous.
        """
        self = object.__new__(cls)
        self._bytes = as_bytes(array, array.nbytes)
        self.nbytes = array.nbytes
        self._ptr = address_of(self._bytes)
        self.tensor = self.shown = None
        return self

    @classmethod
    def holding(cls, tensor: torch.Tensor, type: TensorType) -> CPUStorage:
        """A storage over the memory of a contiguous torch tensor of this type that shares it with no other."""
        self = object.__new__(cls)
        self._bytes, self._ptr = None, 0
        self.nbytes, self.tensor, self.shown = type.nbytes, tensor, type
        return self

    @property
    def bytes(self) -> np.ndarray:
        """The memory as an array uint8[nbytes]."""
        if self._bytes is None:
            from genesis.runtime.cpu.thread_modes import bytes_of
            assert self.tensor is not None
            shown = bytes_of(self.tensor)
            self._ptr = address_of(shown)  # first: who finds bytes takes the address for known
            self._bytes = shown
        return self._bytes

    @property
    def ptr(self) -> int:
        """The memory's address; 0 when it is empty."""
        return self._ptr if self._bytes is not None else address_of(self.bytes)

    def clone(self) -> CPUStorage:
        """A new storage with the same content."""
        copy = CPUStorage(self.nbytes)
        copy.bytes[:] = self.bytes
        return copy

    def same(self, other: CPUStorage) -> bool:
        """True if both hold the same bytes."""
        return bool(np.array_equal(self.bytes, other.bytes))

    def numpy(self, type: TensorType) -> np.ndarray:
        """The first `type.nbytes` bytes as a row-major array of that shape and dtype, sharing this memory.

        Raises:
            ValueError: the type needs more bytes than there are.
        """
        needed = type.nbytes
        if needed == self.nbytes:
            return self.bytes.view(type.dtype.numpy).reshape(type.shape)
        if needed > self.nbytes:
            raise ValueError(f"{type} needs {needed} bytes, the storage has {self.nbytes}")
        return self.bytes[:needed].view(type.dtype.numpy).reshape(type.shape)

    def number(self, type: TensorType, at: int) -> bool | int | float:
        """The element at a place in row-major order, as a Python number; `type` is that of the whole memory."""
        if self.shown is type:
            assert self.tensor is not None
            try:
                return (self.tensor if type.numel == 1 else self.tensor.view(-1)[at]).item()
            except AssertionError:  # torch's FakeTensorMode is on, and refuses what is no fake
                pass
        size = type.dtype.itemsize
        return self.bytes[at * size:(at + 1) * size].view(type.dtype.numpy).item()

    def copy_from_host(self, buffer: np.ndarray | Buffer) -> None:
        """Overwrite all of the memory with a buffer of the same size in bytes."""
        self.bytes[:] = as_bytes(buffer, self.nbytes)

    def copy_to_host(self, buffer: np.ndarray | Buffer) -> None:
        """Write all of the memory into a writable buffer of the same size in bytes."""
        as_bytes(buffer, self.nbytes, writable=True)[:] = self.bytes

    def __repr__(self) -> str:
        return f"CPUStorage({self.nbytes} bytes)"
