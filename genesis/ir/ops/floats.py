"""Pointwise ops on how a floating-point number is made: its bits, its sign, its neighbours, its class."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.entry import pointwise
from genesis.ir.ops.leaves import full, full_like
from genesis.ir.ops.pointwise import (
    abs,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    cast,
    common,
    eq,
    gt,
    isinf,
    isnan,
    le,
    lt,
    ne,
    where_,
    zero_like,
)
from genesis.ir.ops.samples import ANY, FLOAT, Array, Literal, Values, case, cases, each, np, reals
from genesis.ir.types import DType, TensorType, bool_, float16, float32, float64, int16, int32, int64, tensor_type

if TYPE_CHECKING:
    from numpy import ndarray

_BITS: Final = {2: int16, 4: int32, 8: int64}
"""Size in bytes → the integer dtype that holds a float's bits."""


def _bitcast_type(x: TensorType, dtype: DType) -> TensorType:
    if x.weak or dtype.itemsize != x.dtype.itemsize or bool_ in (dtype, x.dtype):
        raise RuntimeError(f"the bits of {x} are not those of a {dtype!r}")
    return x.with_dtype(dtype)


def _same_bits(x: ndarray, dtype: DType) -> ndarray:
    size = dtype.itemsize
    source = {2: float16, 4: float32, 8: float64}[size] if dtype.kind == "int" else _BITS[size]
    return x.astype(source.numpy).view(dtype.numpy)


bitcast: Op = pointwise("bitcast", _bitcast_type, attrs=("dtype",), differentiable=False,
                        doc="The bits of x as an element of another dtype of the same size.",
                        samples=cases(*(case(Values(-3, 3, source).of(2, 5), dtype=target)
                                        for source, target in ((float16, int16), (float32, int32), (float64, int64),
                                                               (int16, float16), (int32, float32), (int64, float64)))),
                        reference=_same_bits,
                        weight=1, number=None, rounds=False, autocast=None, in_place=False)


def bits_of(x: Node) -> Node:
    """A float's bits as an integer."""
    return bitcast(x, dtype=_BITS[x.type.dtype.itemsize])


def _truth(*types: TensorType) -> TensorType:
    shared = common(types)
    return tensor_type(shared.shape, bool_, shared.device, shared.weak)


def _float_truth(*types: TensorType) -> TensorType:
    shared = common(types, FLOAT)
    return tensor_type(shared.shape, bool_, shared.device, shared.weak)


def _signbit(x: Node) -> Node:
    if x.type.dtype is bool_:
        return full(x.type.shape, False, bool_, x.type.device)
    return lt(bits_of(x) if x.type.dtype.kind == "float" else x, literal(0))


signbit: Op = pointwise("signbit", _truth, decompose=_signbit, differentiable=False,
                        doc="True where the sign bit is set: negative numbers, and -0.",
                        samples=each(reals(), kinds=ANY),
                        reference=lambda x: np.signbit(x) if x.dtype != bool else ~x & x,
                        weight=2, number=lambda x: math.copysign(1.0, x) < 0, rounds=False, autocast=None,
                        in_place=False)


def _signs_differ(a: Node, b: Node) -> Node:
    """A number has no bits until it has a's dtype."""
    return ne(signbit(a), signbit(where_(zero_like(a, True), b, full_like(a, 0)) if b.type.weak else b))


def _copysign(a: Node, b: Node) -> Node:
    return where_(_signs_differ(a, b), -a, a)


def _copysign_vjp(g: Node, a: Node, b: Node, y: Node) -> tuple[Node, None]:
    """The sign, as y / a: of NaN and infinity NaN, as in torch."""
    return where_(eq(a, literal(0)), 0.0, g * (y / a)), None


copysign: Op = pointwise("copysign", lambda a, b: common((a, b), FLOAT), decompose=_copysign, vjp=_copysign_vjp,
                         doc="|a| with the sign of b, that of -0 and NaN included.",
                         samples=cases(case(reals().of(3, 4), reals().of(3, 4)), case(reals().of(), reals().of()),
                                       case(Array((1.0, -2.0, 0.0, -0.0)), Array((-0.0, 0.0, float("-inf"), 1.0)))),
                         reference=np.copysign,
                         weight=7, number=math.copysign, rounds=False, autocast=None, in_place=True)


def _nextafter(a: Node, b: Node) -> Node:
    """The bits of a float of one sign, read as an integer, are in the order of the floats."""
    bits = bits_of(a)
    step = where_(eq(lt(a, b), gt(a, literal(0))), full(bits.type.shape, 1, bits.type.dtype, bits.type.device), -1)
    stepped = bitcast(bits + step, dtype=a.type.dtype)
    least = bitcast(full(bits.type.shape, 1, bits.type.dtype, bits.type.device), dtype=a.type.dtype)
    moved = where_(eq(a, literal(0)), copysign(least, b), stepped)
    return where_(bitwise_or(isnan(a), isnan(b)), a + b, where_(eq(a, b), b, moved))


