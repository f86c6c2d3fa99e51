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
from genesis.ir.ops.exact_sums import windows_of
from genesis.ir.ops.sum_forms import forms_of, told
from genesis.ir.place import EXCHANGE_BYTES, EXCHANGE_FLAGS
from genesis.ir.sym_int import most
from genesis.ir.types import int32, int64, tensor_type
from genesis.passes.groups import Group

ASSIGNED: Final = re.compile(r"(\w+) = ")
"""A line that names a value."""

WARPS: Final = 8
"""Warps of a program."""

ROUNDS: Final = 4
"""Positions of a thread, whose loads wait together."""

POSITIONS: Final = 32 * WARPS * ROUNDS
"""Positions of a program."""

SUMS: Final = 32 * WARPS
"""Sums of a program, one of a thread, whose words of all windows wait together. With more than one element of a thread
Triton would move them from one layout to another, by what each access likes best."""

REGISTERS: Final = 64
"""Maximum registers of a thread: four programs on a multiprocessor."""

COUNT_BITS: Final = 21
"""Bits of the counts of infinities, of negative ones and of NaNs, in the word for what is not finite."""

NOT_FINITE: Final = 255
"""The exponent of infinities and NaNs."""

DONE, USED, LEFT = range(3)
"""Flags: programs that have added their positions, windows that were needed, and programs that have read both."""


def emit_exact_sums(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with an exact_sums."""
    sizes = node.shape[0], node.shape[1], node.inputs[1].shape[1], prod(node.shape[2:])
    return replace(ExactSums(group, node).source(), note=told(forms_of(*sizes, node.dtype), "exact"))


class ExactSums:
    """One kernel.

    Attributes:
        total: the dtype that a sum is added to the base in.
        sums, count: all of them, and all positions.
        adders, makers: programs that have positions, and programs that have sums.
    """

    def __init__(self, group: Group, node: Node):
        self.group, self.node = group, node
        self.base, index, source = node.inputs
        self.rows = Rows(group, (index, source), 1)
        self.total = sum_kind(node.dtype)[0]
        self.length, self.inner = node.shape[1], prod(node.shape[2:])
        self.sums, self.count = node.type.numel, index.type.numel
        self.windows = windows_of(node.dtype, most(self.count))
        self.adders, self.makers = -(-self.count // POSITIONS), -(-self.sums // SUMS)
        self.operands, self.check = checked_outside(self.rows, self.length)

    def source(self) -> KernelSource:
        """The finished kernel."""
        text = ["if tl.program_id(0) < adders:", *(f"    {line}" for line in self.positions_added()),
                "else:", *(f"    {line}" for line in self.sums_made())]
        device = self.node.type.device
        words = most(self.sums) * self.windows.words
        inputs = {} if self.constant else {"base": input_of(self.base, self.group)}
        exchanged = {"flags": Exchange(0, tensor_type((EXCHANGE_FLAGS,), int32, device)),
                     "words": Exchange(EXCHANGE_BYTES, tensor_type((words,), int64, device))}
        return self.rows.source("exact_sums", text, {"out": self.group.outputs[0]},
                                {"XBLOCK": 1, "RBLOCK": 32 * WARPS, "SUMS": SUMS}, self.adders + self.makers, WARPS,
                                alike_helper(), sizes={"count": self.count, "sums": self.sums, "adders": self.adders},
                                inputs={**inputs, **exchanged}, registers=REGISTERS)

    @property
    def constant(self) -> bool:
        """Does the kernel write the base itself?"""
        return self.base.op.name == "const"

    def positions_added(self) -> list[str]:
        """A program's positions, in the order in which they lie, added to the words of their sums."""
        found = [self.position(k) for k in range(ROUNDS)]
        return [
            *(line for asked, _ in found for line in asked), *(line for _, rest in found for line in rest),
            *(line for k in range(ROUNDS) for line in (
                f"number_{k} = g_alike(at_{k}, tl.where(here_{k}, number_{k}, 0))",
                f'tl.atomic_add(words + at_{k}, number_{k}, mask=number_{k} != 0, sem="relaxed")')),
            "used = tl.reduce_or(" + " | ".join(f"tl.where(here_{k}, 1 << window_{k}, 0)" for k in range(ROUNDS))
            + ", 1)",
            "tl.debug_barrier()",
            "lane = tl.arange(0, 1)",
            f'tl.atomic_or(flags + {USED} + lane, used, sem="relaxed")',
            f'tl.atomic_add(flags + {DONE} + lane, 1, sem="release", scope="gpu")']

    def position(self, k: int) -> tuple[list[str], list[str]]:
        """A thread's next position as it is asked for, then the word that it is added to and the whole number."""
        length, inner = self.rows.length, self.inner
        flat = inner.__class__ is int and inner == 1
        near = ([f"x = place // {length}", f"r = place % {length}"] if flat else
                [f"x = place // ({length} * {inner}) * {inner} + place % {inner}", f"r = place // {inner} % {length}"])
        corner = f"x * {self.length}" if flat else f"x // {inner} * ({self.length} * {inner}) + x % {inner}"
        asked = [f"place = tl.program_id(0) * {POSITIONS} + {k} * RBLOCK + tl.arange(0, RBLOCK)[None, :]",
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
        each, last = range(self.windows.words), self.windows.many
        begun = (f"tl.full([1, SUMS], {literal(self.base['value'], self.total)}, {total})" if self.constant else
                 f"tl.load(base + own, mask=there, other=0).to({total})")
        return [
            "own = (tl.program_id(0) - adders) * SUMS + tl.arange(0, SUMS)[None, :]",
            "there = own < sums",
            f"begun = {begun}",
            "ready = tl.full((), 0, tl.int32)",
            "while ready < adders:",
            f'    ready = tl.atomic_add(flags + {DONE}, 0, sem="acquire", scope="gpu")',
            "tl.debug_barrier()",
            f"needed = tl.load(flags + {USED}, volatile=True)",
            *(line for w in each for line in (
                f"asked_{w} = there & ((needed >> {w}) & 1 != 0)",
                f"word_{w} = tl.load(words + ({w} * sums + own), mask=asked_{w}, other=0, cache_modifier='.cg')")),
            # All that this program reads of the flags has been read; the words are on their way meanwhile.
            f'left = tl.atomic_add(flags + {LEFT}, 1, sem="relaxed", scope="gpu")',
            "if left == tl.num_programs(0) - adders - 1:",
            *(f"    tl.store(flags + {flag}, 0)" for flag in (DONE, USED, LEFT)),
            "found = tl.zeros([1, SUMS], tl.float64)",
            *(line for w in each for line in (
                *([f"found += word_{w}.to(tl.float64) * {2.0 ** self.windows.exponent(w)!r}"] if w < last else []),
                f"tl.store(words + ({w} * sums + own), word_{w} * 0, mask=asked_{w} & (word_{w} != 0))")),
            f"plus = word_{last} & {(1 << COUNT_BITS) - 1}",
            f"minus = (word_{last} >> {COUNT_BITS}) & {(1 << COUNT_BITS) - 1}",
            "endless = tl.where(plus != 0, float('inf'), -float('inf'))",
            f"endless = tl.where((word_{last} >> {2 * COUNT_BITS} != 0) | ((plus != 0) & (minus != 0)), "
            "float('nan'), endless)",
            f"found = tl.where(word_{last} != 0, endless, found)",
            f"made = (begun.to(tl.float64) + found).to({total})",
            "made = tl.where(found == 0, begun, made)",  # -0.0 stays, where nothing is added
            f"tl.store(out + own, made.to({stored}), mask=there)"]


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
