"""Another library's streams, and GPU memory that another library owns."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from genesis.ir.types import Device
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.cuda.driver import EventHandle, StreamHandle
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.cuda.stream import Stream, current_stream

LEGACY_STREAM: Final = 1
"""The number of CUDA's legacy default stream, which libraries use unless they are told another."""


class ForeignStream:
    """Another library's stream, by the number that DLPack gives it."""

    def __init__(self, device: Device, number: int):
        self._device, self._number = device, number

    def join(self, stream: Stream | None = None) -> None:
        """Make later work of our `stream` (None: the current one) wait for the other library's work so far."""
        self._wait((stream or current_stream(self._device.index)).handle, driver().foreign_stream(self._number))

    def release(self) -> None:
        """Make the other library's later work wait for our work so far."""
        self._wait(driver().foreign_stream(self._number), current_stream(self._device.index).handle)

    def _wait(self, stream: StreamHandle, other: StreamHandle) -> None:
        gpu = driver()
        gpu.use(self._device.index)
        event = gpu.create_event(timing=False)
        gpu.record_event(event, other)
        gpu.wait_event(stream, event)
        gpu.destroy_event(event)  # the stream's pending wait stays


class ForeignStorage(CUDAStorage):
    """GPU memory that another library owns. Its `owner` keeps it alive, and is kept until our work with it is done.

    >>> memory = ForeignStorage(address, 1024, genesis.device("cuda"), owner)    # doctest: +SKIP
    """

    __slots__ = ("_let_go", "_owner", "_streams")

    def __init__(self, address: int, nbytes: int, device: Device, owner: object):
        _drop_finished()
        self._block = None
        self.ptr, self.nbytes, self.device, self._owner = address, nbytes, device, owner
        self.pinned = True
        self._streams = {current_stream(device.index)}
        self._let_go = _let_go

    def record_stream(self, stream: Stream) -> None:
        """Work on that stream uses the memory too."""
        self._streams.add(stream)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self._let_go(self._streams, self._owner)


@cached_per_driver
def _unfinished() -> deque[tuple[list[EventHandle], object]]:
    """(events after our work, owner) for each memory that nobody here refers to any more, in order."""
    return deque()


def _let_go(streams: Iterable[Stream], owner: object) -> None:
    """Drop the owner as soon as the streams' work so far is done: it may then use the memory for something else."""
    gpu, events = driver(), []
    for stream in streams:
        gpu.use(stream.device.index)
        event = gpu.create_event(timing=False)
        gpu.record_event(event, stream.handle)
        events.append(event)
    _unfinished().append((events, owner))
    _drop_finished()


def _drop_finished() -> None:
    gpu, waiting = driver(), _unfinished()
    while waiting and all(map(gpu.event_is_done, waiting[0][0])):
        events, _ = waiting.popleft()
        for event in events:
            gpu.destroy_event(event)
