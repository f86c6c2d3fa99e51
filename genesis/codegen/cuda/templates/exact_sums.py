"""scatter_add and index_add along lines of floats, exactly, in one launch (`ir/ops/exact_sums.py`).

The first programs have positions: each takes its floats apart into whole numbers and adds them to the words of their
sums by atomics of 64 bits; equal places of a warp's lanes are added up first, so that a place that many hit is asked
for once a warp. Then a program says that it has, and which windows it needed. The others have sums: each waits until
all positions are added, reads its sums' words of the windows that anybody needed, leaves 0 there, and writes the base
with the sum. Programs of lower numbers begin first and wait for nobody, so nobody waits for a program that has no place
to run.

Every bit is the same in each run: whole numbers add up alike in any order, and each sum is rounded once.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from typing import Final

from genesis.codegen.cuda.expressions import literal
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.source import Exchange, KernelSource
from genesis.codegen.cuda.templates.checked_index import checked_outside
from genesis.codegen.cuda.templates.line_sums import LineSums
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.rows import Rows
from genesis.codegen.cuda.templates.shared_words import (
    assembly,
    equal_ones_registers,
    equal_ones_summed,
    sum_kind,
)
from genesis.ir.node import Node
from genesis.ir.ops.exact_sums import windows_for
from genesis.ir.ops.sum_forms import exact_told
from genesis.ir.place import EXCHANGE_BYTES, EXCHANGE_FLAGS, SUM_WORDS
from genesis.ir.sym_int import SymInt, hint, most
from genesis.ir.types import int32, int64, tensor_type
from genesis.passes.groups import Group

ASSIGNED: Final = re.compile(r"(\w+) = ")
"""A line that names a value."""

WARPS: Final = 8
"""Warps of a program."""

ROUNDS: Final = 4
"""Maximum positions of a thread, whose loads wait together; fewer where each multiprocessor has a program then."""

EACH: Final = (2, 4)
"""Sums of a thread, few or many, whose words wait together. They lie a program's threads apart: of neighbours Triton
would move elements from one layout to another, by what each access likes best. With two a thread 100,000 sums took
6.0 µs for 7.6 with four, and 264,000 beside their gather 13.2 for 11.0 (H200)."""

AT_ONCE: Final = 5 * H200.multiprocessors
"""Programs up to which threads have few sums: nearly all of them run at once. 774, of 264,000 positions and sums, are
too many. A class of sizes is weighed in its middle."""

TOGETHER: Final = 3
"""Windows whose words are read together: those of a normal distribution's numbers, mostly."""

COUNT_BITS: Final = 21
"""Bits of the counts of infinities, of negative ones and of NaNs, in the word for what is not finite."""

NOT_FINITE: Final = 255
"""The exponent of infinities and NaNs."""

DONE, USED, READ = range(3)
"""Flags: programs that have added their positions and windows that were needed, which are read as one word of 64 bits,
and programs that have read it."""


