"""How long a float32 product takes whose bits all count: multiply-adds, no tensor cores; and which tile takes least.

There are kernels whose threads copy the blocks that they multiply (`fastest_fma`), and, of large products, kernels
whose blocks the copy engine brings (`STREAMED`).

A multiprocessor starts four instructions a cycle, so 128 multiply-adds, and reads 128 bytes of shared memory in one: a
thread that reads four numbers a time needs 16 multiply-adds for each such read, or all wait for shared memory. It has
16 with 8 × 8 results, 10.7 with 4 × 8 and 8 with 4 × 4. So shared memory is read less often where a tile has fewer
warps, and a tile of more warps is made sooner where a multiprocessor has no other.

Of 36 products that were drawn (16 to 8192 rows and columns, 16 to 1024 of the inner dimension) an H200 timed some 15
tiles each (2026-11-30, from the cache). The tile that is least by this model took 1.08 times as long as the best of
them in the geometric mean; with `ISSUED_ALONE` 0.7 and `STEP_CYCLES` 60 it was 1.11. No product was sooner ready in
tiles of one warp, which had been taken before, by more than 4 %, and (89, 47, 600) @ (89, 600, 105) twice as late.

A plan serves all sizes of a class (`ir/size_class.py`). How many programs the busiest multiprocessor gets differs a lot
from one to the next, so a tile's time is that of several sizes of the class, in the mean.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import product
from typing import Final

from genesis.ir.ops.splits import split_length
from genesis.ir.sym_int import Size, SymInt, hint

SPLIT_UNIT: Final = 64
"""Elements of the inner dimension of which each split of a product has a multiple."""

STEPS: Final = (16, 32)
"""Elements of the inner dimension that are in shared memory as one block."""

MOST_AT_ONCE: Final = 2048
"""Most multiply-adds of a thread for a block: they are written out, and more would be no loop that stays where
instructions are read from."""


@dataclass(frozen=True)
class FmaTile:
    """What a program makes: its rows, columns and warps."""

    rows: int
    columns: int
    warps: int

    @property
    def of_a_thread(self) -> int:
        """Results that a thread has."""
        return self.rows * self.columns // (32 * self.warps)

    @property
    def for_each_read(self) -> float:
        """Multiply-adds of a thread for each four numbers that it reads."""
        high = 1 << (self.of_a_thread.bit_length() - 1) // 2
        return 4 * self.of_a_thread / (high + self.of_a_thread // high)


FMA_TILES: Final = tuple(FmaTile(*sizes) for sizes in (
    (128, 128, 4), (64, 128, 4), (128, 64, 4), (64, 64, 2), (32, 128, 2), (128, 32, 2), (64, 64, 4), (32, 64, 2),
    (64, 32, 2), (32, 64, 4), (64, 32, 4), (32, 32, 2), (32, 32, 4)))
"""The tiles that there are; of equals the first is taken."""

AHEAD: Final = 96
"""Elements of the inner dimension that a program has under way, with those that it multiplies."""

CYCLES: Final = 1755.0
"""Cycles of an H200 in a microsecond."""

ISSUED: Final = 0.8
"""Share of a multiprocessor's cycles in which multiply-adds start, where each scheduler has two warps to choose from
(H200, 128 × 128 over 4096³)."""

ISSUED_ALONE: Final = 0.65
"""The same where it has one."""

READ: Final = 1.0
"""Share of the cycles in which shared memory answers, where all wait for it."""

FROM_CACHE: Final = 17.0
"""Bytes that the second cache gives a multiprocessor in a cycle, where all of them ask."""

STEP_CYCLES: Final = 100
"""Cycles that a block of the inner dimension takes beside: a barrier, a wait, addresses."""

ENDS: Final = 1.7
"""Microseconds from a program's start to its first block, and of its end: what others on its multiprocessor, which
started with it, do not hide."""

FETCHED: Final = 0.0015
"""Microseconds of an instruction that a multiprocessor runs for the first time (H200: a product of 3300 instructions
and nearly no work takes 9.4)."""

OTHER_INSTRUCTIONS: Final = 400
"""Instructions of a kernel beside its multiply-adds."""

OTHER_REGISTERS: Final = 5 * 16
"""Registers of a thread beside its results, about: what it multiplies next, addresses and masks."""

SAMPLES: Final = ((0.125, 0.625, 0.375, 0.875), (0.375, 0.125, 0.875, 0.625), (0.625, 0.875, 0.125, 0.375),
                  (0.875, 0.375, 0.625, 0.125))
"""Where in their classes batch, rows, columns and depth lie, of each product whose times are weighed."""

SAME: Final = 1.03
"""Times that differ by less are equal: the larger tile reads memory less often."""


@dataclass(frozen=True)
class FmaChoice:
    """A tile, the elements of its blocks of the inner dimension, and microseconds in the mean of the class."""

    tile: FmaTile
    step: int
    microseconds: float


def fastest_fma(batch: Size, rows: Size, columns: Size, depth: Size, multiprocessors: int,
                splits: int = 1) -> FmaChoice:
    """The tile and the block of a product that take least time.

    Args:
        splits: parts of the inner dimension, each of which is a product of its own.
    """
    return _fastest(sampled(batch, rows, columns, depth), multiprocessors, splits)


Sizes = tuple[int, int, int, int]
"""Batch, rows, columns, depth."""


def sampled(*sizes: Size) -> tuple[Sizes, ...]:
    """The sizes themselves, or some of their classes."""
    if not any(isinstance(size, SymInt) for size in sizes):
        return (sizes,)  # type: ignore[return-value]  # none is a SymInt
    return tuple(tuple(map(_within, sizes, sample)) for sample in SAMPLES)  # type: ignore[misc]  # as many as `Sizes`


def _within(size: Size, part: float) -> int:
    """The size at this part of its class, of what is computed from sizes at this part of all that it can be."""
    if not isinstance(size, SymInt) or size.trace.exact:
        return hint(size)
    least, most = size.trace.range(size)
    if least is None or most is None:
        return hint(size)
    return max(1, round(least + part * (most - least)))


@functools.lru_cache(maxsize=4096)
def _fastest(samples: tuple[Sizes, ...], multiprocessors: int, splits: int) -> FmaChoice:
    best: FmaChoice | None = None
    for tile, step in product(FMA_TILES, STEPS):
        if tile.of_a_thread * step > MOST_AT_ONCE:
            continue
        times = [_microseconds(tile, step, sizes, multiprocessors, splits) for sizes in samples]
        found = FmaChoice(tile, step, sum(times) / len(times))
        if best is None or found.microseconds * SAME < best.microseconds:
            best = found
    assert best is not None
    return best


def _microseconds(tile: FmaTile, step: int, sizes: Sizes, multiprocessors: int, splits: int) -> float:
    """Microseconds of one product, without its launch; of one without elements, as if it had one."""
    batch, rows, columns, depth = (max(size, 1) for size in sizes)
    programs = -(-rows // tile.rows) * -(-columns // tile.columns) * batch * splits
    together = -(-programs // multiprocessors)
    blocks = -(-split_length(depth, splits, SPLIT_UNIT if splits > 1 else 1) // step)
    warps = together * tile.warps
    multiplies = together * tile.rows * tile.columns / (32 * min(warps, 4)) / (ISSUED if warps >= 8 else ISSUED_ALONE)
    reads = together * tile.rows * tile.columns / 32 / tile.for_each_read * 4 / READ
    loads = together * (tile.rows + tile.columns) * 4 / FROM_CACHE
    cycles = blocks * (step * max(multiplies, reads, loads) + STEP_CYCLES)
    rounds = -(-together // _resident(tile, step, blocks))
    instructions = 1.1 * tile.of_a_thread * step + OTHER_INSTRUCTIONS
    return cycles / CYCLES + rounds * ENDS + instructions * FETCHED


def _resident(tile: FmaTile, step: int, blocks: int) -> int:
    """Programs that a multiprocessor has registers and shared memory for, about."""
    registers = 65536 // ((tile.of_a_thread + OTHER_REGISTERS) * 32 * tile.warps)
    shared = (tile.rows + tile.columns) * step * 4 * blocks_ahead(step, blocks)
    return max(1, min(registers, (228 << 10) // shared))


# Blocks that the copy engine brings

@dataclass(frozen=True)
class StreamedFma:
    """A form of products whose blocks the copy engine brings, one program on each multiprocessor.

    Attributes:
        rows, columns: what its eight warps make.
        step: elements of the inner dimension in a block.
        blocks: how many of these are under way.
        shared: whether programs share the tiles that are too few for a whole round.
        issued: share of the cycles in which multiply-adds start.
    """

    rows: int
    columns: int
    step: int
    blocks: int
    shared: bool
    issued: float

    @property
    def idle(self) -> int:
        """Elements of the inner dimension that a program adds up while one waits for parts of its tile: tiles that
        leave programs idle for less are not shared."""
        return round(HANDED_OVER * CYCLES * 128 * self.issued / (self.rows * self.columns))


STREAMED: Final = tuple(StreamedFma(128, columns, step, blocks, shared, issued) for columns, step, blocks, issued in (
    (128, 32, 5, 0.82), (256, 16, 8, 0.80)) for shared in (True, False))
"""The forms that there are. An H200 (2026-11-29) took 2984, 2842 and 2690 µs for 4096³ of both operands along the inner
dimension, one and none with 128 columns, and 3037, 2976 and 2675 with 256 (by pointers 3206, 3024 and 2830, torch 2748,
2694 and 2642); and 1508 for the gradient of a weight of 768 × 16384 × 3072, for which it took 2254 by pointers."""

STORED: Final = 15.0
"""Bytes of a tile that a multiprocessor stores in a cycle, while it adds up nothing."""

HANDED_OVER: Final = 6.0
"""Microseconds that a program waits for parts of its tile from others (H200: 1280 × 1616 results, 130 tiles for 132
programs, took 104 µs where each made one and 110 where they shared them)."""

ADDED: Final = 1.5
"""Microseconds that adding a part takes of another program; reckoned."""

BY_POINTERS: Final = 1.06
"""How much longer than `fastest_fma` says products took that a form was beside (H200: 1.0 to 1.18)."""

FEWEST_SHARED: Final = 9
"""Multiprocessors to a tile of 128 × 128 from which on too many share one: their parts are added one by one."""


def streams_fma(elements: int, multiprocessors: int) -> bool:
    """Are there enough of a product's results to share its tiles?"""
    return FEWEST_SHARED * elements >= 128 * 128 * multiprocessors


