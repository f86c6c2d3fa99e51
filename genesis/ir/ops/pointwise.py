"""Pointwise ops: element i of the result depends on element i of each operand.

Operands have one shape and one dtype; weakly typed numbers go with any. Broadcasting and type
promotion are explicit nodes (`expand`, `cast`) by the time an op is recorded.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from genesis.ir import numbers
from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.entry import pointwise
from genesis.ir.ops.leaves import full, full_like
from genesis.ir.ops.samples import (
    ANY,
    FLOAT,
    INTEGRAL,
    NUMERIC,
    Kinds,
    Literal,
    booleans,
    case,
    each,
    np,
    positives,
    reals,
    vectorized,
)
from genesis.ir.types import DTYPES, DType, TensorType, bool_, float64, int64, promote_types, tensor_type

if TYPE_CHECKING:
    from typing import Unpack

    from numpy import ndarray

    from genesis.ir.ops.entry import Comparison, SampledRow


def common(types: tuple[TensorType, ...], kinds: Kinds = ANY) -> TensorType:
    """The type that the operands share, or an error that says what differs."""
    strong = [t for t in types if not t.weak]
    if not strong:
        dtype = types[0].dtype
        for t in types[1:]:
            dtype = promote_types(dtype, t.dtype)
        if dtype.kind not in kinds:
            dtype = int64 if dtype.kind == "bool" and "int" in kinds else float64
        return tensor_type((), dtype, types[0].device, weak=True)
    first = strong[0]
    for other in strong[1:]:
        if other.shape != first.shape:
            raise RuntimeError(f"shapes {first.shape} and {other.shape} differ")
        if other.dtype is not first.dtype:
            raise RuntimeError(f"dtypes {first.dtype!r} and {other.dtype!r} differ")
        if other.device is not first.device:
            raise RuntimeError(f"operands are on two devices, {first.device} and {other.device}")
    if first.dtype.kind not in kinds:
        raise NotImplementedError(f"not defined for {first.dtype!r}, only for {' and '.join(kinds)} dtypes")
    return first


def _same(kinds: Kinds) -> Callable[..., TensorType]:
    return lambda *types: common(types, kinds)


def _boolean(kinds: Kinds) -> Callable[..., TensorType]:
    def infer(*types: TensorType) -> TensorType:
        shared = common(types, kinds)
        return tensor_type(shared.shape, bool_, shared.device, shared.weak)
    return infer


def _op(name: str, kinds: Kinds, doc: str, vjp: Callable | None = None, **more: Unpack[SampledRow]) -> Op:
    return pointwise(name, _same(kinds), doc=doc, vjp=vjp, **more)


def _compare(name: str, doc: str, **more: Unpack[Comparison]) -> Op:
    return pointwise(name, _boolean(ANY), doc=doc, weight=1, rounds=False, autocast=None, in_place=True, **more)


def where_(condition: Node, a: Node | float, b: Node | float) -> Node:
    """`where` for formulas: numbers and smaller shapes broadcast against the condition."""
    from genesis.ir.node import broadcast
    parts = [x if isinstance(x, Node) else literal(x) for x in (a, b)]
    return where(*broadcast(condition, *parts))


# Arithmetic
add = _op("add", ANY, "a + b (logical or for bool).", lambda g, a, b, y: (g, g), commutative=True,
          samples=each(reals(), reals(), kinds=ANY), reference=lambda a, b: a + b,
          weight=1, number=numbers.add, rounds=True, autocast=None, in_place=True)
sub = _op("sub", NUMERIC, "a - b.", lambda g, a, b, y: (g, -g),
          samples=each(reals(), reals(), kinds=NUMERIC), reference=lambda a, b: a - b,
          weight=1, number=operator.sub, rounds=True, autocast=None, in_place=True)
mul = _op("mul", ANY, "a · b (logical and for bool).", lambda g, a, b, y: (g * b, g * a), commutative=True,
          samples=each(reals(), reals(), kinds=ANY), reference=lambda a, b: a * b,
          weight=1, number=numbers.mul, rounds=True, autocast=None, in_place=True)
div = _op("div", FLOAT, "a / b.", lambda g, a, b, y: (g / b, -g * y / b),
          samples=each(reals(), positives()), reference=lambda a, b: a / b,
          weight=2, number=operator.truediv, rounds=True, autocast=None, in_place=True)
floor_divide = _op("floor_divide", NUMERIC, "The largest integer ≤ a / b (Python's //).",
                   lambda g, a, b, y: (None, None),
                   samples=each(reals(-9, 9), reals(1, 4), kinds=NUMERIC, special=False), reference=np.floor_divide,
                   weight=8, number=operator.floordiv, rounds=False, autocast=None, in_place=True)
remainder = _op("remainder", NUMERIC, "a - b·floor(a / b): the sign of b (Python's %).",
                lambda g, a, b, y: (g, -g * floor_divide(a, b)),
                samples=each(reals(-9, 9), reals(1, 4), kinds=NUMERIC, special=False), reference=np.remainder,
                weight=8, number=operator.mod, rounds=False, autocast=None, in_place=True)
fmod = _op("fmod", NUMERIC, "a - b·trunc(a / b): the sign of a (C's fmod).",
           lambda g, a, b, y: (g, -g * trunc(a / b)),
           samples=each(reals(-9, 9), reals(1, 4), kinds=NUMERIC, special=False), reference=np.fmod,
           weight=8, number=numbers.fmod, rounds=False, autocast=None, in_place=True)
pow = _op("pow", NUMERIC, "a to the power b.", lambda g, a, b, y: _pow_vjp(g, a, b, y), ulp=4,
          samples=each(positives(3), reals(0, 3), kinds=NUMERIC), reference=np.power,
          weight=16, number=numbers.power, rounds=False, autocast="float32", in_place=True)
atan2 = _op("atan2", FLOAT, "Angle of the point (b, a), in (-π, π].",
            lambda g, a, b, y: _atan2_vjp(g, a, b), ulp=2,
            samples=each(reals(), reals()), reference=np.arctan2,
            weight=12, number=math.atan2, rounds=False, autocast=None, in_place=True)
maximum = _op("maximum", ANY, "The larger; NaN if either is.",
              lambda g, a, b, y: _pick_vjp(g, gt(a, b), lt(a, b), eq(a, b)), commutative=True,
              samples=each(reals(), reals(), kinds=ANY), reference=np.maximum,
              weight=1, number=numbers.either(max), rounds=True, autocast=None, in_place=False)
minimum = _op("minimum", ANY, "The smaller; NaN if either is.",
              lambda g, a, b, y: _pick_vjp(g, lt(a, b), gt(a, b), eq(a, b)), commutative=True,
              samples=each(reals(), reals(), kinds=ANY), reference=np.minimum,
              weight=1, number=numbers.either(min), rounds=True, autocast=None, in_place=False)


def _atan2_vjp(g: Node, a: Node, b: Node) -> tuple[Node, Node]:
    """The gradient is 0 at the origin, where there is no angle, as in torch."""
    square = a * a + b * b
    scale = where_(eq(square, literal(0)), 0.0, g / square)
    return scale * b, -scale * a


def _pow_vjp(g: Node, a: Node, b: Node, y: Node) -> tuple[Node | None, Node | None]:
    if a.type.weak:
        return None, _exponent_gradient(g, a, b, y)
    if b.op.name == "const" and b.type.weak:
        exponent = b["value"]
        base_gradient = where_(zero_like(a, exponent == 0), 0.0, g * pow(a, literal(exponent - 1)) * exponent)
    else:
        exponent = full_like(a, 0) + b if b.type.weak else b  # a number is on no device: in a's dtype it is where a is
        base_gradient = where_(eq(exponent, literal(0)), 0.0, g * b * pow(a, b - 1))
    if b.type.weak:
        return base_gradient, None
    return base_gradient, _exponent_gradient(g, a, b, y)


def _exponent_gradient(g: Node, a: Node, b: Node, y: Node) -> Node:
    """g · y · log(a); of 0^b 0 where it is flat, at b ≥ 0."""
    flat = bitwise_and(eq(a, literal(0)), ge(b, literal(0)))
    return where_(flat, 0.0, g * y * log(a))


def zero_like(x: Node, value: bool) -> Node:
    """A boolean constant of x's shape."""
    return full(x.type.shape, value, bool_, x.type.device)


