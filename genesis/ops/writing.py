"""Writing by index: copies of a tensor with elements replaced, added or combined; and their forms in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, emit, owned, read, require_tensors, wrap
from genesis.ir.errors import failure
from genesis.ir.ops import indexing as ix
from genesis.ir.ops.scatter_reduce import REDUCTIONS
from genesis.ir.ops.scatter_reduce import scatter_reduce as scatter_reduce_op
from genesis.ir.types import bool_
from genesis.ops.common import axis_in, broadcast_shapes, required
from genesis.ops.index_plan import index_plan, wrapped
from genesis.ops.index_shapes import (
    require_added_rows,
    require_copied_rows,
    require_covered,
    require_no_more_dimensions,
    require_vector,
)
from genesis.ops.indexing import fitted, gather, rewrite, scatter_rows, setitem
from genesis.ops.out import into
from genesis.ops.shape import reshape

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["index_copy", "index_fill", "index_put", "index_reduce", "masked_scatter", "put", "scatter_reduce", "take",
           "take_along_dim"]


def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements at these positions in row-major order; negative ones count from the end.

    >>> import genesis
    >>> genesis.take(genesis.tensor([[4, 3], [2, 1]]), genesis.tensor([0, -1]))
    tensor([4, 1])
    """
    return into(out, wrap(emit(ix.take, (read(reshape(input, -1)), wrapped(index, input.spec.numel, 0)), (0,))))


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """`gather` with operands broadcast along the other dimensions; of the flat input for dim=None.

    >>> import genesis
    >>> x = genesis.tensor([[3, 1], [5, 2]])
    >>> genesis.take_along_dim(x, genesis.argsort(x, dim=1), dim=1)
    tensor([[1, 3],
            [2, 5]])
    """
    require_tensors(input, indices)
    if dim is None:
        return into(out, gather(reshape(input, -1), 0, reshape(indices, -1)))
    axis = axis_in("take_along_dim", dim, input.spec.ndim)
    if input.spec.ndim != indices.spec.ndim:
        raise failure("take_along_dim", "input and indices should have the same number of dimensions",
                      [("input", input), ("indices", indices)])
    one = [*input.spec.shape[:axis], 1, *input.spec.shape[axis + 1:]]
    other = [*indices.spec.shape[:axis], 1, *indices.spec.shape[axis + 1:]]
    around = broadcast_shapes(tuple(one), tuple(other))

    def spread(x: Tensor) -> Tensor:
        return x.expand((*around[:axis], x.spec.shape[axis], *around[axis + 1:]))
    rows = wrapped(spread(indices), input.spec.shape[axis], axis)
    return into(out, wrap(emit(ix.gather, (read(spread(input)), rows), (axis,))))


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with source's elements at these positions in row-major order, added to what is there with `accumulate`."""
    if index.spec.numel != source.spec.numel:
        raise failure("put", f"expected source and index to have the same number of elements, but got "
                      f"{source.spec.numel} and {index.spec.numel}", [("index", index), ("source", source)])
    flat, rows = reshape(input, -1), wrapped(reshape(index, -1), input.spec.numel, 0)
    op = ix.index_add if accumulate else ix.index_copy
    found = wrap(emit(op, (read(flat), rows, read(reshape(source, -1))), (0,)))
    return owned(reshape(found, input.spec.shape))


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy with source's positions along `dim` written at `index`, none of which is negative; of equal ones the
    last wins."""
    require_tensors(input, index, source)
    axis = axis_in("index_copy", dim, max(input.spec.ndim, 1))
    require_copied_rows("index_copy", input, axis, index, source)
    given = reshape(input, 1) if not input.spec.ndim else input
    rows = read(reshape(index, -1))
    written = reshape(source, (*given.spec.shape[:axis], index.spec.numel, *given.spec.shape[axis + 1:]))
    return into(out, reshape(wrap(emit(ix.index_copy, (read(given), rows, read(written)), (axis,))), input.spec.shape))


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with `value` (a number, or a tensor of no dimension) at these positions along `dim`."""
    require_tensors(input, index)
    from genesis.ops.comparison import where
    from genesis.ops.creation import ones, zeros
    if isinstance(value, TensorBase) and value.spec.ndim:
        raise failure("index_fill", f"only supports a 0-dimensional value tensor, but got {value.spec.ndim} dimensions",
                      [("value", value)])
    axis = axis_in("index_fill", dim, max(input.spec.ndim, 1))
    require_vector("index_fill", index, RuntimeError)
    shape = input.spec.shape or (1,)
    nowhere = zeros(shape[axis], dtype=bool_, device=input.spec.device)
    there = ones(index.spec.numel, dtype=bool_, device=input.spec.device)
    rows = wrapped(reshape(index, -1), shape[axis], axis)
    chosen = wrap(emit(ix.index_copy, (read(nowhere), rows, read(there)), (0,)))
    mask = reshape(chosen, (shape[axis], *(1,) * (len(shape) - axis - 1))) if input.spec.ndim else reshape(chosen, ())
    filled = value.to(input.spec.dtype) if isinstance(value, TensorBase) else value  # type: ignore[attr-defined]
    return where(mask, filled, input).to(input.spec.dtype)


