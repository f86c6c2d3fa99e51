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

from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.control import item
from genesis.ir.ops.leaves import full, iota
from genesis.ir.ops.movement import expand, reshape, take_range
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
    np,
    permutations,
    reals,
)
from genesis.ir.ops.searching import searchsorted
from genesis.ir.sym_int import hint
from genesis.ir.types import DType, TensorType, float32, int32, int64

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


def written_type(base: TensorType, source: TensorType, ids: TensorType, order: TensorType, *more: TensorType,
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


def reference_add(base: ndarray, source: ndarray, ids: ndarray, order: Iterable[int], ends: ndarray | None,
                   *parts: ndarray, chunk: int) -> ndarray:
    result = base.copy()
    for row, place in zip(ids, order, strict=True):
        result[:, row] += source[:, place]
    return result


def reference_put(base: ndarray, source: ndarray, ids: ndarray, order: ndarray) -> ndarray:
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


segment_add: Op = Op("segment_add", "index", written_type, attrs=("chunk",), decompose=_add, differentiable=False,
                     opaque=Opaque("segment", partial=True),
                     doc="base with source[:, order[p]] added to row ids[p], for all positions p. With the two results "
                         "of `segment_parts` as last operands, chunks within a segment are not added up again.", ulp=4,
                     samples=_written(NUMERIC, add=True), reference=reference_add)

segment_put: Op = Op("segment_put", "index", written_type, decompose=_put, differentiable=False,
                     opaque=Opaque("segment", partial=True),
                     doc="base with row ids[p] replaced by source[:, order[p]], for the last position p of each id.",
                     samples=_written(ANY, add=False), reference=reference_put)


def reshaped(x: Node, shape: tuple[int, ...]) -> Node:
    """x in another shape; a constant stays one."""
    return full(shape, x["value"], x.type.dtype, x.type.device) if x.op.name == "const" else reshape(x, shape=shape)


def integer_for(count: int) -> DType:
    """The shortest of the dtypes of indices that counts so far."""
    return int32 if count < 2**31 else int64


def write_segments(base: Node, source: Node, ids: Node, order: Node, add: bool) -> Node:
    """base (outer, rows, inner) with the source's rows added or put, given sorted row numbers and where they were."""
    count = ids.type.shape[0]
    if not add:
        return segment_put(base, source, ids, order)
    ends = searchsorted(ids, ids, right=True, dtype=integer_for(count))
    chunk = COARSE
    while chunk * chunk * 4 < hint(count):
        chunk *= 2
    if count < chunk:
        return segment_add(base, source, ids, order, ends, chunk=chunk)
    parts = segment_parts(source, ids, order, chunk=chunk)
    return segment_add(base, source, ids, order, ends, item(parts, index=0), item(parts, index=1), chunk=chunk)


def sorted_index(index: Node, axis: int) -> tuple[Node, Node]:
    """An index in ascending order along an axis, and where each of it was."""
    from genesis.ir.ops.sorting import sort
    found = sort(index, axis=axis)
    return item(found, index=0), item(found, index=1)


def write_in_order(base: Node, index: Node, source: Node, add: bool) -> Node:
    """base (outer, rows, inner) with the source's rows added or put, by sorting their numbers."""
    from genesis.ir.ops.sorting import sorted_numbers
    rows = base.type.shape[1]
    numbers = cast(index, dtype=integer_for(rows))
    ids, order = sorted_numbers(numbers, rows) if numbers.type.dtype is int32 else sorted_index(numbers, 0)
    return write_segments(base, source, ids, order, add)


def in_lines(places: Node, shape: tuple[int, ...]) -> Node:
    """Positions along the last axis of a tensor of this shape as positions in all of it."""
    for d in range(places.type.ndim - 1):
        line = iota(shape=places.type.shape, axis=d, dtype=int64, device=places.type.device)
        places = places + cast(line * prod(shape[d + 1:]), dtype=places.type.dtype)
    return places