def _next_float(a: ndarray, b: ndarray) -> ndarray:
    return np.nextafter(a.astype(float32.numpy), b.astype(float32.numpy))


nextafter: Op = pointwise("nextafter", lambda a, b: common((a, b), FLOAT), decompose=_nextafter,
                          vjp=lambda g, a, b, y: (where_(eq(a, b), 0.0, g), None),
                          doc="The next number of the dtype after a in the direction of b.",
                          samples=cases(case(Values(-2, 2, float32).of(3, 40), Values(-2, 2, float32).of(3, 40))),
                          reference=_next_float, ulp=0.01,
                          weight=24, number=math.nextafter, rounds=False, autocast=None, in_place=True)

isfinite: Op = pointwise("isfinite", _float_truth, doc="True where x is neither infinite nor NaN.",
                         decompose=lambda x: bitwise_not(bitwise_or(isnan(x), isinf(x))), differentiable=False,
                         samples=each(reals()), reference=np.isfinite,
                         weight=4, number=math.isfinite, rounds=False, autocast=None, in_place=False)
isposinf: Op = pointwise("isposinf", _float_truth, doc="True where x is +∞.", differentiable=False,
                         decompose=lambda x: eq(x, literal(float("inf"))), samples=each(reals()), reference=np.isposinf,
                         weight=1, number=lambda x: x == math.inf, rounds=False, autocast=None, in_place=False)
isneginf: Op = pointwise("isneginf", _float_truth, doc="True where x is -∞.", differentiable=False,
                         decompose=lambda x: eq(x, literal(float("-inf"))), samples=each(reals()),
                         reference=np.isneginf,
                         weight=1, number=lambda x: x == -math.inf, rounds=False, autocast=None, in_place=False)


def _nan_to_num(x: Node, nan: Node, high: Node, low: Node) -> Node:
    return where_(isnan(x), nan, where_(isposinf(x), high, where_(isneginf(x), low, x)))


nan_to_num: Op = pointwise("nan_to_num", lambda x, nan, high, low: common((x, nan, high, low), FLOAT),
                           decompose=_nan_to_num,
                           vjp=lambda g, x, nan, high, low, y: (where_(isfinite(x), g, 0.0), None, None, None),
                           doc="x with numbers in place of NaN, +∞ and -∞.",
                           samples=cases(case(Array((1.0, float("nan"), float("inf"), float("-inf"), -0.0)),
                                              Literal(0.5),
                                              Literal(9.0), Literal(-9.0)),
                                         case(reals().of(2, 3), Literal(0.5), Literal(9.0), Literal(-9.0))),
                           reference=lambda x, nan, high, low: np.nan_to_num(x, nan=nan, posinf=high, neginf=low),
                           weight=6, number=None, rounds=False, autocast=None, in_place=True)


def _isclose(a: Node, b: Node, rtol: Node, atol: Node, equal_nan: bool) -> Node:
    if a.type.dtype.kind != "float":
        a, b = (cast(x, dtype=float64) for x in (a, b))
    apart = abs(a - b)
    near = bitwise_and(isfinite(apart), le(apart, atol + abs(rtol * b)))
    found = bitwise_or(eq(a, b), near)
    return bitwise_or(found, bitwise_and(isnan(a), isnan(b))) if equal_nan else found


def _close(a: ndarray, b: ndarray, rtol: ndarray, atol: ndarray, equal_nan: bool) -> ndarray:
    return np.isclose(a.astype(float), b.astype(float), rtol, atol, equal_nan=equal_nan)


isclose: Op = pointwise("isclose", lambda a, b, rtol, atol, equal_nan: _truth(a, b), attrs=("equal_nan",),
                        defaults={"equal_nan": False}, decompose=_isclose, differentiable=False,
                        doc="True where |a - b| ≤ atol + rtol · |b|, or both are equal.",
                        samples=cases(case(reals(-3, 3).of(3, 4), reals(-3, 3).of(3, 4), Literal(0.5, True),
                                           Literal(0.25, True)),
                                      case(reals(-9, 9).of(0), reals(-9, 9).of(0), Literal(0.5, True),
                                           Literal(0.25, True)),
                                      case(Array((1.0, float("nan"), float("inf"), float("inf"))),
                                           Array((1.25, float("nan"), float("inf"), float("-inf"))), Literal(0.5, True),
                                           Literal(0.25, True)),
                                      kinds=ANY).under({"equal_nan": False}, {"equal_nan": True}),
                        reference=_close,
                        weight=13, number=None, rounds=False, autocast=None, in_place=False)
