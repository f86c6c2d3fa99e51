"""What of a program that failed can be made without the rest.

A read leaves out what has nothing to do with it: that stays pending, and tells its error when it is read. A step is one
change, which is made or not. What else was pending with either is of statements before: a count, an average of the
weights that the step is about to overwrite, a batch norm's statistics. As if each had run by itself these are made
first, in their order, until one fails: that one is dropped, and the step behind it; others stay pending.

The parts are found from what is there anyway: which contents are made of which nodes and memories, and the numbers of
storages that were written at once (`state.together`). Nothing is kept for a step that can be made.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial

from genesis.engine.failures import drop, independent_part, units_among
from genesis.engine.plan_lookup import Superseded
from genesis.engine.preparation import Flush, prepare
from genesis.engine.running import Divisible, run
from genesis.frontend.storage import Storage
from genesis.ir.interrupting import keeps_pending
from genesis.ir.node import Node
from genesis.ir.walk import walk
from genesis.runtime.contexts import NotYet

Wrote = Callable[[Storage], bool]
"""Whether a step wrote to a storage."""

Unit = list[Storage]
"""Storages that were written at once."""


def is_divisible(asked: Sequence[Storage], step: Wrote | None, flush: Flush) -> bool:
    """Whether the failed program can be run in parts: not all of it has to do with what is asked for, or was written
    by the step that ends, or that was written by several statements."""
    written = _written_by(step, flush)
    if step is not None and not written:
        return True
    part = independent_part(flush, asked or written)
    if not part.issuperset(_storages(flush)):
        return True
    return len(_before(written, flush, part)) + bool(written) > 1


def run_in_parts(whole: Flush, asked: Sequence[Storage], step: Wrote | None) -> bool:
    """Compute the part of a failed program that has to do with what was asked for, or the step that ends: what was
    written before statement by statement, if it must be; False if another program has run meanwhile."""
    written = _written_by(step, whole)
    if step is not None and not written:
        return True  # what is pending on another device, or beside a step of nothing, tells its error when it is read
    part = independent_part(whole, asked or written)
    before = _before(written, whole, part)
    try:
        if not part.issuperset(_storages(whole)):
            flush = prepare([s for s in asked if s in part], [s for s in whole.live if s in part], whole.device)
            try:
                if flush is not None:
                    run(flush, partial(is_divisible, asked, step))
                return True
            except Divisible:
                pass
        changed = _with_users(written, whole)
        _run_units(before, whole, changed)
        flush = prepare([s for s in asked if not s.settled], [s for s in changed if not s.settled], whole.device,
                        [s for s in whole.live if s not in changed and s not in asked and not s.settled])
        if flush is not None:
            run(flush)
    except Superseded:
        return False
    return True


def _run_units(units: Sequence[Unit], whole: Flush, step: set[Storage]) -> None:
    """Write these, and what was written at once with each, or find the first of them that cannot be."""
    chosen = [s for unit in units for s in unit if not s.settled]
    flush = prepare([], chosen, whole.device, [s for s in whole.live if s not in chosen and not s.settled])
    if flush is None:
        return
    try:
        run(flush, (lambda _: True) if len(units) > 1 else None)
        return
    except Divisible:
        pass
    except (Superseded, NotYet):
        raise
    except Exception as error:
        if not keeps_pending(error):  # they were dropped: so is the step behind them
            drop(error, [s for s in step if s.cell is not None and not s.settled], whole.content, whole.live)
        raise
    half = len(units) // 2
    _run_units(units[:half], whole, step)
    _run_units(units[half:], whole, step)


def _before(written: Sequence[Storage], flush: Flush, part: Container[Storage]) -> list[Unit]:
    """What of the part was written by other statements than the step which wrote to these storages, in order."""
    changed = _with_users(written, flush)
    pending = [s for s in flush.live if s in part and s not in changed and (s.cell is not None or s.writes)]
    unit_of = {s: [s] for s in pending}
    for together in units_among(pending):
        joined = list(dict.fromkeys([s for one in together for s in unit_of[one]]))
        unit_of.update(dict.fromkeys(joined, joined))
    units = list({id(unit): unit for unit in unit_of.values()}.values())
    return sorted(units, key=lambda unit: max(flush.content[s].number for s in unit))


def _written_by(step: Wrote | None, flush: Flush) -> list[Storage]:
    """The storages that the step wrote to."""
    return [] if step is None else [s for s in flush.live if step(s)]


def _with_users(storages: Iterable[Storage], flush: Flush) -> set[Storage]:
    """These, with what was written at once with them, and what is computed of their contents."""
    found = set(storages)
    while True:
        before = len(found)
        contents: set[Node] = {flush.content[s] for s in found}
        found.update(s for s in flush.live if not contents.isdisjoint(walk([flush.content[s]])))
        for unit in units_among(flush.live):
            if not found.isdisjoint(unit):
                found.update(unit)
        if len(found) == before:
            return found


def _storages(flush: Flush) -> list[Storage]:
    return [*flush.outputs, *flush.live]
