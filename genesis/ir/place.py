"""Places: where values are while a plan runs. Memory planning decides them, and the runtime looks them up."""

from __future__ import annotations

from dataclasses import dataclass

from genesis.ir.types import TensorType

MemoryRef = tuple[str, int]
"""The memory that a place is in: its `where` and, for an input or output, its index. The others are one memory each."""


@dataclass(frozen=True)
class Place:
    """The place where a value is while a plan runs.

    `where` is "input" (the index-th memory that the caller passes), "output" (the index-th that
    the run allocates and returns), "arena" (at byte `offset`), "errors" (the GPU's word for the first check
    that failed) or "numbers" (the table of the
    plan's numbers: 8 bytes each, float64, int64 or bool as the number's weak dtype says, at `offset`).
    """

    where: str
    index: int
    offset: int
    type: TensorType


def memory_of(place: Place) -> MemoryRef:
    """The memory that the place is in. Places in different memories never overlap."""
    where = place.where
    return where, place.index if where == "input" or where == "output" else 0
