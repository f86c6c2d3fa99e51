"""Sorting short columns: a thread has all of its column in registers, and exchanges nothing with others.

Neighbouring lanes have neighbouring columns, so that loads and stores are of
runs of memory, also where few elements lie between neighbours of a column: then a warp's lanes go through several
outer indices.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.rows import Rows
from genesis.codegen.cuda.templates.sort_helpers import helpers
from genesis.codegen.cuda.templates.words import Words
from genesis.ir.node import Node
from genesis.passes.groups import Group

LONGEST: Final = 32
"""Maximum elements of a short column. Of 64-bit words they take 157 registers of a thread, all in all; 64 32-bit words
do not fit (Triton 3.6)."""

WARPS: Final = 4
"""Warps of a program; each lane has one column."""


def is_short(rows: Rows) -> bool:
    """Whether registers of one thread hold a column, and neighbours in memory are of different columns."""
    return rows.inner != 1 and 1 < power_of_two(rows.length) <= LONGEST


def sort_short(group: Group, node: Node, words: Words, name: str, outputs: dict[str, Node], kept: int) -> KernelSource:
    """The kernel that sorts short columns, and writes the first `kept` elements of each."""
    rows = Rows(group, node.inputs, node["axis"])
    threads = 32 * WARPS
    # Of a run Triton would give a thread several neighbours, and deal the elements of a column out to the warps.
    lines = [*rows.x_lines(), "x = g_unknown(x)", *rows.r_lines(), *rows.operand_lines(),
             *words.pack(rows.names[0], "r"), f"word = tl.where(r_mask, word, {words.largest})",
             "word = g_sorted(word)", *words.unpack(),
             f"inside = x_mask & (r < {kept})", *words.stores(outputs, rows.address(kept))]
    return rows.source(name, lines, outputs, {"XBLOCK": threads, "RBLOCK": power_of_two(rows.length)},
                       -(-rows.rows // threads), WARPS, helpers(lines))
