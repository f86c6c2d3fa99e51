"""Entering the engine while a program is on its way: in a signal handler or a finalizer that interrupts it, or after an
exception has ended it between two lines of Python.

Whatever runs a program writes down a `Record` first and takes it away last. Memory is overwritten, and its storages
told, at once (`frontend/at_once.py`): so who finds a record finds a program that has not begun, as far as anybody can
see, or one whose results are there and whose last storages have to be told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from genesis.engine.plan_lookup import backend_of
from genesis.engine.running import counts_as_over, finish
from genesis.engine.state import Record, engine_state


def left_behind(record: Record) -> bool:
    """Whether an exception has ended what made the record: no function of this thread, which holds the lock, is in it.

    Then it is finished, if its results were there, or else dropped: it is as if it had not begun.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is record.home:
            return False
        frame = frame.f_back  # type: ignore[assignment]
    counts_as_over(record)
    if record.flush is not None and record.flush.committed:
        finish(record.flush)
    engine_state.record = None
    return True


@contextmanager
def beside(interrupted: Record) -> Iterator[None]:
    """A context inside which other programs run, with scratch memory of their own.

    The interrupted program is finished first where its results are there. One that is still computing goes on
    afterwards; it finds that others have run, and begins again. A compiled call would find that at each of a timer's
    signals: it is done here, and has nothing left to do.

    Raises:
        RuntimeError: its device has nothing to say of its memory: neither its old nor its new content is there.
    """
    flush = interrupted.flush
    over = flush is not None and flush.committed
    if flush is not None and over:
        finish(flush)
    elif interrupted.exclusive:
        raise RuntimeError("a value is read by what interrupts the computation of others (a signal handler or a "
                           "finalizer), while memory is being overwritten; read it later, or from another thread")
    try:
        engine_state.record = None
        if over:
            yield
            return
        with backend_of(interrupted.device).aside():
            if interrupted.complete is not None:
                interrupted.complete()
            yield
    finally:
        engine_state.record = interrupted
