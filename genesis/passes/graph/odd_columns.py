"""Reductions to short odd columns: of a few rows side by side each has columns of its own first.

Rows of 19 16-bit values begin at multiples of two bytes, so that their elements are loaded one by one. Eight such rows
are 152 neighbours, which are read in vectors. Their sums are eight for each column, which are added with the splits':

    bf16[8,16,3224,19] over axes 0 and 2    →    bf16[8,16,403,8,19] over axes 0 and 2 in splits: f32[33,16,8,19]
                                                 then over the splits and the eight: f32[16,19]
"""

from __future__ import annotations

from math import prod
from typing import Final

from genesis.ir.node import Node
from genesis.ir.ops import movement
from genesis.ir.size_divisors import is_multiple, twos
from genesis.ir.sym_int import as_written, hint
from genesis.passes.graph.cuts import Apart

VECTOR: Final = 16
"""Bytes that a thread loads at once at most."""

READ_AT_ONCE: Final = 8
"""Bytes of neighbours: rows that begin at no multiple of as many are read one element after another."""

LINE: Final = 128
"""Bytes of neighbours that are read together, if rows have a divisor for it."""

LONGEST: Final = 64
"""Elements of a row, at most: of longer ones a warp has whole lines, one element a lane."""

MOST_COLUMNS: Final = 8192
"""Columns of the rows side by side, at most: there are as many times fewer splits, so that parts are few."""

MOST_BEHIND: Final = 64
"""Maximum ops that a value is followed through to what is in memory."""


def rows_apart(node: Node, stored: frozenset[Node]) -> Apart | None:
    """The rows that a reduction to columns reads side by side; None where each row is read in vectors, or not as it
    lies in memory.

    Args:
        stored: values that somebody asks for. A kernel that stores what is reduced reduces it on the way.
    """
    x = node.inputs[0]
    reduced = [axis for axis in node["axes"] if x.shape[axis] != 1]
    if not reduced:
        return None
    axis = max(reduced)
    columns = prod(x.shape[axis + 1:])
    width = _width_in_memory(x, stored)
    if width is None or not 1 < hint(columns) <= LONGEST or twos(as_written(columns)) * width >= READ_AT_ONCE:
        return None
    rows = VECTOR // (twos(as_written(columns)) * width)
    if not is_multiple(as_written(x.shape[axis]), rows) or hint(node.type.numel) * rows > MOST_COLUMNS:
        return None
    while (2 * rows * hint(columns) * width <= LINE and is_multiple(as_written(x.shape[axis]), 2 * rows)
           and hint(node.type.numel) * 2 * rows <= MOST_COLUMNS):
        rows *= 2
    return Apart(axis, rows)


def _width_in_memory(x: Node, stored: frozenset[Node]) -> int | None:
    """Bytes of an element of the narrowest value in memory that another is computed of element by element; None where
    one lies in another order, is a part of something, or is stored."""
    pending, seen, widths = [x], {x}, [x.dtype.itemsize]
    while pending and len(seen) <= MOST_BEHIND:
        behind = pending.pop()
        if behind.op is movement.expand:  # one number for many elements
            continue
        if behind.op.kind == "pointwise" or behind.op is movement.reshape:
            pending += (y for y in dict.fromkeys(behind.inputs) if y not in seen and y.type.numel == x.type.numel)
            seen.update(behind.inputs)
        if (behind.op.kind == "movement" and behind.op is not movement.reshape) or (
                behind in stored and behind.op.kind in ("pointwise", "movement")):
            return None
        widths.append(behind.dtype.itemsize)
    return min(widths)
