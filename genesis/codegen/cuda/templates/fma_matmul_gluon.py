"""The text of a float32 product's kernel in Gluon, for products whose bits all count: fused multiply-adds, no tensor
cores.

A thread has several rows and columns of the tile in registers. For each step of the inner dimension it reads a number
for each of its rows and columns from shared memory and multiplies all by all: 8 rows and 16 columns are 24 numbers, in
6 instructions, for 128 multiply-adds. Numbers come four at once: neighbours along the inner dimension where an operand
lies so in memory, else neighbouring rows or columns, which one thread has then. So operands lie in shared memory as
they lie in global memory, and no thread has to turn them. Rows along the inner dimension are swizzled: those that the
threads of a warp read together begin in different banks.

Blocks are copied STAGES - 1 ahead (`cp.async`); one barrier a block says that all threads have their copies and that
nobody reads the block that is written next.

An operand whose numbers are copied one by one, as its rows begin anywhere, comes through registers instead, one block
ahead: a copy takes eight of the L1's cycles whether a thread moves 4 bytes or 16, and holds lines of the L1 meanwhile,
of which shared memory leaves few. (89, 47, 600) @ (89, 600, 105) of such rows took 118 µs by copies, the L1 busy for
71 % of the time that a multiprocessor had programs, and takes 44 so (H200, 2026-11-30; cuBLAS 37).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from genesis.codegen.cuda.prelude import prelude_for
from genesis.codegen.cuda.source import GLUON_HEADER, RELEASE, WAIT, in_gluon
from genesis.codegen.cuda.templates.operands import address, stride_of
from genesis.codegen.cuda.templates.product_lines import mask_of
from genesis.codegen.cuda.templates.tile import Tile, indented
from genesis.ir.size_divisors import divided_by
from genesis.ir.sym_int import Size
from genesis.passes.fusion.operand_view import OperandView

VECTOR: Final = 4
"""Numbers of four bytes that one instruction reads from shared memory, or copies to it."""

LANES: Final = 32
"""Threads of a warp."""

HELD: Final = 2
"""Blocks in shared memory of an operand that comes through registers: while one is read the next one is written."""

BANKS: Final = 32
"""Numbers of four bytes that shared memory reads at once."""

_HEADER: Final = f"""{GLUON_HEADER}from triton.experimental.gluon.language.nvidia.ampere import async_copy

