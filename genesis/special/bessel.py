"""Bessel functions: modified ones of the first kind, without their growth too, and the spherical one of order 0."""

from __future__ import annotations

import math

from genesis.frontend.tensor import Tensor
from genesis.ir.ops import special as s
from genesis.ops.common import pointwise_op
from genesis.ops.comparison import where
from genesis.ops.creation import ones_like
from genesis.ops.out import into
from genesis.ops.trigonometry import sinc
from genesis.special.upcast import in_float64

FAR = 30.0
"""The argument from which on the asymptotic series is used, whose terms fall below 1e-16 there."""


def i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind of order 1. Integers become floating-point.

    >>> import genesis
    >>> genesis.special.i1(genesis.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5652])
    """
    return into(out, pointwise_op(s.i1, input, floating=True))


def i0e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(-|x|) i0(x), without overflow. Integers become floating-point.

    >>> import genesis
    >>> genesis.special.i0e(genesis.tensor([0.0, 1000.0]))
    tensor([1.0000, 0.0126])
    """
    return into(out, in_float64(lambda x: _scaled(x, 0), input))


def i1e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(-|x|) i1(x), without overflow. Integers become floating-point.

    >>> import genesis
    >>> genesis.special.i1e(genesis.tensor([0.0, 1000.0]))
    tensor([0.0000, 0.0126])
    """
    return into(out, in_float64(lambda x: _scaled(x, 1), input))


def _scaled(x: Tensor, order: int) -> Tensor:
    """Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 9.7.1."""
    size = x.abs()
    far = size > FAR
    near, large = where(far, 0.0, x), where(far, size, FAR)
    series = ones_like(large)
    for k in range(24, 0, -1):
        series = series * ((2 * k - 1) ** 2 - 4 * order) / (large * (8 * k)) + 1
    value = pointwise_op(s.i1 if order else s.i0, near)
    beyond = series / (large * (2 * math.pi)).sqrt()
    return where(far, beyond * x.sign() if order else beyond, value * (-near.abs()).exp())


def spherical_bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """sin(x) / x, 1 at 0. Integers become floating-point."""
    return into(out, in_float64(lambda x: sinc(x / math.pi), input))
