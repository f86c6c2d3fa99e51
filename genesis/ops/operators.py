"""A tensor's pointwise methods and operators: the functions of `genesis.ops.math`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from genesis.ir.ops import pointwise as p
from genesis.ops.common import pointwise_op
from genesis.ops.inplace import InPlaceMethods
from genesis.ops.math import (
    abs,
    absolute,
    acos,
    acosh,
    add,
    addcdiv,
    addcmul,
    allclose,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clamp,
    clip,
    cos,
    cosh,
    div,
    divide,
    eq,
    equal,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    fmod,
    ge,
    greater,
    greater_equal,
    gt,
    isclose,
    isfinite,
    isinf,
    isnan,
    le,
    lerp,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lt,
    maximum,
    minimum,
    mul,
    multiply,
    ne,
    neg,
    negative,
    not_equal,
    pow,
    reciprocal,
    relu,
    remainder,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    sub,
    subtract,
    tan,
    tanh,
    true_divide,
    trunc,
    where,
)
from genesis.recording import TensorBase

if TYPE_CHECKING:
    from genesis.tensor import Tensor

    Value: TypeAlias = Tensor | bool | int | float


class MathMethods(InPlaceMethods):
    """The pointwise methods of a tensor."""

    __slots__ = ()

    exp = exp
    exp2 = exp2
    expm1 = expm1
    log = log
    log2 = log2
    log10 = log10
    log1p = log1p
    sin = sin
    cos = cos
    tan = tan
    asin = asin
    acos = acos
    atan = atan
    sinh = sinh
    cosh = cosh
    tanh = tanh
    asinh = asinh
    acosh = acosh
    atanh = atanh
    sqrt = sqrt
    rsqrt = rsqrt
    reciprocal = reciprocal
    sigmoid = sigmoid
    erf = erf
    erfc = erfc
    neg = neg
    sign = sign
    floor = floor
    ceil = ceil
    trunc = trunc
    relu = relu
    mul = mul
    atan2 = atan2
    maximum = maximum
    minimum = minimum
    fmod = fmod
    remainder = remainder
    floor_divide = floor_divide
    eq = eq
    ne = ne
    lt = lt
    le = le
    gt = gt
    ge = ge
    bitwise_and = bitwise_and
    bitwise_or = bitwise_or
    bitwise_xor = bitwise_xor
    bitwise_not = bitwise_not
    abs = abs
    add = add
    sub = sub
    div = div
    true_divide = true_divide
    pow = pow
    square = square
    round = round
    isnan = isnan
    isinf = isinf
    isfinite = isfinite
    logical_not = logical_not
    logical_and = logical_and
    logical_or = logical_or
    logical_xor = logical_xor
    clamp = clamp
    clip = clip
    lerp = lerp
    addcmul = addcmul
    addcdiv = addcdiv
    isclose = isclose
    allclose = allclose
    equal = equal
    absolute = absolute
    negative = negative
    multiply = multiply
    subtract = subtract
    divide = divide
    greater = greater
    greater_equal = greater_equal
    less = less
    less_equal = less_equal
    not_equal = not_equal

    def where(self: Any, condition: Tensor, other: Value) -> Tensor:
        """self where the condition holds, else other."""
        return where(condition, self, other)

    def __add__(self: Any, other: Any) -> Tensor:
        return pointwise_op(p.add, self, other)

    def __radd__(self: Any, other: Any) -> Tensor:
        return pointwise_op(p.add, self, other)

    def __sub__(self: Any, other: Any) -> Tensor:
        return sub(self, other)

    def __rsub__(self: Any, other: Any) -> Tensor:
        return sub(other, self)

    def __mul__(self: Any, other: Any) -> Tensor:
        return pointwise_op(p.mul, self, other)

    def __rmul__(self: Any, other: Any) -> Tensor:
        return pointwise_op(p.mul, self, other)

    def __truediv__(self: Any, other: Any) -> Tensor:
        return pointwise_op(p.div, self, other, floating=True)

    def __rtruediv__(self: Any, other: Any) -> Tensor:
        return pointwise_op(p.div, other, self, floating=True)

    def __floordiv__(self: Any, other: Any) -> Tensor:
        return floor_divide(self, other)

    def __rfloordiv__(self: Any, other: Any) -> Tensor:
        return floor_divide(other, self)

    def __mod__(self: Any, other: Any) -> Tensor:
        return remainder(self, other)

    def __rmod__(self: Any, other: Any) -> Tensor:
        return remainder(other, self)

    def __pow__(self: Any, other: Any) -> Tensor:
        return pow(self, other)

    def __rpow__(self: Any, other: Any) -> Tensor:
        return pow(other, self)

    def __neg__(self: Any) -> Tensor:
        return neg(self)

    def __pos__(self: Any) -> Tensor:
        return self

    def __abs__(self: Any) -> Tensor:
        return abs(self)

    def __invert__(self: Any) -> Tensor:
        return bitwise_not(self)

    def __and__(self: Any, other: Any) -> Tensor:
        return bitwise_and(self, other)

    def __or__(self: Any, other: Any) -> Tensor:
        return bitwise_or(self, other)

    def __xor__(self: Any, other: Any) -> Tensor:
        return bitwise_xor(self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self: Any, other: Any) -> Tensor:
        return bitwise_left_shift(self, other)

    def __rshift__(self: Any, other: Any) -> Tensor:
        return bitwise_right_shift(self, other)

    def __eq__(self: Any, other: Any) -> Any:
        return eq(self, other) if comparable(other) else NotImplemented

    def __ne__(self: Any, other: Any) -> Any:
        return ne(self, other) if comparable(other) else NotImplemented

    def __lt__(self: Any, other: Any) -> Tensor:
        return lt(self, other)

    def __le__(self: Any, other: Any) -> Tensor:
        return le(self, other)

    def __gt__(self: Any, other: Any) -> Tensor:
        return gt(self, other)

    def __ge__(self: Any, other: Any) -> Tensor:
        return ge(self, other)

    __hash__ = object.__hash__


def comparable(value: Any) -> bool:
    """True for what a tensor can be compared with, element by element."""
    return isinstance(value, (TensorBase, bool, int, float)) or hasattr(value, "__array__")
