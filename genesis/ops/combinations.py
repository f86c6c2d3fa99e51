"""Choices of elements, and powers of each."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from genesis.ir.errors import failure
from genesis.ir.types import int64
from genesis.ops.creation import tensor
from genesis.ops.ranges import arange

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of r elements of a vector, in the order of itertools, a row each.

    >>> import genesis
    >>> genesis.combinations(genesis.tensor([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    if input.spec.ndim != 1 or r < 0:
        raise failure("combinations", f"expect a 1D vector and a non-negative number, but got shape "
                      f"{list(input.spec.shape)} and {r}", [("input", input)])
    if not r:
        return input.new_empty(0)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.spec.numel), r))
    return input[tensor(rows, dtype=int64, device=input.spec.device).reshape(len(rows), r)]


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Vandermonde's matrix: the powers of each element of a vector, N of them (as many as elements), in a row.

    >>> import genesis
    >>> genesis.vander(genesis.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [4, 2, 1],
            [9, 3, 1]])
    """
    if x.spec.ndim != 1:
        raise failure("vander", "x must be a one-dimensional tensor.", [("x", x)])
    count = x.spec.numel if N is None else N
    if count < 0:
        raise failure("vander", "N must be non-negative.", [("x", x)])
    powers = arange(count, device=x.spec.device)
    whole = x if x.spec.dtype.kind == "float" else x.long()
    return whole.unsqueeze(-1) ** (powers if increasing else powers.flip(0))
