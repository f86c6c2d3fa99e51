"""What a replayed step overwrites: who looks at that from then on, and who looks at what was there before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from operator import call as operate
from sys import getrefcount
from typing import Any

from genesis import engine
from genesis.engine.plan_lookup import Superseded
from genesis.engine.preparation import needed_by_backwards
from genesis.frontend.at_once import Change, Expected, attributes
from genesis.frontend.pending import live_pending
from genesis.frontend.state import state
from genesis.frontend.storage import Cell, Storage
from genesis.frontend.threads import others_record
from genesis.ir.interrupting import of_computing
from genesis.runtime.references import HELD_AND_NAMED


def overwritten(given: Sequence[Storage], updated: Sequence[Storage], held: list[Any],
                expected: list[Expected]) -> list[Change]:
    """The changes that give the written storages new content: who looks at them from then on sees that, and who looks
    at the old one finds no memory there, or a copy. They expect that nobody reads more of the old one by then: what was
    recorded so would be lost.

    Args:
        given: the arguments' storages among them.
        updated: the others.
        held: gets what is replaced, until it is.
        expected: gets what the changes expect to find.

    Raises:
        Superseded: one of them has been written to and is to be computed first.
    """
    found: list[Change] = []
    ends: list[tuple[Cell, Any]] = []
    read: list[Storage] = []
    found += [(setattr, storage, "writes", storage.writes + 1) for storage in given]
    for storage in (*given, *updated):
        cell = ended(storage)
        if cell is None:
            continue
        held.append((cell, storage._node))
        if storage._node is not None:
            found.append((setattr, storage, "_node", None))
        if storage.watching is not None:  # it may be all that holds a copy of the old content
            held.append((storage.watching, None))
            found.append((setattr, storage, "watching", None))
        new = Cell(cell.memory)
        new.owner = storage._reference
        ends.append((cell, cell.memory))
        read.append(storage)
        found.append((setattr, storage, "cell", new))
    looks = [(getrefcount, node) for _, node in held if node is not None]
    counts = [*starmap(operate, looks)]
    if others_record() or (state.pending and live_pending()):  # somebody may have looked at what they hold
        copies = [memory.clone() for _, memory in ends]
    else:
        needed = needed_by_backwards(read, [], {}) if read else ()
        copies = [memory.clone() if storage in needed else None
                  for storage, (_, memory) in zip(read, ends, strict=True)]
        expected += zip(looks, counts, strict=True)
    return [attributes([cell for cell, _ in ends], "memory", copies), *found]


def ended(storage: Storage) -> Cell | None:
    """The storage's content, which ends when its memory is written to, if anything but the storage may read it.

    Raises:
        Superseded: another content has been written to it and is to be computed first.
    """
    cell, content = storage.cell, storage._node
    if content is not None and content.buffer is not cell:
        raise Superseded
    return cell if content is not None or getrefcount(cell) > HELD_AND_NAMED else None


def compute_before(live: list[Storage]) -> None:
    """Compute what may read content that is about to be overwritten. A value that cannot be computed says so when it is
    read: it is not this call's. A write that cannot be made is dropped, and told by this call, as nobody else would be
    told. Without memory for the others, nothing is overwritten, either."""
    try:
        if live:
            engine.flush(live)
    except MemoryError:
        raise
    except of_computing(Exception):  # one of them cannot be computed: the others still have to be
        for storage in live:
            try:
                engine.flush([storage])
            except MemoryError:
                raise
            except of_computing(Exception):
                if storage.error is None:
                    raise
        if all(storage.error is None for storage in live):
            raise
