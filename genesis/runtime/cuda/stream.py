"""Streams, events, and which GPU and stream are current.

Streams run side by side; `stream_order` makes their work wait where it depends on each other's. `_with_pending` runs
before anything that users do with streams and events: what they recorded before is work that was given before.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Final

from genesis.ir.types import Device, number_by
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver, is_started
from genesis.runtime.cuda.device_checks import raise_failed
from genesis.runtime.cuda.driver import Driver, EventHandle, StreamHandle

STREAMS_KEPT: Final = 32
"""Streams of a GPU and a priority, as many as torch has; after that `Stream()` hands them out again in turn."""

before_marks: Final[list[Callable[[], None]]] = []
"""Functions that give the GPUs the work that was recorded and not run yet; `genesis.cuda` puts them here."""


def _with_pending() -> None:
    for flush in before_marks:
        flush()


class Stream:
    """A queue of work of one GPU. `handle` is the driver's object; streams of lower `priority` numbers go first.

    Work on different streams may run at the same time. It waits by itself for work on other streams that wrote what
    it reads, or still uses what it overwrites.
    """

    __slots__ = ("__weakref__", "_driver", "device", "handle", "priority")

    device: Device
    handle: StreamHandle
    priority: int
    _driver: Driver

    def __new__(cls, device: Device | str | int | None = None, priority: int = 0) -> Stream:
        """The next of the GPU's streams. They are never destroyed: memory and graphs are kept for each."""
        index = device_index(device)
        kept, turn = _streams()[index, priority]
        number = next(turn)
        if number < STREAMS_KEPT:
            kept.append(_new_stream(index, priority))
        return kept[number % STREAMS_KEPT]

    def synchronize(self) -> None:
        """Wait until the stream's work is done.

        Raises:
            IndexError: a kernel found an index outside (see `device_checks`).
        """
        _with_pending()
        self._driver.use(self.device.index)
        self._driver.synchronize_stream(self.handle)
        raise_failed(self.device.index)

    def query(self) -> bool:
        """Whether the stream's work is done."""
        _with_pending()
        self._driver.use(self.device.index)
        return self._driver.stream_is_done(self.handle)

    def wait_event(self, event: Event) -> None:
        """Make the stream's later work wait for the event."""
        _with_pending()
        if event.handle is not None:
            self._driver.wait_event(self.handle, event.handle)

    def wait_stream(self, other: Stream) -> None:
        """Make the stream's later work wait for the work that `other` has been given so far."""
        if other is not self:
            self.wait_event(other.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, which happens when the stream's work so far is done; returns it."""
        event = event or Event()
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<genesis.cuda.Stream device={self.device}>"


def _new_stream(index: int, priority: int) -> Stream:
    found = object.__new__(Stream)
    found.device, found.priority, found._driver = Device("cuda", index), priority, driver()
    found._driver.use(index)
    found.handle = found._driver.create_stream(priority)
    return found


@cached_per_driver
def _streams() -> defaultdict[tuple[int, int], tuple[list[Stream], count]]:
    """(GPU, priority) → the streams made so far, and a count of how often one was asked for."""
    return defaultdict(lambda: ([], count()))


class Event:
    """A point in a stream's work.

    Args:
        enable_timing: whether `elapsed_time` is wanted; an event without it is cheaper.

    >>> start, end = Event(enable_timing=True), Event(enable_timing=True)    # doctest: +SKIP
    >>> start.record(); work(); end.record(); end.synchronize()              # doctest: +SKIP
    >>> start.elapsed_time(end)                                              # doctest: +SKIP
    1.25
    """

    __slots__ = ("__weakref__", "_driver", "enable_timing", "handle")

    def __init__(self, enable_timing: bool = False):
        self.enable_timing = enable_timing
        self.handle: EventHandle = None  # the driver's event, made by the first `record`, which knows the GPU
        self._driver = driver()

    def record(self, stream: Stream | None = None) -> None:
        """Make the event happen when the work so far of `stream` (None: the current one) is done."""
        _with_pending()
        stream = stream or current_stream()
        self._driver.use(stream.device.index)
        if self.handle is None:
            self.handle = self._driver.create_event(self.enable_timing)
        self._driver.record_event(self.handle, stream.handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Make later work of `stream` (None: the current one) wait for the event."""
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        """Whether the event has happened; one that was never recorded counts as happened."""
        return self.handle is None or self._driver.event_is_done(self.handle)

    def synchronize(self) -> None:
        """Wait until the event has happened."""
        if self.handle is not None:
            self._driver.synchronize_event(self.handle)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`; both must have happened.

        Raises:
            RuntimeError: one of them keeps no time, or was not recorded.
        """
        if not (self.enable_timing and end.enable_timing):
            raise RuntimeError("elapsed_time needs events made with Event(enable_timing=True)")
        if self.handle is None or end.handle is None:
            raise RuntimeError("elapsed_time needs two recorded events; call record() on both first")
        return self._driver.elapsed_ms(self.handle, end.handle)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending() and getattr(self, "handle", None) is not None:
            self._driver.destroy_event(self.handle)


class _Current:
    """The current GPU's number, and the current stream of each GPU that has one, for one driver."""

    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, Stream] = {}


@cached_per_driver
def _current() -> _Current:
    return _Current()


def current_device() -> int:
    """The number of the GPU that 'cuda' means."""
    return _current().device


def set_current_device(index: int) -> None:
    """Make 'cuda' mean GPU number `index`."""
    driver().use(index)
    _current().device = index
    number_by("cuda", _current_or_first)


def _current_or_first() -> int:
    """The current GPU's number; 0 where there is no driver (any more)."""
    return current_device() if is_started() else 0


def device_index(device: Device | str | int | None) -> int:
    """The number of a GPU however it is named; None is the current one.

    Raises:
        RuntimeError: it is no CUDA device.
    """
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        if device == "cuda":
            return current_device()
        device = Device(device)
    if device.type != "cuda":
        raise RuntimeError(f"expected a CUDA device, got {device}; use 'cuda', 'cuda:N' or N")
    return device.index


def current_stream(index: int | None = None) -> Stream:
    """The stream that work of GPU number `index` (None: the current GPU) goes to."""
    current = _current()
    if index is None:
        index = current.device
    stream = current.streams.get(index)
    if stream is None:
        stream = current.streams[index] = default_stream(index)
    return stream


@cached_per_driver
def default_stream(index: int) -> Stream:
    """The stream of GPU number `index` when no other was chosen."""
    return _new_stream(index, 0)


def set_current_stream(stream: Stream) -> Stream:
    """Make `stream` the current stream of its GPU; returns the one that it replaces."""
    before = current_stream(stream.device.index)
    if before is not stream:
        for note in when_switching:
            note()
        _current().streams[stream.device.index] = stream
    return before


def current_streams() -> list[Stream]:
    """The current stream of each GPU that has one."""
    return list(_current().streams.values())


when_switching: Final[list[Callable[[], None]]] = []
"""Functions that are called before a GPU's current stream becomes another one."""
