"""Sorting along a dimension, the largest few, and ranks: the k-th, the median, the most frequent.

Every sort here is stable, and NaN counts as the largest number.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, record
from genesis.ir.errors import failure
from genesis.ir.ops import sorting as s
from genesis.ir.types import bool_, int64
from genesis.ops import return_types
from genesis.ops.common import axis_in
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["argsort", "msort", "sort", "topk"]


def _alone(found: Any, input: Tensor) -> Any:
    """The ranks of a 0-d tensor's one element."""
    return found(input.clone(), input.new_zeros((), dtype=int64))


def sort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True,
         out: tuple[Tensor, Tensor] | None = None) -> return_types.ValuesIndices:
    """The elements in order along `dim`, and where each was.

    Args:
        descending: the largest first.
        stable: equal elements keep their order, which they do in any case.

    Returns:
        (values, indices) of the input's shape.

    Raises:
        IndexError: there is no such dimension.

    >>> import genesis
    >>> genesis.sort(genesis.tensor([3, 1, 2])).indices
    tensor([1, 2, 0])
    """
    axis = axis_in("sort", dim, input.spec.ndim)
    if not input.spec.ndim:
        return into(out, _alone(return_types.sort, input))
    return into(out, return_types.sort(*record(s.sort, (input,), (axis, bool(descending)))))


def argsort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True,
            out: Tensor | None = None) -> Tensor:
    """The indices that sort the input along `dim`.

    >>> import genesis
    >>> genesis.argsort(genesis.tensor([3, 1, 2]), descending=True)
    tensor([0, 2, 1])
    """
    return into(out, sort(input, dim, descending).indices)


def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements in order along the first dimension.

    >>> import genesis
    >>> genesis.msort(genesis.tensor([3, 1, 2]))
    tensor([1, 2, 3])
    """
    return into(out, sort(input, 0).values)


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *,
         out: tuple[Tensor, Tensor] | None = None) -> return_types.ValuesIndices:
    """The k largest elements along `dim`, or smallest, and where they are.

    Args:
        largest: else the smallest.
        sorted: they are in order, which they are in any case.

    Raises:
        IndexError: there is no such dimension.
        RuntimeError: there are fewer than k elements.

    >>> import genesis
    >>> genesis.topk(genesis.tensor([1, 9, 5]), 2)
    genesis.return_types.topk(
    values=tensor([9, 5]),
    indices=tensor([1, 2]))
    """
    axis, k = axis_in("topk", dim, input.spec.ndim), operator.index(k)
    size = input.spec.shape[axis] if input.spec.ndim else 1
    if not 0 <= k <= size:
        raise failure("topk", f"selected index k out of range: k is {k}, but dimension {dim} has size {size}",
                      [("input", input)])
    if input.spec.dtype is bool_:
        raise failure("topk", "not defined for bool", [("input", input)], hint="x.to(genesis.uint8)")
    if not input.spec.ndim:
        nothing = input.new_empty(0), input.new_empty(0, dtype=int64)
        return into(out, _alone(return_types.topk, input) if k else return_types.topk(*nothing))
    return into(out, return_types.topk(*record(s.topk, (input,), (k, axis, bool(largest)))))


class SortingMethods(TensorBase):
    """The sorting methods of a tensor."""

    __slots__ = ()

    sort = sort
    argsort = argsort
    msort = msort
    topk = topk

