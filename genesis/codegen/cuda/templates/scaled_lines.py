"""scatter_add and index_add along lines of floats: all positions of a line at once, in whole numbers of a scale.

Floats added atomically give other bits each time; whole numbers do not, and shared memory adds them by itself. So the
positions of a line, up to ten for each thread of a program, are added in three steps, with a barrier between:

1. each sum's largest exponent among its positions (`atom.max`);
2. each position as a whole number of the sum's scale, 2^-33 of what is above its largest: in two words of 16 and 17
   bits, of which 16,384 fit in 32 bits (`red.add`);
3. each sum's words as one float64, which has all their bits, rounded once to float32, by the thread that came first.

Then sums are added to the base, whose first elements are on their way meanwhile.

Positions of a longer line do not stay in registers: they are read once for each of the first two steps, and the next
ones are on their way meanwhile. As more of them may meet in a sum its words have fewer bits, 29 for 65,536 positions.

A sum is off by half a unit of float32 and by 2^-33 of its largest position for each of them (2^-29 of 65,536): less
than float32 sums in any order may be. Every bit is the same in each run, and in whatever order positions come.
Infinities and NaNs have the largest exponent: their sums count them in the two words instead.

Where many positions meet in a sum they take turns of a clock or two each, not of a barrier (`long_lines.py`, which has
integers and float64).

Lines with more sums than a program has room for are shared out: each program looks at all positions of its line.
Lines may be columns, of which a program has some neighbours: a position's are pieces of a row of memory, and sums are
read and written so, too.
"""

from __future__ import annotations

import re
from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two, room_for
from genesis.codegen.cuda.expressions import literal
from genesis.codegen.cuda.gpu_model import H200
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
from genesis.ir.ops.sum_forms import LEAST_SHARE
from genesis.ir.sym_int import hint
from genesis.passes.groups import Group

SUM_BYTES: Final = 12
"""Bytes of shared memory for a sum: its exponent, and the upper and the lower word."""

TRITONS_BYTES: Final = 1024
"""Bytes of shared memory that are left to Triton."""

HIGH_BITS: Final = 30
"""Bits of a position's upper word beside its sign, and of the number of positions: rounded, so many of them are less
than 2^31. The lower word has a bit more: half of it, either way, for each."""

LEAST_ROOM: Final = 14
"""Minimum bits of the number of positions, with which 33 of a position are kept: of fewer positions more would be."""

INFINITE: Final = 255
"""The exponent of infinities and NaNs."""

EACH: Final = 8
"""Positions of a thread, if there are no more than 8192 of a line: what it waits for together."""

LOOPED: Final = 4
"""Positions of a thread of a longer line that it has at a time, beside as many that are on their way."""

