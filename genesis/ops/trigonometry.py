"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, emit, read, wrap
from genesis.ir.node import literal
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import special as s
from genesis.ops.common import both_tensors, operands, pointwise_op
from genesis.ops.inplace import write, write_back
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh",
           "atan", "atan2", "atanh", "cos", "cosh", "deg2rad", "rad2deg", "sin", "sinc", "sinh", "tan", "tanh"]


def sin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sine of x radians, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.sin, input, floating=True)
    return found if out is None else into(out, found)


def cos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Cosine of x radians, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.cos, input, floating=True)
    return found if out is None else into(out, found)


def tan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Tangent of x radians, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.tan, input, floating=True)
    return found if out is None else into(out, found)


def asin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Arc sine, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.asin, input, floating=True)
    return found if out is None else into(out, found)


def acos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Arc cosine, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.acos, input, floating=True)
    return found if out is None else into(out, found)


def atan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Arc tangent, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.atan, input, floating=True)
    return found if out is None else into(out, found)


def sinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Hyperbolic sine, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.sinh, input, floating=True)
    return found if out is None else into(out, found)


def cosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Hyperbolic cosine, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.cosh, input, floating=True)
    return found if out is None else into(out, found)


def tanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Hyperbolic tangent, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.tanh, input, floating=True)
    return found if out is None else into(out, found)


def asinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Inverse hyperbolic sine, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.asinh, input, floating=True)
    return found if out is None else into(out, found)


def acosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Inverse hyperbolic cosine, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.acosh, input, floating=True)
    return found if out is None else into(out, found)


def atanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Inverse hyperbolic tangent, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.atanh, input, floating=True)
    return found if out is None else into(out, found)


def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """sin(πx) / (πx), 1 at 0, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(s.sinc, input, floating=True)
    return found if out is None else into(out, found)


def atan2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Angle of the point (other, input), in (-π, π]. Integers become floating-point."""
    return into(out, pointwise_op(p.atan2, *both_tensors("atan2", input, other), floating=True))


def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Degrees as radians: x · π / 180. Integers become floating-point."""
    (x,) = operands("deg2rad", (input,), floating=True)
    return into(out, wrap(emit(p.mul, (x, literal(math.pi / 180)))))


def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Radians as degrees: x · 180 / π. Integers become floating-point."""
    (x,) = operands("rad2deg", (input,), floating=True)
    return into(out, wrap(emit(p.mul, (x, literal(180 / math.pi)))))


arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
arcsinh, arccosh, arctanh = asinh, acosh, atanh


class TrigonometricMethods(TensorBase):
    """Circular and hyperbolic functions as methods."""

    __slots__ = ()

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
    sinc = sinc
    atan2 = atan2
    deg2rad = deg2rad
    rad2deg = rad2deg
    arcsin = arcsin
    arccos = arccos
    arctan = arctan
    arctan2 = arctan2
    arcsinh = arcsinh
    arccosh = arccosh
    arctanh = arctanh

    def sin_(self: Any) -> Tensor:
        """`sin` in place."""
        return write(self, p.sin, floating=True)

    def cos_(self: Any) -> Tensor:
        """`cos` in place."""
        return write(self, p.cos, floating=True)

    def tan_(self: Any) -> Tensor:
        """`tan` in place."""
        return write(self, p.tan, floating=True)

    def asin_(self: Any) -> Tensor:
        """`asin` in place."""
        return write(self, p.asin, floating=True)

    def acos_(self: Any) -> Tensor:
        """`acos` in place."""
        return write(self, p.acos, floating=True)

    def atan_(self: Any) -> Tensor:
        """`atan` in place."""
        return write(self, p.atan, floating=True)

    def sinh_(self: Any) -> Tensor:
        """`sinh` in place."""
        return write(self, p.sinh, floating=True)

    def cosh_(self: Any) -> Tensor:
        """`cosh` in place."""
        return write(self, p.cosh, floating=True)

    def tanh_(self: Any) -> Tensor:
        """`tanh` in place."""
        return write(self, p.tanh, floating=True)

    def asinh_(self: Any) -> Tensor:
        """`asinh` in place."""
        return write(self, p.asinh, floating=True)

    def acosh_(self: Any) -> Tensor:
        """`acosh` in place."""
        return write(self, p.acosh, floating=True)

    def atanh_(self: Any) -> Tensor:
        """`atanh` in place."""
        return write(self, p.atanh, floating=True)

    def sinc_(self: Any) -> Tensor:
        """`sinc` in place."""
        return write(self, s.sinc, floating=True)

    def atan2_(self: Any, other: Tensor) -> Tensor:
        """`atan2` in place."""
        return write(self, p.atan2, other, floating=True)

    def deg2rad_(self: Any) -> Tensor:
        """`deg2rad` in place."""
        return write_back("deg2rad_", self, lambda: read(deg2rad(self)))

    def rad2deg_(self: Any) -> Tensor:
        """`rad2deg` in place."""
        return write_back("rad2deg_", self, lambda: read(rad2deg(self)))

    arcsin_, arccos_, arctan_, arctan2_ = asin_, acos_, atan_, atan2_
    arcsinh_, arccosh_, arctanh_ = asinh_, acosh_, atanh_
