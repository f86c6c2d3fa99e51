"""Index plans, the meaning of `x[...]`: a key becomes a plan, which `genesis.ops.indexing` carries out.

Ints, slices, None and Ellipsis select a part of the memory: a view. Integer tensors (also lists and arrays, and
boolean masks, whose true positions they are) select elements one by one: the dimensions that they index are brought
together, and their indices combined into row numbers of a matrix. The meaning of every mix is torch's.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from genesis.frontend import view_geometry
from genesis.frontend.recording import TensorBase, read, wrap
from genesis.frontend.state import state
from genesis.ir.errors import IndexOutOfRange, failure, is_foreign, not_a_tensor
from genesis.ir.misplaced import called, line_of
from genesis.ir.node import Node, make
from genesis.ir.ops.checked import is_inside
from genesis.ir.ops.indexing import require_rows
from genesis.ir.ops.row_number import row_number
from genesis.ir.ops.searching import flat_positions
from genesis.ir.source import here
from genesis.ir.sym_int import RUNNING, as_size
from genesis.ir.types import bool_, cpu, int32, int64, uint8
from genesis.ops.parts import select
from genesis.ops.shape import broadcast_tensors, reshape, shown, strides_of, unsqueeze

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["IndexKind", "IndexPlan", "index_plan"]


class IndexKind(Enum):
    """The ways in which an indexing expression can run."""

    VIEW = "view"  # read: the result shows a part of the same memory
    GATHER = "gather"  # read: elements are copied from where integer tensors say
    SCATTER = "scatter"  # write: elements are put where integer tensors say
    COPY = "copy"  # write: a tensor goes through a view
    FILL = "fill"  # write: one value goes through a view, or to where a mask is true


@dataclass(frozen=True)
class IndexPlan:
    """The plan of an indexing expression.

    Attributes:
        kind: how it runs.
        result_shape: of what is read, or of what a written value broadcasts to; None for a mask's FILL, whose count
            nobody needs to know.
        result_strides: in elements, of a VIEW's result or the view that is written through; None for other results,
            which have memory of their own.
        ptr_offset_bytes: from the tensor's first element to that of the view.
        index_tensor: for GATHER and SCATTER row numbers, int64, into the indexed dimensions made one.
        needs_mask_compaction: whether a mask's true positions were looked up, which reads its values.
        temp_memory_bytes: what `index_tensor` and these positions take.
        view: the part that ints, slices, None and Ellipsis select.
        axes: dimensions of `view` that are indexed by tensors.
        mask: for a mask's FILL, where to write, with as many dimensions as `view`.
    """

    kind: IndexKind
    result_shape: tuple[int, ...] | None = None
    result_strides: tuple[int, ...] | None = None
    ptr_offset_bytes: int = 0
    index_tensor: Tensor | None = None
    needs_mask_compaction: bool = False
    temp_memory_bytes: int = 0
    view: Any = None
    axes: tuple[int, ...] = ()
    mask: Tensor | None = None

    @property
    def place(self) -> int:
        """The dimension of the result at which the indices' dimensions are."""
        return place_of(self.axes)


def place_of(axes: Sequence[int]) -> int:
    """Where the dimensions of indices at these axes go: where they were if side by side, else to the front.

    >>> place_of((1, 2)), place_of((1, 3))
    (1, 0)
    """
    first = axes[0]
    return first if tuple(axes) == tuple(range(first, first + len(axes))) else 0


READING: Final[Any] = object()
"""Stands for the value of `index_plan` when there is none."""