def _pick_vjp(g: Node, first: Node, second: Node, tied: Node) -> tuple[Node, Node]:
    """Half to each of a tie; where NaN makes neither win, all to both, as in torch."""
    half = where_(tied, g * 0.5, g)
    return where_(second, 0.0, half), where_(first, 0.0, half)


# Unary
neg = _op("neg", NUMERIC, "-x.", lambda g, x, y: -g, samples=each(reals(), kinds=NUMERIC), reference=lambda x: -x,
          weight=1, number=operator.neg, rounds=True, autocast=None, in_place=True)
abs = _op("abs", NUMERIC, "|x|.", lambda g, x, y: g * sign(x),
          samples=each(reals(), kinds=NUMERIC), reference=np.abs,
          weight=1, number=operator.abs, rounds=False, autocast=None, in_place=True)
sign: Op = _op("sign", NUMERIC, "-1, 0 or 1; 0 of NaN, as in torch.", lambda g, x, y: None,
               samples=each(reals(), kinds=NUMERIC), reference=lambda x: np.where(x != x, 0, np.sign(x)),
               weight=1, number=numbers.sign, rounds=False, autocast=None, in_place=True)
reciprocal = _op("reciprocal", FLOAT, "1 / x.", lambda g, x, y: -g * y * y,
                 samples=each(positives()), reference=lambda x: 1 / x,
                 weight=2, number=lambda x: 1 / x, rounds=True, autocast="float32", in_place=True)
