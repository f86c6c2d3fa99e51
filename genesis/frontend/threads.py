"""Other threads and signal handlers that run in the process while a program is computed.

Recording an op takes no lock. So when the engine is about to overwrite a memory, another thread may be in the middle of
an op that has looked at the old content and is not a tensor yet. No tensor shows that; its Python frames do.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # signal.getsignal makes enums: ten times as long
from _thread import _count as others  # type: ignore[attr-defined]  # how many threads there are besides the main one
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

_HOME: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_READING: Final = frozenset({"flush", "item", "tolist", "host_copy", "memory_of", "export_numpy", "numpy",
                             "materialize", "__bool__", "__float__", "__int__", "__index__", "__array__", "_work"})
"""Names of functions that wait for a value and hold no other content meanwhile."""

_SIGNALS: Final = [int(s) for s in signal.valid_signals() if s not in (signal.SIGKILL, signal.SIGSTOP)]
"""The signals that a handler can be set for, those between SIGRTMIN and SIGRTMAX too."""


def others_record() -> bool:
    """Whether another thread is in the middle of recording an op."""
    if not others():
        return False
    me = threading.get_ident()
    return any(_records(frame) for thread, frame in sys._current_frames().items() if thread != me)


def _records(frame: Any) -> bool:
    """Whether a function of Genesis that may hold a content is among the frame and its callers."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_HOME) and code.co_name not in _READING:
            return True
        frame = frame.f_back
    return False


def handled() -> bool:
    """Whether a signal handler of the user's may interrupt this thread. Every step on the CPU asks."""
    if threading.get_ident() != threading.main_thread().ident:
        return False
    handlers = list(filter(callable, map(getsignal, _SIGNALS)))
    return len(handlers) > 1 or (len(handlers) == 1 and handlers[0] is not signal.default_int_handler)


class Job:
    """A function that runs in a thread of its own, which no signal handler interrupts.

    Attributes:
        result, error: what the function returned or raised.
    """

    def __init__(self, function: Callable[[], Any]):
        self._function = function
        self._done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        _jobs().put(self)

    def wait(self) -> None:
        """Wait until the function has run; an exception of a signal handler meanwhile is raised then."""
        raised: BaseException | None = None
        while not self._done.is_set():
            try:
                self._done.wait()
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised

    def run(self) -> None:
        """Run the function; the thread for jobs calls this."""
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error
        self._done.set()


_queues: dict[int, SimpleQueue[Job]] = {}
"""Process → the queue of its thread for jobs: a forked process has none of its parent's threads."""


def _jobs() -> SimpleQueue[Job]:
    found = _queues.get(os.getpid())
    if found is None:
        _queues.clear()
        found = _queues[os.getpid()] = SimpleQueue()
        threading.Thread(target=_work, args=(found,), name="genesis-jobs", daemon=True).start()
    return found


def _work(queue: SimpleQueue[Job]) -> None:
    while True:
        queue.get().run()
