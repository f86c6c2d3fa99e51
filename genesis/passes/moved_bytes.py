"""What a group's kernel moves: all that it reads and writes, but of tables and caches the rows that it reaches.

    take(table: (50257, 768), index: (64,))              64 rows
    row_put(cache: (8, 4096, 128), source: (8, 1, 128))  a row of each head
"""

from __future__ import annotations

from typing import Final

from genesis.ir.node import Node
from genesis.ir.ops import indexing
from genesis.ir.sym_int import Size, hint
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group

LOOKED_UP: Final = (indexing.take, indexing.gather)
"""Ops that read as much of their first operand as they give."""


def moved_bytes(group: Group) -> Size:
    """Bytes that a group's kernel reads and writes, each value once; a formula where sizes are symbolic."""
    begun = {stored_as(base) for _, base in group.starts_from}
    total: Size = 0
    for x in group.inputs:
        if stored_as(x) not in begun:  # else what is not overwritten stays
            total = total + _read(x, group)
    partly = {output for output, _ in group.starts_from}
    for output in group.outputs:
        total = total + (_written(stored_as(output)) if output in partly else output.type.nbytes)
    return total


def _read(x: Node, group: Group) -> Size:
    readers = [node for node in group.nodes for operand in node.inputs
               if stored_as(operand) is stored_as(x) and stored_as(node) is not stored_as(x)]
    if readers and all(node.op in LOOKED_UP and stored_as(node.inputs[0]) is stored_as(x) for node in readers):
        looked_up = sum((node.type.nbytes for node in readers), 0)
        return min(x.type.nbytes, looked_up, key=hint)
    return x.type.nbytes


def _written(node: Node) -> Size:
    """Bytes of what a write puts into its first operand; all of it where that is not known."""
    sources = [x.type.nbytes for x in node.inputs[1:] if x.type.dtype is node.type.dtype]
    return min(node.type.nbytes, max(sources, key=hint), key=hint) if sources else node.type.nbytes
