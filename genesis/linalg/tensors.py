"""Inverses and solutions of tensors taken for matrices, and powers of elements as a matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from genesis.ir.errors import failure
from genesis.ops.decompositions import inv, solve
from genesis.ops.out import into
from genesis.ops.ranges import arange
from genesis.ops.shape import movedim, reshape

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["tensorinv", "tensorsolve", "vander"]


def tensorinv(A: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """The tensor that `tensordot` with A over its first `ind` dimensions makes the identity.

    Args:
        A: the sizes of its first `ind` dimensions have the product of the others'.

    >>> import genesis
    >>> genesis.linalg.tensorinv(genesis.eye(4).reshape(4, 2, 2), 1).shape
    genesis.Size([2, 2, 4])
    """
    if ind <= 0:
        raise failure("linalg.tensorinv", "expected a strictly positive integer for 'ind'", [("A", A)])
    first, rest = A.spec.shape[:ind], A.spec.shape[ind:]
    if math.prod(first) != math.prod(rest):
        raise failure("linalg.tensorinv", f"Expected self to satisfy the requirement prod(self.shape[ind:]) == "
                      f"prod(self.shape[:ind]), but got {math.prod(rest)} != {math.prod(first)}", [("A", A)])
    return into(out, reshape(inv(reshape(A, math.prod(first), math.prod(rest))), (*rest, *first)))


def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None, *, out: Tensor | None = None) -> Tensor:
    """X with tensordot(A, X, X's dimensions) = B.

    Args:
        A: B's shape and then X's, both of one product.
        dims: dimensions of A to move to the end first.
    """
    moved = A if dims is None else movedim(A, tuple(dims), tuple(range(-len(dims), 0)))
    shape = moved.spec.shape[B.spec.ndim:]
    if math.prod(shape) != B.spec.numel or math.prod(moved.spec.shape) != B.spec.numel**2:
        raise failure("linalg.tensorsolve", "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
                      f"prod(self.shape[:other.ndim]), but got {math.prod(shape)} != {B.spec.numel}",
                      [("A", A), ("B", B)])
    return into(out, reshape(solve(reshape(moved, B.spec.numel, -1), reshape(B, -1)), shape))


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 (as many as elements) of each element, in a row.

    >>> import genesis
    >>> genesis.linalg.vander(genesis.tensor([2, 3])).tolist()
    [[1, 2], [1, 3]]
    """
    x = x if x.spec.ndim else reshape(x, 1)
    if N is not None and N <= 1:
        raise failure("linalg.vander", f"N must be greater than 1, not {N}", [("x", x)])
    count = x.spec.shape[-1] if N is None else N
    whole = x if x.spec.dtype.kind == "float" else x.long()
    return whole.unsqueeze(-1) ** arange(count, device=x.spec.device)
