"""Dropout: noise for training."""

from __future__ import annotations

import math

from genesis.frontend.draw_parts import place_in_whole
from genesis.frontend.draw_parts import state as parts
from genesis.frontend.generator import draw_numbers
from genesis.frontend.recording import record
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops.random import dropout as dropout_op
from genesis.ir.ops.random import dropout_of_part
from genesis.ops.creation import ones

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]


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
    if not _drops("dropout", p, training):
        return input
    threshold = min(round(p * 2**32), 2**32 - 1) - 2**31
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    operands = (input, threshold, scale, *draw_numbers())
    result: Tensor = (record(dropout_of_part, operands, place_in_whole(input.spec.shape)) if parts.chosen[0] else
                      record(dropout_op, operands))
    return input.copy_(result) if inplace else result


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each channel of (n, channels, length) or (channels, length) is 0 with probability p, else divided by 1 - p.

    Raises:
        ValueError: p is not a probability.
        RuntimeError: another number of dimensions.
    """
    if input.spec.ndim not in (2, 3):
        raise failure("dropout1d", f"Expected 2D or 3D input, but received a {input.spec.ndim}D input.",
                      [("input", input)])
    return _written(input, _features("dropout1d", input, p, training, alone=input.spec.ndim == 2), inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each channel of (n, channels, height, width) is 0 with probability p, else over 1 - p (Tompson et al. 2015).

    Raises:
        ValueError: p is not a probability.
    """
    return _written(input, _features("dropout2d", input, p, training, alone=False), inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each channel of (n, channels, depth, height, width), n left out or not, is 0 with probability p, else over 1 - p.

    Raises:
        ValueError: p is not a probability.
    """
    return _written(input, _features("dropout3d", input, p, training, alone=input.spec.ndim == 4), inplace)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout to the value that `selu` saturates at, keeping mean 0 and variance 1 (Klambauer et al. 2017).

    Raises:
        ValueError: p is not a probability.
    """
    return _written(input, _alpha("alpha_dropout", input, p, training, input.spec.shape), inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels of (n, channels, ...).

    Raises:
        ValueError: p is not a probability.
        RuntimeError: fewer than two dimensions.
    """
    op = "feature_alpha_dropout"
    if not _drops(op, p, training):
        return input
    return _written(input, _alpha(op, input, p, training, _channels(op, input, alone=False)), inplace)


SATURATION = 1.7580993408473766
"""The limit of selu on the left, without its sign: scale · alpha."""


def _drops(op: str, p: float, training: bool) -> bool:
    """Whether there is anything to drop."""
    if not 0.0 <= p <= 1.0:
        raise failure(op, f"dropout probability has to be between 0 and 1, but got {p}: p={p} is not a probability",
                      hint="0 ≤ p ≤ 1", error=ValueError)
    return training and p > 0.0


def _written(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    if not inplace or result is input:
        return result
    found: Tensor = input.copy_(result)
    return found


def _channels(op: str, input: Tensor, alone: bool) -> tuple[int, ...]:
    """The shape of a mask with one element a channel."""
    count = 1 if alone else 2
    if input.spec.ndim < count:
        raise failure(op, "Feature dropout requires at least 2 dimensions in the input", [("input", input)])
    return (*input.spec.shape[:count], *[1] * (input.spec.ndim - count))


def _features(op: str, input: Tensor, p: float, training: bool, alone: bool) -> Tensor:
    if not _drops(op, p, training):
        return input
    shape = _channels(op, input, alone)
    return input * dropout(ones(*shape, dtype=input.dtype, device=input.device), p)


def _alpha(op: str, input: Tensor, p: float, training: bool, shape: tuple[int, ...]) -> Tensor:
    if not _drops(op, p, training):
        return input
    if p == 1.0:
        return input * 0.0
    kept = dropout(ones(*shape, dtype=input.dtype, device=input.device), p) * (1 - p)
    scale = 1.0 / math.sqrt((SATURATION**2 * p + 1) * (1 - p))
    return input * (kept * scale) + ((kept - 1) * (SATURATION * scale) + SATURATION * scale * p)
