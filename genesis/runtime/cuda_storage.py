"""Device memory of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from genesis.ir.types import Device
from genesis.runtime.cuda_driver import driver
from genesis.runtime.cuda_stream import current_stream
from genesis.runtime.host_bytes import address_of, as_bytes
from genesis.runtime.memory_pool import Block, pool_of


class CUDAStorage:
    """A block of a GPU's memory. It goes back to the pool with the last reference to the storage.

    Attributes:
        ptr: its address; 0 when it is empty. It can change: `trade` moves a storage.
        nbytes: its size in bytes.
        device: the GPU.
        pinned: whether the address is known outside (DLPack) and so must never change.

    Raises:
        OutOfMemoryError: the GPU has no such block left.
    """

    __slots__ = ("__weakref__", "_block", "_give_back", "device", "nbytes", "pinned", "ptr")

    def __init__(self, nbytes: int, device: Device):
        self._block: Block | None = None  # first, for __del__ after a failure below
        self.nbytes = nbytes
        self.device = device
        self.pinned = False
        self.ptr = 0
        if nbytes:
            pool = pool_of(device.index)
            self._give_back = pool.give_back
            self._block = block = pool.allocate(nbytes, current_stream(device.index).handle)
            self.ptr = block.address

    def copy_from_host(self, buffer: Any) -> None:
        """Overwrite all of the memory with a buffer of the same size in bytes.

        The buffer may be changed as soon as this returns; the GPU may get there later.

        Raises:
            ValueError: the buffer is not contiguous or has another size.
        """
        source = as_bytes(buffer, self.nbytes)
        if self.nbytes:
            gpu, index = driver(), self.device.index
            gpu.use(index)
            gpu.copy_to_device(self.ptr, address_of(source), self.nbytes, current_stream(index).handle)

    def copy_to_host(self, buffer: Any) -> None:
        """Wait for the GPU, and write all of the memory into a writable buffer of the same size in bytes.

        Raises:
            ValueError: the buffer is not contiguous, has another size, or cannot be written.
        """
        destination = as_bytes(buffer, self.nbytes, writable=True)
        if self.nbytes:
            gpu, index = driver(), self.device.index
            gpu.use(index)
            stream = current_stream(index).handle
            gpu.copy_to_host(address_of(destination), self.ptr, self.nbytes, stream)
            gpu.synchronize_stream(stream)

    def copy_from(self, other: CUDAStorage) -> None:
        """Overwrite all of the memory with that of another storage of the same size; does not wait.

        Raises:
            ValueError: the sizes differ.
        """
        if other.nbytes != self.nbytes:
            raise ValueError(f"cannot copy {other.nbytes} bytes over {self.nbytes} bytes of CUDA memory")
        if not self.nbytes:
            return
        gpu, index = driver(), self.device.index
        stream = current_stream(index)
        if other.device is not self.device:
            stream.wait_stream(current_stream(other.device.index))
        gpu.use(index)
        gpu.copy(self.ptr, other.ptr, self.nbytes, stream.handle)
        if other.device is not self.device:
            # The other GPU's pool reuses memory in the order of its own stream, which must wait for the copy.
            current_stream(other.device.index).wait_stream(stream)

    def trade(self, other: CUDAStorage) -> None:
        """Swap memories with a storage of the same size and GPU; the contents stay where they are.

        Raises:
            ValueError: one of them is pinned to its address, or the sizes or GPUs differ.
        """
        if self.pinned or other.pinned or self.nbytes != other.nbytes or self.device is not other.device:
            raise ValueError(f"cannot trade the memory of {self} and {other}")
        if self.nbytes:
            self._block, other._block = other._block, self._block
            self.ptr, other.ptr = other.ptr, self.ptr

    def __del__(self) -> None:
        # Touches nothing global: at the interpreter's shutdown there may be none left.
        block = self._block
        if block is not None:
            self._block = None
            self._give_back(block)

    def to_numpy(self) -> np.ndarray:
        """The bytes, as a fresh uint8[nbytes] on the host."""
        found = np.empty(self.nbytes, np.uint8)
        self.copy_to_host(found)
        return found

    def __repr__(self) -> str:
        return f"CUDAStorage({self.nbytes} bytes, {self.device}{', pinned' if self.pinned else ''})"
