"""Writes through an index by sorting it: equal indices lie side by side then, as a segment of positions.

Always the same result, whatever a backend runs at once: a segment is added up in the order of its positions, a long one
by chunks. So a row that is hit a thousand times costs no more than a thousand rows that are hit once. Only the rows
that are hit are touched.

Everything is in rows: base is (outer, rows, inner), source (outer, positions, inner). `ids` are the sorted row numbers,
`order` says which of the source's rows belongs to each, `ends` where the segment of each position ends.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from genesis.config import config
from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.control import item
from genesis.ir.ops.leaves import full, iota
from genesis.ir.ops.movement import expand, inverse, permute, reshape, take_range
from genesis.ir.ops.pointwise import cast, eq, where_
from genesis.ir.ops.precision import upcast
from genesis.ir.ops.samples import (
    ANY,
    NUMERIC,
    Kinds,
    Samples,
    Values,
    ascending,
    case,
    cases,
    forward_only,
    integers,
    np,
    permutations,
    reals,
)
from genesis.ir.ops.searching import searchsorted
from genesis.ir.sym_int import hint, most
from genesis.ir.types import DType, TensorType, float32, float64, int32, int64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy import ndarray

FINE: Final = 8
"""Positions of a long segment that are added up for themselves."""

COARSE: Final = 64
"""Positions of a very long one; more where there are more than its square."""


def _checked(source: TensorType, ids: TensorType, order: TensorType) -> None:
    if source.ndim != 3 or not ids.shape == order.shape == source.shape[1:2]:
        raise RuntimeError(f"source {source.shape}, ids {ids.shape} and order {order.shape} do not fit")


def _parts_type(source: TensorType, ids: TensorType, order: TensorType, chunk: int) -> tuple[TensorType, TensorType]:
    _checked(source, ids, order)
    outer, count, inner = source.shape
    dtype = float32 if source.dtype.kind == "float" and source.dtype.itemsize < 4 else source.dtype
    fine, coarse = (source.with_dtype(dtype).with_shape((outer, count // size, inner)) for size in (FINE, chunk))
    return fine, coarse


def _sums_of(rows: Node, ids: Node, size: int) -> Node:
    """Sums of each `size` positions that have one id, else 0."""
    from genesis.ir.ops.reduction import sum
    outer, count, inner = rows.type.shape
    chunks = count // size
    grid = reshape(take_range(ids, 0, 0, chunks * size), shape=(chunks, size))
    same = eq(take_range(grid, 1, 0, 1), take_range(grid, 1, size - 1, size))
    blocks = reshape(take_range(rows, 1, 0, chunks * size), shape=(outer, chunks, size, inner))
    whole = expand(reshape(same, shape=(1, chunks, 1)), shape=(outer, chunks, inner))
    return where_(whole, sum(blocks, axes=(2,)), 0.0)


def _parts(source: Node, ids: Node, order: Node, chunk: int) -> tuple[Node, Node]:
    from genesis.ir.ops.indexing import take
    rows = take(upcast(source), order, axis=1)
    return _sums_of(rows, ids, FINE), _sums_of(rows, ids, chunk)


def _reference_parts(source: ndarray, ids: ndarray, order: ndarray, chunk: int) -> tuple[ndarray, ...]:
    found = []
    for size in (FINE, chunk):
        result = np.zeros((source.shape[0], source.shape[1] // size, source.shape[2]), source.dtype)
        for c in range(result.shape[1]):
            here = slice(c * size, c * size + size)
            if ids[here][0] == ids[here][-1]:
                result[:, c] = source[:, order[here]].sum(1)
        found.append(result)
    return tuple(found)


segment_parts: Op = Op("segment_parts", "index", _parts_type, attrs=("chunk",), decompose=_parts, differentiable=False,
                       opaque=Opaque("segment"),
                       doc="The sums of each 8 and of each `chunk` sorted positions, where these have one id, else 0.",
                       samples=cases(*(forward_only(case(reals().of(*s), ascending(0, 2, int64).of(s[1]),
                                                         permutations(0).of(s[1]), chunk=c))
                                       for s, c in (((2, 37, 5), 16), ((1, 64, 1), 16), ((1, 3, 2), 16))),
                                     kinds=NUMERIC, scale=8), ulp=4, reference=_reference_parts)


def _written_type(base: TensorType, source: TensorType, ids: TensorType, order: TensorType, *more: TensorType,
                  **attributes: int) -> TensorType:
    _checked(source, ids, order)
    if base.ndim != 3 or base.shape[::2] != source.shape[::2] or source.dtype is not base.dtype:
        raise RuntimeError(f"rows of {source} do not fit {base}")
    return base


def _add(base: Node, source: Node, ids: Node, order: Node, ends: Node, *parts: Node, chunk: int) -> Node:
    from genesis.ir.ops.indexing import index_add, take
    return index_add(base, ids, take(source, order, axis=1), axis=1)


def _put(base: Node, source: Node, ids: Node, order: Node) -> Node:
    from genesis.ir.ops.indexing import index_copy, take
    return index_copy(base, ids, take(source, order, axis=1), axis=1)


def _reference_add(base: ndarray, source: ndarray, ids: ndarray, order: Iterable[int], ends: ndarray | None,
                   *parts: ndarray, chunk: int) -> ndarray:
    result = base.copy()
    for row, place in zip(ids, order, strict=True):
        result[:, row] += source[:, place]
    return result


def _reference_put(base: ndarray, source: ndarray, ids: ndarray, order: ndarray) -> ndarray:
    result = base.copy()
    for row, place in zip(ids, order, strict=True):
        result[:, row] = source[:, place]
    return result


def _written(kinds: Kinds, add: bool) -> Samples:
    """All positions have one id, so that `ends` is known; tests of backends have other programs."""
    shapes = (((1, 5, 3), 9), ((2, 4, 3), 40), ((1, 6, 1), 7))
    return cases(*(forward_only(case(reals().of(*s), reals().of(s[0], n, s[2]), ascending(2, 2, int32).of(n),
                                     permutations(0).of(n), *((Values(n, n, int32).of(n),) if add else ()),
                                     **({"chunk": 16} if add else {}))) for s, n in shapes), kinds=kinds, scale=8)


segment_add: Op = Op("segment_add", "index", _written_type, attrs=("chunk",), decompose=_add, differentiable=False,
                     opaque=Opaque("segment", partial=True),
                     doc="base with source[:, order[p]] added to row ids[p], for all positions p. With the two results "
                         "of `segment_parts` as last operands, chunks within a segment are not added up again.", ulp=4,
                     samples=_written(NUMERIC, add=True), reference=_reference_add)

segment_put: Op = Op("segment_put", "index", _written_type, decompose=_put, differentiable=False,
                     opaque=Opaque("segment", partial=True),
                     doc="base with row ids[p] replaced by source[:, order[p]], for the last position p of each id.",
                     samples=_written(ANY, add=False), reference=_reference_put)


def _row_type(base: TensorType, source: TensorType, index: TensorType) -> TensorType:
    return _written_type(base, source, index, index)


def _row(base: Node, source: Node, index: Node) -> Node:
    """Elsewhere than in a kernel that writes where it lies: all of it anew."""
    shape = base.type.shape
    here = eq(iota(shape=shape, axis=1, dtype=index.type.dtype, device=base.type.device),
              expand(reshape(index, shape=(1, 1, 1)), shape=shape))
    return where_(here, expand(source, shape=shape), base)


def _reference_row(base: ndarray, source: ndarray, index: ndarray) -> ndarray:
    import numpy
    return _reference_put(base, source, index, numpy.zeros(1, numpy.int64))


row_put: Op = Op("row_put", "index", _row_type, decompose=_row, differentiable=False,
                 doc="base (outer, rows, inner) with row index[0] replaced by the source's only one. A loop over the "
                     "source's elements writes them where base lies: a token's keys and values into their cache.",
                 samples=cases(*(forward_only(case(reals().of(*s), reals().of(s[0], 1, s[2]), integers(0, s[1]).of(1)))
                                 for s in ((1, 5, 3), (2, 4, 3), (3, 1, 1))), kinds=ANY), reference=_reference_row)


def _unordered_type(base: TensorType, source: TensorType, ids: TensorType) -> TensorType:
    return _written_type(base, source, ids, ids)


def _unordered(base: Node, source: Node, ids: Node) -> Node:
    from genesis.ir.ops.indexing import index_add
    return index_add(base, ids, source, axis=1)


def _reference_unordered(base: ndarray, source: ndarray, ids: ndarray) -> ndarray:
    return _reference_add(base, source, ids, range(len(ids)), None, chunk=0)


rows_added: Op = Op("rows_added", "index", _unordered_type, decompose=_unordered, differentiable=False, ulp=4,
                    opaque=Opaque("segment", partial=True),
                    doc="base with source[:, p] added to row ids[p], for all positions p, in any order.",
                    samples=cases(*(forward_only(case(reals().of(*s), reals().of(s[0], n, s[2]),
                                                      integers(0, s[1], int32).of(n)))
                                    for s, n in (((1, 5, 3), 9), ((2, 4, 3), 40))), kinds=NUMERIC, scale=8),
                    reference=_reference_unordered)

def _lines_type(base: TensorType, index: TensorType, source: TensorType) -> TensorType:
    if base.ndim != 2 or not base.shape[0] == index.shape[0] or index.shape != source.shape or (
            source.dtype is not base.dtype):
        raise RuntimeError(f"lines of {source} at {index} do not fit {base}")
    return base


def _lines(base: Node, index: Node, source: Node) -> Node:
    shape, count = base.type.shape, index.type.numel
    ids, order = _sorted(cast(index, dtype=_integer(shape[-1])), 1)
    ids = _in_lines(cast(ids, dtype=_integer(base.type.numel)), shape)
    order = _in_lines(cast(order, dtype=_integer(count)), index.type.shape)
    found = _write(_flat(base, (1, base.type.numel, 1)), _flat(source, (1, count, 1)), reshape(ids, shape=(count,)),
                   reshape(order, shape=(count,)), add=True)
    return reshape(found, shape=shape)


def _reference_lines(base: ndarray, index: ndarray, source: ndarray) -> ndarray:
    import numpy
    result = base.copy()
    numpy.add.at(result, (numpy.arange(len(base))[:, None], index), source)
    return result


lines_added: Op = Op("lines_added", "index", _lines_type, decompose=_lines, differentiable=False, ulp=4,
                     opaque=Opaque("segment", partial=True),
                     doc="base (lines, rows) with source[l, p] added to element index[l, p] of line l, in one order: "
                         "lines whose sums do not fit a program, but whose positions do.",
                     samples=cases(*(forward_only(case(reals().of(n, rows), integers(0, rows).of(n, count),
                                                       reals().of(n, count)))
                                     for n, rows, count in ((3, 5, 9), (2, 40, 70), (1, 1, 3))), kinds=NUMERIC,
                                   scale=8), reference=_reference_lines)

def _columns_type(base: TensorType, index: TensorType, source: TensorType) -> TensorType:
    if base.ndim not in (2, 3) or (base.shape[0], *base.shape[2:]) != (index.shape[0], *index.shape[2:]) or (
            index.shape != source.shape or source.dtype is not base.dtype):
        raise RuntimeError(f"lines of {source} at {index} do not fit {base}")
    return base


def _summed(base: Node, index: Node, source: Node) -> Node:
    """In memory: columns are moved to where lines are, which may fit a program."""
    if base.type.ndim == 2:
        return lines_added(base, index, source)
    outer, rows, inner = base.type.shape
    moved = [_flat(permute(x, axes=(0, 2, 1)) if x.op.name != "const" else x, (outer * inner, x.type.shape[1]))
             for x in (base, index, source)]
    return permute(reshape(lines_summed(*moved), shape=(outer, inner, rows)), axes=(0, 2, 1))


def _reference_columns(base: ndarray, index: ndarray, source: ndarray) -> ndarray:
    import numpy
    found = [_reference_lines(*(numpy.ascontiguousarray(x[..., i]) for x in (base, index, source)))
             for i in range(base.shape[2])] if base.ndim == 3 else []
    return numpy.stack(found, -1) if found else _reference_lines(base, index, source)


lines_summed: Op = Op("lines_summed", "index", _columns_type, decompose=_summed, differentiable=False, ulp=4,
                      opaque=Opaque("scatter", elementwise=2, constant_base=True, over_base=True),
                      doc="`lines_added` of lines whose sums fit the shared memory of a few programs: sums are made "
                          "there, in the order of the positions, and whole lines are written. Lines may be columns: "
                          "base (outer, rows, inner), index and source (outer, positions, inner).",
                      samples=cases(*(forward_only(case(reals().of(n, rows, *inner),
                                                        integers(0, rows).of(n, count, *inner),
                                                        reals().of(n, count, *inner)))
                                      for n, rows, count, *inner in ((3, 5, 9), (2, 40, 70), (1, 1, 3), (2, 5, 9, 3))),
                                    kinds=NUMERIC, scale=8), reference=_reference_columns)


NARROWEST: Final = 8
"""Elements of a row below which it lies in pieces too short to be read: rows of many outer sizes are moved together, so
that each position's are neighbours."""

