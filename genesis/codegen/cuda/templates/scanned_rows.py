"""Short rows at odd places that are scanned: each thread has a stretch of a row, and rows go through shared memory.

Rows of 319 16-bit values begin at multiples of two bytes. Lanes along such a row load one element each, and each of
them takes five shuffles: 137 µs of an H200's shuffles for 100,000 rows, whose bytes take 30. Here a thread has
neighbours of a row in its registers, which it scans by itself; shuffles are of threads' states alone. A program's rows
are one piece of memory, which begins at a multiple of 16 bytes and is copied to shared memory and back in vectors:

    memory ── 16 bytes a thread ──▶ shared ── stretches ──▶ registers, scanned        and back the same way

Blocks are [XBLOCK, RBLOCK]: XBLOCK is the power of two that holds a stretch, RBLOCK the program's threads. Stretches
are as long as has lanes read different banks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from genesis.codegen.cuda.block_sizes import VECTOR, about, power_of_two
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import Load, Random
from genesis.codegen.cuda.lowerings import held, triton_type
from genesis.codegen.cuda.row_edges import plain
from genesis.codegen.cuda.shared_rows import RESERVED
from genesis.codegen.cuda.templates.rows import Rows, raw_loads
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import literal_value
from genesis.ir.types import DType

SHORTEST: Final = 3
"""Minimum elements of a row."""

BANKS: Final = 32
"""Banks of shared memory, of a word each."""

STRETCH: Final = 32
"""Maximum elements of a thread."""

LEAST_STRETCH: Final = 8
"""Elements of a thread down to which it gets fewer where programs are few."""

THREADS: Final = 128
"""Threads of a program, more where a row has as many."""

MOST_THREADS: Final = 512

ROOM: Final = 20 << 10
"""Bytes of shared memory of a program: ten of them on a multiprocessor of an H200."""

PROGRAMS: Final = 2
"""Minimum programs for each multiprocessor."""


@dataclass(frozen=True)
class Stretches:
    """How a program's threads share its rows.

    Attributes:
        x: rows of a program.
        beside: threads of a row.
        each: elements of a thread.
        length: of a row.
        starts: where in shared memory each value begins that is loaded, by its name.
        nbytes: of shared memory that a program asks for.
    """

    x: int
    beside: int
    each: int
    length: int
    starts: dict[str, int]
    nbytes: int

    @property
    def threads(self) -> int:
        return self.x * self.beside

    @property
    def block(self) -> int:
        """The power of two that holds a thread's elements."""
        return power_of_two(self.each)


