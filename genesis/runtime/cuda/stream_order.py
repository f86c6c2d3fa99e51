"""The order between streams: which work of other streams must be done before work on a memory.

Streams run at the same time, but a program is right whatever streams it names: work that reads a memory waits for
the work that wrote it, work that writes waits for all that reads or wrote. So two plans overlap unless they need
each other, and nobody has to say what waits for what.

Nothing is noted until the process changes streams, or copies between GPUs, for the first time: one stream keeps its
own order. All that was given to the GPUs before that comes before all that comes after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

from genesis.ir.types import Device
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.cuda.driver import Call, StreamHandle
from genesis.runtime.cuda.owed_launches import owed_launches, settle
from genesis.runtime.cuda.stream import Event, Stream, current_streams, when_switching


class StreamMemory(Protocol):
    """Memory of a GPU that streams share: `CUDAStorage` and `ForeignStorage`."""

    device: Device

    def record_stream(self, stream: Stream) -> None:
        """Note that work on that stream uses the memory too."""


class Use(NamedTuple):
    """Noted work of a stream: the `number`-th there, and an event recorded after it."""

    stream: Stream
    number: int
    event: Event


@dataclass
class _Users:
    """The last work to write a memory, and on each stream the last to read it since: what later work waits for."""

    writer: Use | None = None
    readers: dict[Stream, Use] = field(default_factory=dict)


class Order:
    """The memories that streams share, and the work on them.

    Attributes:
        noted: whether uses are noted: the process has used a second stream.
    """

    def __init__(self) -> None:
        self.noted = False
        self._users: WeakKeyDictionary[StreamMemory, _Users] = WeakKeyDictionary()
        self._last: dict[Stream, Use] = {}
        self._waited: dict[tuple[Stream, Stream], int] = {}  # (waiting stream, other) → the other's last use waited for
        self._before: list[Use] = []  # work from the time when nothing was noted
        self._joined: set[Stream] = set()

    def start(self) -> None:
        """Note uses from now on."""
        if not self.noted:
            self.noted = True
            self._before = [Use(stream, 0, _mark(stream)) for stream in current_streams()]

    def wait(self, stream: Stream, reads: Iterable[StreamMemory], writes: Iterable[StreamMemory]) -> None:
        """Make the stream wait for other streams' work on these memories, before it is given work that uses them."""
        if stream not in self._joined:
            for use in self._before:
                _wait_for(stream, use)
            self._joined.add(stream)  # last: an exception before it has the stream wait again
        for memory in reads:
            users = self._users.get(memory)
            if users is not None and users.writer is not None:
                self._wait_for(stream, users.writer)
        for memory in writes:
            users = self._users.get(memory)
            if users is not None:
                for use in users.readers.values():
                    self._wait_for(stream, use)
                if users.writer is not None:
                    self._wait_for(stream, users.writer)

    def note(self, stream: Stream, reads: Sequence[StreamMemory],
             writes: Sequence[StreamMemory]) -> Call:
        """Note that the stream was given work on these memories.

        Returns:
            A call of the driver for work that is given to it behind this: made after that, it has others wait for it.
        """
        before = self._last.get(stream)
        use = self._last[stream] = Use(stream, 1 if before is None else before.number + 1, _mark(stream))
        for memory in reads:
            self._users_of(memory).readers[stream] = use
            memory.record_stream(stream)
        for memory in writes:
            users = self._users_of(memory)
            users.writer, users.readers = use, {}
            memory.record_stream(stream)
        return driver().record_call(use.event.handle, stream.handle)

    def _users_of(self, memory: StreamMemory) -> _Users:
        found = self._users.get(memory)
        if found is None:
            found = self._users[memory] = _Users()
        return found

    def _wait_for(self, stream: Stream, use: Use) -> None:
        if self._waited.get((stream, use.stream), 0) < use.number:
            _wait_for(stream, use)
            self._waited[stream, use.stream] = use.number


def _wait_for(stream: Stream, use: Use) -> None:
    if use.stream is not stream:
        driver().wait_event(stream.handle, use.event.handle)


def _mark(stream: Stream) -> Event:
    """An event after all work that the stream was given."""
    gpu, event = driver(), Event()
    gpu.use(stream.device.index)
    event.handle = gpu.create_event(timing=False)
    gpu.record_event(event.handle, stream.handle)
    return event


@cached_per_driver
def order() -> Order:
    """The process's order."""
    return Order()


@contextmanager
def ordered(stream: Stream, reads: Sequence[StreamMemory] = (),
            writes: Sequence[StreamMemory] = ()) -> Iterator[StreamHandle]:
    """The stream's handle, for work inside the block that reads and writes these memories."""
    if owed := owed_launches():
        settle(owed, {stream.device.index, *(memory.device.index for memory in (*reads, *writes))})
        driver().use(stream.device.index)
    uses = order()
    if any(memory.device is not stream.device for memory in (*reads, *writes)):
        uses.start()
    if not uses.noted:
        yield stream.handle
        return
    uses.wait(stream, reads, writes)
    driver().use(stream.device.index)
    yield stream.handle
    uses.note(stream, reads, writes)


when_switching.append(lambda: order().start())
