"""Device memory of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from genesis.ir.types import Device
from genesis.runtime import shadow_weights
from genesis.runtime.cuda.cuda_python_driver import driver, forgotten_with_driver
from genesis.runtime.cuda.device_checks import raise_failed
from genesis.runtime.cuda.memory_blocks import Block
from genesis.runtime.cuda.memory_lanes import Lane
from genesis.runtime.cuda.memory_pool import pool_of
from genesis.runtime.cuda.stream import Stream, current_stream, when_switching
from genesis.runtime.cuda.stream_order import ordered
from genesis.runtime.host_bytes import address_of, as_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer

_lanes: Final[dict[Device, Lane]] = {}
"""The lane of each GPU's current stream; it is looked up anew after the stream has changed."""

when_switching.append(_lanes.clear)
forgotten_with_driver(_lanes.clear)
forgotten_with_driver(shadow_weights.forget_all)


def _lane(device: Device) -> Lane:
    lane = _lanes[device] = pool_of(device.index).lane(current_stream(device.index))
    return lane


class CUDAStorage:
    """A block of a GPU's memory. It goes back to the pool with the last reference to the storage.

    Args:
        nbytes: its size in bytes.
        device: the GPU.
        source: what the memory is for, shown in reports: a line of the user's program, or a text.

    Attributes:
        ptr: its address; 0 when it is empty. It can change: `trade` moves a storage.
        nbytes: its size in bytes.
        device: the GPU.

    Raises:
        OutOfMemoryError: the GPU has no such block left.
    """

    __slots__ = ("__weakref__", "_block", "_pinned", "device", "nbytes", "ptr")

    _block: Block | None

    def __init__(self, nbytes: int, device: Device, source: object = None):
        # User code pays for making and dropping a storage with every tensor, so the usual case is written out here
        # (`benchmarks/allocator.py`): a block is on the shelf of its size, or of its class (`Lane.quick`). The step of
        # a loop takes it, and behind that there are no calls: see `Stack.taken` for why no signal's exception can come
        # to the block before the storage has it, and `MemoryPool.__init__` for why the sums need no lock.
        self.nbytes = nbytes
        self.device = device
        try:
            quick = _lanes[device].quick
            for block in (quick[nbytes] if nbytes in quick
                          else quick[-nbytes >> 20] or quick[-3 * nbytes >> 21]).taken:
                self._block = block
                break
        except (KeyError, IndexError):  # no block is there, or another thread took it
            self._block = block = None
        if block is None:
            self._take(nbytes, device, source)
            return
        pool = block.pool
        self.ptr = block.address
        block.source = source
        pool.handed_out += 1
        held = pool.held = pool.held + block.units
        if held > pool.peak:
            pool.peak = held

    @classmethod
    def on(cls, stream: Stream, nbytes: int, source: object = None) -> CUDAStorage:
        """A storage for work of a stream that need not be the current one, in whose order its memory is reused.

        Raises:
            OutOfMemoryError: the GPU has no such block left.
        """
        self = cls(0, stream.device)
        self.nbytes = nbytes
        if nbytes:
            self._block = block = pool_of(stream.device.index).allocate(nbytes, stream, source)
            self.ptr = block.address
        return self

    def _take(self, nbytes: int, device: Device, source: object) -> None:
        """The unusual cases: an empty storage, and whatever the pool has to look for."""
        self.ptr = 0
        if nbytes:
            lane = _lanes.get(device) or _lane(device)
            self._block = block = lane.pool.allocate_in(lane, nbytes, source)
            self.ptr = block.address

    def __del__(self) -> None:
        # Where all goes well this method touches no global: at the interpreter's shutdown they may be gone.
        try:
            block = self._block
        except AttributeError:  # a signal came before it had one
            return
        if block is not None:
            block.pool.held -= block.units
            block.home.append(block)

    @property
    def pinned(self) -> bool:
        """Whether the address is known outside (DLPack) and so must never change."""
        return getattr(self, "_pinned", False)  # unset in most: `__init__` is timed (allocator.py)

    @pinned.setter
    def pinned(self, pinned: bool) -> None:
        self._pinned = pinned

    @property
    def source(self) -> object:
        """What the memory is for, as its maker or its last owner said."""
        return None if self._block is None else self._block.source

    @source.setter
    def source(self, source: object) -> None:
        if self._block is not None:
            self._block.source = source

    @property
    def lane_stream(self) -> Stream | None:
        """The stream in whose order the memory may be reused; None if it is not the pool's."""
        return None if self._block is None else self._block.lane.stream

    def record_stream(self, stream: Stream) -> None:
        """Note that work on that stream uses the memory too: it is not reused before that work is done."""
        if self._block is not None:
            self._block.pool.used_on(self._block, stream)

    def copy_from_host(self, buffer: np.ndarray | Buffer) -> None:
        """Overwrite all of the memory with a buffer of the same size in bytes.

        The buffer may be changed as soon as this returns; the GPU may get there later.

        Raises:
            ValueError: the buffer is not contiguous or has another size.
        """
        source = as_bytes(buffer, self.nbytes)
        if self.nbytes:
            shadow_weights.overwritten((self,))
            gpu, index = driver(), self.device.index
            gpu.use(index)
            with ordered(current_stream(index), writes=[self]) as stream:
                gpu.copy_to_device(self.ptr, address_of(source), self.nbytes, stream)

    def copy_to_host(self, buffer: np.ndarray | Buffer) -> None:
        """Wait for the GPU, and write all of the memory into a writable buffer of the same size in bytes.

        Raises:
            ValueError: the buffer is not contiguous, has another size, or cannot be written.
            IndexError: a kernel found an index outside (see `device_checks`).
        """
        destination = as_bytes(buffer, self.nbytes, writable=True)
        if self.nbytes:
            gpu, index = driver(), self.device.index
            gpu.use(index)
            with ordered(current_stream(index), reads=[self]) as stream:
                gpu.copy_to_host(address_of(destination), self.ptr, self.nbytes, stream)
                gpu.synchronize_stream(stream)
            raise_failed(index)

    def copy_from(self, other: CUDAStorage) -> None:
        """Overwrite all of the memory with that of another storage of the same size; does not wait.

        Raises:
            ValueError: the sizes differ.
        """
        if other.nbytes != self.nbytes:
            raise ValueError(f"cannot copy {other.nbytes} bytes over {self.nbytes} bytes of CUDA memory")
        if not self.nbytes:
            return
        shadow_weights.overwritten((self,))
        gpu, index = driver(), self.device.index
        gpu.use(index)
        with ordered(current_stream(index), reads=[other], writes=[self]) as stream:
            gpu.copy(self.ptr, other.ptr, self.nbytes, stream)

    def clone(self) -> CUDAStorage:
        """A new storage with the same content; does not wait."""
        copy = CUDAStorage(self.nbytes, self.device, self.source)
        copy.copy_from(self)
        return copy

    def same(self, other: CUDAStorage) -> bool:
        """Whether both are known to hold the same bytes; False without a look, which would wait for the GPU."""
        return other is self

    def trade(self, other: CUDAStorage) -> None:
        """Swap memories with a storage of the same size and GPU; the contents stay where they are.

        Raises:
            ValueError: one of them is pinned to its address, or the sizes or GPUs differ.
        """
        if self.pinned or other.pinned or self.nbytes != other.nbytes or self.device is not other.device:
            raise ValueError(f"cannot trade the memory of {self} and {other}")
        if self.nbytes:
            shadow_weights.overwritten((self, other))
            self._block, other._block = other._block, self._block
            self.ptr, other.ptr = other.ptr, self.ptr
            self.source, other.source = other.source, self.source  # each keeps what it is for

    def to_numpy(self) -> np.ndarray:
        """The bytes, as a fresh uint8[nbytes] on the host."""
        found = np.empty(self.nbytes, np.uint8)
        self.copy_to_host(found)
        return found

    def __repr__(self) -> str:
        return f"CUDAStorage({self.nbytes} bytes, {self.device}{', pinned' if self.pinned else ''})"
