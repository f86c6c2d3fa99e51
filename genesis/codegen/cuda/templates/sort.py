"""Sorting: a program sorts rows, or runs of longer rows, in registers.

A program's tile is a power of two of words (`words.py`), sorted by a bitonic network (Batcher 1968; `sort_helpers.py`).
Short columns have a network of their own (`short_sort.py`); longer rows go by their digits (`row_digits.py`).

The k smallest words of a tile take fewer steps than all of it (Shanbhag, Pirk, Madden, SIGMOD 2018): blocks of k are
sorted, then halved by keeping the smaller of two and sorting again.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import batch_block, block_for, power_of_two
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.row_digits import by_digits, sort_by_digits
from genesis.codegen.cuda.templates.rows import Rows, result
from genesis.codegen.cuda.templates.short_sort import is_short, sort_short
from genesis.codegen.cuda.templates.sort_helpers import helpers
from genesis.codegen.cuda.templates.words import Words
from genesis.ir.node import Node
from genesis.ir.sym_int import hint
from genesis.ir.types import bool_
from genesis.passes.groups import Group

EACH: Final = {True: 64, False: 16}
"""Words per thread, {32-bit: …, 64-bit: …}: the more, the fewer are exchanged with other lanes and warps."""


LONGEST_COLUMN: Final = 512
"""Maximum elements of a column that a few lanes of one warp sort in their registers: where warps shared it, they met
in one bank at each step (H200: float32[56, 145015] along its first axis 450 µs, so 113; torch.compile 313)."""

COLUMN_EACH: Final = {True: 64, False: 32}
"""Words of a thread there, {32-bit: …, 64-bit: …}, and where columns are few half as many, and again."""

FEW_PROGRAMS: Final = 4 * H200.multiprocessors
"""Programs of one warp below which threads have fewer words."""


def emit_sort(group: Group) -> KernelSource:
    """The kernel of a sort group."""
    node = next(n for n in group.nodes if n.op.name in _EMITTERS)
    return _EMITTERS[node.op.name](group, node)


def _warps(words: int, bits32: bool) -> int:
    """How many warps a program of so many words has."""
    return max(1, min(words // (32 * EACH[bits32]), 32))


def _tile(group: Group, node: Node) -> KernelSource:
    """sort and topk of rows that fit a tile."""
    axis = node["axis"]
    rows = Rows(group, node.inputs, axis)
    several = node.op.name == "topk"
    words = Words(node.inputs[0].dtype, node["largest"] if several else node["descending"])
    kept = node["k"] if several else rows.length
    outputs = {name: memory for name, memory in (("values", result(group, 0)), ("indices", result(group, 1)))
               if memory is not None}
    name = f"{node.op.name}_{'rows' if rows.inner == 1 else 'columns'}"
    if by_digits(node):
        return sort_by_digits(group, node)
    if is_short(rows):
        return sort_short(group, node, words, name, outputs, kept)
    tile = power_of_two(rows.length)
    few = min(power_of_two(kept), tile)
    per_program = batch_block(rows.rows, max(1, 1024 // tile))
    warps = _warps(per_program * tile, words.bits32)
    vector = rows.vector_beside(outputs.values() if few == tile else ())
    apart, more = [], ""
    if rows.inner != 1 and tile <= LONGEST_COLUMN:
        each, warps = COLUMN_EACH[words.bits32], 1
        while each > 1 and 32 * each >= 4 * tile and hint(rows.rows) * tile < 32 * each * FEW_PROGRAMS:
            each //= 2
        per_program = max(1, 32 * each // tile)
        apart, more = ["x = g_unknown(x)"], f", {max(tile // each, 1).bit_length() - 1}"
    lines = [*rows.x_lines(), *apart, *rows.r_lines(), *rows.operand_lines(), *words.pack(rows.names[0], "r"),
             f"word = tl.where(r_mask, word, {words.largest})",
             *([f"word = g_first(word, KEPT, {vector}, {warps}{more})"] if tile > 1 else []), *words.unpack(),
             f"r = tl.arange(0, KEPT)[None, :]{rows.integer}", f"inside = x_mask & (r < {kept})",
             *words.stores(outputs, rows.address(kept, "KEPT"))]
    return rows.source(name, lines, outputs, {"XBLOCK": per_program, "RBLOCK": tile, "KEPT": few},
                       -(-rows.rows // per_program), warps, helpers(lines))


def _runs(group: Group, node: Node) -> KernelSource:
    """sort_runs: a program sorts one run of a row into words."""
    rows = Rows(group, node.inputs, 1)
    run = block_for(rows.length, node["run"])
    words = Words(node.inputs[0].dtype, node["descending"], bits64=True)
    parts = -(-rows.length // run)
    warps = _warps(8 * run, False)  # few programs: the more threads the better
    lines = [*rows.x_lines("tl.program_id(0) // parts"), *rows.r_lines("tl.program_id(0) % parts * RBLOCK"),
             *rows.operand_lines(), *words.pack(rows.names[0], "r"),
             f"word = tl.where(r_mask, word, {words.largest})",
             f"word = g_first(word, RBLOCK, {rows.vector}, {warps})",
             f"tl.store(words + {rows.address()}, word, mask=x_mask & r_mask)"]
    return rows.source("sort_runs", lines, {"words": group.outputs[0]}, {"XBLOCK": 1, "RBLOCK": run},
                       rows.rows * parts, warps, helpers(lines), {"parts": parts})


def _unsort(group: Group, node: Node) -> KernelSource:
    """unsort: every element goes where its index says."""
    rows = Rows(group, node.inputs, node["axis"])
    r_block = block_for(hint(rows.length), 1024 if rows.inner == 1 else 16)
    x_block = batch_block(rows.rows, max(1, 1024 // r_block))
    parts = -(-rows.length // r_block)
    index = "tl.int64" if rows.int64_index else "tl.int32"
    stored = rows.names[0] if node.dtype is bool_ else f"{rows.names[0]}.to({triton_type(node.dtype)})"
    lines = [*rows.x_lines("tl.program_id(0) // parts"), *rows.r_lines("tl.program_id(0) % parts * RBLOCK"),
             *rows.operand_lines(), "inside = x_mask & r_mask",
             f"r = tl.minimum(tl.maximum({rows.names[1]}, 0), {rows.size} - 1).to({index})",
             f"tl.store(out + {rows.address()}, {stored}, mask=inside)"]
    return rows.source("unsort", lines, {"out": group.outputs[0]}, {"XBLOCK": x_block, "RBLOCK": r_block},
                       -(-rows.rows // x_block) * parts, 4, sizes={"parts": parts})


_EMITTERS = {"sort": _tile, "topk": _tile, "sort_runs": _runs, "unsort": _unsort}
