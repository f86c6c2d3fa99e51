"""The normal distribution's functions and relatives of the logarithm."""

from __future__ import annotations

import math

from genesis.frontend.tensor import Tensor
from genesis.ir.ops import special
from genesis.ops.common import pointwise_op
from genesis.ops.comparison import where
from genesis.ops.exponential import log1p
from genesis.ops.out import into
from genesis.ops.special import erfc, erfinv
from genesis.special.upcast import Operand, in_float64

FAR = 20.0
"""The argument from which on erfcx is its asymptotic series, whose terms fall below 1e-16 there."""


def entr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """-x log x: 0 at 0, -inf below. Integers become floating-point.

    >>> import genesis
    >>> genesis.special.entr(genesis.tensor([0.0, 2.0, -1.0])).tolist()
    [0.0, -1.3862943649291992, -inf]
    """
    return into(out, pointwise_op(special.entr, input, floating=True))


def xlog1py(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """input · log(1 + other), 0 where the input is 0 and other is a number. Integers become floating-point.

    >>> import genesis
    >>> genesis.special.xlog1py(genesis.tensor([0.0, 1.0]), genesis.tensor([-1.0, 0.0]))
    tensor([0., 0.])
    """
    def formula(x: Tensor, y: Tensor) -> Tensor:
        nothing = (x == 0) & ((y <= -1) | (y == math.inf))  # elsewhere 0 · log(1 + y) has a slope in x
        return where(nothing, 0.0, x * log1p(where(nothing, 0.0, y)))
    return into(out, in_float64(formula, input, other))


def ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The standard normal distribution function. Integers become floating-point.

    >>> import genesis
    >>> genesis.special.ndtr(genesis.tensor(0.0))
    tensor(0.5000)
    """
    return into(out, in_float64(_ndtr, input))


def _ndtr(x: Tensor) -> Tensor:
    return erfc(x * -math.sqrt(0.5)) * 0.5


def log_ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of `ndtr`, exact far to the left too. Integers become floating-point.

    >>> import genesis
    >>> genesis.special.log_ndtr(genesis.tensor(-100.0))
    tensor(-5005.5244)
    """
    return into(out, in_float64(_log_ndtr, input))


def _log_ndtr(x: Tensor) -> Tensor:
    left = x < -1
    low, high = where(left, x, -1.0), where(left, 0.0, x)
    return where(left, (_erfcx(low * -math.sqrt(0.5)) * 0.5).log() - low * low * 0.5, log1p(-_ndtr(-high)))


def erfcx(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(x²) erfc(x), without overflow for large x. Integers become floating-point.

    >>> import genesis
    >>> genesis.special.erfcx(genesis.tensor([0.0, 100.0]))
    tensor([1.0000, 0.0056])
    """
    return into(out, in_float64(_erfcx, input))


def _erfcx(x: Tensor) -> Tensor:
    """Source of the series: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 7.1.23."""
    far = x > FAR
    near, large = where(far, 0.0, x), where(far, x, FAR)
    step = -0.5 / (large * large)
    series = step * 0 + 1
    for k in range(10, 0, -1):
        series = series * step * (2 * k - 1) + 1
    return where(far, series / (large * math.sqrt(math.pi)), (near * near).exp() * erfc(near))


def ndtri(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of `ndtr`: -inf at 0, inf at 1, NaN outside. Integers become floating-point.

    >>> import genesis
    >>> genesis.special.ndtri(genesis.tensor([0.5, 0.975]))
    tensor([0.0000, 1.9600])
    """
    return into(out, in_float64(_ndtri, input))


def _ndtri(p: Tensor) -> Tensor:
    """erfinv near the middle; in the tails Newton's steps on the logarithm of `ndtr`."""
    upper = p > 0.5
    less = where(upper, 1 - p, p)
    middle = erfinv(2 * where(less > 0.1, less, 0.5) - 1) * math.sqrt(2)
    tail = where((less > 0) & (less <= 0.1), less, 0.1).log()
    x = -(-2 * tail - (-4 * math.pi * tail).log()).sqrt()
    for _ in range(4):
        log_cdf = _log_ndtr(x)
        density = -0.5 * x * x - 0.5 * math.log(2 * math.pi)
        x = x - (log_cdf - tail) * (log_cdf - density).exp()
    outside = where(less >= 0, -1.0, less) * math.nan
    edge = where(less == 0, less, 1.0).log()  # -inf, as steep as it is there
    found = where(less > 0.1, middle, where(less == 0, edge, where(less > 0, x, outside)))
    return where(upper, -found, found)
