"""Logic and bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from genesis.frontend.recording import TensorBase, read
from genesis.ir.node import Op
from genesis.ir.ops import arithmetic as a
from genesis.ir.ops import pointwise as p
from genesis.ir.types import bool_
from genesis.ops.common import both_tensors, pointwise_op, to_dtype
from genesis.ops.inplace import write, write_back
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

    Value: TypeAlias = Tensor | bool | int | float

__all__ = ["bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
           "logical_and", "logical_not", "logical_or", "logical_xor"]


def logical_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """True where x is 0; any dtype."""
    return into(out, pointwise_op(a.logical_not, input))


def logical_and(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """True where both are not 0; any dtypes."""
    return into(out, _logical(a.logical_and, input, other))


def logical_or(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """True where either is not 0; any dtypes."""
    return into(out, _logical(a.logical_or, input, other))


def logical_xor(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """True where exactly one is not 0; any dtypes."""
    return into(out, _logical(a.logical_xor, input, other))


def _logical(op: Op, input: Tensor, other: Tensor) -> Tensor:
    """A logical op, on the truth values of tensors of two dtypes: a cast between them could round a number to 0."""
    both_tensors(op.name, input, other)
    if input.spec.dtype is not other.spec.dtype:
        input, other = to_dtype(input, bool_), to_dtype(other, bool_)
    return pointwise_op(op, input, other)


def bitwise_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bitwise complement of integers; logical not of bool."""
    return into(out, pointwise_op(p.bitwise_not, input))


def bitwise_and(input: Value, other: Value, *, out: Tensor | None = None) -> Tensor:
    """Bitwise and of integers; logical for bool."""
    return into(out, pointwise_op(p.bitwise_and, input, other))


def bitwise_or(input: Value, other: Value, *, out: Tensor | None = None) -> Tensor:
    """Bitwise or of integers; logical for bool."""
    return into(out, pointwise_op(p.bitwise_or, input, other))


def bitwise_xor(input: Value, other: Value, *, out: Tensor | None = None) -> Tensor:
    """Bitwise exclusive or of integers; logical for bool."""
    return into(out, pointwise_op(p.bitwise_xor, input, other))


def bitwise_left_shift(input: Value, other: Value, *, out: Tensor | None = None) -> Tensor:
    """input · 2^other on the bits."""
    return into(out, pointwise_op(p.left_shift, input, other))


def bitwise_right_shift(input: Value, other: Value, *, out: Tensor | None = None) -> Tensor:
    """floor(input / 2^other)."""
    return into(out, pointwise_op(p.right_shift, input, other))


class LogicMethods(TensorBase):
    """Logic and bits as methods."""

    __slots__ = ()

    logical_not = logical_not
    logical_and = logical_and
    logical_or = logical_or
    logical_xor = logical_xor
    bitwise_not = bitwise_not
    bitwise_and = bitwise_and
    bitwise_or = bitwise_or
    bitwise_xor = bitwise_xor
    bitwise_left_shift = bitwise_left_shift
    bitwise_right_shift = bitwise_right_shift

    def logical_not_(self: Any) -> Tensor:
        """`logical_not` in place."""
        return write(self, a.logical_not)

    def logical_and_(self: Any, other: Tensor) -> Tensor:
        """`logical_and` in place."""
        return write_back("logical_and_", self, lambda: read(logical_and(self, other)))

    def logical_or_(self: Any, other: Tensor) -> Tensor:
        """`logical_or` in place."""
        return write_back("logical_or_", self, lambda: read(logical_or(self, other)))

    def logical_xor_(self: Any, other: Tensor) -> Tensor:
        """`logical_xor` in place."""
        return write_back("logical_xor_", self, lambda: read(logical_xor(self, other)))

    def bitwise_not_(self: Any) -> Tensor:
        """`bitwise_not` in place."""
        return write(self, p.bitwise_not)

    def bitwise_and_(self: Any, other: Value) -> Tensor:
        """`bitwise_and` in place."""
        return write(self, p.bitwise_and, other)

    def bitwise_or_(self: Any, other: Value) -> Tensor:
        """`bitwise_or` in place."""
        return write(self, p.bitwise_or, other)

    def bitwise_xor_(self: Any, other: Value) -> Tensor:
        """`bitwise_xor` in place."""
        return write(self, p.bitwise_xor, other)

    def bitwise_left_shift_(self: Any, other: Value) -> Tensor:
        """`bitwise_left_shift` in place."""
        return write(self, p.left_shift, other)

    def bitwise_right_shift_(self: Any, other: Value) -> Tensor:
        """`bitwise_right_shift` in place."""
        return write(self, p.right_shift, other)
