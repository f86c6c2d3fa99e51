"""Rows added to a table by a long index, sorted by groups of neighbouring rows (`ir/ops/grouped_rows.py`).

A program has some rows of a group. It finds where the group's words begin and end, and looks through them for its rows,
as `row_sums.py` does through all of an index. Whole chunks in between have been added up by group_parts, a program for
some rows of the chunk's group; these sums are added in the order of the chunks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.row_sums import RowSums, tiles_of
from genesis.ir.node import Node
from genesis.ir.ops.grouped_rows import NUMBER
from genesis.ir.sym_int import hint
from genesis.passes.groups import Group

PROBES: Final = 256
"""Words that a step of the search for a group compares: 100,000 words take three steps."""


def emit_group_sums(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a group_sums."""
    return _GroupSums(group, node).source()


def emit_group_parts(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a group_parts."""
    return _GroupParts(group, node).source()


class _Words(RowSums):
    """A kernel whose programs look through some words: `many` of them, first `before` from `start` on, then the others
    from `tail` on."""

    def looked_at(self) -> list[str]:
        """The next words, whether they are the program's, and what they say."""
        return ["near_r = begin + tl.arange(0, RBLOCK)[None, :]",
                "r = tl.where(near_r < before, start + near_r, tail + near_r - before)",
                "r_mask = near_r < many",
                *self.operands,
                f"word = {self.rows.names[0]}",
                f"row = (word >> 32) & {NUMBER}",
                "position = (word & 0xFFFFFFFF) >> 1"]


class _GroupSums(_Words):
    """group_sums: rows of the table."""

    def __init__(self, group: Group, node: Node):
        base, words, source, *parts = node.inputs
        self.bits, self.chunk, self.parts = node["bits"], node["chunk"], parts
        outer, rows, inner = (hint(size) for size in base.shape)
        tiles = tiles_of(outer, rows, inner, hint(words.type.numel), node.dtype.itemsize)
        super().__init__(group, node, base, words, source, replace(tiles, rows=min(tiles.rows, 1 << self.bits)))
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
        return [f"part = {self.memory(self.parts[0])} + outer * {self.parts[0].shape[1] * members * self.inner}",
                f"member = row_0 % {members} + row_near",
                "for chunk in tl.range(chunk_0, chunk_1, loop_unroll_factor=4):",
                f"    from_part = part + ((chunk{self.to_int64} * {members} + member) * {self.inner} + column)",
                "    total += tl.load(from_part, mask=inside, other=0)"]


class _GroupParts(_Words):
    """group_parts: the sums of whole chunks."""

    def __init__(self, group: Group, node: Node):
        words, source = node.inputs
        self.bits, self.chunk = node["bits"], node["chunk"]
        outer, chunks, members, inner = (hint(size) for size in node.shape)
        tiles = tiles_of(outer * chunks, members, inner, self.chunk, source.dtype.itemsize)
        super().__init__(group, node, None, words, source, tiles)
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
                f"row_0 = own * {1 << self.bits} + member_0"]

    def place(self) -> list[str]:
        """Where the chunk's sums are, and whether it has any."""
        return [f"inside = (many + row_near * 0 > 0) & (column < {self.inner})",
                f"at = ((outer * {self.node.shape[1]} + chunk) * {1 << self.bits} + member_0 + row_near)"
                f" * {self.inner} + column"]