FEWEST_LINES: Final = 16
"""Minimum outer sizes for that."""

SHORT_LINE: Final = 1024
"""Maximum positions where single elements are added up line by line as they lie: a line's warp takes 0.4 µs for
128."""

MOST_SUMS: Final = 8192
"""Maximum sums of such a line: a program has room for all."""


WRITTEN_ANEW: Final = 48 << 20
"""Bytes of a table up to which all of it is written where a sixteenth of its rows may be hit: to read and to write it
takes 25 µs, as the five to ten launches do by which only these rows are; where the table stays it is copied anyway."""

MANY_ROWS: Final = 4096
"""Minimum rows for that: of fewer a bin, and so a program, has a handful."""


def _rows_sorted(base: Node, index: Node, source: Node) -> Node:
    """Add rows by sorting their numbers, or in any order: each row would look through too many."""
    from genesis.ir.ops.block_rows import fits_blocks, rows_by_block
    from genesis.ir.ops.grouped_rows import rows_by_group
    if _any_order(base.type.dtype):
        return rows_added(base, source, index)
    (outer, rows, inner), count = base.type.shape, index.type.numel
    if inner.__class__ is int and inner < NARROWEST and most(outer) >= FEWEST_LINES:
        if inner == 1 and most(count) <= SHORT_LINE and most(rows) <= MOST_SUMS:
            lines = (outer, count)
            at = expand(reshape(index, shape=(1, count)), shape=lines)
            return reshape(lines_summed(_flat(base, (outer, rows)), at, reshape(source, shape=lines)),
                           shape=base.type.shape)
        moved = [_flat(permute(x, axes=(1, 0, 2)) if x.op.name != "const" else x, (1, x.type.shape[1], outer * inner))
                 for x in (base, source)]
        found = reshape(rows_summed(moved[0], index, moved[1]), shape=(rows, outer, inner))
        return permute(found, axes=(1, 0, 2))
    writes_most = (base.op.name == "const" or 2 * hint(count) >= hint(rows)
                   or (outer.__class__ is int and outer == 1 and MANY_ROWS <= hint(rows) <= 16 * hint(count)
                       and hint(base.type.numel) * base.type.dtype.itemsize <= WRITTEN_ANEW))
    if writes_most and fits_blocks(base, index):
        return rows_by_block(base, index, source)
    if writes_most and rows < 2**31 and count < 2**26:
        return rows_by_group(base, index, source)
    return _in_order(base, index, source, add=True)


