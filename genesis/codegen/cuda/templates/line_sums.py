"""scatter_add along the last axis, and gather's gradient: a warp adds a line's elements up in shared memory.

A line's sums begin as the base's elements. The warp takes 32 positions at a time; of those that meet in one sum the
first adds, then the second: sums are made in the order of the positions, as one thread would. So nothing is sorted, no
float is added atomically, and every bit is the same in each run. A program has one warp, so that there is nobody else
to wait for, and as many lines side by side as its lanes have room for.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.blocks import power_of_two
from genesis.codegen.cuda.emitter import literal
from genesis.codegen.cuda.lowerings import held, triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.rows import Rows
from genesis.codegen.cuda.templates.shared_words import (
    MOST_BYTES,
    added_helper,
    get_helper,
    put_helper,
    words_helper,
)
from genesis.ir.node import Node
from genesis.ir.sym_int import SymInt, hint, most
from genesis.ir.types import DType, float64, int32
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group

LONGEST: Final = 16384
"""Maximum positions of a line: its only warp takes them one after another, 32 in about 0.15 µs."""

ROOM: Final = 8192
"""Bytes of shared memory up to which a program takes several short lines: 28 programs are on a multiprocessor then."""

PROGRAMS: Final = 4096
"""Programs of many lines, a warp each: what an H200 runs at once. More lines are taken in turns."""

WIDE: Final = 128
"""Sums that a warp reads or writes at a time, four a lane."""


def _kind(dtype: DType) -> tuple[DType, str, int]:
    """(the dtype that values of a dtype are added in, its name in PTX, its bytes)."""
    found = held(dtype)
    if found is float64:
        return found, "f64", 8
    return (found, "f32", 4) if found.kind == "float" else (int32, "s32", 4)


def _padded(rows: int) -> int:
    """Sums of a line, as far as a program's text may say: whole turns of a warp."""
    return power_of_two(rows) if isinstance(rows, SymInt) else -(-rows // 32) * 32


def sums_fit(rows: int, count: int, dtype: DType) -> bool:
    """Do the sums of a line of so many rows fit a program, and so many positions a warp's patience?"""
    return (dtype.itemsize < 8 or dtype.kind == "float") and most(count) <= LONGEST and (
        _padded(rows) * _kind(dtype)[2] <= MOST_BYTES)


def emit_line_sums(group: Group, node: Node) -> KernelSource:
    """The kernel of a group with a lines_summed."""
    base, index, source = node.inputs
    rows = Rows(group, (index, source), 1)
    total, kind, size = _kind(node.dtype)
    length, padded = node.shape[1], _padded(node.shape[1])
    lanes = min(power_of_two(rows.length), 32)
    while lanes < 32 and 32 // lanes * padded * size > ROOM:
        lanes *= 2
    lines = 32 // lanes
    blocks = -(-rows.rows // lines)
    steps = max(1, min(hint(blocks) // PROGRAMS, 64))
    wide = min(power_of_two(length), max(WIDE // lines, 1))
    constant = base.op.name == "const"
    begin = f"tl.full([XBLOCK, WIDE], {literal(base['value'], total)}, {triton_type(total)})" if constant else (
        f"tl.load(base + x * {length} + row, mask=mine, other=0).to({triton_type(total)})")
    operands = [*rows.operand_lines(), f"to_row = {rows.names[0]}",
                f"added = ({rows.names[1]}).to({triton_type(total)})"]
    one_round = [*rows.r_lines("0"), *operands, *_added(kind, length)]
    rounds = [*rows.r_lines("0"), *operands, "here = x_mask & r_mask",
              f"for begin in tl.range(0, {rows.size}, RBLOCK):",
              *(f"    {line}" for line in (
                  "row_now = to_row", "added_now = added", "here_now = here", *rows.r_lines("begin + RBLOCK"),
                  *operands, "here = x_mask & r_mask", *_added(kind, length, "_now")))]
    body = [
        *rows.x_lines(f"tl.program_id(0) * {steps} + step"),
        f"for first in tl.range(0, {length}, WIDE):",
        "    row = first + tl.arange(0, WIDE)[None, :]",
        f"    mine = x_mask & (row < {length})",
        f"    g_put_{kind}(words + (line + row) * {size}, {begin}, mine)",
        *(rounds if most(rows.length) > lanes else one_round),
        f"for first in tl.range(0, {length}, WIDE):",
        "    row = first + tl.arange(0, WIDE)[None, :]",
        f"    total = g_get_{kind}(words + (line + tl.minimum(row, {length} - 1)) * {size})",
        f"    tl.store(out + x * {length} + row, total.to({triton_type(node.dtype)}), "
        f"mask=x_mask & (row < {length}))",
    ]
    text = ["words = g_words()", f"line = tl.arange(0, XBLOCK)[:, None] * {padded}",
            *([f"for step in tl.range(0, {steps}):", *(f"    {line}" for line in body)] if steps > 1 else
              [line.replace("tl.program_id(0) * 1 + step", "tl.program_id(0)") for line in body])]
    bits = (lines * padded - 1).bit_length()
    helpers = "\n".join((words_helper(lines * padded * size), put_helper(kind), get_helper(kind),
                         added_helper(kind, bits)))
    inputs = {} if constant else {"base": next(x for x in group.inputs if stored_as(x) is stored_as(base))}
    return rows.source("lines_summed", text, {"out": group.outputs[0]},
                       {"XBLOCK": lines, "RBLOCK": lanes, "WIDE": wide}, -(-blocks // steps), 1, helpers,
                       inputs=inputs)


def _added(kind: str, length: int, now: str = "") -> list[str]:
    """Add a round's elements to the sums of their rows; what lies outside the line is left out."""
    row, here = (f"row{now}", f"here{now}") if now else ("to_row", "x_mask & r_mask")
    return [f"here_now = {here} & ({row} >= 0) & ({row} < {length})",
            f"g_added_{kind}(tl.where(here_now, line + {row}.to(tl.int32), -1), words, added{now})"]
