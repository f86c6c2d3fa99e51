"""Other threads and signal handlers that run in the process while a program is computed.

Recording an op takes no lock. So when the engine is about to overwrite a memory, another thread may be in the middle of
an op that has looked at the old content and is not a tensor yet. No tensor shows that; its Python frames do.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from _signal import getsignal  # type: ignore[import-not-found]  # signal.getsignal makes enums: ten times as long
from _thread import _count as others  # type: ignore[attr-defined]  # how many threads there are besides the main one
from _thread import allocate_lock
from collections.abc import Callable, Container
from queue import SimpleQueue
from typing import Any, Final

from genesis.frontend.state import lock

_HOME: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_READING: Final = frozenset({"flush", "item", "tolist", "host_copy", "memory_of", "export_numpy", "numpy",
                             "materialize", "__bool__", "__float__", "__int__", "__index__", "__array__", "_work"})
"""Names of functions that wait for a value and hold no other content meanwhile."""

_SIGNALS: Final = [int(s) for s in signal.valid_signals() if s not in (signal.SIGKILL, signal.SIGSTOP)]
"""The signals that a handler can be set for, those between SIGRTMIN and SIGRTMAX too."""


_PROGRAMS: Final = _HOME + "cli" + os.sep
"""Where programs are that use Genesis as a user's would."""

_READER: Final = (_HOME, threading.__file__)
"""Where the functions are between an op that asks for a value and the wait for it."""

_CALLING: Final = frozenset({"__call__", "forward", "inside", "steps"})
"""Functions that call the user's, and hold tensors but no contents: modules, and what `no_grad` decorates."""


def others_record(asker: int = 0) -> bool:
    """Is a thread in the middle of an op: another than this one, and than the one that asked for a value?"""
    if not others():
        return False
    mine = {threading.get_ident(), asker}
    return any(_records(frame, _READING) for thread, frame in sys._current_frames().items() if thread not in mine)


def interrupts_op(asker: int) -> bool:
    """Did this thread ask for a value in the middle of an op: in a signal handler, or in a finalizer?"""
    frame = sys._current_frames().get(asker)
    while frame is not None and frame.f_code.co_filename.startswith(_READER):
        frame = frame.f_back
    return _records(frame, _READING | _CALLING)


def _records(frame: Any, harmless: Container[str]) -> bool:
    """Is there a function of Genesis at or below this frame that may hold a content?"""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_HOME) and code.co_name not in harmless and (
                not code.co_filename.startswith(_PROGRAMS)):
            return True
        frame = frame.f_back
    return False


def handled() -> bool:
    """May a signal handler of the user's interrupt this thread?"""
    if threading.get_ident() != threading.main_thread().ident or sys.is_finalizing():
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
        self._over = False
        self._runs = allocate_lock()  # no Event: a handler that interrupts a wait in Event's own lines holds its lock
        self._runs.acquire()
        self.result: Any = None
        self.error: BaseException | None = None
        _jobs().put(self)

    def wait(self) -> None:
        """Wait until the function has run; an exception of a signal handler meanwhile is raised then."""
        raised: BaseException | None = None
        while not self._over:
            try:
                with self._runs:
                    pass
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised

    def outcome(self) -> Any:
        """The result of a function that has run; what it raised is raised."""
        error, self.error = self.error, None  # the error's frames hold the job, which is not to hold the error
        if error is None:
            return self.result
        try:
            raise error
        finally:
            del error

    def run(self) -> None:
        """Run the function; the thread for jobs calls this."""
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error
        self._over = True  # first: who has got the lock, and not left it again, may be interrupted by who waits too
        self._runs.release()


_queues: dict[int, SimpleQueue[Job]] = {}
"""Process → the queue of its thread for jobs: a forked process has none of its parent's threads."""


def _jobs() -> SimpleQueue[Job]:
    found = _queues.get(os.getpid())
    if found is None:
        found = SimpleQueue()  # there for others when its thread runs: a handler that comes before starts another one
        threading.Thread(target=_work, args=(found,), name="genesis-jobs", daemon=True).start()
        _queues.clear()
        _queues[os.getpid()] = found
    return found


def _work(queue: SimpleQueue[Job]) -> None:
    while True:
        queue.get().run()


class _HandedOver:
    """A context in which this thread, which holds the engine's lock, leaves it to a job's."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[Any] = []

    def __enter__(self) -> None:
        self._held.append(lock._release_save())  # type: ignore[attr-defined]  # as `threading.Condition` does

    def __exit__(self, *error: object) -> None:
        lock._acquire_restore(self._held.pop())  # type: ignore[attr-defined]


handed_over: Final = _HandedOver()
"""Entered by the main thread only, which is the one that signal handlers interrupt."""

_with_locks: weakref.WeakKeyDictionary[Any, tuple[str, ...]] = weakref.WeakKeyDictionary()


def unlocked_after_fork(owner: Any, *names: str) -> None:
    """Let a forked process begin with new locks as these attributes: of the threads that hold the old ones it has
    none."""
    _with_locks[owner] = names


def _unlock() -> None:
    for owner, names in list(_with_locks.items()):
        for name in names:
            setattr(owner, name, threading.RLock())


os.register_at_fork(after_in_child=_unlock)