rows_summed: Op = Op("rows_summed", "index", lambda base, index, source: _written_type(base, source, index, index),
                     decompose=_rows_sorted, differentiable=False, ulp=4,
                     opaque=Opaque("scatter", elementwise=1, constant_base=True, over_base=True),
                     doc="base (outer, rows, inner) with source[:, p] added to row index[p], for all positions p, in "
                         "one order. Each row looks for its positions in all of the index.",
                     samples=cases(*(forward_only(case(reals().of(*s), integers(0, s[1]).of(n),
                                                       reals().of(s[0], n, s[2])))
                                     for s, n in (((1, 5, 3), 9), ((2, 4, 3), 40), ((1, 40, 1), 3))), kinds=NUMERIC,
                                   scale=8),
                     reference=lambda base, index, source: _reference_add(
                         base, source, index, range(len(index)), None, chunk=0))

IN_ANY_ORDER: Final = {int32, int64}
"""Dtypes whose sums do not depend on the order."""

IF_ALLOWED: Final = {float32, float64}
"""Dtypes that memory can be added to, and whose sums depend on it."""


def _any_order(dtype: DType) -> bool:
    """Whether rows of this dtype may be added up in any order."""
    return dtype in IN_ANY_ORDER or (dtype in IF_ALLOWED and not config.deterministic)


