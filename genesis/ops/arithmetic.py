"""Arithmetic: sums, products, quotients, signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from genesis.frontend.recording import TensorBase, emit, read, require_tensors, wrap
from genesis.ir.errors import failure, not_an_operand
from genesis.ir.numbers import as_number, number
from genesis.ir.ops import arithmetic as a
from genesis.ir.ops import bounds as b
from genesis.ir.ops import floats as f
from genesis.ir.ops import pointwise as p
from genesis.ir.types import bool_
from genesis.ops.common import both_tensors, operands, plain_number, pointwise_op, result_type
from genesis.ops.inplace import write, write_back
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

    Value: TypeAlias = Tensor | bool | int | float

__all__ = ["abs", "absolute", "add", "addcdiv", "addcmul", "copysign", "div", "divide", "floor_divide", "fmod", "gcd",
           "heaviside", "lcm", "lerp", "mul", "multiply", "neg", "negative", "nextafter", "positive", "reciprocal",
           "remainder", "rsub", "sign", "signbit", "sub", "subtract", "true_divide"]


def add(input: Value, other: Value, *, alpha: float = 1, out: Tensor | None = None) -> Tensor:
    """input + alpha · other.

    >>> import genesis
    >>> genesis.add(genesis.tensor([1, 2]), 1.5)
    tensor([2.5000, 3.5000])
    """
    plain = alpha == 1 and alpha is not True
    found: Tensor = pointwise_op(p.add, input, other) if plain else _scaled("add", input, other, alpha, 1)
    return found if out is None else into(out, found)


def sub(input: Value, other: Value, *, alpha: float = 1, out: Tensor | None = None) -> Tensor:
    """input - alpha · other."""
    if any(x.spec.dtype is bool_ if isinstance(x, TensorBase) else type(x) is bool for x in (input, other)):
        raise failure("sub", "subtraction with bool tensors is not supported", [("input", input), ("other", other)],
                      hint="use ^ or logical_xor")
    plain = alpha == 1 and alpha is not True
    found: Tensor = pointwise_op(p.sub, input, other) if plain else _scaled("sub", input, other, alpha, -1)
    return found if out is None else into(out, found)


def rsub(input: Value, other: Value, *, alpha: float = 1) -> Tensor:
    """other - alpha · input."""
    if not isinstance(input, TensorBase):
        raise failure("rsub", "the first operand must be a tensor", [("input", input), ("other", other)],
                      hint="other - input", error=TypeError)
    return sub(other, input, alpha=alpha)


def _scaled(name: str, input: Value, other: Value, alpha: float, sign: int) -> Tensor:
    """input ± alpha · other: one op of floats, which rounds once."""
    kind = result_type(input, other).kind
    scale = as_number(plain_number(alpha))
    if scale is None:
        raise not_an_operand(alpha)
    named = [("input", input), ("other", other), ("alpha", alpha)]
    if isinstance(scale, bool) and kind != "bool":
        raise failure(name, "boolean alpha is only supported for boolean results", named)
    if isinstance(scale, float) and kind != "float":
        raise failure(name, "for integral input tensors, argument alpha must be an integer", named)
    left, right = operands(name, (input, other))  # alpha is a number of the result's dtype, not of other's
    if kind == "float":
        return wrap(emit(a.add_scaled, (left, right, number(sign * scale))))
    if kind == "bool":  # of bools + is or, and any alpha but 0 is true
        scale = bool(scale)
    return wrap(emit(p.add if sign > 0 else p.sub, (left, emit(p.mul, (right, number(scale))))))


def mul(input: Value, other: Value, *, out: Tensor | None = None) -> Tensor:
    """input · other, element by element."""
    found: Tensor = pointwise_op(p.mul, input, other)
    return found if out is None else into(out, found)


def div(input: Value, other: Value, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """input / other; rounding_mode "floor" or "trunc" rounds the quotient.

    >>> import genesis
    >>> x = genesis.tensor([-7, 7])
    >>> genesis.div(x, 2), genesis.div(x, 2, rounding_mode="floor"), genesis.div(x, 2, rounding_mode="trunc")
    (tensor([-3.5000,  3.5000]), tensor([-4,  3]), tensor([-3,  3]))
    """
    if rounding_mode is None:
        found: Tensor = pointwise_op(p.div, input, other, floating=True)
        return found if out is None else into(out, found)
    if rounding_mode == "floor":
        found = pointwise_op(p.floor_divide, input, other)
        return found if out is None else into(out, found)
    if rounding_mode == "trunc":
        found = pointwise_op(a.trunc_divide, input, other)
        return found if out is None else into(out, found)
    raise failure("div", "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
                  f"{rounding_mode!r}", [("input", input), ("other", other)])


def floor_divide(input: Value, other: Value, *, out: Tensor | None = None) -> Tensor:
    """The largest integer ≤ input / other."""
    found: Tensor = pointwise_op(p.floor_divide, input, other)
    return found if out is None else into(out, found)


def remainder(input: Value, other: Value, *, out: Tensor | None = None) -> Tensor:
    """input - other · floor(input / other): the sign of other, as Python's %."""
    found: Tensor = pointwise_op(p.remainder, input, other)
    return found if out is None else into(out, found)