sqrt = _op("sqrt", FLOAT, "√x.", lambda g, x, y: g / (y * 2),
           samples=each(positives()), reference=np.sqrt,
           weight=2, number=math.sqrt, rounds=True, autocast=None, in_place=True)
rsqrt = _op("rsqrt", FLOAT, "1 / √x.", lambda g, x, y: g * -0.5 * (y * y * y), ulp=2,
            samples=each(positives()), reference=lambda x: 1 / np.sqrt(x),
            weight=3, number=lambda x: 1 / math.sqrt(x), rounds=True, autocast="float32", in_place=True)
exp = _op("exp", FLOAT, "e to the power x.", lambda g, x, y: g * y,
          samples=each(reals(-4, 4)), reference=np.exp,
          weight=4, number=math.exp, rounds=True, autocast="float32", in_place=True)
exp2 = _op("exp2", FLOAT, "2 to the power x.", lambda g, x, y: g * y * math.log(2),
           samples=each(reals(-4, 4)), reference=np.exp2,
           weight=3, number=lambda x: 2.0**x, rounds=False, autocast=None, in_place=True)
expm1 = _op("expm1", FLOAT, "exp(x) - 1, exact near 0.", lambda g, x, y: g * (y + 1),
            samples=each(reals(-4, 4)), reference=np.expm1,
            weight=5, number=math.expm1, rounds=False, autocast="float32", in_place=True)
log = _op("log", FLOAT, "Natural logarithm.", lambda g, x, y: g / x,
          samples=each(positives(9)), reference=np.log,
          weight=5, number=math.log, rounds=True, autocast="float32", in_place=True)
log2 = _op("log2", FLOAT, "Logarithm to base 2.", lambda g, x, y: g / (x * math.log(2)),
           samples=each(positives(9)), reference=np.log2,
           weight=5, number=math.log2, rounds=False, autocast="float32", in_place=True)
log10 = _op("log10", FLOAT, "Logarithm to base 10.", lambda g, x, y: g / (x * math.log(10)),
            samples=each(positives(9)), reference=np.log10,
            weight=5, number=math.log10, rounds=False, autocast="float32", in_place=True)
log1p = _op("log1p", FLOAT, "log(1 + x), exact near 0.", lambda g, x, y: g / (x + 1),
            samples=each(reals(-0.5, 4)), reference=np.log1p,
            weight=6, number=math.log1p, rounds=False, autocast="float32", in_place=True)