# index_add, index_copy, scatter_add and scatter in these terms

def _flat(x: Node, shape: tuple[int, ...]) -> Node:
    """x in another shape; a constant stays one."""
    return full(shape, x["value"], x.type.dtype, x.type.device) if x.op.name == "const" else reshape(x, shape=shape)


def _integer(count: int) -> DType:
    return int32 if count < 2**31 else int64


def _write(base: Node, source: Node, ids: Node, order: Node, add: bool) -> Node:
    """base (outer, rows, inner) with the source's rows added or put, given sorted row numbers and where they were."""
    count = ids.type.shape[0]
    if not add:
        return segment_put(base, source, ids, order)
    ends = searchsorted(ids, ids, right=True, dtype=_integer(count))
    chunk = COARSE
    while chunk * chunk * 4 < hint(count):
        chunk *= 2
    if count < chunk:
        return segment_add(base, source, ids, order, ends, chunk=chunk)
    parts = segment_parts(source, ids, order, chunk=chunk)
    return segment_add(base, source, ids, order, ends, item(parts, index=0), item(parts, index=1), chunk=chunk)


def _sorted(index: Node, axis: int) -> tuple[Node, Node]:
    from genesis.ir.ops.sorting import sort
    found = sort(index, axis=axis)
    return item(found, index=0), item(found, index=1)


