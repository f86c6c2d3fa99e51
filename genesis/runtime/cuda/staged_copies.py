"""Host memory copied to a GPU through page-locked pieces: while one is copied the next one is filled.

    any memory, or pages of a file ─ the host ─▶ two page-locked pieces, in turn ─ the stream ─▶ memory of the GPU

The driver copies ordinary memory through pieces of its own, and waits for them; pages of a file that nobody has looked
at it finds one by one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from genesis.ir.types import Device
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.cuda.driver import EventHandle, StreamHandle
from genesis.runtime.cuda.page_locked import buffers
from genesis.runtime.host_bytes import address_of

PIECE: Final = 8 << 20
"""Bytes that are copied at once, about 0.2 ms of a PCIe 5 link: what a piece's begin and end take is little beside."""

STAGED: Final = 1 << 20
"""Bytes from which on a copy goes through pieces; fewer are one call of the driver."""


class StagedCopies:
    """The pieces of a GPU. Each is with one thread, or with a copy that was begun; who finds none copies without."""

    def __init__(self) -> None:
        self._gpu = driver()
        self._free: deque[tuple[np.ndarray, EventHandle | None]] = deque((buffers().empty(PIECE), None)
                                                                         for _ in range(2))

    def copy(self, address: int, source: np.ndarray, stream: StreamHandle) -> None:
        """Give a stream the copies of uint8[nbytes] to an address; the source may change when this returns."""
        for start in range(0, source.nbytes, PIECE):
            part = source[start:start + PIECE]
            try:
                piece, end = self._free.popleft()
            except IndexError:  # other threads have them, or a signal handler has come between
                self._gpu.copy_to_device(address + start, address_of(part), part.nbytes, stream)
                continue
            try:
                if end is not None:
                    self._gpu.synchronize_event(end)
                else:
                    end = self._gpu.create_event(False)
                piece[:part.nbytes] = part
                self._gpu.copy_to_device(address + start, address_of(piece), part.nbytes, stream)
                self._gpu.record_event(end, stream)
            except BaseException:  # the piece is given back when no copy reads it any more
                self._gpu.synchronize_stream(stream)
                raise
            finally:
                self._free.append((piece, end))


@cached_per_driver
def staged_copies(device: Device) -> StagedCopies:
    """Those of a GPU, which is in use."""
    return StagedCopies()