sin = _op("sin", FLOAT, "Sine of x radians.", lambda g, x, y: g * cos(x),
          samples=each(reals(-9, 9)), reference=np.sin,
          weight=8, number=math.sin, rounds=False, autocast=None, in_place=True)
cos: Op = _op("cos", FLOAT, "Cosine of x radians.", lambda g, x, y: -g * sin(x),
              samples=each(reals(-9, 9)), reference=np.cos,
              weight=8, number=math.cos, rounds=False, autocast=None, in_place=True)
tan = _op("tan", FLOAT, "Tangent of x radians.", lambda g, x, y: g * (y * y + 1), ulp=4,
          samples=each(reals(-1.4, 1.4)), reference=np.tan,
          weight=10, number=math.tan, rounds=False, autocast="float32", in_place=True)
asin = _op("asin", FLOAT, "Arc sine.", lambda g, x, y: g * rsqrt(1 - x * x), ulp=2,
           samples=each(reals(-0.9, 0.9)), reference=np.arcsin,
           weight=8, number=math.asin, rounds=False, autocast="float32", in_place=True)
acos = _op("acos", FLOAT, "Arc cosine.", lambda g, x, y: -g * rsqrt(1 - x * x), ulp=2,
           samples=each(reals(-0.9, 0.9)), reference=np.arccos,
           weight=8, number=math.acos, rounds=False, autocast="float32", in_place=True)
atan = _op("atan", FLOAT, "Arc tangent.", lambda g, x, y: g / (x * x + 1), ulp=2,
           samples=each(reals(-4, 4)), reference=np.arctan,
           weight=8, number=math.atan, rounds=False, autocast=None, in_place=True)
sinh = _op("sinh", FLOAT, "Hyperbolic sine.", lambda g, x, y: g * cosh(x), ulp=2,
           samples=each(reals(-4, 4)), reference=np.sinh,
           weight=8, number=math.sinh, rounds=False, autocast="float32", in_place=True)
cosh: Op = _op("cosh", FLOAT, "Hyperbolic cosine.", lambda g, x, y: g * sinh(x), ulp=2,
               samples=each(reals(-4, 4)), reference=np.cosh,
               weight=8, number=math.cosh, rounds=False, autocast="float32", in_place=True)
tanh = _op("tanh", FLOAT, "Hyperbolic tangent.", lambda g, x, y: g * (1 - y * y), ulp=2,
           samples=each(reals(-4, 4)), reference=np.tanh,
           weight=8, number=math.tanh, rounds=True, autocast=None, in_place=True)
asinh = _op("asinh", FLOAT, "Inverse hyperbolic sine.", lambda g, x, y: g * rsqrt(x * x + 1), ulp=2,
            samples=each(reals(-4, 4)), reference=np.arcsinh,
            weight=10, number=math.asinh, rounds=False, autocast=None, in_place=True)
acosh = _op("acosh", FLOAT, "Inverse hyperbolic cosine.", lambda g, x, y: g * rsqrt(x * x - 1), ulp=2,
            samples=each(reals(1.25, 4)), reference=np.arccosh,
            weight=10, number=math.acosh, rounds=False, autocast=None, in_place=True)
atanh = _op("atanh", FLOAT, "Inverse hyperbolic tangent.", lambda g, x, y: g / (1 - x * x), ulp=2,
            samples=each(reals(-0.9, 0.9)), reference=np.arctanh,
            weight=10, number=math.atanh, rounds=False, autocast=None, in_place=True)
sigmoid = _op("sigmoid", FLOAT, "1 / (1 + exp(-x)).", lambda g, x, y: g * y * (1 - y), ulp=2,
              samples=each(reals(-6, 6)), reference=lambda x: 1 / (1 + np.exp(-x)),
              weight=6, number=numbers.sigmoid, rounds=True, autocast=None, in_place=True)
erf = _op("erf", FLOAT, "Error function.", lambda g, x, y: g * (2 / math.sqrt(math.pi)) * exp(-(x * x)), ulp=2,
          samples=each(reals(-3, 3)), reference=vectorized(math.erf),
          weight=8, number=math.erf, rounds=False, autocast=None, in_place=True)
