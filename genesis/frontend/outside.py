"""Memory that is shared with the outside: with numpy arrays, with tensors of other libraries."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from genesis.ir.node import Node


class OtherStream(Protocol):
    """Where others work with the memory, on a GPU (`runtime.cuda.foreign.ForeignStream`)."""

    def join(self) -> None:
        """Our later work waits for theirs."""

    def release(self) -> None:
        """Their later work waits for ours."""


class Outside:
    """That memory is shared with the outside: as long as one of the owners is alive.

    `snapshot` is the leaf of the last copy that was taken, `through` the node to differentiate through, `streams`
    where the owners work with the memory. `between_processes`: others write to it while our work runs, so that a copy
    would take their writes back.
    """

    __slots__ = ("between_processes", "owners", "snapshot", "streams", "through")

    def __init__(self, between_processes: bool = False) -> None:
        self.between_processes = between_processes
        self.owners: list[weakref.ref] = []
        self.streams: list[tuple[weakref.ref, OtherStream]] = []
        self.snapshot: weakref.ref[Node] | None = None
        self.through: Node | None = None

    def join(self) -> None:
        """Our later work waits for what the owners' streams were given."""
        for owner, stream in self.streams:
            if owner() is not None:
                stream.join()

    def release(self) -> None:
        """The owners' later work waits for what ours was given."""
        for owner, stream in self.streams:
            if owner() is not None:
                stream.release()
