"""Signal handlers of the program's that wait until a function is done.

Python calls a handler between any two bytecodes of the main thread. While stand-ins lie on the user's objects
(`tracing/symbolic_call.py`) it would find them there. So a note of the signal is in each handler's place meanwhile;
then the handlers are put back, and those whose signals came are called, in order.

A mask would not hold them back: another thread gets the process's signals then, and Python calls the handler in the
main one all the same. What C does with a signal (`faulthandler`, a wakeup fd, `siginterrupt`) goes on meanwhile: Python
sets its handler of C where it sets one of Python's, and the one of before is put back at once.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without enums, and in C: no line of Python runs between two handlers
import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, compress, repeat, starmap
from operator import call, is_
from types import FrameType
from typing import Final, TypeVar

from genesis.runtime.contexts import Context, in_order, leaving, need_room

Result = TypeVar("Result")
Handler = Callable[[int, FrameType | None], object]

_SIGNALS: Final = tuple(map(int, _signal.valid_signals()))

_sigaction: Final = ctypes.PyDLL(None).sigaction
"""Sets C's handler of a signal to the one at an address, and writes that of before to another; None is no address."""

_ACTION_BYTES: Final = 512
"""Room for a `struct sigaction`, of 152 bytes on Linux."""


def undisturbed(function: Callable[[], Result]) -> Result:
    """What the function gives. The program's signal handlers are called behind it, once for each signal that came.

    Python's own handler of Ctrl-C is not held back, nor is a handler that the function itself sets; that one stays. In
    another thread than the main one none is (`handlers_left`).

    >>> from signal import SIGUSR1, raise_signal, signal
    >>> found = []
    >>> before = signal(SIGUSR1, lambda number, frame: found.append("handled"))
    >>> undisturbed(lambda: (raise_signal(SIGUSR1), found.append("done")))[1], found
    (None, ['done', 'handled'])
    >>> signal(SIGUSR1, before) is before
    False
    """
    handlers = _handlers()
    if not handlers or threading.get_ident() != threading.main_thread().ident:
        return function()
    held = _Held(handlers)
    try:
        with held:
            return function()
    finally:
        try:
            held.__exit__(None, None, None)  # again: a handler may have raised where it was put back before others
        finally:
            held.call_late()


def handlers_left() -> bool:
    """Is there a handler of the program's that is not held back?"""
    return any(handler.__class__ is not _Note for handler in _handlers().values())


def _handlers() -> dict[int, Handler]:
    """The functions that Python calls, by signal; but its own for Ctrl-C, whose KeyboardInterrupt reads nothing."""
    found = zip(_SIGNALS, map(_signal.getsignal, _SIGNALS), strict=True)
    return {number: handler for number, handler in found
            if callable(handler) and handler is not _signal.default_int_handler}


class _Held(Context):
    """A context in which signals are noted, each by what is in its handler's place.

    Attributes:
        came: the signals, in order.
        holds: whether handlers wait. Where they do not any more, and in a forked process, which may never leave the
            context, a note calls its handler: a user's function may keep what it finds in its handler's place.
    """

    __slots__ = ("_notes", "_process", "came", "holds")

    def __init__(self, handlers: dict[int, Handler]):
        self.holds, self._process = True, os.getpid()
        self.came: deque[int] = deque()
        self._notes = {number: _Note(self, handler) for number, handler in handlers.items()}

    @property
    def here(self) -> bool:
        """Whether handlers wait in this process."""
        return self.holds and os.getpid() == self._process

    def _entering(self) -> Callable[[], object]:
        handlers = [note.handler for note in self._notes.values()]
        return partial(in_order, self._replacing(handlers, [*self._notes.values()]))

    def _leaving(self) -> Callable[..., object]:
        handlers = [note.handler for note in self._notes.values()]
        return leaving((in_order, self._replacing([*self._notes.values()], handlers)))

    def _replacing(self, there: Sequence[Handler], instead: Sequence[Handler]) -> Iterator[object]:
        """The calls that let a function handle each signal which another one handles when it is its turn.

        Setting a handler calls those whose signals have come before: what these raise ends the loop.
        """
        need_room()
        changes = []
        for number, handler in zip(self._notes, instead, strict=True):
            action = ctypes.create_string_buffer(_ACTION_BYTES)
            changes.append(((_sigaction, number, None, action), (_signal.signal, number, handler),
                            (_sigaction, number, action, None)))
        found = map(is_, map(_signal.getsignal, self._notes), there)
        return starmap(call, chain.from_iterable(compress(changes, found)))

    def call_late(self) -> None:
        """Call the handlers of the signals that came, as they are by now: one may have set that of the next."""
        self.holds = False
        try:
            while self.came:
                handler = _signal.getsignal(self.came[0])
                taken = starmap(self.came.popleft, ((),))  # in the call of C that calls the handler: no Ctrl-C between
                in_order(map(handler, taken, repeat(sys._getframe())) if callable(handler) else taken)
        finally:
            if self.came:  # it raised
                self.call_late()


class _Note:
    """What is in a handler's place."""

    __slots__ = ("_held", "handler")

    def __init__(self, held: _Held, handler: Handler):
        self._held, self.handler = held, handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._held.here:
            self.handler(number, frame)
        elif number not in self._held.came:
            self._held.came.append(number)
