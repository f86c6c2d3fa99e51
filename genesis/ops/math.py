"""Pointwise math: every element on its own, operands broadcast and promoted as in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from genesis.ir.errors import failure
from genesis.ir.node import literal
from genesis.ir.ops import pointwise as p
from genesis.ir.types import DType, bool_
from genesis.ops.common import cast, expand, operands, pointwise_op, result_type
from genesis.recording import TensorBase, emit, read, wrap

if TYPE_CHECKING:
    from genesis.tensor import Tensor

    Value: TypeAlias = Tensor | bool | int | float

# One line each: integers are computed in the default floating-point dtype.

def exp(input: Tensor) -> Tensor:
    """e to the power x, element by element. Integers become floating-point."""
    return pointwise_op(p.exp, input, floating=True)


def exp2(input: Tensor) -> Tensor:
    """2 to the power x, element by element. Integers become floating-point."""
    return pointwise_op(p.exp2, input, floating=True)


def expm1(input: Tensor) -> Tensor:
    """exp(x) - 1, element by element. Integers become floating-point."""
    return pointwise_op(p.expm1, input, floating=True)


def log(input: Tensor) -> Tensor:
    """Natural logarithm, element by element. Integers become floating-point."""
    return pointwise_op(p.log, input, floating=True)


def log2(input: Tensor) -> Tensor:
    """Logarithm to base 2, element by element. Integers become floating-point."""
    return pointwise_op(p.log2, input, floating=True)


def log10(input: Tensor) -> Tensor:
    """Logarithm to base 10, element by element. Integers become floating-point."""
    return pointwise_op(p.log10, input, floating=True)


def log1p(input: Tensor) -> Tensor:
    """log(1 + x), element by element. Integers become floating-point."""
    return pointwise_op(p.log1p, input, floating=True)


def sin(input: Tensor) -> Tensor:
    """Sine, element by element. Integers become floating-point."""
    return pointwise_op(p.sin, input, floating=True)


def cos(input: Tensor) -> Tensor:
    """Cosine, element by element. Integers become floating-point."""
    return pointwise_op(p.cos, input, floating=True)


def tan(input: Tensor) -> Tensor:
    """Tangent, element by element. Integers become floating-point."""
    return pointwise_op(p.tan, input, floating=True)


def asin(input: Tensor) -> Tensor:
    """Arc sine, element by element. Integers become floating-point."""
    return pointwise_op(p.asin, input, floating=True)


def acos(input: Tensor) -> Tensor:
    """Arc cosine, element by element. Integers become floating-point."""
    return pointwise_op(p.acos, input, floating=True)


def atan(input: Tensor) -> Tensor:
    """Arc tangent, element by element. Integers become floating-point."""
    return pointwise_op(p.atan, input, floating=True)


def sinh(input: Tensor) -> Tensor:
    """Hyperbolic sine, element by element. Integers become floating-point."""
    return pointwise_op(p.sinh, input, floating=True)


def cosh(input: Tensor) -> Tensor:
    """Hyperbolic cosine, element by element. Integers become floating-point."""
    return pointwise_op(p.cosh, input, floating=True)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent, element by element. Integers become floating-point."""
    return pointwise_op(p.tanh, input, floating=True)


def asinh(input: Tensor) -> Tensor:
    """Inverse hyperbolic sine, element by element. Integers become floating-point."""
    return pointwise_op(p.asinh, input, floating=True)


def acosh(input: Tensor) -> Tensor:
    """Inverse hyperbolic cosine, element by element. Integers become floating-point."""
    return pointwise_op(p.acosh, input, floating=True)


def atanh(input: Tensor) -> Tensor:
    """Inverse hyperbolic tangent, element by element. Integers become floating-point."""
    return pointwise_op(p.atanh, input, floating=True)


def sqrt(input: Tensor) -> Tensor:
    """Square root, element by element. Integers become floating-point."""
    return pointwise_op(p.sqrt, input, floating=True)


