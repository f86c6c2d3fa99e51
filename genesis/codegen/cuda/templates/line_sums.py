"""scatter_add along the last axis, and gather's gradient: a warp adds a line's elements up in shared memory.

A line's sums begin as the base's elements. The warp takes 32 positions at a time; of those that meet in one sum the
first adds, then the second: sums are made in the order of the positions, as one thread would. So nothing is sorted, no
float is added atomically, and every bit is the same in each run. A program has one warp, so that there is nobody else
to wait for, and as many lines side by side as its lanes have room for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from genesis.codegen.cuda.blocks import power_of_two
from genesis.codegen.cuda.expressions import literal
from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.checked_index import checked_outside
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.rows import Rows
from genesis.codegen.cuda.templates.shared_words import (
    MOST_BYTES,
    added_helper,
    get_helper,
    put_helper,
    sum_kind,
    words_helper,
)
from genesis.ir.node import Node
from genesis.ir.sym_int import SymInt, hint, most
from genesis.ir.types import DType
from genesis.passes.groups import Group

LONGEST: Final = 16384
"""Maximum positions of a line: its only warp takes them one after another, 32 in about 0.15 µs."""

ROOM: Final = 8192
"""Bytes of shared memory up to which a program takes several short lines: 28 programs are on a multiprocessor then."""

PROGRAMS: Final = 8192
"""Programs of many lines, a warp each: twice what an H200 runs at once. More lines are taken in turns."""

LOADS: Final = 4
"""Rounds of 32 positions whose loads wait together: with one a warp waits for memory most of the time."""

WIDE: Final = 512
"""Sums that a warp reads or writes at a time, 16 a lane: what it waits for together."""


def _padded(rows: int) -> int:
    """Sums of a line, as far as a program's text may say: whole turns of a warp."""
    return power_of_two(rows) if isinstance(rows, SymInt) else -(-rows // 32) * 32


def sums_fit(rows: int, count: int, dtype: DType) -> bool:
    """Do the sums of a line of so many rows fit a program, and so many positions a warp's patience?"""
    return (dtype.itemsize < 8 or dtype.kind == "float") and most(count) <= LONGEST and (
        _padded(rows) * sum_kind(dtype)[2] <= MOST_BYTES)


def emit_line_sums(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a lines_summed."""
    return _LineSums(group, node).source()


class _LineSums:
    """One kernel.

    Attributes:
        lanes, lines: of a warp, how many take a line's neighbours, and how many lines that makes side by side.
        rounds, beside: rounds of a line that are loaded at once, and blocks of lines: `LOADS` together.
        turns: how many times a program takes `beside` blocks.
    """

    def __init__(self, group: Group, node: Node):
        self.group, self.node = group, node
        self.base, index, source = node.inputs
        self.rows = Rows(group, (index, source), 1)
        self.total, self.kind, self.size = sum_kind(node.dtype)
        self.length, self.padded = node.shape[1], _padded(node.shape[1])
        count = most(self.rows.length)
        self.lanes = min(power_of_two(self.rows.length), 32)
        while self.lanes < 32 and 32 // self.lanes * self.padded * self.size > ROOM:
            self.lanes *= 2
        self.lines = 32 // self.lanes
        self.rounds = min(-(-count // self.lanes), LOADS)
        self.beside = max(1, LOADS // self.rounds)
        while self.beside > 1 and self.beside * self.lines * self.padded * self.size > ROOM:
            self.beside //= 2
        self.loops = count > self.rounds * self.lanes
        self.blocks = -(-self.rows.rows // self.lines)
        self.operands, self.check = checked_outside(self.rows, self.length)
        self.turns = max(1, min(hint(self.blocks) // (PROGRAMS * self.beside), 64))

    def source(self) -> KernelSource:
        """The finished kernel."""
        lines, kind = self.lines, self.kind
        words = self.beside * lines * self.padded
        body = [line for at in range(self.beside) for line in self.of(at, self.rows.x_lines(
            f"(tl.program_id(0) * {self.turns} + turn) * {self.beside} + {at}"))]
        body += [*self.loaded("0"), *self.begun(), *(self.looped() if self.loops else self.added("")), *self.ended()]
        if self.turns > 1:  # lanes still read the sums that the next turn writes over
            body.append("tl.debug_barrier()")
        text = ["words = g_words()", f"line = tl.arange(0, XBLOCK)[:, None] * {self.padded}",
                *(["strange = tl.zeros([XBLOCK, RBLOCK], tl.int64)"] if self.check else []),
                f"for turn in tl.range(0, {self.turns}):", *(f"    {line}" for line in body)]
        if self.check:
            size, negative, report = self.check
            text.append(f"g_in_range(strange, {size}, {negative}, strange != 0, {report})")
        helpers = "\n".join((words_helper(words * self.size), put_helper(kind), get_helper(kind),
                             added_helper(kind, (words - 1).bit_length())))
        inputs = {} if self.constant else {"base": input_of(self.base, self.group)}
        wide = min(power_of_two(self.length), max(WIDE // lines, 1))
        return self.rows.source("lines_summed", text, {"out": self.group.outputs[0]},
                                {"XBLOCK": lines, "RBLOCK": self.lanes, "WIDE": wide},
                                -(-self.blocks // (self.turns * self.beside)), 1, helpers, inputs=inputs)

    @property
    def constant(self) -> bool:
        """Does the kernel write the base itself?"""
        return self.base.op.name == "const"

    @staticmethod
    def of(at: int | str, lines: list[str], names: Iterable[str] = ("x", "x_mask")) -> list[str]:
        """Lines whose names end with a number: those of one of several blocks."""
        known = re.compile(rf"(?<!\.)\b({'|'.join(names)})\b(?!=)")
        return [known.sub(rf"\1_{at}", line) for line in lines]

    def each(self, lines: list[str]) -> list[str]:
        """Lines about x, for each block of lines."""
        return [line for at in range(self.beside) for line in self.of(at, lines)]

    def loaded(self, begin: str) -> list[str]:
        """What a turn of rounds adds: to_row, added and here of each block and round."""
        found = []
        for at in range(self.beside):
            for turn in range(self.rounds):
                lines = [*self.rows.r_lines(begin if begin == "0" and not turn else f"{begin} + {turn * self.lanes}"),
                         *self.operands, f"to_row = {self.rows.names[0]}",
                         f"added = ({self.rows.names[1]}).to({triton_type(self.total)})", "here = x_mask & r_mask"]
                mine = {line.partition(" = ")[0] for line in lines if re.match(r"\w+ = ", line)}
                found += self.of(at, self.of(f"{at}_{turn}", lines, sorted(mine)))
        return found

    def added(self, now: str) -> list[str]:
        """Add a turn's elements to the sums of their rows, in order; what lies outside a line is left out."""
        found = []
        for turn in range(self.rounds):
            for at in range(self.beside):
                row, here, value = (f"{name}_{at}_{turn}{now}" for name in ("to_row", "here", "added"))
                found += self.wrapped(row)
                found += [f"inside = (wanted >= 0) & (wanted < {self.length})",
                          *([f"strange = tl.where({here} & (inside == 0), {row}.to(tl.int64), strange)"]
                            if self.check else []),
                          f"label = tl.where({here} & inside, {self.place(at)} + wanted.to(tl.int32), -1)",
                          f"g_added_{self.kind}(label, words, {value})"]
        return found

    def wrapped(self, row: str) -> list[str]:
        """The number of a sum, of which negative ones may count from the end."""
        if self.check is None or not self.check[1]:
            return [f"wanted = {row}"]
        return [f"wanted = tl.where({row} < 0, {row} + {self.check[0]}, {row})"]

    def looped(self) -> list[str]:
        """All rounds: the next turn's elements are on their way while a turn's are added."""
        names = [f"{name}_{at}_{turn}" for at in range(self.beside) for turn in range(self.rounds)
                 for name in ("to_row", "here", "added")]
        return [f"for begin in tl.range(0, {self.rows.size}, {self.rounds * self.lanes}):",
                *(f"    {line}" for line in (*(f"{name}_now = {name}" for name in names),
                                             *self.loaded(f"begin + {self.rounds * self.lanes}"), *self.added("_now")))]

    def begun(self) -> list[str]:
        """The sums begin as the base's elements."""
        total, address = triton_type(self.total), f"base + x * {self.length} + row"
        value = f"tl.full([XBLOCK, WIDE], {literal(self.base['value'], self.total)}, {total})" if self.constant else (
            f"tl.load({address}, mask=x_mask & (row < {self.length}), other=0).to({total})")
        loads = self.each([f"first_sums = {value}"])
        return [f"for first in tl.range(0, {self.length}, WIDE):", "    row = first + tl.arange(0, WIDE)[None, :]",
                *(f"    {line.replace('first_sums', f'first_sums_{at}', 1)}" for at, line in enumerate(loads)),
                *(f"    g_put_{self.kind}(words + ({self.place(at)} + row) * {self.size}, first_sums_{at}, "
                  f"x_mask_{at} & (row < {self.length}))" for at in range(self.beside))]

    def place(self, at: int) -> str:
        """Where a block's sums begin among the words."""
        return f"line + {at * self.lines * self.padded}" if at else "line"

    def ended(self) -> list[str]:
        """The sums go to memory."""
        stored = triton_type(self.node.dtype)
        return [f"for first in tl.range(0, {self.length}, WIDE):", "    row = first + tl.arange(0, WIDE)[None, :]",
                f"    near = tl.minimum(row, {self.length} - 1)",
                *(f"    sums_{at} = g_get_{self.kind}(words + ({self.place(at)} + near) * {self.size})"
                  for at in range(self.beside)),
                *(f"    tl.store(out + x_{at} * {self.length} + row, sums_{at}.to({stored}), "
                  f"mask=x_mask_{at} & (row < {self.length}))" for at in range(self.beside))]
