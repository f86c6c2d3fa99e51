"""Short rows at odd places: each thread has a whole row, and blocks of rows go through shared memory as they lie.

Rows of 51 16-bit values begin at multiples of two bytes, so that lanes along a row load one element each, a third of
them idle, and every reduction is six rounds of shuffles. Here lanes lie across the rows: blocks are [RBLOCK, XBLOCK], a
thread has all elements of a row (of longer ones a quarter), and a reduction is arithmetic on its registers. A program's
rows are one piece of memory, which is copied to shared memory and back in vectors:

    memory ── 16 bytes a thread ──▶ shared ── an element at (x, r) ──▶ registers        and back the same way

Lanes are a row apart in shared memory: two of them at most meet in one bank where a row is no multiple of 16 bytes.
The last program's block may be no multiple of a vector, and is copied element by element.
"""

from __future__ import annotations

from math import prod
from typing import Final

from genesis.codegen.cuda.block_sizes import PROGRAM_BYTES, VECTOR, Blocks, about, enough_programs, power_of_two
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Random, Reduce, Store
from genesis.codegen.cuda.row_edges import plain
from genesis.codegen.cuda.shared_rows import RESERVED
from genesis.ir.sym_int import literal_value
from genesis.passes.fusion.loop_reads import coordinates

SHORTEST: Final = 5
"""Minimum elements of a row."""

MOST_COLUMNS: Final = 32
"""Most rows side by side whose elements lanes get from shared memory: of more, lanes along them read whole sectors."""

LONGEST: Final = 128
"""Maximum elements of a row: of longer ones a shuffle serves many elements."""

ALONE: Final = 64
"""Maximum elements of a row that one thread has, in as many registers, and half as many as of all operands together.
Other rows are shared by four, in as many warps: by two, norms with weights took 150 to 250 registers."""

MOST_ROWS, FEWEST_ROWS = 128, 32
"""Rows of a program. Where rows are many and a few bytes each, threads have several."""

MOST_ELEMENTS: Final = 128 * ALONE
"""Maximum elements of all operands of a program with several rows a thread, which has no more than of one long row."""

ROOM: Final = 16 << 10
"""Bytes of shared memory of a program: a dozen programs on a multiprocessor of an H200."""

PER_REDUCTION, PER_ACCESS = 20, 5
"""Instructions of a warp for 32 elements of a block whose lanes lie along rows, for each reduction, load and store:
machine code of softmax, log_softmax, sums and their like, rows of 5 to 127 elements, has 14 to 71."""

ISSUED, MOVED = 4, 18
"""Instructions, and bytes from or to memory, of a multiprocessor in a cycle (H200: 4.2 TB/s at 1.755 GHz)."""

LEAST: Final = 0.75
"""Time of the instructions, of memory's, from which on fewer instructions are worth it: one does not quite hide the
other."""


def rows_across(kernel: Kernel, gpu: GpuModel) -> Blocks | None:
    """The blocks of a kernel of short rows whose lanes lie across them; None where lanes along rows are better."""
    length = literal_value(kernel.r_size) if kernel.has_r and not kernel.r_leads and kernel.splits is None else None
    beside = columns_of(kernel)
    if length is None or not beside or not (SHORTEST if beside == 1 else 2) <= length <= LONGEST:
        return None
    dtypes = {argument.name: argument.node.dtype for argument in kernel.arguments}
    moved: list[Load | Store] = [*kernel.loads("xr"), *kernel.stores("xr")]
    widths = [dtypes[s.argument].itemsize for s in moved]
    at_odd_places = all(width in (2, 4) and length * beside * width % VECTOR for width in widths) or (
        beside > 1 and all(width in (2, 4) and beside * width % VECTOR for width in widths))
    shared = all(s.out.dtype.itemsize in (2, 4) and _along_r(s) for s in kernel.loads("r"))
    draws = any(isinstance(s, Random) for s in kernel.statements)
    if draws or not (kernel.loads("xr") and at_odd_places and shared and all(_as_it_lies(s, kernel) for s in moved)):
        return None
    reductions = sum(isinstance(s, Reduce) for s in kernel.statements)
    instructions = (PER_REDUCTION * reductions + PER_ACCESS * len(widths)) * power_of_two(length) / length
    if instructions / ISSUED < LEAST * 32 * sum(widths) / MOVED:
        return None
    return _blocks(kernel, length, widths, gpu)


def columns_of(kernel: Kernel) -> int:
    """How many rows lie side by side in memory, an element of each after the other: 1 where each lies by itself, 0
    where it is no such kernel, or so many that lanes along them read whole sectors."""
    kinds = [kind for _, kind in kernel.space]
    if not kinds or kinds.count("r") != 1:
        return 0
    columns = literal_value(prod(size for size, _ in kernel.space[kinds.index("r") + 1:]))
    return columns if columns is not None and columns <= MOST_COLUMNS else 0


def _as_it_lies(s: Load | Store, kernel: Kernel) -> bool:
    """Whether it goes through memory as the kernel's space does."""
    return plain(s, kernel) or (columns_of(kernel) > 1 and s.address == coordinates(kernel.space).element
                                and not (isinstance(s, Load) and s.bounds))


def _along_r(s: Load) -> bool:
    """Whether it reads a vector that all rows share, from some element on."""
    return [(atom.name, k) for atom, k in s.address.terms] == [("r", 1)] and not s.bounds


