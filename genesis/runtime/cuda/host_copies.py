"""Memories of a GPU copied to the host beside the program's work, by any thread.

    memory ─ side stream ─▶ two page-locked pieces, in turn ─ the thread that reads ─▶ an array

`CUDAStorage.copy_to_host` takes its turn behind all that the current stream was given, and its caller holds the lock of
the engine while it waits: a thread that read a checkpoint so let the program give the GPU nothing meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import numpy as np

from genesis.ir.types import Device
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.cuda.device_checks import raise_failed
from genesis.runtime.cuda.driver import EventHandle
from genesis.runtime.cuda.owed_launches import owed_launches, settle
from genesis.runtime.cuda.page_locked import buffers
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.cuda.stream import Stream, current_stream
from genesis.runtime.host_bytes import address_of

PIECE: Final = 8 << 20
"""Bytes that are copied at once, about 0.2 ms of a PCIe 5 link: what a piece's begin and end take is little beside."""


class _Begun(NamedTuple):
    """A piece whose copy was begun: its event, where it lies, and where it belongs."""

    end: EventHandle
    piece: np.ndarray
    target: np.ndarray


class HostCopies:
    """Copies memories as they are when the work is done that the current stream was given before this was made.

    Nobody writes to the memories, or lets go of them, before they are read. One thread reads at a time.

    Args:
        device: the GPU.
    """

    def __init__(self, device: Device):
        self._gpu, self._device, self._stream = driver(), device, _side_stream(device)
        self._gpu.use(device.index)
        ready = self._gpu.create_event(False)
        self._gpu.record_event(ready, current_stream(device.index).handle)
        self._gpu.wait_event(self._stream.handle, ready)
        self._gpu.destroy_event(ready)

    def bytes_of(self, memory: CUDAStorage) -> np.ndarray:
        """The bytes of a memory as a new uint8[nbytes]. Waits for its copy alone.

        Raises:
            IndexError: a kernel found an index outside (see `device_checks`).
        """
        if owed := owed_launches():
            settle(owed, (self._device.index,))
        found = np.empty(memory.nbytes, np.uint8)
        pieces = [buffers().empty(min(PIECE, memory.nbytes)) for _ in range(min(2, -(-memory.nbytes // PIECE)))]
        begun: deque[_Begun] = deque()
        self._gpu.use(self._device.index)
        try:
            for number, start in enumerate(range(0, memory.nbytes, PIECE)):
                if len(begun) == len(pieces):
                    self._finish(begun)
                target = found[start:start + PIECE]
                begun.append(self._begin(memory.ptr + start, pieces[number % 2][:target.nbytes], target))
            while begun:
                self._finish(begun)
        finally:
            if begun:  # an exception: nobody else may have the pieces while they are written
                self._gpu.synchronize_stream(self._stream.handle)
        raise_failed(self._device.index)
        return found

    def _begin(self, address: int, piece: np.ndarray, target: np.ndarray) -> _Begun:
        gpu, stream = self._gpu, self._stream.handle
        gpu.copy_to_host(address_of(piece), address, piece.nbytes, stream)
        end = gpu.create_event(False)
        gpu.record_event(end, stream)
        return _Begun(end, piece, target)

    def _finish(self, begun: deque[_Begun]) -> None:
        """Wait for the oldest piece, and copy it to where it belongs."""
        end, piece, target = begun[0]
        self._gpu.synchronize_event(end)
        target[:] = piece
        begun.popleft()
        self._gpu.destroy_event(end)


@cached_per_driver
def _side_stream(device: Device) -> Stream:
    return Stream(device)
