"""Rows added to a table by programs that put their hits into the order of their rows, and add a row up in registers.

A program lists what hits its rows as `row_sums.py` does. Then its warps rank what they have listed by row, as a step of
a sort does by a digit, and `groups` of lanes have equal stretches of the ordered hits: whatever the index, each has as
much to do as any other. A group loads the source's rows one after another and adds them in registers as long as the row
of the table is the same; what it has then goes to shared memory, where each row has one sum.

A row whose hits lie in several stretches is the group's in which they begin. The others leave what they have of it
beside the sums, each in a place of its own, and that group adds these in the order of the groups. So no sum is written
by two groups, and every bit is the same in each run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.templates.group_sums import Words
from genesis.codegen.cuda.templates.row_sums import (
    BESIDE,
    ENOUGH,
    LISTED_AT_EASE,
    REGISTERS,
    STEP,
    WARPS,
    WIDEST,
    Tiles,
    expected_hits,
    is_turned,
    register_bytes,
)
from genesis.codegen.cuda.templates.segments import columns_of
from genesis.codegen.cuda.templates.shared_words import ended_helper, get_helper, put_helper, ranked_helper
from genesis.ir.node import Node
from genesis.passes.groups import Group

THREADS: Final = 32 * WARPS
"""Threads of a program."""

MOST_ROWS: Final = 256
"""Maximum rows of a program: each warp counts its hits by row."""

MOST_NARROW_ROWS: Final = 1024
"""Maximum rows of a program if they have no more than `NARROW` elements: single elements are hit as rarely as rows."""

NARROW: Final = 4
"""Maximum elements of rows that are `MOST_NARROW_ROWS` a program."""

SUMS_BYTES: Final = 16 << 10
"""Bytes of shared memory for the sums of a program: with its lists six programs are on a multiprocessor."""

RARELY: Final = 64
"""Hits of a program up to which it may have twice as many rows, in twice as many bytes: to find its hits takes it
longer than to add them."""

MANY_HITS: Final = 1000
"""Hits of a program above which rows are shared out to more programs, up to `MOST_PROGRAMS`: about as many as are found
in a step. With the 1024 that the class of 500,000 of bfloat16[20000, 32] has in 64 rows, two programs were on a
multiprocessor that has room for five, and took 48.6 µs (H200; 36 predicted with 32 rows)."""

MOST_PROGRAMS: Final = 2048
"""Programs up to which rows are shared out that are hit often."""

SIXTH: Final = 33_600
"""Bytes of shared memory of a program of which six are on a multiprocessor, if Triton's own are 4 KiB."""

FEW_REGISTERS: Final = (1 << 16) // (6 * THREADS) // 8 * 8
"""Maximum registers of a thread where shared memory has room for six programs; else `REGISTERS`, for five."""

ENOUGH_EACH: Final = 16
"""Minimum hits of a group of lanes for these to load eight elements of 16 bits each: with four there are half as many
groups, and so fewer rows that lie in several (H200, 100,000 of bf16[20439, 32]: 12.8 µs for 14.0 at ten hits)."""

SHORT_ROW: Final = 4
"""Hits of a row below which two groups of a warp often come to the end of one at once."""

MARGIN: Final = 16
"""Hits that a warp may have listed before its last step beside those expected and a quarter more."""

LOADED: Final = 64
"""Bytes of the source's rows that a thread has asked for at once: more of them spill."""

EACH: Final = 16
"""Elements of the sums that a thread takes at a time where they begin and end."""


@dataclass(frozen=True)
class OrderedTiles(Tiles):
    """How programs share the work, where all have the same number of warps."""

    @property
    def warps(self) -> int:
        return WARPS

    def vector(self, itemsize: int) -> int:
        return self.groups * self.columns // THREADS


