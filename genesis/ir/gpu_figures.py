"""What a GPU was measured to take, for those who choose between forms of a program before there are kernels.

`codegen/cuda/gpu_model.py` knows the GPUs, and has these as `GpuModel.figures`. Decompositions of ops choose forms as
well, are told of no backend, and so reckon for the one GPU that was measured: `H200`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class GpuFigures:
    """Times in microseconds, rates in bytes or additions a microsecond, sizes in bytes.

    Attributes:
        multiprocessors: programs that run at once where each has most of a multiprocessor's shared memory.
        warps_beside: programs of a warp that a multiprocessor has at once and that do not slow each other down.
        busy: programs that keep the GPU busy: about as many as it has multiprocessors.
        sector: bytes that memory gives at once.
        memory: bytes that memory or the L2 moves in a microsecond.
        launch_us: a launch that waits for the one before it.
        behind_us: a launch that adds partial sums up, beside what it moves: it begins while the programs before it end.
        position_us: a multiprocessor, for a position of a line whose positions are taken all at once.
        twice_us: the same of a longer line, whose positions are read twice.
        turn_us: a turn of several warps at a line's positions.
        warp_us: a position of a line that a warp has by itself.
        sum_us: a multiprocessor, for a sum of a line: it begins, ends, and is read and written.
        exact_us: an exact sum of few positions: a launch, and three ways to the L2 and back: the index, the flag, the
            words.
        exact_memory: bytes that an exact sum moves in a microsecond, most of them words in the L2.
        atomics: additions to many places that the L2 takes in a microsecond.
        one_place_us: between two additions of whole numbers to one place.
        blocks_us: a sum by blocks of sorted positions, whatever their number.
        block_position_us: each of their positions.
    """

    multiprocessors: int
    warps_beside: int
    busy: int
    sector: int
    memory: float
    launch_us: float
    behind_us: float
    position_us: float
    twice_us: float
    turn_us: float
    warp_us: float
    sum_us: float
    exact_us: float
    exact_memory: float
    atomics: float
    one_place_us: float
    blocks_us: float
    block_position_us: float

    @property
    def part_us(self) -> float:
        """Microseconds to write a partial sum and to read it: four bytes each, as they stay in the L2."""
        return 8 / self.memory


H200: Final = GpuFigures(
    multiprocessors=132,
    warps_beside=16,  # reckoned
    busy=128,
    sector=32,
    memory=4e6,
    launch_us=2.4,
    behind_us=0.8,  # 10,000 positions 4.0 µs in all, 100,000 10.8, four lines of 30,000 8.2
    position_us=0.4e-3,  # 70 instructions for 32 of them: 8192 of 29,104 sums took 8.6 in all, 7143 of 14,286 8.2
    twice_us=0.6e-3,  # reckoned
    turn_us=1.7,  # 100,000 positions in 16 parts and 7 shares took some 9 in four
    warp_us=0.4 / 128,
    sum_us=0.2e-3,
    exact_us=4.2,  # 8192 positions of 45,587 sums 4.5, 30,000 of as many 5.3, 100,000 6.0, 264,000 beside a gather 11.0
    exact_memory=8e6,
    atomics=100e3,  # 3.7 million of float32: 56 µs in all
    one_place_us=2e-3,  # 100,000 positions of ten sums: 2 µs more than of as many sums
    blocks_us=10.0,
    block_position_us=0.05e-3,  # 100,000 of one element: 15 to 17 µs in all
)
"""An H200's, measured in 2026-11 (`benchmarks/scattered.py`, `docs/measured.md`) where they do not say "reckoned"."""
