"""Indexing: what x[...] means, reading and writing.

Ints, slices, None and Ellipsis select a view. Integer tensors (and lists, and boolean masks,
which become integer tensors) gather: the dimensions they index are brought together, their
indices combined into row numbers of a matrix, and rows taken; writing puts rows back.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from genesis.ir.errors import failure
from genesis.ir.node import Node, literal, make
from genesis.ir.ops import indexing as ix
from genesis.ir.ops import movement, pointwise
from genesis.ir.types import bool_, cpu, int64
from genesis.ops.common import axis_in, cast, expand, result_type
from genesis.ops.shape import permute, reshape, select, sliced, unsqueeze
from genesis.recording import TensorBase, assign, emit, read, wrap

if TYPE_CHECKING:
    from genesis.tensor import Tensor


class IndexKind(Enum):
    """How an indexing expression runs."""

    VIEW = "view"
    GATHER = "gather"
    SCATTER = "scatter"
    COPY = "copy"
    FILL = "fill"


@dataclass(frozen=True)
class IndexPlan:
    """What an indexing expression does: take a view, then maybe rows of it.

    Attributes:
        kind: VIEW when `base` is the result, GATHER when rows are taken from it.
        base: the view that ints, slices, None and Ellipsis select.
        axes: dimensions of `base` that integer tensors index.
        indices: these tensors, broadcast to one shape.
    """

    kind: IndexKind
    base: Tensor
    axes: tuple[int, ...] = ()
    indices: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class _Switch:
    """A bool as an index: a new dimension of which all or nothing is taken."""

    index: Tensor


def plan(input: Tensor, key: Any) -> IndexPlan:
    """How `input[key]` runs."""
    items = _items(input, key)
    base, axis = input, 0
    advanced: list[tuple[int, Any]] = []
    for item in items:
        if item is None:
            base = unsqueeze(base, axis)
            axis += 1
        elif isinstance(item, _Switch):
            base = unsqueeze(base, axis)
            advanced.append((axis, item.index))
            axis += 1
        elif isinstance(item, slice):
            base = _slice(base, axis, item)
            axis += 1
        elif isinstance(item, TensorBase):
            advanced.append((axis, item))
            axis += 1
        else:
            base = _select(input, base, axis, item)
    if not advanced:
        return IndexPlan(IndexKind.VIEW, base)
    from genesis.ops.shape import broadcast_tensors
    try:
        indices = broadcast_tensors(*(index for _, index in advanced))
    except RuntimeError:
        raise failure("indexing", "shape mismatch: indexing tensors could not be broadcast together with shapes "
                      + ", ".join(str(list(i.type.shape)) for _, i in advanced), [("input", input)],
                      error=IndexError) from None
    return IndexPlan(IndexKind.GATHER, base, tuple(a for a, _ in advanced), indices)


def _items(input: Tensor, key: Any) -> list[Any]:
    """The key as one item for each dimension (and one for each None)."""
    import numpy as np

    from genesis.ops.creation import tensor
    given = list(key) if isinstance(key, tuple) else [key]
    items: list[Any] = []
    for item in given:
        if isinstance(item, (list, np.ndarray)):
            item = tensor(item, device=input.type.device)
            if item.type.numel == 0:
                item = item.to(int64)
        elif isinstance(item, range):
            item = tensor(list(item), device=input.type.device)
        if isinstance(item, TensorBase) and item.type.dtype is bool_ and item.type.ndim == 0:
            item = bool(item)
        if isinstance(item, (bool, np.bool_)):
            items.append(_Switch(*_mask_indices(tensor([bool(item)], device=input.type.device))))
        elif isinstance(item, TensorBase) and item.type.dtype is bool_:
            items.extend(_mask_indices(item))
        elif isinstance(item, TensorBase) and item.type.dtype.kind == "float":
            raise failure("indexing", "tensors used as indices must be integer or boolean tensors", [("index", item)],
                          error=IndexError)
        else:
            items.append(item)
    used = sum(1 for item in items if item is not None and item is not Ellipsis and not isinstance(item, _Switch))
    if used > input.type.ndim:
        raise failure("indexing", f"too many indices for tensor of dimension {input.type.ndim}", [("input", input)],
                      error=IndexError)
    whole = [slice(None)] * (input.type.ndim - used)
    at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    return items + whole if at is None else items[:at] + whole + items[at + 1:]


def _mask_indices(mask: Any) -> tuple[Any, ...]:
    return nonzero(mask, as_tuple=True)


def _slice(base: Tensor, axis: int, item: slice) -> Tensor:
    size = base.type.shape[axis]
    if item.step is not None and operator.index(item.step) <= 0:
        raise failure("indexing", "slice step must be positive", [("input", base)], hint="use flip", error=ValueError)
    start, stop, step = item.indices(size)
    if (start, stop, step) == (0, size, 1):
        return base
    ndim = base.type.ndim
    starts = tuple(start if i == axis else 0 for i in range(ndim))
    stops = tuple(max(stop, start) if i == axis else n for i, n in enumerate(base.type.shape))
    return sliced(base, starts, stops, tuple(step if i == axis else 1 for i in range(ndim)))


def _select(input: Tensor, base: Tensor, axis: int, item: Any) -> Tensor:
    try:
        index = operator.index(item)
    except TypeError:
        raise failure("indexing", "only integers, slices (`:`), ellipsis (`...`), None and long or byte tensors are "
                      f"valid indices (got {type(item).__name__})", [("input", input)], error=IndexError) from None
    size = base.type.shape[axis]
    if not -size <= index < size:
        raise failure("indexing", f"index {index} is out of bounds for dimension {axis} with size {size}",
                      [("input", input)], error=IndexError)
    return select(base, axis, index)


def _wrapped(index: Tensor, size: int) -> Node:
    """int64 row numbers ≥ 0."""
    node = cast(read(index), int64)
    return make(pointwise.where, (make(pointwise.lt, (node, literal(0))), node + size, node))


def _together(p: IndexPlan) -> tuple[Tensor, list[int], int]:
    """(the base with the indexed dimensions first and made one, the other dimensions, where the result goes)."""
    rest = [i for i in range(p.base.type.ndim) if i not in p.axes]
    adjacent = list(p.axes) == list(range(p.axes[0], p.axes[0] + len(p.axes)))
    front = permute(p.base, (*p.axes, *rest))
    return front, rest, p.axes[0] if adjacent else 0


def _rows(p: IndexPlan) -> Node:
    """Row numbers into the indexed dimensions made one."""
    rows: Node | None = None
    for axis, index in zip(p.axes, p.indices, strict=True):
        if index.type.device is cpu:  # as torch does; on another GPU it is an error
            index = index.to(p.base.type.device)
        part = _wrapped(index, p.base.type.shape[axis])
        rows = part if rows is None else rows * p.base.type.shape[axis] + part
    assert rows is not None
    return rows


def _flat_rows(p: IndexPlan, front: Tensor) -> tuple[int, tuple[int, ...]]:
    count = 1
    for axis in p.axes:
        count *= p.base.type.shape[axis]
    return count, front.type.shape[len(p.axes):]


def getitem(input: Tensor, key: Any) -> Tensor:
    """`input[key]`: a view for ints, slices, None and Ellipsis, else a copy of the selected elements."""
    if input.type.ndim and isinstance(key, (int, slice)) and not isinstance(key, bool):  # quickly, the commonest keys
        found = _slice(input, 0, key) if isinstance(key, slice) else _select(input, input, 0, key)
        return found if found is not input else reshape(input, input.type.shape)
    p = plan(input, key)
    if p.kind is IndexKind.VIEW:
        return p.base if p.base is not input else reshape(input, input.type.shape)
    front, rest, at = _together(p)
    count, row = _flat_rows(p, front)
    taken = wrap(emit(ix.take, (make(movement.reshape, (read(front),), ((count, *row),)), _rows(p)), (0,)))
    if at == 0:
        return taken
    k = p.indices[0].type.ndim
    order = [*range(k, k + at), *range(k), *range(k + at, k + len(rest))]
    return permute(taken, order)


def setitem(input: Tensor, key: Any, value: Any) -> None:
    """`input[key] = value`: the value, cast and broadcast, goes through the view into the storage."""
    p = plan(input, key)
    if p.kind is IndexKind.VIEW:
        write_value(p.base, value)
        return
    front, _, at = _together(p)
    count, row = _flat_rows(p, front)
    k = p.indices[0].type.ndim
    index_shape = p.indices[0].type.shape
    shown = (*row[:at], *index_shape, *row[at:])  # the shape of input[key], which the value broadcasts to
    source = _value_node(input, value, shown)
    order = (*range(at, at + k), *range(at), *range(at + k, len(shown)))
    if order != tuple(range(len(shown))):
        source = make(movement.permute, (source,), (order,))
    whole = make(movement.reshape, (read(front),), ((count, *row),))
    updated = make(ix.index_copy, (whole, _rows(p), source), (0,))
    assign(front, make(movement.reshape, (updated,), (front.type.shape,)))


def _value_node(target: Tensor, value: Any, shape: tuple[int, ...]) -> Node:
    from genesis.ops.creation import full, tensor
    dtype, device = target.type.dtype, target.type.device
    if not isinstance(value, TensorBase):
        value = full(shape, value, dtype=dtype, device=device) if isinstance(value, (bool, int, float)) else tensor(
            value, device=device)
    if value.type.device is not device:
        if value.type.ndim:
            raise failure("assignment",
                          f"expected all tensors on one device, but found {device} and {value.type.device}",
                          [("tensor", target), ("value", value)], hint="move the value with .to(device)")
        value = value.to(device)
    node = cast(read(value), dtype)
    while node.type.ndim > len(shape) and node.type.shape[0] == 1:
        node = make(movement.reshape, (node,), (node.type.shape[1:],))
    try:
        return expand(node, shape)
    except RuntimeError:
        raise failure("assignment", f"shape mismatch: value tensor of shape {list(value.type.shape)} cannot be "
                      f"broadcast to indexing result of shape {list(shape)}",
                      [("tensor", target), ("value", value)]) from None


def write_value(target: Tensor, value: Any) -> None:
    """Write a tensor or number through a view, cast and broadcast."""
    assign(target, _value_node(target, value, target.type.shape), replaces=True)


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Indices of the elements that are not 0: (count, ndim), or a tensor for each dimension. Reads the values."""
    import numpy as np

    from genesis.ops.creation import from_host
    found = np.nonzero(input.detach().cpu().numpy())
    if as_tuple:
        return tuple(from_host(part.astype(np.int64), input.type.device) for part in found)
    rows = np.stack(found, axis=1).astype(np.int64) if found else np.zeros((0, 0), np.int64)
    return from_host(rows, input.type.device)


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """result[i][j] = input[index[i][j]][j] for dim = 0, and so on for other dimensions and ranks."""
    axis = axis_in("gather", dim, input.type.ndim)
    return wrap(emit(ix.gather, (read(input), read(index)), (axis,)))


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """The input with src[i][j] added at [index[i][j]][j] for dim = 0; equal indices add up."""
    axis = axis_in("scatter_add", dim, input.type.ndim)
    return wrap(emit(ix.scatter_add, (read(input), read(index), _fitted(src, index)), (axis,)))


