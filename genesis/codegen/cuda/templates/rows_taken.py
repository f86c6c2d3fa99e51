"""Elements of rows by one index, from shared memory (`ir/ops/row_takes.py`).

A program brings one row there, or two that lie one behind the other, in vectors of 16 bytes where rows are whole ones,
and goes through the index once for both, whose next positions are on their way meanwhile. Neighbouring lanes write
neighbouring elements; they read words in any of the banks, some three turns for 32 of them where a cache would look up
28 lines.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.loops import any_needs_int64
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.checked_index import checked_outside
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.rows import Rows
from genesis.codegen.cuda.templates.shared_words import words_helper
from genesis.ir.node import Node
from genesis.ir.ops.row_takes import ROW_BYTES
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import hint, most
from genesis.passes.groups import Group

WARPS: Final = (8, 16)
"""Warps of a program: of short rows, and of those that fill as much shared memory as two of these."""

EACH: Final = 4
"""Positions of the index that a thread takes at a time."""

PROGRAMS: Final = 2
"""Programs for each multiprocessor of an H200 that are left where one has two rows."""

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
    short, many = most(length) * size <= ROW_BYTES[1] // 2, hint(rows) >= 2 * PROGRAMS * H200.multiprocessors
    beside = 2 if short and many and is_multiple(rows, 2) else 1
    room, warps = beside * most(length) * size, WARPS[not short]
    of = Rows(group, (index,), 0)
    operands, check = checked_outside(of, length)
    wide = ".to(tl.int64)" if any_needs_int64(x.type.numel, node.type.numel) else ""
    asked = [f"r_mask = r < {of.size}", *operands, f"next = {of.names[0]}"]
    turn = ["wanted = next", "at = r", "at_mask = r_mask", "r = r + RBLOCK", *asked]
    if check:
        near, negative, report = check
        turn.append("asked = wanted")
        if negative:
            turn.append(f"wanted = tl.where(wanted < 0, wanted + {near}, wanted)")
        turn += [f"outside = at_mask & ((wanted < 0) | (wanted >= {length}))",
                 f"g_in_range(asked.to(tl.int64), {near}, {negative}, outside, {report})"]
    turn.append(f"place = words + tl.minimum(tl.maximum(wanted, 0), {length - 1}).to(tl.int32) * {size}")
    for row in range(beside):
        turn += [f"value_{row} = g_get_elements(place + {row} * {length} * {size}, at_mask, out)",
                 f"tl.store(out + ((row_0 + {row}) * {count} + at), value_{row}, mask=at_mask)"]
    lines = ["words = g_words()",
             f"row_0 = tl.program_id(0){wide} * {beside}",
             *of.x_lines("tl.full((), 0, tl.int32)"),
             f"r = tl.arange(0, RBLOCK)[None, :]{of.integer}", *asked,
             *_copied(length, beside, size),
             "tl.debug_barrier()",
             f"for begin in tl.range(0, {of.size}, RBLOCK):", *(f"    {line}" for line in turn)]
    return of.source("taken_in_rows", lines, {"out": group.outputs[0]}, {"XBLOCK": 1, "RBLOCK": 32 * warps * EACH},
                     rows // beside, warps, words_helper(room) + WHOLE_ROWS,
                     inputs={"x_rows": input_of(x, group)})


def _copied(length: int, beside: int, size: int) -> list[str]:
    """A program's rows on their way to shared memory: all of them at once."""
    if is_multiple(length, 16 // size):
        return [f"g_whole_rows(words, x_rows + row_0 * {length}, {beside} * {length} // {16 // size}, "
                f"{power_of_two(beside * most(length) * size // 16)})"]
    near = power_of_two(beside * most(length))
    return [f"near = tl.arange(0, {near})", f"row_mask = near < {beside} * {length}",
            f"g_put_elements(words + near * {size}, tl.load(x_rows + row_0 * {length} + near, mask=row_mask, other=0), "
            "row_mask)"]
