"""Indexing: carrying out the plans of `genesis.ops.index_plan`, and the functions that take index tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, emit, read, require_tensors, wrap
from genesis.frontend.writes import assign, update
from genesis.ir.errors import failure
from genesis.ir.interrupting import of_computing
from genesis.ir.node import Node, make
from genesis.ir.ops import indexing as ix
from genesis.ir.ops import movement, pointwise
from genesis.ir.types import bool_, int32, int64, uint8
from genesis.ops.common import axis_in, cast, expand
from genesis.ops.creation import require_in_range
from genesis.ops.index_plan import (
    PLAIN,
    IndexKind,
    IndexPlan,
    index_plan,
    selection,
    take_int,
    take_slice,
    wrapped,
)
from genesis.ops.index_shapes import require_added_rows, require_covered, require_scattered
from genesis.ops.out import into
from genesis.ops.parts import sliced
from genesis.ops.searching import compressed
from genesis.ops.shape import permute, reshape

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["gather", "index_add", "index_select", "masked_fill", "scatter", "scatter_add"]


def getitem(input: Tensor, key: Any) -> Tensor:
    """`input[key]`: a view for ints, slices, None and Ellipsis, else a copy of the selected elements."""
    if key.__class__ is slice and input.spec.ndim:  # quickly, the commonest keys
        found = take_slice(input, 0, key)
        return found if found is not input else reshape(input, input.spec.shape)
    if isinstance(key, int) and not isinstance(key, bool) and input.spec.ndim:
        return take_int(input, input, 0, key)
    if isinstance(key, TensorBase) and key.spec.dtype is bool_ and _masks_rows(input, key):
        rows = reshape(input, (key.spec.numel, *input.spec.shape[key.spec.ndim:]))
        return compressed(rows, reshape(key, (key.spec.numel,)))  # type: ignore[arg-type]
    if _picks_rows(input, key):
        return wrap(emit(ix.take, (read(input), wrapped(key, input.spec.shape[0], 0)), (0,)))
    if key.__class__ is tuple and all(x.__class__ in PLAIN or _picks_rows(input, x) for x in key):
        view, indices = selection(input, key)
        if not indices:
            return view if view is not input else reshape(input, input.spec.shape)
        if len(indices) == 1:
            (axis, rows), = indices
            return wrap(emit(ix.take, (read(view), wrapped(rows, view.spec.shape[axis], axis)), (axis,)))
    plan = index_plan(input, key)
    if plan.kind is IndexKind.VIEW:
        return plan.view if plan.view is not input else reshape(input, input.spec.shape)
    if len(plan.axes) == 1:
        return wrap(emit(ix.take, (read(plan.view), _row_numbers(plan)), plan.axes))
    matrix, rest = _matrix(plan)
    taken = wrap(emit(ix.take, (matrix, _row_numbers(plan)), (0,)))
    place, k = plan.place, plan.index_tensor.spec.ndim  # type: ignore[union-attr]
    return taken if place == 0 else permute(taken, [*range(k, k + place), *range(k), *range(k + place, k + rest)])


def _masks_rows(input: Tensor, mask: TensorBase) -> bool:
    """Whether the mask is one of the first dimensions, on the same device; any other goes through a plan."""
    shape = mask.spec.shape
    return bool(shape) and shape == input.spec.shape[:len(shape)] and mask.spec.device is input.spec.device


def _picks_rows(input: Tensor, key: Any) -> bool:
    """Whether the key is one tensor of row numbers on the same device, the commonest after ints and slices."""
    return (isinstance(key, TensorBase) and key.spec.dtype in (int64, int32) and key.spec.ndim > 0
            and input.spec.ndim > 0 and key.spec.device is input.spec.device)


def setitem(input: Tensor, key: Any, value: Any) -> None:
    """`input[key] = value`: the value, cast and broadcast, goes through the view into the storage."""
    if input.spec.ndim:  # quickly, the commonest keys
        if key.__class__ is slice:
            write_value(take_slice(input, 0, key), value)
            return
        if key.__class__ is int:
            write_value(take_int(input, input, 0, key), value)
            return
    plan = index_plan(input, key, value)
    if plan.mask is not None:
        mask = expand(read(plan.mask), plan.view.spec.shape)
        filled = value_node(plan.view, _single(value), plan.view.spec.shape)
        update(plan.view, lambda: make(pointwise.where, (mask, filled, read(plan.view))))
    elif plan.index_tensor is None:
        write_value(plan.view, value)
    else:
        scatter_rows(plan, value, ix.index_copy)


def scatter_rows(plan: IndexPlan, value: Any, op: Any) -> None:
    """Put the value's elements at the rows of the plan by `index_copy`, or add them by `index_add`."""
    shown = plan.result_shape
    assert shown is not None
    source = value_node(plan.view, value, shown, indexed=True)
    place, k = plan.place, plan.index_tensor.spec.ndim  # type: ignore[union-attr]
    order = (*range(place, place + k), *range(place), *range(place + k, len(shown)))
    if order != tuple(range(len(shown))):
        source = make(movement.permute, (source,), (order,))
    front = _front(plan)

    def written() -> Node:
        matrix, _ = _matrix(plan)
        return make(movement.reshape, (make(op, (matrix, _row_numbers(plan), source), (0,)),), (front.spec.shape,))
    update(front, written)


