"""Rows added to a table by a long index, sorted by groups of neighbouring rows (`ir/ops/grouped_rows.py`).

A program has some rows of a group. It finds where the group's words begin and end, and looks through them for its rows,
as `row_sums.py` does through all of an index. Whole chunks in between have been added up by group_parts, a program for
some rows of the chunk's group; these sums are added in the order of the chunks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.row_sums import (
    BESIDE,
    ENOUGH,
    MOST_GROUPS,
    MOST_ROWS,
    STEP,
    WARPS,
    RowSums,
    Tiles,
    tiles_of,
)
from genesis.ir.node import Node
from genesis.ir.ops.grouped_rows import NUMBER
from genesis.ir.sym_int import hint
from genesis.passes.groups import Group

PROBES: Final = 64
"""Words that a step of the search for a group compares: each lies in 32 bytes of its own. A thousand programs that read
512 of them in two steps read 40 MB; of 64 three steps find one of 262,144 (predicted: 4 µs less)."""

NARROW: Final = (32, 256)
"""Fewest and most bytes of a row of which a program may have more than `row_sums` gives it: to find its group and to
look through it costs a program as much as to add some 50 such rows."""

MANY_ROWS: Final = 64
"""Maximum rows of a program of narrow rows (`NARROW`)."""

MOST_HITS: Final = 160
"""Positions up to which a program of narrow rows has more of them; with more, positions are what takes time."""

FEW_HITS: Final = 32
"""Positions up to which a program of narrow rows has twice as many, in half as many groups of lanes, and warps: most of
its rows are zeros that it writes, and programs take turns."""

SUMS_BYTES: Final = 32 << 10
"""Bytes of shared memory for the sums of a program of narrow rows: five are on a multiprocessor."""


def narrow_tiles(tiles: Tiles, outer: int, rows: int, inner: int, count: int, itemsize: int) -> Tiles:
    """More rows a program where these are narrow, hit rarely and many.

    >>> first = tiles_of(1, 100_000, 32, 102_384, 4)
    >>> first, narrow_tiles(first, 1, 100_000, 32, 102_384, 4)
    (Tiles(rows=16, columns=32, groups=8), Tiles(rows=64, columns=32, groups=4))
    >>> narrow_tiles(tiles_of(1, 150_000, 32, 30_000, 4), 1, 150_000, 32, 30_000, 4)
    Tiles(rows=128, columns=32, groups=2)
    """
    groups, found = min(max(32 * WARPS // tiles.columns, 1), MOST_GROUPS), tiles
    if groups == 1:  # all lanes would take one hit after another: 64 bfloat16 rows of 104 took a program 30 µs (H200)
        return tiles
    fitting = SUMS_BYTES // (tiles.columns * groups * max(itemsize, 4))
    least, most = NARROW
    while (least <= inner * itemsize <= most and 2 * found.rows <= min(MANY_ROWS, fitting)
           and 2 * found.rows * count <= MOST_HITS * rows and -(-rows // (2 * found.rows)) * outer >= 2 * ENOUGH):
        found = Tiles(2 * found.rows, tiles.columns, groups)
    while (found is not tiles and found.groups > 1 and 2 * found.rows * count <= FEW_HITS * rows
           and -(-rows // (2 * found.rows)) * outer >= 2 * ENOUGH):
        found = Tiles(2 * found.rows, tiles.columns, found.groups // 2)
    while found is not tiles and 2 * found.rows <= fitting and found.groups < tiles.groups:
        found, fitting = replace(found, groups=2 * found.groups), fitting // 2
    return found


def emit_group_sums(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a group_sums."""
    return _GroupSums(group, node).source()