def index_put(input: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Tensor:
    """A copy with `input[indices] = values`; with `accumulate` equal indices add up."""
    require_tensors(input)
    require_no_more_dimensions(input, indices, values)
    copy = input.clone()
    key = tuple(slice(None) if i is None else i for i in indices)
    if not accumulate:
        setitem(copy, key, values)
        return copy
    plan = index_plan(copy, key)
    if plan.index_tensor is None:  # one place: a view
        rewrite(plan.view, lambda: plan.view + values)
    else:
        scatter_rows(plan, values, ix.index_add)
    return copy


def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True,
                   out: Tensor | None = None) -> Tensor:
    """The elements of src that meet at one place combined, with the input's own if `include_self`.

    Args:
        input: any shape.
        dim: the dimension that the index counts along.
        index: int64, as many dimensions as the input.
        src: at least of the index's shape.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: whether the input's element takes part where something arrives.

    >>> import genesis
    >>> genesis.scatter_reduce(genesis.zeros(2), 0, genesis.tensor([0, 0, 1]), genesis.tensor([1., 5., 2.]), "amax")
    tensor([5., 2.])
    """
    if reduce not in REDUCTIONS:
        raise failure("scatter_reduce", f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}",
                      [("input", input)])
    require_tensors(input, index, src)
    axis = axis_in("scatter_reduce", dim, max(input.spec.ndim, 1))
    whole, at, part = fitted("scatter_reduce", input, axis, index, src)
    found = wrap(emit(scatter_reduce_op, (read(whole), read(at), read(part)), (axis, reduce, include_self)))
    return into(out, reshape(found, input.spec.shape))


def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True,
                 out: Tensor | None = None) -> Tensor:
    """`scatter_reduce` of whole positions along `dim`; reduce is "prod", "mean", "amax" or "amin"."""
    require_tensors(input, index, source)
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise failure("index_reduce", f"expected reduce to be one of prod, mean, amax or amin but got {reduce}",
                      [("input", input)])
    axis = axis_in("index_reduce", dim, max(input.spec.ndim, 1))
    require_added_rows("index_reduce", input, axis, index, source)
    whole, given = (reshape(x, 1) if not x.spec.ndim else x for x in (input, source))
    count = index.spec.numel
    shape = (*whole.spec.shape[:axis], count, *whole.spec.shape[axis + 1:])
    spread = reshape(index, (*(1,) * axis, count, *(1,) * (whole.spec.ndim - axis - 1))).expand(shape)
    found = scatter_reduce(whole, axis, spread, reshape(given, shape), reduce, include_self=include_self)
    return into(out, reshape(found, input.spec.shape))


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with source's elements, in order, where the mask is true.

    >>> import genesis
    >>> genesis.masked_scatter(genesis.zeros(3), genesis.tensor([True, False, True]), genesis.tensor([7., 8.]))
    tensor([7., 0., 8.])
    """
    require_tensors(input, mask, source)
    if mask.spec.dtype is not bool_:
        raise failure("masked_scatter", "only supports boolean masks", [("mask", mask)])
    if source.spec.dtype is not input.spec.dtype:
        raise failure("masked_scatter", "expected self and source to have same dtypes",
                      [("input", input), ("source", source)])
    shape = broadcast_shapes(input.spec.shape, mask.spec.shape)
    whole, chosen = input.expand(shape), mask.expand(shape)
    count, too_few = source.spec.numel, "number of elements of source < number of ones in mask"
    if not count:
        return required("masked_scatter", whole.clone(), chosen.logical_not(), too_few)
    order = reshape(chosen, -1).cumsum(0) - 1
    if count < chosen.spec.numel:
        order = required("masked_scatter", order, order < count, too_few)
    order = order.clamp(min=0, max=count - 1)
    found = reshape(wrap(emit(ix.take, (read(reshape(source, -1)), read(order)), (0,))), shape)
    from genesis.ops.comparison import where
    return where(chosen, found, whole).contiguous()


class WritingMethods(TensorBase):
    """The methods of a tensor that are the functions above, and what writes in place."""

    __slots__ = ()

    take = take
    take_along_dim = take_along_dim
    put = put
    index_copy = index_copy
    index_fill = index_fill
    index_put = index_put
    scatter_reduce = scatter_reduce
    index_reduce = index_reduce
    masked_scatter = masked_scatter

    def put_(self: Any, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
        """`put` in place."""
        rewrite(self, lambda: put(self, index, source, accumulate))
        return self

    def index_copy_(self: Any, dim: int, index: Tensor, source: Tensor) -> Tensor:
        """`index_copy` in place."""
        rewrite(self, lambda: index_copy(self, dim, index, source))
        return self

    def index_fill_(self: Any, dim: int, index: Tensor, value: Any) -> Tensor:
        """`index_fill` in place."""
        rewrite(self, lambda: index_fill(self, dim, index, value))
        return self

    def index_put_(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Tensor:
        """`index_put` in place."""
        rewrite(self, lambda: index_put(self, indices, values, accumulate))
        return self

    def scatter_reduce_(self: Any, dim: int, index: Tensor, src: Tensor, reduce: str, *,
                        include_self: bool = True) -> Tensor:
        """`scatter_reduce` in place."""
        rewrite(self, lambda: scatter_reduce(self, dim, index, src, reduce, include_self=include_self))
        return self

    def index_reduce_(self: Any, dim: int, index: Tensor, source: Tensor, reduce: str, *,
                      include_self: bool = True) -> Tensor:
        """`index_reduce` in place."""
        rewrite(self, lambda: index_reduce(self, dim, index, source, reduce, include_self=include_self))
        return self

    def masked_scatter_(self: Any, mask: Tensor, source: Tensor) -> Tensor:
        """`masked_scatter` in place."""
        require_covered("masked_scatter_", self, mask)
        rewrite(self, lambda: masked_scatter(self, mask, source))
        return self