def _front(plan: IndexPlan) -> Tensor:
    """The plan's view with the indexed dimensions first."""
    return permute(plan.view, (*plan.axes, *(i for i in range(plan.view.spec.ndim) if i not in plan.axes)))


def _matrix(plan: IndexPlan) -> tuple[Node, int]:
    """The plan's view as rows: the indexed dimensions made one; and how many other dimensions there are."""
    front, k = _front(plan), len(plan.axes)
    count = 1
    for size in front.spec.shape[:k]:
        count *= size
    return make(movement.reshape, (read(front),), ((count, *front.spec.shape[k:]),)), front.spec.ndim - k


def _row_numbers(plan: IndexPlan) -> Node:
    return read(plan.index_tensor)  # type: ignore[arg-type]


def _single(value: Any) -> Any:
    """A tensor of one element without its dimensions; a number as it is."""
    return reshape(value, ()) if isinstance(value, TensorBase) else value  # type: ignore[arg-type]


def value_node(target: Tensor, value: Any, shape: tuple[int, ...], indexed: bool = False) -> Node:
    """The value in the target's dtype and this shape. `indexed`: the shape is that of an indexing's result."""
    from genesis.ops.creation import full, tensor
    dtype, device = target.spec.dtype, target.spec.device
    if not isinstance(value, TensorBase):
        value = full(shape, value, dtype=dtype, device=device) if isinstance(value, (bool, int, float)) else tensor(
            value, device=device)
    if value.spec.device is not device:
        if value.spec.ndim:
            raise failure("assignment",
                          f"expected all tensors on one device, but found {device} and {value.spec.device}",
                          [("tensor", target), ("value", value)], hint="move the value with .to(device)")
        value = value.to(device)
    node = cast(read(value), dtype)
    while node.type.ndim > len(shape) and node.type.shape[0] == 1:
        node = make(movement.reshape, (node,), (node.type.shape[1:],))
    try:
        return expand(node, shape)
    except of_computing(RuntimeError):
        raise failure("assignment", _mismatch(value.spec.shape, shape, indexed),
                      [("tensor", target), ("value", value)]) from None


def _mismatch(given: tuple[int, ...], shape: tuple[int, ...], indexed: bool) -> str:
    """Why a value of one shape does not broadcast to the other."""
    if indexed:
        return (f"shape mismatch: value tensor of shape {list(given)} cannot be broadcast to indexing result of shape "
                f"{list(shape)}")
    if len(given) > len(shape):
        return (f"The number of sizes of the target ({len(shape)}) must be greater or equal to the number of "
                f"dimensions of the value ({len(given)}). Target sizes: {list(shape)}. Tensor sizes: {list(given)}")
    dim = max(i for i in range(-len(given), 0) if given[i] not in (1, shape[i]))
    return (f"The expanded size of the tensor ({shape[dim]}) must match the existing size ({given[dim]}) at "
            f"non-singleton dimension {len(shape) + dim}. Target sizes: {list(shape)}. Tensor sizes: {list(given)}")


