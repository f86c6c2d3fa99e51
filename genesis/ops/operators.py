"""A tensor's pointwise methods, and Python's operators: the functions of the pointwise families."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.ir.errors import NotAnOperand, failure
from genesis.ir.ops import pointwise as p
from genesis.ops.arithmetic import ArithmeticMethods, abs, floor_divide, neg, positive, remainder, sub
from genesis.ops.common import pointwise_op
from genesis.ops.comparison import ComparisonMethods, eq, ge, gt, le, lt, ne
from genesis.ops.exponential import ExponentialMethods, pow
from genesis.ops.foreign import comparable, compared, is_array, reflected
from genesis.ops.logic import (
    LogicMethods,
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
)
from genesis.ops.rounding import RoundingMethods
from genesis.ops.special import SpecialMethods
from genesis.ops.trigonometry import TrigonometricMethods

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


class MathMethods(ArithmeticMethods, ComparisonMethods, ExponentialMethods, LogicMethods, RoundingMethods,
                  SpecialMethods, TrigonometricMethods):
    """The pointwise methods of a tensor, and its operators."""

    __slots__ = ()

    def __add__(self: Any, other: Any) -> Any:
        try:
            return pointwise_op(p.add, self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__radd__")

    def __radd__(self: Any, other: Any) -> Tensor:
        return pointwise_op(p.add, self, other)

    def __sub__(self: Any, other: Any) -> Any:
        try:
            return sub(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rsub__")

    def __rsub__(self: Any, other: Any) -> Tensor:
        return sub(other, self)

    def __mul__(self: Any, other: Any) -> Any:
        try:
            return pointwise_op(p.mul, self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rmul__")

    def __rmul__(self: Any, other: Any) -> Any:
        try:
            return pointwise_op(p.mul, self, other)
        except NotAnOperand:
            if isinstance(other, Sequence):  # it is repeated so many times: Python does that after NotImplemented
                return NotImplemented
            raise

    def __truediv__(self: Any, other: Any) -> Any:
        try:
            return pointwise_op(p.div, self, other, floating=True)
        except NotAnOperand as error:
            return reflected(error, other, "__rtruediv__")

    def __rtruediv__(self: Any, other: Any) -> Tensor:
        if is_array(other):  # as torch: the one operator that numpy's arrays leave to the tensor and that takes them
            return self.reciprocal() * other
        return pointwise_op(p.div, other, self, floating=True)

    __div__, __rdiv__ = __truediv__, __rtruediv__  # Python 2's names, which torch still has

    def __floordiv__(self: Any, other: Any) -> Any:
        try:
            return floor_divide(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rfloordiv__")

    def __rfloordiv__(self: Any, other: Any) -> Tensor:
        return floor_divide(other, self)

    def __mod__(self: Any, other: Any) -> Any:
        try:
            return remainder(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rmod__")

    def __rmod__(self: Any, other: Any) -> Tensor:
        return remainder(other, self)

    def __divmod__(self: Any, other: Any) -> Any:
        try:
            return floor_divide(self, other), remainder(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rdivmod__")

    def __rdivmod__(self: Any, other: Any) -> tuple[Tensor, Tensor]:
        return floor_divide(other, self), remainder(other, self)

    def __pow__(self: Any, other: Any) -> Any:
        try:
            return pow(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rpow__")

    def __rpow__(self: Any, other: Any) -> Tensor:
        return pow(other, self)

    def __neg__(self: Any) -> Tensor:
        return neg(self)

    def __pos__(self: Any) -> Tensor:
        return positive(self)

    def __abs__(self: Any) -> Tensor:
        return abs(self)

    def __invert__(self: Any) -> Tensor:
        if self.spec.dtype.kind == "float":
            raise failure("~", "it is only implemented on integer and Boolean-type tensors", [("operand", self)],
                          error=TypeError)
        return bitwise_not(self)

    def __and__(self: Any, other: Any) -> Any:
        try:
            return bitwise_and(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rand__")

    def __or__(self: Any, other: Any) -> Any:
        try:
            return bitwise_or(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__ror__")

    def __xor__(self: Any, other: Any) -> Any:
        try:
            return bitwise_xor(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rxor__")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self: Any, other: Any) -> Any:
        try:
            return bitwise_left_shift(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rlshift__")

    def __rlshift__(self: Any, other: Any) -> Tensor:
        return bitwise_left_shift(other, self)

    def __rshift__(self: Any, other: Any) -> Any:
        try:
            return bitwise_right_shift(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rrshift__")

    def __rrshift__(self: Any, other: Any) -> Tensor:
        return bitwise_right_shift(other, self)

    def __eq__(self: Any, other: Any) -> Any:
        return eq(self, compared(other)) if comparable(other) else NotImplemented

    def __ne__(self: Any, other: Any) -> Any:
        return ne(self, compared(other)) if comparable(other) else NotImplemented

    def __lt__(self: Any, other: Any) -> Any:
        try:
            return lt(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__gt__")

    def __le__(self: Any, other: Any) -> Any:
        try:
            return le(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__ge__")

    def __gt__(self: Any, other: Any) -> Any:
        try:
            return gt(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__lt__")

    def __ge__(self: Any, other: Any) -> Any:
        try:
            return ge(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__le__")

    __hash__ = object.__hash__

    __iadd__, __isub__ = ArithmeticMethods.add_, ArithmeticMethods.sub_
    __imul__, __itruediv__ = ArithmeticMethods.mul_, ArithmeticMethods.div_
    __ifloordiv__, __imod__ = ArithmeticMethods.floor_divide_, ArithmeticMethods.remainder_
    __ipow__ = ExponentialMethods.pow_
    __iand__, __ior__, __ixor__ = LogicMethods.bitwise_and_, LogicMethods.bitwise_or_, LogicMethods.bitwise_xor_
    __ilshift__, __irshift__ = LogicMethods.bitwise_left_shift_, LogicMethods.bitwise_right_shift_
