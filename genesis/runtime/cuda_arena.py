"""Scratch memory of a GPU, shared by all plans: what one plan leaves there no other reads."""

from __future__ import annotations

import threading

from genesis.ir.types import Device
from genesis.runtime.cuda_driver import cached_per_driver
from genesis.runtime.cuda_storage import CUDAStorage


class Arena:
    """Intermediates of the plan that runs.

    Attributes:
        ptr: where it is.
        version: counts up when it moves, so that a plan notices that addresses it knows are stale.
        lock: held by a plan while it gives the GPU its work, so that two threads' plans do not mix.
    """

    def __init__(self, device: Device):
        self._device = device
        self._memory = CUDAStorage(0, device)
        self.version = 0
        self.lock = threading.RLock()

    @property
    def ptr(self) -> int:
        """Its address; 0 when it is empty."""
        return self._memory.ptr

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self._memory.nbytes

    def reserve(self, nbytes: int) -> None:
        """Let it have at least that many bytes. Its contents are lost if it grows.

        Raises:
            OutOfMemoryError: it is empty then, and grows again when the next plan asks.
        """
        if nbytes > self._memory.nbytes:
            self.release()  # first, so that old and new need not fit together
            self._memory = CUDAStorage(nbytes, self._device)

    def release(self) -> None:
        """Give its memory back."""
        self.version += 1
        self._memory = CUDAStorage(0, self._device)


@cached_per_driver
def arena_of(device: Device) -> Arena:
    """The arena of that GPU."""
    return Arena(device)
