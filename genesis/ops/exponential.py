"""Exponentials, logarithms, powers and roots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from genesis.frontend.recording import TensorBase, emit, read, wrap
from genesis.ir.errors import failure
from genesis.ir.node import literal
from genesis.ir.ops import arithmetic as a
from genesis.ir.ops import pointwise as p
from genesis.ir.types import bool_, float64
from genesis.ops.common import both_tensors, cast, operands, pointwise_op, result_type
from genesis.ops.inplace import write, write_back
from genesis.ops.logic import bitwise_or
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

    Value: TypeAlias = Tensor | bool | int | float

__all__ = [
    "exp",
    "exp2",
    "expm1",
    "float_power",
    "hypot",
    "ldexp",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "pow",
    "rsqrt",
    "sqrt",
    "square",
    "xlogy",
]


def exp(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """e to the power x, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.exp, input, floating=True)
    return found if out is None else into(out, found)


def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """2 to the power x, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.exp2, input, floating=True)
    return found if out is None else into(out, found)


def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(x) - 1, exact near 0. Integers become floating-point."""
    found: Tensor = pointwise_op(p.expm1, input, floating=True)
    return found if out is None else into(out, found)


def log(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Natural logarithm, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.log, input, floating=True)
    return found if out is None else into(out, found)


def log2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Logarithm to base 2, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.log2, input, floating=True)
    return found if out is None else into(out, found)


def log10(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Logarithm to base 10, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.log10, input, floating=True)
    return found if out is None else into(out, found)


def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(1 + x), exact near 0. Integers become floating-point."""
    found: Tensor = pointwise_op(p.log1p, input, floating=True)
    return found if out is None else into(out, found)


def sqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Square root, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.sqrt, input, floating=True)
    return found if out is None else into(out, found)


def rsqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / √x, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.rsqrt, input, floating=True)
    return found if out is None else into(out, found)


def pow(input: Value, exponent: Value, *, out: Tensor | None = None) -> Tensor:
    """input to the power exponent. A Python int exponent is a constant of the program.

    >>> import genesis
    >>> genesis.pow(genesis.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    if type(exponent) is int and isinstance(input, TensorBase):
        kind = input.spec.dtype.kind
        if kind == "int" and exponent < 0:
            raise failure("pow", "Integers to negative integer powers are not allowed.", [("input", input)],
                          hint="cast the input to a floating-point dtype")
        x = read(input) if kind != "bool" else cast(read(input), result_type(input, 1))
        if exponent == 2:
            return into(out, wrap(emit(p.mul, (x, x))))
        if exponent == 1:
            return into(out, wrap(x))
        return into(out, wrap(emit(p.pow, (x, literal(exponent)))))
    if type(exponent) is bool and isinstance(input, TensorBase) and input.spec.dtype is bool_:
        return into(out, bitwise_or(input, not exponent))
    found: Tensor = pointwise_op(p.pow, input, exponent)
    return found if out is None else into(out, found)


def square(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x · x."""
    return into(out, pow(input, 2))


def float_power(input: Value, exponent: Value, *, out: Tensor | None = None) -> Tensor:
    """input to the power exponent in float64, whatever the dtypes.

    >>> import genesis
    >>> genesis.float_power(genesis.tensor([2, 3]), -1)
    tensor([0.5000, 0.3333], dtype=genesis.float64)
    """
    if not isinstance(input, TensorBase) and not isinstance(exponent, TensorBase):
        raise failure("float_power", "one operand must be a tensor", [("input", input), ("exponent", exponent)],
                      error=TypeError)
    return into(out, wrap(emit(p.pow, operands("float_power", (input, exponent), dtype=float64))))


def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """input · 2^other. Integers become floating-point."""
    both_tensors("ldexp", input, other)
    return into(out, pointwise_op(p.mul, input, pow(2.0, other)))


def logaddexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(exp(input) + exp(other)) without overflow; floating-point only."""
    return into(out, pointwise_op(a.logaddexp, *both_tensors("logaddexp", input, other)))


def logaddexp2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log2(2^input + 2^other) without overflow; floating-point only."""
    return into(out, pointwise_op(a.logaddexp2, *both_tensors("logaddexp2", input, other)))


def hypot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """√(input² + other²) without overflow of the squares; floating-point only."""
    return into(out, pointwise_op(a.hypot, *both_tensors("hypot", input, other)))


def xlogy(input: Value, other: Value, *, out: Tensor | None = None) -> Tensor:
    """input · log(other), and 0 where input is 0. Integers become floating-point."""
    found: Tensor = pointwise_op(a.xlogy, input, other, floating=True)
    return found if out is None else into(out, found)


class ExponentialMethods(TensorBase):
    """Exponentials, logarithms, powers and roots as methods."""

    __slots__ = ()

    exp = exp
    exp2 = exp2
    expm1 = expm1
    log = log
    log2 = log2
    log10 = log10
    log1p = log1p
    sqrt = sqrt
    rsqrt = rsqrt
    pow = pow
    square = square
    float_power = float_power
    ldexp = ldexp
    logaddexp = logaddexp
    logaddexp2 = logaddexp2
    hypot = hypot
    xlogy = xlogy

    def exp_(self: Any) -> Tensor:
        """`exp` in place."""
        return write(self, p.exp, floating=True)

    def exp2_(self: Any) -> Tensor:
        """`exp2` in place."""
        return write(self, p.exp2, floating=True)

    def expm1_(self: Any) -> Tensor:
        """`expm1` in place."""
        return write(self, p.expm1, floating=True)

    def log_(self: Any) -> Tensor:
        """`log` in place."""
        return write(self, p.log, floating=True)

    def log2_(self: Any) -> Tensor:
        """`log2` in place."""
        return write(self, p.log2, floating=True)

    def log10_(self: Any) -> Tensor:
        """`log10` in place."""
        return write(self, p.log10, floating=True)

    def log1p_(self: Any) -> Tensor:
        """`log1p` in place."""
        return write(self, p.log1p, floating=True)

    def sqrt_(self: Any) -> Tensor:
        """`sqrt` in place."""
        return write(self, p.sqrt, floating=True)

    def rsqrt_(self: Any) -> Tensor:
        """`rsqrt` in place."""
        return write(self, p.rsqrt, floating=True)

    def pow_(self: Any, exponent: Value) -> Tensor:
        """`pow` in place."""
        return write_back("pow_", self, lambda: read(pow(self, exponent)))

    def square_(self: Any) -> Tensor:
        """`square` in place."""
        return write_back("square_", self, lambda: read(square(self)))

    def float_power_(self: Any, exponent: Value) -> Tensor:
        """`float_power` in place; the tensor must be float64."""
        if self.spec.dtype is not float64:
            raise failure("float_power_", "the result has dtype genesis.float64 and cannot be written to "
                          f"{self.spec.dtype!r}", [("tensor", self)], hint="use float_power")
        return write_back("float_power_", self, lambda: read(float_power(self, exponent)))

    def ldexp_(self: Any, other: Tensor) -> Tensor:
        """`ldexp` in place."""
        return write_back("ldexp_", self, lambda: read(ldexp(self, other)))

    def hypot_(self: Any, other: Tensor) -> Tensor:
        """`hypot` in place."""
        return write(self, a.hypot, other)

    def xlogy_(self: Any, other: Value) -> Tensor:
        """`xlogy` in place."""
        return write(self, a.xlogy, other, floating=True)
