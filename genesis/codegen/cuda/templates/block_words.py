"""An index as words, each block of it in the order of its bins (`ir/ops/block_rows.py`): one launch.

A program has a block. It ranks its words by their bins as a step of a long sort does by a digit, and writes them where
the block lies; no program waits for another.
"""

from __future__ import annotations

from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.checked_index import checked_outside
from genesis.codegen.cuda.templates.long_sort import WARPS, fours, placed_words
from genesis.codegen.cuda.templates.rows import Rows, result
from genesis.codegen.cuda.templates.shared_words import get_helper, put_helper, ranked_helper, words_helper
from genesis.ir.node import Node
from genesis.ir.ops.grouped_rows import NUMBER
from genesis.passes.groups import Group


def emit_block_words(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a words_by_block."""
    index, block = node.inputs[0], node["block"]
    blocks = -(-index.type.numel // block)
    rows = Rows(group, (index,), 0)
    operands, check = checked_outside(rows, None)
    threads, each = 32 * WARPS, block // (32 * WARPS)
    loaded = [line for k in range(each) for line in (
        f"r = first + {32 * k}",
        f"r_mask = r < {rows.size}",
        *operands,
        f"wanted = {rows.names[0]}.to(tl.int64)",
        *([f"row = tl.where(wanted < 0, wanted + {check[0]}, wanted)"] if check and check[1] else ["row = wanted"]),
        *([f"outside = (row < 0) | (row >= {check[0]})",
           "strange = tl.where(r_mask & outside, wanted, strange)",
           f"row = tl.where(outside, {NUMBER}, row)"] if check else []),  # a row that no table has
        f"word{k} = tl.where(r_mask, ((row & {NUMBER}) << 32) | (r.to(tl.int64) << 1), -1)")]
    results = (("sorted_words", 0), ("bin_ends", 1))
    memory = {name: found for name, at in results if (found := result(group, at)) is not None}
    digit = node["digit"]
    bins, placed = 1 << digit, WARPS * (4 << digit)
    lines = [
        "block = tl.program_id(0)",
        "thread = tl.arange(0, RBLOCK)[None, :]",
        *rows.x_lines("tl.full((), 0, tl.int32)"),
        f"first = block * BLOCK + thread // 32 * {32 * each} + thread % 32",
        *(["strange = tl.zeros([1, RBLOCK], tl.int64)"] if check else []),
        *loaded,
        *([f"g_in_range(strange, {check[0]}, {check[1]}, strange != 0, {check[2]})"] if check else []),
        *placed_words(WARPS, each, digit, lambda k: f"((word{k} >> {32 + node['bits']}) & {bins - 1}).to(tl.int32)", [
            f"here = tl.minimum({rows.size} - block * BLOCK, BLOCK)",  # places past the end have the last bin
            f"bin = tl.arange(0, {bins})",
            f"tl.store(bin_ends + bin * {blocks} + block, tl.minimum(smaller + total, here).to(tl.int32))"]),
        *(line for four in fours(each) for line in (
            *(f"word{k} = g_get_s64(shared + {placed} + (thread + {k * threads}) * 8)" for k in four),
            *(f"at{k} = block * BLOCK + thread + {k * threads}" for k in four),
            *(f"tl.store(sorted_words + at{k}, word{k}, mask=at{k} < {rows.size})" for k in four)))]
    nbytes = placed + block * 8
    more = "\n".join((words_helper(nbytes, beside=True), *map(put_helper, ("s32", "s64")),
                      *map(get_helper, ("s32", "s64")), ranked_helper(digit)))
    return rows.source("words_by_block", lines, memory, {"XBLOCK": 1, "BLOCK": block, "RBLOCK": threads}, blocks,
                       WARPS, more, shared=nbytes)