def index_plan(input: Tensor, key: Any, value: Any = READING) -> IndexPlan:
    """How `input[key]` runs, or `input[key] = value` when a value is given. Nothing is read or written, except that
    a mask's values are read to find its true positions.

    Raises:
        IndexError: the key does not fit the tensor, or has something in it that cannot be an index.

    >>> import genesis
    >>> x, rows = genesis.arange(12).view(3, 4), genesis.tensor([2, 0])
    >>> index_plan(x, (slice(1, None), 2)).kind, index_plan(x, (rows, slice(2))).result_shape
    (<IndexKind.VIEW: 'view'>, (2, 2))
    >>> index_plan(x, rows, 7).kind, index_plan(x, x > 3, 0).kind
    (<IndexKind.SCATTER: 'scatter'>, <IndexKind.FILL: 'fill'>)
    """
    view, indices = selection(input, key)
    offset = (_offset(view) - _offset(input)) * input.spec.dtype.itemsize
    if not indices:
        kind = IndexKind.VIEW
        if value is not READING:
            kind = IndexKind.COPY if isinstance(value, TensorBase) and value.spec.ndim else IndexKind.FILL
        return IndexPlan(kind, view.spec.shape, strides_of(view), offset, view=view)
    if value is not READING and len(indices) == 1 and _is_single(value):
        axis, only = indices[0]
        if only.spec.dtype is bool_ and only.spec.device is input.spec.device:
            mask = reshape(only, (*only.spec.shape, *(1,) * (view.spec.ndim - axis - only.spec.ndim)))
            return IndexPlan(IndexKind.FILL, None, strides_of(view), offset, view=view, mask=mask)
    return _rows_plan(input, view, indices, IndexKind.GATHER if value is READING else IndexKind.SCATTER, offset)


def _rows_plan(input: Tensor, view: Tensor, indices: list[tuple[int, Tensor]], kind: IndexKind,
               offset: int) -> IndexPlan:
    """The plan of integer tensors and masks, given with the dimension of the view where each begins."""
    axes: list[int] = []
    numbers: list[Any] = []
    compacted = 0
    for axis, index in indices:
        if index.spec.dtype is bool_:
            found = index.nonzero(as_tuple=True)
            compacted += sum(part.spec.nbytes for part in found)
            numbers += found
            axes += range(axis, axis + len(found))
        else:
            axes.append(axis)
            numbers.append(index)
    try:
        numbers = list(broadcast_tensors(*numbers)) if len(numbers) > 1 else numbers
    except RuntimeError:
        raise failure("indexing", "shape mismatch: indexing tensors could not be broadcast together with shapes "
                      + ", ".join(str(list(x.spec.shape)) for x in numbers), [("input", input)],
                      error=IndexError) from None
    rows = _rows(view, axes, numbers)
    place = place_of(axes)
    rest = [size for axis, size in enumerate(view.spec.shape) if axis not in axes]
    shape = (*rest[:place], *rows.spec.shape, *rest[place:])
    return IndexPlan(kind, shape, None, offset, rows, bool(compacted), compacted + rows.spec.nbytes, view, tuple(axes))


def _rows(view: Tensor, axes: Sequence[int], indices: Sequence[Tensor]) -> Tensor:
    """Row numbers into the indexed dimensions made one. Where elements are that are not 0 has them already."""
    sizes = tuple([view.spec.shape[axis] for axis in axes])
    indices = [index.to(view.spec.device) if index.spec.device is cpu else index for index in indices]
    rows = flat_positions([read(index) for index in indices], sizes) if len(axes) > 1 else None
    if rows is not None:
        return wrap(rows)
    for axis, size, index in zip(axes, sizes, indices, strict=True):
        part = wrapped(index, size, axis)
        rows = part if rows is None else rows * size + part
    assert rows is not None
    return wrap(rows)


def wrapped(index: Tensor, size: int, dim: int) -> Node:
    """int64 row numbers ≥ 0 among the `size` along a dimension: the index itself, if it is known to be such."""
    node = read(index)
    try:
        require_rows(size, dim, node.type)
    except IndexOutOfRange as error:
        raise failure(called(row_number, line_of(here())), str(error), [("index", node)],
                      error=IndexOutOfRange) from None
    if node.type.dtype is int64 and is_inside(node, size):
        return node
    return make(row_number, (node,), (size, dim), here())


# From a key to a view and index tensors