def write_value(target: Tensor, value: Any) -> None:
    """Write a tensor or number through a view, cast and broadcast."""
    assign(target, value_node(target, value, target.spec.shape), replaces=True)


def rewrite(target: Tensor, compute: Callable[[], Any]) -> None:
    """Write the tensor that is computed, of the target among others, to the target."""
    update(target, lambda: value_node(target, compute(), target.spec.shape), replaces=True)


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """result[i][j] = input[index[i][j]][j] for dim = 0, and so on for other dimensions and ranks."""
    axis, scalar = axis_in("gather", dim, input.spec.ndim), 0 in (input.spec.ndim, index.spec.ndim)
    if scalar:
        rows, at = (reshape(x, 1) if not x.spec.ndim else x for x in (input, index))
        return into(out, reshape(gather(rows, 0, at), index.spec.shape))
    if not index.spec.numel:
        return into(out, reshape(reshape(input, -1)[:0], index.spec.shape))
    return into(out, wrap(emit(ix.gather, (read(input), read(index)), (axis,))))


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The input with src[i][j] added at [index[i][j]][j] for dim = 0; equal indices add up."""
    require_tensors(input, index, src)
    axis = axis_in("scatter_add", dim, max(input.spec.ndim, 1))
    return into(out, _scattered(ix.scatter_add, "scatter_add", input, axis, index, src))


def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None,
            out: Tensor | None = None) -> Tensor:
    """The input with src (a tensor or a number, or `value`) written at the index along `dim`.

    With reduce="add" it is added to what is there, with "multiply" multiplied.
    """
    require_tensors(input, index)
    given = src if value is None else value
    axis = axis_in("scatter", dim, max(input.spec.ndim, 1))
    if reduce == "multiply":
        from genesis.ops.writing import scatter_reduce
        source = given if isinstance(given, TensorBase) else wrap(value_node(input, given, index.spec.shape))
        return into(out, scatter_reduce(input, axis, index, source, "prod"))  # type: ignore[arg-type]
    if reduce not in (None, "add"):
        raise failure("scatter", f"reduce argument must be either add or multiply, got {reduce}", [("input", input)])
    return into(out, _scattered(ix.scatter if reduce is None else ix.scatter_add, "scatter", input, axis, index, given))


def _scattered(op: Any, name: str, input: Tensor, axis: int, index: Tensor, source: Any) -> Tensor:
    """What a scatter writes: of a tensor its elements at the index's own places, or a number everywhere."""
    if isinstance(source, TensorBase):
        whole, at, part = fitted(name, input, axis, index, source)  # type: ignore[arg-type]
        written = read(part)
    else:
        whole, at, _ = fitted(name, input, axis, index, None)
        written = value_node(input, source, at.spec.shape)
    found = wrap(emit(op, (read(whole), read(at), written), (axis,)))
    return found if input.spec.ndim else reshape(found, ())


