"""Rows added to a table, or one put into it, at an index that is not sorted; `rows_summed` sorts it where that pays.

Everything is in rows: base is (outer, rows, inner), source (outer, positions, inner).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genesis.config import config
from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.line_sums import MOST_SUMS, summed_in_parts, taken_at_once
from genesis.ir.ops.movement import expand, permute, reshape
from genesis.ir.ops.pointwise import eq, where_
from genesis.ir.ops.samples import ANY, NUMERIC, case, cases, forward_only, integers, reals
from genesis.ir.ops.segments import reference_add, reference_put, reshaped, write_in_order, written_type
from genesis.ir.sym_int import hint, most
from genesis.ir.types import DType, TensorType, float32, float64, int32, int64

if TYPE_CHECKING:
    from numpy import ndarray

IN_ANY_ORDER: Final = {int32, int64}
"""Dtypes whose sums do not depend on the order."""

IF_ALLOWED: Final = {float32, float64}
"""Dtypes that memory can be added to, and whose sums depend on it."""


def any_order(dtype: DType) -> bool:
    """Whether rows of this dtype may be added up in any order."""
    return dtype in IN_ANY_ORDER or (dtype in IF_ALLOWED and not config.deterministic)


def _row_type(base: TensorType, source: TensorType, index: TensorType) -> TensorType:
    return written_type(base, source, index, index)


def _row(base: Node, source: Node, index: Node) -> Node:
    """Elsewhere than in a kernel that writes where it lies: all of it anew."""
    shape = base.type.shape
    here = eq(iota(shape=shape, axis=1, dtype=index.type.dtype, device=base.type.device),
              expand(reshape(index, shape=(1, 1, 1)), shape=shape))
    return where_(here, expand(source, shape=shape), base)


def _reference_row(base: ndarray, source: ndarray, index: ndarray) -> ndarray:
    import numpy
    return reference_put(base, source, index, numpy.zeros(1, numpy.int64))


row_put: Op = Op("row_put", "index", _row_type, decompose=_row, differentiable=False,
                 doc="base (outer, rows, inner) with row index[0] replaced by the source's only one. A loop over the "
                     "source's elements writes them where base lies: a token's keys and values into their cache.",
                 samples=cases(*(forward_only(case(reals().of(*s), reals().of(s[0], 1, s[2]), integers(0, s[1]).of(1)))
                                 for s in ((1, 5, 3), (2, 4, 3), (3, 1, 1))), kinds=ANY), reference=_reference_row)


def _unordered_type(base: TensorType, source: TensorType, ids: TensorType) -> TensorType:
    return written_type(base, source, ids, ids)


def _unordered(base: Node, source: Node, ids: Node) -> Node:
    from genesis.ir.ops.indexing import index_add
    return index_add(base, ids, source, axis=1)


def _reference_unordered(base: ndarray, source: ndarray, ids: ndarray) -> ndarray:
    return reference_add(base, source, ids, range(len(ids)), None, chunk=0)


rows_added: Op = Op("rows_added", "index", _unordered_type, decompose=_unordered, differentiable=False, ulp=4,
                    opaque=Opaque("segment", partial=True),
                    doc="base with source[:, p] added to row ids[p], for all positions p, in any order.",
                    samples=cases(*(forward_only(case(reals().of(*s), reals().of(s[0], n, s[2]),
                                                      integers(0, s[1], int32).of(n)))
                                    for s, n in (((1, 5, 3), 9), ((2, 4, 3), 40))), kinds=NUMERIC, scale=8),
                    reference=_reference_unordered)

NARROWEST: Final = 8
"""Elements of a row below which it lies in pieces too short to be read: rows of many outer sizes are moved together, so
that each position's are neighbours."""

FEWEST_LINES: Final = 16
"""Minimum outer sizes for which narrow rows are moved together."""

SHORT_LINE: Final = {(False, False): 0, (False, True): 1024, (True, False): 1 << 17, (True, True): 1 << 14}
"""Maximum positions where single elements are added up line by line as they lie: by whether several warps take a line,
2048 in some 1.4 µs, or one, 128 in 0.4, and whether lines are many. Few are cut into parts."""

