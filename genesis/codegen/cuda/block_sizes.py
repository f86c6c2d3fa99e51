"""What a program's blocks are, and block sizes for sizes that may be symbols.

Sizes that lead (the batch) come in few classes, so that a second one runs kernels that are there: a block depends on
the power of eight or so that such a size lies below, not on the size. Inner sizes are part of a kernel anyway, and
their blocks fit exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.ir.sym_int import SymInt, as_written, hint, literal_value, most

PERSISTENT: Final = 16384
"""Maximum elements of a row that is one block, in registers from load to store."""

EACH: Final = 2
"""Programs per multiprocessor that keep a GPU busy."""

BATCH_BLOCKS: Final = (1, 16, 128, 256, 1024, 2048, 4096, 8192)
"""Block sizes for the batch: few, so that most batch sizes share their kernels."""

WIDE: Final = 4
"""How many times as large as the least size of a class a block for all of them may be, without guards: a class of one
size reaches over a factor of two, that of an area over four."""

PROGRAM_BYTES: Final = 8192
"""Minimum bytes that a program of a large loop reads and writes: fewer do not pay for starting it."""

LEAST_BYTES: Final = 2048
"""Bytes of short rows that a program reads, where there are programs for half of the multiprocessors: one starts a
program in about 0.15 µs, in which it could move 5 KB (H200, sums of 349,440 pairs of float16 in 2730 programs of 512
bytes 4.2 µs, of 2048 bytes 1.8, torch.compile 2.3)."""

VECTOR: Final = 16
"""Bytes that a thread loads at once at most."""

ALONE_WARPS: Final = 16
"""Most warps of a program whose threads have one vector each: where a multiprocessor has two programs at most, only a
program's own warps hide what each waits for (a row of 512 parts of a batch norm is 1,125 instructions of one warp,
which took 8 µs on an H200, and 465 of four)."""

HEAVY: Final = 40
"""Weighted ops per element above which arithmetic needs more warps than loads do."""


@dataclass(frozen=True)
class Blocks:
    """How a program takes its part of the space. Block sizes are powers of two.

    Attributes:
        looped: the program loops over r.
        tiled: other programs take the rest of r.
        num_stages: loads of a loop run that many rounds minus one ahead of their uses, as Triton counts.
        kept_bytes: bytes of a row that registers may keep from one loop over r to the next; 0 to load it again.
        run: columns that a program has where it has all neighbours in memory, and `x` is that rounded up; else 0.
        across: lanes lie across rows, which go through shared memory (`rows_across.py`); blocks have r first, then x.
        packed: elements of a program that has neighbours in memory, whatever rows they lie in (`packed_rows.py`); `x`
            and `r` are then of what it has once for each row and for each place in a row. Else 0.
        passing: the rows of all programs at a time do not stay in the L2 from one loop over r to the next.
    """

    x: int
    r: int
    looped: bool
    num_warps: int
    tiled: bool = False
    num_stages: int = 1
    kept_bytes: int = 0
    run: int = 0
    across: bool = False
    packed: int = 0
    passing: bool = False


def room_for(n: int) -> int:
    """The largest that a size can be in a kernel, which names some sizes by their numbers."""
    return most(as_written(n))


def about(n: int) -> int:
    """A size for weighing costs; of one that the kernel names by its number, that."""
    number = literal_value(n)
    return hint(n) if number is None else number


def middling(n: int) -> int:
    """A size for weighing how many programs there are: the geometric mean of the least and the most that one can be
    that is an argument. Of a product of sizes, each between two powers of two, `about` is their most.

    >>> middling(24)
    24
    """
    number = literal_value(n)
    if number is not None or not isinstance(n, SymInt):
        return n if number is None else number
    least = n.trace.range(as_written(n))[0] or 0
    return round(math.sqrt(max(least, 1) * room_for(n)))


def power_of_two(n: int) -> int:
    """The smallest power of two ≥ n, at least 1, and ≥ all that a symbolic n can be."""
    return 1 << max(room_for(n) - 1, 0).bit_length()


def reach_of(n: int) -> tuple[int, int]:
    """(the least, the most) that a size can be in a kernel.

    A class may hold sizes that are many times as large as others, as that of the area of an image 2 to 15 wide does:
    then guards say between which powers of two n lies, so that a block for all of them has few idle lanes.
    """
    if not isinstance(n, SymInt) or literal_value(n) is not None:
        return room_for(n), room_for(n)
    least, largest = n.trace.range(as_written(n))[0] or 0, room_for(n)
    block = power_of_two(n)
    while WIDE * least < block and block > 1:
        if not n <= block // 2:
            return block // 2 + 1, largest
        block = largest = block // 2
    return least, largest


def block_of(n: int) -> int:
    """The smallest power of two ≥ n, and ≥ all that n can be by `reach_of`."""
    return power_of_two(reach_of(n)[1])


def block_for(n: int, largest: int) -> int:
    """`power_of_two` of n, at most `largest`, which is one."""
    return min(power_of_two(n), largest)


def batch_block(n: int, largest: int) -> int:
    """The smallest block of `BATCH_BLOCKS` that holds n elements of a batch, at most `largest`."""
    room = room_for(n)
    return min(next((block for block in BATCH_BLOCKS if block >= room), largest), largest)


def between(low: int, n: int, high: int) -> int:
    """n, but at least `low` and at most `high`; of two that cross, `low`."""
    return max(low, min(n, high))


def enough_programs(gpu: GpuModel) -> int:
    """Programs that keep the GPU busy."""
    return EACH * gpu.multiprocessors


def may_double(size: int, block: int, gpu: GpuModel) -> bool:
    """Whether enough programs are left of a size where each has two blocks. As many warps as before have the elements,
    in half as many programs, of which a multiprocessor starts one at a time."""
    return about(size) >= 2 * block * enough_programs(gpu)
