"""Blocks of reductions whose neighbours in memory belong to different results: a program has all rows of a few columns,
or a part of many columns' rows where these are split.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.block_sizes import (
    ALONE_WARPS,
    BATCH_BLOCKS,
    HEAVY,
    PERSISTENT,
    PROGRAM_BYTES,
    VECTOR,
    Blocks,
    about,
    batch_block,
    between,
    enough_programs,
    middling,
    power_of_two,
)
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Part, Store
from genesis.ir.ops.splits import SPREADS, split_length
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import literal_value
from genesis.passes.fusion.index_map import Atom
from genesis.passes.graph.split_reductions import SHORT_RUN, block_of_columns, whole_columns

TILE: Final = 8192
"""Maximum elements of a block of columns that needs no loop over r."""

FEWEST_SPLIT: Final = 1024
"""Minimum elements of a block of a split of leading rows: eight a thread. Splits of 13 rows had blocks of 32."""

PIPELINE_SHARE: Final = (40, 57)
"""(numerator, denominator): part of a multiprocessor's shared memory for pipelined loads, 160 of an H200's 228 KiB."""

ALONE_TILE: Final = 16384
"""The same where a multiprocessor has a program or two, of `ALONE_WARPS`, each of which waits for memory once: 32
elements a thread (H200, the sum over 1024 of bf16[21, 1024, 71] in four rounds of 94 programs of eight warps 7.7 µs, of
which memory is 0.7)."""

LINE: Final = 128
"""Bytes of a row that a program of whole columns reads. Wider blocks leave too few programs (H200: log_softmax over
3000 rows of 20000 takes 212 µs in blocks of 32 × 128, 260 µs in blocks of 64 × 256)."""

ACROSS: Final = 1024
"""Elements of a block of columns of which some operand lies along the rows: it is brought to where the others are
through shared memory, and each element has a register on either side (a standardization's gradient of f32[89, 17791]
as [1, 0] had 236 registers a thread with 2048, and took 57 µs of an H200; 106 so)."""

MOST_USED: Final = (3, 4)
"""(numerator, denominator): multiprocessors that have to have a program of whole columns, each with all of its warps
and two rounds under way (H200, squares of f16[7408, 6600] in 413 programs of 16 columns 56 µs, in 104 of 64 27.7, 25 by
its bytes; eager 38)."""

SINGLES: Final = 2048
"""Elements of a block whose columns are not read in vectors: its loads wait in registers, 16 a thread, not in shared
memory (H200, rows of 4097: 312 µs with 2048, 2290 µs with 4096; whole columns 304 µs with half as many, 374 µs with
as many, 1528 µs with eight times as many). Where a multiprocessor has one program, that has four times as many warps
and elements: 8 KB on their way would be all that it waits for."""

LONG_SINGLES: Final = 1024
"""Elements of columns from which on those that are read one after another, and not written, wait for memory alone."""

SINGLES_WARPS: Final = 64
"""Warps of a multiprocessor that read such columns (H200: the least of 3593 rows of 32,704 bfloat16 166 µs in 511
programs of four warps, 129 of eight, 117 in 1022 of eight; of 1700 rows of 8301 float16 39.7 in 519 programs of four,
25.8 in 260 of sixteen)."""

STORED_WARPS: Final = 32
"""Warps of a multiprocessor that read and write such columns, for which registers have room at a time (softmax over 0
of bf16[1589, 1000, 9] of rows + 64 with gradients in 141 programs of four warps: 260 µs of an H200, torch.compile
148)."""

SINGLE_COLUMNS: Final = 32
"""Columns of such a program."""

FEWEST_TURNED: Final = 16
"""Minimum elements side by side in memory, each of another row, that make columns of rows."""

WIDEST: Final = 64
"""Maximum columns of a program whose columns are too long for one block."""

SHORT_COLUMNS: Final = (2, 4, 8, 16, 32, 64)
"""Blocks of short columns of a batch, where there are many: a plan for each. Softmax over 32 of f16[32, 1330, 269] with
gradients had blocks of 128, and took 137 µs (H200; torch.compile 40)."""

FEWEST_EACH: Final = 512
"""Elements up to which a program of short columns takes more columns, while there are enough programs."""

SHORT_RUN_PIECE: Final = 512
"""Minimum elements of a program that has all neighbouring columns: fewer leave lanes idle."""

SPREAD: Final = 2048
"""Elements of a block that sums squares or exponentials around a running number: each has two accumulators."""

THREAD_OF_COLUMNS: Final = 64
"""Maximum elements of a thread that has short columns by itself (H200, log_softmax over 7 of f16[24, 90, 7, 16, 54]:
where two warps shared each column, 37 µs, 1.4 TB/s)."""

ALONE_EACH: Final = 8
"""Minimum elements of a block of columns for each thread, where a multiprocessor has two programs at most."""


def pipeline_stages(kernel: Kernel, elements: int, programs: int, gpu: GpuModel) -> int:
    """Pipeline stages for blocks of so many elements, where a multiprocessor has so many programs.

    Single elements of columns are not pipelined: Triton lays a block in shared memory row by row where it knows of no
    vector, so that 32 lanes meet in one bank.
    """
    of_columns = kernel.r_leads or kernel.space[-1][1] == "x" or turned(kernel)
    if of_columns and not all(in_vectors(load, kernel) for load in kernel.loads("xr")):
        return 1
    return stages_with_room(elements * sum(s.out.dtype.itemsize for s in kernel.loads("xr")), programs, gpu)


def stages_with_room(nbytes: int, programs: int, gpu: GpuModel, beside: int = 0) -> int:
    """Pipeline stages for rounds that load so many bytes, where a multiprocessor has so many programs: all rounds but
    one wait in shared memory, beside so many bytes that a program wants for something else."""
    part, of = PIPELINE_SHARE
    room = min(gpu.shared_memory * part // of // programs, gpu.block_shared_memory - beside)
    return 3 if 2 * nbytes <= room else 2 if nbytes <= room else 1


def in_vectors(load: Load, kernel: Kernel) -> bool:
    """Whether a load of columns is of whole vectors: each row begins at a multiple of them, and so do blocks of x."""
    elements = VECTOR // load.out.dtype.itemsize

    def whole(size: int) -> bool:
        number = literal_value(size)
        return is_multiple(size, elements) if number is None else number % elements == 0

    along = [atom for atom, k in load.address.terms if k == 1]
    if len(along) != 1 or not whole(kernel.x_size) or not whole(load.address.constant):
        return False
    runs = along[0].name == "x" if along[0].kind == "var" else along[0].kind == "mod" and whole(along[0].number)
    return runs and all(k == 1 or whole(k) for _, k in load.address.terms)


def _column_block(kernel: Kernel, gpu: GpuModel) -> int:
    """A block for all elements of a column, where that is one block."""
    if not kernel.r_leads:
        return power_of_two(kernel.r_size)
    block = batch_block(kernel.r_size, PERSISTENT)
    if block > BATCH_BLOCKS[2] or about(kernel.x_size) < 64 * enough_programs(gpu):
        return block
    return next((short for short in SHORT_COLUMNS if kernel.r_size <= short), block)


def column_blocks(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """All rows of a few columns: as wide as a line of memory, or narrower where that leaves programs idle."""
    r_block = _column_block(kernel, gpu)
    short = None if turned(kernel) else _short_runs(kernel, r_block, gpu)
    if short is not None:
        return short
    x_size = about(kernel.x_size)
    x_block = between(1, power_of_two(x_size), WIDEST)
    if _are_long_singles(kernel, gpu):
        return _long_singles(-(-x_size // SINGLE_COLUMNS), gpu)
    if about(kernel.r_size) >= 2048 and (x_size >= whole_columns(gpu) or _fill_lines(kernel, gpu)):
        return _whole_columns(kernel, gpu)
    while x_block > 16 and x_size < x_block * enough_programs(gpu):
        x_block //= 2
    column = max(about(kernel.r_size), 1) * sum(s.out.dtype.itemsize for s in kernel.loads("xr"))
    while (2 * x_block * r_block <= TILE and x_block * column < PROGRAM_BYTES
           and x_size >= 16 * x_block * enough_programs(gpu)):
        x_block *= 2
    while x_block * r_block < FEWEST_EACH and x_size >= 2 * x_block * enough_programs(gpu):
        x_block *= 2
    programs = -(-x_size // x_block)
    if x_block * r_block <= TILE:
        warps = between(1, x_block * r_block // 1024, 8)
        if programs <= enough_programs(gpu):
            warps = max(warps, min(x_block * r_block // (32 * ALONE_EACH), ALONE_WARPS))
        else:
            warps = min(warps, _warps_side_by_side(kernel, x_block, r_block))
        return Blocks(x_block, r_block, False, warps)
    num_stages = pipeline_stages(kernel, 4096, 2, gpu)
    if num_stages == 1:
        at_once = x_block * r_block <= ALONE_TILE and _reads_one(kernel)
        few = 2 * middling(kernel.x_size) <= 3 * x_block * gpu.multiprocessors
        return Blocks(x_block, r_block, False, ALONE_WARPS) if at_once and few else _of_singles(x_block, programs, gpu)
    return Blocks(x_block, 4096 // x_block, True, 8, num_stages=num_stages)


def _reads_one(kernel: Kernel) -> bool:
    """Whether a loop of columns reads one operand, and writes none: all of its registers are that operand's."""
    return len(kernel.loads("xr")) == 1 and not kernel.stores("xr")