def stretches_of(rows: Rows, results: Sequence[DType], gpu: GpuModel) -> Stretches | None:
    """How rows are shared; None where they lie in whole vectors, are long or few, or are no words.

    Args:
        results: dtypes of what is stored.
    """
    kernel, length = rows.kernel, literal_value(rows.length)
    loads = kernel.loads("xr")
    read, written = [s.out.dtype.itemsize for s in loads], [dtype.itemsize for dtype in results]
    sizes = read + written
    if rows.inner != 1 or length is None or length < SHORTEST or not loads:
        return None
    if not set(read) <= {2, 4} or not set(written) <= {2, 4, 8}:
        return None
    whole = all(map(_in_vectors, loads)) and all(length * dtype.itemsize % VECTOR == 0 for dtype in results)
    if whole or any(isinstance(s, Random) for s in kernel.statements) or any(vars != "xr" for vars in _vars(rows)):
        return None
    count, enough = about(rows.rows), PROGRAMS * gpu.multiprocessors
    least = next(x for x in (1, 2, 4, 8) if all(x * length * size % VECTOR == 0 for size in sizes))
    beside = _beside(length, max(sizes))
    x = max(least, THREADS // beside)
    at_once = max([sum(read), *written])  # the results follow each other
    while x > least and (_reserved(x * length * at_once) > ROOM or count < x * enough):
        x //= 2
    while x * beside < THREADS and -(-length // beside) > LEAST_STRETCH:
        beside *= 2
    if x * beside < 32 or x * beside > MOST_THREADS or count < x * enough:
        return None
    each = _each_of(length, beside, max(sizes))
    starts, end = {}, 0
    for s in loads:
        starts[s.out.name] = end
        end += x * length * s.out.dtype.itemsize
    end = max([end, *(x * length * dtype.itemsize for dtype in results)])
    nbytes = _reserved(end)
    return Stretches(x, beside, each, length, starts, nbytes) if nbytes <= ROOM else None


def _reserved(nbytes: int) -> int:
    """Bytes of shared memory that a program asks for, which needs so many; more than `ROOM` where none are enough."""
    return next((size for size in RESERVED if size >= nbytes), ROOM + 1)


def _beside(length: int, size: int) -> int:
    """Threads of a row: as few as have no long stretches, or some more where lanes meet in fewer banks.

    >>> _beside(31, 4), _beside(241, 2), _beside(319, 2)
    (1, 16, 16)
    """
    least = power_of_two(-(-length // STRETCH))
    several = [least * k for k in (1, 2, 4) if k == 1 or length >= LEAST_STRETCH * least * k]

    def cost(beside: int) -> int:
        each = _each_of(length, beside, size)
        return beside * each * _turns(length, beside, each, size)
    return min(several, key=cost)


def _each_of(length: int, beside: int, size: int) -> int:
    """Elements of a thread: as few as make a row, or some more where lanes meet in fewer banks of shared memory.

    >>> _each_of(319, 16, 2), _each_of(241, 16, 2), _each_of(1023, 32, 4)
    (20, 17, 33)
    """
    least = -(-length // beside)
    return min(range(least, least + BANKS // 4), key=lambda each: each * _turns(length, beside, each, size))


def _turns(length: int, beside: int, each: int, size: int) -> int:
    """Turns that a warp's read takes: how many lanes, at most, want different words of one bank."""
    words = {((lane // beside) * length + lane % beside * each) * size // 4 for lane in range(32)
             if lane % beside * each < length}
    return max(Counter(word % BANKS for word in words).values())


def _in_vectors(load: Load) -> bool:
    """Whether each row that it reads begins at a multiple of a vector."""
    size = load.out.dtype.itemsize
    along = [k for atom, k in load.address.terms if (atom.kind, atom.name) == ("var", "r")]
    others = [k for atom, k in load.address.terms if (atom.kind, atom.name) != ("var", "r")]
    return along == [1] and not load.bounds and all(
        is_multiple(k * size, VECTOR) for k in (*others, load.address.constant))


def _vars(rows: Rows) -> list[str]:
    return [value.vars for value in rows.values]


def load_lines(rows: Rows, found: Stretches, reverse: bool) -> list[str]:
    """The operands' values, each thread's stretch, by way of shared memory."""
    kernel, length, loads = rows.kernel, found.length, rows.kernel.loads("xr")
    piece = f"{found.x * length}, {power_of_two(found.x * length)}"
    lines = [f"words = g_words_{found.nbytes}()", f"first_row = tl.program_id(0){rows.integer} * {found.x}",
             f"first = first_row * {length}", f"count = (x_size - first_row) * {length}"]
    for s in loads:
        if plain(s, kernel):
            lines.append(f"g_rows_to_shared({_at(found.starts[s.out.name])}, {s.argument} + first, count, {piece})")
    apart = [s for s in loads if not plain(s, kernel)]
    if apart:
        lines += [f"row = tl.arange(0, {found.x})[:, None]", "x = first_row + row", "x_mask = x < x_size",
                  f"r = tl.arange(0, {power_of_two(length)})[None, :]{rows.integer}", f"r_mask = r < {length}"]
        for name, load, _ in raw_loads(rows, apart):
            lines.append(f"g_put_elements({_at(found.starts[name])} + (row * {length} + r).to(tl.int32) * "
                         f"{_itemsize(loads, name)}, {load}, r_mask)")
    at = f"column * {found.each} + tl.arange(0, XBLOCK)[:, None]"
    lines += ["tl.debug_barrier()", "thread = tl.arange(0, RBLOCK)[None, :]", f"row = thread // {found.beside}",
              f"column = thread % {found.beside}", f"near = {at}",
              f"r = {f'{length - 1} - near' if reverse else 'near'}",
              f"r_mask = (tl.arange(0, XBLOCK)[:, None] < {found.each}) & (near < {length})",
              "x = first_row + row", "x_mask = x < x_size", f"place = row * {length} + r"]
    for statement in kernel.statements:
        if isinstance(statement, Load) and statement in loads:
            name, dtype = statement.out.name, statement.out.dtype
            lines.append(f"{name} = g_get_elements({_at(found.starts[name])} + place * {dtype.itemsize}, r_mask, "
                         f"{statement.argument}).to({triton_type(held(dtype))})")
        else:
            lines += rows.body.statement(statement)
    return lines


def _itemsize(loads: Sequence[Load], name: str) -> int:
    return next(s.out.dtype.itemsize for s in loads if s.out.name == name)


def store_lines(found: Stretches, argument: str, value: str, dtype: DType) -> list[str]:
    """The way back of a program's rows, when all threads have read what shared memory held before."""
    piece = f"{found.x * found.length}, {power_of_two(found.x * found.length)}"
    return ["tl.debug_barrier()", f"g_put_elements(words + place * {dtype.itemsize}, {value}, r_mask)",
            "tl.debug_barrier()", f"g_rows_from_shared(words, {argument} + first, count, {piece})"]


def _at(start: int) -> str:
    return f"words + {start}" if start else "words"
