"""Pointwise loops in two coordinates: which rows a kernel's elements lie in, and where in a row.

A loop over a flat x finds its place in a broadcast or permuted operand by quotients and remainders, for every element.
Split at the row, x counts rows and r the places in one: what depends on one of them is computed and loaded once for a
row or a column of the block, and no division is left.

    before: in1 + x % 768, in2 + x // 768        after: in1 + r, in2 + x         (x was x·768 + r)

Where an operand runs along another axis than the result (a transpose), the block is a square tile, so that loads run
along x and stores along r, and each of them is of neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.block_sizes import (
    VECTOR,
    Blocks,
    about,
    between,
    block_of,
    may_double,
    power_of_two,
    reach_of,
    room_for,
)
from genesis.codegen.cuda.blocks import flat_block, flat_blocks, windows
from genesis.codegen.cuda.build_kernel import in_order, over
from genesis.codegen.cuda.expressions import has_reciprocal
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import Index, Kernel, Load, Position, Random, Select, Store
from genesis.codegen.cuda.neighbours import bytes_at_once
from genesis.codegen.cuda.packed_rows import SHORTEST, in_pieces, packed
from genesis.codegen.cuda.turned_tiles import turned_tile
from genesis.ir.size_divisors import is_multiple, twos
from genesis.ir.sym_int import SymInt, literal_value
from genesis.passes.fusion.index_map import Atom, Expr
from genesis.passes.groups import Group, Space

SHORTEST_ROW: Final = 16
"""Minimum elements of a row that gets lanes of its own."""

WASTE: Final = 1.25
"""Maximum lanes of a block of rows per element of a row: the others idle."""

SIDE_BYTES: Final = 256
"""Bytes of a side of a transposing tile, which is square."""

MOST_HELD: Final = 128 * 128
"""Maximum elements that a transposing tile's loads hold in registers, of all operands together: 64 a thread of eight
warps. Two operands of 64 each, one by one, took 187 registers, so that a multiprocessor had one program, which loaded
nothing while it stored (H200: 140 MB of two float16 operands, one turned, 62 µs, torch.compile 46; reckoned 40 so). A
gradient of six operands in tiles of 128 × 128 spilled a kilobyte."""

TILE_ELEMENTS: Final = 4096
"""Elements of a tile whose rows and runs are short, while there are many: eight rows of eleven, of 13 M float16, were
148,470 programs, each of which a multiprocessor starts in 0.16 µs (reckoned for an H200: 180 µs for 6 by the bytes)."""

LEAST_SIDE: Final = 64
"""Elements of a side below which tiles are not cut further for the sake of more programs."""

LEAST_SIDE_BYTES: Final = 128
"""Bytes of a side down to which tiles of several results are cut until registers hold operands and results: a program
that has a multiprocessor for itself computes nothing while it waits (H200: the gradients of a / (1 + abs(b)) of
float32[40, 25331], b turned, in 396 tiles of 64 × 64 and 153 registers 39.9 µs, torch.compile 19.2)."""

MANY_TILES: Final = 6
"""Tiles for each multiprocessor below which they are cut to `LEAST_SIDE`: one of 128 × 128 has so many registers that
few are on a multiprocessor, whose loads wait while they store (H200, tiles of 128 and 64 a side: 650 of two bfloat16
operands 28.4 and 19.9 µs, 357 of rows of 14 9.6 and 7.8, 782 14.7 and 13.7, 135 3.8 and 3.3; but 1564 35.9 and 38.3,
2375 58.6 and 60.6)."""

OF_A_CLASS: Final = 3
"""How many times as large as one in the middle of its class an argument's size is weighed, about: a product of five
sizes was weighed as 16.8 million that was 4.3 million, and had 265 large tiles."""

FEWEST_SIDE: Final = 32
"""Elements of a side of the tiles that a GPU has fewer of than multiprocessors: a tile of 64 × 64 then is 32 elements a
thread, one after the other (H200: 102,400 float32 of two permuted operands in 40 tiles 7.3 µs, torch.compile 3.4)."""

MOST_FEW: Final = 4
"""Tiles for each multiprocessor up to which they have eight warps, 16 elements of a thread: with more other tiles hide
what a thread waits for."""

STEP_BYTES: Final = 32
"""Bytes between neighbours of a row up to which they are read along it: each sector has one."""

PIECE_VECTOR: Final = 8
"""Minimum bytes of a vector of a row that is read through an index: of fewer, what each vector finds for itself takes
longer than it moves."""

SHARED_VECTOR: Final = 4
"""The same where its elements share what they read."""

MOST_EACH: Final = 16
"""Elements of a thread of such a loop: registers hold their places, too."""

MOST_PARTS_LOADED: Final = 64
"""Loads of a thread of which each is a part's of a concatenation, and most are masked: eight parts of 23 float16 were
256 of them in 163 registers (H200: 246 µs for 48 MB)."""

NEIGHBOURS: Final = 4
"""Neighbours that a thread has where each is read through an index of its own: 32 bytes of 64-bit indices, a sector."""

LINE: Final = 128
"""Bytes of a line of memory, which a warp reads or writes at once."""

PER_QUOTIENT: Final = 4
"""Bytes that are moved at once of rows that are counted through, for each quotient that says where."""

SLOW_QUOTIENT: Final = 3
"""How many quotients one by an argument without a reciprocal counts as: it is twenty instructions."""

FEWEST_NEIGHBOURS: Final = 8
"""Minimum neighbouring elements along an operand's own axis for a tile; with fewer it is read as it comes."""


