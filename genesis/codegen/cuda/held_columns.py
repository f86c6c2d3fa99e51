"""Columns that registers hold from their first reading to the last.

A softmax over columns reads them for their maximum and sum, and again for its results. All programs that run at once
have more columns than the L2 has room for, so that the second reading comes from memory. Here a program has so few
columns, read in whole sectors, that its registers hold them: loops over r are written out, each block of r loaded once
(`Blocks.kept_bytes`). The same for rows that lie across memory (`blocks.turned`), which are written along themselves.

Columns that one loop reads are written out, too, where they are read in vectors and registers have room for all of
them: none of a program's loads waits for another, where a loop asks for the next block behind the last.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import ALONE_WARPS, VECTOR, Blocks, about, enough_programs, power_of_two, room_for
from genesis.codegen.cuda.column_blocks import TILE, WIDEST, in_vectors, turned
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import Kernel, Reduce
from genesis.ir.sym_int import literal_value, rounds

SECTOR: Final = 32
"""Bytes that memory is read in: a program reads as many neighbours at the least."""

FEWEST_SINGLES: Final = 16
"""Minimum neighbours of a program that reads them one by one."""

HELD: Final = ((4, 24 << 10), (8, 40 << 10))
"""(warps, maximum bytes that their registers hold): two programs and more to a multiprocessor, so that one loads while
another computes (H200: softmax over 633 rows of 26993 float32 read twice 122 µs, 33 by its bytes)."""

ONCE: Final = ((2, 24 << 10), (4, 40 << 10))
"""(warps, maximum bytes that their registers hold) of columns that are read once: what their warps exchange at the end
takes longer than what they wait (H200, mean of 144 rows of 100,000 bfloat16: 10.6 µs with two warps, 13.9 with four,
17.4 in a loop of blocks)."""

ONCE_VECTORS: Final = 2
"""Vectors of a thread in a block of columns that are read once."""

FEWEST_EACH: Final = 4
"""Elements of a block of r that a thread has at least where a multiprocessor has two programs at most: as many warps
hide what each waits for."""

NARROWEST: Final = 8
"""Columns of a program that has a block of all of them, where a GPU has no more than one such program for each
multiprocessor: what 528 splits of 89 float32 columns give, and how large their spread is, was read in two rounds, twice
(H200, six programs of 16 columns 11.9 µs, so 6.3)."""

NARROWEST_ONCE: Final = 64
"""Bytes of neighbours of a program that reads its columns once, at least: narrower ones have loops of wider blocks."""

MOST_ROUNDS: Final = 8
"""Blocks of r that a column of a power of two has. Others of its class have five to eight, and a plan for each."""


def held_columns(kernel: Kernel, blocks: Blocks, gpu: GpuModel) -> Blocks:
    """Blocks of columns that registers hold, as wide as fit.

    Args:
        blocks: what is taken where one loop reads the columns, or where they do not fit.
    """
    columns = kernel.x_is_fastest
    if not blocks.looped or blocks.run or kernel.splits is not None or not (columns or turned(kernel)):
        return blocks
    loads, again = kernel.loads("xr"), _read_again(kernel)
    vectors = all(in_vectors(load, kernel) for load in loads)
    if not loads or not (again or vectors):
        return blocks
    longest = power_of_two(kernel.r_size)
    nbytes = sum(s.out.dtype.itemsize for s in loads)
    narrowest = max((SECTOR if again else NARROWEST_ONCE) // min(s.out.dtype.itemsize for s in loads),
                    1 if vectors else FEWEST_SINGLES)
    if not again and (literal_value(kernel.r_size) is None or about(kernel.x_size) < narrowest * enough_programs(gpu)):
        return blocks  # each number of blocks would be a plan of its own
    if longest * nbytes * narrowest > 2 * HELD[-1][1]:
        return _narrow(kernel, blocks, longest, gpu)
    if longest < MOST_ROUNDS:
        return blocks
    if not again:
        return _once(kernel, blocks, narrowest, gpu)
    r_block = longest // MOST_ROUNDS
    column = rounds(kernel.r_size, r_block) * r_block * nbytes
    x_block = WIDEST
    while x_block > narrowest and (x_block * column > HELD[-1][1]
                                   or about(kernel.x_size) < x_block * enough_programs(gpu)):
        x_block //= 2
    warps = next((warps for warps, most_bytes in HELD if x_block * column <= most_bytes), 0)
    if about(kernel.x_size) <= x_block * enough_programs(gpu):
        while 0 < warps < ALONE_WARPS and 2 * warps * 32 * FEWEST_EACH <= x_block * r_block:
            warps *= 2
    return Blocks(x_block, r_block, True, warps, kept_bytes=longest * nbytes) if warps else blocks


def _narrow(kernel: Kernel, blocks: Blocks, longest: int, gpu: GpuModel) -> Blocks:
    """One block of all of a few columns, where these leave multiprocessors without a program anyway."""
    few = about(kernel.x_size) <= NARROWEST * gpu.multiprocessors
    if not few or NARROWEST * longest > TILE or literal_value(kernel.r_size) is None:
        return blocks
    return Blocks(NARROWEST, longest, False, ALONE_WARPS)


def _once(kernel: Kernel, blocks: Blocks, narrowest: int, gpu: GpuModel) -> Blocks:
    """Blocks of columns that one loop reads, in vectors."""
    loads = kernel.loads("xr")
    sizes = [s.out.dtype.itemsize for s in loads]
    x_block, column = WIDEST, room_for(kernel.r_size) * sum(sizes)
    while x_block > narrowest and (x_block * column > ONCE[-1][1]
                                   or about(kernel.x_size) < x_block * enough_programs(gpu)):
        x_block //= 2
    warps = next((warps for warps, most_bytes in ONCE if x_block * column <= most_bytes), 0)
    r_block = ONCE_VECTORS * warps * 32 * VECTOR // max(sizes) // x_block
    return Blocks(x_block, r_block, True, warps, kept_bytes=column) if warps else blocks


def _read_again(kernel: Kernel) -> bool:
    """Whether one loop over r does not do: each element is written, or reductions wait for each other."""
    return bool(kernel.stores("xr")) or len({s.out.stage for s in kernel.statements if isinstance(s, Reduce)}) > 1