PLAIN: Final = frozenset({int, slice, type(None), type(Ellipsis)})
"""Classes of items that are as simple as they can be."""


def selection(input: Tensor, key: Any) -> tuple[Tensor, list[tuple[int, Any]]]:
    """The view that the key's ints, slices, None and Ellipsis select, and its other items, which are tensors, with the
    dimension of the view where each begins.

    >>> import genesis
    >>> view, others = selection(genesis.zeros(2, 3), (0, genesis.tensor([1, 2])))
    >>> view.shape, [axis for axis, _ in others]
    (genesis.Size([3]), [0])
    """
    return _select(input, _items(input, key))


def _select(input: Tensor, items: Sequence[Any]) -> tuple[Tensor, list[tuple[int, Any]]]:
    """The view that the basic items select, and the tensors with the dimension of it where each begins."""
    view, axis = input, 0
    indices: list[tuple[int, Any]] = []
    for item in items:
        if item is None:
            view = unsqueeze(view, axis)
        elif isinstance(item, bool):
            view = unsqueeze(view, axis)
            indices.append((axis, _tensor([item], input)))
        elif isinstance(item, slice):
            view = take_slice(view, axis, item)
        elif isinstance(item, TensorBase):
            indices.append((axis, item))
            axis += item.spec.ndim - 1 if item.spec.dtype is bool_ else 0
        else:
            view = take_int(input, view, axis, item)
            continue
        axis += 1
    return view, indices


def _items(input: Tensor, key: Any) -> list[Any]:
    """The key as ints, slices, None, bools, integer tensors and masks, for each dimension of the input."""
    items: list[Any] = []
    used, gap = 0, None
    for given in _as_tuple(key):
        item = _item(input, given)
        if item is Ellipsis:
            if gap is not None:
                raise failure("indexing", "an index can have only one ellipsis (`...`)", [("input", input)],
                              error=IndexError)
            gap = len(items)
            continue
        if isinstance(item, TensorBase) and item.spec.dtype is bool_:
            _check_mask(input, item, used, gap is not None)
            used += item.spec.ndim
        elif item is not None and not isinstance(item, bool):
            used += 1
        items.append(item)
    ndim = input.spec.ndim
    if used > ndim:
        problem = ("invalid index of a 0-dim tensor; use tensor.item() to convert it to a number" if not ndim else
                   f"too many indices for tensor of dimension {ndim}")
        raise failure("indexing", problem, [("input", input)], error=IndexError)
    at = len(items) if gap is None else gap
    items[at:at] = [slice(None)] * (ndim - used)
    if gap is not None:
        _check_masks_behind(input, items)
    return items


def _as_tuple(key: Any) -> tuple[Any, ...]:
    """The key's items. As in torch, a list that holds more than numbers is taken for a tuple."""
    if isinstance(key, tuple):
        return key
    if isinstance(key, list) and len(key) < 32 and any(
            isinstance(x, (TensorBase, Sequence, slice)) or x is None or x is Ellipsis or _is_array(x) for x in key):
        return tuple(key)
    return (key,)


def _item(input: Tensor, item: Any) -> Any:
    """One item of a key, in its simplest form."""
    if item.__class__ in PLAIN:
        return item
    import numpy as np
    if isinstance(item, (list, tuple, range)) or _is_array(item):
        empty = not len(item) if not _is_array(item) else not item.size
        item = _tensor([] if isinstance(item, range) and empty else item, input)
        if empty and item.spec.dtype is not bool_:
            item = item.to(int64)
    if isinstance(item, np.bool_):
        return bool(item)
    if not isinstance(item, TensorBase):
        return item
    kind: Any = item.spec.dtype
    if not item.spec.ndim and kind.kind == "int" and kind is not uint8:
        if state.rewriting.calls:
            return item  # under vmap each example may have its own: elements are gathered
        return int(item.item())  # type: ignore[attr-defined]  # as torch does: the result is a view
    if kind is uint8:
        warnings.warn("indexing with dtype genesis.uint8 takes it for a mask; use bool", UserWarning, stacklevel=5)
        item = item.to(bool_)  # type: ignore[attr-defined]
    elif kind not in (bool_, int64, int32):
        raise failure("indexing", "tensors used as indices must be long, int, byte or bool tensors",
                      [("index", item)], hint="cast the index with .long()", error=IndexError)
    if item.spec.device is not input.spec.device and item.spec.device is not cpu:
        raise failure("indexing", "indices should be either on cpu or on the same device as the indexed tensor "
                      f"({input.spec.device})", [("input", input), ("index", item)])
    if not item.spec.ndim:
        return bool(item)
    return item