WRITTEN_ANEW: Final = 48 << 20
"""Bytes of a table up to which all of it is written where a sixteenth of its rows may be hit: to read and to write it
takes 25 µs, as the five to ten launches do by which only these rows are; where the table stays it is copied anyway."""

MANY_ROWS: Final = 4096
"""Minimum rows of a table that is written as a whole though few are hit: of fewer a bin, and so a program, has a
handful."""


def added_by_lines(outer: int, rows: int, inner: int, count: int) -> bool:
    """Are single elements added up line by line, as they lie?"""
    single, many = inner.__class__ is int and inner == 1, most(outer) >= FEWEST_LINES
    return single and most(rows) <= MOST_SUMS and most(count) <= SHORT_LINE[taken_at_once(rows, count) > 0, many]


def rather_by_lines(base: Node, index: Node) -> bool:
    """Whether rows of many outer sizes, of single elements, are added line by line also where each row could look for
    its positions: a program for each would look through the index."""
    outer, rows, inner = base.type.shape
    return most(outer) >= FEWEST_LINES and added_by_lines(outer, rows, inner, index.type.numel)


def _rows_summed(base: Node, index: Node, source: Node) -> Node:
    """Add rows by sorting their numbers, or in any order: each row would look through too many."""
    from genesis.ir.ops.block_rows import fits_blocks, rows_by_block
    from genesis.ir.ops.grouped_rows import rows_by_group
    if any_order(base.type.dtype):
        return rows_added(base, source, index)
    (outer, rows, inner), count = base.type.shape, index.type.numel
    many = most(outer) >= FEWEST_LINES
    if added_by_lines(outer, rows, inner, count):
        lines = (outer, count)
        at = expand(reshape(index, shape=(1, count)), shape=lines)
        return reshape(summed_in_parts(reshaped(base, (outer, rows)), at, reshape(source, shape=lines)),
                       shape=base.type.shape)
    if inner.__class__ is int and inner < NARROWEST and many:
        moved = [reshaped(permute(x, axes=(1, 0, 2)) if x.op.name != "const" else x,
                          (1, x.type.shape[1], outer * inner)) for x in (base, source)]
        if inner == 1 and fits_blocks(moved[0], index):  # the table stays where it lies
            found = rows_by_block(reshaped(base, (1, outer, rows)), index, moved[1], turned=True)
            return reshape(found, shape=base.type.shape)
        found = reshape(rows_summed(moved[0], index, moved[1]), shape=(rows, outer, inner))
        return permute(found, axes=(1, 0, 2))
    writes_most = (base.op.name == "const" or 2 * hint(count) >= hint(rows)
                   or (outer.__class__ is int and outer == 1 and MANY_ROWS <= hint(rows) <= 16 * hint(count)
                       and hint(base.type.numel) * base.type.dtype.itemsize <= WRITTEN_ANEW))
    if writes_most and fits_blocks(base, index):
        return rows_by_block(base, index, source)
    if writes_most and rows < 2**31 and count < 2**26:
        return rows_by_group(base, index, source)
    return write_in_order(base, index, source, add=True)


rows_summed: Op = Op("rows_summed", "index", lambda base, index, source: written_type(base, source, index, index),
                     decompose=_rows_summed, differentiable=False, ulp=4,
                     opaque=Opaque("scatter", elementwise=1, constant_base=True, over_base=True),
                     doc="base (outer, rows, inner) with source[:, p] added to row index[p], for all positions p, in "
                         "one order. Each row looks for its positions in all of the index.",
                     samples=cases(*(forward_only(case(reals().of(*s), integers(0, s[1]).of(n),
                                                       reals().of(s[0], n, s[2])))
                                     for s, n in (((1, 5, 3), 9), ((2, 4, 3), 40), ((1, 40, 1), 3))), kinds=NUMERIC,
                                   scale=8),
                     reference=lambda base, index, source: reference_add(
                         base, source, index, range(len(index)), None, chunk=0))
