"""`genesis.multiprocessing`: Python's, with torch's additions. Tensors go to another process as copies, but those that
`share_memory_()` moved, which both see.

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
    """How other processes find memory that is shared: "file_descriptor" (Linux) or "file_system". It is torch's."""
    import torch.multiprocessing
    return torch.multiprocessing.get_sharing_strategy()


def get_all_sharing_strategies() -> set[str]:
    """The strategies that this system has."""
    import torch.multiprocessing
    return torch.multiprocessing.get_all_sharing_strategies()


def set_sharing_strategy(new_strategy: str) -> None:
    """Share memory in this way from now on: "file_system" needs no open file for each memory.

    Raises:
        AssertionError: this system has no such strategy.
    """
    import torch.multiprocessing
    torch.multiprocessing.set_sharing_strategy(new_strategy)


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
