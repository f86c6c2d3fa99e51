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
from genesis.codegen.cuda.templates.scaled_lines import DECLARED, TRITONS
from genesis.codegen.cuda.templates.shared_words import words_helper
from genesis.ir.node import Node
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import hint, most
from genesis.passes.groups import Group

SHORT: Final = 16 << 10
"""Bytes of a row up to which a program may have two."""

WARPS: Final = (8, 16)
"""Warps of a program: of short rows, and of others."""

AT_ONCE: Final = 16
"""Elements of a row, or words of its vectors, that a thread asks for at once."""

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
    short, many = most(length) * size <= SHORT, hint(rows) >= 2 * PROGRAMS * H200.multiprocessors
    beside = 2 if short and many and is_multiple(rows, 2) else 1
    room, warps = -(-beside * most(length) * size // 16) * 16, WARPS[not short]
    parts, dynamic = 1 if hint(rows) >= H200.multiprocessors else 2, room > DECLARED
    of = Rows(group, (index,), 0)
    operands, check = checked_outside(of, length)
    wide = ".to(tl.int64)" if any_needs_int64(x.type.numel, node.type.numel) else ""
    asked = [f"r_mask = r < {of.size}", *operands, f"next = {of.names[0]}"]
    turn = ["wanted = next", "at = r", "at_mask = r_mask", f"r = r + RBLOCK * {parts}", *asked]
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
    lines = ["words = g_words()", *(TRITONS if dynamic else ()),
             f"row_0 = tl.program_id(0){wide} // {parts} * {beside}", f"first = tl.program_id(0) % {parts} * RBLOCK",
             *of.x_lines("tl.full((), 0, tl.int32)"),
             f"r = first + tl.arange(0, RBLOCK)[None, :]{of.integer}", *asked,
             *_copied(length, beside, size, 32 * warps),
             "tl.debug_barrier()",
             f"for begin in tl.range(first, {of.size}, RBLOCK * {parts}):", *(f"    {line}" for line in turn)]
    return of.source("taken_in_rows", lines, {"out": group.outputs[0]}, {"XBLOCK": 1, "RBLOCK": 32 * warps * EACH},
                     rows // beside * parts, warps, words_helper(room, beside=dynamic) + WHOLE_ROWS,
                     inputs={"x_rows": input_of(x, group)}, shared=room if dynamic else 0)


def _copied(length: int, beside: int, size: int, threads: int) -> list[str]:
    """A program's rows on their way to shared memory: as many of each thread's elements at once as have registers."""
    whole = is_multiple(length, 16 // size)
    of_one = 16 if whole else size
    count = f"({beside} * {length} // {of_one // size})"
    block = min(power_of_two(beside * most(length) * size // of_one), AT_ONCE // (4 if whole else 1) * threads)
    if whole:
        lines = [f"g_whole_rows(words + piece * 16, x_rows + row_0 * {length} + piece * {16 // size}, {count} - piece, "
                 f"{block})"]
    else:
        lines = [f"near = piece + tl.arange(0, {block})", f"row_mask = near < {count}",
                 f"g_put_elements(words + near * {size}, tl.load(x_rows + row_0 * {length} + near, mask=row_mask, "
                 "other=0), row_mask)"]
    return [f"for piece in tl.range(0, {count}, {block}):", *(f"    {line}" for line in lines)]