def _blocks(kernel: Kernel, length: int, widths: list[int], gpu: GpuModel) -> Blocks | None:
    """Blocks of as many rows as keep the GPU busy and fit into shared memory; None where there are too few.

    Args:
        widths: bytes of an element of what is read and written of a row.
    """
    r_block, row = power_of_two(length), length * sum(widths)
    x, rows, enough = MOST_ROWS, about(kernel.x_size), enough_programs(gpu)
    while x > FEWEST_ROWS and (_starts(kernel, x)[END] > ROOM or rows < x * enough):
        x //= 2
    if _starts(kernel, x)[END] > RESERVED[-1] or rows < x * enough:
        return None
    held = r_block * len(kernel.loads("xr"))
    while x >= MOST_ROWS and x * row < PROGRAM_BYTES and rows >= 16 * x * enough and x * held < MOST_ELEMENTS:
        x *= 2
    threads = min(x, MOST_ROWS) * (1 if r_block <= ALONE and held <= 2 * ALONE else 4)
    columns = columns_of(kernel)
    if columns == 1:
        return Blocks(x, r_block, False, threads // 32, across=True)
    run = x // columns * columns
    while run and any(run * length * width % VECTOR for width in widths):
        run -= columns
    return Blocks(x, r_block, False, threads // 32, across=True, run=run) if run > x // 2 else None


END: Final = ""
"""Stands for a name where shared memory ends."""


def _starts(kernel: Kernel, x: int) -> dict[str, int]:
    """Where in shared memory each value begins that is loaded, by its name, and where the last one ends: first rows, in
    whose place rows are stored at last, then what all rows share."""
    dtypes = {argument.name: argument.node.dtype for argument in kernel.arguments}
    elements, starts, end = x * _length(kernel), {}, 0
    for s in kernel.loads("xr"):
        starts[s.out.name] = end
        end += elements * s.out.dtype.itemsize
    end = max([end, *(elements * dtypes[s.argument].itemsize for s in kernel.stores("xr"))])
    for s in kernel.loads("r"):
        starts[s.out.name] = end
        end += -(-_length(kernel) * s.out.dtype.itemsize // VECTOR) * VECTOR
    return {**starts, END: end}


def _length(kernel: Kernel) -> int:
    """Elements of a row."""
    length = literal_value(kernel.r_size)
    assert length is not None
    return length


def start_lines(kernel: Kernel, blocks: Blocks, integer: str) -> list[str]:
    """The program's rows on their way to shared memory; `integer` converts to 64 bits where addresses need them."""
    row, length = f"tl.program_id(0){integer} * {blocks.run or 'XBLOCK'}", _length(kernel)
    starts, columns, lane = _starts(kernel, blocks.x), columns_of(kernel), "tl.arange(0, XBLOCK)[None, :]"
    place = (f"{lane} * {length} + column" if columns == 1 else
             f"{lane} // {columns} * {length * columns} + column * {columns} + {lane} % {columns}")
    lines = [f"words = {words_of(reserved_bytes(kernel, blocks))}", f"first = {row} * {length}",
             f"count = (x_size - {row}) * {length}", "column = tl.arange(0, RBLOCK)[:, None]", f"place = {place}"]
    if _has_idle_lanes(blocks):
        lines.append(f"here = r_mask & ({lane} < {blocks.run})")
    lines += [f"g_rows_to_shared({_at(starts[s.out.name])}, {s.argument} + first, count, {_piece(kernel, blocks)})"
              for s in kernel.loads("xr")]
    lines += [f"g_row_to_shared({_at(starts[s.out.name])}, {s.argument} + {s.address.constant}, {length}, RBLOCK)"
              for s in kernel.loads("r")]
    return [*lines, "tl.debug_barrier()"]


def reserved_bytes(kernel: Kernel, blocks: Blocks) -> int:
    """Bytes of shared memory that a program asks for."""
    return next(nbytes for nbytes in RESERVED if nbytes >= _starts(kernel, blocks.x)[END])


def words_of(nbytes: int, last: bool = False) -> str:
    """The call that gives so many bytes of shared memory: the program's `last` ones are for whoever asks for them."""
    return f"g_{'last_' if last else ''}words_{nbytes}()"


def _at(start: int) -> str:
    return f"words + {start}" if start else "words"


def _has_idle_lanes(blocks: Blocks) -> bool:
    """Whether a program has fewer rows than lanes, as a power of them is no multiple of the rows side by side."""
    return blocks.run not in (0, blocks.x)


def _piece(kernel: Kernel, blocks: Blocks) -> str:
    """A program's elements, and the power of two that holds them."""
    elements = (blocks.run or blocks.x) * _length(kernel)
    return f"{elements}, {power_of_two(elements)}"


def loaded(kernel: Kernel, blocks: Blocks, load: Load) -> str:
    """Each thread's elements of what is loaded: of its rows, or of what all rows share."""
    start = _at(_starts(kernel, blocks.x)[load.out.name])
    place, wanted = ("place", wanted_lanes(blocks)) if load.out.vars == "xr" else ("column", "r_mask")
    return f"g_get_elements({start} + {place} * {load.out.dtype.itemsize}, {wanted}, {load.argument})"


def wanted_lanes(blocks: Blocks) -> str:
    """The mask of a program's elements."""
    return "here" if _has_idle_lanes(blocks) else "r_mask"


def store_lines(kernel: Kernel, blocks: Blocks, store: Store, value: str) -> list[str]:
    """The way back of a block of rows, when all threads have read what shared memory held before."""
    itemsize = next(argument.node.dtype.itemsize for argument in kernel.arguments if argument.name == store.argument)
    put = f"g_put_elements(words + place * {itemsize}, {value}, {wanted_lanes(blocks)})"
    return ["tl.debug_barrier()", put, "tl.debug_barrier()",
            f"g_rows_from_shared(words, {store.argument} + first, count, {_piece(kernel, blocks)})"]