def rsqrt(input: Tensor) -> Tensor:
    """1 / √x, element by element. Integers become floating-point."""
    return pointwise_op(p.rsqrt, input, floating=True)


def reciprocal(input: Tensor) -> Tensor:
    """1 / x, element by element. Integers become floating-point."""
    return pointwise_op(p.reciprocal, input, floating=True)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), element by element. Integers become floating-point."""
    return pointwise_op(p.sigmoid, input, floating=True)


def erf(input: Tensor) -> Tensor:
    """Error function, element by element. Integers become floating-point."""
    return pointwise_op(p.erf, input, floating=True)


def erfc(input: Tensor) -> Tensor:
    """1 - erf(x), element by element. Integers become floating-point."""
    return pointwise_op(p.erfc, input, floating=True)


# These keep integers.

def neg(input: Tensor) -> Tensor:
    """-x, element by element."""
    return pointwise_op(p.neg, input)


def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1, element by element."""
    return pointwise_op(p.sign, input) if input.type.dtype is not bool_ else input.clone()


def floor(input: Tensor) -> Tensor:
    """Largest integer ≤ x, element by element."""
    return pointwise_op(p.floor, input)


def ceil(input: Tensor) -> Tensor:
    """Smallest integer ≥ x, element by element."""
    return pointwise_op(p.ceil, input)


def trunc(input: Tensor) -> Tensor:
    """x without its fraction, element by element."""
    return pointwise_op(p.trunc, input)


def relu(input: Tensor) -> Tensor:
    """max(x, 0), element by element."""
    return pointwise_op(p.relu, input)


def mul(input: Value, other: Value) -> Tensor:
    """a · b, element by element."""
    return pointwise_op(p.mul, input, other)


def atan2(input: Value, other: Value) -> Tensor:
    """Angle of the point (other, input), element by element."""
    return pointwise_op(p.atan2, input, other, floating=True)


def maximum(input: Value, other: Value) -> Tensor:
    """The larger; NaN if either is, element by element."""
    return pointwise_op(p.maximum, input, other)


def minimum(input: Value, other: Value) -> Tensor:
    """The smaller; NaN if either is, element by element."""
    return pointwise_op(p.minimum, input, other)


def fmod(input: Value, other: Value) -> Tensor:
    """Remainder with the sign of input, element by element."""
    return pointwise_op(p.fmod, input, other)


def remainder(input: Value, other: Value) -> Tensor:
    """Remainder with the sign of other, element by element."""
    return pointwise_op(p.remainder, input, other)


def floor_divide(input: Value, other: Value) -> Tensor:
    """Largest integer ≤ a / b, element by element."""
    return pointwise_op(p.floor_divide, input, other)


def eq(input: Value, other: Value) -> Tensor:
    """True where a = b."""
    return pointwise_op(p.eq, input, other)


def ne(input: Value, other: Value) -> Tensor:
    """True where a ≠ b."""
    return pointwise_op(p.ne, input, other)


def lt(input: Value, other: Value) -> Tensor:
    """True where a < b."""
    return pointwise_op(p.lt, input, other)


def le(input: Value, other: Value) -> Tensor:
    """True where a ≤ b."""
    return pointwise_op(p.le, input, other)


def gt(input: Value, other: Value) -> Tensor:
    """True where a > b."""
    return pointwise_op(p.gt, input, other)


def ge(input: Value, other: Value) -> Tensor:
    """True where a ≥ b."""
    return pointwise_op(p.ge, input, other)


def bitwise_and(input: Value, other: Value) -> Tensor:
    """Bitwise and of integers; logical for bool."""
    return pointwise_op(p.bitwise_and, input, other)


def bitwise_or(input: Value, other: Value) -> Tensor:
    """Bitwise or of integers; logical for bool."""
    return pointwise_op(p.bitwise_or, input, other)


