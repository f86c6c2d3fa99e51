"""scatter_add, and gather's gradient: a warp adds the elements of short lines up in shared memory.

A line's sums begin as the base's elements. The warp takes up to 128 positions at a time; of those that meet in one sum
the first adds, then the second: sums are made in the order of the positions, as one thread would; where many meet in
one, those of the lanes are added as a tree first. So nothing is sorted, no float is added atomically, and every bit is
the same in each run. A program has one warp, so that there is nobody
else to wait for, and as many lines side by side as its lanes have room for.

Where each lane has a line, or a column, by itself nobody else adds to its sums, and there are no marks.

Lines may be columns: then neighbours in memory are of neighbouring lines, and a program has a few of these, so that
what it reads and writes are pieces of rows. Of lines with more sums than a program has room for each has a share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two, room_for
from genesis.codegen.cuda.expressions import literal
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.checked_index import checked_outside
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.rows import Rows
from genesis.codegen.cuda.templates.shared_words import (
    added_helper,
    get_helper,
    own_added_helper,
    put_helper,
    sum_kind,
    words_helper,
)
from genesis.ir.node import Node
from genesis.ir.sym_int import SymInt, hint
from genesis.passes.groups import Group

ROOM: Final = 8192
"""Bytes of shared memory up to which a program takes several short lines: 28 programs are on a multiprocessor then."""

PROGRAMS: Final = 8192
"""Programs of many lines, a warp each: twice what an H200 runs at once. More lines are taken in turns."""

FEW: Final = ((8, 4 * H200.multiprocessors), (4, H200.multiprocessors))
"""(columns, programs): so many columns side by side are left where there are fewer programs, of a warp each, which
takes the rounds of its columns one after another (H200: 64 positions of 4984 columns in 156 programs 18 µs, with their
gather 22.5; 13.4 in 623)."""

LOADS: Final = 4
"""Rounds of 32 positions whose loads wait together, and that are added together: with one a warp waits most of the
time, for memory and for its own sums."""

SUMS_BYTES: Final = 40 << 10
"""Bytes of shared memory for a program's sums; marks have the rest of `MOST_BYTES`."""

COLUMNS: Final = 4
"""Minimum columns side by side: their 64-bit indices are a sector of memory. Twice as many would leave half as many
sums a program, and each of its index's positions is looked at by as many programs more."""

COLUMN_BYTES: Final = 32 << 10
"""Bytes of shared memory for the sums of columns: so many are read and written beside another program's."""

MARKS: Final = (256, 512)
"""Slots of marks beside few sums, which leave room for many programs, and beside many."""

WIDE: Final = 512
"""Sums that a warp reads or writes at a time, 16 a lane: what it waits for together. Of columns, which lie in pieces
of rows, it is twice as many, and so of long lines, of which few are on a multiprocessor."""

MULTIPROCESSORS: Final = H200.multiprocessors
"""An H200's, which all have a program before one has a second: programs whose numbers differ by so much are on
one. Elsewhere they are on some other two."""


