"""Special functions: sinc, logit, erfinv, and the gamma and Bessel families."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from genesis.ir import numbers
from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.bounds import clamp
from genesis.ir.ops.entry import pointwise
from genesis.ir.ops.pointwise import (
    bitwise_and,
    bitwise_or,
    cast,
    common,
    cos,
    eq,
    exp,
    floor,
    gt,
    log,
    lt,
    reciprocal,
    round,
    sin,
    where_,
)
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.samples import FLOAT, Array, Literal, Samples, case, each, np, positives, precise, reals
from genesis.ir.types import TensorType, float64

if TYPE_CHECKING:
    from typing import Unpack

    from numpy import ndarray

    from genesis.ir.ops.entry import Row


def _floats(*types: TensorType) -> TensorType:
    return common(types, FLOAT)


def _op(name: str, doc: str, samples: Samples, reference: Callable, vjp: Callable,
        **more: Unpack[Row]) -> Op:
    return pointwise(name, _floats, doc=doc, samples=samples, reference=reference, vjp=vjp, **more)


# sinc

def sin_pi(x: Node) -> Node:
    """sin(πx), exact to rounding for every x: the nearest integer is taken out first."""
    nearest = round(x)
    odd = nearest - 2 * floor(nearest * 0.5)
    return sin((x - nearest) * math.pi) * (1 - 2 * odd)


def _sinc(x: Node) -> Node:
    wider = upcast(x)
    at_zero = eq(wider, literal(0))
    safe = where_(at_zero, 1.0, wider)
    return downcast(where_(at_zero, 1.0, sin_pi(safe) / (safe * math.pi)), x)


def _sinc_vjp(g: Node, x: Node, y: Node) -> Node:
    at_zero = eq(x, literal(0))
    safe = where_(at_zero, 1.0, x)
    angle = safe * math.pi
    return where_(at_zero, 0.0, g * ((angle * cos(angle) - sin(angle)) / angle / safe))


sinc: Op = _op("sinc", "sin(πx) / (πx), 1 at 0.", each(reals(-3, 3), scale=1), np.sinc, _sinc_vjp, decompose=_sinc,
               ulp=4,
               weight=24, number=None, rounds=False, autocast=None, in_place=True)


# logit and erfinv

def _logit(x: Node, eps: Node | None = None) -> Node:
    wider = upcast(x)
    if eps is not None:
        wider = clamp(wider, eps, 1 - eps)
    return downcast(log(wider / (1 - wider)), x)


def _logit_vjp(g: Node, x: Node, *rest: Node) -> tuple[Node, ...]:
    """Outside [0, 1] there is no gradient; outside the bounds of eps it is 0."""
    low, high = (rest[0], 1 - rest[0]) if len(rest) > 1 else (literal(0), literal(1))
    outside = bitwise_or(lt(x, low), gt(x, high))
    return (where_(outside, 0.0 if len(rest) > 1 else math.nan, g / (x * (1 - x))),)


def _logit_value(x: ndarray, eps: float | None = None) -> ndarray:
    if eps is not None:
        x = np.clip(x, eps, 1 - eps)
    return np.log(x / (1 - x))


logit: Op = _op("logit", "log(x / (1 - x)), of x kept within [eps, 1 - eps] where eps is given.",
                each(reals(0.125, 0.875), scale=1).plus(
                    case(Array((0.0, 0.25, 1.0, -1.0, 2.0)), Literal(0.125)),
                    case(reals(0.25, 0.75).of(3, 4), Literal(0.125))),
                _logit_value, _logit_vjp, decompose=_logit, ulp=4,
                weight=8, number=None, rounds=False, autocast=None, in_place=True)


def _erfinv_value(x: ndarray) -> ndarray:
    inside = precise("erfinv")(np.where(np.abs(x) < 1, x, 0.0))
    return np.where(np.abs(x) < 1, inside, np.where(np.abs(x) == 1, x * math.inf, math.nan))


erfinv: Op = _op("erfinv", "The inverse of erf.", each(reals(-0.9, 0.9)), _erfinv_value,
                 lambda g, x, y: g * (math.sqrt(math.pi) / 2) * exp(y * y), ulp=4,
                 weight=10, number=None, rounds=False, autocast=None, in_place=True)

def _entr(x: Node) -> Node:
    return where_(eq(x, literal(0)), 0.0, where_(lt(x, literal(0)), -math.inf, x * log(x) * -1.0))


def _entr_value(x: ndarray) -> ndarray:
    inside = -x * np.log(np.where(x > 0, x, 1.0))
    return np.where(x > 0, inside, np.where(x == 0, 0.0, np.where(x < 0, -math.inf, x)))


entr: Op = _op("entr", "-x · log(x): 0 at 0, -∞ below.",
               each(positives(4), special=False).plus(case(Array((0.0, -0.0, 1.0, -2.0, math.inf, math.nan)))),
               _entr_value, lambda g, x, y: g * (-1 - log(x)), decompose=_entr, ulp=2,
               weight=8, number=numbers.entr, rounds=False, autocast=None, in_place=False)

# Gamma

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""B2, B4, ... B16."""

_SHIFT = 10
"""Steps up from x ≥ 1/2 to where the asymptotic series has 16 digits."""