erfc = _op("erfc", FLOAT, "1 - erf(x), exact for large x.",
           lambda g, x, y: g * (-2 / math.sqrt(math.pi)) * exp(-(x * x)), ulp=4,
           samples=each(reals(-3, 3)), reference=vectorized(math.erfc),
           weight=10, number=math.erfc, rounds=False, autocast=None, in_place=True)
ndtr = _op("ndtr", FLOAT, "The normal distribution's cdf: erfc(-x / √2) / 2.",
           lambda g, x, y: g * (1 / math.sqrt(2 * math.pi)) * exp(x * x * -0.5), ulp=8,
           samples=each(reals(-3, 3)), reference=lambda x: 0.5 * vectorized(math.erfc)(-x * math.sqrt(0.5)),
           weight=8, number=lambda x: 0.5 * math.erfc(-x * math.sqrt(0.5)), rounds=False, autocast=None, in_place=False)
floor: Op = _op("floor", NUMERIC, "The largest integer ≤ x.", lambda g, x, y: None,
                samples=each(reals(-9, 9), kinds=NUMERIC), reference=np.floor,
                weight=1, number=numbers.rounding(math.floor), rounds=False, autocast=None, in_place=True)
ceil = _op("ceil", NUMERIC, "The smallest integer ≥ x.", lambda g, x, y: None,
           samples=each(reals(-9, 9), kinds=NUMERIC), reference=np.ceil,
           weight=1, number=numbers.rounding(math.ceil), rounds=False, autocast=None, in_place=True)
round = _op("round", NUMERIC, "The nearest integer, ties to even.", lambda g, x, y: None,
            samples=each(reals(-9, 9), kinds=NUMERIC), reference=np.round,
            weight=1, number=numbers.rounding(builtins.round), rounds=False, autocast=None, in_place=True)
trunc: Op = _op("trunc", NUMERIC, "x without its fraction.", lambda g, x, y: None,
                samples=each(reals(-9, 9), kinds=NUMERIC), reference=np.trunc,
                weight=1, number=numbers.rounding(math.trunc), rounds=False, autocast=None, in_place=True)

# Bits and truth
bitwise_and = _op("bitwise_and", INTEGRAL, "Bitwise and.", commutative=True,
                  samples=each(reals(-99, 99), reals(-99, 99), kinds=INTEGRAL), reference=np.bitwise_and,
                  weight=1, number=operator.and_, rounds=False, autocast=None, in_place=True)
bitwise_or = _op("bitwise_or", INTEGRAL, "Bitwise or.", commutative=True,
                 samples=each(reals(-99, 99), reals(-99, 99), kinds=INTEGRAL), reference=np.bitwise_or,
                 weight=1, number=operator.or_, rounds=False, autocast=None, in_place=True)
bitwise_xor = _op("bitwise_xor", INTEGRAL, "Bitwise exclusive or.", commutative=True,
                  samples=each(reals(-99, 99), reals(-99, 99), kinds=INTEGRAL), reference=np.bitwise_xor,
                  weight=1, number=operator.xor, rounds=False, autocast=None, in_place=True)
bitwise_not = _op("bitwise_not", INTEGRAL, "Bitwise complement (logical not for bool).",
                  samples=each(reals(-99, 99), kinds=INTEGRAL), reference=np.invert,
                  weight=1, number=numbers.invert, rounds=False, autocast=None, in_place=True)
left_shift = _op("left_shift", ("int",), "a · 2^b on the bits of a.",
                 samples=each(reals(-9, 9), reals(0, 6), kinds=("int",)), reference=np.left_shift,
                 weight=1, number=operator.lshift, rounds=False, autocast=None, in_place=False)
right_shift = _op("right_shift", ("int",), "floor(a / 2^b): arithmetic shift.",
                  samples=each(reals(-99, 99), reals(0, 6), kinds=("int",)), reference=np.right_shift,
                  weight=1, number=operator.rshift, rounds=False, autocast=None, in_place=False)

