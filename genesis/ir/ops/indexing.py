"""Indexing by integer tensors. An index is ≥ 0 here; negative ones are wrapped when recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.ir.errors import IndexOutOfRange, NotAnIndex
from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.leaves import full_like, zeros_like
from genesis.ir.ops.samples import (
    ANY,
    NUMERIC,
    Kinds,
    Samples,
    case,
    cases,
    distinct,
    forward_only,
    integers,
    np,
    reals,
)
from genesis.ir.types import TensorType, int32

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy import ndarray


def _check_index(x: TensorType, index: TensorType) -> None:
    if index.dtype.kind != "int":
        raise NotAnIndex(f"an index must have an integer dtype, not {index.dtype!r}")
    if index.device is not x.device:
        raise RuntimeError(f"the index is on {index.device}, the tensor on {x.device}")


def require_rows(size: int, axis: int, index: TensorType) -> None:
    """Raise where an index counts rows of a dimension without any: known by sizes, it is an error as it is recorded.

    >>> from genesis.ir.types import cpu, int64, tensor_type
    >>> require_rows(0, 1, tensor_type((0,), int64, cpu))
    >>> try:
    ...     require_rows(0, 1, tensor_type((3,), int64, cpu))
    ... except IndexError as error:
    ...     print(error)
    index is out of bounds for dimension 1 with size 0

    Raises:
        IndexOutOfRange: the size is 0, and the index has elements.
    """
    if size.__class__ is int and not size and index.numel:
        raise IndexOutOfRange(f"index is out of bounds for dimension {axis} with size 0")


def _size(x: TensorType, axis: int) -> int:
    """The size of a dimension; a number is a row of one."""
    return x.shape[axis] if x.shape else 1


def _take_type(x: TensorType, index: TensorType, axis: int) -> TensorType:
    require_rows(_size(x, axis), axis, index)
    return _taken_type(x, index, axis)


def _taken_type(x: TensorType, index: TensorType, axis: int) -> TensorType:
    _check_index(x, index)
    return x.with_shape(x.shape[:axis] + index.shape + x.shape[axis + 1:])


def _rows_type(base: TensorType, index: TensorType, source: TensorType, axis: int) -> TensorType:
    expected = _taken_type(base, index, axis)
    if source is not expected:
        raise RuntimeError(f"the source is {source}, but these rows are {expected}")
    return base


def _copied_type(base: TensorType, index: TensorType, source: TensorType, axis: int) -> TensorType:
    if source.numel:  # of rows without elements torch looks at no index
        require_rows(_size(base, axis), axis, index)
    return _rows_type(base, index, source, axis)


def _added_type(base: TensorType, index: TensorType, source: TensorType, axis: int) -> TensorType:
    if base.ndim == 1:  # where a table has no elements torch looks at no index
        require_rows(base.shape[0], axis, index)
    return _rows_type(base, index, source, axis)


def _by_sorting(elements: bool, add: bool) -> Callable[..., Node]:
    """The decomposition of a write through an index, for a backend without a kernel for so many positions."""
    def run(base: Node, index: Node, source: Node, axis: int) -> Node:
        from genesis.ir.ops.index_writes import elements_written, rows_written
        return (elements_written if elements else rows_written)(base, index, source, axis, add)
    return run


def _rows(kinds: Kinds) -> Samples:
    return cases(case(reals().of(5, 3), distinct(0, 5).of(4), reals().of(4, 3), axis=0),
                 case(reals().of(2, 7), distinct(0, 7).of(2, 3), reals().of(2, 2, 3), axis=1),
                 case(reals().of(5), integers(0, 5).of(), reals().of(), axis=0),
                 forward_only(case(reals().of(5), integers(0, 5).of(9), reals().of(9), axis=0)),
                 case(reals().of(5, 2), integers(0, 5).of(0), reals().of(0, 2), axis=0), kinds=kinds, scale=1)


def _scattered(kinds: Kinds) -> Samples:
    return cases(case(reals().of(6, 3), distinct(0, 6).of(2, 3), reals().of(2, 3), axis=0),
                 case(reals().of(2, 8), distinct(0, 8).of(2, 3), reals().of(2, 3), axis=1),
                 forward_only(case(reals().of(2, 5), integers(0, 5).of(2, 7), reals().of(2, 7), axis=1)),
                 forward_only(case(reals().of(6), integers(0, 6).of(9), reals().of(9), axis=0)),
                 case(reals().of(4, 3), integers(0, 4).of(0, 3), reals().of(0, 3), axis=0), kinds=kinds, scale=1)


def _at(base: ndarray, positions: tuple[ndarray, ...], source: ndarray, add: bool) -> ndarray:
    """base with the source's elements put or added at the positions, one after another."""
    result, places, values = base.copy(), np.broadcast_arrays(*positions), source.reshape(-1)
    for *place, value in zip(*(p.reshape(-1) for p in places), values, strict=True):
        result[tuple(place)] = result[tuple(place)] + value if add else value
    return result


def _positions(index: ndarray, axis: int) -> tuple[ndarray, ...]:
    """The element that each entry of a gather's index names, a coordinate a dimension."""
    return tuple(index if d == axis else grid for d, grid in enumerate(np.indices(index.shape)))


