"""The memories that a replayed step runs over: those of storages that stay, and those of a call's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_
from typing import Any

from genesis import engine
from genesis.engine.flushing import locked_memory_of
from genesis.runtime.plan import Memories

_node_of, _memory_of = attrgetter("_node"), attrgetter("cell.memory")


class StepMemories:
    """Where a plan's memories are from, and where they are.

    Args:
        sources: of each memory: an argument's number, or a storage.

    Attributes:
        fixed: the storages among these.
        bound: the memories, as the plan takes them.
    """

    __slots__ = ("_at", "_found", "_given", "bound", "fixed")

    def __init__(self, sources: Sequence[Any]):
        self._at = [i for i, s in enumerate(sources) if s.__class__ is not int]
        self.fixed = [sources[i] for i in self._at]
        self._found = [s.cell.memory for s in self.fixed]
        self._given = [(i, s) for i, s in enumerate(sources) if s.__class__ is int]
        self.bound: Memories[Any] = Memories([None] * len(sources))
        for i, memory in zip(self._at, self._found, strict=True):
            self.bound[i] = memory

    def give(self, tensors: Sequence[Any]) -> None:
        """Bind the memories of a call's arguments."""
        bound = self.bound
        for index, argument in self._given:
            memory = locked_memory_of(tensors[argument])
            if bound[index] is not memory:
                bound.changed()  # first: an exception may come between the two
                bound[index] = memory

    def refresh(self) -> None:
        """Settle what was written to the storages, and find their memories where they are now."""
        if any(map(_node_of, self.fixed)):
            waiting = [s for s in self.fixed if s._node is not None and not s.settled]  # a property of hundreds
            if waiting:
                engine.flush(waiting)
        found = list(map(_memory_of, self.fixed))
        if not all(map(is_, found, self._found)):
            self.bound.changed()  # first: an exception may come between any two of these
            for i, memory in zip(self._at, found, strict=True):
                self.bound[i] = memory
            self._found = found

    def same_as(self, other: StepMemories) -> bool:
        """Whether another plan's are from the same places."""
        return (self._at, self.fixed, self._given) == (other._at, other.fixed, other._given)
