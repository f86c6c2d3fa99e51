"""A flush in a signal handler or a finalizer, which interrupts a program of the same thread while that runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from genesis.engine.failures import give_up
from genesis.engine.plan_lookup import backend_of
from genesis.engine.running import finish
from genesis.engine.state import Execution, Plans, engine_state


@contextmanager
def beside(interrupted: Execution) -> Iterator[None]:
    """A context inside which other programs run.

    A program that another thread runs is waited for, one whose results are there is finished. One that only makes new
    memory goes on afterwards: what runs here has plans and scratch memory of its own.

    Raises:
        RuntimeError: memory is being overwritten: neither its old nor its new content is there.
    """
    over = _completed(interrupted)
    if not over and interrupted.overwrites:
        raise RuntimeError("a value is read by what interrupts the computation of others (a signal handler or a "
                           "finalizer), while memory is being overwritten; read it later, or from another thread")
    plans = engine_state.plans
    try:
        engine_state.executing = None
        if over:
            yield
            return
        engine_state.plans = Plans()
        with backend_of(interrupted.device).aside():
            yield
    finally:
        engine_state.executing, engine_state.plans = interrupted, plans


def _completed(interrupted: Execution) -> bool:
    """Whether the program has run and its storages know; one that runs in another thread is waited for."""
    job, flush = interrupted.job, interrupted.flush
    if job is not None:
        job.wait()
        if flush is not None:  # without a flush, what ran has told the storages itself
            flush.results = job.result
            if job.error is not None:
                give_up(flush, job.error)
                return True
    if flush is None or flush.results is None:
        return job is not None
    finish(flush)
    return True