def padded_sums(rows: int) -> int:
    """Sums of a line, as far as a program's text may say: whole turns of a warp."""
    return power_of_two(rows) if isinstance(rows, SymInt) else -(-rows // 32) * 32


def lanes_of(rows: int, count: int, inner: int, size: int) -> int:
    """Lanes of a warp that take a line's neighbours; the others take other lines."""
    lanes, padded = min(power_of_two(count), 32), padded_sums(rows)
    if inner.__class__ is int and inner == 1:
        while lanes < 32 and 32 // lanes * padded * size > ROOM:
            lanes *= 2
        return lanes
    while lanes > 1 and (32 // lanes < COLUMNS or 64 // lanes * padded * size <= ROOM):
        lanes //= 2
    return lanes


def share_of(rows: int, count: int, inner: int, size: int) -> int:
    """Sums of a line that a program has."""
    if inner.__class__ is int and inner == 1:
        return min(padded_sums(rows), SUMS_BYTES // size // 32 * 32)
    return min(padded_sums(rows), COLUMN_BYTES // size // (32 // lanes_of(rows, count, inner, size)) // 32 * 32)


def turns_of(blocks: int, programs: int) -> int:
    """How many times each of about so many programs takes a block; of a size that may change a formula, where there may
    be more than a few: a product of classes is far above what it stands for.

    >>> turns_of(30_000, 8192), turns_of(100, 8192)
    (3, 1)
    """
    if hint(blocks) < 2 * programs:
        return 1
    return blocks // programs + 1 if isinstance(blocks, SymInt) else blocks // programs


class LineSums:
    """One kernel, whose programs have a warp each.

    Attributes:
        lanes, lines: of a warp, how many take a line's neighbours, and how many lines that makes side by side.
        share, shares: sums of a line that a program has, and how many programs that makes for a line.
        stride: words between the sums of neighbouring lines.
        rounds, beside: rounds of a line that are loaded at once, and blocks of lines: `LOADS` together.
        turns: how many times a program takes `beside` blocks.
        slots: of marks, a power of two: elements that meet in one take turns (`shared_words.added_helper`).
    """

    def __init__(self, group: Group, node: Node):
        self.group, self.node = group, node
        self.base, index, source = node.inputs
        self.rows = Rows(group, (index, source), 1)
        self.total, self.kind, self.size = sum_kind(node.dtype)
        self.length, self.inner = node.shape[1], prod(node.shape[2:])
        self.columns = not (self.inner.__class__ is int and self.inner == 1)
        count = room_for(self.rows.length)
        sizes = self.length, self.rows.length, self.inner, self.size
        self.lanes, self.share = lanes_of(*sizes), share_of(*sizes)
        self.lanes = self._more_lanes() if self.columns else self.lanes
        self.lines = 32 // self.lanes
        self.shares = 1 if room_for(self.length) <= self.share else -(-self.length // self.share)
        self.stride = self.share + 8 if self.columns and self.lines > 1 else self.share
        self.rounds = min(-(-count // self.lanes), LOADS)
        self.beside = max(1, LOADS // self.rounds) if self.whole and not self.columns else 1
        while self.beside > 1 and self.beside * self.lines * self.share * self.size > ROOM:
            self.beside //= 2
        self.loops = count > self.rounds * self.lanes
        self.blocks = -(-self.rows.rows // self.lines)
        self.operands, self.check = checked_outside(self.rows, self.length)
        self.turns = turns_of(self.blocks, PROGRAMS * self.beside) if self.whole else 1
        self.sums = self.beside * self.lines * self.stride
        self.slots = min(power_of_two(self.sums), MARKS[self.sums * self.size > ROOM])

    def _more_lanes(self) -> int:
        """Lanes of a column, more of them where columns are too few to keep a GPU busy: then fewer columns are side by
        side, down to a sector of two-byte elements, or of the index where not each multiprocessor has a program."""
        lanes, count = self.lanes, min(power_of_two(self.rows.length), 32)
        while 2 * lanes <= count and any(
                32 // lanes > beside and hint(self.rows.rows) * lanes < 32 * programs for beside, programs in FEW):
            lanes *= 2
        return lanes

    def source(self) -> KernelSource:
        """The finished kernel."""
        lines, kind = self.lines, self.kind
        block = f"(tl.program_id(0) * {self.turns} + turn) * {self.beside}" if self.whole else (
            f"tl.program_id(0) // {self.shares}")
        body = [line for at in range(self.beside) for line in self.of(at, self.rows.x_lines(f"{block} + {at}"))]
        if self.columns:
            body += [f"column = ({block}){self.rows.integer} * XBLOCK + tl.arange(0, XBLOCK)[None, :]",
                     f"corner = column // {self.inner} * {self.length * self.inner} + column % {self.inner}"]
        body += [*self.loaded("0"), *self.begun(), *(self.looped() if self.loops else self.added("")), *self.ended()]
        if self.turns > 1:  # lanes still read the sums that the next turn writes over
            body.append("tl.debug_barrier()")
        own = self.lanes == 1  # nobody else adds to a lane's sums
        slots = 0 if own else power_of_two(self.rounds * self.beside) * self.slots
        text = ["words = g_words()", *([] if own else [f"marks = words + {-(-self.sums * self.size // 16) * 16}"]),
                f"line = tl.arange(0, XBLOCK)[:, None] * {self.stride}",
                *([] if self.whole else [f"row_0 = tl.program_id(0) % {self.shares} * {self.share}"]),
                *(["strange = tl.zeros([XBLOCK, RBLOCK], tl.int64)"] if self.check else []),
                *([] if own else [f"mark = tl.arange(0, {slots})[None, :]",
                                  "g_put_s32(marks + mark * 4, mark * 0, mark >= 0)"]),
                f"for turn in tl.range(0, {self.turns}):", *(f"    {line}" for line in body)]
        if self.check:
            size, negative, report = self.check
            text.append(f"g_in_range(strange, {size}, {negative}, strange != 0, {report})")
        helpers = "\n".join((words_helper(-(-self.sums * self.size // 16) * 16 + slots * 4),
                             *(put_helper(each) for each in sorted({"s32", kind})), get_helper(kind),
                             own_added_helper(kind, self.rounds * self.beside) if own else
                             added_helper(kind, self.rounds * self.beside, self.slots)))
        inputs = {} if self.constant else {"base": input_of(self.base, self.group)}
        twice = self.columns or self.sums * self.size > ROOM
        wide = min(power_of_two(self.share), max((2 if twice else 1) * WIDE // lines, 1))
        programs = -(-self.blocks // (self.turns * self.beside)) * self.shares
        return self.rows.source("lines_summed", text, {"out": self.group.outputs[0]},
                                {"XBLOCK": lines, "RBLOCK": self.lanes, "WIDE": wide}, programs, 1, helpers,
                                inputs=inputs)

    @property
    def constant(self) -> bool:
        """Does the kernel write the base itself?"""
        return self.base.op.name == "const"

    def which_share(self) -> str:
        """The program's share of its line, the next one of the next line that a multiprocessor has: where few sums are
        hit these are in one share, and two programs of a multiprocessor would both have it, others none."""
        program = "tl.program_id(0)"
        return f"(({program} + {program} // {self.shares} * {self.shares} // {MULTIPROCESSORS}) % {self.shares})"

    @property
    def whole(self) -> bool:
        """Has a program all sums of its lines?"""
        return self.shares.__class__ is int and self.shares == 1

    @staticmethod
    def of(at: int | str, lines: list[str], names: Iterable[str] = ("x", "x_mask")) -> list[str]:
        """Lines whose names end with a number: those of one of several blocks."""
        known = re.compile(rf"(?<!\.)\b({'|'.join(names)})\b(?!=)")
        return [known.sub(rf"\1_{at}", line) for line in lines]

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
        found, every = [], [f"{at}_{turn}{now}" for turn in range(self.rounds) for at in range(self.beside)]
        for number, each in enumerate(every):
            at, row, here = int(each.partition("_")[0]), f"to_row_{each}", f"here_{each}"
            found += self.wrapped(row)
            found += [f"inside = (wanted >= 0) & (wanted < {self.length})",
                      *([f"strange = tl.where({here} & (inside == 0), {row}.to(tl.int64), strange)"]
                        if self.check else []),
                      *([] if self.whole else [
                          f"inside = inside & (wanted >= row_0) & (wanted < row_0 + {self.share})",
                          "wanted = wanted - row_0"]),
                      f"label_{number} = tl.where({here} & inside, {self.place(at)} + wanted.to(tl.int32), -1)"]
        return [*found, self.adding([f"label_{number}" for number in range(len(every))],
                                    [f"added_{each}" for each in every])]

    def adding(self, labels: Sequence[str], values: Sequence[str]) -> str:
        """Add values to the sums of their labels."""
        marks = ["marks"] if self.lanes > 1 else []
        return f"g_added_{self.kind}({', '.join([*labels, 'words', *marks, *values])})"

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
        total, shape = triton_type(self.total), "[WIDE, XBLOCK]" if self.columns else "[XBLOCK, WIDE]"
        first = literal(self.base["value"], self.total) if self.constant else ""
        return self.each_sum(lambda at, word, address, inside: [
            f"first_{at} = tl.full({shape}, {first}, {total})" if self.constant else
            f"first_{at} = tl.load(base + {address}, mask={inside}, other=0).to({total})"],
            lambda at, word, address, inside: [f"g_put_{self.kind}({word}, first_{at}, {inside})"])

    def ended(self) -> list[str]:
        """The sums go to memory."""
        stored = triton_type(self.node.dtype)
        return self.each_sum(
            lambda at, word, address, inside: [f"sums_{at} = g_get_{self.kind}({word})"],
            lambda at, word, address, inside: [f"tl.store(out + {address}, sums_{at}.to({stored}), mask={inside})"],
            row="near")

    def each_sum(self, *steps: Callable[[int, str, str, str], list[str]], row: str = "row") -> list[str]:
        """A loop over the program's sums: each step for all blocks of lines, given the block, the sums' words (of
        `row`), where they lie in memory and whether they are there."""
        many = self.length if self.whole else self.share
        arange = "tl.arange(0, WIDE)[:, None]" if self.columns else "tl.arange(0, WIDE)[None, :]"
        until = f"(row < {self.length})" if self.whole else f"(row < {self.share}) & (row_0 + row < {self.length})"
        place = "row" if self.whole else "(row_0 + row)"
        lines = [f"row = first + {arange}", *([f"near = tl.minimum(row, {many} - 1)"] if row == "near" else [])]
        for step in steps:
            for at in range(self.beside):
                if self.columns:
                    word, there = f"tl.arange(0, XBLOCK)[None, :] * {self.stride} + {row}", "(column < x_size)"
                    address = f"corner + {place} * {self.inner}"
                else:
                    word, there = f"{self.place(at)} + {row}", f"x_mask_{at}"
                    address = f"x_{at} * {self.length} + {place}"
                lines += step(at, f"words + ({word}) * {self.size}", address, f"{there} & {until}")
        return [f"for first in tl.range(0, {many}, WIDE):", *(f"    {line}" for line in lines)]

    def place(self, at: int) -> str:
        """Where a block's sums begin among the words."""
        return f"line + {at * self.lines * self.stride}" if at else "line"
