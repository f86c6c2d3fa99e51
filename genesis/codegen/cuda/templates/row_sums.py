"""Rows added to a table at places that are data, in one launch: a program looks through the index for its own rows.

A program owns some rows of the result and a block of columns. It compares all of the index, which lies in the L2, with
its rows, and lists the positions that hit one in shared memory: each warp has a list, so that none waits for others.
Then `groups` of lanes take the hits of all lists in turn: each loads the source's row and adds it to sums of its own in
shared memory. At the end a row's sums are added up in the order of the groups, to what the base has there, and the
whole row is written, hit or not.

So nothing is sorted, nothing is filled before, no float is added atomically, and every bit is the same in each run.
Work is shared by hits, not by rows: a row that is hit by every position costs as much as many that are hit once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.expressions import literal
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.loops import any_needs_int64
from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.source import Exchange, KernelSource
from genesis.codegen.cuda.templates.checked_index import checked_outside
from genesis.codegen.cuda.templates.rows import Rows
from genesis.codegen.cuda.templates.segments import columns_of
from genesis.codegen.cuda.templates.shared_words import (
    LISTED,
    get_helper,
    listed_helper,
    plus_helper,
    put_helper,
    sum_kind,
    words_helper,
)
from genesis.ir.node import Node
from genesis.ir.ops.block_rows import WIDE
from genesis.ir.size_divisors import twos
from genesis.ir.sym_int import as_written, hint, most
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group

STEP: Final = 1024
"""Minimum positions of the index that a program compares at a time, eight a thread."""

LONGEST_STEP: Final = 2048
"""Maximum positions at a time, 16 a thread: a program waits once for all of them."""

LISTED_AT_EASE: Final = 256
"""Hits that a warp may have listed before another step, without their rows being added first."""

WARPS: Final = 4
"""Maximum warps of a program."""

FEW: Final = (2 * H200.multiprocessors, 8)
"""(programs; warps) up to which each has so many: a multiprocessor has two such programs, whose threads go one after
another through what is written out for several rows (H200, sums of 1792 rows of 293 float32 in 228 programs of four
warps: 1929 instructions of each, 152 bytes of a thread in memory; of eight 1180, and none: 11.8 → 8.9 µs with the
look-up before)."""

WIDEST: Final = 256
"""Maximum columns of a program: four programs share the index's comparisons of a row of 1024, not one."""

EACH: Final = 32
"""Maximum elements of the sums that a thread takes at a time where they begin and end."""

MOST_ROWS: Final = 16
"""Maximum rows of a program."""

MOST_GROUPS: Final = 32
"""Maximum groups of lanes that take hits side by side: their sums are added up one after another."""

SUMS_BYTES: Final = 24 << 10
"""Bytes of shared memory for the sums of a program: with the list six programs are on a multiprocessor."""

BESIDE: Final = (2, 8)
"""Fewest and most rows that each group of lanes loads at once; most where a program has so many hits."""

LOADED_AT_ONCE: Final = 128
"""Maximum bytes of registers in which the rows arrive that a thread loads at once."""

ENOUGH: Final = 256
"""Programs that keep a GPU busy: rows are shared out up to there."""

REGISTERS: Final = 96
"""Maximum registers of a thread: five programs of 4 warps are on a multiprocessor then."""

LOADED: Final = 48 << 10
"""Bytes that a program is expected to load, above which rows are shared out to `MOST_PROGRAMS`: they take some 3 µs."""

MOST_PROGRAMS: Final = 1024
"""Programs up to which rows are shared out that are hit often."""

LONGEST: Final = 8192
"""Maximum positions of an index that every program looks through: a step of 2048 takes it 1.2 µs, and sorting blocks of
the index first some 3.3 µs (reckoned)."""

WORST: Final = 2 << 20
"""Maximum bytes of the source that one program adds if all positions hit one row: an eighth of a millisecond. Of more
the rows are added by blocks of the index, which share out such a row (`block_sums.py`)."""

COMPARISONS: Final = 1 << 24
"""Maximum positions times programs: about 7 µs of an H200's comparisons (predicted: 12 instructions for 32)."""

LOOKING: Final = (5, 2, 13_200)
"""(a, b, c): so many programs may look through an index of so many steps for rows that are not wide that
(a + b · steps) · programs is at most c. An H200 runs 660 programs at a time, for some 2.5 µs and one more a step; by
blocks of the index, where a program has more rows, all take 11 to 12 µs. 57 columns of 29,104 rows looked through 8192
positions for 17.6 µs."""

