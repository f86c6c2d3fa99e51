"""The incomplete gamma function: a power series, and a quadrature where that has too many terms."""

from __future__ import annotations

import math

import numpy as np

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.ops.comparison import where
from genesis.ops.exponential import log1p
from genesis.ops.out import into
from genesis.ops.special import lgamma
from genesis.special.upcast import Operand, in_float64

TERMS = 128
"""Terms of the series: where x is at most its shape and that at most LARGE, later ones are below 1e-17 of the sum."""

LARGE = 100.0
"""The shape from which on there is no series; the terms that it needs grow as the root of the shape."""

NODES, WEIGHTS = (0.5 * (1 + x) if at == 0 else 0.5 * x
                  for at, x in enumerate(np.polynomial.legendre.leggauss(64)))
"""Gauss and Legendre's quadrature over [0, 1]."""

DROPS = 45.0
"""The quadrature goes on until the density has fallen by e to this."""


def gammainc(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """The regularized lower incomplete gamma function: the integral of t^(input - 1) e^-t from 0 to other, over
    Γ(input); the cdf at `other` of a gamma variable of shape `input`. Differentiable by both.

    NaN where one of them is negative or NaN, both are 0 or both are inf. Integers become floating-point. An element
    takes 64 numbers of float64 while it is worked out.

    >>> import genesis
    >>> genesis.special.gammainc(genesis.tensor([1.0, 4.0]), genesis.tensor([1.0, 3.0]))
    tensor([0.6321, 0.3528])
    """
    return into(out, in_float64(_gammainc, input, other))


def gammaincc(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """The regularized upper incomplete gamma function, 1 - `gammainc(input, other)`: the chance that a gamma variable
    of shape `input` is above `other`. Differentiable by both.

    Far above the shape it keeps its digits, where 1 - gammainc is 0: it is the tail's own integral. Of shapes below
    1e-3 with `other` at most 1 its last digits are those of a difference from 1.

    >>> import genesis
    >>> genesis.special.gammaincc(genesis.tensor([1.0, 4.0]), genesis.tensor([1.0, 60.0]))
    tensor([3.6788e-01, 3.3153e-22])
    """
    return into(out, in_float64(_gammaincc, input, other))


def _gammaincc(a: Tensor, x: Tensor) -> Tensor:
    return _gammainc(a, x, upper=True)


def _gammainc(a: Tensor, x: Tensor, upper: bool = False) -> Tensor:
    undefined = ~((a >= 0) & (x >= 0)) | ((a == 0) & (x == 0)) | ((a == math.inf) & (x == math.inf))
    all_of_it = (a < 1e-290) & (x > 0) | (x == math.inf)
    nothing = (a == math.inf) | ((x == 0) & (a >= LARGE))
    usual = ~(undefined | all_of_it | nothing)
    short = (a < LARGE) & (x <= a.clamp(min=1.0))
    far = usual & ~short
    below = _series(where(usual & short, a, 1.0), where(usual & short, x, 0.5))
    found = where(far, _quadrature(where(far, a, LARGE), where(far, x, LARGE), upper), 1 - below if upper else below)
    edges = where(undefined, math.nan, where(all_of_it, 0.0 if upper else 1.0, 1.0 if upper else 0.0))
    return where(usual, found, edges + 0 * found.detach())


def _series(a: Tensor, x: Tensor) -> Tensor:
    """x^a e^-x Σ x^k / Γ(a + k + 1)."""
    total = a * 0 + 1
    for k in range(TERMS, 0, -1):  # Horner's rule
        total = 1 + total * x / (a + k)
    return x.pow(a) * (-x - lgamma(a + 1)).exp() * total


def _quadrature(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    """The density's integral from x away from its mode, as far as it counts: one less the result, or the result."""
    with no_grad():
        slope = (1 - (a - 1) / x).abs()  # of the density's logarithm at x; further on it is steeper
        reach = (9 * a.sqrt() + DROPS).minimum(DROPS / slope)
        reach = where(x >= a, reach, -reach.minimum(x))
    t = x.unsqueeze(-1) + reach.unsqueeze(-1) * x.new_tensor(NODES)
    shape = a.unsqueeze(-1)
    apart = (t - shape) / shape
    logs = (shape - 1) * log1p(apart) - shape * apart
    inverse = 1 / a
    far = inverse * (1 / 12 - inverse**2 * (1 / 360 - inverse**2 / 1260))
    small = where(a < LARGE, a, 1.0)
    near = lgamma(small) - (small - 0.5) * small.log() + small - 0.5 * math.log(2 * math.pi)
    stirling = where(a < LARGE, near, far)  # log Γ(a) less Stirling's formula
    density = (logs - stirling.unsqueeze(-1)).exp() * x.new_tensor(WEIGHTS)
    part = density.sum(-1) * reach.abs() / (2 * math.pi * a).sqrt()
    return where((x >= a) != upper, 1 - part, part)
