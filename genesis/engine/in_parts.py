"""What of a program that failed can be made without the rest.

A read leaves out what it does not need: that is written behind it if it can be, or stays pending, and tells its error
when it is read. A value needs no write: it is computed of what is in memory. Contents need what was written at once
with them, and no value: what one has read of the memory is copied. A step is one change, which is made or not. What
else was pending with it is of statements before: a count, an average of the weights that the step is about to
overwrite, a batch norm's statistics. As if each had run by itself these are made first, in their order, until one
fails: that one is dropped, and the step behind it; others stay pending.

The parts are found from what is there anyway: which contents are made of which nodes and memories, and the numbers of
storages that were written at once (`state.together`). Nothing is kept for a step that can be made.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from functools import partial

from genesis.engine.failures import drop, independent_part, units_among
from genesis.engine.plan_lookup import Superseded
from genesis.engine.preparation import Flush, prepare
from genesis.engine.running import Divisible, run
from genesis.engine.state import engine_state
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
    by the step that ends, or that was written by several statements, or it computes values besides."""
    written = _written_by(step, flush)
    if step is not None and not written:
        return True
    part = independent_part(flush, asked or written)
    if not part.issuperset(_storages(flush)):
        return True
    values = [s in asked for s in flush.outputs if _is_value(s)]
    if values and engine_state.cuts.cutting:  # nobody has asked for them
        return True
    return len(_before(written, flush, part)) + bool(written) + len(set(values)) > 1


def run_in_parts(whole: Flush, asked: Sequence[Storage], step: Wrote | None) -> bool:
    """Compute the part of a failed program that has to do with what was asked for, or the step that ends: what was
    written before statement by statement, if it must be; False if another program has run meanwhile."""
    written = _written_by(step, whole)
    if step is not None and not written:
        return True  # what is pending on another device, or beside a step of nothing, tells its error when it is read
    part = independent_part(whole, asked or written)
    try:
        if part.issuperset(_storages(whole)) or not _part_run(part, whole, asked, step):
            before = _before(written, whole, part)
            if written:
                _run_step(before, _with_users(written, whole), whole)
            else:
                _run_asked(asked, before, whole)
    except Superseded:
        return False
    return True


def _part_run(part: Container[Storage], whole: Flush, asked: Sequence[Storage], step: Wrote | None) -> bool:
    """Whether this part could be computed at once."""
    flush = prepare([s for s in asked if s in part], [s for s in whole.live if s in part], whole.device)
    try:
        if flush is not None:
            run(flush, partial(is_divisible, asked, step))
    except Divisible:
        return False
    return True


def _run_asked(asked: Sequence[Storage], written: Sequence[Unit], whole: Flush) -> None:
    """Compute the values that are asked for, then write the contents that are: each without the other.

    What a value that fails is made of is written before, statement by statement: one of these may be what fails, and is
    dropped. All else that was written is made if it can be, as in a program that does not fail: a loop would make it
    longer and longer.
    """
    values = [s for s in asked if _is_value(s) and not s.settled]
    contents = [s for s in asked if not _is_value(s)]
    try:
        if values and engine_state.cuts.cutting:
            _run_each(values, whole)
        elif values:
            made_of = _made_of(values, written, whole)
            try:
                _run_values(values, whole, bool(made_of))
            except Divisible:
                _run_units(made_of, whole, set())
                _run_values(values, whole, False)
        if contents or not asked:
            _run_units(_made_of(contents, written, whole) if asked else written, whole, set())
    except Exception as error:
        if not keeps_pending(error):
            _write_rest(written, whole)
        raise
    _write_rest(written, whole)


def _run_each(values: Sequence[Storage], whole: Flush) -> None:
    """Compute these, which nobody asked for, at once or one by one. One that fails keeps its error for who asks for it;
    without memory it waits."""
    try:
        _run_values(values, whole, len(values) > 1)
    except Divisible:
        for value in values:
            _run_each([value], whole)
    except (Superseded, NotYet):
        raise
    except Exception as error:
        if keeps_pending(error):
            raise


def _write_rest(units: Sequence[Unit], whole: Flush) -> None:
    """Write all of these if it can be done at once; else they wait for who reads them."""
    chosen = [s for unit in units for s in unit if not s.settled]
    flush = prepare([], chosen, whole.device, _others(chosen, whole)) if chosen else None
    if flush is not None:
        with suppress(Divisible, NotYet):
            run(flush, lambda _: True)


def _run_values(values: Sequence[Storage], whole: Flush, divisible: bool) -> None:
    """Compute these, and write nothing."""
    flush = prepare([s for s in values if not s.settled], [], whole.device)
    if flush is not None:
        run(flush, (lambda _: True) if divisible else None)


def _made_of(storages: Iterable[Storage], written: Sequence[Unit], whole: Flush) -> list[Unit]:
    """What was written of these, and what their contents are computed of."""
    found = set(storages)
    while True:
        before, nodes = len(found), set(walk([whole.content[s] for s in found]))
        wanted = [unit for unit in written
                  if not found.isdisjoint(unit) or any(whole.content[s] in nodes for s in unit)]
        found.update(s for unit in wanted for s in unit)
        if len(found) == before:
            return wanted


def _run_step(before: Sequence[Unit], changed: set[Storage], whole: Flush) -> None:
    """Write what was written before the step, then what it changed."""
    if before:
        _run_units(before, whole, changed)
    flush = prepare([], [s for s in changed if not s.settled], whole.device, _others(changed, whole))
    if flush is not None:
        run(flush)


def _run_units(units: Sequence[Unit], whole: Flush, step: set[Storage]) -> None:
    """Write these, and what was written at once with each, or find the first of them that cannot be."""
    chosen = [s for unit in units for s in unit if not s.settled]
    flush = prepare([], chosen, whole.device, _others(chosen, whole))
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
    pending = [s for s in flush.live if s in part and s not in changed and not _is_value(s)]
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


def _is_value(storage: Storage) -> bool:
    """Whether it is computed, and nothing was written to it."""
    return storage.cell is None and not storage.writes


def _others(chosen: Container[Storage], whole: Flush) -> list[Storage]:
    """What stays pending."""
    return [s for s in whole.live if s not in chosen and not s.settled]


def _storages(flush: Flush) -> list[Storage]:
    return [*flush.outputs, *flush.live]
