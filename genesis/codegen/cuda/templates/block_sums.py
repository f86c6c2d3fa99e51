"""Rows added to a table by an index whose blocks are in the order of bins (`ir/ops/block_rows.py`), in one launch.

A program has the rows of some bins, or some of one bin's. A table tells it where the bins lie in each block; it looks
through these pieces, one behind the other, for its rows, puts its hits into the order of the rows and adds these up
(`ordered_hits.py`).

A bin that is hit so often that it fills *shares* of the sorted positions is added up by others: programs of lower
numbers, which find the bin that their share lies in and hand over its sums. The bin's own programs have what is left,
wait for the shares and add them in their order. So a row that every position hits is shared out like any other, and no
bit depends on who comes first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.source import Exchange, KernelSource
from genesis.codegen.cuda.templates.group_sums import Words
from genesis.codegen.cuda.templates.ordered_hits import FEW_REGISTERS, SHORT_ROW, SIXTH, OrderedHits, ordered_tiles
from genesis.codegen.cuda.templates.row_sums import (
    BESIDE,
    EACH,
    MOST_ROWS,
    REGISTERS,
    STEP,
    WARPS,
    WIDEST,
    expected_hits,
    is_turned,
    sizes_of,
    tiles_of,
)
from genesis.codegen.cuda.templates.written_rows import KINDS, MOST_ORDERED, WrittenRows, written_tiles
from genesis.codegen.cuda.templates.written_rows import REGISTERS as WRITTEN_REGISTERS
from genesis.ir.node import Node
from genesis.ir.ops.block_rows import WIDE, written_at_once
from genesis.ir.place import EXCHANGE_BYTES, EXCHANGE_FLAGS
from genesis.ir.size_divisors import twos
from genesis.ir.sym_int import as_written, hint, most
from genesis.ir.types import int32, tensor_type
from genesis.passes.groups import Group

SHARE: Final = 4096
"""Maximum of the positions that a share has at least: a program that all of them hit ranks them in some 5 µs."""

SHARE_ELEMENTS: Final = 1 << 17
"""Elements of the source that a share has at least, up to `SHARE`: a program adds them in some 10 µs (reckoned)."""

WIDEST_BYTES: Final = 2048
"""Maximum bytes of a program's sums of a wide row: with 16 of them five programs are on a multiprocessor. To find its
hits takes a program longer than to add their rows, so that the 300 columns of a row in two programs, of which one has
256 and the other 44, take twice the time of one (H200, 32,116 of bfloat16[16058, 300] 41.6 and 21.3 µs)."""

FEW_SINGLES: Final = 16
"""Hits of a program up to which rows of odd lengths are as wide: of more, eight at once, elements that come one by one
have no room (H200, 4096 of bfloat16[20639, 967] with the look-up 95 µs in four programs for 16 rows, 47 in two)."""

EACH_SINGLE: Final = 8
"""Elements of such rows that a thread takes at a time where sums begin and end: each has an address of its own."""

MOST_BESIDE: Final = 4
"""Maximum neighbouring columns of a thread: of eight rows with eight each there is no room for what is loaded and where
it goes (H200, 39,354 of float16[3928, 300] with their look-up, 107 instructions that move registers to memory and back:
87.0 µs, and 32.1 so)."""

ROUNDS: Final = 16
"""Minimum rounds of hits of wide rows, of 1.2 µs each, that a share takes if all its positions hit one program's."""

SHORT_ROWS_WIDTH: Final = 128
"""Maximum elements of wide rows that are put in order where they have few hits (`SHORT_ROW`): then to find these takes
most of the time, and a program finds those of four times as many rows."""

SHARED_BINS: Final = 4
"""Shares that a bin must have, if all bins are hit alike, for them to be shared at all; else shares are larger."""

MOST_HELPERS: Final = 256
"""Programs for shares that cost little: each reads a good part of the table to find its bin, and where all bins are hit
alike it has nothing to do. Shares are larger if there would be more, unless they are fewer than `FEWEST_SHARES`."""

