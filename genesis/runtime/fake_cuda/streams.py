"""Streams and events of the host driver.

A stream that is not lazy does its work at once. A lazy one does it when somebody waits for it, as late as it may:
work that another stream's work should have waited for, and did not, is then seen to be missing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from genesis.runtime.cuda.driver import DriverError


class HostStream:
    """A stream: work that is done in order.

    Attributes:
        lazy: whether work waits until somebody waits for it.
        given: how many pieces of work the stream was given so far.
        done: how many of them are done.
    """

    def __init__(self, lazy: bool):
        self.lazy = lazy
        self.given = self.done = 0
        self._waiting: deque[Callable[[], object]] = deque()

    def give(self, work: Callable[[], object]) -> None:
        """Give the stream a piece of work, which is done after all earlier work."""
        self.given += 1
        self._waiting.append(work)
        if not self.lazy:
            self.catch_up(self.given)

    def catch_up(self, count: int) -> None:
        """Do those of the first `count` pieces of work that are not done yet."""
        while self.done < count:
            self.done += 1  # counted before it runs: a piece that fails is not done again
            self._waiting.popleft()()


class HostEvent:
    """A point in a stream's work, after its first `count` pieces. `seconds` is the host's clock when it was reached.
    Who uses a destroyed one gets an error, where a GPU's driver may crash."""

    def __init__(self) -> None:
        self.destroyed = False
        self.stream: HostStream | None = None
        self.count = 0
        self.seconds: float | None = None

    def check(self, call: str) -> None:
        """Raise DriverError if it was destroyed."""
        if self.destroyed:
            raise DriverError(call, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the event was destroyed")

    def record(self, stream: HostStream) -> None:
        """Put the event at the end of the stream's work so far."""
        stream.give(self._reached)
        self.stream, self.count = stream, stream.given

    def _reached(self) -> None:
        self.seconds = time.perf_counter()

    def is_done(self) -> bool:
        """Whether the event was reached; one that was never recorded counts as reached."""
        return self.stream is None or self.stream.done >= self.count

    def synchronize(self) -> None:
        """Do the stream's work up to the event."""
        if self.stream is not None:
            self.stream.catch_up(self.count)

    def hold_up(self, stream: HostStream) -> None:
        """Make later work of another stream wait for the point where this event is now."""
        origin, count = self.stream, self.count
        if origin is not None:
            stream.give(lambda: origin.catch_up(count))

    def elapsed_ms(self, end: HostEvent) -> float:
        """Milliseconds from this event to `end`."""
        if self.seconds is None or end.seconds is None:
            raise DriverError("cuEventElapsedTime", "CUDA_ERROR_INVALID_HANDLE", "an event was not recorded")
        return (end.seconds - self.seconds) * 1e3
