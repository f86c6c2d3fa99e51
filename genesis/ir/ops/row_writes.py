"""Rows added to a table, or one put into it, at an index that is not sorted; `rows_summed` sorts it where that pays
(`sum_forms.rows_form`).

Everything is in rows: base is (outer, rows, inner), source (outer, positions, inner).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.line_sums import summed_in_parts
from genesis.ir.ops.movement import expand, permute, reshape
from genesis.ir.ops.pointwise import eq, where_
from genesis.ir.ops.samples import ANY, NUMERIC, case, cases, forward_only, integers, reals
from genesis.ir.ops.segments import reference_add, reference_put, reshaped, write_in_order, written_type
from genesis.ir.types import TensorType, int32

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy import ndarray

    from genesis.ir.ops.sum_forms import RowsForm


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


def _rows_summed(base: Node, index: Node, source: Node) -> Node:
    """Add rows in the form that `sum_forms.rows_form` takes: each row would look through too many."""
    from genesis.ir.ops.sum_forms import rows_form
    return _FORMS[rows_form(base, index)](base, index, source)


def _by_lines(base: Node, index: Node, source: Node) -> Node:
    (outer, rows, _), count = base.type.shape, index.type.numel
    lines = (outer, count)
    at = expand(reshape(index, shape=(1, count)), shape=lines)
    return reshape(summed_in_parts(reshaped(base, (outer, rows)), at, reshape(source, shape=lines)),
                   shape=base.type.shape)


def _beside(x: Node) -> Node:
    """(outer, rows, inner) as (1, rows, outer * inner): a row's pieces are neighbours."""
    outer, rows, inner = x.type.shape
    return reshaped(permute(x, axes=(1, 0, 2)) if x.op.name != "const" else x, (1, rows, outer * inner))


def _by_columns(base: Node, index: Node, source: Node) -> Node:
    from genesis.ir.ops.block_rows import rows_by_block
    outer, rows, _ = base.type.shape
    found = rows_by_block(reshaped(base, (1, outer, rows)), index, _beside(source), turned=True)
    return reshape(found, shape=base.type.shape)


def _moved(base: Node, index: Node, source: Node) -> Node:
    outer, rows, inner = base.type.shape
    found = reshape(rows_summed(_beside(base), index, _beside(source)), shape=(rows, outer, inner))
    return permute(found, axes=(1, 0, 2))


def _by_block(base: Node, index: Node, source: Node) -> Node:
    from genesis.ir.ops.block_rows import rows_by_block
    return rows_by_block(base, index, source)


def _by_group(base: Node, index: Node, source: Node) -> Node:
    from genesis.ir.ops.grouped_rows import rows_by_group
    return rows_by_group(base, index, source)


_FORMS: Final[dict[RowsForm, Callable[[Node, Node, Node], Node]]] = {
    "any order": lambda base, index, source: rows_added(base, source, index),
    "lines": _by_lines,
    "columns": _by_columns,
    "moved": _moved,
    "blocks": _by_block,
    "groups": _by_group,
    "in order": lambda base, index, source: write_in_order(base, index, source, add=True),
}
"""Form that rows are added in → what adds them: (base, index, source) → base with the rows added."""

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
