"""Elements of rows by one index, from shared memory (`ir/ops/row_takes.py`).

A program brings one row there, or two that lie one behind the other, in vectors of 16 bytes, and goes through the index
once for both. Neighbouring lanes write neighbouring elements; they read words in any of the banks, some three turns for
32 of them where a cache would look up 28 lines.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.loops import any_needs_int64
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.checked_index import checked_outside
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.rows import Rows
from genesis.codegen.cuda.templates.shared_words import words_helper
from genesis.ir.node import Node
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import most
from genesis.passes.groups import Group

WARPS: Final = 8
"""Warps of a program."""

BLOCK: Final = 1024
"""Positions of the index that a program takes at a time: four of a thread."""

WHOLE_ROWS: Final = '''
@triton.jit
def g_whole_rows(place, pointer, vectors, BLOCK: tl.constexpr):
    """Copy so many vectors of 16 bytes, BLOCK at most, from memory to shared memory."""
    word = tl.arange(0, BLOCK * 4)
    words = tl.load(pointer.to(tl.pointer_type(tl.int32)) + word, mask=word < vectors * 4, other=0)
    even, odd = tl.split(tl.reshape(words, [BLOCK, 2, 2]))
    a, c = tl.split(even)
    b, d = tl.split(odd)
    vector = tl.arange(0, BLOCK)
    g_put_vectors(place + vector * 16, a, b, c, d, vector < vectors)
'''


def emit_rows_taken(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a taken_in_rows."""
    index, x = node.inputs
    (rows, length), count, size = x.shape, index.shape[0], x.dtype.itemsize
    beside = 2 if is_multiple(rows, 2) else 1
    room = beside * most(length) * size
    of = Rows(group, (index,), 0)
    operands, check = checked_outside(of, length)
    wide = ".to(tl.int64)" if any_needs_int64(x.type.numel, node.type.numel) else ""
    wanted = of.names[0]
    turn = [f"r = begin + tl.arange(0, RBLOCK)[None, :]{of.integer}", f"r_mask = r < {of.size}",
            *of.x_lines("tl.full((), 0, tl.int32)"), *operands, f"wanted = {wanted}"]
    if check:
        near, negative, report = check
        if negative:
            turn.append(f"wanted = tl.where(wanted < 0, wanted + {near}, wanted)")
        turn += ["outside = r_mask & ((wanted < 0) | (wanted >= " + f"{length}))",
                 f"g_in_range({wanted}.to(tl.int64), {near}, {negative}, outside, {report})"]
    turn.append(f"place = words + tl.minimum(tl.maximum(wanted, 0), {length - 1}).to(tl.int32) * {size}")
    for row in range(beside):
        turn += [f"value_{row} = g_get_elements(place + {row} * {length} * {size}, r_mask, out)",
                 f"tl.store(out + ((row_0 + {row}) * {count} + r), value_{row}, mask=r_mask)"]
    lines = ["words = g_words()",
             f"row_0 = tl.program_id(0){wide} * {beside}",
             f"g_whole_rows(words, x_rows + row_0 * {length}, {beside} * {length} // {16 // size}, "
             f"{power_of_two(room // 16)})",
             "tl.debug_barrier()",
             f"for begin in tl.range(0, {of.size}, RBLOCK):", *(f"    {line}" for line in turn)]
    return of.source("taken_in_rows", lines, {"out": group.outputs[0]}, {"XBLOCK": 1, "RBLOCK": BLOCK},
                     rows // beside, WARPS, words_helper(room) + WHOLE_ROWS,
                     inputs={"x_rows": input_of(x, group)})
