"""How much of a loop's iteration space one program takes: of flat loops, windows, whole rows, or columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.block_sizes import (
    ALONE_WARPS,
    HEAVY,
    LEAST_BYTES,
    PERSISTENT,
    PROGRAM_BYTES,
    VECTOR,
    Blocks,
    about,
    batch_block,
    between,
    block_for,
    block_of,
    enough_programs,
    may_double,
    power_of_two,
    room_for,
)
from genesis.codegen.cuda.column_blocks import (
    column_blocks,
    pipeline_stages,
    split_column_blocks,
    stages_with_room,
    turned,
)
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Part, Position, Random, Reduce, Store, operands_of
from genesis.codegen.cuda.neighbours import bytes_at_once
from genesis.codegen.cuda.online_reductions import sums_of_exponentials, sums_of_squares, with_early_sums
from genesis.codegen.cuda.row_choice import choose_rows
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import literal_value, most

HELD: Final = 65536
"""Maximum elements of a row that registers hold in its dtype in memory and convert again for each use."""

EIGHT_OF_EACH: Final = 6
"""Operands and reductions together of which a thread of 32 warps may have eight elements each, in 64 registers: of a
layer norm's gradient of float32, 8, it spilled 64 bytes (sm_90)."""

FEW_HALVES: Final = 10
"""Blocks of four elements a thread below which half a block of eight is a tenth of a row or more."""

SHORT_ROWS: Final = 64
"""Minimum elements of a block of short rows, two a lane of a warp: with fewer, lanes of more programs idle."""

MANY_ROWS: Final = 256
"""Elements of a block of a row up to which a program takes as many rows as make `PROGRAM_BYTES`, also where it stores
them: longer ones wait in registers, and `START_BYTES` are enough."""

START_BYTES: Final = 5120
"""Bytes that a multiprocessor moves while it starts a program, in 0.16 µs: a program of rows that are stored reads and
writes so many (H200: rms_norm of 65,536 rows of 700 bfloat16, 2.8 KB each, in as many programs 80.1 µs, which is what
their starts take, 43 by its bytes; torch.compile 46.7; 48 in two rows of one warp)."""

MOST_STARTED: Final = 2048
"""Elements of such a program at most: two rows of 1024 in one warp, four of 512 in two. Four rows of 523 and 600
bfloat16 in two or four warps took longer than two in one, those of 700 to 1024 as long (H200)."""

EACH_THREAD: Final = 8
"""Elements of a thread where warps have rows of their own. A norm's backward over 262,144 heads of 128 takes 70 µs,
with 16 elements 89 to 102, with 32 164 (H200, 2026-11)."""

EACH_READ: Final = 64
"""Bytes of a thread of rows that are reduced and not written: four vectors, all under way (H200: any of 5439 rows of
1024 float32 9.5 µs with twice as many, in programs of two rows or four; 7.1 so, torch.compile 7.9)."""

ONE_WARP: Final = 1024
"""Elements of rows that one warp has, 32 a thread: cross-entropy of rows of 160 float32 with gradients was 1863
instructions of each of two warps for twice as many rows, and is 1131 of one (sm_90)."""

ONE_WARP_READS: Final = 4096
"""Elements of rows that one warp reads, without writing any, 128 a thread at most: programs of one row each are started
too slowly, one in 0.22 µs of a multiprocessor (H200: cross-entropy of 66 M float16 in rows of 300 and 691, kernels
alone: 126 and 100 µs in programs of four warps that share each row, 81 in one warp of 2048 elements, 58 and 64 so)."""

ONE_WARP_ODD: Final = 2048
"""Elements of odd 16-bit rows that one warp reads and writes, 64 a thread: softmax of rows of 293, sums of squares of
rows of 587 and their gradients were 1024 elements a program, twice as long to start as to move (reckoned)."""

COMPUTED_ALONE: Final = 10
"""Weighted ops of an element of two-byte rows from which on programs of one warp are worth starting; a softmax has 7.
Cross-entropy with gradients of 39,673 rows of 150 float16, 13, took 40 µs in programs of four warps (H200)."""

SHARED_ELEMENTS: Final = 4096
"""Elements of a program of short rows that share weights, in eight warps: those are loaded, and brought to where rows
are, once for each program. The norm and rotation of as many heads take 65 µs for 73 with a quarter of that."""

SHARED_WARPS: Final = 8
"""Warps of such a program."""

SHARED_OPERANDS: Final = 8
"""Operands of it at most, of which a thread waits for 16 elements each in registers."""

