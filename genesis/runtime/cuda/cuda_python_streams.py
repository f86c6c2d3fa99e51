"""Streams and events through cuda-python."""

from __future__ import annotations

import ctypes
from functools import cached_property, partial

from genesis.runtime.cuda.c_functions import CFunction
from genesis.runtime.cuda.cuda_python_calls import CudaCalls
from genesis.runtime.cuda.driver import Call, EventHandle, StreamHandle


class StreamCalls(CudaCalls):
    """The calls of a driver that order work and time it."""

    def create_stream(self, priority: int = 0) -> StreamHandle:
        """A stream that does not wait for CUDA's legacy default stream. Lower numbers go first."""
        flag = self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
        return self._check("cuStreamCreateWithPriority", self._cuda.cuStreamCreateWithPriority(flag, priority))

    def stream_number(self, stream: StreamHandle) -> int:
        """The number by which other libraries know the stream."""
        return int(stream)

    def foreign_stream(self, number: int) -> StreamHandle:
        """The other library's stream of this number; 1 is CUDA's legacy default stream, 2 the thread's default one."""
        return self._cuda.CUstream(number)

    def destroy_stream(self, stream: StreamHandle) -> None:
        """Destroy a stream. Its pending work still completes."""
        self._check("cuStreamDestroy", self._cuda.cuStreamDestroy(stream))

    def synchronize_stream(self, stream: StreamHandle) -> None:
        """Wait until the stream's work is done."""
        self._check("cuStreamSynchronize", self._cuda.cuStreamSynchronize(stream))

    def stream_is_done(self, stream: StreamHandle) -> bool:
        """Whether the stream has no work left."""
        return self._is_ready("cuStreamQuery", self._cuda.cuStreamQuery(stream))

    def wait_event(self, stream: StreamHandle, event: EventHandle) -> None:
        """Make later work of the stream wait for the event's last record."""
        self._check("cuStreamWaitEvent", self._cuda.cuStreamWaitEvent(stream, event, 0))

    def create_event(self, timing: bool) -> EventHandle:
        """A new event; one that keeps no time is cheaper."""
        flags = self._cuda.CUevent_flags
        flag = flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
        return self._check("cuEventCreate", self._cuda.cuEventCreate(flag))

    def destroy_event(self, event: EventHandle) -> None:
        """Destroy an event. A stream's pending wait for it stays."""
        self._check("cuEventDestroy", self._cuda.cuEventDestroy(event))

    def record_event(self, event: EventHandle, stream: StreamHandle) -> None:
        """Record the event: it happens when the stream's work so far is done."""
        self._check("cuEventRecord", self._cuda.cuEventRecord(event, stream))

    def record_call(self, event: EventHandle, stream: StreamHandle) -> Call:
        """A call that records the event."""
        return partial(self._record_event, ctypes.c_void_p(int(event)), ctypes.c_void_p(int(stream)))

    @cached_property
    def _record_event(self) -> CFunction:
        return self._c_function("cuEventRecord")

    def synchronize_event(self, event: EventHandle) -> None:
        """Wait for the event's last record."""
        self._check("cuEventSynchronize", self._cuda.cuEventSynchronize(event))

    def event_is_done(self, event: EventHandle) -> bool:
        """Whether the event's last record has happened."""
        return self._is_ready("cuEventQuery", self._cuda.cuEventQuery(event))

    def elapsed_ms(self, start: EventHandle, end: EventHandle) -> float:
        """Milliseconds between two recorded events."""
        return self._check("cuEventElapsedTime", self._cuda.cuEventElapsedTime(start, end))