def rows_written(base: Node, index: Node, source: Node, axis: int, add: bool) -> Node:
    """index_add, or index_copy, by sorting the index."""
    shape, count = base.type.shape, index.type.numel
    if not count or not base.type.numel:
        return base
    outer, rows, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1:])
    if add:
        found = rows_summed(_flat(base, (outer, rows, inner)), reshape(index, shape=(count,)),
                            _flat(source, (outer, count, inner)))
        return reshape(found, shape=shape)
    if count.__class__ is int and count == 1 and base.op.name != "const":
        found = row_put(reshape(base, shape=(outer, rows, inner)), reshape(source, shape=(outer, 1, inner)),
                        reshape(index, shape=(1,)))
        return reshape(found, shape=shape)
    found = _in_order(_flat(base, (outer, rows, inner)), reshape(index, shape=(count,)),
                      _flat(source, (outer, count, inner)), add=False)
    return reshape(found, shape=shape)


def _in_order(base: Node, index: Node, source: Node, add: bool) -> Node:
    """base (outer, rows, inner) with the source's rows added or put, by sorting their numbers."""
    from genesis.ir.ops.sorting import sorted_numbers
    rows = base.type.shape[1]
    numbers = cast(index, dtype=_integer(rows))
    ids, order = sorted_numbers(numbers, rows) if numbers.type.dtype is int32 else _sorted(numbers, 0)
    return _write(base, source, ids, order, add)


FEW_LINES: Final = 256
"""Lines up to which a warp for each leaves most of a GPU idle."""

LONG_LINE: Final = 2048
"""Minimum positions of a line that is cut in two: a warp takes 0.4 µs for 128, one after another (H200, 2026-11-28),
and to add partial sums up takes 2.4 µs and their bytes."""

WHOLE_LINE: Final = 8192
"""Maximum sums of a line for that: a program has room for all of them."""


