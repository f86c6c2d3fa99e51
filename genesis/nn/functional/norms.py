"""Normalization over the last dimensions. Statistics are in float32 at least."""

from __future__ import annotations

from collections.abc import Sequence

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.autocast_policy import state as autocast
from genesis.frontend.recording import record
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import composite
from genesis.ir.types import float32, promote_types

__all__ = ["layer_norm", "rms_norm"]


def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5) -> Tensor:
    """(x - mean) / √(variance + eps) · weight + bias over the last dimensions (Ba et al. 2016).

    Args:
        input: (..., *normalized_shape), floating point.
        normalized_shape: the sizes of the dimensions to normalize over.
        weight: of shape normalized_shape, or None for 1.
        bias: of shape normalized_shape, or None for 0.
        eps: added to the variance.

    Raises:
        RuntimeError: the input does not end in normalized_shape, or a parameter has another shape.

    >>> import genesis
    >>> layer_norm(genesis.tensor([[1.0, 3.0]]), (2,), eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    if autocast.policy[0]:
        input, = cast_for(composite.layer_norm, input)
    ndim = _normalized("layer_norm", input, normalized_shape)
    if weight is None:
        result: Tensor = record(composite.layer_norm, (input,), (ndim, eps))
        return result if bias is None else result + bias
    operands = (input, weight) if bias is None else (input, weight, bias)
    affine: Tensor = record(composite.layer_norm, operands, (ndim, eps))
    return affine


def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
             eps: float | None = None) -> Tensor:
    """x / √(mean(x²) + eps) · weight over the last dimensions (Zhang and Sennrich 2019).

    Args:
        input: (..., *normalized_shape), floating point.
        normalized_shape: the sizes of the dimensions to normalize over.
        weight: of shape normalized_shape, or None for 1.
        eps: added to the mean; None for the eps of the dtype that computes, the input's but float32 at least.

    Raises:
        RuntimeError: the input does not end in normalized_shape, or weight has another shape.
    """
    if autocast.policy[0]:
        input, = cast_for(composite.rms_norm, input)
    ndim = _normalized("rms_norm", input, normalized_shape)
    if eps is None:
        eps = promote_types(input.spec.dtype, float32).eps
    operands = (input,) if weight is None else (input, weight)
    result: Tensor = record(composite.rms_norm, operands, (ndim, eps))
    return result


def _normalized(op: str, x: Tensor, normalized_shape: Sequence[int]) -> int:
    """How many last dimensions of x normalized_shape names, having checked that it does."""
    expected = tuple(normalized_shape)
    ndim = len(expected)
    if not ndim or x.spec.shape[-ndim:] != expected:
        raise failure(op, f"the input must end in the normalized shape {expected}", [("input", x)],
                      hint="normalized_shape is the sizes of the last dimensions, for instance (x.shape[-1],)")
    return ndim
