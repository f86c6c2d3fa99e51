"""Hurwitz' zeta function."""

from __future__ import annotations

import math

from genesis.frontend.tensor import Tensor
from genesis.ops.comparison import where
from genesis.ops.out import into
from genesis.special.upcast import Operand, in_float64

TERMS = 12
"""Terms that are added one by one; what is left is Euler and Maclaurin's formula."""

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""B2, B4, ... B16."""


def zeta(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Σ (other + k)^-input over k ≥ 0, for input > 1. Integers become floating-point.

    Inf where input is 1 or other is an integer ≤ 0; NaN where input is below 1, or other is negative and input no
    integer.

    >>> import genesis
    >>> genesis.special.zeta(genesis.tensor(2.0), 1)
    tensor(1.6449)
    """
    return into(out, in_float64(_zeta, input, other))


def _zeta(x: Tensor, q: Tensor) -> Tensor:
    pole = (q <= 0) & (q == q.floor())
    undefined = (x < 1) | ((q <= 0) & (x != x.floor())) | x.isnan() | q.isnan()
    usual = ~(pole | undefined | (x == 1))
    s, a = where(usual, x, 2.0), where(usual, q, 1.0)
    total = a * 0
    for k in range(TERMS):
        total = total + (a + k) ** -s
    for k in range(TERMS, 2 * TERMS):  # more of them where q is below 0
        total = total + where(a < 0, (a + k) ** -s, 0.0)
    end = where(a < 0, a + 2 * TERMS, a + TERMS)
    total = total + end ** (1 - s) / (s - 1) + end**-s * 0.5
    factor = s * end ** (-s - 1)
    for n, b in enumerate(BERNOULLI, 1):
        total = total + factor * (b / math.factorial(2 * n))
        factor = factor * (s + 2 * n - 1) * (s + 2 * n) / (end * end)
    return where(usual, total, where(undefined, math.nan, math.inf))
