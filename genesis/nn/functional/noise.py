"""Dropout: noise for training."""

from __future__ import annotations

from genesis.ir.errors import failure
from genesis.ir.ops.random import dropout as dropout_op
from genesis.random import draw_numbers
from genesis.recording import record
from genesis.tensor import Tensor


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element is 0 with probability p, else divided by 1 - p (Srivastava et al. 2014).

    The mask is a function of the seed and of the number of draws before, equal on every device;
    the backward draws it again instead of keeping it. p is an input of the plan: another value
    compiles nothing.

    Args:
        input: floating point, any shape.
        p: from 0 to 1.
        training: False returns the input as it is.
        inplace: write the result into the input.

    Raises:
        ValueError: p is not a probability.
    """
    if not 0.0 <= p <= 1.0:
        raise failure("dropout", f"p={p} is not a probability", hint="0 ≤ p ≤ 1", error=ValueError)
    if not training or p == 0.0:
        return input
    result: Tensor = record(dropout_op, (input, float(p), *draw_numbers()))
    return input.copy_(result) if inplace else result