eq: Op = _compare("eq", "a = b.", commutative=True,
                  samples=each(reals(-3, 3), reals(-3, 3), kinds=ANY), reference=lambda a, b: a == b,
                  number=operator.eq)
ne = _compare("ne", "a ≠ b.", commutative=True,
              samples=each(reals(-3, 3), reals(-3, 3), kinds=ANY), reference=lambda a, b: a != b,
              number=operator.ne)
lt: Op = _compare("lt", "a < b.", samples=each(reals(-3, 3), reals(-3, 3), kinds=ANY), reference=lambda a, b: a < b,
                  number=operator.lt)
le = _compare("le", "a ≤ b.", samples=each(reals(-3, 3), reals(-3, 3), kinds=ANY), reference=lambda a, b: a <= b,
              number=operator.le)
gt: Op = _compare("gt", "a > b.", samples=each(reals(-3, 3), reals(-3, 3), kinds=ANY), reference=lambda a, b: a > b,
                  number=operator.gt)
ge = _compare("ge", "a ≥ b.", samples=each(reals(-3, 3), reals(-3, 3), kinds=ANY), reference=lambda a, b: a >= b,
              number=operator.ge)
isnan = pointwise("isnan", _boolean(FLOAT), doc="True where x is NaN.",
                  samples=each(reals()), reference=np.isnan,
                  weight=1, number=lambda x: x != x, rounds=False, autocast=None, in_place=False)
isinf = pointwise("isinf", _boolean(FLOAT), doc="True where x is infinite.",
                  samples=each(reals()), reference=np.isinf,
                  weight=1, number=lambda x: x in (math.inf, -math.inf), rounds=False, autocast=None, in_place=False)


