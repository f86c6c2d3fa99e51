"""scatter_add and index_add along lines of floats: all positions of a line at once, in whole numbers of a scale.

Floats added atomically give other bits each time; whole numbers do not, and shared memory adds them by itself. So the
positions of a line, up to ten for each thread of a program, are added in three steps, with a barrier between:

1. each sum's largest exponent among its positions (`atom.max`);
2. each position as a whole number of the sum's scale, 2^-33 of what is above its largest: in two words of 16 and 17
   bits, of which 16,384 fit in 32 bits (`red.add`);
3. each sum's words as one float64, which has all their bits, rounded once to float32, by the thread that came first.

Then sums are added to the base, whose first elements are on their way meanwhile.

A sum is off by half a unit of float32 and by 2^-33 of its largest position for each of them: less than float32 sums in
any order may be. Every bit is the same in each run, and in whatever order positions come. Infinities and NaNs have the
largest exponent: their sums count them in the lower word instead, and are told by these counts.

Where many positions meet in a sum they take turns of a clock or two each, not of a barrier (`long_lines.py`, which has
integers, float64 and longer lines).

Lines with more sums than a program has room for are shared out: each program looks at all positions of its line.
Lines may be columns, of which a program has some neighbours: a position's are pieces of a row of memory, and sums are
read and written so, too.
"""

from __future__ import annotations

import re
from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two, room_for
from genesis.codegen.cuda.expressions import literal
from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.line_sums import LineSums, padded_sums
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.shared_words import (
    counted_helper,
    emptied_helper,
    got_helper,
    put_helper,
    raised_helper,
    words_helper,
)
from genesis.ir.node import Node
from genesis.ir.ops.line_sums import ALL_AT_ONCE, SUMS_AT_ONCE
from genesis.ir.sym_int import hint
from genesis.passes.groups import Group

SUM_BYTES: Final = 12
"""Bytes of shared memory for a sum: its exponent, and the upper and the lower word."""

TRITONS_BYTES: Final = 1024
"""Bytes of shared memory that are left to Triton."""

HIGH_BITS: Final = 16
"""Bits of a position's upper word beside its sign; rounded, `ALL_AT_ONCE` of them are less than 2^31."""

LOW_BITS: Final = 17
"""Bits of the lower word: half of 2^17, either way, for each of `ALL_AT_ONCE` positions."""

INFINITE: Final = 255
"""The exponent of infinities and NaNs."""

MINUS: Final = 1 << 15
"""What the lower word counts for a negative infinity; a positive one counts 1, a NaN both."""

EACH: Final = 8
"""Positions of a thread, if there are no more than 8192 of a line: what it waits for together."""

SUMS_OF_A_WARP: Final = 512
"""Sums for which a program has another warp, though its positions are few: to begin and to end them takes longer."""

BUSY: Final = 128
"""Programs that keep a GPU busy: about as many as it has multiprocessors."""

LEAST_SHARE: Final = 1024
"""Minimum sums of a program that has a share of a line's because there are few programs."""

MOST_WARPS: Final = 32
"""Maximum warps of a program: a launch may have no more."""

REGISTERS: Final = 64
"""Maximum registers of a thread: those of 32 warps are a multiprocessor's."""

DECLARED: Final = 40 << 10
"""Bytes of shared memory up to which a kernel declares its words; what Triton wants beside has to fit, too."""

TRITONS: Final = ("words += tl.minimum(tl.max(tl.arange(0, RBLOCK) + tl.num_programs(0), 0), 0)",)
"""A line that adds 0 and has Triton ask for shared memory of its own, by which words behind it are found: a maximum
over warps goes through it. Of a constant block Triton 3.9 would fold it."""

ENDED_TOGETHER: Final = 4
"""Sums of a thread whose bases wait together."""

HALF: Final = "12582912.0"
"""1.5 · 2^23: a smaller float added to it is rounded to a whole number, which is in the lowest bits."""

HALF_BITS: Final = 0x4B400000
"""The bits of `HALF`."""