FEWEST_SHARES: Final = 4
"""Shares that must be to be had, or bins are not shared: then so many programs have a part of each bin's rows or
columns that a bin that everything hits keeps a GPU busy."""


def emit_block_sums(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a block_sums: hits in the order of their rows, where several have room in a warp."""
    if (written := _written(group, node)) is not None:
        return written.source()
    _, rows, inner = map(hint, sizes_of(node))
    count = hint(node.inputs[1].type.numel)
    wide = inner >= WIDE and (inner > SHORT_ROWS_WIDTH or count >= SHORT_ROW * rows)
    return _WideSums(group, node).source() if wide else _OrderedSums(group, node).source()


def _written(group: Group, node: Node) -> _WrittenSums | None:
    """The kernel whose programs write a row when it ends, where zeros are added to and a program's hits have room."""
    base, words = node.inputs[:2]
    _, rows, inner = sizes_of(node)
    zeros = base.op.name == "const" and base["value"] == 0 and not is_turned(node) and node.dtype in KINDS
    if not zeros or not written_at_once(rows, inner, words.type.numel):
        return None
    found = _WrittenSums(group, node)
    return found if found.most_hits <= MOST_ORDERED else None


def share_of(count: int, bins: int, programs: int, nbytes: int, least: int) -> int:
    """Positions of a share; 0 where there are none.

    Args:
        count: positions of the index.
        bins: that rows are in.
        programs: that one share is for, each of which hands over so many bytes.
        least: positions of a share, a power of two.

    >>> share_of(100_000, 160, 4, 4096, 1024), share_of(100_000, 10, 1, 1024, 512), share_of(1000, 9, 4, 4096, 1024)
    (2048, 512, 0)
    """
    fitting = min(EXCHANGE_FLAGS, (EXCHANGE_BYTES - 4 * EXCHANGE_FLAGS) // nbytes) // programs
    if fitting < FEWEST_SHARES:
        return 0
    share, alike = least, count // bins
    helped = min(fitting, max(MOST_HELPERS // programs, FEWEST_SHARES))
    while share * helped < count or (share < 2 * alike < 2 * SHARED_BINS * least):
        share *= 2
    return share if share < count else 0


class _BlockSums(Words):
    """One kernel; how it adds its hits is said by those below.

    Attributes:
        block: of `block_rows.words_by_block`.
        bits: of a row's number within the bins that a program looks through.
        bins: which these are, of those of `block_rows.words_by_block`: so many are as one.
        several: programs that have these bins' rows.
        share, shares: positions of a share and how many there may be; 0 where no bin is shared.
    """

    def found_in_blocks(self, least: int) -> None:
        """Have bins' pieces of blocks, and programs for shares of at least so many positions."""
        _, words, self.ends, _ = self.node.inputs
        rows, self.block = self.tiles.rows.bit_length() - 1, self.node["block"]
        self.bits = max(self.node["bits"], rows)
        self.bins, self.digit = 1 << (self.bits - self.node["bits"]), self.ends.shape[0].bit_length() - 1
        self.many = "many"
        self.pieces = power_of_two(most(self.ends.shape[1]))
        self.several = (1 << self.bits) // self.tiles.rows
        beside = self.several * most(self.outer) * -(-most(self.inner) // self.tiles.columns)
        bins = -(-most(self.length) // (1 << self.bits))
        self.share = share_of(most(words.type.numel), bins, beside, self.tiles.rows * self.tiles.columns * self.size,
                              least)
        self.shares = most(words.type.numel) // self.share if self.share else 0
        self.pieces_at = self.sums
        self.sums += max(8 * self.pieces, 16)

    @property
    def helpers(self) -> int:
        """Programs for shares, for one of the outer sizes and one block of columns."""
        return self.shares * self.several

    @property
    def programs(self) -> int:
        return self.helpers + super().programs

    @property
    def exchanged(self) -> dict[str, Exchange]:
        if not self.share:
            return {}
        device, parts = self.node.type.device, (EXCHANGE_BYTES - 4 * EXCHANGE_FLAGS) // self.size
        return {"flags": Exchange(0, tensor_type((EXCHANGE_FLAGS,), int32, device)),
                "parts": Exchange(4 * EXCHANGE_FLAGS, tensor_type((parts,), self.total, device))}

    def owned(self) -> list[str]:
        """The program's rows, and which of their bin's positions it looks through: all but the whole shares."""
        first = self.node["bits"]
        bin_of = f"bin_0 = (row_0 >> {first}).to(tl.int32)"
        if not self.share:
            return [*super().owned(), bin_of, *self.found_pieces(), "before = hits", "tail = hits", "many = hits"]
        return [
            "program = tl.program_id(0) % blocks",
            f"helps = program < {self.helpers}",
            f"row_0 = (program - {self.helpers}){self.to_int64} * ROWS",
            bin_of,
            f"share_0 = program // {self.several} * {self.share}",
            f"if helps & (share_0 + {self.share} > {self.rows.size}):",
            "    return",
            "if helps:",
            *(f"    {line}" for line in self.found_bin()),
            f"    row_0 = bin_0{self.to_int64} * {1 << first} + program % {self.several} * ROWS",
            *self.found_pieces(),
            f"if helps & ((row_0 >= {self.length}) | (share_0 + {self.share} > start + hits)):",  # nobody waits for it
            "    return",
            f"chunk_0 = (start + {self.share - 1}) // {self.share}",
            f"chunk_1 = tl.maximum((start + hits) // {self.share}, chunk_0)",
            f"before = tl.where(chunk_0 < chunk_1, chunk_0 * {self.share} - start, hits)",
            f"tail = tl.where(chunk_0 < chunk_1, chunk_1 * {self.share} - start, hits)",
            "many = before + hits - tail",
            "before = tl.where(helps, 0, before)",
            "tail = tl.where(helps, share_0 - start, tail)",
            f"many = tl.where(helps, {self.share}, many)",
        ]

    def found_bin(self) -> list[str]:
        """The bin in which a share begins: the first that ends behind it, found by the bits of its number, half of them
        at a time."""
        ends, blocks = self.memory(self.ends), self.ends.shape[1]
        several, low = min(self.pieces, 64), self.digit // 2
        lines = ["bin_0 = tl.full((), 0, tl.int32)", f"place = tl.arange(0, {several})[None, :]"]
        for step, bits in ((low, self.digit - low), (0, low)):
            lines += [f"bin = bin_0 + (tl.arange(0, {1 << bits})[:, None] << {step}) + {(1 << step) - 1}",
                      f"ended = tl.zeros([{1 << bits}], tl.int32)",
                      f"for places in tl.static_range(0, {self.pieces}, {several}):",
                      f"    ended += tl.sum(tl.load({ends} + bin * {blocks} + (places + place), "
                      f"mask=places + place < {blocks}, other=0), 1)",
                      f"bin_0 += tl.sum((ended <= share_0).to(tl.int32)) << {step}"]
        return [*lines, *([f"bin_0 = bin_0 // {self.bins} * {self.bins}"] if self.bins > 1 else [])]

    def found_pieces(self) -> list[str]:
        """The pieces of the bins in all blocks: where the words of each end in the row of all, and where they lie."""
        ends, blocks = self.memory(self.ends), self.ends.shape[1]
        at = f"{ends} + (bin_0 * {blocks} + piece)"
        last = f"{at} + {(self.bins - 1)} * {blocks}" if self.bins > 1 else at
        return [f"piece = tl.arange(0, {self.pieces})",
                f"ended = tl.load({last}, mask=piece < {blocks}, other=0)",
                f"begun = tl.load({at} - {blocks}, mask=(piece < {blocks}) & (bin_0 > 0), other=0)",
                "piece_end = tl.cumsum(ended - begun, 0)",
                "start = tl.sum(begun)",
                "hits = tl.sum(ended) - start",
                f"g_put_s32(words + {self.pieces_at} + piece * 4, piece_end, piece >= 0)",
                f"g_put_s32(words + {self.pieces_at + 4 * self.pieces} + piece * 4, "
                f"piece * {self.block} + ended - piece_end, piece >= 0)"]

    def looked_at(self) -> list[str]:
        """The next words of the bin: each finds its piece by halves."""
        halves = [1 << k for k in reversed(range(self.pieces.bit_length() - 1))]
        return ["near_r = begin + tl.arange(0, RBLOCK)[None, :]",
                "r_mask = near_r < many",
                "near_r = tl.where(r_mask, near_r + tl.where(near_r < before, 0, tail - before), 0)",
                f"spot = near_r * 0 + (words + {self.pieces_at})",  # an address: a half takes three instructions
                *(f"spot += tl.where(g_get_s32(spot + {4 * half - 4}) <= near_r, {4 * half}, 0)" for half in halves),
                f"r = near_r + g_get_s32(spot + {4 * self.pieces})",
                *self.words_at()]

    def place(self) -> list[str]:
        """Where the program's rows are; a program for a share writes none of them."""
        found = super().place()
        return [*found, "inside &= ~helps"] if self.share else found

    def waiting(self) -> list[str]:
        """Wait for the programs for shares of the bin: all have begun before this one."""
        return ["shares = tl.where(helps, 0, chunk_1 - chunk_0)",
                f"next_share = {self.several} * tl.num_programs(1)",
                f"tile = (row_0 // ROWS % {self.several}).to(tl.int32)",
                f"number = {self.number(f'tl.where(helps, program, chunk_0 * {self.several} + tile)')}",
                "if shares > 0:",
                *(f"    {line}" for line in (
                    # one for every thread
                    f"each = tl.arange(0, {max(power_of_two(self.shares), 32 * self.tiles.warps)})",
                    "flag = flags + (number + each * next_share)",
                    "ready = tl.full((), 0, tl.int32)",
                    "while ready < shares:",
                    '    seen = tl.atomic_add(flag, 0, mask=each < shares, sem="acquire", scope="gpu")',
                    "    ready = tl.sum(tl.where(each < shares, seen, 0))",
                    "tl.debug_barrier()",
                    'tl.atomic_xchg(flag, 0, mask=each < shares, sem="relaxed", scope="gpu")'))]

    def shares_added(self, unrolled: int) -> list[str]:
        """Add what the programs for shares of the bin have added up, in their order."""
        return [f"for s in tl.range(0, shares, loop_unroll_factor={unrolled}):",
                f"    total += tl.load({self.part('(number + s * next_share)')}, volatile=True)"]

    def handing_over(self) -> list[str]:
        """The sums of a share are for the program that waits for them."""
        return [f"tl.store({self.part('number')}, total, mask=helps & (row_near >= 0) & (near >= 0))"]

    def number(self, program: str) -> str:
        """The number of a program for a share, of this one's outer size and columns, among all."""
        return f"((outer * {self.helpers} + {program}) * tl.num_programs(1) + tl.program_id(1)).to(tl.int32)"

    @staticmethod
    def part(number: str) -> str:
        """Where the sums of the program for a share with this number are."""
        return f"parts + ({number} * (ROWS * COLUMNS) + row_near * COLUMNS + near)"

    def ended(self) -> list[str]:
        """The sums go to memory, those of a share to the program that waits for them."""
        if not self.share:
            return super().ended()
        return [*super().ended(),
                "if helps:",
                "    tl.debug_barrier()",
                '    tl.atomic_xchg(flags + number, 1, sem="release", scope="gpu")']


class _OrderedSums(_BlockSums, OrderedHits):
    """Hits are put into the order of their rows."""

    def __init__(self, group: Group, node: Node):
        base, words, _, source = node.inputs
        outer, rows, inner = map(hint, sizes_of(node))
        count = hint(words.type.numel)
        odd = twos(as_written(sizes_of(node)[2])) == 1
        tiles = ordered_tiles(outer, rows, inner, count, node.dtype.itemsize, odd)
        hits, several = expected_hits(tiles.rows, rows, count), max((1 << node["bits"]) // tiles.rows, 1)
        super().__init__(group, node, base, words, source, tiles, hits, hits * several)
        self.found_in_blocks(min(SHARE, SHARE_ELEMENTS // tiles.columns))
        if self.sums + self.sums_bytes <= SIXTH:
            self.registers = FEW_REGISTERS

    def waited(self) -> list[str]:
        return self.waiting() if self.share else []

    def more(self) -> list[str]:
        return self.shares_added(4) if self.share else []

    def handed_over(self) -> list[str]:
        return self.handing_over() if self.share else []


class _WrittenSums(_BlockSums, WrittenRows):
    """Hits are put into the order of their rows, and a row is written when it ends.

    Attributes:
        most_hits: of a program.
    """

    def __init__(self, group: Group, node: Node):
        base, words, _, source = node.inputs
        outer, rows = map(hint, sizes_of(node)[:2])
        count = hint(words.type.numel)
        tiles = written_tiles(outer, rows, sizes_of(node)[2], count, node.dtype.itemsize)
        hits, several = expected_hits(tiles.rows, rows, count), max((1 << node["bits"]) // tiles.rows, 1)
        super().__init__(group, node, base, words, source, tiles, hits, hits * several)
        least = min(SHARE, SHARE_ELEMENTS // tiles.columns, MOST_ORDERED // 2)
        self.found_in_blocks(least)
        self.most_hits = 2 * self.share if self.share else most(words.type.numel)
        self.placed(hits * several, self.most_hits)
        self.found_in_blocks(least)
        self.shared = self.share > 0
        self.registers = WRITTEN_REGISTERS

    def summed(self) -> list[str]:
        return [*self.handed(), *super().summed()]

    def handed(self) -> list[str]:
        """How many programs for shares have sums of the rows, and where; -1: this one is for a share."""
        if not self.share:
            return []
        return [*self.waiting(),
                "handed = tl.where(helps, -1, shares)",
                "to_part = (parts + number.to(tl.int64) * (ROWS * COLUMNS)).to(tl.int64)"]

    def more(self) -> list[str]:
        return self.shares_added(1)

    def handed_over(self) -> list[str]:
        return ["total = total * 0",
                f"tl.store({self.part('number')}, total, mask=helps & (last == "
                f"{self.start('row_near')}) & (near >= 0))"]


class _WideSums(_BlockSums):
    """Each group of lanes has sums of its own: a hit of a wide row takes so many lanes that groups are few."""

    registers = REGISTERS

    def __init__(self, group: Group, node: Node):
        base, words, _, source = node.inputs
        outer, rows, inner = map(hint, sizes_of(node))
        itemsize, count = node.dtype.itemsize, hint(words.type.numel)
        singles = twos(as_written(sizes_of(node)[2])) * itemsize < 4  # each has a register of its own
        many = expected_hits(MOST_ROWS, rows, count) > FEW_SINGLES
        tiles = tiles_of(outer, rows, inner, count, itemsize,
                         WIDEST if singles and many else WIDEST_BYTES // max(itemsize, 4))
        tiles = replace(tiles, groups=min(tiles.groups, max(1, MOST_BESIDE * 32 * WARPS // tiles.columns)))
        self.each = EACH_SINGLE if singles else EACH
        super().__init__(group, node, base, words, source, tiles, STEP // WARPS * tiles.warps)
        self.found_in_blocks(ROUNDS * tiles.groups * BESIDE[1])

    def waited(self) -> list[str]:
        return self.waiting() if self.share else []

    def more(self) -> list[str]:
        unrolled = min(4, max(1, 64 * 32 * self.tiles.warps // (self.slice * self.tiles.columns)))  # registers
        return self.shares_added(unrolled) if self.share else []

    def handed_over(self) -> list[str]:
        return self.handing_over() if self.share else []