def emit_exact_sums(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with an exact_sums."""
    sizes = node.shape[0], node.shape[1], node.inputs[1].shape[1], prod(node.shape[2:])
    return replace(ExactSums(group, node).source(), note=exact_told(*sizes, node.dtype))


class ExactSums:
    """One kernel.

    Attributes:
        total: the dtype that a sum is added to the base in.
        sums, count: all of them, and all positions.
        rounds, each: positions of a thread, and sums of one.
        adders, makers: programs that have positions, and programs that have sums.
    """

    def __init__(self, group: Group, node: Node):
        self.group, self.node = group, node
        self.base, index, source = node.inputs
        self.rows = Rows(group, (index, source), 1)
        self.total = sum_kind(node.dtype)[0]
        self.length, self.inner = node.shape[1], prod(node.shape[2:])
        self.sums, self.count = node.type.numel, index.type.numel
        self.windows = windows_for(node.dtype, self.count)
        self.rounds = max(1, min(-(-hint(self.count) // (32 * WARPS * H200.multiprocessors)), ROUNDS))
        self.adders = -(-self.count // (32 * WARPS * self.rounds))
        programs = (hint(self.count) // self.rounds + hint(self.sums) // EACH[0]) // (32 * WARPS)
        self.each = EACH[programs * (3 if isinstance(self.sums, SymInt) else 4) // 4 > AT_ONCE]
        self.makers = -(-self.sums // (32 * WARPS * self.each))
        self.operands, self.check = checked_outside(self.rows, self.length)

    def source(self) -> KernelSource:
        """The finished kernel."""
        text = ["if tl.program_id(0) < adders:", *(f"    {line}" for line in self.positions_added()),
                "else:", *(f"    {line}" for line in self.sums_made())]
        device = self.node.type.device
        words = min(most(self.sums) * self.windows.words, SUM_WORDS)  # who decides for it looks that they fit
        inputs = {} if self.constant else {"base": input_of(self.base, self.group)}
        exchanged = {"flags": Exchange(0, tensor_type((EXCHANGE_FLAGS,), int32, device)),
                     "words": Exchange(EXCHANGE_BYTES, tensor_type((words,), int64, device))}
        return self.rows.source("exact_sums", text, {"out": self.group.outputs[0]},
                                {"XBLOCK": 1, "RBLOCK": 32 * WARPS}, self.adders + self.makers, WARPS,
                                "".join((alike_helper(), WAITED, ENTERED, LEFT)), inputs={**inputs, **exchanged},
                                sizes={"count": self.count, "sums": self.sums, "adders": self.adders,
                                       "makers": self.makers})

    @property
    def constant(self) -> bool:
        """Does the kernel write the base itself?"""
        return self.base.op.name == "const"

    def positions_added(self) -> list[str]:
        """A program's positions, in the order in which they lie, added to the words of their sums."""
        found, each = [self.position(k) for k in range(self.rounds)], range(self.rounds)
        return [
            *(line for asked, _ in found for line in asked), *(line for _, rest in found for line in rest),
            f"used = tl.reduce_or({' | '.join(f'tl.where(here_{k}, 1 << window_{k}, 0)' for k in each)}, 1)",
            "lane = tl.arange(0, 1)",
            f'tl.atomic_or(flags + {USED} + lane, used, sem="relaxed")',
            *(line for k in each for line in (
                f"number_{k} = g_alike(at_{k}, tl.where(here_{k}, number_{k}, 0))",
                f'tl.atomic_add(words + at_{k}, number_{k}, mask=number_{k} != 0, sem="relaxed")')),
            "tl.debug_barrier()",
            f'tl.atomic_add(flags + {DONE} + lane, 1, sem="release", scope="gpu")']

    def position(self, k: int) -> tuple[list[str], list[str]]:
        """A thread's next position as it is asked for, then the word that it is added to and the whole number."""
        length, inner = self.rows.length, self.inner
        flat = inner.__class__ is int and inner == 1
        near = ([f"x = place // {length}", f"r = place % {length}"] if flat else
                [f"x = place // ({length} * {inner}) * {inner} + place % {inner}", f"r = place // {inner} % {length}"])
        corner = f"x * {self.length}" if flat else f"x // {inner} * ({self.length} * {inner}) + x % {inner}"
        asked = [f"place = (tl.program_id(0) * {self.rounds} + {k}) * RBLOCK + tl.arange(0, RBLOCK)[None, :]",
                 "inside = place < count", *near, "x_mask = inside", "r_mask = inside", *self.operands,
                 f"to_row = {self.rows.names[0]}",
                 f"added = ({self.rows.names[1]}).to({triton_type(self.node.dtype)}).to(tl.float32)"]
        rest = [*self.wrapped(), *self.numbers(),
                f"sum = ({corner}) + wanted.to(tl.int32)" + ("" if flat else f" * {inner}"),
                "at = tl.where(here, window * sums + sum, -1)"]
        names = sorted({found[1] for line in (*asked, *rest) if (found := ASSIGNED.match(line))})
        return LineSums.of(k, asked, names), LineSums.of(k, rest, names)

    def wrapped(self) -> list[str]:
        """The number of a line's sum, of which negative ones may count from the end, and whether it is one."""
        found = ["wanted = to_row"]
        if self.check is not None:
            size, negative, report = self.check
            if negative:
                found = [f"wanted = tl.where(to_row < 0, to_row + {size}, to_row)"]
            found += [f"outside = inside & ((wanted < 0) | (wanted >= {self.length}))",
                      f"g_in_range(to_row.to(tl.int64), {size}, {negative}, outside, {report})"]
        return [*found, f"inside = inside & (wanted >= 0) & (wanted < {self.length})"]

    def numbers(self) -> list[str]:
        """Floats as whole numbers of their windows; a zero is left out."""
        of = self.windows
        return [
            "bits = added.to(tl.int32, bitcast=True)",
            "here = inside & (bits * 2 != 0)",
            "power = (bits >> 23) & 255",
            "fraction = bits & 0x7FFFFF",
            f"step = tl.maximum(power, 1) - {1 + of.first}",
            f"window = step // {of.size}",
            f"number = tl.where(power > 0, fraction | 0x800000, fraction) >> {24 - of.digits}",
            f"number = number.to(tl.int64) << (step - window * {of.size}).to(tl.int64)",
            "number = tl.where(bits < 0, -number, number)",
            f"code = tl.where(bits < 0, {1 << COUNT_BITS}, 1).to(tl.int64)",
            f"code = tl.where(fraction != 0, {1 << 2 * COUNT_BITS}, code)",
            f"number = tl.where(power == {NOT_FINITE}, code, number)",
            f"window = tl.where(power == {NOT_FINITE}, {of.many}, window)"]

    def sums_made(self) -> list[str]:
        """A program's sums, once all positions are added; their words are 0 again."""
        total, stored = triton_type(self.total), triton_type(self.node.dtype)
        each, last = range(self.each), self.windows.many
        sets = [range(first, min(first + TOGETHER, last)) for first in range(0, last, TOGETHER)]
        constant = literal(self.base["value"], self.total) if self.constant else ""
        return [
            *(line for k in each for line in (
                f"own_{k} = ((tl.program_id(0) - adders) * {self.each} + {k}) * RBLOCK + tl.arange(0, RBLOCK)[None, :]",
                f"there_{k} = own_{k} < sums",
                f"begun_{k} = tl.full([1, RBLOCK], {constant}, {total})" if self.constant else
                f"begun_{k} = tl.load(base + own_0 + {k} * RBLOCK, mask=there_{k}, other=0)",
                f"found_{k} = tl.zeros([1, RBLOCK], tl.float64)")),
            "needed = g_waited(flags.to(tl.int64), adders)",
            "entered = g_entered(flags.to(tl.int64), adders)",
            *(line for windows in sets for line in self.words_read(windows)),
            f"if (needed >> {last}) & 1 != 0:",
            *(f"    {line}" for k in each for line in self.endless(k)),
            *(line for k in each for line in (
                f"begun_{k} = begun_{k}.to({total})",
                f"made_{k} = (begun_{k}.to(tl.float64) + found_{k}).to({total})",
                f"made_{k} = tl.where(found_{k} == 0, begun_{k}, made_{k})",  # -0.0 stays, where nothing is added
                f"tl.store(out + own_0 + {k} * RBLOCK, made_{k}.to({stored}), mask=there_{k})")),
            "g_left(flags.to(tl.int64), entered, makers)"]

    def words_read(self, windows: range) -> list[str]:
        """Add up what the sums have of some windows, if anybody needed one of these."""
        every = [(w, k) for k in range(self.each) for w in windows]
        bits = sum(1 << w for w in windows)
        return [f"if needed & {bits} != 0:", *(f"    {line}" for line in (
            *(f"words_{w} = words + ({w} * sums + own_0)" for w in windows),
            *(f"asked_{w}_{k} = there_{k} & ((needed >> {w}) & 1 != 0)" for w, k in every),
            *(f"word_{w}_{k} = {self.word(w, k)}" for w, k in every),
            *(line for w, k in every for line in (
                f"found_{k} += word_{w}_{k}.to(tl.float64) * {2.0 ** self.windows.exponent(w)!r}",
                self.emptied(w, k)))))]

    @staticmethod
    def word(window: int, k: int) -> str:
        """A thread's k-th sum's word of a window, as other programs left it in the L2."""
        return (f"tl.load(words_{window} + {k} * RBLOCK, mask=asked_{window}_{k}, other=0, "
                "cache_modifier='.cg')")

    @staticmethod
    def emptied(window: int, k: int) -> str:
        """That word is 0 for the next kernel."""
        word = f"word_{window}_{k}"
        return f"tl.store(words_{window} + {k} * RBLOCK, {word} * 0, mask=asked_{window}_{k} & ({word} != 0))"

    def endless(self, k: int) -> list[str]:
        """Sums with something that is not finite are told by how often each kind was added."""
        last, counts = self.windows.many, (1 << COUNT_BITS) - 1
        word = f"word_{last}_{k}"
        return [f"words_{last} = words + ({last} * sums + own_0)",
                f"asked_{last}_{k} = there_{k}",
                f"{word} = {self.word(last, k)}",
                f"plus_{k} = ({word} & {counts}) != 0",
                f"minus_{k} = ((({word} >> {COUNT_BITS}) & {counts}) != 0)",
                f"endless_{k} = tl.where(plus_{k}, float('inf'), -float('inf'))",
                f"endless_{k} = tl.where(({word} >> {2 * COUNT_BITS} != 0) | (plus_{k} & minus_{k}), float('nan'), "
                f"endless_{k})",
                f"found_{k} = tl.where({word} != 0, endless_{k}, found_{k})",
                self.emptied(last, k)]


WAITED: Final = '''
@triton.jit
def g_waited(flags, adders):
    """Wait until so many programs have added their positions; the windows that they needed, as bits."""
    return tl.inline_asm_elementwise("""{ // shared waited
        .shared .align 4 .b32 told;
        .reg .pred %others, %more;
        .reg .b32 %thread, %done, %used;
        .reg .b64 %both;
        mov.u32 %thread, %tid.x;
        setp.ne.u32 %others, %thread, 0;
        @%others bra READY;
        MORE:
        ld.acquire.gpu.global.b64 %both, [$1];
        mov.b64 {%done, %used}, %both;
        setp.lt.s32 %more, %done, $2;
        @%more bra MORE;
        st.shared.b32 [told], %used;
        READY:
        bar.warp.sync -1;
        barrier.sync 0;
        ld.shared.b32 $0, [told];
        }""", "=r,l,r", [flags, adders], dtype=tl.int32, is_pure=False, pack=1)
'''
"""`g_waited(flags, adders)`: one thread asks for `DONE` and `USED` together, the others wait for it."""

ENTERED: Final = '''
@triton.jit
def g_entered(flags, adders):
    """Say that this program has read the flags; how many had before, for its first thread, and -1 for others."""
    return tl.inline_asm_elementwise("""{ // shared entered
        .reg .pred %first;
        .reg .b32 %thread;
        mov.u32 %thread, %tid.x;
        setp.eq.u32 %first, %thread, 0;
        mov.b32 $0, -1;
        @%first atom.relaxed.gpu.global.add.u32 $0, [$1+8], 1;
        }""", "=&r,l,r", [flags, adders], dtype=tl.int32, is_pure=False, pack=1)
'''
"""`g_entered(flags, adders)`: what it gives is on its way while sums are made."""

LEFT: Final = '''
@triton.jit
def g_left(flags, entered, makers):
    """Leave the flags 0, if all other programs had read them."""
    tl.inline_asm_elementwise("""{ // shared left
        .reg .pred %last;
        .reg .b32 %all;
        sub.s32 %all, $3, 1;
        setp.eq.s32 %last, $2, %all;
        mov.b32 $0, 0;
        @%last st.global.b32 [$1], $0;
        @%last st.global.b32 [$1+4], $0;
        @%last st.global.b32 [$1+8], $0;
        }""", "=&r,l,r,r", [flags, entered, makers], dtype=tl.int32, is_pure=False, pack=1)
'''
"""`g_left(flags, entered, makers)`."""


def alike_helper() -> str:
    """`g_alike(label, value)`: of the 32 elements of a warp's lanes, the first of equal labels has what they have
    together, and the others have 0; labels below 0 take no part."""
    lines = [".reg .pred %here, %first;",
             ".reg .s64 %sum;",
             *equal_ones_registers("s64"),
             "setp.ge.s32 %here, $1, 0;",
             "mov.b64 %sum, $2;",
             *equal_ones_summed("s64", "$1", "%sum", "%here", "%first", 0),
             "selp.b64 $0, %sum, 0, %first;"]
    return f'''
@triton.jit
def g_alike(label, value):
    """What equal labels of a warp's lanes have together, at the first of them."""
    return tl.inline_asm_elementwise("""{{ // shared alike s64{assembly(lines)}
        }}""", "=&l,r,l", [label, value], dtype=tl.int64, is_pure=False, pack=1)
'''
