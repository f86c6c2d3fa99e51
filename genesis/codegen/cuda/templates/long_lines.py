"""scatter_add and index_add along long lines: the warps of a program add the elements of a line up in shared memory.

A warp by itself (`line_sums.py`) takes 128 positions of a line in some 0.4 µs. Here a program of up to 16 warps takes
2048 at a time, and those of them that meet in one sum find out who is first: each leaves its position's number in the
slot of its sum, where the least one stays; after a barrier that one adds, and the others come again
(`least_first_helper`). So sums are made in the order of the positions, as one thread would. Where many meet in a sum,
what still waits after some turns is added at once: equal ones of a warp's lanes as a tree, then warp after warp. Either
way every bit is the same in each run.

Lines with more sums than a program has room for are shared out: each program looks at all positions of its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two, room_for
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.line_sums import LOADS, LineSums, lanes_of, padded_sums, share_of
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.scaled_lines import ScaledLines
from genesis.codegen.cuda.templates.shared_words import (
    MANY_TURNS,
    REGISTER_LETTERS,
    assembly,
    equal_ones_registers,
    equal_ones_summed,
    get_helper,
    plus_instruction,
    put_helper,
    sum_kind,
    words_helper,
)
from genesis.ir.node import Node
from genesis.ir.ops.line_sums import MOST_TAKEN, columns_at_once, in_whole_numbers, taken_at_once
from genesis.ir.ops.sum_forms import lines_told
from genesis.ir.sym_int import most
from genesis.ir.types import DType
from genesis.passes.groups import Group

FARTHEST: Final = 1 << 17
"""Maximum positions of a line: a program takes 2048 of them in 1 to 2 µs (reckoned), one turn after another. What is
left are sorts of all positions, some 25 launches."""

FEWEST_COLUMNS: Final = 16
"""Minimum columns side by side that are added up where they lie; fewer are moved to where lines are. With 4 to 8,
pieces of 8 to 32 bytes, f32[4768, 512], bf16[9, 1024, 1000] and f16[2368, 1283] took 37, 85 and 136 µs on an H200 (in
lines, before these had marks, 19, 44 and 79)."""

MOST_TURNS: Final = 128
"""Maximum turns of a warp that has columns, 0.4 µs each; more positions are moved to where lines are."""

MOST_SHARES: Final = 8
"""Maximum programs that share a line's sums: each looks at all of its positions."""

SUMS_BYTES: Final = 64 << 10
"""Bytes of shared memory for a program's sums: with the slots two programs are on a Hopper's multiprocessor, and one
on those of GPUs that have 99 KB."""

REGISTERS: Final = 64
"""Maximum registers of a thread, with which two programs of 16 warps are on a multiprocessor. More warps take longer to
meet at a barrier, of which each turn has some six."""

DECLARED: Final = 40 << 10
"""Bytes of shared memory up to which a kernel declares its words; what Triton wants beside has to fit, too."""

SUMS_OF_A_WARP: Final = 1024
"""Sums for which a program has another warp, though its positions are few: to begin and to end them takes longer."""

SLOTS_EACH: Final = 2
"""Slots for each position that is taken at once: with one the positions of two sums met more often, and took turns for
nothing (H200: 3.1 µs a turn of 2048, three of which share a line)."""

SOON: Final = 3
"""Turns after which all is added at once if seven eighths of a program's threads still wait; of three times as many
positions as sums that are hit alike, fewer do. A turn in which 2048 positions meet in one slot takes 2.9 µs (H200)."""

MANY_IN_ONE: Final = 8
"""Numbers from different warps or elements that one sum has from which on the next positions are added at once, too."""

AHEAD: Final = {"f32": 6, "s32": 6, "f64": 2}
"""PTX type → numbers of a stretch that its thread asks for at once; with eight of four bytes a thread lacks registers
for other words."""