SUMS_OF_A_WARP: Final = 512
"""Sums for which a program has another warp, though its positions are few: to begin and to end them takes longer."""

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
    for_busy = min(H200.figures.busy // max(programs, 1), -(-hint(rows) * columns // LEAST_SHARE))
    shares = max(-(-padded // most_sums), for_busy, 1)
    return padded if shares == 1 else padded_sums(-(-padded // shares))


class ScaledLines(LineSums):
    """One kernel, whose programs have a line each, some columns, or a share of their sums.

    Args:
        beside: columns of a program, a power of two; 1 for a line.
        room: bytes of shared memory that a program may have.

    Attributes:
        warps, lanes: of a program, and its threads: a round has a position of a line for each.
        sums: of a program.
        loops: whether positions are read in turns, as not all of them have room in registers.
        high_bits, low_bits: of a position's words.
    """

    def __init__(self, group: Group, node: Node, beside: int, room: int):
        super().__init__(group, node)
        self.beside, self.lines, self.turns = beside, 1, 1
        count = power_of_two(self.rows.length) * beside
        self.loops = room_for(self.rows.length) * beside > ALL_AT_ONCE
        if self.loops and beside > 1:
            raise ValueError(f"{room_for(self.rows.length)} positions of {beside} columns are not added at once")
        room_of = max(power_of_two(self.rows.length).bit_length() - 1, LEAST_ROOM)
        self.high_bits, self.low_bits = HIGH_BITS - room_of, HIGH_BITS + 1 - room_of
        self.share = share_of_line(self.length, beside, hint(self.rows.rows) // beside, room)
        self.sums = self.share * beside
        threads = max(count // EACH, power_of_two(self.sums) // SUMS_OF_A_WARP * 32, 64)
        self.warps = min(threads // 32, MOST_WARPS)
        self.lanes = 32 * self.warps
        self.shares = 1 if room_for(self.length) <= self.share else -(-self.length // self.share)
        self.rounds = LOOPED if self.loops else -(-room_for(self.rows.length) * beside // self.lanes)
        self.blocks = -(-self.rows.rows // beside)

    def source(self) -> KernelSource:
        """The finished kernel."""
        line = "tl.program_id(0)" if self.whole else f"tl.program_id(0) // {self.shares}"
        nbytes = SUM_BYTES * self.sums  # a multiple of 16: sums are one of 32
        beside = nbytes > DECLARED
        row_0 = "0" if self.whole else "row_0"
        text = ["words = g_words()", *(TRITONS if beside else ()), "thread = tl.arange(0, RBLOCK)[None, :]",
                *([] if self.whole else [f"row_0 = {self.which_share()} * {self.share}"]),
                f"own = {self.length}" if self.whole else f"own = tl.minimum({self.length} - row_0, {self.share})",
                *(["strange = tl.zeros([XBLOCK, RBLOCK], tl.int64)"] if self.check else []),
                *(self.in_turns(line, row_0) if self.loops else self.at_once(line, row_0)),
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

    def at_once(self, line: str, row_0: str) -> list[str]:
        """All positions, which stay in registers; the sums are floats then."""
        many = self.rounds > EACH  # there is no room in registers for bases before
        return [*self.positions(line),
                "g_emptied(words, thread)",
                *self.places(row_0),
                "tl.debug_barrier()",
                *(f"first_{k} = g_raised(place_{k}, power_{k}, mine_{k})" for k in range(self.rounds)),
                "tl.debug_barrier()",
                *(text for k in range(self.rounds) for text in self.counted(k)),
                *([] if many else self.bases("0", row_0)),
                "tl.debug_barrier()",
                *(text for k in range(self.rounds) for text in self.made(k)),
                *(self.bases("0", row_0) if many else []),
                "tl.debug_barrier()"]

    def in_turns(self, line: str, row_0: str) -> list[str]:
        """All positions twice, some of each thread at a time; the sums are words then."""
        names = [f"{name}_0_{k}" for k in range(self.rounds) for name in ("to_row", "here", "added")]
        step = self.rounds * self.lanes

        def turns(body: list[str]) -> list[str]:
            inside = [*(f"{name}_now = {name}" for name in names), *self.loaded(f"begin + {step}"), *body]
            return [*self.loaded("0"), f"for begin in tl.range(0, {self.rows.size}, {step}):",
                    *(f"    {text}" for text in inside)]
        return [*self.of(0, self.rows.x_lines(line)),
                "g_emptied(words, thread)",
                "tl.debug_barrier()",
                *turns([*self.places(row_0, "_now"),
                        *(f"g_raised(place_{k}, power_{k}, mine_{k})" for k in range(self.rounds))]),
                "tl.debug_barrier()",
                *turns([*self.places(row_0, "_now", again=True),
                        *(text for k in range(self.rounds) for text in self.counted(k, "_now"))]),
                *self.bases("0", row_0),
                "tl.debug_barrier()"]

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

    def places(self, row_0: str, now: str = "", again: bool = False) -> list[str]:
        """Each round tells which elements are the program's, where their sums' words are, and their exponents.

        Zeros are left out, and numbers below float32's normal range have the least exponent.

        Args:
            now: how the names of these positions end.
            again: whether their index was checked before.
        """
        found = []
        for k in range(self.rounds):
            row, here = f"to_row_0_{k}{now}", f"here_0_{k}{now}"
            found += [
                *self.wrapped(row),
                *([f"outside = {here} & ((wanted < 0) | (wanted >= {self.length}))",
                   f"strange = tl.where(outside, {row}.to(tl.int64), strange)"] if self.check and not again else []),
                *([] if self.whole else [f"wanted = wanted - {row_0}"]),
                f"bits_{k} = added_0_{k}{now}.to(tl.int32, bitcast=True)",
                f"mine_{k} = {here} & (wanted >= 0) & (wanted < own) & (bits_{k} * 2 != 0)",
                f"place_{k} = words + tl.where(mine_{k}, wanted, 0).to(tl.int32) * {4 * self.beside}"
                + (" + column * 4" if self.beside > 1 else ""),
                f"power_{k} = tl.maximum((bits_{k} >> 23) & 255, 1)"]
        return found

    def counted(self, k: int, now: str = "") -> list[str]:
        """A round's elements as whole numbers, added to the words of their sums.

        The scale's power of two is out of float32's range for small exponents: it is multiplied by in two steps, of
        which the first may lose what is far below the scale.
        """
        return [
            f"top = g_got_s32(place_{k}, mine_{k})",
            f"scale = {126 + self.high_bits} - top",
            "half = scale >> 1",
            f"scaled = added_0_{k}{now} * ((half + 127) << 23).to(tl.float32, bitcast=True)",
            "scaled = scaled * ((scale - half + 127) << 23).to(tl.float32, bitcast=True)",
            f"near = scaled + {HALF}",
            f"rest = (scaled - (near - {HALF})) * {float(1 << self.low_bits)} + {HALF}",
            f"infinite = top == {INFINITE}",
            f"magnitude = bits_{k} & 0x7FFFFFFF",
            f"plus = (magnitude > 0x7F800000) | (bits_{k} == 0x7F800000)",  # a NaN is infinite either way
            "minus = (magnitude > 0x7F800000) | ((magnitude == 0x7F800000) & (plus == 0))",
            f"high = tl.where(infinite, plus.to(tl.int32), near.to(tl.int32, bitcast=True) - {HALF_BITS})",
            f"low = tl.where(infinite, minus.to(tl.int32), rest.to(tl.int32, bitcast=True) - {HALF_BITS})",
            f"g_counted(place_{k} + {4 * self.sums}, high, mine_{k} & (high != 0))",
            f"g_counted(place_{k} + {8 * self.sums}, low, mine_{k} & (low != 0))"]

    def made(self, k: int) -> list[str]:
        """The sums to which a round's elements came first, as floats in the place of their lower words."""
        return [*self.float_of(f"place_{k}", f"first_{k}"),
                f"g_put_f32(place_{k} + {8 * self.sums}, found, first_{k})"]

    def float_of(self, place: str, wanted: str) -> list[str]:
        """`found`: the float that a sum's words, from this place on, are."""
        return [f"top = g_got_s32({place}, {wanted})",
                f"high = g_got_s32({place} + {4 * self.sums}, {wanted})",
                f"low = g_got_s32({place} + {8 * self.sums}, {wanted})",
                f"power = (top.to(tl.int64) + {1023 - 126 - self.high_bits - self.low_bits}) << 52",
                f"exact = high.to(tl.float64) * {float(1 << self.low_bits)} + low.to(tl.float64)",
                "found = (exact * power.to(tl.float64, bitcast=True)).to(tl.float32)",
                "endless = tl.where(low == 0, float('inf'), tl.where(high == 0, -float('inf'), float('nan')))",
                f"found = tl.where(top == {INFINITE}, endless, found)"]

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
            found = ([f"place = words + 4 * tl.where(there_{j}_now, sum_{j}_now, 0)",
                      *self.float_of("place", f"there_{j}_now")] if self.loops else
                     [f"found = g_got_f32(words + {8 * self.sums} + 4 * sum_{j}_now, there_{j}_now)"])
            lines += [*found,
                      f"begun = thread * 0 + ({base})" if self.constant else f"begun = base_{j}_now.to({total})",
                      "found = tl.where(found == 0, begun, begun + found)",  # -0.0 stays, where nothing is added
                      f"tl.store(out + at_{j}_now, found.to({stored}), mask=there_{j}_now)"]
        return [f"for first in tl.range(0, {self.sums}, {step}):", *(f"    {x}" for x in lines)]