COMPUTED: Final = 4
"""Bytes that an element counts as which is not read: of rows of random numbers, or of what coordinates say, a program
would have any number."""

SINGLES: Final = 4096
"""Elements of a block, times operands, above which many rows that are not read in vectors are looped over, if they are
read once, and written: each element takes a register of its own and others for its place (H200, a select and the sum of
its gradient over 20 pieces of 141 bfloat16: 135 µs, where one program of eight warps was on a multiprocessor)."""

SINGLES_LOOP: Final = 1024
"""Elements of a block of such a loop: eight a thread."""

LOADS: Final = 32
"""Loads of windows that a thread waits for at once: they take as many registers."""

MOST_WARPS: Final = 16
"""Maximum warps of a program that reads windows."""


def choose_blocks(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """Block sizes for a kernel. Which coordinate is fastest in memory decides the block's shape."""
    if not kernel.has_r:
        draws = any(isinstance(s, Random) for s in kernel.statements)
        blocks = flat_blocks(about(kernel.x_size), kernel.bytes_each, gpu, draws)
        if blocks.x == 256 and kernel.bytes_each >= MANY_OPERANDS:
            blocks = replace(blocks, num_warps=8)
        return windows(blocks, kernel) if kernel.folds else blocks
    if kernel.splits is not None and kernel.splits.over == "x":
        return _run_of_rows(kernel, gpu)
    columns = kernel.x_is_fastest
    if kernel.splits is not None:
        elements = min(2048, kernel.splits.multiple)
        if columns or turned(kernel):
            return split_column_blocks(kernel, gpu)
        loads = [*kernel.loads("xr"), *kernel.loads("r")]
        loaded = elements * sum(s.out.dtype.itemsize for s in loads)
        stages = stages_with_room(loaded, 1, gpu) if all(map(_runs, loads)) else 1
        return Blocks(1, elements, True, 4, num_stages=stages)
    if columns or turned(kernel):
        return column_blocks(kernel, gpu)
    of_batch = kernel.r_leads and literal_value(kernel.r_size) is None
    # Idle lanes of a total cost nothing, where the guard that `block_of` may set costs a kernel.
    r_block = power_of_two(kernel.r_size) if kernel.is_total else block_of(kernel.r_size)
    if of_batch:
        r_block = batch_block(r_block, PERSISTENT)
    return _rows(kernel, r_block, gpu)


def _runs(load: Load) -> bool:
    """Whether a load's neighbours are neighbours in memory, or anything but the same: what all of a vector's elements
    share is slow to copy ahead to each element's place (H200: a mean and a deviation beside 51 MB, 130 µs)."""
    return any(atom.kind != "div" for atom, _ in load.address.terms if atom.name == "r" or (
        atom.inner is not None and any(inner.name == "r" for inner, _ in atom.inner.terms)))


def in_rows_of_vectors(kernel: Kernel) -> bool:
    """Whether rows begin at multiples of what a thread loads at once. A value that is loaded alone takes a register
    alone, so that of other rows registers hold half as much (H200, with gradients: softmax of 1328 rows of 50257
    bfloat16 1272 µs where they are held, 368 µs in loops)."""
    return all(is_multiple(kernel.r_size * load.out.dtype.itemsize, VECTOR) for load in kernel.loads("xr"))


MANY_OPERANDS: Final = 40
"""Bytes that a small loop reads and writes for each element from which on a thread has one element: with four, 32
registers have room for six operands at a time. The sum of 17 parts of 100,000 took 6.2 µs so (H200; predicted 4)."""


def flat_block(x_size: int, nbytes: int, gpu: GpuModel) -> int:
    """Elements of a program of a large loop: a multiprocessor starts one about every 160 ns, in which it could move
    5 KB, so a program that moves less than `PROGRAM_BYTES` is not worth starting.

    Args:
        nbytes: read and written for each element.
    """
    block = between(1024, power_of_two(-(-PROGRAM_BYTES // max(nbytes, 1))), 8192)
    while block > 1024 and not may_double(x_size, block, gpu):
        block //= 2
    return block


def flat_blocks(x_size: int, nbytes: int, gpu: GpuModel, draws: bool = False) -> Blocks:
    """Blocks of a loop over one coordinate that reads and writes so many bytes for each element."""
    enough = enough_programs(gpu)
    if draws and x_size >= 2048 * enough:  # more loads a lane hide Philox's long chain
        return Blocks(2048, 1, False, 2)
    if x_size >= 1024 * enough:
        return Blocks(flat_block(x_size, nbytes, gpu), 1, False, 4)
    return Blocks(256, 1, False, 2) if x_size > 1 else Blocks(1, 1, False, 1)


def windows(blocks: Blocks, kernel: Kernel) -> Blocks:
    """Blocks of a kernel that reads windows, as `blocks` are of one that reads an element: as many warps as keep
    `LOADS` loads a thread, and fewer results where even `MOST_WARPS` would have more than twice as many."""
    loads = len(kernel.loads("x") if not kernel.has_r else kernel.loads("xr"))
    x, r = blocks.x, blocks.r
    while x * r * loads > 2 * 32 * LOADS * MOST_WARPS and x * r > 256:
        x, r = (x // 2, r) if x > 1 else (x, r // 2)
    warps = between(max(blocks.num_warps, 4), x * r * loads // (32 * LOADS), MOST_WARPS)
    return replace(blocks, x=x, r=r, num_warps=power_of_two(warps))


def _rows(kernel: Kernel, r_block: int, gpu: GpuModel) -> Blocks:
    """Whole rows: 32 elements a thread, or 64 where several operands wait for each other in registers."""
    operands = max(1, len(kernel.loads("xr")))
    stored = bool(kernel.stores("xr"))
    if r_block > PERSISTENT or room_for(kernel.r_size) > PERSISTENT:
        if most(kernel.r_size) <= HELD and in_rows_of_vectors(kernel) and _read_as_it_lies(kernel):
            whole = is_multiple(kernel.r_size, 16) and kernel.r_size % 4096 == 0
            counts = not whole or any(isinstance(s, Position) for s in kernel.statements)
            longest = power_of_two(kernel.r_size)  # a batch's block is no longer than a shorter row
            warps = longest // (4096 if counts else 2048)  # 64 registers a thread leave no room for coordinates
            kept_bytes = gpu.registers * 2 * longest // HELD  # in half of a multiprocessor's registers
            if not _read_less_often_in_loops(kernel, kept_bytes):
                return Blocks(1, 16384 if operands == 1 and not counts else 4096, True, warps, kept_bytes=kept_bytes)
        passing = _passes_by(kernel, gpu)
        return Blocks(1, _loop_block(kernel), True, 32, passing=passing)  # two a multiprocessor: L1 has room for rows
    if (r_block * operands > SINGLES and stored and about(kernel.x_size) >= 2 * enough_programs(gpu)
            and not in_rows_of_vectors(kernel) and _waits_for_no_reduction(kernel)):
        return Blocks(1, SINGLES_LOOP, True, 4)
    x_block = max(1, 1024 // r_block)
    if kernel.loads("r") and 2048 <= r_block <= PERSISTENT // 4 and in_rows_of_vectors(kernel):
        x_block = 2  # the weights serve two rows
    row = r_block * (sum(s.out.dtype.itemsize for s in kernel.loads("xr")) or COMPUTED)
    least = block_for(kernel.x_size, max(1, SHORT_ROWS // r_block))
    while (x_block > least and about(kernel.x_size) < x_block * enough_programs(gpu)
           and not (x_block * row <= LEAST_BYTES and 2 * about(kernel.x_size) >= x_block * gpu.multiprocessors)):
        x_block = max(least, x_block // 4)
    if r_block <= MANY_ROWS or not stored:
        while x_block * row < PROGRAM_BYTES and may_double(kernel.x_size, x_block, gpu):
            x_block *= 2
    else:
        moved = about(kernel.r_size) * kernel.bytes_each
        while (x_block * moved < START_BYTES and 2 * x_block * r_block <= MOST_STARTED
               and may_double(kernel.x_size, x_block, gpu)):
            x_block *= 2
    shares = r_block >= SHORT_ROWS and bool(kernel.loads("r")) and operands <= SHARED_OPERANDS
    if shares and _warps_have_rows(kernel, r_block):
        while x_block * r_block < SHARED_ELEMENTS and about(kernel.x_size) >= 16 * x_block * enough_programs(gpu):
            x_block *= 2
        if x_block * r_block == SHARED_ELEMENTS:
            return choose_rows(Blocks(x_block, r_block, False, SHARED_WARPS), kernel, gpu)
    if stored and operands > 1 and x_block > 1 and _lanes_have_rows(kernel, r_block):
        return choose_rows(Blocks(x_block, r_block, False, between(1, x_block * r_block // (32 * EACH_THREAD), 8)),
                           kernel, gpu)
    if stored and _one_warp(kernel, r_block) and about(kernel.x_size) >= 2 * x_block * enough_programs(gpu):
        return choose_rows(Blocks(ONE_WARP // r_block, r_block, False, 1), kernel, gpu)
    if stored and _one_warp_has_odd_rows(kernel, r_block):
        x_alone = ONE_WARP_ODD // r_block
        while x_alone > 1 and not may_double(kernel.x_size, x_alone, gpu):
            x_alone //= 2
        if may_double(kernel.x_size, x_alone, gpu):
            return choose_rows(Blocks(x_alone, r_block, False, 1), kernel, gpu)
    if not stored and _one_warp_reads(kernel, r_block):
        x_alone = ONE_WARP_READS // r_block
        while x_alone > 1 and not may_double(kernel.x_size, x_alone, gpu):
            x_alone //= 2
        if may_double(kernel.x_size, x_alone, gpu):
            return choose_rows(Blocks(x_alone, r_block, False, 1), kernel, gpu)
    warps = 1 if r_block == ONE_WARP and stored else between(1, x_block * r_block // 1024, 8)
    if r_block >= 1024 and not stored and len(kernel.loads("xr")) == 1 and not kernel.loads("r"):
        warps = between(warps, x_block * r_block * kernel.loads("xr")[0].out.dtype.itemsize // (32 * EACH_READ), 8)
    while x_block * r_block * operands > 64 * 32 * warps and warps < 32:
        warps *= 2
    if about(kernel.x_size) <= x_block * enough_programs(gpu):
        vector = VECTOR // min((s.out.dtype.itemsize for s in kernel.loads("xr")), default=4)
        warps = max(warps, min(x_block * r_block // (32 * vector), ALONE_WARPS))
    return choose_rows(Blocks(x_block, r_block, False, warps), kernel, gpu)


def _passes_by(kernel: Kernel, gpu: GpuModel) -> bool:
    """Whether rows of two programs to a multiprocessor, with what is stored of them, take half of the L2 and more."""
    nbytes = sum(s.out.dtype.itemsize for s in kernel.loads("xr"))
    nbytes += sum(s.value.dtype.itemsize for s in kernel.stores("xr"))
    rows = min(about(kernel.x_size), enough_programs(gpu))
    return 2 * rows * nbytes * about(kernel.r_size) > gpu.l2_bytes


def _waits_for_no_reduction(kernel: Kernel) -> bool:
    """Whether nothing that is computed for each element needs what a reduction gives: a loop reads a row once."""
    reduced: set[str] = set()
    for statement in kernel.statements:
        waits = any(value.name in reduced for value in operands_of(statement, kernel.indices))
        out = None if isinstance(statement, Store | Part) else statement.out
        if waits and (isinstance(statement, Reduce) or (statement.vars if isinstance(statement, Store) else
                                                        out.vars if out is not None else "xr") == "xr"):
            return False
        if out is not None and (waits or isinstance(statement, Reduce)):
            reduced.add(out.name)
    return True


def _warps_have_rows(kernel: Kernel, r_block: int) -> bool:
    """Whether the lanes of a warp have all of a row, a vector each, so that its sum needs no other warp."""
    narrowest = min((s.out.dtype.itemsize for s in kernel.loads("xr")), default=4)
    return kernel.space[-1][1] == "r" and not kernel.r_leads and r_block <= 32 * VECTOR // narrowest


def _lanes_have_rows(kernel: Kernel, r_block: int) -> bool:
    """Whether the lanes of a warp have all of a row as they load it at once, so that more warps have other rows. Of two
    operands each thread has eight elements of each then: with 32 of each, loaded one by one, a thread has 224 registers
    (H200: normalize of 99,991 rows of 25 bfloat16 of longer ones, with gradients, 31.9 µs, 16.7 so; softmax of rows of
    120 with gradients 28.7 in one warp, 25.1 in four of twice as many rows)."""
    narrowest = min((s.out.dtype.itemsize for s in kernel.loads("xr")), default=4)
    return (kernel.space[-1][1] == "r" and not kernel.r_leads
            and r_block <= 32 * max(bytes_at_once(kernel, "r") // narrowest, 1))


def _one_warp(kernel: Kernel, r_block: int) -> bool:
    """Whether rows are given to programs of one warp. Of four-byte elements those are rows of two vectors a lane: two
    warps would have half of each, and wait for each other at each sum. Shorter elements take it where much is computed
    of them, as of a cross-entropy with gradients: four warps had the whole program's masks and places in registers."""
    loads = kernel.loads("xr")
    widths = {s.out.dtype.itemsize for s in loads}
    if kernel.loads("r") or kernel.r_leads or len(widths) != 1:
        return False
    return r_block == 2 * 32 * VECTOR // 4 if widths == {4} else (
        widths == {2} and SHORT_ROWS <= r_block <= ONE_WARP // 2 and kernel.weight >= COMPUTED_ALONE)


def _one_warp_reads(kernel: Kernel, r_block: int) -> bool:
    """Whether rows that are only reduced, longer than what a warp's lanes load at once, are given to programs of one
    warp: where rows begin anywhere, each lane has single elements anyway, and warps that share rows each shuffle for
    all of them, and put each reduction together through shared memory (means of 353,392 rows of 169 float16: 446
    instructions of four warps for 16 rows, 621 of one)."""
    loads = kernel.loads("xr")
    return (len(loads) == 1 and not kernel.loads("r") and not kernel.r_leads
            and SHORT_ROWS <= r_block < ONE_WARP_READS and not in_rows_of_vectors(kernel))


def _one_warp_has_odd_rows(kernel: Kernel, r_block: int) -> bool:
    """Whether odd rows of 16 bits, of which little is computed, are read and written by programs of one warp: of four
    warps, each of which has single elements of all rows, each shuffles for all of them."""
    loads = kernel.loads("xr")
    return (len(loads) == 1 and loads[0].out.dtype.itemsize == 2 and not kernel.loads("r") and not kernel.r_leads
            and 2 * SHORT_ROWS <= r_block <= ONE_WARP_ODD // 2 and kernel.weight < COMPUTED_ALONE
            and not in_rows_of_vectors(kernel))


def _read_as_it_lies(kernel: Kernel) -> bool:
    """Whether a total's operands lie in the order of its row. Registers hold blocks that are written out one by one:
    what each element finds at a place of its own (a transpose, parts of a concatenation) is as long sixteen times, and
    was minutes of compiling and kilobytes of a thread in memory."""
    return not kernel.is_total or all(
        [(atom.name, k) for atom, k in s.address.terms] == [("r", 1)] for s in kernel.loads("r"))


def _loop_block(kernel: Kernel) -> int:
    """Elements that a loop over a long row goes on by: eight a thread, or four where these are a vector and the last
    block of eight would be half empty (kl_div of rows of 20,080 float32 is bound by arithmetic, of which that is a
    fifth), or where registers have no room for eight of each value."""
    narrowest = min((s.out.dtype.itemsize for s in kernel.loads("xr")), default=1)
    length = about(kernel.r_size)
    halves = -(-length // 4096)
    values = len(kernel.loads("xr")) + len(kernel.loads("r")) + sum(isinstance(s, Reduce) for s in kernel.statements)
    few = (halves % 2 and halves < FEW_HALVES) or values > EIGHT_OF_EACH
    return 4096 if 4 * narrowest >= VECTOR and few else 8192


def _read_less_often_in_loops(kernel: Kernel, kept_bytes: int) -> bool:
    """Whether registers have no room for any operand of a row (of 32-bit values they never have), and reductions that
    wait for each other share a loop where they keep none: a softmax of 20,000 float32 is read twice, not thrice."""
    narrowest = min((s.out.dtype.itemsize for s in kernel.loads("xr")), default=0)
    shared = bool(sums_of_exponentials(kernel.statements) or sums_of_squares(kernel.statements, kernel.r_size)
                  or with_early_sums(kernel)[0] is not kernel)
    return shared and room_for(kernel.r_size) * narrowest > kept_bytes


def _run_of_rows(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """Blocks of as many whole rows as there are registers for, shared with the programs beside it.

    Rows that a warp has alone are loaded to registers: those that are copied ahead into shared memory come back with
    each row over all warps, whose sums are ten barriers a round (279 µs where registers take 70; `EACH_THREAD`).
    """
    assert kernel.splits is not None
    r_block = power_of_two(kernel.r_size)
    beside = max(1, kernel.splits.count // gpu.multiprocessors)
    x_block = max(1, 8192 // (r_block * beside))
    if _warps_have_rows(kernel, r_block):
        return Blocks(x_block, r_block, False, between(2, x_block * r_block // (32 * EACH_THREAD), 16))
    warps = between(2, x_block * r_block // 1024, 16) * (2 if kernel.weight > HEAVY else 1)
    if x_block > 1 and sum(s.out.dtype.itemsize for s in kernel.loads("xr")) > 4:
        x_block, warps = x_block // 2, max(4, warps)
    return Blocks(x_block, r_block, False, warps, num_stages=pipeline_stages(kernel, x_block * r_block, beside, gpu))