def streams_sooner(streamed: float, by_pointers: float) -> bool:
    """Is a form, by its model, sooner ready than the best tile by its own?"""
    return streamed < BY_POINTERS * by_pointers


def fastest_streamed(rows: Size, columns: Size, depth: Size, multiprocessors: int) -> float:
    """Microseconds of the form that takes least."""
    return min(streamed_microseconds(form, rows, columns, depth, multiprocessors) for form in STREAMED)


def streamed_microseconds(form: StreamedFma, rows: Size, columns: Size, depth: Size, multiprocessors: int) -> float:
    """Microseconds of one product in a form, without its launch, in the mean of the sizes' class."""
    return _streamed(form, sampled(1, rows, columns, depth), multiprocessors)


@functools.lru_cache(maxsize=4096)
def _streamed(form: StreamedFma, samples: tuple[Sizes, ...], multiprocessors: int) -> float:
    total = 0.0
    for _, rows, columns, depth in samples:
        tiles = -(-rows // form.rows) * -(-columns // form.columns)
        most = -(-tiles // multiprocessors)
        beside = tiles % multiprocessors
        shared = form.shared and beside and depth * (multiprocessors - beside) > form.idle * multiprocessors
        rounds = tiles / multiprocessors if shared else most
        cycles = form.rows * form.columns * (rounds * depth / 128 / form.issued + most * 4 / STORED)
        handing = HANDED_OVER + ADDED * max(multiprocessors / tiles - 1, 0) if shared else 0.0
        total += cycles / CYCLES + most * ENDS + handing
    return total / len(samples)


def blocks_ahead(step: int, blocks: int) -> int:
    """Blocks of the inner dimension that a program of so many has under way, with the one that it multiplies."""
    return max(2, min(AHEAD // step, blocks + 1))
