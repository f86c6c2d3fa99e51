"""Rows too long for one program: sorted runs are merged, or words go by their digits from block to block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.loops import any_needs_int64, integer_type, module, multiples_of_16
from genesis.codegen.cuda.lowerings import POINTER, held, triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.rows import result
from genesis.codegen.cuda.templates.shared_words import get_helper, put_helper, ranked_helper, words_helper
from genesis.codegen.cuda.templates.sort_helpers import helpers
from genesis.codegen.cuda.templates.words import Words
from genesis.ir.node import Node
from genesis.ir.ops.sort_steps import BLOCK, DIGIT, FEW_BLOCKS, MOST_RUNS, turn_of
from genesis.ir.sym_int import SymInt, most
from genesis.ir.types import int64
from genesis.passes.groups import Group

MERGED: Final = 16
"""Words that a program of a merge places."""

PROBES: Final = 4
"""Words of a run that a step of the search compares: both cost time (H200, 16384 words: 6.3 µs with four and `MERGED`
16, 15.5 µs with eight and 32)."""

WARPS: Final = 8
"""Warps of a program that sorts a block by a digit: each has counters of 1 KiB beside the block's 32 KiB."""


REGISTERS: Final = 128
"""Registers of a thread that sorts a block by a digit: two programs of 8 warps are on a multiprocessor then. Unbounded
it takes up to 136, for one; with 80, for three, it spills (H200, 16 M words: 102 µs with 128, 120 µs with 80)."""


def emit_long_sort(group: Group) -> KernelSource:
    """The kernel of one step."""
    node = next(n for n in group.nodes if n.op.name in _EMITTERS)
    return _EMITTERS[node.op.name](group, node)


