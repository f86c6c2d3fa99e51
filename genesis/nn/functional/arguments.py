"""Arguments that several functions have: sizes given as one number or one for each dimension, batches left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.sym_int import as_size

Ints = int | Sequence[int]


def each(op: str, name: str, value: Any, count: int) -> tuple[int, ...]:
    """An argument as one int for each of `count` dimensions.

    >>> each("conv2d", "stride", 2, 2), each("conv2d", "stride", [2, 3], 2)
    ((2, 2), (2, 3))
    """
    try:
        if not isinstance(value, (tuple, list)):
            return (as_size(value),) * count
        found = tuple(as_size(x) for x in value)
    except TypeError:
        raise failure(op, f"{name} must be an int or a tuple of {count} ints, not {value!r}",
                      error=TypeError) from None
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise failure(op, f"{name} must be one int or {count} ints, not {found}")
    return found


def batched(op: str, input: Tensor, dimensions: int) -> tuple[Tensor, bool]:
    """(the input with a batch dimension, whether it came without one); `dimensions` are the spatial ones."""
    rank = input.spec.ndim
    if rank not in (dimensions + 1, dimensions + 2):
        raise failure(op, f"Expected {dimensions + 1}D (unbatched) or {dimensions + 2}D (batched) input to {op}, but "
                      f"got input of size: {list(input.spec.shape)}", [("input", input)],
                      hint="(channels, *sizes) or (batch, channels, *sizes)")
    return (input, False) if rank == dimensions + 2 else (input.unsqueeze(0), True)
