"""Places: where values are while a plan runs. Memory planning decides them, and the runtime looks them up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genesis.ir.types import TensorType

EXCHANGE_FLAGS: Final = 1024
"""Flags (of four bytes) that an exchange memory begins with: one for each program of a kernel that uses it."""

MOST_SHARING: Final = 160
"""The most programs that hand parts to each other, one on each multiprocessor."""

EXCHANGE_BYTES: Final = 4 * EXCHANGE_FLAGS + MOST_SHARING * 128 * 256 * 4
"""Bytes of a stream's exchange memory: behind the flags a tile of float32 for each program."""

SUM_WORDS: Final = 16 << 20
"""Words of 64 bits behind those bytes, which kernels leave 0: sums in whole numbers (`ir/ops/exact_sums.py`). A plan
has them only if one of its kernels does."""

MOST_EXCHANGED: Final = EXCHANGE_BYTES + 8 * SUM_WORDS
"""Maximum bytes of a stream's exchange memory."""

MemoryRef = tuple[str, int]
"""The memory that a place is in: its `where` and, for an input or output, its index. The others are one memory each."""


@dataclass(frozen=True)
class Place:
    """The place where a value is while a plan runs.

    `where` is "input" (the index-th memory that the caller passes), "output" (the index-th that
    the run allocates and returns), "arena" (at byte `offset`), "errors" (the GPU's word for the first check
    that failed), "exchange" (a memory of the stream in which the programs of a kernel hand parts to each other; its
    flags and words of sums are 0 between kernels) or "numbers" (the table of the
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