def fitted(name: str, input: Tensor, axis: int, index: Tensor, source: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The operands of a scatter as its op takes them: of one dimension at least, the source of the index's shape.

    Without a source the last is the input.
    """
    require_scattered(name, input, axis, index, source)
    whole, at, part = (reshape(x, 1) if not x.spec.ndim else x for x in (input, index, input if source is None
                                                                         else source))
    if not at.spec.numel:  # of any shape
        nothing = tuple(0 if d == axis else min(size, 1) for d, size in enumerate(whole.spec.shape))
        at, part = (reshape(reshape(x, -1)[:0], nothing) for x in (at, part))
    elif source is not None and part.spec.shape != at.spec.shape:
        part = sliced(part, (0,) * at.spec.ndim, at.spec.shape, (1,) * at.spec.ndim)
    return whole, at, part


def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The positions `index` (a vector) along `dim`; none is negative."""
    require_tensors(input, index)
    axis = axis_in("index_select", dim, max(input.spec.ndim, 1))
    if not input.spec.ndim:
        return into(out, reshape(index_select(reshape(input, 1), 0, index), ()))
    if index.spec.ndim != 1:
        if index.spec.ndim:
            raise failure("index_select", "Index is supposed to be a vector", [("input", input), ("index", index)],
                          "input[index] takes an index of any shape", IndexError)
        index = reshape(index, 1)
    return into(out, wrap(emit(ix.take, (read(input), read(index)), (axis,), called="index_select")))


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1,
              out: Tensor | None = None) -> Tensor:
    """The input with alpha times source's positions along `dim` added at `index`; equal indices add up."""
    require_tensors(input, index, source)
    axis = axis_in("index_add", dim, max(input.spec.ndim, 1))
    require_added_rows("index_add", input, axis, index, source)
    base, rows = (reshape(x, 1) if not x.spec.ndim else x for x in (input, source))
    if not index.spec.ndim:
        index = reshape(index, 1)
    rows = rows if alpha == 1 else (rows * alpha).to(input.spec.dtype)
    added = wrap(emit(ix.index_add, (read(base), read(index), read(rows)), (axis,)))
    return into(out, reshape(added, input.spec.shape))


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The value where the mask is true, else the input."""
    require_tensors(input, mask)
    from genesis.ops.comparison import where
    if isinstance(value, TensorBase) and value.spec.ndim:
        raise failure("masked_fill", "only supports a 0-dimensional value tensor, but got tensor with "
                      f"{value.spec.ndim} dimension(s)", [("value", value)])
    dtype = input.spec.dtype
    if dtype.kind != "float":
        converted: Any = value
        value = converted.to(dtype) if isinstance(value, TensorBase) else _fill_value(input, value)
    elif isinstance(value, (int, float)) and not -65504 <= value <= 65504:  # which every dtype of floats holds
        require_in_range("masked_fill", value, dtype, [("input", input)])
    return where(mask, value, input).contiguous()


def _fill_value(input: Tensor, value: bool | int | float) -> bool | int:
    """A number in a dtype of integers or bool, as torch converts it: fractions go, out of range is an error."""
    dtype = input.spec.dtype
    if dtype.kind == "bool":
        return bool(value)
    require_in_range("masked_fill", value, dtype, [("input", input)])
    return int(value) % (int(dtype.max) + 1) if dtype is uint8 else int(value)


class IndexingMethods(TensorBase):
    """The indexing methods of a tensor."""

    __slots__ = ()

    gather = gather
    scatter = scatter
    scatter_add = scatter_add
    index_select = index_select
    index_add = index_add
    masked_fill = masked_fill
    __getitem__ = getitem
    __setitem__ = setitem

    def masked_fill_(self: Any, mask: Tensor, value: Any) -> Tensor:
        """`masked_fill` in place."""
        require_covered("masked_fill_", self, mask)
        rewrite(self, lambda: masked_fill(self, mask, value))
        return self

    def scatter_add_(self: Any, dim: int, index: Tensor, src: Tensor) -> Tensor:
        """`scatter_add` in place."""
        rewrite(self, lambda: scatter_add(self, dim, index, src))
        return self

    def index_add_(self: Any, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
        """`index_add` in place."""
        rewrite(self, lambda: index_add(self, dim, index, source, alpha=alpha))
        return self

    def scatter_(self: Any, dim: int, index: Tensor, src: Any = None, *, value: Any = None,
                 reduce: str | None = None) -> Tensor:
        """`scatter` in place."""
        rewrite(self, lambda: scatter(self, dim, index, src, value=value, reduce=reduce))
        return self
