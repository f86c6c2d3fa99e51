"""How much of a loop's iteration space one program takes.

Sizes that lead (the batch) come in few classes, so that a second one runs kernels that are there: a block depends on
the power of eight or so that such a size lies below, not on the size. Inner sizes are part of a kernel anyway, and
their blocks fit exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Part, Position, Random, Store
from genesis.codegen.cuda.online_reductions import sums_of_exponentials, sums_of_squares
from genesis.codegen.cuda.row_choice import choose_rows
from genesis.ir.ops.splits import SPREADS, split_length
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import SymInt, as_written, hint, literal_value, most
from genesis.passes.fusion.index_map import Atom
from genesis.passes.graph.split_reductions import SHORT_RUN, whole_columns

PERSISTENT: Final = 16384
"""Maximum elements of a row that is one block, in registers from load to store."""

HELD: Final = 65536
"""Maximum elements of a row that registers hold in its dtype in memory and convert again for each use."""

FEW_HALVES: Final = 10
"""Blocks of four elements a thread below which half a block of eight is a tenth of a row or more."""

TILE: Final = 8192
"""Maximum elements of a block of columns that needs no loop over r."""

EACH: Final = 2
"""Programs per multiprocessor that keep a GPU busy."""

BATCH_BLOCKS: Final = (1, 16, 128, 256, 1024, 2048, 4096, 8192)
"""Block sizes for the batch: few, so that most batch sizes share their kernels."""

SHORT_ROWS: Final = 64
"""Minimum elements of a block of short rows, two a lane of a warp: with fewer, lanes of more programs idle."""

MANY_ROWS: Final = 256
"""Elements of a block of a row up to which a program takes as many rows as make `PROGRAM_BYTES`, also where it stores
them: longer ones are many bytes anyway, and wait in registers."""

WIDE: Final = 4
"""How many times as large as the least size of a class a block for all of them may be, without guards: a class of one
size reaches over a factor of two, that of an area over four."""

PIPELINE_SHARE: Final = (40, 57)
"""(numerator, denominator): part of a multiprocessor's shared memory for pipelined loads, 160 of an H200's 228 KiB."""

PROGRAM_BYTES: Final = 8192
"""Minimum bytes that a program of a large loop reads and writes: fewer do not pay for starting it."""

VECTOR: Final = 16
"""Bytes that a thread loads at once at most."""

LINE: Final = 128
"""Bytes of a row that a program of whole columns reads. Wider blocks leave too few programs (H200: log_softmax over
3000 rows of 20000 takes 212 µs in blocks of 32 × 128, 260 µs in blocks of 64 × 256)."""

SINGLES: Final = 2048
"""Elements of a block whose columns are not read in vectors: its loads wait in registers, 16 a thread, not in shared
memory (H200, rows of 4097: 312 µs with 2048, 2290 µs with 4096; whole columns 304 µs with half as many, 374 µs with
as many, 1528 µs with eight times as many). Where a multiprocessor has one program, that has four times as many warps
and elements: 8 KB on their way would be all that it waits for."""

FEWEST_TURNED: Final = 16
"""Minimum neighbours that lie in other rows."""

WIDEST: Final = 64
"""Columns of a program of long ones."""

SHORT_COLUMNS: Final = (2, 4, 8)
"""Blocks of columns that are shorter than `size_class.SMALLEST_RANGE`, where there are many: a plan for each."""

FEWEST_EACH: Final = 512
"""Elements up to which a program of short columns takes more of them, while there are enough programs."""

SHORT_RUN_PIECE: Final = 512
"""Minimum elements of a program that has all neighbouring columns: fewer leave lanes idle."""

SPREAD: Final = 2048
"""Elements of a block that sums squares or exponentials around a running number: each has two accumulators."""

LOADS: Final = 32
"""Loads of windows that a thread waits for at once: they take as many registers."""

MOST_WARPS: Final = 16
"""Maximum warps of a program that reads windows."""

ALONE_WARPS: Final = 16
"""Most warps of a program whose threads have one vector each: where a multiprocessor has two programs at most, only a
program's own warps hide what each waits for (a row of 512 parts of a batch norm is 1,125 instructions of one warp,
which took 8 µs on an H200, and 465 of four)."""

ALONE_EACH: Final = 8
"""Elements of a block of columns that each thread of such a program has at least."""

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


def room_for(n: int) -> int:
    """The largest that a size can be in a kernel, which names some sizes by their numbers."""
    return most(as_written(n))


def about(n: int) -> int:
    """A size for weighing costs; of one that the kernel names by its number, that."""
    number = literal_value(n)
    return hint(n) if number is None else number


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
    return _batch_block(room_for(n), largest)


def _batch_block(room: int, largest: int) -> int:
    return min(next((block for block in BATCH_BLOCKS if block >= room), largest), largest)


def _between(low: int, n: int, high: int) -> int:
    return max(low, min(n, high))


def choose_blocks(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """Block sizes for a kernel. Which coordinate is fastest in memory decides the block's shape."""
    if not kernel.has_r:
        draws = any(isinstance(s, Random) for s in kernel.statements)
        blocks = flat_blocks(about(kernel.x_size), kernel.bytes_each, gpu, draws)
        return windows(blocks, kernel) if kernel.folds else blocks
    if kernel.splits is not None and kernel.splits.over == "x":
        return _run_of_rows(kernel, gpu)
    columns = kernel.x_is_fastest
    if kernel.splits is not None:
        elements = min(2048, kernel.splits.multiple)
        return _split_of_columns(kernel, gpu) if columns else Blocks(1, elements, True, 4, num_stages=3)
    if columns or turned(kernel):
        return _columns(kernel, _column_block(kernel, gpu), gpu)
    of_batch = kernel.r_leads and literal_value(kernel.r_size) is None
    # Idle lanes of a total cost nothing, where the guard that `block_of` may set costs a kernel.
    r_block = power_of_two(kernel.r_size) if kernel.is_total else block_of(kernel.r_size)
    if of_batch:
        r_block = _batch_block(r_block, PERSISTENT)
    return _rows(kernel, r_block, gpu)