def bitwise_xor(input: Value, other: Value) -> Tensor:
    """Bitwise exclusive or of integers; logical for bool."""
    return pointwise_op(p.bitwise_xor, input, other)


def bitwise_not(input: Tensor) -> Tensor:
    """Bitwise complement of integers; logical not of bool."""
    return pointwise_op(p.bitwise_not, input)


def bitwise_left_shift(input: Value, other: Value) -> Tensor:
    """input · 2^other on the bits."""
    return pointwise_op(p.left_shift, input, other)


def bitwise_right_shift(input: Value, other: Value) -> Tensor:
    """floor(input / 2^other)."""
    return pointwise_op(p.right_shift, input, other)


def abs(input: Tensor) -> Tensor:
    """|x|, element by element."""
    return pointwise_op(p.abs, input) if input.type.dtype is not bool_ else input.clone()


def add(input: Value, other: Value, *, alpha: float = 1) -> Tensor:
    """input + alpha · other.

    >>> import genesis
    >>> genesis.add(genesis.tensor([1, 2]), 1.5)
    tensor([2.5000, 3.5000])
    """
    return pointwise_op(p.add, input, other if alpha == 1 else mul(other, alpha))


def sub(input: Value, other: Value, *, alpha: float = 1) -> Tensor:
    """input - alpha · other."""
    if any(x.type.dtype is bool_ if isinstance(x, TensorBase) else type(x) is bool for x in (input, other)):
        raise failure("sub", "subtraction with bool tensors is not supported", [("input", input), ("other", other)],
                      hint="use ^ or logical_xor")
    return pointwise_op(p.sub, input, other if alpha == 1 else mul(other, alpha))


def div(input: Value, other: Value, *, rounding_mode: str | None = None) -> Tensor:
    """input / other; rounding_mode "floor" or "trunc" rounds the quotient."""
    if rounding_mode is None:
        return pointwise_op(p.div, input, other, floating=True)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        if result_type(input, other).kind == "float":
            return trunc(pointwise_op(p.div, input, other))
        return pointwise_op(p.floor_divide, sub(input, fmod(input, other)), other)
    raise failure("div", f"rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}")


true_divide = div


def pow(input: Value, exponent: Value) -> Tensor:
    """input to the power exponent. A Python int exponent is a constant of the program.

    >>> import genesis
    >>> genesis.pow(genesis.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    if type(exponent) is int and isinstance(input, TensorBase):
        kind = input.type.dtype.kind
        if kind == "int" and exponent < 0:
            raise failure("pow", "Integers to negative integer powers are not allowed.", [("input", input)],
                          hint="cast the input to a floating-point dtype")
        x = read(input) if kind != "bool" else cast(read(input), result_type(input, 1))
        if exponent == 2:
            return wrap(emit(p.mul, (x, x)))
        if exponent == 1:
            return wrap(x)
        return wrap(emit(p.pow, (x, literal(exponent))))
    if type(exponent) is bool and isinstance(input, TensorBase) and input.type.dtype is bool_:
        return bitwise_or(input, not exponent)
    return pointwise_op(p.pow, input, exponent)


def square(input: Tensor) -> Tensor:
    """x · x."""
    return pow(input, 2)


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest integer (or multiple of 10^-decimals), ties to even."""
    if not decimals:
        return pointwise_op(p.round, input)
    return round(input * 10.0**decimals) / 10.0**decimals


def isnan(input: Tensor) -> Tensor:
    """True where x is NaN."""
    return pointwise_op(p.isnan, input) if input.type.dtype.kind == "float" else ne(input, input)


def isinf(input: Tensor) -> Tensor:
    """True where x is infinite."""
    return pointwise_op(p.isinf, input) if input.type.dtype.kind == "float" else ne(input, input)


def isfinite(input: Tensor) -> Tensor:
    """True where x is neither infinite nor NaN."""
    return bitwise_not(bitwise_or(isnan(input), isinf(input)))


