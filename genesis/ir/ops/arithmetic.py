"""Pointwise ops of several steps that round once, or that are exact where the steps would overflow."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from genesis.ir import numbers
from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.entry import pointwise
from genesis.ir.ops.leaves import zeros_like
from genesis.ir.ops.pointwise import (
    abs,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    cast,
    common,
    eq,
    exp,
    exp2,
    floor_divide,
    fmod,
    isinf,
    isnan,
    le,
    log,
    log1p,
    lt,
    maximum,
    ne,
    round,
    trunc,
    where_,
)
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.samples import (
    ANY,
    FLOAT,
    NUMERIC,
    Array,
    Case,
    Literal,
    Values,
    case,
    cases,
    each,
    np,
    positives,
    reals,
)
from genesis.ir.types import TensorType, bool_, tensor_type

if TYPE_CHECKING:
    from numpy import ndarray

_INTS = ("int",)


def _floats(*types: TensorType) -> TensorType:
    return common(types, FLOAT)


# Sums of products

def _numeric(*types: TensorType) -> TensorType:
    return common(types, NUMERIC)


add_scaled: Op = pointwise("add_scaled", _numeric, decompose=lambda a, b, alpha: a + b * alpha, ulp=2,
                           vjp=lambda g, a, b, alpha, y: (g, g * alpha, None), doc="a + alpha · b for a number alpha.",
                           samples=cases(case(reals().of(3, 4), reals().of(3, 4), Literal(3.0)),
                                         case(reals().of(), reals().of(), Literal(-2.0)),
                                         case(reals().of(0), reals().of(0), Literal(3.0)), kinds=NUMERIC, scale=4),
                           reference=lambda a, b, alpha: a + b * alpha,
                           weight=2, number=lambda a, b, alpha: a + alpha * b, rounds=False, autocast=None,
                           in_place=False)


def _addcdiv_vjp(g: Node, x: Node, a: Node, b: Node, value: Node, y: Node) -> tuple[Node | None, ...]:
    return g, g * value / b, -(g * value) * (a / (b * b)), None


def _three(*more: Values) -> tuple[Case, ...]:
    """Cases of ops on three tensors and a number."""
    return tuple(case(*(v.of(*shape) for v in (reals(), *more)), Literal(value))
                 for shape, value in (((3, 4), 1.0), ((3, 4), -2.0), ((), 3.0), ((0, 2), 1.0)))


addcmul: Op = pointwise("addcmul", _numeric, decompose=lambda x, a, b, value: x + a * b * value, ulp=3,
                        vjp=lambda g, x, a, b, value, y: (g, g * b * value, g * a * value, None),
                        doc="x + value · a · b.", samples=cases(*_three(reals(), reals()), kinds=NUMERIC, scale=8),
                        reference=lambda x, a, b, value: x + a * b * value,
                        weight=3, number=lambda x, a, b, value: x + value * a * b, rounds=False, autocast=None,
                        in_place=True)
addcdiv: Op = pointwise("addcdiv", _floats, decompose=lambda x, a, b, value: x + a / b * value, ulp=3,
                        vjp=_addcdiv_vjp, doc="x + value · a / b.",
                        samples=cases(*_three(reals(), positives()), scale=16),
                        reference=lambda x, a, b, value: x + a / b * value,
                        weight=4, number=lambda x, a, b, value: x + value * a / b, rounds=False, autocast=None,
                        in_place=True)


def _lerp(a: Node, b: Node, weight: Node) -> Node:
    """Computed from the nearer end, so that weights 0 and 1 give the ends themselves."""
    near_a, near_b = a + weight * (b - a), b - (b - a) * (1 - weight)
    if weight.type.weak:  # a condition has the shape of what it chooses from
        weight = zeros_like(a) + weight
    return where_(lt(abs(weight), literal(0.5)), near_a, near_b)


lerp: Op = pointwise("lerp", _floats, decompose=_lerp, ulp=4,
                     vjp=lambda g, a, b, weight, y: (g * (1 - weight), g * weight, g * (b - a)),
                     doc="a + weight · (b - a).",
                     samples=cases(case(reals().of(3, 4), reals().of(3, 4), reals(0, 1).of(3, 4)),
                                   case(reals().of(3, 4), reals().of(3, 4), Literal(0.25)),
                                   case(reals().of(3, 4), reals().of(3, 4), Literal(1.5)),
                                   case(reals().of(), reals().of(), reals(0, 1).of()), scale=4),
                     reference=lambda a, b, weight: a + weight * (b - a),
                     weight=9, number=lambda a, b, weight: a + weight * (b - a), rounds=False, autocast=None,
                     in_place=True)


# Logarithms and roots of sums

hypot: Op = pointwise("hypot", _floats, ulp=2, commutative=True,
                      vjp=lambda g, a, b, y: (g * (a / y), g * (b / y)),
                      doc="√(a² + b²) without overflow of the squares.",
                      samples=each(reals(), reals()), reference=np.hypot,
                      weight=6, number=math.hypot, rounds=False, autocast=None, in_place=True)


def _logaddexp(a: Node, b: Node) -> Node:
    a, b = upcast(a), upcast(b)
    return where_(bitwise_and(isinf(a), eq(a, b)), a, maximum(a, b) + log1p(exp(-abs(a - b))))


logaddexp: Op = pointwise("logaddexp", _floats, ulp=4, commutative=True,
                          decompose=lambda a, b: downcast(_logaddexp(a, b), a),
                          vjp=lambda g, a, b, y: (g / (1 + exp(b - a)), g / (1 + exp(a - b))),
                          doc="log(exp(a) + exp(b)) without overflow.",
                          samples=each(reals(), reals(), numbers=False, scale=1), reference=np.logaddexp,
                          weight=20, number=numbers.logaddexp, rounds=False, autocast=None, in_place=False)


def _logaddexp2(a: Node, b: Node) -> Node:
    a, b = upcast(a), upcast(b)
    return where_(bitwise_and(isinf(a), eq(a, b)), a,
                  maximum(a, b) + log1p(exp2(-abs(a - b))) * (1 / math.log(2)))


logaddexp2: Op = pointwise("logaddexp2", _floats, ulp=4, commutative=True,
                           decompose=lambda a, b: downcast(_logaddexp2(a, b), a),
                           vjp=lambda g, a, b, y: (g / (1 + exp2(b - a)), g / (1 + exp2(a - b))),
                           doc="log2(2^a + 2^b) without overflow.",
                           samples=each(reals(), reals(), numbers=False, scale=1), reference=np.logaddexp2,
                           weight=20, number=numbers.logaddexp2, rounds=False, autocast=None, in_place=False)


def _xlogy(a: Node, b: Node) -> Node:
    zero = bitwise_and(eq(a, literal(0)), bitwise_not(isnan(b)))
    return where_(zero, 0.0, a * log(b))


def _xlogy_vjp(g: Node, a: Node, b: Node, y: Node) -> tuple[Node, Node]:
    flat = bitwise_and(eq(a, literal(0)), le(b, literal(0)))
    return where_(flat, 0.0, g * log(b)), g * a / b


def _xlogy_value(a: ndarray, b: ndarray) -> ndarray:
    return np.where((np.asarray(a) == 0) & ~np.isnan(b), 0.0, a * np.log(b))


xlogy: Op = pointwise("xlogy", _floats, decompose=_xlogy, vjp=_xlogy_vjp, ulp=2,
                      doc="a · log(b), and 0 where a = 0.",
                      samples=cases(case(reals().of(3, 4), positives().of(3, 4)), case(reals().of(), positives().of()),
                                    case(Array((0.0, 0.0, 0.0, math.nan, 1.0)), Array((0.0, math.nan, -1.0, 1.0, 0.0))),
                                    scale=1),
                      reference=_xlogy_value,
                      weight=11, number=lambda a, b: 0.0 if a == 0 and b == b else a * math.log(b), rounds=False,
                      autocast=None, in_place=True)

# Rounding

frac: Op = pointwise("frac", _floats, decompose=lambda x: x - trunc(x), vjp=lambda g, x, y: g,
                     doc="The fraction of x, with the sign of x.", samples=each(reals(-9, 9)),
                     reference=lambda x: x - np.trunc(x),
                     weight=2, number=lambda x: x - math.trunc(x), rounds=False, autocast=None, in_place=True)


def _trunc_divide(x: Node, y: Node) -> Node:
    if x.type.dtype.kind == "float" or y.type.dtype.kind == "float":
        return downcast(trunc(upcast(x) / upcast(y)), y if x.type.weak else x)
    return floor_divide(x - fmod(x, y), y)


trunc_divide: Op = pointwise("trunc_divide", _numeric, decompose=_trunc_divide,
                             vjp=lambda g, a, b, y: (None, None),
                             doc="The integer part of a / b, as C's / of integers.",
                             samples=each(reals(-9, 9), reals(1, 4), kinds=NUMERIC, special=False),
                             reference=lambda a, b: np.trunc(a / b),
                             weight=3, number=lambda a, b: numbers.rounding(math.trunc)(a / b), rounds=False,
                             autocast=None, in_place=False)


def _round_to(x: Node, decimals: int) -> Node:
    scale = 10.0 ** builtins.abs(decimals)
    wider = upcast(x)
    return downcast(round(wider * scale) / scale if decimals > 0 else round(wider / scale) * scale, x)


round_to: Op = pointwise("round_to", lambda x, decimals: common((x,), FLOAT), attrs=("decimals",),
                         decompose=_round_to, vjp=lambda g, x, y, decimals: None, ulp=2,
                         doc="The nearest multiple of 10^-decimals, ties to even.",
                         samples=each(reals(-30, 30), special=False, scale=30).under({"decimals": 1}, {"decimals": -1}),
                         reference=lambda x, decimals: np.round(x, decimals),
                         weight=4, number=None, rounds=False, autocast=None, in_place=False)

# Integers

gcd: Op = pointwise("gcd", lambda a, b: common((a, b), _INTS), doc="Greatest common divisor, ≥ 0; gcd(0, 0) = 0.",
                    commutative=True, differentiable=False,
                    samples=each(reals(-90, 90), reals(-90, 90), kinds=_INTS), reference=np.gcd,
                    weight=64, number=math.gcd, rounds=False, autocast=None, in_place=True)


def _lcm(a: Node, b: Node) -> Node:
    divisor = gcd(a, b)
    none = eq(divisor, literal(0))
    return where_(none, 0, abs(floor_divide(a, where_(none, 1, divisor)) * b))


lcm: Op = pointwise("lcm", lambda a, b: common((a, b), _INTS), doc="Least common multiple, ≥ 0.",
                    commutative=True, differentiable=False, decompose=_lcm,
                    samples=each(reals(-11, 11), reals(-11, 11), kinds=_INTS, numbers=False), reference=np.lcm,
                    weight=77, number=math.lcm, rounds=False, autocast=None, in_place=True)


# Truth

def _truth(*types: TensorType) -> TensorType:
    shared = common(types, ANY)
    return tensor_type(shared.shape, bool_, shared.device, shared.weak)


def to_bool(x: Node) -> Node:
    """x ≠ 0."""
    return x if x.type.dtype is bool_ else cast(x, dtype=bool_) if x.type.weak else ne(x, literal(0))


def _logical(name: str, on_bools: Callable[..., Node], doc: str, reference: Callable[..., ndarray], *,
             weight: int, number: Callable[..., bool]) -> Op:
    return pointwise(name, _truth, decompose=lambda *operands: on_bools(*map(to_bool, operands)), doc=doc,
                     differentiable=False, weight=weight, number=number, rounds=False, autocast=None, in_place=True,
                     samples=each(*(reals(-1, 1) for _ in range(1 if name == "logical_not" else 2)), kinds=ANY,
                                  numbers=False),
                     reference=reference)


logical_not: Op = _logical("logical_not", bitwise_not, "True where x = 0.", np.logical_not,
                           weight=2, number=operator.not_)
logical_and: Op = _logical("logical_and", bitwise_and, "True where both are not 0.", np.logical_and,
                           weight=3, number=lambda a, b: bool(a) and bool(b))
logical_or: Op = _logical("logical_or", bitwise_or, "True where either is not 0.", np.logical_or,
                          weight=3, number=lambda a, b: bool(a) or bool(b))
logical_xor: Op = _logical("logical_xor", ne, "True where exactly one is not 0.", np.logical_xor,
                           weight=3, number=lambda a, b: bool(a) is not bool(b))
