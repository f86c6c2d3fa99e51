"""Which exceptions have nothing to do with what ran when they came.

A time limit is a signal's handler that raises, or another thread that has an exception raised in this one
(`PyThreadState_SetAsyncExc`). Most derive from `Exception`, as the errors of a computation do, and may come between any
two bytecodes of one: it is as if that had not begun.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from inspect import CO_VARARGS
from itertools import pairwise
from types import CodeType, FrameType
from typing import Final

_COMPUTING: Final = frozenset({"builtins", "torch", "genesis", "numpy", "triton"} | sys.stdlib_module_names)
"""Libraries whose classes of errors a computation may raise."""


def interrupts(error: BaseException) -> bool:
    """Whether the exception came from outside of what Genesis computed: it is no `Exception`, its class is the
    program's own, or a signal's handler raised it, though it may handle none any more. One of a class of Python's that
    another thread has raised is not told from an error.

    >>> interrupts(KeyboardInterrupt()), interrupts(ValueError("2 and 3 rows"))
    (True, False)
    """
    if not isinstance(error, Exception) or type(error).__module__.partition(".")[0] not in _COMPUTING:
        return True
    return from_handler(error)


def from_handler(error: BaseException) -> bool:
    """Whether a signal's handler raised it: for what calls the program's own code, whose errors are of its classes.

    The function that caught the error is not looked at: it is none, and a copy of its variables would hold the error
    that holds them.
    """
    traceback = error.__traceback__ and error.__traceback__.tb_next
    handlers = frozenset(_codes_of_handlers()) if traceback else frozenset()
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code in handlers or (frame.f_back is not None and _is_given(frame, frame.f_back)):
            return True
        traceback = traceback.tb_next
    return False


class _ToldLater:
    """A context that leaves out errors of computations, which who reads a value is told; not what `interrupts`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> bool:
        return error is not None and not interrupts(error)


told_later: Final = _ToldLater()


def _is_given(frame: FrameType, interrupted: FrameType) -> bool:
    """Whether the frame is of a function that was given a number and the frame below it, as a handler is: the signal,
    and what it interrupts."""
    code, found = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    given = [found.get(name) for name in code.co_varnames[:code.co_argcount]]
    if code.co_flags & CO_VARARGS:
        given += found.get(code.co_varnames[count], ())
    return any(after is interrupted and isinstance(before, int) for before, after in pairwise(given))


def _codes_of_handlers() -> Iterator[CodeType]:
    """The code of the functions of Python that handle signals."""
    for number in signal.valid_signals():
        handler: object = signal.getsignal(number)
        while (inner := getattr(handler, "func", None) or getattr(handler, "__func__", None)) is not None:
            handler = inner
        if callable(handler) and not hasattr(handler, "__code__"):
            handler = type(handler).__call__
        if isinstance(code := getattr(handler, "__code__", None), CodeType):
            yield code