SMALL_BYTES: Final = 8 << 20
"""Bytes of a table up to which it is written anew where only some of its rows are hit."""

OFTEN: Final = (8, STEP, 32 << 20)
"""(rows for each position; positions; bytes of a table), up to which it is written anew though it is larger: to read
and to write it takes 18 µs, and to copy it first, as others do, as long, with five launches behind it by which only
those rows are read and written that are hit."""


@dataclass(frozen=True)
class Tiles:
    """How programs share the work; all are powers of two.

    Attributes:
        rows, columns: of the result, that a program owns.
        groups: of lanes, that take hits side by side.
        most_warps: of a program.
    """

    rows: int
    columns: int
    groups: int
    most_warps: int = field(default=WARPS, repr=False)

    @property
    def warps(self) -> int:
        """Warps of a program: no more than have an element each, as two warps with one element would add it twice."""
        return max(1, min(self.groups * self.columns // 32, self.most_warps))

    def vector(self, itemsize: int) -> int:
        """Neighbouring elements of so many bytes that a thread has."""
        return max(1, min(16 // itemsize, self.groups * self.columns // (32 * self.warps), self.columns))


def tiles_of(outer: int, rows: int, inner: int, count: int, itemsize: int, widest: int = WIDEST) -> Tiles:
    """Blocks for a table of these sizes with elements of so many bytes, `count` positions; `widest`: maximum columns.

    >>> tiles_of(1, 1500, 64, 3000, 4), tiles_of(1, 50304, 768, 512, 2)
    (Tiles(rows=4, columns=64, groups=8), Tiles(rows=16, columns=256, groups=1))
    """
    columns = min(columns_of(inner), widest)
    beside, size = -(-inner // columns) * outer, max(itemsize, 4)
    block = min(power_of_two(rows), MOST_ROWS)
    while block > 1 and -(-rows // block) * beside < ENOUGH:
        block //= 2
    while (block > 1 and expected_hits(block, rows, count) * columns * itemsize > LOADED
           and 2 * -(-rows // block) * beside <= MOST_PROGRAMS):
        block //= 2
    wanted = power_of_two(expected_hits(block, rows, count))
    fewest = min(max(WARPS * 32 // columns, 1), MOST_GROUPS)
    groups = max(min(WARPS * 32 * (16 // itemsize) // columns, MOST_GROUPS, wanted), fewest)
    while groups > fewest and block * columns * groups * size > SUMS_BYTES:
        groups //= 2
    return Tiles(block, columns, groups)


def expected_hits(block: int, rows: int, count: int) -> int:
    """Hits of a block of rows if all are hit alike."""
    return -(-count * block // max(rows, 1))


def register_bytes(inner: int, vector: int, itemsize: int) -> int:
    """Bytes of registers in which so many neighbouring elements of a row arrive. Where rows begin at odd places each is
    loaded by itself, and has a register until it is packed with its neighbour: with more of them than a thread has room
    for a load waited for the one before (20 waits of a program for 9: bfloat16 of 31 columns).

    >>> register_bytes(32, 4, 2), register_bytes(31, 4, 2), register_bytes(31, 4, 4)
    (8, 16, 16)
    """
    width = min(vector, twos(as_written(inner)))
    return vector // width * max(width * itemsize, 4)


def _tiles(base: Node, index: Node) -> Tiles:
    outer, rows, inner = (hint(size) for size in base.shape)
    tiles = tiles_of(outer, rows, inner, hint(index.type.numel), base.dtype.itemsize)
    programs, most_warps = FEW
    few = -(-rows // tiles.rows) * -(-inner // tiles.columns) * outer <= programs
    return replace(tiles, most_warps=most_warps) if few else tiles


def looked_through(base: Node, index: Node) -> bool:
    """Is the index so short, for such a table, that each program may look through it?"""
    tiles, count = _tiles(base, index), most(index.type.numel)
    outer, rows, inner = (most(size) for size in base.shape)
    programs = -(-rows // tiles.rows) * -(-inner // tiles.columns) * outer
    each, longest, nbytes = OFTEN
    often = hint(rows) <= each * hint(index.type.numel) and count <= longest
    whole = base.op.name == "const" or base.type.nbytes <= (nbytes if often else SMALL_BYTES)
    worst = count * min(inner, tiles.columns) * base.dtype.itemsize
    each, step, bound = LOOKING
    quickly = inner >= WIDE or (each + step * -(-count // LONGEST_STEP)) * programs <= bound
    return whole and count <= LONGEST and count * programs <= COMPARISONS and quickly and worst <= WORST


def is_turned(node: Node) -> bool:
    """Whether the table's rows lie as columns in memory."""
    return "turned" in node.op.attrs and node["turned"]


def sizes_of(node: Node) -> tuple[int, int, int]:
    """(outer, rows, inner) of the table that an op adds rows to."""
    outer, *others = node.shape[-3:] if node.type.ndim == 3 else (node.shape[0], *node.shape[-2:])
    rows, inner = reversed(others) if is_turned(node) else others
    return outer, rows, inner


def emit_row_sums(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a rows_summed."""
    base, index, added = node.inputs
    return RowSums(group, node, base, index, added, _tiles(base, index)).source()


class RowSums:
    """One kernel.

    Attributes:
        base: what rows are added to; None for zeros.
        length: rows of the result.
        many: how many positions a program looks through, as text.
        step: positions that it compares at a time.
        at_ease: hits that a warp may have listed before another step.
        listed: most hits of a warp's list.
        beside: rows that each group of lanes loads at once.
        vector: neighbouring elements of a row that a thread loads at once.
        registers: most of a thread; 0: no bound.
        each: elements of the sums that a thread takes at a time where they begin and end.
        beside_tritons: whether its shared memory lies behind Triton's own, with which it may be more than
            `shared_words.MOST_BYTES`.
    """

    registers = REGISTERS
    beside_tritons = False
    each = EACH

    def __init__(self, group: Group, node: Node, base: Node | None, index: Node, added: Node, tiles: Tiles,
                 step: int = LONGEST_STEP):
        self.group, self.node, self.base, self.added, self.tiles = group, node, base, added, tiles
        self.rows = Rows(group, (index,), index.type.ndim - 1)
        self.outer, self.length, self.inner = sizes_of(node)
        self.total, self.kind, self.size = sum_kind(node.dtype)
        self.operands, self.check = checked_outside(self.rows, self.length)
        self.many = self.rows.size
        self.to_int64 = ".to(tl.int64)" if any_needs_int64(node.type.numel, self.added.type.numel) else ""
        count, warps, itemsize = hint(index.type.numel), tiles.warps, added.dtype.itemsize
        self.step = min(max(power_of_two(count), STEP), step, 1024 * warps)
        self.at_ease = LISTED_AT_EASE
        self.listed = self.step // warps + self.at_ease
        self.sums = -(-warps * (self.listed + 1) * 4 // 16) * 16
        self.vector = tiles.vector(itemsize)
        hits = expected_hits(tiles.rows, hint(self.length), count)
        room = max(LOADED_AT_ONCE // register_bytes(self.inner, self.vector, itemsize), 1)
        self.beside = min(max(power_of_two(2 * hits // tiles.groups), BESIDE[0]), BESIDE[1], room)

    def source(self) -> KernelSource:
        """The finished kernel."""
        tiles = self.tiles
        nbytes = -(-(self.sums + self.sums_bytes) // 16) * 16
        helpers = "\n".join((words_helper(nbytes, beside=self.beside_tritons), *self.helpers_used))
        text = ["words = g_words()", f"blocks = {self.programs}", *self.owned(), *self.begun(), *self.listed_hits(),
                *self.ended()]
        sizes = {"XBLOCK": 1, "RBLOCK": self.step, "ROWS": tiles.rows, "COLUMNS": tiles.columns,
                 "GROUPS": tiles.groups, **self.sizes}
        found = self.rows.source(self.node.op.name, text, {"out": self.group.outputs[0]}, sizes,
                                 self.programs * self.outer, tiles.warps, helpers, inputs=self.exchanged,
                                 shared=nbytes if self.beside_tritons else 0)
        return replace(found, grid=(found.grid[0], -(-self.inner // tiles.columns), 1), registers=self.registers)

    @property
    def sums_bytes(self) -> int:
        """Bytes of shared memory for sums: those of each group of lanes."""
        return self.tiles.groups * self.tiles.rows * self.tiles.columns * self.size

    @property
    def helpers_used(self) -> tuple[str, ...]:
        """The functions of assembly that the kernel calls, but for that which gives it shared memory."""
        kinds = sorted({"s32", self.kind})
        return (*(helper(kind) for kind in kinds for helper in (put_helper, get_helper)),
                plus_helper(self.kind, self.vector),
                listed_helper(self.listed, self.tiles.warps, self.listed_at_a_time))

    @property
    def listed_at_a_time(self) -> int:
        """Positions of a thread that are listed at a time."""
        return min(self.step // (32 * self.tiles.warps), LISTED)

    @property
    def sizes(self) -> dict[str, int]:
        """Further sizes that the kernel's text names."""
        return {}

    @property
    def programs(self) -> int:
        """Programs for one of the outer sizes and one block of columns."""
        return -(-self.length // self.tiles.rows)

    @property
    def exchanged(self) -> dict[str, Exchange]:
        """Arguments by which programs hand over sums."""
        return {}

    def memory(self, operand: Node) -> str:
        """The argument that an operand in memory is."""
        return next(a.name for a in self.rows.kernel.arguments if a.role == "in"
                    and stored_as(a.node) is stored_as(operand))

    def spot(self, group: str, row: str) -> str:
        """Where the sum of a group's row and the program's columns is.

        A thread's neighbouring columns lie as many words apart as there are threads to a row, so that what a warp reads
        at a time lies in different banks.
        """
        near = f"near % {self.vector} * (COLUMNS // {self.vector}) + near // {self.vector}"
        return f"words + {self.sums} + ((({group}) * ROWS + {row}) * COLUMNS + {near}) * {self.size}"

    def begun(self) -> list[str]:
        """Which columns a program has; its sums are 0."""
        total = triton_type(self.total)
        return [
            f"outer = tl.program_id(0){self.to_int64} // blocks",
            "near = tl.arange(0, COLUMNS)[None, :]",
            f"column = tl.program_id(1){self.to_int64} * COLUMNS + near",
            f"row_of = tl.arange(0, {self.slice})[:, None]" if self.sliced else
            "row_near = tl.arange(0, ROWS)[:, None]",
            "group = tl.arange(0, GROUPS)[:, None]",
            *self.by_slices([
                "for g in tl.range(0, GROUPS):",
                f"    g_put_{self.kind}({self.spot('g', 'row_near')}, tl.zeros([{self.slice}, COLUMNS], {total}), "
                f"tl.full([{self.slice}, COLUMNS], 1, tl.int1))"]),
            *(f"count_{warp} = tl.full((), 0, tl.int32)" for warp in range(self.tiles.warps)),
            f"list_of = tl.arange(0, {self.tiles.warps})[None, :] * {4 * (self.listed + 1)}",
            "g_put_s32(words + list_of, list_of * 0, list_of >= 0)",
            "tl.debug_barrier()",  # the loop that follows, and the barriers in it, may make no turn
            *self.rows.x_lines("tl.full((), 0, tl.int32)"),
        ]

    def owned(self) -> list[str]:
        """Which rows a program has."""
        return [f"row_0 = tl.program_id(0){self.to_int64} % blocks * ROWS"]

    def looked_at(self) -> list[str]:
        """The next positions, whether they are there, and their rows."""
        negative = self.check is not None and self.check[1]
        wanted = f"tl.where(wanted < 0, wanted + {self.length}, wanted)"
        return [*self.rows.r_lines("begin"), *self.operands, f"wanted = {self.rows.names[0]}",
                f"row = {wanted if negative else 'wanted'}", *self.told(), "position = r"]

    def told(self) -> list[str]:
        """Each step is one program's to check: it tells of one number that is outside."""
        if self.check is None:
            return []
        size, negative, report = self.check
        return ["program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)",
                "if begin // RBLOCK % (tl.num_programs(0) * tl.num_programs(1)) == program:",
                f"    strange = tl.where(r_mask & ((row < 0) | (row >= {self.length})), wanted, 0).to(tl.uint64)",
                "    strangest = tl.max(strange, 1).to(tl.int64)",
                f"    g_in_range(strangest, {size}, {negative}, strangest != 0, {report})"]

    def listed_at(self, place: str) -> str:
        """The word in the warps' lists, one after another, that has this number."""
        before, at = "", f"({place})"
        for warp in range(self.tiles.warps - 1):
            before += f" + count_{warp}" if before else f"count_{warp}"
            at += f" + tl.where({place} >= {before}, {self.listed + 1} - count_{warp}, 0)"
        return f"g_get_s32(words + 4 + ({at}) * 4)"

    def listed_hits(self) -> list[str]:
        """Look through the index; whenever a list may be full, and at the end, the rows of the hits are added."""
        return [
            "begin = tl.full((), 0, tl.int32)",
            f"while begin < {self.many}:",
            "    fullest = tl.full((), 0, tl.int32)",
            f"    while (begin < {self.many}) & (fullest <= {self.at_ease}):",
            *(f"        {line}" for line in self.listed_step()),
            f"    found = {self.listed_in_all}",
            *(f"    {line}" for line in self.summed()),
            "    g_put_s32(words + list_of, list_of * 0, list_of >= 0)",
            "    tl.debug_barrier()",
        ]

    def listed_step(self) -> list[str]:
        """List the hits of a step; `fullest` is the longest list's number then."""
        warps = range(self.tiles.warps)
        fullest = "count_0"
        for warp in warps[1:]:
            fullest = f"tl.maximum({fullest}, count_{warp})"
        return [
            *self.looked_at(),
            "near_row = row - row_0",
            "here = r_mask & (near_row >= 0) & (near_row < ROWS)",
            "g_listed(words, position.to(tl.int32) * ROWS + near_row.to(tl.int32), here)",
            "begin += RBLOCK",
            "tl.debug_barrier()",
            *(f"count_{warp} = g_get_s32(words + {warp * 4 * (self.listed + 1)})" for warp in warps),
            f"fullest = {fullest}",
            "tl.debug_barrier()",  # the numbers have been read before they grow
        ]

    @property
    def listed_in_all(self) -> str:
        """How many hits all warps have listed."""
        return " + ".join(f"count_{warp}" for warp in range(self.tiles.warps))

    def summed(self) -> list[str]:
        """Add the rows of the next hits: all are loaded first."""
        total, log = triton_type(self.total), self.tiles.rows.bit_length() - 1
        source, size = self.memory(self.added), self.rows.size
        loads = [line for at in range(self.beside) for line in (
            f"place = first + {at} * GROUPS + group",
            f"here_{at} = place < found",
            "place = tl.minimum(place, found - 1)",
            f"word_{at} = {self.listed_at('place')}",
            f"from_row = {source} + ((outer * {size} + (word_{at}.to(tl.uint32) >> {log}).to(tl.int32))"
            f" * {self.inner} + column)",
            f"added_{at} = tl.load(from_row, mask=here_{at} & (column < {self.inner}), other=0)")]
        # Below the barrier no load sinks: without it the compiler has half of them wait for the first sums.
        adds = (line for at in range(self.beside) for line in (
            f"spot = {self.spot('group', f'(word_{at} & (ROWS - 1))')}",
            f"g_plus_{self.kind}(spot, added_{at}.to({total}), here_{at})"))
        return [f"for first in tl.range(0, found, GROUPS * {self.beside}):",
                *(f"    {line}" for line in (*loads, "tl.debug_barrier()", *adds))]

    def begins_at(self, rows: str = "ROWS") -> str:
        """What the sums of so many rows at a time are added to."""
        total = triton_type(self.total)
        if self.base is None or self.base.op.name == "const":
            first = literal(self.base["value"] if self.base is not None else 0, self.total)
            return f"tl.full([{rows}, COLUMNS], {first}, {total})"
        return f"tl.load({self.memory(self.base)} + at, mask=inside, other=0).to({total})"

    def place(self) -> list[str]:
        """Where the program's part of the result is, and which of it there is."""
        at = (f"(outer * {self.inner} + column) * {self.length} + row" if is_turned(self.node) else
              f"(outer * {self.length} + row) * {self.inner} + column")
        return ["row = row_0 + row_near", f"inside = (row < {self.length}) & (column < {self.inner})", f"at = {at}"]

    def waited(self) -> list[str]:
        """What comes before the sums go to memory."""
        return []

    def more(self) -> list[str]:
        """What else is added."""
        return []

    def handed_over(self) -> list[str]:
        """What else is written."""
        return []

    def ended(self) -> list[str]:
        """The sums go to memory."""
        return [*self.waited(), *self.by_slices([
            *self.place(), f"total = {self.begins_at(str(self.slice))}", *self.more(),
            "for g in tl.range(0, GROUPS):",
            f"    total += g_get_{self.kind}({self.spot('g', 'row_near')})",
            f"tl.store(out + at, total.to({triton_type(self.node.dtype)}), mask=inside)", *self.handed_over()])]

    @property
    def slice(self) -> int:
        """Rows whose sums are in registers at a time where they begin and end."""
        return max(1, min(self.tiles.rows, self.each * 32 * self.tiles.warps // self.tiles.columns))

    @property
    def sliced(self) -> bool:
        """Whether a program's rows begin and end some at a time."""
        return self.slice < self.tiles.rows

    def by_slices(self, lines: list[str]) -> list[str]:
        """Lines that are for some rows, `row_near`, as lines for all of the program's."""
        if not self.sliced:
            return lines
        return [f"for near_0 in tl.range(0, ROWS, {self.slice}):", "    row_near = near_0 + row_of",
                *(f"    {line}" for line in lines)]