def fmod(input: Tensor, other: Value, *, out: Tensor | None = None) -> Tensor:
    """input - other · trunc(input / other): the sign of input, as C's fmod."""
    found: Tensor = pointwise_op(p.fmod, input, other)
    return found if out is None else into(out, found)


def neg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """-x, element by element."""
    found: Tensor = pointwise_op(p.neg, input)
    return found if out is None else into(out, found)


def positive(input: Tensor) -> Tensor:
    """The tensor itself; bool tensors are refused, as by +."""
    if input.spec.dtype is bool_:
        raise failure("positive", "the + operator, on a bool tensor is not supported", [("input", input)])
    return input


def abs(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """|x|, element by element."""
    return into(out, pointwise_op(p.abs, input) if input.spec.dtype is not bool_ else input.clone())


def sign(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """-1, 0 or 1, element by element; 0 of NaN."""
    return into(out, pointwise_op(p.sign, input) if input.spec.dtype is not bool_ else input.clone())


def signbit(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """True where the sign bit is set: negative numbers, and -0."""
    found: Tensor = pointwise_op(f.signbit, input)
    return found if out is None else into(out, found)


def copysign(input: Tensor, other: Value, *, out: Tensor | None = None) -> Tensor:
    """|input| with the sign of other, that of -0 included. Integers become floating-point."""
    found: Tensor = pointwise_op(f.copysign, input, other, floating=True)
    return found if out is None else into(out, found)


def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The next floating-point number after input in the direction of other."""
    return into(out, pointwise_op(f.nextafter, *both_tensors("nextafter", input, other)))


def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor:
    """0 below 0 and for NaN, 1 above 0, `values` at 0. Both have one dtype."""
    both_tensors("heaviside", input, values)
    if input.spec.dtype is not values.spec.dtype:
        raise failure("heaviside", "heaviside is not yet implemented for tensors with different dtypes.",
                      [("input", input), ("values", values)], hint="cast one with .to(dtype)")
    found: Tensor = pointwise_op(b.heaviside, input, values)
    return found if out is None else into(out, found)


def reciprocal(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / x, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.reciprocal, input, floating=True)
    return found if out is None else into(out, found)


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1, out: Tensor | None = None) -> Tensor:
    """input + value · tensor1 · tensor2."""
    require_tensors(input, tensor1, tensor2)
    nodes = operands("addcmul", (input, tensor1, tensor2))
    if isinstance(value, float) and nodes[0].type.dtype.kind != "float":
        raise failure("addcmul", "for integral input tensors, argument value must not be a floating point number.",
                      [("input", input), ("value", value)])
    return into(out, wrap(emit(a.addcmul, (*nodes, number(plain_number(value))))))


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1, out: Tensor | None = None) -> Tensor:
    """input + value · tensor1 / tensor2; floating-point only."""
    require_tensors(input, tensor1, tensor2)
    if result_type(tensor1, tensor2).kind != "float":
        raise failure("addcdiv", "Integer division with addcdiv is no longer supported",
                      [("tensor1", tensor1), ("tensor2", tensor2)], hint="input + value * (tensor1 / tensor2)")
    nodes = operands("addcdiv", (input, tensor1, tensor2))
    return into(out, wrap(emit(a.addcdiv, (*nodes, number(plain_number(value))))))


def lerp(input: Tensor, end: Tensor, weight: Value, *, out: Tensor | None = None) -> Tensor:
    """input + weight · (end - input), floating-point tensors of one dtype; the weight may be a number.

    >>> import genesis
    >>> genesis.lerp(genesis.tensor([0.0, 10.0]), genesis.tensor([1.0, 20.0]), 0.5)
    tensor([ 0.5000, 15.0000])
    """
    require_tensors(input, end)
    for name, x in (("end", end), ("weight", weight)):
        if isinstance(x, TensorBase) and x.spec.dtype is not input.spec.dtype:
            raise failure("lerp", f"expected dtype {input.spec.dtype!r} for `{name}` but got dtype {x.spec.dtype!r}",
                          [("input", input), (name, x)], hint="cast one with .to(dtype)")
    return into(out, wrap(emit(a.lerp, operands("lerp", (input, end, weight)))))


def gcd(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Greatest common divisor of integers, ≥ 0; gcd(0, 0) = 0."""
    return into(out, pointwise_op(a.gcd, *both_tensors("gcd", input, other)))


def lcm(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Least common multiple of integers, ≥ 0."""
    return into(out, pointwise_op(a.lcm, *both_tensors("lcm", input, other)))


absolute, negative, multiply, subtract, divide, true_divide = abs, neg, mul, sub, div, div


class ArithmeticMethods(TensorBase):
    """Arithmetic as methods."""

    __slots__ = ()

    add = add
    sub = sub
    mul = mul
    div = div
    true_divide = true_divide
    floor_divide = floor_divide
    remainder = remainder
    fmod = fmod
    neg = neg
    positive = positive
    abs = abs
    sign = sign
    signbit = signbit
    copysign = copysign
    nextafter = nextafter
    heaviside = heaviside
    reciprocal = reciprocal
    addcmul = addcmul
    addcdiv = addcdiv
    lerp = lerp
    gcd = gcd
    lcm = lcm
    absolute = absolute
    negative = negative
    multiply = multiply
    subtract = subtract
    divide = divide

    def add_(self: Any, other: Value, *, alpha: float = 1) -> Tensor:
        """`add` in place."""
        if alpha == 1 and alpha is not True:
            return write(self, p.add, other)
        return write_back("add_", self, lambda: read(add(self, other, alpha=alpha)))

    def sub_(self: Any, other: Value, *, alpha: float = 1) -> Tensor:
        """`sub` in place."""
        return write_back("sub_", self, lambda: read(sub(self, other, alpha=alpha)))

    def mul_(self: Any, other: Value) -> Tensor:
        """`mul` in place."""
        return write(self, p.mul, other)

    def div_(self: Any, other: Value, *, rounding_mode: str | None = None) -> Tensor:
        """`div` in place."""
        if rounding_mode is None:
            return write(self, p.div, other, floating=True)
        return write_back("div_", self, lambda: read(div(self, other, rounding_mode=rounding_mode)))

    def floor_divide_(self: Any, other: Value) -> Tensor:
        """`floor_divide` in place."""
        return write(self, p.floor_divide, other)

    def remainder_(self: Any, other: Value) -> Tensor:
        """`remainder` in place."""
        return write(self, p.remainder, other)

    def fmod_(self: Any, other: Value) -> Tensor:
        """`fmod` in place."""
        return write(self, p.fmod, other)

    def neg_(self: Any) -> Tensor:
        """`neg` in place."""
        return write(self, p.neg)

    def abs_(self: Any) -> Tensor:
        """`abs` in place."""
        return write_back("abs_", self, lambda: read(abs(self)))

    def sign_(self: Any) -> Tensor:
        """`sign` in place."""
        return write_back("sign_", self, lambda: read(sign(self)))

    def copysign_(self: Any, other: Value) -> Tensor:
        """`copysign` in place."""
        return write(self, f.copysign, other, floating=True)

    def nextafter_(self: Any, other: Tensor) -> Tensor:
        """`nextafter` in place."""
        return write(self, f.nextafter, other)

    def heaviside_(self: Any, values: Tensor) -> Tensor:
        """`heaviside` in place."""
        return write_back("heaviside_", self, lambda: read(heaviside(self, values)))

    def reciprocal_(self: Any) -> Tensor:
        """`reciprocal` in place."""
        return write(self, p.reciprocal, floating=True)

    def addcmul_(self: Any, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
        """`addcmul` in place."""
        return write_back("addcmul_", self, lambda: read(addcmul(self, tensor1, tensor2, value=value)))

    def addcdiv_(self: Any, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
        """`addcdiv` in place."""
        return write_back("addcdiv_", self, lambda: read(addcdiv(self, tensor1, tensor2, value=value)))

    def lerp_(self: Any, end: Tensor, weight: Value) -> Tensor:
        """`lerp` in place."""
        return write_back("lerp_", self, lambda: read(lerp(self, end, weight)))

    def gcd_(self: Any, other: Tensor) -> Tensor:
        """`gcd` in place."""
        return write(self, a.gcd, other)

    def lcm_(self: Any, other: Tensor) -> Tensor:
        """`lcm` in place."""
        return write(self, a.lcm, other)

    absolute_, negative_, multiply_, subtract_, divide_, true_divide_ = abs_, neg_, mul_, sub_, div_, div_
