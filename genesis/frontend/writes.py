"""Several storages written to at once, with other changes: what an optimizer's step and gradients are told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import attrgetter

from genesis.frontend import session
from genesis.frontend.at_once import Change, Expected, at_once, attributes, changes
from genesis.frontend.state import state
from genesis.frontend.storage import Storage, compute_now, next_number
from genesis.ir.node import Node
from genesis.ir.ops import control

_node_of, _reference_of, _error_of = attrgetter("_node"), attrgetter("_reference"), attrgetter("error")
_needs_grad_of = attrgetter("needs_grad")
_outside_of, _queued_of, _writes_of = attrgetter("_outside"), attrgetter("_queued"), attrgetter("writes")


def write_at_once(storages: Sequence[Storage], nodes: Sequence[Node], also: Iterable[Change] = (),
                  expected: Sequence[Expected] = ()) -> None:
    """Give several storages other contents, and make other changes: all of it, or nothing where an exception comes.

    Args:
        storages: each once.
        also: the other changes. What they replace has to be held by the caller.
        expected: see `at_once.changes`.

    Raises:
        KeyError: something is not as expected; nothing was done.
    """
    state.touched += 1
    if any(map(_needs_grad_of, nodes)):
        state.tracked_writes += 1
    held = list(map(_node_of, storages))
    found: list[Change] = [attributes(storages, "_node", nodes),
                           attributes(storages, "writes", [writes + 1 for writes in map(_writes_of, storages)])]
    if not all(map(_queued_of, storages)):
        new = [storage for storage in storages if not storage._queued]
        numbers = [next_number() for _ in new]
        found += [(state.pending.update, zip(numbers, map(_reference_of, new), strict=True)),
                  attributes(new, "_queued", numbers)]
    if any(map(_error_of, storages)):
        found.append(attributes(storages, "error", repeat(None)))
    shared = [outside for outside in map(_outside_of, storages) if outside is not None] if any(
        map(_outside_of, storages)) else []
    if shared:
        found.append(attributes(shared, "through", repeat(None)))
    at_once(changes((), [*found, *also], expected))
    del held
    state.touched += 1
    if state.session is not None and (running := session.active()) is not None:
        for storage in storages:
            running.note_write(storage._reference)
    if shared or state.volatile:
        later = [storage for storage, node in zip(storages, nodes, strict=True)
                 if storage.exported or (state.volatile and node.op is not control.item)]
        if later:
            compute_now(*later)
