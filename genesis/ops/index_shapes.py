"""Shapes that writes by index take: what torch checks before it writes, a tensor of no dimension among the operands.

The rules are those of torch's `index_add_`, `index_copy_` and `scatter_`, and differ: a number and a row of one are
the same to a scatter and to `index_copy`, but not to `index_add`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure
from genesis.ir.types import bool_, uint8
from genesis.ops.common import broadcast_shapes


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1:])


def require_vector(op: str, index: TensorBase, error: type[Exception] = IndexError) -> None:
    """Raise where an index has more than one dimension."""
    if index.spec.ndim > 1:
        raise failure(op, f"index is supposed to be a vector or a number, but has {index.spec.ndim} dimensions",
                      [("index", index)], hint="index.reshape(-1)", error=error)


def require_added_rows(op: str, input: TensorBase, axis: int, index: TensorBase, source: TensorBase) -> None:
    """Raise where `index_add` and `index_reduce` take no such source: as many positions as the index has along `axis`,
    and the input's shape else. A number goes with a number only."""
    require_vector(op, index)
    named: list[tuple[str, object]] = [("input", input), ("index", index), ("source", source)]
    ours, theirs, count = input.spec.shape, source.spec.shape, index.spec.numel
    if ours and theirs:
        ours, theirs = _without(ours, axis), _without(theirs, axis)
    given = source.spec.shape[axis] if source.spec.ndim > axis else 1
    if ours != theirs:
        raise failure(op, "source tensor shape must match self tensor shape, excluding the specified dimension", named,
                      hint="a number goes with a number only: source.reshape(input.shape)")
    if given != count:
        raise failure(op, f"the index has {count} elements, and the source {given} positions along dimension {axis}",
                      named)


def require_copied_rows(op: str, input: TensorBase, axis: int, index: TensorBase, source: TensorBase) -> None:
    """Raise where `index_copy` takes no such source; a number counts as a row of one."""
    require_vector(op, index)
    named: list[tuple[str, object]] = [("input", input), ("index", index), ("source", source)]
    ours, theirs, count = input.spec.shape, source.spec.shape, index.spec.numel
    if ours and theirs and len(ours) != len(theirs):
        raise failure(op, f"the source has {len(theirs)} dimensions, and the input {len(ours)}", named,
                      hint="reshape the source", error=IndexError)
    if _without(ours, axis) != _without(theirs, axis):
        raise failure(op, f"source and input must have the same shape but for dimension {axis}", named)
    given = theirs[axis] if theirs else 1
    if given != count:
        raise failure(op, f"the index has {count} elements, and the source {given} positions along dimension {axis}",
                      named, error=IndexError)


def require_scattered(op: str, input: TensorBase, axis: int, index: TensorBase, source: TensorBase | None) -> None:
    """Raise where a scatter takes no such index or source. A number counts as a row of one, and an index of no element
    fits everything."""
    if not index.spec.numel:
        return
    named: list[tuple[str, object]] = [("input", input), ("index", index)]
    at, whole = index.spec.shape or (1,), input.spec.shape or (1,)
    if len(at) != len(whole):
        raise failure(op, "Index tensor must have the same number of dimensions as self tensor", named,
                      hint="unsqueeze or expand the index")
    if any(size > whole[d] for d, size in enumerate(at) if d != axis):
        raise failure(op, f"index of shape {list(at)} does not fit {list(whole)} apart from dimension {axis}", named)
    if source is None:
        return
    named.append(("src", source))
    given = source.spec.shape or (1,)
    if len(at) != len(given):
        raise failure(op, "Index tensor must have the same number of dimensions as src tensor", named)
    if any(size > given[d] for d, size in enumerate(at)):
        raise failure(op, f"src of shape {list(given)} does not fit an index of shape {list(at)}", named)


def require_no_more_dimensions(input: TensorBase, indices: Sequence[Any], values: Any) -> None:
    """Raise where values of `index_put` have more dimensions than what is indexed; an assignment drops those of 1, and
    where a mask is true one element is written of whatever shape."""
    if not isinstance(values, TensorBase) or not values.spec.ndim:
        return
    tensors = [x for x in indices if isinstance(x, TensorBase)]
    masks = [x for x in tensors if x.spec.dtype in (bool_, uint8)]
    if len(masks) == len(tensors) and values.spec.numel == 1:
        return
    used = sum(x.spec.ndim for x in masks) + len(tensors) - len(masks)
    shown = max((1 if x.spec.dtype in (bool_, uint8) else x.spec.ndim for x in tensors), default=0)
    room = input.spec.ndim - used + shown
    if values.spec.ndim > room:
        raise failure("index_put", f"shape mismatch: value tensor of shape {list(values.spec.shape)} cannot be "
                      f"broadcast to an indexing result of {room} dimensions", [("input", input), ("values", values)],
                      hint="values.squeeze(0)")


def require_covered(op: str, target: TensorBase, mask: TensorBase) -> None:
    """Raise where a mask has more elements than the tensor that is written in place."""
    shape = broadcast_shapes(target.spec.shape, mask.spec.shape)
    if shape != target.spec.shape:
        raise failure(op, f"output with shape {list(target.spec.shape)} doesn't match the broadcast shape "
                      f"{list(shape)}", [("input", target), ("mask", mask)], hint="write without the underscore")
