"""Long rows added to a table of few: a program has a part of one row, and takes what hits it one after another.

A program of `row_sums.py` has several rows of 256 columns, for which it fills lists and sums in shared memory: a
thousand instructions for 8 KB of a row of 524,288. Here a row's part is in registers. The program compares the index
with its row, and takes the least position that hits it, then the next; while a row comes from memory it looks for the
next one.

    place = positions whose row is mine, else none            next = least of place
    while there is one:   added = load(source[next]);  next = least of place above next;  total += added

Rows are added in the order of the index, so every bit is the same in each run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.row_sums import RowSums, Tiles, emit_row_sums, is_turned, sizes_of
from genesis.ir.node import Node
from genesis.ir.sym_int import hint, most
from genesis.passes.groups import Group

SHORTEST: Final = 2048
"""Minimum columns of such a row: of shorter ones a program would compare the index for a few hundred bytes."""

PART_BYTES: Final = 8192
"""Bytes of a row that a program has."""

LONGEST: Final = 256
"""Maximum positions of the index: where all hit one row, they are added one after another, each in about 0.5 µs."""

WARPS: Final = 4
"""Warps of a program."""


def has_wide_rows(node: Node) -> bool:
    """Whether rows are so long, and the index so short, that each program has a part of one row."""
    _, _, inner = sizes_of(node)
    return not is_turned(node) and hint(inner) >= SHORTEST and most(node.inputs[1].type.numel) <= LONGEST


def emit_rows_summed(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a rows_summed."""
    if not has_wide_rows(node):
        return emit_row_sums(group, node)
    base, index, added = node.inputs
    columns = PART_BYTES // max(added.dtype.itemsize, node.dtype.itemsize)
    return WideRowSums(group, node, base, index, added, Tiles(1, columns, 1)).source()


class WideRowSums(RowSums):
    """One kernel; `tiles` are of one row."""

    registers = 0

    def source(self) -> KernelSource:
        """The finished kernel."""
        count = power_of_two(hint(self.rows.length))
        text = [f"blocks = {self.programs}", *self.owned(), *self.begun(), *self.taken(), *self.ended()]
        sizes = {"XBLOCK": 1, "RBLOCK": max(count, 32), "ROWS": 1, "COLUMNS": self.tiles.columns}
        found = self.rows.source(self.node.op.name, text, {"out": self.group.outputs[0]}, sizes,
                                 self.programs * self.outer, WARPS)
        return replace(found, grid=(found.grid[0], -(-self.inner // self.tiles.columns), 1))

    def begun(self) -> list[str]:
        """Which columns of its row a program has."""
        return [f"outer = tl.program_id(0){self.to_int64} // blocks",
                f"column = tl.program_id(1){self.to_int64} * COLUMNS + tl.arange(0, COLUMNS)[None, :]",
                "own = row_0 + tl.arange(0, ROWS)[:, None]", *self.rows.x_lines("tl.full((), 0, tl.int32)"),
                f"inside = (own < {self.length}) & (column < {self.inner})",
                f"at = (outer * {self.length} + own) * {self.inner} + column", f"total = {self.begins_at()}"]

    def taken(self) -> list[str]:
        """Go through the index, and add the row of each position that hits."""
        source, size = self.memory(self.added), self.rows.size
        return [
            f"for begin in tl.range(0, {self.many}, RBLOCK):",
            *(f"    {line}" for line in self.looked_at()),
            "    place = tl.where(r_mask & (row == row_0), position.to(tl.int32), 2147483647)",
            "    next = tl.min(tl.reshape(place, [RBLOCK]), 0)",
            "    while next < 2147483647:",
            f"        from_row = {source} + ((outer * {size} + next) * {self.inner} + column)",
            f"        added = tl.load(from_row, mask=column < {self.inner}, other=0)",
            "        place = tl.where(place > next, place, 2147483647)",
            "        next = tl.min(tl.reshape(place, [RBLOCK]), 0)",
            f"        total += added.to({triton_type(self.total)})",
        ]

    def ended(self) -> list[str]:
        """The sums go to memory."""
        return [f"tl.store(out + at, total.to({triton_type(self.node.dtype)}), mask=inside)"]