def _polygamma(x: Node, n: int) -> Node:
    """The n-th derivative of digamma, in float64: recurrence, the asymptotic series, and reflection left of 1/2.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 6.3.18 and 6.4.6 to 6.4.11.
    """
    exact = cast(x, dtype=float64)
    left = lt(exact, literal(0.5))
    y = where_(left, 1 - exact, exact)
    right = _polygamma_right(y, n)
    mirrored = (right if n % 2 == 0 else -right) - _cotangent_slope(exact, n) * math.pi ** (n + 1)
    pole = bitwise_and(left, eq(floor(exact), exact))
    at_pole = where_(eq(exact, literal(0)), -reciprocal(exact), math.nan) if n == 0 else math.inf * (-1) ** (n + 1)
    found = where_(pole, at_pole, where_(left, mirrored, right))
    return cast(found, dtype=x.type.dtype)


def _polygamma_right(y: Node, n: int) -> Node:
    z = y + float(_SHIFT)
    inverse = reciprocal(z)
    square = inverse * inverse
    tail: Node | float = 0.0
    for j in range(len(_BERNOULLI), 0, -1):  # Horner, from the smallest term
        coefficient = _BERNOULLI[j - 1] * (math.factorial(2 * j + n - 1) / math.factorial(2 * j))
        tail = (tail + coefficient) * square
    steps: Node | float = 0.0
    for k in reversed(range(_SHIFT)):
        steps = steps + _power(reciprocal(y + float(k)), n + 1)
    if n == 0:
        return log(z) - inverse * 0.5 - tail - steps
    total = (steps * float(math.factorial(n)) + _power(inverse, n) * float(math.factorial(n - 1))
             + _power(inverse, n + 1) * (math.factorial(n) / 2) + tail * _power(inverse, n))
    return total if n % 2 else -total


def _power(x: Node, n: int) -> Node:
    """x^n by repeated multiplication."""
    result = x
    for _ in range(n - 1):
        result = result * x
    return result


def _cotangent_slope(x: Node, n: int) -> Node:
    """The n-th derivative of cot at πx, a polynomial in c = cot(πx): c' = -(1 + c²)."""
    coefficients = [0.0, 1.0]
    for _ in range(n):
        slope = [k * a for k, a in enumerate(coefficients)][1:]
        coefficients = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    angle = (x - round(x)) * math.pi
    c = cos(angle) / sin(angle)
    value = c * coefficients[-1]
    for a in coefficients[-2:0:-1]:
        value = (value + a) * c
    value = value + coefficients[0]
    return value


polygamma: Op = pointwise("polygamma", lambda x, n: common((x,), FLOAT), attrs=("n",), decompose=_polygamma,
                          vjp=lambda g, x, y, n: g * polygamma(x, n=n + 1), ulp=32,
                          doc="The n-th derivative of digamma, n ≥ 1.",
                          samples=each(positives(4), special=False).plus(case(reals(-2.75, -2.25).of(9))).under(
                              {"n": 1}, {"n": 2}, {"n": 3}),
                          reference=lambda x, n: precise("polygamma", n)(x),
                          weight=114, number=None, rounds=False, autocast=None, in_place=True)

digamma: Op = _op("digamma", "The derivative of log|Γ(x)|.", each(positives(9), special=False, scale=1).plus(
                      case(reals(-2.75, -2.25).of(9)), case(Array((0.0, -0.0, math.inf, math.nan, -math.inf)))),
                  lambda x: _digamma_value(x), lambda g, x, y: g * polygamma(x, n=1),
                  decompose=lambda x: _polygamma(x, 0), ulp=8,
                  weight=108, number=None, rounds=False, autocast=None, in_place=True)


def _digamma_value(x: ndarray) -> ndarray:
    inside = np.isfinite(x) & (x != 0)
    values = precise("digamma")(np.where(inside, x, 1.0))
    return np.where(inside, values, np.where(x == 0, -np.copysign(math.inf, x), np.where(x == math.inf, x, math.nan)))


lgamma: Op = _op("lgamma", "log|Γ(x)|.", each(positives(9), scale=1, special=False).plus(
                     case(reals(-2.75, -2.25).of(9)), case(Array((0.0, -0.0, math.inf, math.nan, -math.inf, 1.0)))),
                 lambda x: _lgamma_value(x), lambda g, x, y: g * digamma(x), ulp=4,
                 weight=20, number=None, rounds=False, autocast=None, in_place=True)


def _lgamma_value(x: ndarray) -> ndarray:
    pole = np.isinf(x) | (x == 0)
    return np.where(pole, math.inf, np.vectorize(math.lgamma, otypes=[float])(np.where(pole, 1.0, x)))


# Bessel

def _i1_vjp(g: Node, x: Node, y: Node) -> Node:
    at_zero = eq(x, literal(0))
    return g * where_(at_zero, 0.5, i0(x) - y / where_(at_zero, 1.0, x))


def _bessel(order: int) -> Callable[[ndarray], ndarray]:
    def value(x: ndarray) -> ndarray:
        inside = np.isfinite(x)
        found = precise("besseli", order)(np.where(inside, x, 1.0))
        return np.where(inside, found, np.abs(x) if order == 0 else x)
    return value


i0: Op = _op("i0", "The modified Bessel function of the first kind of order 0.",
             each(reals(-9, 9), special=False), _bessel(0), lambda g, x, y: g * i1(x), ulp=8,
             weight=12, number=None, rounds=False, autocast=None, in_place=True)
i1: Op = _op("i1", "The modified Bessel function of the first kind of order 1.",
             each(reals(-9, 9), special=False), _bessel(1), _i1_vjp, ulp=8,
             weight=12, number=None, rounds=False, autocast=None, in_place=False)
