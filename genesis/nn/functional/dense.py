"""The affine map of a layer."""

from __future__ import annotations

from genesis.amp.policy import cast_for
from genesis.ir.ops import contraction
from genesis.recording import record
from genesis.tensor import Tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · weightᵀ + bias.

    Args:
        input: (..., in features); the leading dimensions are a batch.
        weight: (out features, in features), of the input's dtype.
        bias: (out features), or None.

    Returns:
        (..., out features) in the input's dtype; low-precision products accumulate in float32.

    Raises:
        RuntimeError: shapes, dtypes or devices do not fit.

    >>> import genesis
    >>> linear(genesis.ones(5, 2), genesis.ones(3, 2), genesis.ones(3)).shape
    genesis.Size([5, 3])
    """
    input, weight, bias = cast_for("linear", input, weight, bias)
    operands = (input, weight) if bias is None else (input, weight, bias)
    result: Tensor = record(contraction.linear, operands)
    return result
