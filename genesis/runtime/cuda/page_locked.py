"""Page-locked host memory: the GPU copies to and from it by itself, beside kernels.

A buffer is used again when no array lies in it. The driver has no way to give one back, so they are kept.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import defaultdict
from typing import Final

import numpy as np

from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.driver import Driver
from genesis.runtime.cuda.stream import current_device

SMALLEST: Final = 4096
"""Bytes of the smallest buffer, a page; larger ones are powers of two, so that another size finds one."""


class Buffers:
    """Page-locked buffers of one driver, by size."""

    def __init__(self) -> None:
        self.free: defaultdict[int, list[int]] = defaultdict(list)

    def empty(self, nbytes: int) -> np.ndarray:
        """uint8[nbytes] in a buffer, which is free again when nobody has the array."""
        size = max(SMALLEST, 1 << (nbytes - 1).bit_length()) if nbytes else SMALLEST
        try:
            address = self.free[size].pop()
        except IndexError:
            gpu = driver()
            gpu.use(current_device())  # the thread may have used none yet, and page-locked memory is a context's
            address = gpu.alloc_host(size)
        buffer = (ctypes.c_ubyte * size).from_address(address)
        weakref.finalize(buffer, self.free[size].append, address).atexit = False
        return np.frombuffer(memoryview(buffer), np.uint8, nbytes)

    def like(self, array: np.ndarray) -> np.ndarray:
        """A copy of an array in a buffer."""
        copy = self.empty(array.nbytes).view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        return copy


def buffers() -> Buffers:
    """The buffers of the driver in use."""
    gpu = driver()
    if gpu not in _buffers:
        _buffers[gpu] = Buffers()
    return _buffers[gpu]


_buffers: Final[weakref.WeakKeyDictionary[Driver, Buffers]] = weakref.WeakKeyDictionary()