copy_numbers = async_copy.async_load if hasattr(async_copy, "async_load") else async_copy.async_copy_global_to_shared
"""

_ENDS: Final = {"a": {"rows": "i_a[:, None] < rows", "depth": "k_a[None, :] < last"},
                "b": {"depth": "k_b[:, None] < last", "columns": "j_b[None, :] < columns"}}
"""Operand → the conditions that keep a block inside it, by the size that they are about. What is past the end of the
depth must be 0; of rows and columns past the end nothing is stored."""


@dataclass(frozen=True)
class Laid:
    """How an operand lies in memory.

    Attributes:
        along: whether neighbours along the inner dimension are neighbours in memory.
        vector: numbers that a thread copies at once.
    """

    along: bool
    vector: int

    @property
    def through_registers(self) -> bool:
        """Is a block held by the threads while they multiply the one before?"""
        return self.vector == 1

    @property
    def by_element(self) -> bool:
        """Are rows of A (columns of B) past the end better read as the last one than left out? Each has an address of
        its own then, and a copy that may be left out takes two instructions more."""
        return self.along or self.vector == 1


@dataclass(frozen=True)
class Threads:
    """Which rows and columns of a tile a thread has.

    Attributes:
        beside: rows and columns that are neighbours.
        lanes: threads of a warp along rows and columns.
        warps: likewise.
    """

    beside: tuple[int, int]
    lanes: tuple[int, int]
    warps: tuple[int, int]

    @property
    def layout(self) -> str:
        """The layout of the tile."""
        return f"tl.BlockedLayout({list(self.beside)}, {list(self.lanes)}, {list(self.warps)}, [1, 0])"


def laid(view: OperandView, rows: Size, columns: Size, name: str) -> Laid:
    """How an operand lies.

    Args:
        rows: those of the operand.
        name: "a", whose columns are the inner dimension, or "b".
    """
    row, column = stride_of(view.row), stride_of(view.column)
    (inner, depth), (other, width) = ((column, columns), (row, rows))[::1 if name == "a" else -1]
    along = inner == 1 or other != 1
    step, end = (other, depth) if along else (inner, width)
    if 1 not in (inner, other) or step is None:
        return Laid(along, 1)
    steps = (step, end, view.batch.constant, *(k for _, k in view.batch.terms))
    return Laid(along, next(n for n in (VECTOR, VECTOR // 2, 1) if all(divided_by(x, n) for x in steps)))


def threads_of(tile: Tile, a: Laid, b: Laid) -> Threads:
    """The threads of a tile's kernel: those that read shared memory least often; of equals, warps of four rows of eight
    threads, whose reads of either operand are none of the same bank."""
    def reads(x: Threads) -> tuple[int, int, int]:
        rows, columns = (size // (lanes * warps) for size, lanes, warps in zip(
            (tile.i, tile.j), x.lanes, x.warps, strict=True))
        once = sum(count if laid.along else count * VECTOR // beside
                   for count, laid, beside in zip((rows, columns), (a, b), x.beside, strict=True))
        return once, abs(x.lanes[1] - 8), abs(x.warps[0] - x.warps[1])
    return min(_all_threads(tile, a, b), key=reads)


def _all_threads(tile: Tile, a: Laid, b: Laid) -> Iterator[Threads]:
    """Those whose warps have all threads busy."""
    def parts(number: int) -> list[tuple[int, int]]:
        return [(n, number // n) for n in (1, 2, 4, 8, 16, 32) if number % n == 0]

    def most(x: Laid) -> tuple[int, ...]:
        return (1,) if x.along else (VECTOR, 2, 1)
    for lanes in parts(LANES):
        for warps in parts(tile.num_warps):
            for beside in ((i, j) for i in most(a) for j in most(b)):
                if all(n * lane * warp <= size for n, lane, warp, size in zip(
                        beside, lanes, warps, (tile.i, tile.j), strict=True)):
                    yield Threads(beside, lanes, warps)


def fma_module(name: str, signature: Mapping[str, str], views: tuple[OperandView, OperandView],
               sizes: Mapping[str, Size], tile: Tile, ragged: set[str], index64: bool, place: list[str],
               ends: list[str]) -> str:
    """The module that defines the kernel.

    Args:
        sizes: "rows", "columns" and "depth".
        ragged: which of them their blocks do not divide.
        place: lines that say which tile a program makes, and from `first` to `last` of what.
        ends: lines after `total` is known.
    """
    (a, b), wide = views, ".to(tl.int64)" if index64 else ""
    lies = {"a": laid(a, sizes["rows"], sizes["depth"], "a"), "b": laid(b, sizes["depth"], sizes["columns"], "b")}
    threads = threads_of(tile, lies["a"], lies["b"])

    def place_in(view: OperandView, part: str, variable: str) -> str:
        found = getattr(view, part)
        return f"({address(found, variable)})" if found.terms else f"({variable} * 0)"
    lines = [
        *place,
        f"layout: tl.constexpr = {threads.layout}",
        *_copy_layouts(lies, tile),
        f"i_a = tile_i * I + tl.arange(0, I, layout=tl.SliceLayout(1, a_copied)){wide}",
        f"j_b = tile_j * J + tl.arange(0, J, layout=tl.SliceLayout(0, b_copied)){wide}",
        *(f"{variable} = tl.minimum({variable}, {size} - 1)"
          for name, variable, size in (("a", "i_a", "rows"), ("b", "j_b", "columns"))
          if size in ragged and lies[name].by_element),
        f"a_start = {address(a.batch, 'batch')} + {place_in(a, 'row', 'i_a')}[:, None]",
        f"b_start = {address(b.batch, 'batch')} + {place_in(b, 'column', 'j_b')}[None, :]",
        *_loop({"a": f"{place_in(a, 'column', 'k_a')}[None, :]", "b": f"{place_in(b, 'row', 'k_b')}[:, None]"},
               {name: mask_of(_ENDS[name], _masked(x, ragged)) for name, x in lies.items()},
               [name for name, x in lies.items() if x.through_registers], wide),
        f"i = tile_i * I + tl.arange(0, I, layout=tl.SliceLayout(1, layout)){wide}",
        f"j = tile_j * J + tl.arange(0, J, layout=tl.SliceLayout(0, layout)){wide}",
        *ends]
    given = ", ".join(f"{x}: tl.constexpr" if kind == "constexpr" else x for x, kind in signature.items())
    kernel = "\n".join((f"@triton.jit\ndef {name}({given}):", *indented([WAIT, RELEASE, *lines]), ""))
    text = in_gluon("\n\n".join(x.strip("\n") + "\n" for x in (prelude_for("\n".join(ends)), kernel) if x))
    return f"{_HEADER}\n\n{text}"


def _copy_layouts(lies: Mapping[str, Laid], tile: Tile) -> list[str]:
    """How threads copy blocks, neighbours what is beside each other, and the blocks' places in shared memory."""
    lines = []
    for name, rows, columns in (("a", tile.i, tile.k), ("b", tile.k, tile.j)):
        by_rows = lies[name].along == (name == "a")
        vector, width = lies[name].vector, columns if by_rows else rows
        lanes = min(LANES, width // vector)
        order = [1, 0] if by_rows else [0, 1]

        def of(along: int, across: int, by_rows: bool = by_rows) -> list[int]:
            return [across, along] if by_rows else [along, across]
        phases = f"{VECTOR}, {max(1, BANKS // width)}, {min(8, width // VECTOR)}" if lies[name].along else "1, 1, 1"
        lines += [
            f"{name}_copied: tl.constexpr = tl.BlockedLayout({of(vector, 1)}, {of(lanes, LANES // lanes)}, "
            f"{of(1, tile.num_warps)}, {order})",
            f"{name}_blocks = tl.allocate_shared_memory(tl.float32, "
            f"[{HELD if lies[name].through_registers else 'STAGES'}, {'I, K' if name == 'a' else 'K, J'}], "
            f"tl.SwizzledSharedLayout({phases}, {order}))"]
    return lines


def _masked(x: Laid, ragged: set[str]) -> set[str]:
    """The sizes whose ends the reads of an operand ask for. What is held is read a block past the end, too."""
    if not x.by_element:
        return ragged
    return {"depth"} if x.through_registers else ragged & {"depth"}


def _loop(places: Mapping[str, str], masks: Mapping[str, str], held: list[str], wide: str) -> list[str]:
    """The lines that leave the tile's sum in `total`.

    Args:
        places: operand → the places of elements `k_a` of a row of A, `k_b` of a column of B.
        masks: operand → an argument of its copies.
        held: the operands that come through registers.
    """
    copied = [name for name in "ab" if name not in held]
    steps = {"a": "layout=tl.SliceLayout(0, a_copied)", "b": "layout=tl.SliceLayout(1, b_copied)"}

    def along(name: str, begin: str) -> str:
        return f"k_{name} = {begin} + tl.arange(0, K, {steps[name]}){wide}"

    def ask(begin: str, stage: str) -> list[str]:
        return [*(along(name, begin) for name in copied),
                *(f"copy_numbers({name}_blocks.index({stage}), {name} + ({name}_start + {places[name]}){masks[name]})"
                  for name in copied)]

    def hold(begin: str) -> list[str]:
        return [*(along(name, begin) for name in held),
                *(f"{name}_held = tl.load({name} + ({name}_start + {places[name]}){masks[name]}, other=0.0)"
                  for name in held)]

    def block(name: str) -> str:
        layout = f"tl.DotOperandLayout({'ab'.index(name)}, layout, 0)"
        return f"{name}_blocks.index(count % {HELD if name in held else 'STAGES'}).load({layout})"
    if not copied:
        ahead, wait, more = [], [], []
    else:
        ahead = ["for ahead in tl.static_range(STAGES - 1):",
                 "    if first + ahead * K < last:",
                 *indented(indented(ask("first + ahead * K", "ahead"))),
                 "    async_copy.commit_group()"]
        wait = ["async_copy.wait_group(STAGES - 2)"]
        more = ["if start + (STAGES - 1) * K < last:",
                *indented(ask("start + (STAGES - 1) * K", "(count + STAGES - 1) % STAGES")),
                "async_copy.commit_group()"]
    return [
        *ahead,
        *hold("first"),
        "total = tl.zeros([I, J], tl.float32, layout)",
        "count = 0",
        "for start in range(first, last, K):",
        *indented([
            *(f"{name}_blocks.index(count % {HELD}).store({name}_held)" for name in held),
            *wait,
            "threads_meet()",
            *hold("start + K"),
            *more,
            f"total = tl.dot_fma({block('a')},",
            f"                   {block('b')}, total)",
            "count += 1"])]
