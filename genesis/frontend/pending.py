"""Which storages wait to be computed, and through which of those that do not a backward may go.

A value gets a number when it is recorded, and its storage is noted by it. Whoever looks at the notes forgets those of
storages that died, or were computed.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count, repeat
from sys import getrefcount
from typing import TYPE_CHECKING, Final

from genesis.frontend.at_once import at_once
from genesis.frontend.state import state
from genesis.ir.interrupting import from_inside
from genesis.ir.node import next_node_number

if TYPE_CHECKING:
    import weakref

    from genesis.frontend.storage import Storage

next_number: Final = count(1).__next__
"""Numbers by which storages are noted. By a weak reference to it a storage would be found where others have died: each
new one gets the address of the last, and so its hash."""

NEVER: Final = 1 << 62
"""A number that no value gets."""

SHORT: Final = 8
"""Values of a turn, at the most, that is looked for before there are as many nodes as the limit says
(`engine/limits.py`): so many positions are noted, which takes a few µs each, where a program becomes longer than a
sixteenth of the limit."""

FORGET_AFTER: Final = 1 << 16
"""Notes of values that a backward may go through, after which those of storages that died are forgotten."""

FORGET_UNITS: Final = 256
"""Notes of what was written at once, or written again, from which on those are forgotten whose storages are computed,
or died, where no flush has forgotten all of them."""

LOOKED: Final = 16
"""Such notes that each look goes through at the least, the newest, and on average: a loop that keeps a value of each
turn has as many notes as turns, and a flush asks for those of the last."""

SPARSE: Final = 256
"""Forgotten notes from which on a dictionary that lost most of its own is exchanged for a new one: an emptied one keeps
its size, and going through it takes as long as when it was full (20 µs at 40,000)."""


def look_behind(count: int) -> None:
    """Let the engine look no earlier than behind the next `count` values, which belong together: the gradients of a
    model, all recorded by one line, look like an endless loop. So few that they may be a turn of one are looked at."""
    if count > SHORT and state.look_at != NEVER:
        state.look_at = max(state.look_at, next_number() + count + 1)


def live_pending() -> list[Storage]:
    """The storages with uncomputed content that somebody still holds, in the order of their first writes; forgets the
    others."""
    found, over = [], []
    entries = list(state.pending.copy().items())  # a handler or a finalizer that runs while the list is made may write
    for number, reference in entries:
        storage = reference()
        if storage is not None and storage._queued == number:
            if storage.detached_by and getrefcount(storage) == storage.references_without_history():
                storage.forget_history()
            found.append(storage)
        else:  # one that was computed, and written to since, has another number
            over.append(number)
    if over:
        forget_numbers(over)
        if len(units := state.together) > FORGET_UNITS:
            units[:] = [unit for unit in units if not state.pending.keys().isdisjoint(unit)]
        if len(state.rewritten) > FORGET_UNITS:
            for node, number in list(state.rewritten.items()):
                if number not in state.pending:
                    state.rewritten.pop(node, None)
    return found


def forget_numbers(numbers: Collection[int]) -> None:
    """Forget the notes of storages that have nothing to compute any more."""
    if len(numbers) == 1:  # the usual small read has made one value on its way
        number, = numbers
        state.pending.pop(number, None)
        return
    at_once(map(state.pending.pop, numbers, repeat(None)))
    if len(numbers) > SPARSE and len(state.pending) < len(numbers) // 8:
        before = state.pending
        state.pending = after = dict(before)
        for number in before.keys() - after.keys():  # what another thread recorded between the copy and the exchange
            after[number] = before[number]


def live_differentiable(since: int = 0) -> list[Storage]:
    """The storages of `state.differentiable` that somebody holds, in the order of their notes; forgets the others.

    Args:
        since: the number of a node. Storages may be left out whose content is older; they are all looked at now and
            then, so that those that died, or have lost their history, are forgotten all the same.
    """
    found: dict[Storage, None] = {}
    for number, reference in _notes(since):
        storage = reference()
        if storage is None or storage in found:
            state.differentiable.pop(number, None)
        elif storage.detached_by and getrefcount(storage) == storage.references_without_history():
            storage.forget_history()
            if storage.needs_grad:
                found[storage] = None
            else:
                state.differentiable.pop(number, None)
        else:
            found[storage] = None
    return list(found)


def _notes(since: int) -> list[tuple[int, weakref.ref[Storage]]]:
    """The notes since a node with this number was made, and some more; all of them now and then."""
    notes = state.differentiable
    state.unlooked += LOOKED
    if since and state.unlooked < len(notes):
        found: list[tuple[int, weakref.ref[Storage]]] = []
        try:
            for note in reversed(notes.items()):
                if note[0] < since and len(found) >= LOOKED:
                    break
                found.append(note)
            return found[::-1]
        except from_inside(RuntimeError):  # another thread, a handler or a finalizer notes one
            pass
    state.unlooked = 0
    return list(notes.items())


def any_differentiable() -> bool:
    """Whether somebody holds a value that a backward may go through; forgets the last ones that nobody does."""
    over = []
    try:
        for number, reference in reversed(state.differentiable.items()):
            if reference() is not None:
                return True
            over.append(number)
        return False
    except from_inside(RuntimeError):  # as in `_notes`
        return True
    finally:
        for number in over:
            state.differentiable.pop(number, None)


def note_differentiable(reference: weakref.ref[Storage]) -> None:
    """Note a storage whose content is computed, and which a backward may go through. The note's number is above those
    of the nodes that the content is made of."""
    state.differentiable[next_node_number()] = reference
    state.unlooked += 1
    if state.unlooked >= FORGET_AFTER and 2 * state.unlooked >= len(state.differentiable):
        live_differentiable()
