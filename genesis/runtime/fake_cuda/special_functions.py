"""Special functions in float64 with numpy: what libdevice computes on a GPU, for kernels that run on the host."""

from __future__ import annotations

import math

import numpy as np


def lgamma(x: np.ndarray) -> np.ndarray:
    """log|Γ(x)|; +∞ at 0, at negative integers and at ±∞.

    >>> round(float(lgamma(np.array(5.0))), 12) == round(math.log(24), 12)
    True
    """
    pole = np.isinf(x) | ((x <= 0) & (np.floor(x) == x))
    return np.where(pole, np.inf, np.vectorize(math.lgamma, otypes=[np.float64])(np.where(pole, 1.0, x)))


def erfinv(x: np.ndarray) -> np.ndarray:
    """The inverse of erf: Winitzki's approximation, then three of Halley's steps on erf or, near ±1, erfc.

    >>> round(float(erfinv(np.array(math.erf(0.75)))), 12)
    0.75
    """
    x = np.asarray(x, np.float64)
    inside = np.abs(x) < 1
    size = np.where(inside, np.abs(x), 0.0)
    tail = np.log1p(-size) + np.log1p(size)
    centre = 2 / (math.pi * 0.147) + tail / 2
    y = np.sqrt(np.sqrt(centre * centre - tail / 0.147) - centre)
    for _ in range(3):
        error = np.where(size < 0.5, _erf(y) - size, (1 - size) - _erfc(y))
        step = error / (2 / math.sqrt(math.pi) * np.exp(-y * y))
        y = y - step / (1 + y * step)
    return np.where(inside, np.copysign(y, x), np.where(np.abs(x) == 1, np.copysign(np.inf, x), np.nan))


def bessel(order: int, x: np.ndarray) -> np.ndarray:
    """The modified Bessel function of the first kind of order 0 or 1, by its series, whose terms have one sign.

    >>> round(float(bessel(0, np.array(1.0))), 12), round(float(bessel(1, np.array(-1.0))), 12)
    (1.266065877752, -0.565159103992)
    """
    half = np.asarray(x, np.float64) / 2
    square = np.where(np.isfinite(half), half * half, 0.0)
    term = np.ones_like(half) if order == 0 else half
    total = term
    for k in range(1, 2000):
        term = term * (square / (k * (k + order)))
        total = total + term
        if not (np.abs(term) > np.abs(total) * 1e-18).any():
            break
    return np.where(np.isfinite(half), total, np.abs(half) if order == 0 else half)


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
