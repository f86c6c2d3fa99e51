"""One program at a time in a run's folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from genesis.checkpointing.directory import NO_LOCKS

PATIENCE: Final = 5.0
"""Seconds in which a program that was killed lets go of the folder: its DataLoader's workers look for it every two."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """While this is entered no other program enters it for the same folder: each would cut the other's log short, and
    go on from the other's checkpoints. The folder is made if there is none.

    Raises:
        ValueError: another program is in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ValueError(f"another program is training in {folder}: wait for it, or give another 'out'"
                                     ) from None
                time.sleep(0.1)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                break  # two programs are not told from one there
        yield
    finally:
        os.close(handle)