def tile(group: Group, kernel: Kernel, gpu: GpuModel,
         build: Callable[[Group, Space], Kernel] = over) -> tuple[Kernel, Blocks] | None:
    """A loop's kernel in rows and places, and its blocks; None where one flat coordinate is best.

    Args:
        build: makes the kernel again, over another space of the same size.
    """
    if kernel.has_r or not kernel.x_size:
        return None
    taken = any(isinstance(s, Index) for s in kernel.statements)
    if taken and (vectors := _in_vectors(group, kernel, gpu, build, PIECE_VECTOR)) is not None:
        return vectors
    found = _as_results_lie(group, kernel, gpu, build)
    if kernel.folds:
        return found or _in_vectors(group, kernel, gpu, build, SHARED_VECTOR)
    usual, blocks = found if found is not None else (kernel, None)
    side = _side(kernel, gpu)
    better = turned_tile(kernel, usual, blocks, side * side, gpu)
    if better is None:
        return found
    space = (*((size, "x") for size in better.rows), (better.columns, "r"))
    return in_order(group, space, better.order), _turned_blocks(kernel, better.x, better.r, gpu)


def _side(kernel: Kernel, gpu: GpuModel) -> int:
    """Elements of a side of a square transposing tile."""
    widest = max(argument.node.dtype.itemsize for argument in kernel.arguments if argument.role != "number")
    side = SIDE_BYTES // widest
    loads, size = max(1, len(kernel.loads("x"))), about(kernel.x_size)
    size = size if literal_value(kernel.x_size) is not None else size // OF_A_CLASS
    many = MANY_TILES * gpu.multiprocessors
    while side > LEAST_SIDE and (loads * side * side > MOST_HELD or size < side * side * many):
        side //= 2
    stores = sum(isinstance(s, Store) for s in kernel.statements)
    while stores > 1 and side * widest > LEAST_SIDE_BYTES and (loads + stores) * side * side > MOST_HELD:
        side //= 2
    while side > FEWEST_SIDE and size < side * side * gpu.multiprocessors:
        side //= 2
    return side