def _where_type(condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
    if condition.dtype is not bool_:
        raise RuntimeError(f"the condition must be bool, not {condition.dtype!r}")
    shared = common((a, b))
    if shared.weak:
        raise RuntimeError("one branch must be a tensor; cast a number first")
    if condition.shape != shared.shape:
        raise RuntimeError(f"the condition has shape {condition.shape}, the branches {shared.shape}")
    if condition.device is not shared.device:
        raise RuntimeError(f"operands are on two devices, {condition.device} and {shared.device}")
    return shared


where = pointwise("where", _where_type, doc="a where the condition holds, else b.",
                  vjp=lambda g, c, a, b, y: (None, where_(c, g, 0.0), where_(c, 0.0, g)),
                  samples=each(booleans(), reals(), reals(), kinds=ANY).plus(
                      case(booleans().of(4), reals().of(4), Literal(1.5)),
                      case(booleans().of(4), Literal(1.5), reals().of(4))),
                  reference=np.where,
                  weight=1, number=lambda condition, a, b: a if condition else b, rounds=True, autocast=None,
                  in_place=False)


def _cast_type(x: TensorType, dtype: DType) -> TensorType:
    return tensor_type(x.shape, dtype, x.device)


def _cast_value(x: ndarray, dtype: DType) -> ndarray:
    return x != 0 if dtype.kind == "bool" else np.trunc(x) if dtype.kind == "int" else x


cast: Op = pointwise("cast", _cast_type, attrs=("dtype",),
                     doc="x in another dtype: rounded to nearest even, truncated towards zero into integers, ≠ 0 into "
                         "bool. A number becomes strongly typed.",
                     vjp=lambda g, x, y, dtype: None if x.type.weak else cast(g, dtype=x.type.dtype),
                     samples=each(reals(0, 9), kinds=ANY, special=False).under(*({"dtype": d} for d in DTYPES)),
                     reference=_cast_value,
                     weight=1, number=numbers.cast, rounds=True, autocast=None, in_place=False)

relu = pointwise("relu", _same(NUMERIC), doc="max(x, 0); NaN stays NaN.",
                 vjp=lambda g, x, y: relu_backward(g, y),
                 decompose=lambda x: maximum(x, literal(0)),
                 samples=each(reals(), kinds=NUMERIC), reference=lambda x: np.maximum(x, 0),
                 weight=1, number=numbers.relu, rounds=True, autocast=None, in_place=True)

relu_backward: Op = Op("relu_backward", "composite", _same(FLOAT), doc="Gradient of relu by x, of its result y: g "
                       "where y > 0 or NaN, as torch has it, else 0.",
                       decompose=lambda g, y: where_(le(y, literal(0)), 0.0, g),
                       samples=each(reals(), reals(0, 6), special=False, numbers=False),
                       reference=lambda g, y: np.where(y <= 0, 0.0, g))

silu = pointwise("silu", _same(FLOAT), doc="x · sigmoid(x).", ulp=4, decompose=lambda x: x * sigmoid(x),
                 vjp=lambda g, x, y: silu_backward(g, x),
                 samples=each(reals(-6, 6), special=False), reference=lambda x: x / (1 + np.exp(-x)),
                 weight=8, number=lambda x: x * numbers.sigmoid(x), rounds=False, autocast=None, in_place=False)

silu_backward: Op = Op("silu_backward", "composite", _same(FLOAT), doc="Gradient of silu by x.", ulp=8,
                       decompose=lambda g, x: g * (sigmoid(x) * (1 + x * (1 - sigmoid(x)))),
                       samples=each(reals(-2, 2), reals(-6, 6), special=False, numbers=False),
                       reference=lambda g, x: g / (1 + np.exp(-x)) * (1 + x / (1 + np.exp(x))))


_SLOPE, _CUBIC = 2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715
"""(1 + tanh(u)) / 2 = sigmoid(2u), here with 2u = (_SLOPE + _CUBIC·x²)·x: nothing cancels where tanh is near -1."""


def _gelu(x: Node, approximate: str) -> Node:
    if approximate == "tanh":
        return x * sigmoid(x * (x * x * _CUBIC + _SLOPE))
    return x * ndtr(x)


def _gelu_backward(g: Node, x: Node, approximate: str) -> Node:
    if approximate == "tanh":
        twice, slope = x * (x * x * _CUBIC + _SLOPE), x * x * (3 * _CUBIC) + _SLOPE
        share = sigmoid(twice)
        rest = 1 - share if x.dtype.itemsize == 2 else sigmoid(-twice)  # their difference is in float32's last places
        return g * (share * (x * rest * slope + 1))
    pdf = exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return g * (ndtr(x) + x * pdf)


def _gelu_value(x: ndarray, approximate: str) -> ndarray:
    if approximate == "tanh":
        return x * 0.5 * (1 + np.tanh((x + 0.044715 * x**3) * math.sqrt(2 / math.pi)))
    return x * 0.5 * vectorized(math.erfc)(-x * math.sqrt(0.5))


gelu = pointwise("gelu", lambda x, approximate: common((x,), FLOAT), attrs=("approximate",),
                 defaults={"approximate": "none"}, decompose=_gelu, ulp=4,
                 vjp=lambda g, x, y, approximate: gelu_backward(g, x, approximate=approximate),
                 doc="x · Φ(x), Φ the normal distribution's cdf; approximate='tanh' is Hendrycks and Gimpel's "
                     "(2016) formula.",
                 samples=each(reals(-4, 4), special=False, scale=4).under(
                     {"approximate": "none"}, {"approximate": "tanh"}),
                 reference=_gelu_value,
                 weight=12, number=numbers.gelu, rounds=False, autocast=None, in_place=False)


def _gelu_slope(g: ndarray, x: ndarray, approximate: str) -> ndarray:
    if approximate == "tanh":
        c = math.sqrt(2 / math.pi)
        t = np.tanh(c * (x + 0.044715 * x**3))
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x))
    cdf = 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) if x.size else x
    return g * (cdf + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


gelu_backward: Op = Op("gelu_backward", "composite", lambda g, x, approximate: common((g, x), FLOAT),
                       attrs=("approximate",), defaults={"approximate": "none"}, decompose=_gelu_backward, ulp=16,
                       doc="Gradient of gelu by x.",
                       samples=each(reals(-2, 2), reals(-4, 4), special=False, numbers=False).under(
                           {"approximate": "none"}, {"approximate": "tanh"}),
                       reference=_gelu_slope)