def share_of_line(rows: int, columns: int, programs: int, room: int) -> int:
    """Sums of each of so many lines that a program has, of so many bytes of shared memory: as many as others, if they
    are shared out. Of few `programs` each has a smaller share, so that a GPU is busy.

    >>> share_of_line(5000, 1, 300, 227 << 10), share_of_line(100_000, 1, 13, 227 << 10)
    (5024, 11136)
    >>> share_of_line(100_000, 1, 300, 99 << 10), share_of_line(45_587, 1, 1, 227 << 10)
    (8352, 1024)
    """
    padded = padded_sums(rows)
    most_sums = min(SUMS_AT_ONCE, (room - TRITONS_BYTES) // SUM_BYTES)
    most_sums = most_sums // columns // 32 * 32
    shares = max(-(-padded // most_sums), min(BUSY // max(programs, 1), -(-hint(rows) * columns // LEAST_SHARE)), 1)
    return padded if shares == 1 else padded_sums(-(-padded // shares))


class ScaledLines(LineSums):
    """One kernel, whose programs have a line each, some columns, or a share of their sums.

    Args:
        beside: columns of a program, a power of two; 1 for a line.
        room: bytes of shared memory that a program may have.

    Attributes:
        warps, lanes: of a program, and its threads: a round has a position of a line for each.
        sums: of a program.
    """

    def __init__(self, group: Group, node: Node, beside: int, room: int):
        super().__init__(group, node)
        self.beside, self.lines, self.turns = beside, 1, 1
        count = power_of_two(self.rows.length) * beside
        if room_for(self.rows.length) * beside > ALL_AT_ONCE:
            raise ValueError(f"{room_for(self.rows.length)} positions of {beside} lines are not added at once")
        self.share = share_of_line(self.length, beside, hint(self.rows.rows) // beside, room)
        self.sums = self.share * beside
        threads = max(count // EACH, power_of_two(self.sums) // SUMS_OF_A_WARP * 32, 64)
        self.warps = min(threads // 32, MOST_WARPS)
        self.lanes = 32 * self.warps
        self.shares = 1 if room_for(self.length) <= self.share else -(-self.length // self.share)
        self.rounds = -(-room_for(self.rows.length) * beside // self.lanes)
        self.loops, self.blocks = False, -(-self.rows.rows // beside)

    def source(self) -> KernelSource:
        """The finished kernel."""
        line = "tl.program_id(0)" if self.whole else f"tl.program_id(0) // {self.shares}"
        nbytes = SUM_BYTES * self.sums  # a multiple of 16: sums are one of 32
        beside = nbytes > DECLARED
        row_0 = "0" if self.whole else "row_0"
        many = self.rounds > EACH  # there is no room in registers for bases before
        text = ["words = g_words()", *(TRITONS if beside else ()), "thread = tl.arange(0, RBLOCK)[None, :]",
                *([] if self.whole else [f"row_0 = tl.program_id(0) % {self.shares} * {self.share}"]),
                f"own = {self.length}" if self.whole else f"own = tl.minimum({self.length} - row_0, {self.share})",
                *(["strange = tl.zeros([XBLOCK, RBLOCK], tl.int64)"] if self.check else []),
                *self.positions(line),
                "g_emptied(words, thread)",
                *self.places(row_0),
                "tl.debug_barrier()",
                *(f"first_{k} = g_raised(place_{k}, power_{k}, mine_{k})" for k in range(self.rounds)),
                "tl.debug_barrier()",
                *(line for k in range(self.rounds) for line in self.counted(k)),
                *([] if many else self.bases("0", row_0)),
                "tl.debug_barrier()",
                *(line for k in range(self.rounds) for line in self.made(k)),
                *(self.bases("0", row_0) if many else []),
                "tl.debug_barrier()",
                *self.sums_ended(row_0)]
        if self.check:
            size, negative, report = self.check
            text.append(f"g_in_range(strange, {size}, {negative}, strange != 0, {report})")
        helpers = "\n".join((words_helper(nbytes, beside=beside), emptied_helper(nbytes, self.lanes),
                             got_helper("s32"), got_helper("f32"), put_helper("f32"), raised_helper(),
                             counted_helper()))
        inputs = {} if self.constant else {"base": input_of(self.base, self.group)}
        return self.rows.source("lines_summed", text, {"out": self.group.outputs[0]},
                                {"XBLOCK": 1, "RBLOCK": self.lanes}, self.blocks * self.shares, self.warps, helpers,
                                inputs=inputs, shared=nbytes if beside else 0, registers=REGISTERS)

    def positions(self, line: str) -> list[str]:
        """Each thread's positions: to_row, added and here of each round, all of them on their way at once."""
        if self.beside == 1:
            return [*self.of(0, self.rows.x_lines(line)), *self.loaded("0")]
        integer, of = self.rows.integer, self.beside
        inner, corner = self.inner, f"{self.length} * {self.inner}"
        found = [f"column = thread % {of}", f"x_0 = ({line}){integer} * {of} + column", "x_mask_0 = x_0 < x_size",
                 f"corner = x_0 // {inner} * ({corner}) + x_0 % {inner}"]
        for k in range(self.rounds):
            lines = [f"r = {k * (self.lanes // of)} + (thread // {of}){integer}", f"r_mask = r < {self.rows.size}",
                     *self.operands, f"to_row = {self.rows.names[0]}",
                     f"added = ({self.rows.names[1]}).to({triton_type(self.total)})", "here = x_mask & r_mask"]
            mine = {text.partition(" = ")[0] for text in lines if re.match(r"\w+ = ", text)}
            found += self.of(0, self.of(f"0_{k}", lines, sorted(mine)))
        return found

    def places(self, row_0: str) -> list[str]:
        """Each round tells which elements are the program's, where their sums' words are, and their exponents.

        Zeros are left out, and numbers below float32's normal range have the least exponent."""
        found = []
        for k in range(self.rounds):
            row, here = f"to_row_0_{k}", f"here_0_{k}"
            found += [
                *self.wrapped(row),
                *([f"outside = {here} & ((wanted < 0) | (wanted >= {self.length}))",
                   f"strange = tl.where(outside, {row}.to(tl.int64), strange)"] if self.check else []),
                *([] if self.whole else [f"wanted = wanted - {row_0}"]),
                f"bits_{k} = added_0_{k}.to(tl.int32, bitcast=True)",
                f"mine_{k} = {here} & (wanted >= 0) & (wanted < own) & (bits_{k} * 2 != 0)",
                f"place_{k} = words + tl.where(mine_{k}, wanted, 0).to(tl.int32) * {4 * self.beside}"
                + (" + column * 4" if self.beside > 1 else ""),
                f"power_{k} = tl.maximum((bits_{k} >> 23) & 255, 1)"]
        return found

    def counted(self, k: int) -> list[str]:
        """A round's elements as whole numbers, added to the words of their sums.

        The scale's power of two is out of float32's range for small exponents: it is multiplied by in two steps, of
        which the first may lose what is far below the scale.
        """
        return [
            f"top = g_got_s32(place_{k}, mine_{k})",
            f"scale = {126 + HIGH_BITS} - top",
            "half = scale >> 1",
            f"scaled = added_0_{k} * ((half + 127) << 23).to(tl.float32, bitcast=True)",
            "scaled = scaled * ((scale - half + 127) << 23).to(tl.float32, bitcast=True)",
            f"near = scaled + {HALF}",
            f"rest = (scaled - (near - {HALF})) * {float(1 << LOW_BITS)} + {HALF}",
            f"infinite = top == {INFINITE}",
            f"magnitude = bits_{k} & 0x7FFFFFFF",
            f"sign = tl.where(bits_{k} < 0, {MINUS}, 1)",
            f"code = tl.where(magnitude > 0x7F800000, {MINUS + 1}, tl.where(magnitude == 0x7F800000, sign, 0))",
            f"high = tl.where(infinite, 0, near.to(tl.int32, bitcast=True) - {HALF_BITS})",
            f"low = tl.where(infinite, code, rest.to(tl.int32, bitcast=True) - {HALF_BITS})",
            f"g_counted(place_{k} + {4 * self.sums}, high, mine_{k} & (high != 0))",
            f"g_counted(place_{k} + {8 * self.sums}, low, mine_{k} & (low != 0))"]

    def made(self, k: int) -> list[str]:
        """The sums to which a round's elements came first, as floats in the place of their lower words."""
        return [f"top = g_got_s32(place_{k}, first_{k})",
                f"high = g_got_s32(place_{k} + {4 * self.sums}, first_{k})",
                f"low = g_got_s32(place_{k} + {8 * self.sums}, first_{k})",
                f"power = (top.to(tl.int64) + {1023 - 126 - HIGH_BITS - LOW_BITS}) << 52",
                f"exact = high.to(tl.float64) * {float(1 << LOW_BITS)} + low.to(tl.float64)",
                "found = (exact * power.to(tl.float64, bitcast=True)).to(tl.float32)",
                f"endless = tl.where(low & {MINUS - 1} == 0, -float('inf'), "
                f"tl.where(low >> {MINUS.bit_length() - 1} == 0, float('inf'), float('nan')))",
                f"g_put_f32(place_{k} + {8 * self.sums}, tl.where(top == {INFINITE}, endless, found), first_{k})"]

    @property
    def together(self) -> range:
        """Numbers of a thread's sums that are ended together."""
        return range(min(-(-self.sums // self.lanes), ENDED_TOGETHER))

    def bases(self, first: str, row_0: str) -> list[str]:
        """The next sums that a thread ends: where they go, whether they are there, and what they begin as."""
        several, lines = self.beside > 1, []
        for j in self.together:
            row = f"(sum_{j} // {self.beside})" if several else f"sum_{j}"
            lines += [f"sum_{j} = {first} + {j * self.lanes} + thread",
                      f"there_{j} = x_mask_0 & ({row} < own)",
                      f"at_{j} = corner + ({row_0} + {row}) * {self.inner}" if several else
                      f"at_{j} = x_0 * {self.length} + ({row_0} + {row})",
                      *([] if self.constant else [f"base_{j} = tl.load(base + at_{j}, mask=there_{j}, other=0)"])]
        return lines

    def sums_ended(self, row_0: str) -> list[str]:
        """Each sum, added to the base, goes to memory; the next ones' bases are on their way meanwhile."""
        total, stored = triton_type(self.total), triton_type(self.node.dtype)
        base = literal(self.base["value"], self.total) if self.constant else ""
        names = ("sum", "there", "at", *(() if self.constant else ("base",)))
        lines = [f"{name}_{j}_now = {name}_{j}" for j in self.together for name in names]
        step = len(self.together) * self.lanes
        lines += self.bases(f"first + {step}", row_0)
        for j in self.together:
            lines += [f"found = g_got_f32(words + {8 * self.sums} + 4 * sum_{j}_now, there_{j}_now)",
                      f"begun = thread * 0 + ({base})" if self.constant else f"begun = base_{j}_now.to({total})",
                      "found = tl.where(found == 0, begun, begun + found)",  # -0.0 stays, where nothing is added
                      f"tl.store(out + at_{j}_now, found.to({stored}), mask=there_{j}_now)"]
        return [f"for first in tl.range(0, {self.sums}, {step}):", *(f"    {x}" for x in lines)]
