"""Threads of Genesis' own, which look after something beside the program and record no op.

The engine asks whether another thread may hold a tensor's content (`frontend/threads.py`): these hold none.
"""

from __future__ import annotations

import threading
from typing import Final

RUNNING: Final[set[int]] = set()
"""Identifiers of the threads that run now."""


class OwnThread(threading.Thread):
    """A thread whose function records no op, and reads no tensor that others may write to.

    >>> thread = OwnThread(target=lambda: print(threading.get_ident() in RUNNING))
    >>> thread.start(); thread.join()
    True
    >>> thread.ident in RUNNING
    False
    """

    def run(self) -> None:
        """Run the target; from here to its end the engine leaves the thread out."""
        mine = threading.get_ident()
        RUNNING.add(mine)
        try:
            super().run()
        finally:
            RUNNING.discard(mine)
