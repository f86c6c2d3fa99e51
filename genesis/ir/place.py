"""Where a value is while a plan runs: what memory planning decides and the runtime looks up."""

from __future__ import annotations

from dataclasses import dataclass

from genesis.ir.types import TensorType


@dataclass(frozen=True)
class Place:
    """Where a value lives while a plan runs.

    `where` is "input" (the index-th memory that the caller passes), "output" (the index-th that
    the run allocates and returns), "arena" (at byte `offset`), "errors" (the GPU's word for the first check
    that failed) or "numbers" (the table of the
    plan's numbers: 8 bytes each, float64, int64 or bool as the number's weak dtype says, at `offset`).
    """

    where: str
    index: int
    offset: int
    type: TensorType
