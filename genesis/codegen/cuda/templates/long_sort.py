"""Rows too long for one program: sorted runs are merged, or words go by their digits from block to block."""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.blocks import power_of_two
from genesis.codegen.cuda.loops import any_needs_int64, integer_type, module, multiples_of_16
from genesis.codegen.cuda.lowerings import POINTER
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.rows import result
from genesis.codegen.cuda.templates.sort import Words, helpers
from genesis.ir.node import Node
from genesis.ir.ops.sorting import BLOCK, DIGIT, MOST_RUNS
from genesis.ir.sym_int import SymInt
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group

MERGED: Final = 16
"""Words that a program of a merge places."""

PROBES: Final = 4
"""Words of a run that a step of the search compares: both cost time (H200, 16384 words: 6.3 µs with four and `MERGED`
16, 15.5 µs with eight and 32)."""

WARPS: Final = 16
"""Warps of a program that sorts a block by a digit."""


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


def _block_lines(node: Node, size: int) -> list[str]:
    """The digits of a block of a row; those past its end are the largest."""
    return [f"row = tl.program_id(0){_to_int64(size)} // blocks",
            "block = tl.program_id(0) % blocks",
            "near = tl.arange(0, BLOCK)[None, :]",
            "i = block * BLOCK + near",
            "inside = i < length",
            "word = tl.load(words + row * length + i, mask=inside, other=-1)",
            f"digit = ((word >> {node['shift']}) & {(1 << DIGIT) - 1}).to(tl.int32)",
            f"slot = (row * {1 << DIGIT} + tl.arange(0, {1 << DIGIT})) * blocks + block"]


def _counts(group: Group, node: Node) -> KernelSource:
    """digit_counts: a program counts the digits of a block.

    Places past the row's end are counted with the largest digit and taken off again. (`tl.histogram` has a mask, but
    Triton 3.6 lets it lie among the threads in another way than the digits and so leaves out others.)
    """
    words, out = node.inputs[0], group.outputs[0]
    rows, length = words.shape
    blocks = -(-length // BLOCK)
    lines = [*_block_lines(node, words.type.numel),
             f"counts = tl.histogram(tl.reshape(digit, [BLOCK]), {1 << DIGIT})",
             "past = tl.maximum((block + 1) * BLOCK - length, 0)",
             f"counts -= tl.where(tl.arange(0, {1 << DIGIT}) == {(1 << DIGIT) - 1}, past, 0)",
             "tl.store(out + slot, counts.to(tl.int32))"]
    return _kernel(group, "digit_counts", lines, {"words": words}, {"out": out}, {"length": length, "blocks": blocks},
                   {"BLOCK": BLOCK}, rows * blocks, 8)


def _scatter(group: Group, node: Node) -> KernelSource:
    """digit_scatter: a program sorts a block by its digits and writes each stretch of one digit to its place."""
    words, ends = node.inputs
    out = group.outputs[0]
    rows, length = words.shape
    blocks = -(-length // BLOCK)
    bits = (BLOCK - 1).bit_length()
    lines = [*_block_lines(node, words.type.numel),
             "before = tl.load(ends + slot - 1, mask=slot > 0, other=0)",
             "counts = tl.load(ends + slot) - before",
             "moved = before - (tl.cumsum(counts, 0) - counts)",
             f"order = g_first((digit << {bits}) | near, BLOCK, 2, {WARPS})",
             f"source = block * BLOCK + (order & {BLOCK - 1})",
             f"shift = tl.gather(moved, tl.reshape(order >> {bits}, [BLOCK]), 0)",
             "target = tl.reshape(shift, [1, BLOCK]) + near",
             "inside = source < length",
             "word = tl.load(words + row * length + source, mask=inside, other=0)",
             "tl.store(out + target, word, mask=inside)"]
    return _kernel(group, "digit_scatter", lines, {"words": words, "ends": ends}, {"out": out},
                   {"length": length, "blocks": blocks}, {"BLOCK": BLOCK}, rows * blocks, WARPS)


def _kernel(group: Group, name: str, lines: list[str], operands: dict[str, Node], outputs: dict[str, Node],
            sizes: dict[str, int], constexprs: dict[str, int], programs: int, num_warps: int) -> KernelSource:
    pointers = {**{p: next(x for x in group.inputs if stored_as(x) is stored_as(node)) for p, node in operands.items()},
                **outputs}
    signature = {**{p: POINTER[x.dtype.name] for p, x in pointers.items()},
                 **{size: integer_type(value) for size, value in sizes.items()},
                 **dict.fromkeys(constexprs, "constexpr")}
    empty = not all(x.type.numel for x in pointers.values())
    return KernelSource(name, module(name, signature, lines, helpers(lines)), signature, constexprs,
                        (*pointers.values(), *sizes.values()), (*pointers, *multiples_of_16(sizes)),
                        (0 if empty else programs, 1, 1), num_warps, label=name)


_EMITTERS = {"merge_runs": _merge, "digit_counts": _counts, "digit_scatter": _scatter}