def _turned_blocks(kernel: Kernel, x_block: int, r_block: int, gpu: GpuModel) -> Blocks:
    """The blocks of a transposing tile with these sides."""
    few = about(kernel.x_size) <= MOST_FEW * gpu.multiprocessors * x_block * r_block
    loads, each = max(1, len(kernel.loads("x"))), 512 if few else 1024
    warps = between(4, power_of_two(max(1, loads // 2) * x_block * r_block // each), 8)
    return Blocks(x_block, r_block, False, warps, tiled=True)


def _as_results_lie(group: Group, kernel: Kernel, gpu: GpuModel,
                    build: Callable[[Group, Space], Kernel]) -> tuple[Kernel, Blocks] | None:
    """The same for rows that are counted as they lie in the results."""
    columns = 0 if kernel.folds else _turned_at(kernel)
    if columns:
        side = _side(kernel, gpu)
        r_block = min(side, power_of_two(columns))
        across = power_of_two(_run_across(kernel, columns))
        while across * r_block < TILE_ELEMENTS and may_double(kernel.x_size, across * r_block, gpu):
            across *= 2  # rows of several runs
        x_block = min(side * side // r_block, across)
        r_block = min(side * side // x_block, power_of_two(columns))
        blocks = _turned_blocks(kernel, x_block, r_block, gpu)
    else:
        columns = _row_of(kernel)
        if columns and not kernel.folds and _reads_anywhere(build(group, ((kernel.x_size // columns, "x"),
                                                                          (columns, "r")))):
            return kernel, _flat_vectors(kernel, gpu)
        r_block = _row_block(columns)
        if columns and not kernel.folds:
            in_rows = build(group, ((kernel.x_size // columns, "x"), (columns, "r")))
            wasteful = not r_block or _wasted(r_block, sum(reach_of(columns)) // 2) > WASTE
            blocks_of_elements = packed(in_rows, kernel, wasteful, gpu)
            if blocks_of_elements is not None:
                return in_rows, blocks_of_elements
            if _one_by_one(in_rows):
                return kernel, _flat_vectors(kernel, gpu)
            if _counted_through(in_rows, kernel, r_block):
                return kernel, _counted_blocks(kernel, gpu)
        if not r_block or (kernel.folds and _has_short_runs(build(group, ((kernel.x_size // columns, "x"),
                                                                          (columns, "r"))), kernel, r_block)):
            return None
        elements = flat_block(about(kernel.x_size), kernel.bytes_each, gpu)
        parts = sum(bool(load.bounds) for load in kernel.loads("x"))  # of which an element has one
        warps = between(4, power_of_two(elements * parts // (32 * MOST_PARTS_LOADED)), 16)
        blocks = Blocks(max(1, elements // r_block), r_block, False, warps, tiled=True)
        blocks = blocks if not kernel.folds else windows(blocks, kernel)
    space = ((kernel.x_size // columns, "x"), (columns, "r"))
    tiled = build(group, space)
    return None if tiled.folds and not _along_rows(tiled) else (tiled, blocks)


def _reads_anywhere(kernel: Kernel) -> bool:
    """Whether an element's own index says where it is read, or rows are read backwards or in short steps. Triton knows
    of no direction in such a load, has lanes take rows of the block, and moves every address and element through shared
    memory to where the others are: gather of bfloat16[3000, 1100] took 36 µs, where torch.compile's flat loop took 15
    and this one 12, a flip of float32 rows of 64 took 33 for its 14; 2.8 MB of rows of 151 in steps of 7 took 8, where
    torch.compile's flat loop takes 4 (H200). So it is where rows have one index and nothing else says where in a row an
    element is: index_select along the last axis of bfloat16[241, 202, 400] took 84, torch.compile's flat loop 40."""
    indices = {s.out.vars for s in kernel.statements if isinstance(s, Index)}
    return "xr" in indices or ("r" in indices and any(
        not any(_goes_along(atom) for atom, _ in load.address.terms) for load in kernel.loads("xr"))) or any(
        k == -1 and atom.kind == "var" and atom.name == "r" for load in kernel.loads("xr") for atom, k in
        load.address.terms) or any(map(_in_short_steps, kernel.loads("xr")))


def _goes_along(atom: Atom) -> bool:
    """Whether an atom is made of a row's places, other than by an index."""
    if atom.inner is None:
        return (atom.kind, atom.name) == ("var", "r")
    return any(_goes_along(inner) for inner, _ in atom.inner.terms)


def _one_by_one(kernel: Kernel) -> bool:
    """Whether rows of two-byte elements begin anywhere, and some operands lie as the result does, others do not. What
    lies so is moved in vectors by a flat loop, where rows have each element loaded and stored by itself: 17 M sums in
    rows of 167 took 37 µs for 30 by their bytes, torch.compile's flat loop 28 (H200)."""
    loads = kernel.loads("xr")
    if kernel.loads("x") or kernel.loads("r") or not all(s.out.dtype.itemsize == 2 for s in loads):
        return False
    straight = [in_pieces(s, kernel) for s in loads]
    return any(straight) and not all(straight) and not is_multiple(2 * kernel.r_size, VECTOR)


def _counted_through(kernel: Kernel, flat: Kernel, r_block: int) -> bool:
    """Whether rows that nothing is shared by are better taken as they come, by a flat loop, than in blocks of rows:
    where they are not read in whole vectors, or a block of a row is less than a line of memory. Lanes then have
    neighbours from one row into the next, where blocks of 16 of 74 two-byte values are 32 bytes of each of four rows
    (H200: eight such parts of 90 MB 112 µs, 28 so). What is moved at once finds its row by quotients of its own, which
    want to be few."""
    if kernel.loads("x") or kernel.loads("r"):
        return False
    widest = max(argument.node.dtype.itemsize for argument in kernel.arguments if argument.role != "number")
    if bytes_at_once(kernel, "r") == VECTOR and r_block * widest >= LINE:
        return False
    found = {(atom.number, atom.inner): 1 if _is_fast(atom) else SLOW_QUOTIENT
             for e in _expressions(flat) for top, _ in e.terms for atom in _quotients(top)}
    return sum(found.values()) <= max(bytes_at_once(flat, "x") // PER_QUOTIENT, 1)


def _has_short_runs(kernel: Kernel, flat: Kernel, r_block: int) -> bool:
    """Whether windows along rows that nothing is shared by are better taken as they come: a block of a row is less than
    a line of memory, and the row is found by one quotient. (H200, max_pool1d 3 by 1 of float32[2750, 64, 47] in blocks
    of 16 of 45 results: 25.8 µs, torch.compile's flat loop 20.4, so 19.6.)"""
    widest = max(argument.node.dtype.itemsize for argument in kernel.arguments if argument.role != "number")
    return r_block * widest < LINE and _counted_through(kernel, flat, r_block)


def _is_fast(atom: Atom) -> bool:
    """Whether a quotient is by a number, or by an argument that has a reciprocal."""
    return literal_value(atom.number) is not None or has_reciprocal(atom)


def _quotients(atom: Atom) -> Iterator[Atom]:
    """The quotients and remainders that an atom is made of."""
    if atom.inner is not None:
        yield atom
        for inner, _ in atom.inner.terms:
            yield from _quotients(inner)


def _in_short_steps(load: Load) -> bool:
    """Whether neighbours along r are a few elements apart, and those of the next row no nearer."""
    steps = {abs(k) for atom, k in load.address.terms if atom.kind == "var" and atom.name == "r"}
    near = any(k == 1 and (atom.kind == "var" or atom.kind == "mod") for atom, k in load.address.terms)
    return not near and any(1 < step <= STEP_BYTES // load.out.dtype.itemsize for step in steps)


def _flat_vectors(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """Blocks of a flat loop in which a thread has `NEIGHBOURS` elements side by side."""
    blocks = flat_blocks(about(kernel.x_size), kernel.bytes_each, gpu)
    return replace(blocks, num_warps=max(1, min(blocks.x // (32 * NEIGHBOURS), 8)))


def _counted_blocks(kernel: Kernel, gpu: GpuModel) -> Blocks:
    """Blocks of rows that are counted through, 16 bytes of each thread. An operand that lies in longer rows counts as
    any other: parts of a concatenation that are as long have equally many programs, and have them in turn."""
    widths = {x.name: x.node.dtype.itemsize for x in kernel.arguments if x.role != "number"}
    loads = kernel.loads("x")
    parts = max((widths[s.argument] for s in loads if s.bounds), default=0)  # of which an element has one
    nbytes = parts + sum(widths[s.argument] for s in loads if not s.bounds) + sum(
        widths[s.argument] for s in kernel.statements if isinstance(s, Store))
    blocks = flat_blocks(about(kernel.x_size), nbytes, gpu)
    return replace(blocks, num_warps=max(1, min(blocks.x * max(widths.values()) // (32 * VECTOR), 8)))


def _along_rows(kernel: Kernel) -> bool:
    """Whether every load runs along r by ones. Where windows are further apart the compiler sees no direction in a
    block of rows, and takes the wrong one: lanes would read places that are rows apart."""
    return all(any(k == 1 and atom.kind == "var" and atom.name == "r" for atom, k in load.address.terms)
               for load in kernel.loads("xr"))


def _row_of(kernel: Kernel) -> int:
    """The row that all quotients and remainders of x are by, or by a multiple of it; 0 if there is none."""
    numbers = sorted({atom.number for e in _expressions(kernel) for atom in _divisions(e)
                      if atom.number >= SHORTEST and kernel.x_size % atom.number == 0})
    return numbers[0] if numbers and all(number % numbers[0] == 0 for number in numbers) else 0


def _row_block(columns: int) -> int:
    """The largest block that wastes few lanes of a row; 0 if none does."""
    if columns < SHORTEST_ROW:
        return 0
    blocks, number = (1024, 512, 256, 128, 64, 32, 16), literal_value(columns)
    if isinstance(columns, SymInt):  # the shortest of its class is to waste few
        shortest = columns.trace.range(columns)[0] or 0
        long = [block for block in blocks if shortest + block <= WASTE * shortest]
        found = max(long[0] if long else 0, min(256, block_of(columns)) if shortest < 256 else 256)
        if number is None or _wasted(found, number) <= WASTE:
            return found
    fitting = [block for block in blocks if _wasted(block, columns if number is None else number) <= WASTE]
    return fitting[0] if fitting else 0


def _in_vectors(group: Group, kernel: Kernel, gpu: GpuModel, build: Callable[[Group, Space], Kernel],
                fewest: int) -> tuple[Kernel, Blocks] | None:
    """A flat loop whose vectors are short rows: what all elements of one share is found and loaded once. So it is with
    rows that are read through an index, and with windows whose elements all read what belongs to the window.

        before: load(in1 + load(in0 + x // 72) * 72 + x % 72)
        after:  load(in1 + load(in0 + x // 9) * 72 + x % 9 * 8 + r)

    None of a row's lanes are idle, whatever its length, and no vector reaches past its end.

    Args:
        fewest: bytes of a vector at least.
    """
    widths = {x.name: x.node.dtype.itemsize for x in kernel.arguments if x.role != "number"}
    stores = [s for s in kernel.statements if isinstance(s, Store)]
    each = max(widths[s.argument] for s in stores)
    vector = min(VECTOR // each, twos(kernel.x_size))
    while vector > 1 and vector * each >= fewest:
        found = build(group, ((kernel.x_size // vector, "x"), (vector, "r")))
        if (found.loads("x") or found.loads("")) and all(
                _is_run(load, vector) for load in found.loads("xr")) and not found.loads("r"):
            blocks = flat_blocks(about(kernel.x_size), kernel.bytes_each, gpu)
            blocks = windows(blocks, kernel) if kernel.folds else blocks
            warps = max(blocks.num_warps, blocks.x // (32 * MOST_EACH))
            warps = between(1, warps, min(16, blocks.x // (32 * vector)))  # no thread without a vector
            return found, Blocks(max(1, blocks.x // vector), vector, False, warps, tiled=True)
        vector //= 2
    return None


def _is_run(load: Load, vector: int) -> bool:
    """Whether a load of a vector is one: of neighbours, from a multiple of their number on."""
    along = [k for atom, k in load.address.terms if atom.kind == "var" and atom.name == "r"]
    others = [k for atom, k in load.address.terms if atom.kind != "var" or atom.name != "r"]
    return along == [1] and not load.bounds and all(is_multiple(k, vector) for k in (*others, load.address.constant))


def _wasted(block: int, columns: int) -> float:
    """Lanes of blocks of a row, for each element of the row."""
    return -(-columns // block) * block / columns


def _run_across(kernel: Kernel, columns: int) -> int:
    """The most neighbouring elements that a load reads across rows of x: more rows of a tile read them elsewhere."""
    return max((run for row, run in _turned(kernel) if row == columns), key=room_for)


def _turned_at(kernel: Kernel) -> int:
    """The size of a row of x whose quotient some load runs along; 0 if all loads run along x or nowhere."""
    for columns, run in _turned(kernel):
        if columns >= FEWEST_NEIGHBOURS and run >= FEWEST_NEIGHBOURS and kernel.x_size % columns == 0:
            return columns
    return 0


def _turned(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """The size of a row of x, for each load that goes by ones from row to row, and how many neighbours it goes through.
    One that is the same all along a row is none: it is read once a row anyway."""
    for statement in kernel.statements:
        atom = _unit_stride(statement.address) if isinstance(statement, Load) else None
        if atom is None:
            continue
        quotient = atom if atom.kind == "div" else atom.inner.terms[0][0]  # type: ignore[union-attr]
        if not _same_along(statement.address, quotient.number):  # type: ignore[union-attr]
            rows = kernel.x_size // quotient.number
            yield quotient.number, rows if atom.high >= rows - 1 else atom.high + 1


def _unit_stride(address: Expr) -> Atom | None:
    """The quotient of x, or its remainder, that an address counts by ones, where it does not count x itself so."""
    for atom, k in address.terms:
        inner = atom.inner.terms[0][0] if atom.kind == "mod" and atom.inner is not None and atom.inner.is_atom else atom
        if k == 1 and inner.kind == "div" and _of_x(inner):
            return atom
    return None


def _same_along(e: Expr, columns: int) -> bool:
    """Whether an expression has one value for all of a row of x."""
    for atom, _ in e.terms:
        if atom.inner is None or (_of_x(atom) and not (atom.kind == "div" and atom.number % columns == 0)):
            return False
        if not _of_x(atom) and not _same_along(atom.inner, columns):
            return False
    return True


def _of_x(atom: Atom) -> bool:
    inner = atom.inner
    return inner is not None and inner.is_atom and not inner.is_constant and inner.terms[0][0].kind == "var"


def _divisions(e: Expr) -> Iterator[Atom]:
    """The quotients and remainders of x itself in an expression."""
    for atom, _ in e.terms:
        if atom.inner is not None:
            if _of_x(atom):
                yield atom
            else:
                yield from _divisions(atom.inner)


def _expressions(kernel: Kernel) -> Iterator[Expr]:
    """Every index expression of a kernel."""
    for statement in kernel.statements:
        match statement:
            case Load(_, _, address, bounds):
                yield from (address, *(bound.e for bound in bounds))
            case Position(_, e):
                yield e
            case Select(_, bounds, _, _):
                yield from (bound.e for bound in bounds)
            case Random():
                yield statement.counter
            case Store():
                yield statement.address