def _check_mask(input: Tensor, mask: Any, used: int, behind_gap: bool) -> None:
    """A mask's sizes must be those of the dimensions it stands at. Behind an Ellipsis these are known later."""
    shape = input.spec.shape
    if not behind_gap and used + mask.spec.ndim <= len(shape):
        for position, (size, wanted) in enumerate(zip(mask.spec.shape, shape[used:], strict=False)):
            if size != wanted:
                raise failure("indexing", f"The shape of the mask {list(mask.spec.shape)} at index {position} does not "
                              f"match the shape of the indexed tensor {list(shape)} at index {used + position}",
                              [("input", input), ("mask", mask)], error=IndexError)


def _check_masks_behind(input: Tensor, items: Sequence[Any]) -> None:
    used = 0
    for item in items:
        if isinstance(item, TensorBase) and item.spec.dtype is bool_:
            _check_mask(input, item, used, False)
            used += item.spec.ndim
        elif item is not None and not isinstance(item, bool):
            used += 1


def take_slice(view: Tensor, axis: int, item: slice) -> Tensor:
    """view[:, ..., item] with the slice at the axis; the view itself for a whole slice."""
    size = view.spec.shape[axis]
    if item.step is not None and operator.index(item.step) <= 0:
        raise failure("indexing", "step must be greater than zero", [("input", view)], hint="use flip",
                      error=ValueError)
    start, stop, step = item.indices(size) if not RUNNING else _bounds(item, size)
    if start == 0 and step == 1 and stop == size:
        return view
    return shown(view, view_geometry.cut(view.spec, view.part, axis, start, stop if stop > start else start, step))


def _bounds(item: slice, size: int) -> tuple[int, int, int]:
    """`item.indices(size)` of a forward slice, where sizes may be symbolic."""
    def within(bound: Any, missing: int) -> int:
        if bound is None:
            return missing
        at = as_size(bound)
        at = at + size if at < 0 else at
        return 0 if at < 0 else size if at > size else at
    return within(item.start, 0), within(item.stop, size), 1 if item.step is None else operator.index(item.step)


def take_int(input: Tensor, view: Tensor, axis: int, item: Any) -> Tensor:
    """view[:, ..., item] with the number at the axis; `input` is what the user indexed."""
    try:
        index = as_size(item)
    except TypeError:
        if is_foreign(item):
            raise not_a_tensor(item) from None
        raise failure("indexing", "only integers, slices (`:`), ellipsis (`...`), None and long or byte tensors are "
                      f"valid indices (got {type(item).__name__})", [("input", input)], error=IndexError) from None
    size = view.spec.shape[axis]
    if not -size <= index < size:
        raise failure("indexing", f"index {index} is out of bounds for dimension {axis} with size {size}",
                      [("input", input)], error=IndexError)
    return select(view, axis, index)


def _tensor(data: Any, like: Tensor) -> Any:
    from genesis.ops.creation import tensor
    return tensor(list(data) if isinstance(data, range) else data, device=like.spec.device)


def _is_array(x: Any) -> bool:
    import numpy as np
    return isinstance(x, np.ndarray)


def _is_single(value: Any) -> bool:
    """Whether one element is written everywhere."""
    if isinstance(value, TensorBase):
        return value.spec.numel == 1
    return isinstance(value, (bool, int, float))


def _offset(x: Any) -> int:
    return 0 if x.part is None else x.part.offset
