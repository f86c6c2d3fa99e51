"""Activations with a learned or given bound that tensors have as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.frontend.recording import record
from genesis.ir.errors import failure
from genesis.ir.ops import activation

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| is over lambd, else 0; floating point, any shape."""
    result: Tensor = record(activation.hardshrink, (input,), (float(lambd),))
    return result


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight · x (He et al. 2015).

    Args:
        input: (n, channels, ...), floating point.
        weight: one slope, or one for each channel; learned.

    Raises:
        RuntimeError: another number of slopes.

    >>> import genesis
    >>> prelu(genesis.tensor([-2.0, 2.0]), genesis.tensor([0.5])).tolist()
    [-1.0, 2.0]
    """
    rank, count = input.type.ndim, weight.type.numel
    named = [("input", input), ("weight", weight)]
    if weight.type.ndim > 1 or (weight.type.ndim == 0 and rank == 0 and count != 1):
        raise failure("prelu", f"Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.type.ndim}",
                      named)
    if input.type.dtype is not weight.type.dtype:
        raise failure("prelu", "Type promoting not supported: the dtypes of input and weight differ", named)
    if count != 1:
        channels = input.type.shape[1] if rank > 1 else 1
        if rank == 0 or count != channels:
            raise failure("prelu", "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                          f"{count} and channel size = {channels}.", named)
        weight = weight.reshape(count, *[1] * (rank - 2))
    else:
        weight = weight.reshape(())
    result: Tensor = record(activation.prelu, (input, weight.expand(input.type.shape)))
    return result


class ActivationMethods:
    """The functions above as methods."""

    __slots__ = ()

    hardshrink = hardshrink
    prelu = prelu
