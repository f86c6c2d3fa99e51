"""Other threads and signal handlers that run in the process while a program is computed.

Recording an op takes no lock. So when the engine is about to overwrite a memory, another thread may be in the middle of
an op that has looked at the old content and is not a tensor yet. No tensor shows that; its Python frames do.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from _thread import _count as others  # how many threads there are besides the main one
from collections.abc import Container
from typing import Any, Final

from genesis.ir.source import PACKAGE
from genesis.runtime.own_threads import RUNNING

_READING: Final = frozenset({"flush", "item", "tolist", "host_copy", "host_number", "_reading", "memory_of",
                             "export_numpy", "numpy", "materialize", "__bool__", "__float__", "__int__",
                             "__index__", "__array__"})
"""Names of functions that wait for a value and hold no other content meanwhile."""

_PROGRAMS: Final = PACKAGE + "cli" + os.sep
"""Where programs are that use Genesis as a user's would."""

_LOOKING_ON: Final = frozenset({("tqdm._monitor", "TMonitor")})
"""Classes of threads that run none of the user's functions: a progress bar's, which most training loops have."""

_READER: Final = (PACKAGE, threading.__file__)
"""Where the functions are between an op that asks for a value and the wait for it."""

_BEGINS_AGAIN: Final = tuple(PACKAGE + room + os.sep for room in ("engine", "runtime", "codegen", "passes")) + (
    *(PACKAGE + os.path.join("tracing", f"{name}.py")
      for name in ("replay_step", "step_call", "step_gradients", "step_memories", "step_writes")),)
"""Where functions hold contents only as long as nothing else runs: then they look again."""

_CALLING: Final = frozenset({"__call__", "forward", "inside", "steps", "_plainly", "called_as_it_is"})
"""Functions that call the user's, and hold tensors but no contents: modules, what `no_grad` decorates, and compiled
functions whose call is recorded."""


def others_record() -> bool:
    """Is another thread in the middle of an op?"""
    if not others():
        return False
    mine = threading.get_ident()
    return any(_records(frame, _READING) for thread, frame in sys._current_frames().items()
               if thread != mine and thread not in RUNNING)


def others_may_read() -> bool:
    """Does another thread run that may read any attribute or variable of the program's at any time?"""
    if not others():
        return False
    looking_on = {x.ident for x in threading.enumerate() if (type(x).__module__, type(x).__name__) in _LOOKING_ON}
    return not sys._current_frames().keys() - {threading.get_ident()} <= RUNNING | looking_on


def interrupts_op() -> bool:
    """Did this thread ask for a value in the middle of an op: in a signal handler, or in a finalizer?"""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_READER):
        frame = frame.f_back
    return _records(frame, _READING | _CALLING)


def _records(frame: Any, harmless: Container[str]) -> bool:
    """Is there a function of Genesis at or below this frame that may hold a content?"""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE) and code.co_name not in harmless and (
                not code.co_filename.startswith((_PROGRAMS, *_BEGINS_AGAIN))):
            return True
        frame = frame.f_back
    return False


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