def _warps_side_by_side(kernel: Kernel, x_block: int, r_block: int) -> int:
    """Warps of which each thread has whole columns, where these are short and read in vectors: others exchange what
    they have of each column through shared memory, whose banks they meet in."""
    loads = kernel.loads("xr")
    elements = max((VECTOR // load.out.dtype.itemsize for load in loads), default=1)
    if r_block * elements > THREAD_OF_COLUMNS or not all(in_vectors(load, kernel) for load in loads):
        return ALONE_WARPS
    return max(x_block // (32 * elements), 1)


def _of_singles(x_block: int, programs: int, gpu: GpuModel) -> Blocks:
    """Blocks of columns that are not read in vectors, with more warps where a multiprocessor has few programs."""
    times = _times(ALONE_WARPS // 4, programs, gpu)
    return Blocks(x_block, times * SINGLES // x_block, True, 4 * times)


def _times(groups: int, programs: int, gpu: GpuModel) -> int:
    """How many groups of warps a program has so that so many are on a multiprocessor, at most four."""
    beside = between(1, groups * gpu.multiprocessors // max(programs, 1), ALONE_WARPS // 4)
    return 1 << beside.bit_length() - 1


def turned(kernel: Kernel) -> bool:
    """Whether rows lie across memory: neighbours of what some load reads of them are in other rows."""
    rows = bool(kernel.space) and kernel.space[-1][1] == "r" and about(kernel.r_size) > 1
    return rows and about(kernel.x_size) >= FEWEST_TURNED and any(
        any(k == 1 and _along_x(atom) for atom, k in load.address.terms)
        and not any(k == 1 and atom.name == "r" for atom, k in load.address.terms) for load in kernel.loads("xr"))


def _along_x(atom: Atom) -> bool:
    """Whether it is x, or what x is in runs that are long enough."""
    if atom.kind == "var":
        return atom.name == "x"
    run = atom.inner if atom.kind == "mod" and about(atom.number) >= FEWEST_TURNED else None
    return run is not None and run.is_atom and _along_x(run.terms[0][0])


def _short_runs(kernel: Kernel, r_block: int, gpu: GpuModel) -> Blocks | None:
    """A program for the few columns between neighbours along r, so that its lanes go through them and on along r: all
    that it reads is one piece of memory. None where there are many columns, or too few elements for a program."""
    run = literal_value(kernel.space[-1][0])
    if kernel.r_leads or run is None or not 1 < run <= SHORT_RUN or run * about(kernel.r_size) < SHORT_RUN_PIECE:
        return None
    x_block = power_of_two(run)
    if x_block * r_block <= TILE:
        return Blocks(x_block, r_block, False, between(1, x_block * r_block // 1024, 8), run=run)
    if not all(in_vectors(load, kernel) for load in kernel.loads("xr")):
        return replace(_of_singles(x_block, about(kernel.x_size) // run, gpu), run=run)
    return Blocks(x_block, 4096 // x_block, True, 8, num_stages=pipeline_stages(kernel, 4096, 2, gpu), run=run)


def _are_long_singles(kernel: Kernel, gpu: GpuModel) -> bool:
    """Whether columns are long, read one element after another and not written, and enough for all multiprocessors."""
    return (about(kernel.r_size) >= LONG_SINGLES and about(kernel.x_size) >= SINGLE_COLUMNS * gpu.multiprocessors
            and not kernel.stores("xr") and not all(in_vectors(load, kernel) for load in kernel.loads("xr")))


def _long_singles(programs: int, gpu: GpuModel, warps: int = SINGLES_WARPS) -> Blocks:
    """Blocks of such columns: as many warps, of a multiprocessor, as wait for memory at once."""
    times = _times(warps // 4, programs, gpu)
    return Blocks(SINGLE_COLUMNS, times * SINGLES // 2 // SINGLE_COLUMNS, True, 4 * times)


def _fill_lines(kernel: Kernel, gpu: GpuModel) -> bool:
    """Whether columns of 16 bits that are only read are enough for three quarters of the multiprocessors in blocks of
    half a line. Sixteen of them are a sector of each row, and the memory brings two."""
    widths = {s.out.dtype.itemsize for s in kernel.loads("xr")}
    vectors = all(in_vectors(load, kernel) for load in kernel.loads("xr"))
    return (widths == {2} and vectors and not kernel.stores("xr")
            and about(kernel.x_size) * 2 >= LINE // 2 * MOST_USED[0] * gpu.multiprocessors // MOST_USED[1])


def _whole_columns(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """Long columns of which there are enough for all programs: a line of memory wide, or half of one where that leaves
    too many multiprocessors without a program."""
    itemsize = max((s.out.dtype.itemsize for s in kernel.loads("xr")), default=4)
    part, of = MOST_USED
    x_block = LINE // itemsize
    if about(kernel.x_size) < x_block * gpu.multiprocessors * part // of:
        x_block //= 2
    if not all(in_vectors(load, kernel) for load in kernel.loads("xr")):
        if about(kernel.x_size) < x_block * enough_programs(gpu):
            return _long_singles(-(-about(kernel.x_size) // SINGLE_COLUMNS), gpu, STORED_WARPS)
        return Blocks(x_block, SINGLES // 2 // x_block, True, 4)
    elements = 4096 if kernel.stores("xr") else 256 * x_block
    warps = 8 if about(kernel.x_size) >= whole_columns(gpu) else ALONE_WARPS
    return Blocks(x_block, elements // x_block, True, warps, num_stages=pipeline_stages(kernel, elements, 1, gpu))


def split_column_blocks(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """Square tiles where each element is written, too; else blocks that are wide (`block_of_columns`)."""
    assert kernel.splits is not None
    columns = about(kernel.x_size)
    stores = any(isinstance(s, Store) for s in kernel.statements)
    singles = not all(in_vectors(load, kernel) for load in kernel.loads("xr"))
    if kernel.space[0][1] != "r" or stores or singles:
        x_block = min(64, power_of_two(columns))
        few = x_block * enough_programs(gpu) // kernel.splits.count
        while turned(kernel) and x_block > FEWEST_TURNED and columns < few:
            x_block, few = x_block // 2, few // 2
    else:
        x_block = block_of_columns(columns)
    elements = 1024 if kernel.weight > HEAVY // 2 else 2048 if len(kernel.loads("xr")) > 3 else 4096
    if singles and (stores or len(kernel.loads("xr")) > 1):
        elements = min(elements, SINGLES)
    if any(k == 1 and str(atom.text) == "r" for load in kernel.loads("xr") for atom, k in load.address.terms):
        elements = min(elements, ACROSS)
    if any(isinstance(s, Part) and s.op in SPREADS for s in kernel.statements):
        elements = min(elements, SPREAD)
    shortest = 1 if not kernel.r_leads else max(1, FEWEST_SPLIT // x_block)
    split = split_length(about(kernel.r_size), kernel.splits.count, 1)
    r_block = min(max(1, elements // x_block), max(power_of_two(split), shortest))  # splits of few columns are short
    elements = x_block * r_block
    warps = 8 if singles and elements == 4096 else 4
    return Blocks(x_block, r_block, True, warps, num_stages=pipeline_stages(kernel, elements, 2, gpu))