WIDE: Final = 4
"""Sums that a thread reads or writes at a time, where they begin and end: 16 bytes of float32."""


def _share(rows: int, size: int) -> int:
    """Sums of a line that a program of several warps has: as many as others, if they are shared out."""
    padded, most_sums = padded_sums(rows), SUMS_BYTES // size
    shares = -(-padded // most_sums)
    return padded if shares == 1 else padded_sums(-(-padded // shares))


def _by_warps(rows: int, count: int, inner: int, size: int) -> bool:
    """Are columns added up by warps by themselves, enough of them side by side?"""
    lanes = lanes_of(rows, count, inner, size)
    return 32 // lanes >= FEWEST_COLUMNS and most(count) <= MOST_TURNS * lanes * LOADS


def _columns(outer: int, rows: int, count: int, inner: int, dtype: DType) -> int:
    """How many columns a program adds up all at once; 0 where warps by themselves do, or they are moved to lines."""
    if (inner.__class__ is int and inner == 1) or _by_warps(rows, count, inner, sum_kind(dtype)[2]):
        return 0
    return columns_at_once(outer, rows, count, inner, dtype)


def sums_fit(outer: int, rows: int, count: int, inner: int, dtype: DType) -> bool:
    """Do the sums of a line of so many rows fit a few programs, and so many positions their patience?

    Args:
        outer: lines, or sets of columns.
        inner: columns beside each other.
    """
    if (dtype.itemsize == 8 and dtype.kind != "float") or most(count) > FARTHEST:
        return False
    size = sum_kind(dtype)[2]
    if inner.__class__ is int and inner == 1 and taken_at_once(rows, count):
        return most(rows) <= MOST_SHARES * _share(rows, size)
    if not (inner.__class__ is int and inner == 1) and not _by_warps(rows, count, inner, size):
        return columns_at_once(outer, rows, count, inner, dtype) > 0
    return most(rows) <= MOST_SHARES * share_of(rows, count, inner, size)


def emit_line_sums(group: Group, node: Node, gpu: GpuModel) -> KernelSource:
    """The kernel of a group with a lines_summed."""
    sizes = node.shape[0], node.shape[1], node.inputs[1].shape[1], prod(node.shape[2:])
    return replace(_line_sums(group, node, gpu), note=lines_told(*sizes, node.dtype))


def _line_sums(group: Group, node: Node, gpu: GpuModel) -> KernelSource:
    sizes = node.shape[1], node.inputs[1].shape[1]
    if node.type.ndim == 2 and in_whole_numbers(*sizes, node.dtype):
        return ScaledLines(group, node, 1, gpu.block_shared_memory).source()
    if node.type.ndim == 3 and (several := _columns(node.shape[0], *sizes, node.shape[2], node.dtype)):
        return ScaledLines(group, node, several, gpu.block_shared_memory).source()
    return (_LongLines if node.type.ndim == 2 and taken_at_once(*sizes) else LineSums)(group, node).source()


class _LongLines(LineSums):
    """One kernel, whose programs have a line each, or a share of one's sums.

    Attributes:
        warps, lanes: of a program, and its threads: a round of the line has an element for each.
    """

    def __init__(self, group: Group, node: Node):
        super().__init__(group, node)
        taken = taken_at_once(self.length, self.rows.length)
        self.share, self.lines, self.beside, self.turns = _share(self.length, self.size), 1, 1, 1
        self.warps = max(taken, min(power_of_two(self.share) // SUMS_OF_A_WARP * 32 * LOADS, MOST_TAKEN)) // 32 // LOADS
        self.lanes = 32 * self.warps
        self.shares = 1 if room_for(self.length) <= self.share else -(-self.length // self.share)
        self.stride = self.sums = self.share
        self.rounds = min(-(-power_of_two(self.rows.length) // self.lanes), LOADS)
        self.loops = room_for(self.rows.length) > self.rounds * self.lanes
        self.blocks = self.rows.rows
        self.slots = min(power_of_two(self.sums), SLOTS_EACH * power_of_two(self.rounds) * self.lanes)

    def source(self) -> KernelSource:
        """The finished kernel."""
        line = "tl.program_id(0)" if self.whole else f"tl.program_id(0) // {self.shares}"
        slots_at = -(-self.sums * self.size // 16) * 16
        nbytes = -(-(slots_at + 4 * words_of(self.kind, self.slots, self.numbers)) // 16) * 16
        beside = nbytes > DECLARED
        # What lies behind Triton's shared memory is found by its name, which is known where Triton has some: a minimum.
        least = "tl.min(thread, 1, keep_dims=True)" if beside else "0"
        text = ["words = g_words()", f"slots = words + {slots_at}", "line = 0",
                "thread = tl.arange(0, RBLOCK)[None, :]",
                *([] if self.whole else [f"row_0 = {self.which_share()} * {self.share}"]),
                *(["strange = tl.zeros([XBLOCK, RBLOCK], tl.int64)"] if self.check else []),
                *self.of(0, self.rows.x_lines(line)),
                *self.loaded("0"),
                f"for first in tl.range(0, {2 * self.slots}, RBLOCK):",
                f"    g_put_s32(slots + 4 * (first + thread), thread * 0 - 1, first + thread < {2 * self.slots})",
                *self.begun(),
                f"number = thread * 0 + ({least} - {2 * self.numbers})",
                "tl.debug_barrier()",
                *(self.looped() if self.loops else self.added("")),
                "tl.debug_barrier()",
                *self.ended()]
        if self.check:
            size, negative, report = self.check
            text.append(f"g_in_range(strange, {size}, {negative}, strange != 0, {report})")
        helpers = "\n".join((words_helper(nbytes, beside=beside),
                             *(put_helper(each) for each in sorted({"s32", self.kind})), get_helper(self.kind),
                             least_first_helper(self.kind, self.rounds, self.slots, self.lanes)))
        inputs = {} if self.constant else {"base": input_of(self.base, self.group)}
        return self.rows.source("lines_summed", text, {"out": self.group.outputs[0]},
                                {"XBLOCK": 1, "RBLOCK": self.lanes, "WIDE": min(power_of_two(self.share),
                                                                                WIDE * self.lanes)},
                                self.blocks * self.shares, self.warps, helpers, inputs=inputs,
                                shared=nbytes if beside else 0, registers=REGISTERS)

    @property
    def numbers(self) -> int:
        """How many numbers a turn takes: one for each of its positions."""
        return power_of_two(self.rounds) * self.lanes

    def adding(self, labels: Sequence[str], values: Sequence[str]) -> str:
        """Add values to the sums of their labels, the least position first."""
        return (f"number = g_least_first_{self.kind}({', '.join([*labels, 'words', 'slots', 'number', 'thread'])}, "
                f"{', '.join(values)})")


def least_first_helper(kind: str, count: int, slots: int, threads: int) -> str:
    """`g_least_first_{kind}(labels, words, slots, number, thread, values)`: add to words of this PTX type, of `count`
    elements a thread; gives the number of the next call.

    All threads of a program take part. An element's position is its thread's number, and behind that of all others for
    a thread's next element. Those of one slot, a label folded to a power of two, leave their positions there, the least
    of which stays. After a barrier that element adds, and is done. The others come again, under numbers that are less
    than all before, so that nothing is cleared; in the other half of the slots, so that a warp that is ahead writes
    over nothing that another still reads: a turn has one barrier, which also tells whether anybody is left. Equal
    labels have one slot: they are added in the order of their positions.

    What is left after `MANY_TURNS` turns is added at once (`_AllAtOnce`), and after `SOON` of them where nearly all
    threads still wait: elements that leave their numbers in one slot are one after another. The number's lowest bit
    says that it was so in the last call, and had to be: then it is done without any turn, and slots are as that call
    left them.
    """
    each = range(count)
    labels, values = [f"${1 + k}" for k in each], [f"${5 + count + k}" for k in each]
    words, marks, number, thread = (f"${1 + count + k}" for k in range(4))
    fold, taken = (slots - 1).bit_length(), threads << (count - 1).bit_length()
    lines = [
        f".reg .pred %waits<{count}>, %first<{count}>, %any;",
        f".reg .b32 %slot<{count}>, %place<{count}>, %mine<{count}>, %least<{count}>, %other, %next;",
        f".reg .{kind} %sum<{count}>;",
        f".reg .pred %heavy, %stays, %there<{AHEAD[kind]}>, %lead<{count}>;",
        ".reg .b32 %turns, %waiting, %own, %at, %bits<2>, %end;",
        f".reg .{kind} %part<{AHEAD[kind]}>;",
        *equal_ones_registers(kind),
        "mov.b32 %turns, 0;",
        f"and.b32 %next, {number}, 1;",
        "setp.ne.b32 %heavy, %next, 0;",
        f"and.b32 %next, {number}, -2;",
        f"mov.b32 %other, {4 * slots};",
        *(line for k in each for line in (
            f"setp.ge.s32 %waits{k}, {labels[k]}, 0;",
            f"shr.u32 %slot{k}, {labels[k]}, {fold};",
            f"xor.b32 %slot{k}, %slot{k}, {labels[k]};",
            f"and.b32 %slot{k}, %slot{k}, {slots - 1};",
            f"mad.lo.s32 %slot{k}, %slot{k}, 4, {marks};",
            f"mad.lo.s32 %place{k}, {labels[k]}, {8 if kind.endswith('64') else 4}, {words};",
            f"add.s32 %mine{k}, %next, {thread};",
            *([f"add.s32 %mine{k}, %mine{k}, {k * threads};"] if k else []))),
        "@%heavy bra.uni MANY;"]
    turn = [
        *(f"@%waits{k} red.shared.min.u32 [%slot{k}], %mine{k};" for k in each),
        "mov.pred %any, %waits0;",
        *(f"or.pred %any, %any, %waits{k};" for k in each[1:]),
        "bar.red.popc.u32 %waiting, 0, %any;",
        "setp.eq.u32 %any, %waiting, 0;",
        "@%any bra.uni DONE;",
        f"setp.ge.u32 %heavy, %turns, {MANY_TURNS};",
        "@%heavy bra.uni MANY;",
        f"setp.eq.u32 %heavy, %turns, {SOON};",
        f"setp.gt.and.u32 %heavy, %waiting, {threads - threads // 8}, %heavy;",
        "@%heavy bra.uni MANY;",
        "add.s32 %turns, %turns, 1;",
        *(f"@%waits{k} ld.shared.u32 %least{k}, [%slot{k}];" for k in each),
        *(f"setp.eq.and.u32 %first{k}, %least{k}, %mine{k}, %waits{k};" for k in each),
        *(f"@%first{k} ld.shared.{kind} %sum{k}, [%place{k}];" for k in each),
        *(f"@%first{k} {plus_instruction(kind)} %sum{k}, %sum{k}, {values[k]};" for k in each),
        *(f"@%first{k} st.shared.{kind} [%place{k}], %sum{k};" for k in each),
        *(line for k in each for line in (f"xor.pred %waits{k}, %waits{k}, %first{k};",
                                          f"add.s32 %slot{k}, %slot{k}, %other;",
                                          f"sub.s32 %mine{k}, %mine{k}, {taken};")),
        "neg.s32 %other, %other;",
        f"sub.s32 %next, %next, {taken};",
        "bra.uni AGAIN;"]
    text = (assembly(lines) + "\n    AGAIN:" + assembly(turn) + "\n    MANY:"
            + assembly(_AllAtOnce(kind, slots, threads, labels, values, words, marks).lines())
            + "\n    DONE:" + assembly(["mov.b32 $0, %next;"]))
    given = ", ".join((*(f"label_{k}" for k in each), "words", "slots", "number", "thread",
                       *(f"value_{k}" for k in each)))
    letters = ",".join((*("r" for _ in range(count + 4)), *(REGISTER_LETTERS[kind] for _ in each)))
    return f'''
@triton.jit
def g_least_first_{kind}({given}):
    """Add values to the shared words of their labels, equal ones in the order of their positions; the next number."""
    return tl.inline_asm_elementwise("""{{ // shared least_first {kind} {count} {slots} {threads}{text}
        }}""", "=r,{letters}", [{given}], dtype=tl.int32, is_pure=False, pack=1)
'''


def buckets_of(kind: str, slots: int, taken: int) -> int:
    """Buckets into which the sums fall of which many positions are left: as many as slots, but no more than have room
    beside what is added to them.

    >>> buckets_of("f32", 4096, 2048), buckets_of("f64", 4096, 2048), buckets_of("f32", 512, 1024)
    (2048, 1024, 512)
    """
    return min(slots, taken // (2 if kind == "f64" else 1))


def words_of(kind: str, slots: int, taken: int) -> int:
    """Words of shared memory behind a program's sums: two halves of slots, which are buckets at times."""
    values = taken * (2 if kind == "f64" else 1)
    return max(2 * slots, 3 * buckets_of(kind, slots, taken) + values) + 4


class _AllAtOnce:
    """Assembly that adds all that waits, a handful of barriers for however many meet in a sum.

    Equal labels of a warp's lanes are added up first, for each of their elements. What is left of a label is one number
    from each warp and element at most. Its label claims a bucket, the least label of several; those that have it leave
    their bit there, of up to 64, and so know how many come before them. Each number goes to its place in the bucket's
    stretch of a list, and the first one's thread adds the stretch up, in the order of the bits. Labels without a bucket
    come again.

    Buckets, bits and the list lie where the slots do. The next call's number says whether a sum had `MANY_IN_ONE`: then
    buckets and bits are left empty for that call, which is done in the same way; else slots are above all numbers
    again.

    Attributes:
        bits, listed, end: bytes from the first bucket to where bits begin, two words a bucket; to the list; and to the
            word that tells where the list's next free place is.
    """

    def __init__(self, kind: str, slots: int, threads: int, labels: Sequence[str], values: Sequence[str], words: str,
                 marks: str):
        count = len(labels)
        taken = threads << (count - 1).bit_length()
        self.kind, self.slots, self.threads, self.labels, self.values = kind, slots, threads, labels, values
        self.words, self.marks, self.each = words, marks, range(count)
        self.size, self.buckets = 8 if kind == "f64" else 4, buckets_of(kind, slots, taken)
        self.bits, self.listed = 4 * self.buckets, 12 * self.buckets
        self.end = 4 * (words_of(kind, slots, taken) - 4)

    def lines(self) -> list[str]:
        """All of it, from the label MANY on to before the label DONE; `%turns` is 0 if the number said it was to be
        so."""
        return [*self.of_warps(), *self.emptied(), "CLAIM:", *self.claimed(), *self.counted(), *self.put_in_a_list(),
                *self.stretches_added(), *self.again_or_left()]

    def of_warps(self) -> list[str]:
        """Each label's sum among a warp's lanes, in the register of the first of them, and its bucket."""
        fold = (self.buckets - 1).bit_length()
        return [
            "mov.u32 %own, %tid.x;",
            "setp.ne.u32 %stays, %own, %own;",
            *(line for k in self.each for line in (
                f"mov.{self.kind} %sum{k}, {self.values[k]};",
                *equal_ones_summed(self.kind, self.labels[k], f"%sum{k}", f"%waits{k}", f"%lead{k}", k),
                f"mov.pred %waits{k}, %lead{k};",
                f"shr.u32 %slot{k}, {self.labels[k]}, {fold};",
                f"xor.b32 %slot{k}, %slot{k}, {self.labels[k]};",
                f"and.b32 %slot{k}, %slot{k}, {self.buckets - 1};",
                f"mad.lo.s32 %slot{k}, %slot{k}, 4, {self.marks};"))]

    def emptied(self) -> list[str]:
        """Buckets have no label, bits are 0 and the list is empty, unless the last call left them so."""
        return [
            f"add.s32 %end, {self.marks}, {self.end};",
            "setp.eq.u32 %any, %turns, 0;",
            "@%any bra.uni EMPTIED;",
            "mov.b32 %at, %own;",
            "EMPTY:",
            f"setp.lt.u32 %any, %at, {self.buckets};",
            "selp.b32 %bits0, -1, 0, %any;",
            f"mad.lo.s32 %bits1, %at, 4, {self.marks};",
            f"setp.lt.u32 %any, %at, {3 * self.buckets};",
            "@%any st.shared.b32 [%bits1], %bits0;",
            f"add.s32 %at, %at, {self.threads};",
            "@%any bra EMPTY;",
            *self.list_emptied(),
            "bar.sync 0;",
            "EMPTIED:",
            "shr.u32 %own, %own, 5;"]  # the warp's number

    def list_emptied(self) -> list[str]:
        """The first thread says that the list begins anew."""
        return ["mov.u32 %at, %tid.x;",
                "setp.eq.u32 %any, %at, 0;",
                "mov.b32 %bits0, 0;",
                "@%any st.shared.b32 [%end], %bits0;"]

    def claimed(self) -> list[str]:
        """A bucket has the least label of those that want it, each of whose numbers leaves a bit there."""
        warps = self.threads // 32
        return [
            *(f"@%waits{k} red.shared.min.u32 [%slot{k}], {self.labels[k]};" for k in self.each),
            "bar.sync 0;",
            *(line for k in self.each for line in (
                f"@%waits{k} ld.shared.u32 %least{k}, [%slot{k}];",
                f"setp.eq.and.u32 %first{k}, %least{k}, {self.labels[k]}, %waits{k};",
                f"add.s32 %mine{k}, %own, {k * warps};",  # its bit
                "mov.b32 %bits0, 1;",
                f"and.b32 %at, %mine{k}, 31;",
                "shl.b32 %bits0, %bits0, %at;",
                f"sub.s32 %at, %slot{k}, {self.marks};",  # two words of bits a bucket
                f"mad.lo.s32 %at, %at, 2, {self.marks};",
                f"shr.u32 %bits1, %mine{k}, 5;",
                "mad.lo.s32 %at, %bits1, 4, %at;",
                f"@%first{k} red.shared.or.b32 [%at+{self.bits}], %bits0;")),
            "bar.sync 0;"]

    def counted(self) -> list[str]:
        """How many numbers a bucket has, how many come before each, and where its stretch of the list begins."""
        return [
            *(line for k in self.each for line in (
                f"sub.s32 %at, %slot{k}, {self.marks};",
                f"mad.lo.s32 %at, %at, 2, {self.marks};",
                f"@%first{k} ld.shared.v2.b32 {{%bits0, %bits1}}, [%at+{self.bits}];",
                "popc.b32 %low, %bits0;",
                "popc.b32 %high, %bits1;",
                f"add.s32 %least{k}, %low, %high;",  # how many the bucket has
                f"and.b32 %from, %mine{k}, 31;",
                "mov.b32 %among, 1;",
                "shl.b32 %among, %among, %from;",
                "sub.s32 %among, %among, 1;",
                f"setp.lt.u32 %some, %mine{k}, 32;",
                "and.b32 %from, %bits0, %among;",
                "and.b32 %peers, %bits1, %among;",
                "popc.b32 %from, %from;",
                "popc.b32 %peers, %peers;",
                "add.s32 %peers, %peers, %low;",
                f"selp.b32 %mine{k}, %from, %peers, %some;",  # and how many of them come before
                f"setp.eq.and.s32 %lead{k}, %mine{k}, 0, %first{k};",
                f"setp.ge.and.u32 %some, %least{k}, {MANY_IN_ONE}, %lead{k};",
                "or.pred %stays, %stays, %some;",
                f"@%lead{k} atom.shared.add.u32 %at, [%end], %least{k};",
                f"@%lead{k} st.shared.b32 [%slot{k}], %at;")),
            "bar.sync 0;"]

    def put_in_a_list(self) -> list[str]:
        """Each number to its place in its bucket's stretch."""
        return [
            *(line for k in self.each for line in (
                f"@%first{k} ld.shared.b32 %at, [%slot{k}];",
                f"add.s32 %at, %at, %mine{k};",
                f"mad.lo.s32 %mine{k}, %at, {self.size}, {self.marks};",
                f"@%first{k} st.shared.{self.kind} [%mine{k}+{self.listed}], %sum{k};")),
            "bar.sync 0;"]

    def stretches_added(self) -> list[str]:
        """A bucket's first thread adds its stretch to the sum, and leaves the bucket empty."""
        ahead = range(AHEAD[self.kind])
        return [line for k in self.each for line in (
            f"@!%lead{k} bra ADDED{k};",
            f"ld.shared.{self.kind} %sum{k}, [%place{k}];",
            f"STRETCH{k}:",
            *(f"setp.gt.s32 %there{j}, %least{k}, {j};" for j in ahead),
            *(f"@%there{j} ld.shared.{self.kind} %part{j}, [%mine{k}+{self.listed + j * self.size}];" for j in ahead),
            *(f"@%there{j} {plus_instruction(self.kind)} %sum{k}, %sum{k}, %part{j};" for j in ahead),
            f"add.s32 %mine{k}, %mine{k}, {len(ahead) * self.size};",
            f"sub.s32 %least{k}, %least{k}, {len(ahead)};",
            f"setp.gt.s32 %some, %least{k}, 0;",
            f"@%some bra STRETCH{k};",
            f"st.shared.{self.kind} [%place{k}], %sum{k};",
            f"sub.s32 %at, %slot{k}, {self.marks};",
            f"mad.lo.s32 %at, %at, 2, {self.marks};",
            "mov.b32 %bits0, -1;",
            f"st.shared.b32 [%slot{k}], %bits0;",
            "mov.b32 %bits0, 0;",
            f"st.shared.v2.b32 [%at+{self.bits}], {{%bits0, %bits0}};",
            f"ADDED{k}:",
            "bar.warp.sync -1;",
            f"xor.pred %waits{k}, %waits{k}, %first{k};")]

    def again_or_left(self) -> list[str]:
        """Labels without a bucket come again. At the end slots are above all numbers, unless the next call is to be
        done in this way, too: then its number says so."""
        return [
            *self.list_emptied(),
            "mov.pred %any, %waits0;",
            *(f"or.pred %any, %any, %waits{k};" for k in self.each[1:]),
            "bar.red.or.pred %any, 0, %any;",
            "@%any bra.uni CLAIM;",
            "bar.red.or.pred %any, 0, %stays;",
            "selp.b32 %at, 1, 0, %any;",
            "or.b32 %next, %next, %at;",
            "@%any bra.uni DONE;",
            "mov.u32 %at, %tid.x;",
            "mov.b32 %bits0, -1;",
            "FULL:",
            f"setp.lt.u32 %any, %at, {2 * self.slots};",
            f"mad.lo.s32 %bits1, %at, 4, {self.marks};",
            "@%any st.shared.b32 [%bits1], %bits0;",
            f"add.s32 %at, %at, {self.threads};",
            "@%any bra FULL;",
            "bar.sync 0;"]