def emit_group_parts(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a group_parts."""
    return _GroupParts(group, node).source()


class Words(RowSums):
    """A kernel whose programs look through some words: `many` of them, first `before` from `start` on, then the others
    from `tail` on."""

    registers = 0

    def looked_at(self) -> list[str]:
        """The next words, whether they are the program's, and what they say."""
        return ["near_r = begin + tl.arange(0, RBLOCK)[None, :]",
                "r = tl.where(near_r < before, start + near_r, tail + near_r - before)",
                "r_mask = near_r < many",
                *self.words_at()]

    def words_at(self) -> list[str]:
        """What the words at r say."""
        return [*self.operands,
                f"word = {self.rows.names[0]}",
                f"row = (word >> 32).to(tl.int32) & {NUMBER}",
                "position = (word.to(tl.uint32) >> 1).to(tl.int32)"]


class _GroupSums(Words):
    """group_sums: rows of the table."""

    def __init__(self, group: Group, node: Node):
        base, words, source, *parts = node.inputs
        self.bits, self.chunk, self.parts = node["bits"], node["chunk"], parts
        outer, rows, inner = (hint(size) for size in base.shape)
        sizes = outer, rows, inner, hint(words.type.numel), node.dtype.itemsize
        tiles = narrow_tiles(tiles_of(*sizes), *sizes)
        super().__init__(group, node, base, words, source, replace(tiles, rows=min(tiles.rows, 1 << self.bits)), STEP)
        self.many = "many"

    def owned(self) -> list[str]:
        """The program's rows, where their group's words begin and end, and which chunks are added up already."""
        words, key = self.memory(self.node.inputs[1]), NUMBER >> self.bits
        lines = [
            f"row_0 = tl.program_id(0){self.to_int64} % blocks * ROWS",
            f"target = row_0 // {1 << self.bits} + tl.arange(0, 2)[:, None]",
            "edge = tl.zeros([2, 1], tl.int32)",
            f"rest = edge + {self.rows.size}",
            f"probe = tl.arange(0, {PROBES})[None, :]",
            "while tl.max(rest) > 0:",
            f"    step = (rest + {PROBES - 1}) // {PROBES}",
            "    here = probe * step < rest",
            f"    key = (tl.load({words} + (edge + probe * step), mask=here, other=0) >> {32 + self.bits}) & {key}",
            "    smaller = tl.sum((here & (key < target)).to(tl.int32), 1, keep_dims=True)",
            "    after = tl.minimum(edge + smaller * step, edge + rest)",
            "    edge = tl.where(smaller > 0, edge + (smaller - 1) * step + 1, edge)",
            "    rest = after - edge",
            "start = tl.min(edge)",
            "end = tl.max(edge)",
        ]
        if not self.parts:
            return [*lines, "many = end - start", "before = many", "tail = end"]
        chunk = self.chunk
        return [*lines,
                f"chunk_0 = (start + {chunk - 1}) // {chunk}",
                f"chunk_1 = tl.maximum(end // {chunk}, chunk_0)",
                f"before = tl.where(chunk_0 < chunk_1, chunk_0 * {chunk}, end) - start",
                f"tail = tl.where(chunk_0 < chunk_1, chunk_1 * {chunk}, end)",
                "many = before + end - tail"]

    def more(self) -> list[str]:
        """The chunks' sums of the program's rows."""
        if not self.parts:
            return []
        members = 1 << self.bits
        unrolled = 4 if self.tiles.rows <= MOST_ROWS else 1  # more rows take more registers each
        return [f"part = {self.memory(self.parts[0])} + outer * {self.parts[0].shape[1] * members * self.inner}",
                f"member = row_0 % {members} + row_near",
                f"for chunk in tl.range(chunk_0, chunk_1, loop_unroll_factor={unrolled}):",
                f"    from_part = part + ((chunk{self.to_int64} * {members} + member) * {self.inner} + column)",
                "    total += tl.load(from_part, mask=inside, other=0)"]


class _GroupParts(Words):
    """group_parts: the sums of whole chunks."""

    def __init__(self, group: Group, node: Node):
        words, source = node.inputs
        self.bits, self.chunk = node["bits"], node["chunk"]
        outer, chunks, members, inner = (hint(size) for size in node.shape)
        tiles = tiles_of(outer * chunks, members, inner, self.chunk, source.dtype.itemsize)
        super().__init__(group, node, None, words, source, tiles, STEP)
        self.beside = BESIDE[1]
        self.many = "many"

    @property
    def programs(self) -> int:
        """Programs for one of the outer sizes: some rows of each chunk."""
        return self.node.shape[1] * ((1 << self.bits) // self.tiles.rows)

    def owned(self) -> list[str]:
        """The program's chunk, and its rows of the chunk's group; none of a chunk that lies in several groups."""
        words, several = self.memory(self.node.inputs[0]), (1 << self.bits) // self.tiles.rows
        group = f">> {32 + self.bits}) & {NUMBER >> self.bits}"
        return [f"chunk = tl.program_id(0){self.to_int64} % blocks // {several}",
                f"member_0 = tl.program_id(0) % blocks % {several} * ROWS",
                f"start = (chunk * {self.chunk}).to(tl.int32)",
                f"own = (tl.load({words} + start) {group}",
                f"last = (tl.load({words} + start + {self.chunk - 1}) {group}",
                f"many = tl.where(own == last, {self.chunk}, 0)",
                "before = many",
                "tail = start",
                f"row_0 = own * {1 << self.bits} + member_0",
                "if many == 0:",
                "    return"]

    def place(self) -> list[str]:
        """Where the chunk's sums are, and whether it has any."""
        return [f"inside = (many + row_near * 0 > 0) & (column < {self.inner})",
                f"at = ((outer * {self.node.shape[1]} + chunk) * {1 << self.bits} + member_0 + row_near)"
                f" * {self.inner} + column"]
