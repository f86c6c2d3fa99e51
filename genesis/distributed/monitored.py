"""A barrier that says who has not come: through the store, so that nothing is left half done where one is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import group_of
from genesis.frontend.engine_protocol import engine
from genesis.ir.errors import failure
from genesis.ir.source import here
from genesis.runtime.collectives import DistBackendError
from genesis.runtime.ledger import POINT_TO_POINT, Entry, ledger

PAUSE: Final = 0.005
"""Seconds between two looks at the store."""


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """`barrier`, which names the ranks that have not come within the timeout: the group's first process waits for all
    others, which wait for its answer.

    Args:
        timeout: None is the group's.
        wait_all_ranks: name all that are missing when the time is over, not the first of them.

    Raises:
        DistBackendError: on all that have come, if one has not.
    """
    found = group_of(group)
    if found is None:
        return
    engine.flush([])
    seconds = (found.timeout if timeout is None else timeout).total_seconds()
    number = next(found.barriers)
    store, own = found.store, found.rank()
    if own:
        store.set(f"barrier{number}/{own}", b"here")
        _wait_until(lambda: store.check([f"barrier{number}/answer"]), seconds + 1, found)
        said = store.get(f"barrier{number}/answer").decode() if store.check([f"barrier{number}/answer"]) else (
            f"Rank {found.ranks[0]} failed to pass monitoredBarrier in {seconds:g} s")
        if said:
            raise failure("monitored_barrier", f"Rank {found.ranks[own]} has reached it, but {said}",
                          error=DistBackendError)
        return
    missing = list(range(1, found.size()))

    def all_are_here() -> bool:
        missing[:] = [other for other in missing if not store.check([f"barrier{number}/{other}"])]
        return not missing

    _wait_until(all_are_here, seconds, found)
    late = ", ".join(str(found.ranks[other]) for other in (missing if wait_all_ranks else missing[:1]))
    said = f"Rank{'s' * (wait_all_ranks and len(missing) > 1)} {late} failed to pass monitoredBarrier in {seconds:g} s"
    store.set(f"barrier{number}/answer", said if missing else "")
    if missing:
        raise failure("monitored_barrier", said, error=DistBackendError)


def _wait_until(done: Callable[[], bool], seconds: float, group: ProcessGroup) -> None:
    """Return when it is done, or the time is over.

    Raises:
        DistBackendError: the watchdog has found meanwhile that a rank is gone.
    """
    end = time.monotonic() + seconds
    entry = Entry(POINT_TO_POINT, 0, f"monitored_barrier of ranks {list(group.ranks)}", str(here() or ""))
    with ledger.in_(entry):
        while not done() and time.monotonic() < end:
            if ledger.problem is not None:
                raise DistBackendError(ledger.problem)
            time.sleep(PAUSE)
