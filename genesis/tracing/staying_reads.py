"""Values that a captured call reads while it runs, and that a call like it reads again: lengths, segments, a flag in a
buffer, whether a mask hides anything, the times of a schedule.

Where a value follows from memory that stays and that nobody has written to since, the call reads the same again. So the
versions of that memory are a guard, and what the function makes of the number is part of the capture. A value that
follows from constants alone (`arange(n)`, `triu(ones(n, n))`, `tensor([1, 2])`) is the same in any call: the Python
that made them is guarded as it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection

from genesis.frontend.session import Session
from genesis.frontend.storage import Cell, Storage
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.tracing.snapshot import Entered, NotReplayable


class StayingReads:
    """The reads of one captured call.

    Attributes:
        versions: the storages that values were read of, with what `Storage.seen` was.

    Args:
        effects: what the call does.
        entered: what it can reach, apart from its arguments.
    """

    def __init__(self, effects: Session, entered: Entered):
        self._effects, self._entered = effects, entered
        self.versions: dict[Storage, tuple[int, int]] = {}
        self._read: weakref.WeakKeyDictionary[Storage, tuple[tuple[int, int], frozenset[Storage]]] = (
            weakref.WeakKeyDictionary())

    def may_read(self, storage: Storage) -> bool:
        """Whether the storage's value follows from constants, and from memory that stays and that the call has not
        written to."""
        content = storage._node
        found = self._sources_of_memory(storage, storage.cell) if content is None else self._sources(content)
        if found is None:
            return False
        written = self._effects.writes
        stays = {x.storage for x in self._entered.world.tensors}
        if any(s not in stays or s in written or s.exported or s.needs_grad for s in found):
            return False
        for s in found:
            self.versions.setdefault(s, s.seen)
        if storage not in found:
            self._read[storage] = storage.seen, frozenset(found)
        return True

    def _sources_of_memory(self, storage: Storage | None, cell: Cell | None) -> Collection[Storage] | None:
        """The storages that a computed memory is the value of: itself, where it stays; those that it was computed from,
        where the call has read it before; none, where it was made from numbers of Python's. None: it is not known."""
        if cell is not None and cell in self._effects.of_values:
            return ()
        if storage is None or storage.cell is not cell:
            return None
        seen, sources = self._read.get(storage, (None, None))
        return sources if seen == storage.seen else {storage}

    def _sources(self, root: Node) -> set[Storage] | None:
        """The storages that a value is computed from. None where it follows from something else, too."""
        owners = {x.storage.cell: x.storage for x in self._entered.world.tensors}
        drawn = {node for made, _ in self._effects.numbers for node in made}
        found: set[Storage] = set()
        seen: set[Node] = set()
        stack = [root]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.buffer in owners:
                found.add(owners[node.buffer])
                continue
            if node in drawn or node.needs_grad or node.op.kind == "collective":
                return None
            if node.op is leaves.data:
                owner = None if node.buffer is None or node.buffer.owner is None else node.buffer.owner()
                more = self._sources_of_memory(owner, node.buffer)
                if more is None:
                    return None
                found.update(more)
            stack += node.inputs
        return found

    def check(self, known: Collection[Storage]) -> None:
        """Raise NotReplayable if a value was read of memory that is not guarded, or that the call wrote to later."""
        for storage, seen in self.versions.items():
            if storage not in known or storage.seen != seen or storage.exported:
                raise NotReplayable("a value is read while the function runs")
