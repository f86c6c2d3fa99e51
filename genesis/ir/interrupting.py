"""Which exceptions have nothing to do with what ran when they came.

A time limit is a signal's handler that raises, or another thread that has an exception raised in this one
(`PyThreadState_SetAsyncExc`). Most derive from `Exception`, as the errors of a computation do, and may come between any
two bytecodes of one: it is as if that had not begun. So where an `except` waits for errors of a computation, it asks
here for their classes, which Python evaluates once there is an exception:

    except of_computing(RuntimeError) as error:     the shapes do not fit
    except from_inside(KeyError):                   another thread drew: all again
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from inspect import CO_VARARGS
from itertools import pairwise
from types import CodeType, FrameType
from typing import Final, TypeVar

Error = TypeVar("Error", bound=Exception)

_COMPUTING: Final = frozenset({"builtins", "torch", "genesis", "numpy", "triton"} | sys.stdlib_module_names)
"""Libraries whose classes of errors a computation may raise."""

_OF_C: Final = (MemoryError, StopIteration, StopAsyncIteration)
"""Classes of errors that functions of C raise without any argument."""


def of_computing(*kinds: type[Error]) -> tuple[type[Error], ...]:
    """The classes for an `except` that lets through what `interrupts`: none of them where the exception does.

    >>> try:
    ...     [].pop()
    ... except of_computing(IndexError) as error:
    ...     error
    IndexError('pop from empty list')
    """
    error = sys.exception()
    return () if error is not None and interrupts(error) else kinds


def from_inside(*kinds: type[Error]) -> tuple[type[Error], ...]:
    """The classes for an `except` that lets through what is `from_outside`: for what calls the program's own code,
    whose errors are of its classes."""
    error = sys.exception()
    return () if error is not None and from_outside(error) else kinds


def interrupts(error: BaseException) -> bool:
    """Whether the exception came from outside of what Genesis computed: it is no `Exception`, its class is the
    program's own, or it is `from_outside`.

    >>> interrupts(KeyboardInterrupt()), interrupts(ValueError("2 and 3 rows"))
    (True, False)
    """
    if not isinstance(error, Exception) or type(error).__module__.partition(".")[0] not in _COMPUTING:
        return True
    return from_outside(error)


def keeps_pending(error: BaseException) -> bool:
    """Whether a flush that raised this has left all pending: it was interrupted, or had no stack to run on.

    >>> keeps_pending(KeyboardInterrupt()), keeps_pending(RecursionError()), keeps_pending(MemoryError("2 GB"))
    (True, True, False)
    """
    return isinstance(error, RecursionError) or interrupts(error)


def from_outside(error: BaseException) -> bool:
    """Whether a signal's handler raised it, though it may handle none any more, or another thread has had it raised.

    The function that caught the error is no handler and not looked at: a copy of its variables would hold the error
    that holds them.
    """
    last = error.__traceback__
    if last is None:
        return False
    if last.tb_next is not None:
        handlers = frozenset(_codes_of_handlers())
        while last.tb_next is not None:
            last = last.tb_next
            frame = last.tb_frame
            if frame.f_code in handlers or (frame.f_back is not None and _is_given(frame, frame.f_back)):
                return True
    return not error.args and _from_thread(type(error), last.tb_frame.f_code, last.tb_lasti)


def _from_thread(kind: type[BaseException], code: CodeType, at: int) -> bool:
    """Whether an exception without arguments came from another thread, which only names a class. It comes where Python
    looks for signals: where a function begins or a loop turns, where nothing else raises, and behind a call.

    There a function of C may have raised it: if the class is one that these raise so, or of a library, it has.
    """
    from opcode import opname
    name = opname[code.co_code[at]]
    if name in ("RESUME", "JUMP_BACKWARD"):
        return True
    own = kind.__module__.partition(".")[0] not in _COMPUTING or (
        kind.__module__ == "builtins" and not issubclass(kind, _OF_C))
    return name.startswith("CALL") and own


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
