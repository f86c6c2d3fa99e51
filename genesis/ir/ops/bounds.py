"""Pointwise ops that keep one of their operands: bounds, and the larger or smaller that is not NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.ir import numbers
from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.entry import pointwise
from genesis.ir.ops.pointwise import (
    bitwise_and,
    bitwise_or,
    cast,
    common,
    eq,
    ge,
    gt,
    isnan,
    le,
    lt,
    maximum,
    minimum,
    where,
    where_,
)
from genesis.ir.ops.samples import ANY, NUMERIC, Array, Literal, case, cases, each, np, reals
from genesis.ir.types import TensorType, bool_

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy import ndarray

    from genesis.ir.node import Number

_NAN, _INF = float("nan"), float("inf")


def _pick(name: str, first_wins: Callable[[Node, Node], Node], doc: str, reference: Callable[..., ndarray],
          number: Callable[..., Number]) -> Op:
    """fmax and fmin: `first_wins(a, b)`, or b is NaN. torch gives the winner all the gradient, ties to the first."""
    def first(a: Node, b: Node) -> Node:
        found = first_wins(a, b)
        return bitwise_or(found, isnan(b)) if b.type.dtype.kind == "float" else found

    def vjp(g: Node, a: Node, b: Node, y: Node) -> tuple[Node, Node]:
        wins = first(a, b)
        return where_(wins, g, 0.0), where_(wins, 0.0, g)

    return pointwise(name, lambda a, b: common((a, b), ANY), doc=doc, vjp=vjp,
                     weight=4, number=number, rounds=False, autocast=None, in_place=False,
                     decompose=lambda a, b: where(first(a, b), a, b),
                     samples=each(reals(), reals(), kinds=ANY, numbers=False), reference=reference)


fmax: Op = _pick("fmax", ge, "The larger; where one is NaN, the other.", np.fmax,
                 number=lambda a, b: a if a >= b or b != b else b)
fmin: Op = _pick("fmin", le, "The smaller; where one is NaN, the other.", np.fmin,
                 number=lambda a, b: a if a <= b or b != b else b)


def _clamp_vjp(g: Node, x: Node, low: Node, high: Node, y: Node) -> tuple[Node, Node | None, Node | None]:
    """On a bound the gradient is x's, as in torch. Where the bounds cross, the upper one wins."""
    to_low = None if low.type.weak else where_(bitwise_and(lt(low, high), lt(x, low)), g, 0.0)
    to_high = None if high.type.weak else where_(bitwise_or(gt(x, high), lt(high, low)), g, 0.0)
    return where_(bitwise_and(ge(x, low), le(x, high)), g, 0.0), to_low, to_high


_BETWEEN = (case(reals(-3, 3).of(3, 4), Literal(1.0), Literal(2.0)),
            case(reals(-3, 3).of(), Literal(1.0), Literal(2.0)),
            case(reals(-3, 3).of(3, 4), reals(-2, 0).of(3, 4), reals(0, 2).of(3, 4)),
            case(reals(-3, 3).of(0, 2), reals(-2, 0).of(0, 2), reals(0, 2).of(0, 2)))
_SPECIAL = Array((_NAN, _INF, -_INF, 0.0, -0.0, 1.0))

clamp: Op = pointwise("clamp", lambda x, low, high: common((x, low, high), NUMERIC), vjp=_clamp_vjp,
                      decompose=lambda x, low, high: minimum(maximum(x, low), high),
                      doc="min(max(x, low), high); NaN stays NaN.",
                      samples=cases(*_BETWEEN, case(_SPECIAL, Literal(-1.0), Literal(1.0)), kinds=NUMERIC),
                      reference=lambda x, low, high: np.minimum(np.maximum(x, low), high),
                      weight=2, number=numbers.clamp, rounds=False, autocast=None, in_place=True)

clamp_min: Op = pointwise("clamp_min", lambda x, low: common((x, low), ANY),
                          vjp=lambda g, x, low, y: (where_(ge(x, low), g, 0.0), where_(lt(x, low), g, 0.0)),
                          decompose=maximum, doc="max(x, low); on the bound the gradient is x's.",
                          samples=each(reals(), reals(), kinds=ANY), reference=np.maximum,
                          weight=1, number=numbers.either(max), rounds=False, autocast=None, in_place=True)

clamp_max: Op = pointwise("clamp_max", lambda x, high: common((x, high), ANY),
                          vjp=lambda g, x, high, y: (where_(le(x, high), g, 0.0), where_(gt(x, high), g, 0.0)),
                          decompose=minimum, doc="min(x, high); on the bound the gradient is x's.",
                          samples=each(reals(), reals(), kinds=ANY), reference=np.minimum,
                          weight=1, number=numbers.either(min), rounds=False, autocast=None, in_place=True)


def _heaviside(x: Node, at_zero: Node) -> Node:
    if x.type.dtype is bool_:
        return bitwise_or(x, at_zero)
    return where_(eq(x, literal(0)), at_zero, cast(gt(x, literal(0)), dtype=x.type.dtype))


def _step(x: ndarray, at_zero: ndarray) -> ndarray:
    return np.where(x == 0, at_zero, x > 0)


def _heaviside_type(x: TensorType, at_zero: TensorType) -> TensorType:
    return common((x, at_zero), ANY)


heaviside: Op = pointwise("heaviside", _heaviside_type, decompose=_heaviside, differentiable=False,
                          doc="0 below 0 and for NaN, 1 above 0, the second operand at 0.",
                          samples=each(reals(), reals(), kinds=ANY, numbers=False), reference=_step,
                          weight=4, number=lambda x, at_zero: at_zero if x == 0 else type(x)(x > 0), rounds=False,
                          autocast=None, in_place=True)