def _in_rows(base: ndarray, index: ndarray, source: ndarray, axis: int, add: bool) -> ndarray:
    moved = np.moveaxis(base, axis, 0).copy()
    rows = np.moveaxis(source, range(axis, axis + index.ndim), range(index.ndim)).reshape(-1, *moved.shape[1:])
    for i, row in zip(index.reshape(-1), rows, strict=True):
        moved[i] = moved[i] + row if add else row
    return np.moveaxis(moved, 0, axis)


take = Op("take", "index", _take_type, attrs=("axis",),
          doc="result[..., i.., ...] = x[..., index[i..], ...] along the axis: rows of a table.",
          vjp=lambda g, x, index, y, axis: (index_add(zeros_like(x), index, g, axis=axis), None),
          samples=cases(case(reals().of(5, 3), integers(0, 5).of(4), axis=0),
                        case(reals().of(2, 5), integers(0, 5).of(2, 3), axis=1),
          case(reals().of(5), integers(0, 5).of(), axis=0), case(reals().of(5, 2), integers(0, 5).of(0), axis=0),
          case(reals().of(5, 2), integers(0, 5, int32).of(3), axis=0), kinds=ANY),
          reference=lambda x, index, axis: np.take(x, index, axis))

index_add: Op = Op("index_add", "index", _added_type, attrs=("axis",), decompose=_by_sorting(elements=False, add=True),
                   opaque=Opaque("scatter", constant_base=True, over_base=True),
                   doc="base with source's rows added at the index; equal indices add up.",
                   vjp=lambda g, base, index, source, y, axis: (g, None, take(g, index, axis=axis)),
                   samples=_rows(NUMERIC),
                   reference=lambda base, index, source, axis: _in_rows(base, index, source, axis, add=True))

index_copy: Op = Op("index_copy", "index", _copied_type, attrs=("axis",),
                    opaque=Opaque("scatter", constant_base=True, over_base=True),
                    decompose=_by_sorting(elements=False, add=False),
                    doc="base with its rows at the index replaced by source's; of equal indices the last wins.",
                    vjp=lambda g, base, index, source, y, axis: (
                        index_copy(g, index, full_like(source, 0), axis=axis), None, take(g, index, axis=axis)),
                    samples=_rows(ANY),
                    reference=lambda base, index, source, axis: _in_rows(base, index, source, axis, add=False))


def gather_type(x: TensorType, index: TensorType, axis: int) -> TensorType:
    """One element of x for each of the index, whose other sizes may be smaller."""
    _check_index(x, index)
    if index.ndim != x.ndim or any(i > x.shape[d] for d, i in enumerate(index.shape) if d != axis):
        raise RuntimeError(f"index of shape {index.shape} does not fit {x.shape} along dimension {axis}")
    require_rows(_size(x, axis), axis, index)
    return x.with_shape(index.shape)


def _scatter_type(base: TensorType, index: TensorType, source: TensorType, axis: int) -> TensorType:
    gather_type(base, index, axis)
    if source is not base.with_shape(index.shape):
        raise RuntimeError(f"source {source} does not fit the index of shape {index.shape} and base {base}")
    return base


gather = Op("gather", "index", gather_type, attrs=("axis",),
            doc="result[i..] = x[i.. with index[i..] at the axis].",
            vjp=lambda g, x, index, y, axis: (scatter_add(zeros_like(x), index, g, axis=axis), None),
            samples=cases(case(reals().of(4, 3), integers(0, 4).of(2, 3), axis=0),
                          case(reals().of(2, 5), integers(0, 5).of(2, 7), axis=1),
            case(reals().of(4, 3), integers(0, 4).of(0, 3), axis=0),
            case(reals().of(4, 3), integers(0, 3, int32).of(2, 2), axis=1), kinds=ANY),
            reference=lambda x, index, axis: x[_positions(index, axis)])

scatter_add: Op = Op("scatter_add", "index", _scatter_type, attrs=("axis",),
                     opaque=Opaque("scatter", constant_base=True, over_base=True),
                     decompose=_by_sorting(elements=True, add=True),
                     doc="base with source[i..] added at [i.. with index[i..] at the axis].",
                     vjp=lambda g, base, index, source, y, axis: (g, None, gather(g, index, axis=axis)),
                     samples=_scattered(NUMERIC),
                     reference=lambda base, index, source, axis: _at(base, _positions(index, axis), source, add=True))

scatter: Op = Op("scatter", "index", _scatter_type, attrs=("axis",), decompose=_by_sorting(elements=True, add=False),
                 opaque=Opaque("scatter", constant_base=True, over_base=True),
                 doc="base with source[i..] written at [i.. with index[i..] at the axis]; of equal indices the last "
                     "wins.",
                 vjp=lambda g, base, index, source, y, axis: (
                     scatter(g, index, full_like(source, 0), axis=axis), None, gather(g, index, axis=axis)),
                 samples=_scattered(ANY),
                 reference=lambda base, index, source, axis: _at(base, _positions(index, axis), source, add=False))