def scatter(input: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    """The input with src (a tensor or a number) written at the index along `dim`."""
    axis = axis_in("scatter", dim, input.type.ndim)
    if not isinstance(src, TensorBase):
        source = _value_node(input, src, index.type.shape)
    else:
        source = _fitted(src, index)  # type: ignore[arg-type]
    return wrap(emit(ix.scatter, (read(input), read(index), source), (axis,)))


def _fitted(src: Tensor, index: Tensor) -> Node:
    if src.type.shape == index.type.shape:
        return read(src)
    shape = index.type.shape
    return read(sliced(src, (0,) * len(shape), shape, (1,) * len(shape)))


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The positions `index` (a vector) along `dim`."""
    axis = axis_in("index_select", dim, input.type.ndim)
    return wrap(emit(ix.take, (read(input), _wrapped(index, input.type.shape[axis])), (axis,)))


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """The input with source's positions along `dim` added at `index`; equal indices add up."""
    axis = axis_in("index_add", dim, input.type.ndim)
    return wrap(emit(ix.index_add, (read(input), read(index), read(source)), (axis,)))


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The value where the mask is true, else the input."""
    from genesis.ops.math import where
    if result_type(input, value) is not input.type.dtype and input.type.dtype.kind != "float":
        raise failure("masked_fill",
                      f"value {value!r} cannot be converted to {input.type.dtype!r} without overflow or loss",
                      [("input", input)])
    return where(mask, value, input)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is true, as a vector. Reads the mask."""
    from genesis.ops.shape import broadcast_tensors
    values, chosen = broadcast_tensors(input, mask)
    return getitem(values, chosen)


class IndexingMethods(TensorBase):
    """The indexing methods of a tensor."""

    __slots__ = ()

    gather = gather
    scatter = scatter
    scatter_add = scatter_add
    index_select = index_select
    index_add = index_add
    masked_fill = masked_fill
    masked_select = masked_select
    nonzero = nonzero
    __getitem__ = getitem
    __setitem__ = setitem

    def masked_fill_(self: Any, mask: Tensor, value: Any) -> Tensor:
        """`masked_fill` in place."""
        write_value(self, masked_fill(self, mask, value))
        return self

    def scatter_add_(self: Any, dim: int, index: Tensor, src: Tensor) -> Tensor:
        """`scatter_add` in place."""
        write_value(self, scatter_add(self, dim, index, src))
        return self

    def index_add_(self: Any, dim: int, index: Tensor, source: Tensor) -> Tensor:
        """`index_add` in place."""
        write_value(self, index_add(self, dim, index, source))
        return self
