"""`genesis.multiprocessing`: Python's, with torch's additions. Tensors go to another process as copies.

In: a function and its arguments. Out: processes that run it, and what they put into queues.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from typing import Any

from genesis.ir.suggest import suggesting

__all__ = [*multiprocessing.__all__, "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy",
           "spawn"]


def get_sharing_strategy() -> str:
    """"copy": no memory is shared between processes that did not fork."""
    return "copy"


def get_all_sharing_strategies() -> set[str]:
    """{"copy"}."""
    return {"copy"}


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted: there is one way."""


def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
          start_method: str = "spawn") -> Any:
    """Run fn(i, *args) in `nprocs` processes; the processes are returned where they are not waited for.

    Raises:
        RuntimeError: a process ended with an error.
    """
    context = multiprocessing.get_context(start_method)
    started = [context.Process(target=fn, args=(i, *args), daemon=daemon) for i in range(nprocs)]  # type: ignore
    for process in started:
        process.start()
    if not join:
        return started
    for process in started:
        process.join()
    failed = [i for i, process in enumerate(started) if process.exitcode]
    if failed:
        raise RuntimeError(f"spawn: process {failed[0]} ended with exit code {started[failed[0]].exitcode}")
    return None

__getattr__ = suggesting(__name__)
