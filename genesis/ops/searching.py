"""Searches: places in sorted sequences, positions of elements that are not 0, elements that a mask keeps.

A result whose shape depends on the data is made in two steps: how long it is, is counted and read, which waits for the
device once; then it is recorded with that length, like any other op.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from genesis.frontend.engine_protocol import engine
from genesis.frontend.recording import TensorBase, emit, read, require_tensors, wrap, wrap_all, wrap_laid_out
from genesis.frontend.state import state
from genesis.ir.errors import failure, is_foreign, not_a_tensor
from genesis.ir.node import make
from genesis.ir.ops import movement
from genesis.ir.ops import searching as s
from genesis.ir.types import bool_, int32, int64
from genesis.ops.common import axis_in, cast, device_of
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["argwhere", "bucketize", "masked_select", "nonzero", "repeat_interleave", "searchsorted"]


def searchsorted(sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False,
                 side: str | None = None, sorter: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """The places of values in sorted rows, so that these stay sorted.

    Args:
        sorted_sequence: sorted along the last dimension; one row, or one for each line of the input.
        input: a tensor, or a number if there is one row.
        out_int32: the result is int32 instead of int64.
        right: behind equal elements instead of before them; `side="right"` is the same.
        sorter: indices that sort the sequence, if it is not sorted itself.

    Returns:
        The shape of the input.

    Raises:
        RuntimeError: dtypes or shapes differ, or `side` and `right` contradict each other.

    >>> import genesis
    >>> genesis.searchsorted(genesis.tensor([1, 3, 5]), genesis.tensor([3, 6]))
    tensor([1, 3])
    """
    require_tensors(sorted_sequence, sorter)
    op = "searchsorted"
    if side not in (None, "left", "right"):
        raise failure(op, f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise failure(op, "side and right can't be set to opposites, got side of left while right was True")
    right = right or side == "right"
    if sorter is not None:
        if sorter.spec.shape != sorted_sequence.spec.shape or sorter.spec.dtype is not int64:
            raise failure(op, "the sorter must be int64 of the shape of the sequence",
                          [("sorted_sequence", sorted_sequence), ("sorter", sorter)])
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    if not sorted_sequence.spec.ndim:
        raise failure(op, "the sorted sequence must have a dimension", [("sorted_sequence", sorted_sequence)])
    if not isinstance(input, TensorBase):
        if sorted_sequence.spec.ndim != 1:
            raise failure(op, "a number is searched in a sequence of one dimension",
                          [("sorted_sequence", sorted_sequence)])
        input = sorted_sequence.new_tensor(input)
    rows, values = read(sorted_sequence), read(input)
    if rows.type.dtype is not values.type.dtype:
        raise failure(op, "the sorted sequence and the input must have the same dtype",
                      [("sorted_sequence", sorted_sequence), ("input", input)])
    if rows.type.dtype is bool_:
        rows, values = cast(rows, int32), cast(values, int32)
    return into(out, wrap(emit(s.searchsorted, (rows, values), (right, int32 if out_int32 else int64))))


def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False,
              out: Tensor | None = None) -> Tensor:
    """The boundaries between which each value lies: their number below it, `right`: not above it.

    >>> import genesis
    >>> genesis.bucketize(genesis.tensor([0.5, 2.]), genesis.tensor([1., 2., 3.]))
    tensor([0, 1])
    """
    if boundaries.spec.ndim != 1:
        raise failure("bucketize", "boundaries tensor must be 1 dimension", [("boundaries", boundaries)])
    return into(out, searchsorted(boundaries, input, out_int32=out_int32, right=right))


def counted(mask: Tensor) -> int:
    """The number of elements that are not 0."""
    count: Tensor = mask.count_nonzero()
    if state.session is None:  # a call that is captured tells that a value is read
        engine.read_size(count.storage)
    return int(count.item())


def nonzero(input: Tensor, *, as_tuple: bool = False, out: Tensor | None = None) -> Any:
    """Indices of the elements that are not 0, in row-major order. Reads how many there are.

    Returns:
        int64, (count, ndim), or with `as_tuple` a vector for each dimension.

    Raises:
        RuntimeError: for an `out` with `as_tuple`.

    >>> import genesis
    >>> genesis.nonzero(genesis.tensor([[0, 1], [2, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    if as_tuple and out is not None:
        raise failure("nonzero", "there is no out kwarg when as_tuple is True", [("input", input), ("out", out)],
                      "nonzero(x, out=out), a row for each element")
    if as_tuple and not input.spec.ndim:
        return nonzero(input.reshape(1), as_tuple=True)
    count = counted(input)
    flat = emit(s.nonzero, (read(input.detach()),), (count,))
    parts = [s.coordinate(flat, input.spec.shape, d) for d in range(input.spec.ndim)]
    if as_tuple:
        return wrap_all(parts)
    if not parts:
        return into(out, input.new_empty((count, 0), dtype=int64))
    columns = [make(movement.reshape, (part,), ((count, 1),)) for part in parts]
    node = make(movement.concat, tuple(columns), (1,)) if len(columns) > 1 else columns[0]
    return into(out, wrap_laid_out(node, (1, count)))  # a column after the other, as torch's


def argwhere(input: Tensor) -> Tensor:
    """`nonzero`: the indices of the elements that are not 0, a row each.

    >>> import genesis
    >>> genesis.argwhere(genesis.tensor([0, 3, 0, 4])).tolist()
    [[1], [3]]
    """
    require_tensors(input)
    return nonzero(input)


def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where the mask is true, as a vector. Reads how many there are.

    Args:
        input, mask: broadcast to one shape; the mask is bool.

    >>> import genesis
    >>> genesis.masked_select(genesis.tensor([1, 2, 3]), genesis.tensor([True, False, True]))
    tensor([1, 3])
    """
    from genesis.ops.shape import broadcast_tensors
    require_tensors(input, mask)
    if mask.spec.dtype is not bool_:
        raise failure("masked_select", f"expected BoolTensor for mask, got {mask.spec.dtype!r}", [("mask", mask)],
                      hint="mask.bool()")
    device_of("masked_select", (input, mask))
    values, chosen = broadcast_tensors(input, mask)
    return into(out, compressed(values.reshape(-1), chosen.reshape(-1)))


def compressed(rows: Tensor, mask: Tensor) -> Tensor:
    """The rows where a mask of them is true."""
    count = counted(mask)  # first: what reads memory that others see is computed before it returns
    return wrap(emit(s.compress, (read(rows), read(mask)), (count,)))


def repeat_interleave(input: Any = None, repeats: Any = None, dim: int | None = None, *,
                      output_size: int | None = None) -> Tensor:
    """Every element so many times in a row.

    Args:
        input: any shape. Given alone, it is `repeats`, and what is repeated are 0, 1, 2, …
        repeats: an int, or a vector with a number for each position along `dim`.
        dim: all elements by default, as a vector.
        output_size: the sum of `repeats`, which is read otherwise.

    Raises:
        RuntimeError: `repeats` does not fit, or has negative numbers.

    >>> import genesis
    >>> genesis.repeat_interleave(genesis.tensor([1, 2]), genesis.tensor([2, 1]))
    tensor([1, 1, 2])
    """
    op = "repeat_interleave"
    if input is None or repeats is None:
        alone = repeats if input is None else input
        require_tensors(alone)
        return _places(alone, output_size)
    require_tensors(input)
    line = input.reshape(-1) if dim is None else input if input.spec.ndim else input.reshape(1)
    axis = 0 if dim is None else axis_in(op, dim, input.spec.ndim)
    size = line.spec.shape[axis]
    if isinstance(repeats, TensorBase):
        if repeats.spec.ndim > 1:
            raise failure(op, "repeats must be 0-dim or 1-dim tensor", [("repeats", repeats)])
        if repeats.spec.numel == 1:
            repeats = int(repeats.item())  # type: ignore[attr-defined]
        elif repeats.spec.shape != (size,):
            raise failure(op, f"repeats must have the same size as input along dim, but got {repeats.spec.numel} "
                          f"repeats for {size} elements", [("input", input), ("repeats", repeats)])
    if isinstance(repeats, TensorBase):
        from genesis.ops.indexing import index_select
        return index_select(line, axis, _places(repeats, output_size))
    from genesis.ops.shape import apart
    if is_foreign(repeats):
        raise not_a_tensor(repeats)
    times = operator.index(repeats)
    if times < 0:
        raise failure(op, "repeats can not be negative", [("input", input)])
    shape = line.spec.shape
    wide = line.unsqueeze(axis + 1).expand(*shape[:axis + 1], times, *shape[axis + 1:])
    return apart(wide.reshape(*shape[:axis], size * times, *shape[axis + 1:]), input)


def _places(repeats: Any, output_size: int | None) -> Any:
    """0, 1, 2, … each repeated so often."""
    from genesis.ops.ranges import arange
    unfit = repeats.spec.ndim != 1
    if unfit:
        raise failure("repeat_interleave", "repeat_interleave only accepts 1D vector as repeat", [("repeats", repeats)])
    if repeats.spec.dtype not in (int32, int64):
        raise failure("repeat_interleave", "repeats has to be Long or Int tensor", [("repeats", repeats)])
    if not repeats.spec.numel:
        return repeats.new_empty(0)
    ends = repeats.cumsum(0)
    if output_size is None:
        if not engine.backend_of(repeats.spec.device).asynchronous and int(repeats.min().item()) < 0:
            raise failure("repeat_interleave", "repeats can not be negative", [("repeats", repeats)])
        output_size = int(ends[-1].item())
    found = searchsorted(ends, arange(output_size, device=repeats.device), right=True)
    return found.to(repeats.dtype)


class SearchMethods(TensorBase):
    """The searching methods of a tensor."""

    __slots__ = ()

    nonzero = nonzero
    argwhere = argwhere
    masked_select = masked_select
    repeat_interleave = repeat_interleave

    def bucketize(self: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
        """See `genesis.bucketize`."""
        return bucketize(self, boundaries, out_int32=out_int32, right=right)