def ordered_tiles(outer: int, rows: int, inner: int, count: int, itemsize: int, odd: bool = False) -> OrderedTiles:
    """Blocks for a table of these sizes with elements of so many bytes, `count` positions; `odd`: rows begin where no
    two elements are loaded at once.

    >>> ordered_tiles(1, 20_000, 32, 500_000, 2), ordered_tiles(1, 900_000, 32, 262_144, 4)
    (OrderedTiles(rows=32, columns=32, groups=32), OrderedTiles(rows=256, columns=32, groups=16))
    """
    columns, size = min(columns_of(inner), WIDEST), max(itemsize, 4)
    beside = -(-inner // columns) * outer
    block = min(power_of_two(rows), MOST_NARROW_ROWS if columns <= NARROW else MOST_ROWS)
    rarely = expected_hits(max(SUMS_BYTES // (columns * size), 1), rows, count) <= RARELY
    while block > 1 and block * columns * size > (2 * SUMS_BYTES if rarely else SUMS_BYTES):
        block //= 2
    while block > 1 and -(-rows // block) * beside < ENOUGH:
        block //= 2
    while (block > 1 and expected_hits(block, rows, count) > MANY_HITS
           and 2 * -(-rows // block) * beside <= MOST_PROGRAMS):
        block //= 2
    groups = THREADS * min(16 // size, columns) // columns
    enough = expected_hits(block, rows, count) >= 2 * groups * ENOUGH_EACH
    if enough and not odd and itemsize < size and columns >= 16 // itemsize:
        groups *= 2
    return OrderedTiles(block, columns, groups)


class OrderedHits(Words):
    """A kernel whose programs add their hits up in the order of their rows.

    Attributes:
        short_rows: whether rows have so few hits that groups of a warp often end one at once.
        at_ease: hits that a warp may have listed before another step.
        ordered_at: where the hits lie in order, in shared memory.
        counters_at: where each warp counts the hits of each row; a counter more is for lanes without one.
        numbers_at: where the number of each hit among its row's is, 16 bits, in the order of the lists.
    """

    registers = REGISTERS
    beside_tritons = True

    def __init__(self, group: Group, node: Node, base: Node | None, words: Node, source: Node, tiles: Tiles,
                 hits: int, looked_at: int):
        """`hits` are those of a program, of so many words that are `looked_at`, if rows are hit alike."""
        super().__init__(group, node, base, words, source, tiles, STEP // WARPS * tiles.warps)
        warps = tiles.warps
        self.short_rows = hits < SHORT_ROW * tiles.rows
        steps = -(-(looked_at + looked_at // 8) // self.step)
        before_last = hits * self.step * (steps - 1) // max(looked_at, 1) // warps
        self.at_ease = min(before_last + before_last // 4 + MARGIN, LISTED_AT_EASE) if steps > 1 else 0
        self.listed = self.step // warps + self.at_ease
        loaded = register_bytes(self.inner, self.vector, source.dtype.itemsize)
        self.beside = min(max(power_of_two(2 * hits // tiles.groups), BESIDE[0]), BESIDE[1], LOADED // loaded)
        self.laid_out(warps * (self.listed + 1) * 4)

    def laid_out(self, ordered_at: int) -> None:
        """Give what ordering takes its places in shared memory, behind so many bytes; sums come behind it."""
        warps, tiles = self.tiles.warps, self.tiles
        self.ordered_at = ordered_at
        behind = tiles.groups + BESIDE[1]  # hits that are read past the last one, for nothing
        self.counters_at = self.ordered_at + (warps * self.listed + behind) * 4
        self.numbers_at = self.counters_at + warps * (tiles.rows + 1) * 4
        self.sums = -(-(self.numbers_at + warps * self.listed * 2) // 16) * 16

    @property
    def sums_bytes(self) -> int:
        """A sum for each row, and what each group has of a row that began before its hits."""
        return (self.tiles.rows + self.tiles.groups) * self.stride

    @property
    def sizes(self) -> dict[str, int]:
        return {"THREADS": 32 * self.tiles.warps}

    @property
    def helpers_used(self) -> tuple[str, ...]:
        return (*super().helpers_used, put_helper("u16"), get_helper("u16"),
                ended_helper(self.kind, self.vector, self.stride), ranked_helper(self.tiles.rows.bit_length()))

    @property
    def stride(self) -> int:
        """Bytes from one slot's sums to the next one's. Where most hits end a row, what a warp's groups write at a time
        lies in other banks, unless a program has twice as many rows as others, and needs the room."""
        columns, lanes = self.tiles.columns, self.tiles.columns // self.vector
        if is_turned(self.node):  # what a warp writes to memory is of neighbouring rows
            return (columns + 1) * self.size
        apart = self.vector > 1 and self.short_rows and self.tiles.rows * columns * self.size <= SUMS_BYTES
        return (columns + lanes if apart else columns) * self.size

    def spot_of(self, slot: str) -> str:
        """Where the sums of a row are, of each of the program's columns, or behind all rows those of a group.

        A thread's neighbouring columns lie as many words apart as there are threads to a row, so that what a warp reads
        at a time lies in different banks.
        """
        return f"sums + ({slot}) * {self.stride}"

    @property
    def slice(self) -> int:
        """Rows whose sums are in registers at a time where they begin and end."""
        return max(1, min(self.tiles.rows, EACH * 32 * self.tiles.warps // self.tiles.columns))

    def begun(self) -> list[str]:
        """Which columns a program has; its sums are 0."""
        lanes = self.tiles.columns // self.vector
        return [
            f"outer = tl.program_id(0){self.to_int64} // blocks",
            "near = tl.arange(0, COLUMNS)[None, :]",
            f"column = tl.program_id(1){self.to_int64} * COLUMNS + near",
            f"sums = words + {self.sums} + (near % {self.vector} * {lanes} + near // {self.vector}) * {self.size}",
            "group = tl.arange(0, GROUPS)[:, None]",
            "lane = tl.arange(0, THREADS)[None, :]",
            f"row_of = tl.arange(0, {self.slice})[:, None]",
            *self.sums_begun(),
            *(f"count_{warp} = tl.full((), 0, tl.int32)" for warp in range(self.tiles.warps)),
            f"list_of = tl.arange(0, {self.tiles.warps})[None, :] * {4 * (self.listed + 1)}",
            f"counter = (tl.arange(0, {self.tiles.warps})[:, None] * (ROWS + 1) + tl.arange(0, ROWS)[None, :]) * 4",
            "g_put_s32(words + list_of, list_of * 0, list_of >= 0)",
            "tl.debug_barrier()",
            *self.rows.x_lines("tl.full((), 0, tl.int32)"),
        ]

    def sums_begun(self) -> list[str]:
        """All sums are 0."""
        return [f"for near_0 in tl.range(0, ROWS, {self.slice}):",
                f"    g_put_{self.kind}({self.spot_of('near_0 + row_of')}, tl.zeros([{self.slice}, COLUMNS], "
                f"{triton_type(self.total)}), tl.full([{self.slice}, COLUMNS], 1, tl.int1))"]

    def summed(self) -> list[str]:
        """Put the listed hits into order, and add their rows."""
        return [*self.ordered(), *self.added_in_order(), *self.joined()]

    def ordered(self) -> list[str]:
        """The hits of all lists in the order of their rows: each warp gives its own numbers by row, and then places
        them."""
        counters = f"(words + {self.counters_at} + lane // 32 * (4 * (ROWS + 1)))"
        listed = ["for first in tl.range(0, fullest, 32):",
                  "    here = first + lane % 32 < own",
                  "    word = g_get_s32(list + 4 * (first + lane % 32))"]
        return [
            f"g_put_s32(words + {self.counters_at} + counter, counter * 0, counter >= 0)",
            *self.slots_begun(),
            "tl.debug_barrier()",
            f"own = g_get_s32(words + lane // 32 * {4 * (self.listed + 1)})",
            f"list = words + 4 + lane // 32 * {4 * (self.listed + 1)}",
            f"numbers = words + {self.numbers_at} + lane // 32 * {2 * self.listed}",
            *listed,
            f"    rank = g_ranked(tl.where(here, word & (ROWS - 1), ROWS), {counters})",
            "    g_put_u16(numbers + 2 * (first + lane % 32), rank, here)",
            "tl.debug_barrier()",
            f"times = g_get_s32(words + {self.counters_at} + counter)",
            "of_row = tl.sum(times, 0)",
            "starts = (tl.cumsum(of_row, 0) - of_row)[None, :] + tl.cumsum(times, 0) - times",
            "tl.debug_barrier()",
            f"g_put_s32(words + {self.counters_at} + counter, starts, counter >= 0)",
            "tl.debug_barrier()",
            *listed,
            "    rank = g_get_u16(numbers + 2 * (first + lane % 32))",
            f"    place = rank + g_get_s32({counters} + 4 * (word & (ROWS - 1)))",
            f"    g_put_s32(words + {self.ordered_at} + place * 4, word, here)",
            "tl.debug_barrier()",
        ]

    def slots_begun(self) -> list[str]:
        """What groups have of rows that began before is 0."""
        return [f"g_put_{self.kind}({self.spot_of('ROWS + group')}, tl.zeros([GROUPS, COLUMNS], "
                f"{triton_type(self.total)}), tl.full([GROUPS, COLUMNS], 1, tl.int1))"]

    def hit(self, place: str) -> str:
        """The hit at a place of the order."""
        return f"g_get_s32(words + {self.ordered_at} + ({place}) * 4)"

    def row(self, place: str) -> str:
        """The row of the hit at a place of the order."""
        return f"{self.hit(place)} & (ROWS - 1)"

    def added_in_order(self) -> list[str]:
        """Each group adds up its stretch of the hits; what a row has goes to its slot when the next row begins.

        What a hit is compared with is read, not kept from turn to turn: the compiler keeps and reckons it twice, for
        the threads that load and for those that add.
        """
        total, log = triton_type(self.total), self.tiles.rows.bit_length() - 1
        source, wide = self.memory(self.added), self.to_int64
        loads = [line for at in range(self.beside) for line in (
            f"here_{at} = first + {at} < mine",
            f"word_{at} = {self.hit(f'begun_at + first + {at}')}",
            f"from_row = from_column + (word_{at}.to(tl.uint32) >> {log}).to(tl.int32){wide} * {self.inner}",
            f"added_{at} = tl.load(from_row, mask=here_{at} & (column < {self.inner}), other=0)",
            f"own_{at} = word_{at} & (ROWS - 1)")]
        rows = ["previous", *(f"own_{at}" for at in range(self.beside))]
        ends = [f"ends = here_{at} & (own_{at} != {row})" for at, row in enumerate(rows[:-1])]
        ends[0] += " & (first > 0)"
        return [
            "each = (found + (GROUPS - 1)) // GROUPS",
            "begun_at = group * each",
            "mine = tl.minimum(found - begun_at, each)",
            f"first_row = {self.row('tl.minimum(begun_at, found - 1)')}",
            f"last_row = {self.row('tl.minimum(begun_at + tl.maximum(mine, 1), found) - 1')}",
            f"goes_on = (begun_at >= found) | ({self.start('first_row')} < begun_at)",
            *self.destined(),
            f"from_column = {source} + (outer * ({self.rows.size} * {self.inner}) + column)",
            f"total = tl.zeros([GROUPS, COLUMNS], {total})",
            f"for first in tl.range(0, each, {self.beside}):",
            f"    previous = {self.row('begun_at + first - 1')}",
            *(f"    {line}" for line in loads),
            "    tl.debug_barrier()",  # below it no load sinks: half of them would wait for the first sums
            *(f"    {line}" for at, ended in enumerate(ends) for line in (
                ended,
                f"total = {self.put_by(rows[at], 'ends')} + added_{at}.to({total})")),
        ]

    def start(self, row: str) -> str:
        """The place in the order of the first hit of a row and those that follow; the first warp's are the first."""
        return f"g_get_s32(words + {self.counters_at} + ({row}) * 4)"

    def put_by(self, row: str, wanted: str) -> str:
        """What is left of `total` when that of rows which end has gone to their slots."""
        return f"g_ended_{self.kind}({row}, first_row, first_slot, sums, total, {wanted})"

    def destined(self) -> list[str]:
        """Where the sums of each group's first row go, which may have begun before."""
        return ["first_slot = tl.where(goes_on, ROWS + group, first_row)"]

    def joined(self) -> list[str]:
        """The last row of each stretch: what began before goes beside the sums, and is added where it began."""
        return [
            "began = (goes_on == 0) | (last_row != first_row)",
            f"total = {self.put_by('last_row', 'began == 0')}",
            "tl.debug_barrier()",
            f"end = tl.where(last_row + 1 < ROWS, {self.start('last_row + 1')}, found)",
            "following = tl.where(began, (end - 1) // each - group, 0)",  # groups that begin within this one's last row
            "for further in tl.range(1, tl.max(following) + 1):",
            f"    part = g_get_{self.kind}({self.spot_of('ROWS + tl.minimum(group + further, GROUPS - 1)')})",
            "    total += tl.where(further <= following, part, 0)",
            f"total = {self.put_by('last_row', 'began')}",
            "tl.debug_barrier()",
        ]

    def ended(self) -> list[str]:
        """The sums go to memory, some rows at a time."""
        return [
            *self.waited(),
            f"for near_0 in tl.range(0, ROWS, {self.slice}):",
            *(f"    {line}" for line in (
                "row_near = near_0 + row_of",
                *self.place(),
                f"total = {self.begins_at(str(self.slice))}",
                *self.more(),
                f"total += g_get_{self.kind}({self.spot_of('row_near')})",
                f"tl.store(out + at, total.to({triton_type(self.node.dtype)}), mask=inside)",
                *self.handed_over()))]

    def waited(self) -> list[str]:
        """Wait for what others add."""
        return []

    def handed_over(self) -> list[str]:
        """What else is done with `total`, the sums of some rows."""
        return []
