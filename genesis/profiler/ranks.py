"""A row a rank: which rank the others wait for, and what the time between its kernels and collectives is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from genesis.ir.ops.collectives import COLLECTIVES
from genesis.profiler.averages import aligned, amount, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from genesis.profiler.recorder import Recorder

NAMES: Final = frozenset(op.name for op in COLLECTIVES)
"""What collectives are called among kernels."""


@dataclass(frozen=True)
class RankRow:
    """What one rank did. Times are in microseconds.

    Attributes:
        rank: of the run.
        span: from the profile's start to its end.
        kernels: in kernels other than collectives.
        collectives: in collectives, waiting for other ranks included: the rank with the least of it is the one that
            the others wait for.
        calls: of collectives.
        peak: the most bytes that were held on its device, 0 where memory was not asked for.
    """

    rank: int
    span: float
    kernels: float
    collectives: float
    calls: int
    peak: int


def row_of(recorder: Recorder, rank: int) -> RankRow:
    """What this process did."""
    moved = [kernel.duration for kernel in recorder.kernels if kernel.name in NAMES]
    computed = sum(kernel.duration for kernel in recorder.kernels if kernel.name not in NAMES)
    return RankRow(rank, (recorder.end - recorder.start) / 1e3, computed / 1e3, sum(moved) / 1e3, len(moved),
                   max((memory.peak for memory in recorder.memory.values()), default=0))


def gathered(row: RankRow, group: Any = None) -> list[RankRow]:
    """The rows of all ranks; all of them call this."""
    from genesis import distributed as dist
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, row, group)
    return found


def table(rows: Sequence[RankRow]) -> str:
    """The rows as text."""
    cells = [["Rank", "Time", "Kernels", "Collectives", "Calls", "Rest", "Memory"]]
    cells += [[str(row.rank), duration(row.span), duration(row.kernels), duration(row.collectives), str(row.calls),
               duration(max(0.0, row.span - row.kernels - row.collectives)), amount(row.peak, "B")] for row in rows]
    return aligned(cells)