def logical_not(input: Tensor) -> Tensor:
    """True where x is 0."""
    return bitwise_not(to_bool(input))


def logical_and(input: Tensor, other: Tensor) -> Tensor:
    """True where both are not 0."""
    return bitwise_and(to_bool(input), to_bool(other))


def logical_or(input: Tensor, other: Tensor) -> Tensor:
    """True where either is not 0."""
    return bitwise_or(to_bool(input), to_bool(other))


def logical_xor(input: Tensor, other: Tensor) -> Tensor:
    """True where exactly one is not 0."""
    return bitwise_xor(to_bool(input), to_bool(other))


def to_bool(input: Tensor) -> Tensor:
    """x ≠ 0."""
    return input if input.type.dtype is bool_ else to_dtype(input, bool_)


def to_dtype(input: Tensor, dtype: DType) -> Tensor:
    """The tensor in another dtype; itself when it has it."""
    return input if input.type.dtype is dtype else wrap(emit(p.cast, (read(input),), (dtype,)))


def where(condition: Tensor, input: Value | None = None, other: Value | None = None) -> Any:
    """input where the condition holds, else other. With the condition alone: its `nonzero` as a tuple.

    >>> import genesis
    >>> genesis.where(genesis.tensor([True, False]), genesis.tensor([1, 2]), 0)
    tensor([1, 0])
    """
    if input is None or other is None:
        from genesis.ops.indexing import nonzero
        return nonzero(condition, as_tuple=True)
    if condition.type.dtype is not bool_:
        raise failure("where", "expected condition to be a boolean tensor", [("condition", condition)],
                      hint="compare it: condition != 0")
    a, b = operands("where", (input, other), dtype=result_type(input, other))
    c = read(condition)
    from genesis.ir.node import broadcast_shapes
    try:
        shape = broadcast_shapes(c.type.shape, *(n.type.shape for n in (a, b) if not n.type.weak))
    except RuntimeError as error:
        raise failure("where", str(error), [("condition", condition), ("input", input), ("other", other)]) from None
    return wrap(emit(p.where, (expand(c, shape), expand(a, shape), expand(b, shape))))


def clamp(input: Tensor, min: Value | None = None, max: Value | None = None) -> Tensor:
    """min(max(x, min), max); NaN stays NaN."""
    if min is None and max is None:
        raise failure("clamp", "at least one of min and max must be given")
    result = input if min is None else maximum(input, min)
    return result if max is None else minimum(result, max)


clip = clamp


def lerp(input: Tensor, end: Tensor, weight: Value) -> Tensor:
    """input + weight · (end - input)."""
    return input + (end - input) * weight


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """input + value · tensor1 · tensor2."""
    return input + tensor1 * tensor2 * value


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """input + value · tensor1 / tensor2."""
    return input + tensor1 / tensor2 * value


def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """True where |input - other| ≤ atol + rtol · |other|, or both are equal."""
    apart = sub(input, other)
    close = bitwise_or(eq(input, other), le(abs(apart), abs(other) * rtol + atol) & isfinite(apart))
    return bitwise_or(close, isnan(input) & isnan(other)) if equal_nan else close


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """True if all elements are close. Reads the values."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all().item())


def equal(input: Tensor, other: Tensor) -> bool:
    """True if both have the same shape and elements. Reads the values."""
    return input.type.shape == other.type.shape and bool(eq(input, other).all().item())


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x · Φ(x); approximate="tanh" takes the tanh formula."""
    if approximate not in ("none", "tanh"):
        raise failure("gelu", f"approximate must be 'none' or 'tanh', not {approximate!r}")
    return wrap(emit(p.gelu, operands("gelu", (input,), floating=True), (approximate,)))


def silu(input: Tensor) -> Tensor:
    """x · sigmoid(x)."""
    return pointwise_op(p.silu, input, floating=True)


absolute, negative, multiply, subtract, divide = abs, neg, mul, sub, div
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
