"""What a scan's program has at a time: rows or columns, elements of each, and warps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from genesis.codegen.cuda.block_sizes import batch_block, middling, power_of_two
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

ALONE_EACH, ALONE_WARPS = 16, 8
"""Elements of a thread that has them of one column, two or four times as many where that is all of it, and most warps
that share columns (H200, kernels alone, µs of vectors of columns, whose states all threads of a program combine, and
so: cummax over 0 of bfloat16[200, 100000] 291, 63, of bfloat16[5000, 128] 214, 25; cumsum over 0 of float32[105, 1327]
5.9, 3.5; torch.compile 168, 1012, 7.0)."""

WALKED, WALKERS = 128, 128
"""Columns of a program that walks along them, a thread each, and for each multiprocessor from which on it does (H200,
cummax over 0 of float32[200, 30000] 28.5 µs, 32.1 where four threads share a column; torch.compile 71)."""

SHORT_OF_FEW: Final = 64
"""Elements of columns, fewer than 32 side by side, up to which a thread has vectors of them."""

FEWEST_COLUMNS: Final = 8
"""Columns of a program where they are few: a sector of 32-bit elements."""

LONG: Final = 1024
"""Elements of a column from which on a multiprocessor is better off with two programs of half as many (H200, cummax
over 0 of bfloat16[3000, 4096]: 32 columns each 68 µs, 16 49)."""

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
    if alone(rows, types, heavy, gpu):
        parts = -(-rows.length // extent) if chunks else 1
        return _blocks_of_single_columns(rows, size, parts, heavy, gpu)
    states = len(types)
    x = min(power_of_two(rows.inner), COLUMNS)
    step = min(size, TILE // numbers // x)
    while step == size and x * step < SMALLEST // numbers and hint(rows.rows) >= 2 * x * PROGRAMS:
        x *= 2
    return Blocks(x, step, max(4, min(x * step * states // 1024, 16)))


def alone(rows: Rows, types: Sequence[DType], heavy: bool, gpu: GpuModel) -> bool:
    """Whether a thread has elements of one column alone, so many more of them, and combines their state with those of
    few other threads or none.

    Not where columns are so short that there is little to combine, nor short ones of few neighbours, which vectors read
    with fewer of a line's sectors twice, nor many that one block has in vectors of eight (H200: cumsum of bfloat16[40,
    200, 256] along its second axis 5.5 µs so, 8.1 alone, of [8, 300, 16384], in two rounds, 126 and 51).
    """
    if rows.inner == 1 or (types[0].itemsize > 4 and (heavy or len(types) > 1)):
        return False
    if heavy:
        return True
    size, several = power_of_two(rows.length), neighbours(rows)
    if len(types) == 1 and several >= 8 and 2 * SHORTEST < size <= TILE // COLUMNS:
        return hint(rows.rows) < 2 * COLUMNS * gpu.multiprocessors
    return size > (SHORT_OF_FEW if several > 1 and hint(rows.inner) < COLUMNS else SHORTEST)


def _blocks_of_single_columns(rows: Rows, size: int, parts: int, heavy: bool, gpu: GpuModel) -> Blocks:
    """A thread has short columns, or a stretch of a longer one beside others of 32 columns, fewer where those would
    leave multiprocessors idle. Where columns are many it walks along one by itself."""
    many = hint(rows.rows) >= 32 * BUSY_WARPS // 2 * gpu.multiprocessors
    if heavy and size <= (4 if many else 2) * ALONE_EACH:  # what of a block lies behind the column's end costs nothing
        warps, columns = 4, neighbours(rows)  # whole vectors of them, where their elements are few
        while columns > 1 and columns * size > 2 * ALONE_EACH:
            columns //= 2
        while columns * size < 2 * ALONE_EACH and hint(rows.rows) >= 64 * warps * columns * gpu.multiprocessors:
            columns *= 2
        while warps > 1 and hint(rows.rows) < 64 * warps * columns * gpu.multiprocessors:
            warps //= 2
        return Blocks(32 * warps * columns, size, warps)
    columns = middling(rows.rows) * parts
    if not heavy and columns >= WALKERS * gpu.multiprocessors:
        return Blocks(WALKED, size if size <= 2 * ALONE_EACH else ALONE_EACH, WALKED // 32)
    x, most = COLUMNS, gpu.multiprocessors * 9 // 10
    if middling(rows.length) >= LONG:
        most *= 2
    while x > FEWEST_COLUMNS and columns < x * most:
        x //= 2
    warps = ALONE_WARPS if heavy or x < COLUMNS else ALONE_WARPS // 2
    step = min(size, ALONE_EACH * 32 * warps // x)
    return Blocks(x, step, max(min(4, warps), x * step // (32 * ALONE_EACH)))


def in_vectors(rows: Rows, blocks: Blocks) -> bool:
    """Whether a thread's registers hold whole columns of a vector of neighbours, so that it has no need of others'."""
    several = neighbours(rows)
    return several * blocks.step <= 2 * ALONE_EACH and blocks.x >= 32 * blocks.warps * several


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
