"""What a scan's program has at a time: rows or columns, elements of each, and warps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from genesis.codegen.cuda.block_sizes import batch_block, power_of_two
from genesis.codegen.cuda.column_blocks import SHORT_COLUMNS
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.row_edges import plain
from genesis.codegen.cuda.templates.rows import Rows
from genesis.ir.size_divisors import is_multiple, twos
from genesis.ir.sym_int import as_written, hint
from genesis.ir.types import DType
from genesis.passes.graph.split_scans import COLUMNS

PERSISTENT: Final = 8192
"""Maximum elements of a row that is scanned in one piece; half as many where the state is two numbers."""

STEP: Final = 4096
"""Elements of a longer row that are scanned at a time."""

TILE: Final = 8192
"""Elements of a block of columns that are scanned at a time."""

AHEAD_TILE: Final = 4096
"""The same where what is scanned next waits in registers, for states of one number."""

AHEAD_EACH: Final = 16
"""Elements of a thread there (H200, kernels alone: cumsum of bfloat16[100, 3000, 51] along its second axis, 160
programs of 8192 elements that waited for memory in each of 12 rounds, 155 µs; 54 so)."""

COPIED: Final = 8
"""Bytes of neighbours from which on they are copied to shared memory ahead of their use. Two bytes cannot be; of four
Triton knows no vector, and lays them out so that lanes meet in one bank (H200: cumsum of float32[200, 1500, 63] along
its second axis 203 µs, torch.compile 90)."""

ALONE_EACH, ALONE_WARPS = 16, 8
"""Elements of a thread that has them of one column, two or four times as many where that is all of it, and most warps
that share columns."""

SMALLEST: Final = 2048
"""Elements of a block of short columns below which it takes those of neighbouring outer indices, too (H200: cumsum of
7,600 times 23 × 8 bfloat16 10.2 µs in as many programs, torch.compile 5.5)."""

SHORTEST: Final = 16
"""The block of a class of the shortest rows."""

MOST_EACH, LEAST_EACH = 32, 4
"""Elements of a thread of a block of rows, where rows are many, and down to which it has fewer where they are few: a
warp alone takes thousands of cycles for 32 of each of its threads (H200: logcumsumexp of float32[3279, 32] 6.2 µs in
103 programs of one warp). Half as many where states cost much to combine."""

BUSY_WARPS: Final = 16
"""Warps of a multiprocessor that keep it busy."""

LEAST_IN_VECTOR, MOST_IN_VECTOR = 4, 8
"""Elements of a vector that are worth it to begin blocks of rows with one: of two there is little to gain."""

SHORTEST_SHIFTED: Final = 32
"""Minimum elements of rows whose blocks begin with a vector."""

MANY: Final = 1 << 18
"""Elements of blocks of short rows from which on a plan for each length is worth it: of 3 of 16 lanes of a class (H200:
cummax over 3 of 631,488 float16 14.7 µs, torch 10.6)."""

PROGRAMS: Final = 512
"""Minimum programs that are left where one takes the short columns of neighbouring outer indices, too."""


@dataclass(frozen=True)
class Blocks:
    x: int
    step: int
    warps: int


def blocks_of(rows: Rows, extent: int, types: Sequence[DType], chunks: bool, shifted: int, gpu: GpuModel,
              heavy: bool = False) -> Blocks:
    """Rows and elements that a program has at a time, whose states are numbers of these dtypes.

    Args:
        chunks: a program has a chunk of a row.
        shifted: elements of the vectors that blocks of shifted rows begin with, else 0.
        heavy: to combine two states costs more than to load an element alone: a thread has elements of one column.
    """
    size, numbers, vector = power_of_two(extent), len(types), shifted or rows.vector
    if shifted and not extent + shifted - 1 <= size:  # of a size that may change the answer is a guard
        size *= 2
    if size <= SHORTEST and hint(rows.rows) * size >= MANY:
        size = next((short for short in SHORT_COLUMNS if extent <= short), size)
    if rows.inner == 1:
        step = size if size <= PERSISTENT // numbers else STEP // numbers
        several = step > 4096 or (step <= 512 and not shifted)  # edges of shifted rows take registers, too
        each = (MOST_EACH if several else MOST_EACH // 2) // (2 if heavy else 1)
        x, threads = batch_block(rows.rows, max(1, 1024 // step)), BUSY_WARPS * 32 * gpu.multiprocessors
        by_warps = heavy or step <= 32 * vector  # more warps would share rows, and exchange states
        while by_warps and each > max(LEAST_EACH, vector) and hint(rows.rows) * step < each * threads:
            each //= 2
        while x > 1 and hint(rows.rows) < 2 * gpu.multiprocessors * x and (x // 2) * step >= 32 * each:
            x //= 2
        return Blocks(x, step, max(1, min(x * step // (32 * each), 16)))
    if numbers > 1 and types[0].itemsize == 8:
        numbers *= 2  # registers have no room for as many states of 64 bits (logcumsumexp: a kilobyte was spilled)
    if heavy and types[0].itemsize == 4:
        return _blocks_of_single_columns(rows, size, gpu)
    states = len(types)
    x = min(power_of_two(rows.inner), COLUMNS)
    if size > AHEAD_TILE // numbers // x and come_one_by_one(rows):
        return Blocks(x, AHEAD_TILE // numbers // x, AHEAD_TILE // numbers // AHEAD_EACH // 32)
    step = min(size, TILE // numbers // x)
    while step == size and x * step < SMALLEST // numbers and hint(rows.rows) >= 2 * x * PROGRAMS:
        x *= 2
    return Blocks(x, step, max(4, min(x * step * states // 1024, 16)))


def _blocks_of_single_columns(rows: Rows, size: int, gpu: GpuModel) -> Blocks:
    """A thread has short columns, or a stretch of a longer one beside others of 32 columns."""
    many = hint(rows.rows) >= 32 * BUSY_WARPS // 2 * gpu.multiprocessors
    if size <= (4 if many else 2) * ALONE_EACH:  # what of a block lies behind the column's end costs nothing there
        warps, columns = 4, neighbours(rows)  # whole vectors of them, where their elements are few
        while columns > 1 and columns * size > 2 * ALONE_EACH:
            columns //= 2
        while columns * size < 2 * ALONE_EACH and hint(rows.rows) >= 64 * warps * columns * gpu.multiprocessors:
            columns *= 2
        while warps > 1 and hint(rows.rows) < 64 * warps * columns * gpu.multiprocessors:
            warps //= 2
        return Blocks(32 * warps * columns, size, warps)
    step = min(size, ALONE_EACH * ALONE_WARPS)
    return Blocks(32, step, step // ALONE_EACH)


def in_vectors(rows: Rows, size: int) -> bool:
    """Whether a thread's registers hold whole columns of a vector of neighbours, so that it has no need of others'."""
    return neighbours(rows) * size <= 2 * ALONE_EACH


def neighbours(rows: Rows) -> int:
    """How many neighbouring columns a thread loads at once."""
    sizes = [a.node.dtype.itemsize for a in rows.kernel.arguments if a.role == "in"]
    return max(1, min(16 // max(sizes, default=16), twos(as_written(rows.inner))))


def shifted_by(rows: Rows, nbytes: int) -> int:
    """Elements of a vector of results of so many bytes each, where rows begin at no multiple of one, else 0."""
    vector = min(16 // nbytes, MOST_IN_VECTOR)
    if rows.inner != 1 or vector < LEAST_IN_VECTOR or is_multiple(as_written(rows.length), vector):
        return 0
    kernel = rows.kernel
    loads = kernel.loads("xr")
    return vector if loads and all(plain(s, kernel) for s in loads) and hint(rows.length) >= SHORTEST_SHIFTED else 0


def stretches_beside(rows: Rows, blocks: Blocks, alone: bool) -> int:
    """How many threads share a row of a block of columns, if a thread loads 16 bytes of neighbouring columns, or one
    element `alone`."""
    if alone:
        return max(1, 32 * blocks.warps // blocks.x)
    several = min(neighbours(rows), blocks.x)
    return max(1, min(32 * blocks.warps * several // blocks.x, blocks.step))


def come_one_by_one(rows: Rows) -> bool:
    """Whether columns are loaded as they are, a word or less at a time: nothing good copies such ahead to shared
    memory, and without that a program would wait for memory in each round."""
    loads = rows.kernel.loads("xr")
    return rows.inner > 1 and bool(loads) and all(
        s.out.dtype.itemsize * twos(as_written(rows.inner)) < COPIED for s in loads)