def _num_stages(kernel: Kernel, elements: int, programs: int, gpu: GpuModel) -> int:
    """Pipeline stages for blocks of so many elements, where a multiprocessor has so many programs.

    Single elements of columns are not pipelined: Triton lays a block in shared memory row by row where it knows of no
    vector, so that 32 lanes meet in one bank.
    """
    of_columns = kernel.r_leads or kernel.space[-1][1] == "x" or turned(kernel)
    if of_columns and not all(in_vectors(load, kernel) for load in kernel.loads("xr")):
        return 1
    nbytes = elements * sum(s.out.dtype.itemsize for s in kernel.loads("xr"))
    part, of = PIPELINE_SHARE
    room = min(gpu.shared_memory * part // of // programs, gpu.block_shared_memory)
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


def in_rows_of_vectors(kernel: Kernel) -> bool:
    """Whether rows begin at multiples of what a thread loads at once. A value that is loaded alone takes a register
    alone, so that of other rows registers hold half as much (H200, with gradients: softmax of 1328 rows of 50257
    bfloat16 1272 µs where they are held, 368 µs in loops)."""
    return all(is_multiple(kernel.r_size * load.out.dtype.itemsize, VECTOR) for load in kernel.loads("xr"))


def flat_block(x_size: int, nbytes: int, gpu: GpuModel) -> int:
    """Elements of a program of a large loop: a multiprocessor starts one about every 160 ns, in which it could move
    5 KB, so a program that moves less than `PROGRAM_BYTES` is not worth starting.

    Args:
        nbytes: read and written for each element.
    """
    block = _between(1024, power_of_two(-(-PROGRAM_BYTES // max(nbytes, 1))), 8192)
    return block if x_size >= 8 * block * enough_programs(gpu) else 1024


def enough_programs(gpu: GpuModel) -> int:
    """Programs that keep the GPU busy."""
    return EACH * gpu.multiprocessors


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
    warps = _between(max(blocks.num_warps, 4), x * r * loads // (32 * LOADS), MOST_WARPS)
    return replace(blocks, x=x, r=r, num_warps=power_of_two(warps))


def _rows(kernel: Kernel, r_block: int, gpu: GpuModel) -> Blocks:
    """Whole rows: 32 elements a thread, or 64 where several operands wait for each other in registers."""
    operands = max(1, len(kernel.loads("xr")))
    if r_block > PERSISTENT or room_for(kernel.r_size) > PERSISTENT:
        if most(kernel.r_size) <= HELD and in_rows_of_vectors(kernel):
            whole = is_multiple(kernel.r_size, 16) and kernel.r_size % 4096 == 0
            counts = not whole or any(isinstance(s, Position) for s in kernel.statements)
            longest = power_of_two(kernel.r_size)  # a batch's block is no longer than a shorter row
            warps = longest // (4096 if counts else 2048)  # 64 registers a thread leave no room for coordinates
            kept_bytes = gpu.registers * 2 * longest // HELD  # in half of a multiprocessor's registers
            if not _read_less_often_in_loops(kernel, kept_bytes):
                return Blocks(1, 16384 if operands == 1 and not counts else 4096, True, warps, kept_bytes=kept_bytes)
        return Blocks(1, _loop_block(kernel), True, 32)  # two programs a multiprocessor: L1 has room for their rows
    x_block = max(1, 1024 // r_block)
    if kernel.loads("r") and 2048 <= r_block <= PERSISTENT // 4:
        x_block = 2  # the weights serve two rows
    least = block_for(kernel.x_size, max(1, SHORT_ROWS // r_block))
    while x_block > least and about(kernel.x_size) < x_block * enough_programs(gpu):
        x_block = max(least, x_block // 4)
    if r_block <= MANY_ROWS or not any(isinstance(s, Store) and s.vars == "xr" for s in kernel.statements):
        row = r_block * sum(s.out.dtype.itemsize for s in kernel.loads("xr"))
        while x_block * row < PROGRAM_BYTES and about(kernel.x_size) >= 16 * x_block * enough_programs(gpu):
            x_block *= 2
    warps = _between(1, x_block * r_block // 1024, 8)
    while x_block * r_block * operands > 64 * 32 * warps and warps < 32:
        warps *= 2
    if about(kernel.x_size) <= x_block * enough_programs(gpu):
        vector = VECTOR // min((s.out.dtype.itemsize for s in kernel.loads("xr")), default=4)
        warps = max(warps, min(x_block * r_block // (32 * vector), ALONE_WARPS))
    return choose_rows(Blocks(x_block, r_block, False, warps), kernel, gpu)


def _loop_block(kernel: Kernel) -> int:
    """Elements that a loop over a long row goes on by: eight a thread, or four where these are a vector and the last
    block of eight would be half empty (kl_div of rows of 20,080 float32 is bound by arithmetic, of which that is a
    fifth)."""
    narrowest = min((s.out.dtype.itemsize for s in kernel.loads("xr")), default=1)
    length = about(kernel.r_size)
    halves = -(-length // 4096)
    return 4096 if 4 * narrowest >= VECTOR and halves % 2 and halves < FEW_HALVES else 8192


def _read_less_often_in_loops(kernel: Kernel, kept_bytes: int) -> bool:
    """Whether registers have no room for any operand of a row (of 32-bit values they never have), and reductions that
    wait for each other share a loop where they keep none: a softmax of 20,000 float32 is read twice, not thrice."""
    narrowest = min((s.out.dtype.itemsize for s in kernel.loads("xr")), default=0)
    shared = sums_of_exponentials(kernel.statements) or sums_of_squares(kernel.statements, kernel.r_size)
    return bool(shared) and room_for(kernel.r_size) * narrowest > kept_bytes


def _column_block(kernel: Kernel, gpu: GpuModel) -> int:
    """A block for all elements of a column, where that is one block."""
    if not kernel.r_leads:
        return power_of_two(kernel.r_size)
    block = batch_block(kernel.r_size, PERSISTENT)
    if block != BATCH_BLOCKS[1] or about(kernel.x_size) < 64 * enough_programs(gpu):
        return block
    return next((short for short in SHORT_COLUMNS if kernel.r_size <= short), block)


def _columns(kernel: Kernel, r_block: int, gpu: GpuModel) -> Blocks:
    """All rows of a few columns: as wide as a line of memory, or narrower where that leaves programs idle."""
    short = None if turned(kernel) else _short_runs(kernel, r_block, gpu)
    if short is not None:
        return short
    x_size = about(kernel.x_size)
    x_block = _between(1, power_of_two(x_size), WIDEST)
    if x_size >= whole_columns(gpu) and about(kernel.r_size) >= 2048:
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
        warps = _between(1, x_block * r_block // 1024, 8)
        if programs <= enough_programs(gpu):
            warps = max(warps, min(x_block * r_block // (32 * ALONE_EACH), ALONE_WARPS))
        return Blocks(x_block, r_block, False, warps)
    num_stages = _num_stages(kernel, 4096, 2, gpu)
    if num_stages == 1:
        return _of_singles(x_block, programs, gpu)
    return Blocks(x_block, 4096 // x_block, True, 8, num_stages=num_stages)


def _of_singles(x_block: int, programs: int, gpu: GpuModel) -> Blocks:
    """Blocks of columns that are not read in vectors, with more warps where a multiprocessor has few programs."""
    beside = _between(1, ALONE_WARPS // 4 * gpu.multiprocessors // max(programs, 1), ALONE_WARPS // 4)
    times = 1 << beside.bit_length() - 1
    return Blocks(x_block, times * SINGLES // x_block, True, 4 * times)


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
        return Blocks(x_block, r_block, False, _between(1, x_block * r_block // 1024, 8), run=run)
    if not all(in_vectors(load, kernel) for load in kernel.loads("xr")):
        return replace(_of_singles(x_block, about(kernel.x_size) // run, gpu), run=run)
    return Blocks(x_block, 4096 // x_block, True, 8, num_stages=_num_stages(kernel, 4096, 2, gpu), run=run)


def _whole_columns(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """Long columns of which there are enough for all programs: a line of memory wide."""
    x_block = LINE // max((s.out.dtype.itemsize for s in kernel.loads("xr")), default=4)
    if not all(in_vectors(load, kernel) for load in kernel.loads("xr")):
        return Blocks(x_block, SINGLES // 2 // x_block, True, 4)
    elements = 4096 if any(isinstance(s, Store) and s.vars == "xr" for s in kernel.statements) else 256 * x_block
    return Blocks(x_block, elements // x_block, True, 8, num_stages=_num_stages(kernel, elements, 1, gpu))


def _split_of_columns(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """Square tiles where each element is written, too; else as wide as eight programs for each split leave them."""
    assert kernel.splits is not None
    columns = about(kernel.x_size)
    stores = any(isinstance(s, Store) for s in kernel.statements)
    singles = not all(in_vectors(load, kernel) for load in kernel.loads("xr"))
    if kernel.space[0][1] != "r" or stores or singles:
        x_block = min(64, power_of_two(columns))
    else:
        x_block = _between(64, power_of_two(columns // 8), 1024)
        while columns % x_block and x_block > 64:
            x_block //= 2
    elements = 1024 if kernel.weight > HEAVY // 2 else 2048 if len(kernel.loads("xr")) > 3 else 4096
    if singles and (stores or len(kernel.loads("xr")) > 1):
        elements = min(elements, SINGLES)
    if any(isinstance(s, Part) and s.op in SPREADS for s in kernel.statements):
        elements = min(elements, SPREAD)
    r_block = max(1, elements // x_block)
    if not kernel.r_leads:  # splits of few columns are short
        r_block = min(r_block, power_of_two(split_length(about(kernel.r_size), kernel.splits.count, 1)))
        elements = x_block * r_block
    warps = 8 if singles and elements == 4096 else 4
    return Blocks(x_block, r_block, True, warps, num_stages=_num_stages(kernel, elements, 2, gpu))


def _run_of_rows(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """Blocks of as many whole rows as there are registers for, shared with the programs beside it."""
    assert kernel.splits is not None
    r_block = power_of_two(kernel.r_size)
    beside = max(1, kernel.splits.count // gpu.multiprocessors)
    x_block = max(1, 8192 // (r_block * beside))
    warps = _between(2, x_block * r_block // 1024, 16) * (2 if kernel.weight > HEAVY else 1)
    if x_block > 1 and sum(s.out.dtype.itemsize for s in kernel.loads("xr")) > 4:
        x_block, warps = x_block // 2, max(4, warps)
    return Blocks(x_block, r_block, False, warps, num_stages=_num_stages(kernel, x_block * r_block, beside, gpu))
