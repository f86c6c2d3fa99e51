"""Streams and events, and which stream work goes to."""

from __future__ import annotations

from typing import Any, Final

from genesis.cuda.devices import AnyDevice, run_pending
from genesis.ir.suggest import suggesting
from genesis.runtime.cuda import stream as cuda_stream
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver
from genesis.runtime.cuda.stream import Event, Stream, before_marks, device_index, set_current_stream

__all__ = ["Event", "Stream", "current_stream", "default_stream", "set_stream", "stream"]

_OWN: Final[Any] = object()
"""Stands for the stream that `stream()` chooses."""


def current_stream(device: AnyDevice = None) -> Stream:
    """The stream that work of the GPU goes to."""
    return cuda_stream.current_stream(device_index(device))


def set_stream(stream: Stream | None) -> None:
    """Make later work go to `stream`, after the pending work; None changes nothing."""
    if stream is not None:
        run_pending()
        set_current_stream(stream)


def default_stream(device: AnyDevice = None) -> Stream:
    """The stream that work of the GPU goes to when no other was chosen."""
    return cuda_stream.default_stream(device_index(device))


def stream(stream: Stream | None = _OWN) -> _StreamContext:
    """A context inside which recorded work goes to `stream`; None changes nothing.

    Without an argument it is a stream beside the default one, so that the block's work may overlap with work outside.
    What the block reads is ready when its work starts, and what it makes can be used after it without further ado.

    >>> with genesis.cuda.stream():                     # doctest: +SKIP
    ...     y = x @ x
    """
    return _StreamContext(stream)


class _StreamContext:
    def __init__(self, stream: Stream | None):
        self.stream = _side_stream(cuda_stream.current_device()) if stream is _OWN else stream
        self._before: Stream | None = None

    def __enter__(self) -> Stream | None:
        if self.stream is not None:
            run_pending()
            self._before = set_current_stream(self.stream)
        return self.stream

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            try:
                if error[0] is None:
                    run_pending()
            finally:
                set_current_stream(self._before)


before_marks.append(run_pending)


@cached_per_driver
def _side_stream(index: int) -> Stream:
    return Stream(index)

__getattr__ = suggesting(__name__)