def parts_of_lines(lines: int, rows: int, count: int) -> int:
    """In how many parts the positions of each line are added up, so that few long lines keep a GPU busy.

    >>> parts_of_lines(128, 8192, 8192), parts_of_lines(3000, 1100, 1100), parts_of_lines(4, 8000, 12_000)
    (4, 1, 8)
    """
    parts = 1
    while (rows <= WHOLE_LINE and count >= LONG_LINE * parts and lines * parts <= FEW_LINES
           and count % (2 * parts) == 0):
        parts *= 2
    return parts


def _lines_summed(base: Node, index: Node, source: Node) -> Node:
    """`lines_summed`; of few long lines the parts of each are lines, and their sums are added up in order."""
    if base.type.ndim != 2 or base.type.dtype.kind != "float":
        return lines_summed(base, index, source)
    (lines, rows), count = base.type.shape, index.type.shape[1]
    parts = parts_of_lines(lines, rows, count)
    if parts == 1:
        return lines_summed(base, index, source)
    total = base.type.dtype if base.type.dtype.itemsize >= 4 else float32
    index, source = (reshape(x, shape=(lines * parts, count // parts)) for x in (index, cast(source, dtype=total)))
    found = lines_summed(full((lines * parts, rows), 0, total, base.type.device), index, source)
    found = reshape(found, shape=(lines, parts, rows))
    summed = cast(base, dtype=total)
    for part in range(parts):
        summed = summed + reshape(take_range(found, 1, part, part + 1), shape=(lines, rows))
    return cast(summed, dtype=base.type.dtype)


def elements_written(base: Node, index: Node, source: Node, axis: int, add: bool) -> Node:
    """scatter_add, or scatter, by sorting each line of the index.

    The lines one after another are sorted too, as positions in the flat base: so this is `rows_written` of rows of one
    element.
    """
    rank, shape, given, count = base.type.ndim, base.type.shape, index.type.shape, index.type.numel
    if not count or not base.type.numel:
        return base
    beside = (*shape[:axis], *shape[axis + 1:]) == (*given[:axis], *given[axis + 1:])
    if add and beside and not _any_order(base.type.dtype):
        outer, inner = prod(shape[:axis]), ((prod(shape[axis + 1:]),) if axis != rank - 1 else ())
        found = _lines_summed(*(_flat(x, (outer, x.type.shape[axis], *inner)) for x in (base, index, source)))
        return reshape(found, shape=shape)
    if axis != rank - 1:
        to_end = (*(i for i in range(rank) if i != axis), axis)
        moved = [permute(x, axes=to_end) if x.op.name != "const" else _flat(x, tuple(x.type.shape[i] for i in to_end))
                 for x in (base, index, source)]
        found = elements_written(moved[0], moved[1], moved[2], rank - 1, add)
        return permute(found, axes=inverse(to_end))
    whole, flat_source = _flat(base, (1, base.type.numel, 1)), _flat(source, (1, count, 1))
    if add and _any_order(base.type.dtype):
        ids = reshape(_in_lines(cast(index, dtype=_integer(base.type.numel)), shape), shape=(count,))
        return reshape(rows_added(whole, flat_source, ids), shape=shape)
    ids, order = _sorted(cast(index, dtype=_integer(shape[-1])), rank - 1)
    ids = _in_lines(cast(ids, dtype=_integer(base.type.numel)), shape)
    order = _in_lines(cast(order, dtype=_integer(count)), given)
    found = _write(whole, flat_source, reshape(ids, shape=(count,)), reshape(order, shape=(count,)), add)
    return reshape(found, shape=shape)


def _in_lines(places: Node, shape: tuple[int, ...]) -> Node:
    """Positions along the last axis of a tensor of this shape as positions in all of it."""
    for d in range(places.type.ndim - 1):
        line = iota(shape=places.type.shape, axis=d, dtype=int64, device=places.type.device)
        places = places + cast(line * prod(shape[d + 1:]), dtype=places.type.dtype)
    return places


__all__ = ["elements_written", "lines_added", "lines_summed", "row_put", "rows_added", "rows_summed", "rows_written",
           "segment_add", "segment_parts", "segment_put"]