def _merge(group: Group, node: Node) -> KernelSource:
    """merge_runs: a word's place is the number of words in all runs that are smaller. They differ, so each has its own.

    All runs are searched at once, by quarters. Neighbours take nearly the same way through a run, so most of what they
    read is in the cache.
    """
    words = node.inputs[0]
    length, size = words.shape[1], words.type.numel
    runs = MOST_RUNS if isinstance(length, SymInt) else power_of_two(-(-length // node["run"]))
    form = Words(node["dtype"], node["descending"], bits64=True)
    outputs = {name: memory for name, memory in (("values", result(group, 0)), ("indices", result(group, 1)))
               if memory is not None}
    lines = [
        f"x = tl.program_id(0){_to_int64(size)} * XBLOCK + tl.arange(0, XBLOCK)",
        "inside = x < size",
        "row = x // length * length",
        "word = tl.load(words + x, mask=inside, other=0)",
        "begin = row[:, None] + tl.minimum(tl.arange(0, RUNS)[None, :] * run, length)",
        "end = row[:, None] + tl.minimum((tl.arange(0, RUNS)[None, :] + 1) * run, length)",
        "quarters = tl.arange(0, PROBES)[None, None, :] + 1",
        "at = begin",
        "rest = run",
        "while rest > 0:",
        "    step = tl.maximum(rest // PROBES, 1)",
        "    probe = at[:, :, None] + quarters * step - 1",
        "    here = inside[:, None, None] & (probe < end[:, :, None])",
        "    smaller = here & (tl.load(words + probe, mask=here, other=0) < word[:, None, None])",
        "    at += step * tl.sum(smaller.to(tl.int32), 2)",
        "    rest = tl.where(rest > 1, step, 0)",
        "place = row + tl.sum(at - begin, 1)",
        *form.unpack(),
        *form.stores(outputs, "place"),
    ]
    sizes = {"length": length, "size": size, "run": node["run"]}
    return _kernel(group, "merge_runs", lines, {"words": words}, outputs, sizes,
                   {"XBLOCK": MERGED, "RUNS": runs, "PROBES": PROBES}, -(-size // MERGED), 4)


def _to_int64(size: int) -> str:
    return ".to(tl.int64)" if any_needs_int64(size) else ""


class _Digits:
    """What a step by a digit makes of its operand: rows of words, or of elements that become words."""

    def __init__(self, node: Node):
        self.operand, self.shift = node.inputs[0], node["shift"]
        self.rows, self.length = self.operand.shape
        self.blocks, self.digits = -(-self.length // BLOCK), 1 << DIGIT
        self.to_int64 = _to_int64(self.operand.type.numel)
        self.descending = node["descending"]

    def programs(self) -> list[str]:
        """Which row and block a program has."""
        return [f"row = tl.program_id(0){self.to_int64} // blocks", "block = tl.program_id(0) % blocks"]

    def load(self, at: str, number: str = "") -> list[str]:
        """Lines for a word of the row, -1 past its end: the largest in each digit."""
        address = f"words + (row * length + {at})"
        if self.operand.dtype is int64:
            return [f"word{number} = tl.load({address}, mask={at} < length, other=-1)"]
        form = Words(self.operand.dtype, self.descending, bits64=True)
        turn = turn_of(self.operand.dtype)
        loaded = f"tl.load({address}, mask={at} < length, other=0)"
        lines = form.pack(f"{loaded}.to({triton_type(held(self.operand.dtype))})", f"({at})")
        return [*lines, f"word{number} = tl.where({at} < length, word{f' ^ ({turn})' if turn else ''}, -1)"]

    def digit(self, number: int | str = "") -> str:
        """The digit of a word."""
        return f"((word{number} >> {self.shift}) & {self.digits - 1}).to(tl.int32)"


def _counts(group: Group, node: Node) -> KernelSource:
    """digit_counts: a program counts the digits of a block.

    Places past the row's end are counted with the largest digit and taken off again. (`tl.histogram` has a mask, but
    Triton 3.6 lets it lie among the threads in another way than the digits and so leaves out others.)
    """
    d, out = _Digits(node), group.outputs[0]
    lines = [*d.programs(), "at = block * BLOCK + tl.arange(0, BLOCK)", *d.load("at"),
             f"counts = tl.histogram({d.digit()}, {d.digits})",
             "past = tl.maximum((block + 1) * BLOCK - length, 0)",
             f"digit = tl.arange(0, {d.digits})",
             f"counts -= tl.where(digit == {d.digits - 1}, past, 0)",
             f"tl.store(out + ((row * {d.digits} + digit) * blocks + block), counts.to(tl.int32))"]
    return _kernel(group, "digit_counts", lines, {"words": d.operand}, {"out": out},
                   {"length": d.length, "blocks": d.blocks}, {"BLOCK": BLOCK}, d.rows * d.blocks, 8)


def _scatter(group: Group, node: Node) -> KernelSource:
    """digit_scatter: a program puts a block's words in the order of their digits, and writes each stretch of one digit.

    Each warp has a stretch of the block and a counter for each digit, which gives a word its number among those of its
    digit; the running sums of all counters give the place of the first. The words go to their places in shared memory
    and are read from there one after another, so that neighbours are written together: digit_elements writes what they
    stand for.
    """
    d, table = _Digits(node), node.inputs[1]
    warps = max(1, min(WARPS, BLOCK // 32))
    threads = 32 * warps
    each = BLOCK // threads
    placed, moved = warps * d.digits * 4, warps * d.digits * 4 + BLOCK * 8
    outputs = {"out": group.outputs[0]} if node.op.name == "digit_scatter" else {
        name: memory for name, memory in (("values", result(group, 0)), ("indices", result(group, 1)))
        if memory is not None}
    lines = [
        *d.programs(),
        "thread = tl.arange(0, THREADS)",
        f"first = block * BLOCK + thread // 32 * {32 * each} + thread % 32",
        *(line for k in range(each) for line in (f"at = first + {32 * k}", *d.load("at", str(k)))),
        *placed_words(warps, each, DIGIT, d.digit, [
            f"digit = tl.arange(0, {d.digits})",
            *_starts(table, d.digits),
            f"g_put_s32(shared + {moved} + digit * 4, start - smaller, digit >= 0)"]),
        *(line for four in fours(each) for line in (
            *(f"word{k} = g_get_s64(shared + {placed} + (thread + {k * threads}) * 8)" for k in four),
            *(f"target{k} = thread + {k * threads} + g_get_s32(shared + {moved} + {d.digit(k)} * 4)" for k in four),
            *(line for k in four for line in _written(node, outputs, k, threads))))]
    more = "\n".join((words_helper(moved + d.digits * 4), *map(put_helper, ("s32", "s64")),
                      *map(get_helper, ("s32", "s64")), ranked_helper(DIGIT)))
    return _kernel(group, node.op.name, lines, {"words": d.operand, "table": table}, outputs,
                   {"length": d.length, "blocks": d.blocks}, {"BLOCK": BLOCK, "THREADS": threads}, d.rows * d.blocks,
                   warps, more, REGISTERS if table.type.ndim == 1 else 0)


def placed_words(warps: int, each: int, bits: int, digit: Callable[[int], str], between: list[str]) -> list[str]:
    """Lines that put a program's words into shared memory, behind its warps' counters, in the order of their digits.

    Args:
        each: words of a thread, `word0` and so on.
        bits: of a digit.
        digit: the digit of a word by its number.
        between: lines that go on with `total`, how often each digit occurs, and `smaller`, how many words have a
            smaller one.
    """
    digits = 1 << bits
    placed = warps * digits * 4
    return [
        "shared = g_words()",
        f"counter = tl.arange(0, {warps})[:, None] * {digits} + tl.arange(0, {digits})[None, :]",
        "g_put_s32(shared + counter * 4, counter * 0, counter >= 0)",
        "tl.debug_barrier()",
        f"counters = shared + thread // 32 * {digits * 4}",
        *(f"number{k} = g_ranked({digit(k)}, counters)" for k in range(each)),
        "tl.debug_barrier()",
        "many = g_get_s32(shared + counter * 4)",
        "total = tl.sum(many, 0)",
        "smaller = tl.cumsum(total, 0) - total",
        "before = tl.cumsum(many, 0) - many",
        "tl.debug_barrier()",
        "g_put_s32(shared + counter * 4, before + smaller[None, :], counter >= 0)",
        *between,
        "tl.debug_barrier()",
        *(line for four in fours(each) for line in (
            *(f"place{k} = number{k} + g_get_s32(counters + {digit(k)} * 4)" for k in four),
            *(f"g_put_s64(shared + {placed} + place{k} * 8, word{k}, place{k} >= 0)" for k in four))),
        "tl.debug_barrier()"]


def _written(node: Node, outputs: dict[str, Node], number: int, threads: int) -> list[str]:
    """Lines that write one of a thread's words, or what it stands for."""
    inside = f"block * BLOCK + thread + {number * threads} < length"
    if "out" in outputs:
        return [f"tl.store(out + target{number}, word{number}, mask={inside})"]
    form, turn = Words(node["dtype"], node["descending"], bits64=True), turn_of(node["dtype"])
    return [f"word = word{number}{f' ^ ({turn})' if turn else ''}", f"inside = {inside}", *form.unpack(),
            *form.stores(outputs, f"target{number}")]


def _starts(table: Node, digits: int) -> list[str]:
    """Lines for `start`: where the block's words of each digit go, from all blocks' counts or their running sums."""
    if table.type.ndim == 1:
        return [f"slot = (row * {digits} + digit) * blocks + block",
                "start = tl.load(table + slot - 1, mask=slot > 0, other=0)"]
    several = min(power_of_two(most(table.shape[2])), FEW_BLOCKS)
    counted = [f"counted = table + ((row * {digits} + digit)[:, None] * blocks + other)",
               "found = tl.load(counted, mask=other < blocks, other=0)"]
    first = "start = row * length + tl.cumsum(all, 0) - all + {}"
    if most(table.shape[2]) <= several:
        return [f"other = tl.arange(0, {several})[None, :]", *counted, "all = tl.sum(found, 1)",
                first.format("tl.sum(tl.where(other < block, found, 0), 1)")]
    return [f"all = tl.zeros([{digits}], tl.int32)", "earlier = all",
            f"for others in tl.range(0, blocks, {several}):",
            f"    other = others + tl.arange(0, {several})[None, :]", *(f"    {line}" for line in counted),
            "    all += tl.sum(found, 1)", "    earlier += tl.sum(tl.where(other < block, found, 0), 1)",
            first.format("earlier")]


def fours(count: int) -> list[range]:
    """Numbers from 0 on by fours: reads of shared memory that wait together."""
    return [range(k, min(k + 4, count)) for k in range(0, count, 4)]


def _kernel(group: Group, name: str, lines: list[str], operands: dict[str, Node], outputs: dict[str, Node],
            sizes: dict[str, int], constexprs: dict[str, int], programs: int, num_warps: int,
            more: str = "", registers: int = 0) -> KernelSource:
    pointers = {**{p: input_of(node, group) for p, node in operands.items()}, **outputs}
    signature = {**{p: POINTER[x.dtype.name] for p, x in pointers.items()},
                 **{size: integer_type(value) for size, value in sizes.items()},
                 **dict.fromkeys(constexprs, "constexpr")}
    empty = not all(x.type.numel for x in pointers.values())
    return KernelSource(name, module(name, signature, lines, helpers(lines) + more), signature, constexprs,
                        (*pointers.values(), *sizes.values()), (*pointers, *multiples_of_16(sizes)),
                        (0 if empty else programs, 1, 1), num_warps, label=name, registers=registers)


_EMITTERS = {"merge_runs": _merge, "digit_counts": _counts, "digit_scatter": _scatter,
             "digit_elements": _scatter}
