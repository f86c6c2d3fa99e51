"""Values that a captured call reads while it runs, of memory that stays: lengths, segments, a flag in a buffer.

Where nobody has written to that memory since, the call reads the same again. So its versions are a guard, and what the
function makes of the number is part of the capture.
"""

from __future__ import annotations

from collections.abc import Collection

from genesis.frontend.session import Session
from genesis.frontend.storage import Storage
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

    def may_read(self, storage: Storage) -> bool:
        """Whether the storage's value follows from memory that stays and that the call has not written to."""
        content = storage._node
        found = {storage} if content is None else self._sources(content)
        written = self._effects.writes
        stays = {x.storage for x in self._entered.world.tensors}
        if not found or any(s not in stays or s in written or s.exported or s.needs_grad for s in found):
            return False
        for s in found:
            self.versions.setdefault(s, s.seen)
        return True

    def _sources(self, root: Node) -> set[Storage]:
        """The storages that a value is computed from; none where it follows from something else, too."""
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
            elif node.op is leaves.data or node in drawn or node.needs_grad:
                return set()
            stack += () if node.buffer in owners else node.inputs
        return found

    def check(self, known: Collection[Storage]) -> None:
        """Raise NotReplayable if a value was read of memory that is not guarded, or that the call wrote to later."""
        for storage, seen in self.versions.items():
            if storage not in known or storage.seen != seen or storage.exported:
                raise NotReplayable("a value is read while the function runs")
