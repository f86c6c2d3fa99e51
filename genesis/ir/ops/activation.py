"""Activations with parameters: each a row with its formula, its slope and its value in numpy.

A row makes two ops, the activation and its gradient g · slope(x), so that a backend may have a kernel for each. The
slope at a kink is torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Autocast, Node, Op, literal
from genesis.ir.ops.entry import pointwise
from genesis.ir.ops.leaves import full_like
from genesis.ir.ops.pointwise import (
    abs,
    bitwise_or,
    common,
    exp,
    expm1,
    ge,
    gt,
    le,
    log1p,
    lt,
    maximum,
    minimum,
    sigmoid,
    tanh,
    where_,
)
from genesis.ir.ops.samples import FLOAT, NUMERIC, Kinds, Values, each, np, positives, reals
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy import ndarray

    from genesis.ir.node import Attr
    from genesis.ir.ops.entry import Attributes

SELU: Final = {"alpha": 1.6732632423543772, "scale": 1.0507009873554805, "input_scale": 1.0}
"""Klambauer et al. 2017: with these a fixed point of mean 0 and variance 1 attracts activations."""


def _row(name: str, formula: Callable[..., Node], gradient: Callable[..., Node], value: Callable[..., ndarray],
         slope_value: Callable[..., ndarray], doc: str, attributes: tuple[Mapping[str, Attr], ...] = ({},), *,
         weight: int, autocast: Autocast | None = None, kinds: Kinds = FLOAT, ulp: float = 4, scale: float = 1.0,
         values: Values | None = None) -> tuple[Op, Op]:
    """The op and its gradient, of the gradient that arrives and x.

    `attributes` are the sets that the samples try; the first holds the defaults.
    """
    attrs = tuple(attributes[0])
    how: Attributes = {"attrs": attrs, "defaults": attributes[0]}
    x = values or reals(-6, 6)

    def infer(*types: TensorType, **how: object) -> TensorType:
        return common(types, kinds)

    back = Op(f"{name}_backward", "composite", lambda g, x, **how: common((g, x), kinds), **how, ulp=2 * ulp,
              decompose=gradient, doc=f"Gradient of {name} by x.",
              samples=each(reals(), x, special=False, numbers=False, scale=2 * scale).under(*attributes),
              reference=lambda g, x, **how: g * slope_value(x, **how))
    made = pointwise(name, infer, **how, decompose=formula, ulp=ulp, doc=doc,
                     weight=weight, number=None, rounds=False, autocast=autocast, in_place=False,
                     vjp=lambda g, x, y, **how: back(g, x, **how),
                     samples=each(x, kinds=kinds, special=False, scale=scale).under(*attributes), reference=value)
    return made, back


def _times(slope: Callable[..., Node]) -> Callable[..., Node]:
    """The gradient that arrives, multiplied. Where a slope is 0 on purpose, rows choose: infinity · 0 is NaN."""
    return lambda g, x, **how: g * slope(x, **how)


def _hold(condition: Node, then: Node | float, other: Node | float, like: Node) -> Node:
    """where, when both branches may be numbers."""
    return where_(condition, then if isinstance(then, Node) else full_like(like, then), other)


leaky_relu, leaky_relu_backward = _row(
    "leaky_relu", lambda x, slope: where_(gt(x, literal(0)), x, x * slope),
    _times(lambda x, slope: _hold(gt(x, literal(0)), 1.0, slope, x)),
    lambda x, slope: np.where(x > 0, x, x * slope), lambda x, slope: np.where(x > 0, 1.0, slope),
    "x where x > 0, else slope · x (Maas et al. 2013).", ({"slope": 0.01}, {"slope": 0.25}),
    weight=3)


def _elu(x: Node, alpha: float, scale: float, input_scale: float) -> Node:
    low = expm1(minimum(x, literal(0)) * input_scale) * (alpha * scale)
    return where_(gt(x, literal(0)), x * scale, low)


elu, elu_backward = _row(
    "elu", _elu,
    _times(lambda x, alpha, scale, input_scale: _hold(
        gt(x, literal(0)), scale, exp(minimum(x, literal(0)) * input_scale) * (alpha * scale * input_scale), x)),
    lambda x, alpha, scale, input_scale: np.where(
        x > 0, scale * x, alpha * scale * np.expm1(np.minimum(x, 0) * input_scale)),
    lambda x, alpha, scale, input_scale: np.where(
        x > 0, scale, alpha * scale * input_scale * np.exp(np.minimum(x, 0) * input_scale)),
    "scale · x where x > 0, else scale · alpha · (exp(input_scale · x) - 1) (Clevert et al. 2016; selu and celu are "
    "this with other numbers).", ({"alpha": 1.0, "scale": 1.0, "input_scale": 1.0}, SELU,
                                  {"alpha": 1.5, "scale": 1.0, "input_scale": 1 / 1.5}),
    weight=11)

softplus, softplus_backward = _row(
    "softplus", lambda x, beta, threshold: where_(
        gt(x * beta, literal(threshold)), x,
        (maximum(x * beta, literal(0.0)) + log1p(exp(-abs(x * beta)))) / beta),
    _times(lambda x, beta, threshold: _hold(gt(x * beta, literal(threshold)), 1.0, sigmoid(x * beta), x)),
    lambda x, beta, threshold: np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta),
    lambda x, beta, threshold: np.where(x * beta > threshold, 1.0, 1 / (1 + np.exp(-x * beta))),
    "log(1 + exp(beta · x)) / beta, and x itself where beta · x is over the threshold.",
    ({"beta": 1.0, "threshold": 20.0}, {"beta": 2.0, "threshold": 5.0}),
    weight=19, autocast="float32")

logsigmoid, logsigmoid_backward = _row(
    "logsigmoid", lambda x: minimum(x, literal(0.0)) - log1p(exp(-abs(x))),
    _times(lambda x: sigmoid(-x)),
    lambda x: -np.logaddexp(0, -x), lambda x: 1 / (1 + np.exp(x)), "log(sigmoid(x)), exact where sigmoid(x) rounds.",
    weight=14)


def _mish_slope(x: Node) -> Node:
    t = tanh(softplus(x))
    return t + x * sigmoid(x) * (1 - t * t)


mish, mish_backward = _row(
    "mish", lambda x: x * tanh(softplus(x)), _times(_mish_slope),
    lambda x: x * np.tanh(np.logaddexp(0, x)),
    lambda x: np.tanh(np.logaddexp(0, x)) + x / (1 + np.exp(-x)) / np.cosh(np.logaddexp(0, x)) ** 2,
    "x · tanh(softplus(x)) (Misra 2019).", ulp=8,
    weight=28)

hardsigmoid, hardsigmoid_backward = _row(
    "hardsigmoid", lambda x: minimum(maximum(x + 3.0, literal(0.0)), literal(6.0)) / 6.0,
    lambda g, x: where_(gt(literal(3.0) - abs(x), literal(0.0)), g / 6.0, 0.0),
    lambda x: np.clip(x + 3, 0, 6) / 6, lambda x: np.where(np.abs(x) < 3, 1 / 6, 0.0),
    "clamp(x + 3, 0, 6) / 6 (Howard et al. 2019).",
    weight=5)

hardswish, hardswish_backward = _row(
    "hardswish", lambda x: x * minimum(maximum(x + 3.0, literal(0.0)), literal(6.0)) / 6.0,
    lambda g, x: where_(le(x, literal(-3.0)), 0.0, where_(lt(x, literal(3.0)), g * (x / 3.0 + 0.5), g)),
    lambda x: x * np.clip(x + 3, 0, 6) / 6,
    lambda x: np.where(x <= -3, 0.0, np.where(x < 3, x / 3 + 0.5, 1.0)),
    "x · clamp(x + 3, 0, 6) / 6 (Howard et al. 2019).", ulp=8, weight=6)

hardtanh, hardtanh_backward = _row(
    "hardtanh", lambda x, least, most: minimum(maximum(x, literal(least)), literal(most)),
    lambda g, x, least, most: where_(bitwise_or(le(x, literal(least)), ge(x, literal(most))), 0.0, g),
    lambda x, least, most: np.clip(x, least, most),
    lambda x, least, most: np.where((x <= least) | (x >= most), 0.0, 1.0),
    "min(max(x, least), most).", ({"least": -1.0, "most": 1.0}, {"least": 0.0, "most": 6.0}), weight=2)

hardshrink, hardshrink_backward = _row(
    "hardshrink", lambda x, bound: where_(le(abs(x), literal(bound)), 0.0, x),
    lambda g, x, bound: where_(le(abs(x), literal(bound)), 0.0, g),
    lambda x, bound: np.where(np.abs(x) <= bound, 0.0, x),
    lambda x, bound: np.where(np.abs(x) <= bound, 0.0, 1.0),
    "x where |x| is over the bound, else 0.", ({"bound": 0.5}, {"bound": 2.0}),
    weight=3)

softshrink, softshrink_backward = _row(
    "softshrink", lambda x, bound: where_(
        gt(x, literal(bound)), x - bound, where_(lt(x, literal(-bound)), x + bound, x * 0.0)),
    lambda g, x, bound: where_(le(abs(x), literal(bound)), 0.0, g),
    lambda x, bound: np.where(x > bound, x - bound, np.where(x < -bound, x + bound, 0.0)),
    lambda x, bound: np.where(np.abs(x) <= bound, 0.0, 1.0),
    "x moved towards 0 by the bound, at most to 0.", ({"bound": 0.5}, {"bound": 2.0}),
    weight=7)

threshold, threshold_backward = _row(
    "threshold", lambda x, bound, value: where_(le(x, literal(bound)), literal(value), x),
    lambda g, x, bound, value: where_(le(x, literal(bound)), 0.0, g),
    lambda x, bound, value: np.where(x <= bound, value, x),
    lambda x, bound, value: np.where(x <= bound, 0.0, 1.0),
    "x where it is over the bound, else the value.", ({"bound": 0, "value": 0}, {"bound": 1, "value": -7}),
    kinds=NUMERIC, weight=2)

prelu = pointwise("prelu", lambda x, weight: common((x, weight), FLOAT), ulp=2,
                  decompose=lambda x, weight: where_(gt(x, literal(0)), x, x * weight),
                  vjp=lambda g, x, weight, y: (where_(gt(x, literal(0)), g, g * weight),
                                               where_(gt(x, literal(0)), 0.0, g * x)),
                  doc="x where x > 0, else weight · x (He et al. 2015).",
                  samples=each(reals(), positives(), special=False, numbers=False),
                  reference=lambda x, weight: np.where(x > 0, x, x * weight),
                  weight=3, number=None, rounds=False, autocast=None, in_place=False)
