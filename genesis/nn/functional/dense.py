"""Affine and bilinear maps."""

from __future__ import annotations

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.recording import emit, read, require_tensors, wrap
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import contraction

__all__ = ["bilinear", "linear"]


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
    input, weight, bias = cast_for(contraction.linear, input, weight, bias)
    operands = (input, weight) if bias is None else (input, weight, bias)
    return wrap(emit(contraction.linear, tuple([read(x) for x in operands])))


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[o] = Σ x1[i] · weight[o, i, j] · x2[j] + bias[o].

    Args:
        input1: (..., in1 features), floating point.
        input2: (..., in2 features), with the same leading dimensions.
        weight: (out features, in1 features, in2 features).
        bias: (out features), or None.

    Returns:
        (..., out features).

    Raises:
        RuntimeError: shapes do not fit.

    >>> import genesis
    >>> bilinear(genesis.tensor([[2.0]]), genesis.tensor([[3.0]]), genesis.ones(1, 1, 1)).tolist()
    [[6.0]]
    """
    require_tensors(input1, input2, weight, bias)
    input1, input2, weight, bias = cast_for(contraction.linear, input1, input2, weight, bias)
    named = [("input1", input1), ("input2", input2), ("weight", weight)]
    *batch, first = input1.spec.shape
    if tuple(batch) != input2.spec.shape[:-1]:
        raise failure("bilinear", "bilinear(): input batch dimensions do not match", named)
    if weight.spec.ndim != 3 or weight.spec.shape[1:] != (first, input2.spec.shape[-1]):
        raise failure("bilinear", f"bilinear(): input sizes do not match weight sizes: got {first} and "
                      f"{input2.spec.shape[-1]} for a weight of {weight.spec.shape}", named)
    out, _, second = weight.spec.shape
    if bias is not None and bias.spec.shape != (out,):
        raise failure("bilinear", f"bilinear(): bias size does not match weight size: got {bias.spec.shape} but "
                      f"expected {out}", [*named, ("bias", bias)])
    rows = input1.reshape(-1, first) if batch else input1.reshape(1, first)
    half = (rows @ weight.permute(1, 0, 2).reshape(first, out * second)).reshape(-1, out, second)
    y = (half @ input2.reshape(half.spec.shape[0], second, 1)).reshape(*batch, out)
    return y if bias is None else y + bias
