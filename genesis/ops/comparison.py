"""Comparisons, tests for NaN and infinity, and choosing by a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from genesis.frontend.recording import TensorBase, emit, read, wrap
from genesis.ir.errors import failure
from genesis.ir.node import broadcast_shapes
from genesis.ir.numbers import number
from genesis.ir.ops import composite
from genesis.ir.ops import floats as f
from genesis.ir.ops import pointwise as p
from genesis.ir.types import bool_
from genesis.ops.common import alike, both_tensors, device_of, expand, on_device, operands, pointwise_op, result_type
from genesis.ops.inplace import write
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

    Value: TypeAlias = Tensor | bool | int | float

__all__ = ["allclose", "eq", "equal", "ge", "greater", "greater_equal", "gt", "isclose", "isfinite", "isinf", "isnan",
           "isneginf", "isposinf", "le", "less", "less_equal", "lt", "ne", "not_equal", "where"]


def eq(input: Tensor, other: Value, *, out: Tensor | None = None) -> Tensor:
    """True where input = other."""
    return into(out, pointwise_op(p.eq, input, other))


def ne(input: Tensor, other: Value, *, out: Tensor | None = None) -> Tensor:
    """True where input ≠ other."""
    return into(out, pointwise_op(p.ne, input, other))


def lt(input: Tensor, other: Value, *, out: Tensor | None = None) -> Tensor:
    """True where input < other."""
    return into(out, pointwise_op(p.lt, input, other))


def le(input: Tensor, other: Value, *, out: Tensor | None = None) -> Tensor:
    """True where input ≤ other."""
    return into(out, pointwise_op(p.le, input, other))


def gt(input: Tensor, other: Value, *, out: Tensor | None = None) -> Tensor:
    """True where input > other."""
    return into(out, pointwise_op(p.gt, input, other))


def ge(input: Tensor, other: Value, *, out: Tensor | None = None) -> Tensor:
    """True where input ≥ other."""
    return into(out, pointwise_op(p.ge, input, other))


def isnan(input: Tensor) -> Tensor:
    """True where x is NaN."""
    return pointwise_op(p.isnan, input) if input.spec.dtype.kind == "float" else ne(input, input)


def isinf(input: Tensor) -> Tensor:
    """True where x is infinite."""
    return pointwise_op(p.isinf, input) if input.spec.dtype.kind == "float" else ne(input, input)


def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """True where x is +∞."""
    return into(out, pointwise_op(f.isposinf, input) if input.spec.dtype.kind == "float" else ne(input, input))


def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """True where x is -∞."""
    return into(out, pointwise_op(f.isneginf, input) if input.spec.dtype.kind == "float" else ne(input, input))


def isfinite(input: Tensor) -> Tensor:
    """True where x is neither infinite nor NaN."""
    return pointwise_op(f.isfinite, input) if input.spec.dtype.kind == "float" else eq(input, input)


def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """True where |input - other| ≤ atol + rtol · |other|, or both are equal; NaNs are equal if `equal_nan` says so."""
    both_tensors("isclose", input, other)
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise failure("isclose", f"{name} must be greater than or equal to zero, but got {value}")
    if input.spec.dtype is not other.spec.dtype:
        raise failure("isclose", f"{input.spec.dtype!r} did not match {other.spec.dtype!r}",
                      [("input", input), ("other", other)], hint="cast one with .to(dtype)")
    nodes = operands("isclose", (input, other))
    return wrap(emit(f.isclose, (*nodes, number(float(rtol)), number(float(atol))), (bool(equal_nan),)))


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """True if all elements are close, see `isclose`. Reads the values."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all().item())


def equal(input: Tensor, other: Tensor) -> bool:
    """True if both have the same shape and elements. Reads the values."""
    if input.spec.shape != other.spec.shape:
        return False
    return bool(wrap(emit(composite.equal, operands("equal", (input.detach(), other.detach())))).item())


def where(condition: Tensor, input: Value | None = None, other: Value | None = None, *,
          out: Tensor | None = None) -> Any:
    """input where the condition holds, else other. With the condition alone: its `nonzero` as a tuple.

    >>> import genesis
    >>> genesis.where(genesis.tensor([True, False]), genesis.tensor([1, 2]), 0)
    tensor([1, 0])
    """
    if input is None or other is None:
        from genesis.ops.searching import nonzero
        return into(out, nonzero(condition, as_tuple=True))
    fits = condition.spec.dtype is bool_
    if not fits:
        raise failure("where", "expected condition to be a boolean tensor", [("condition", condition)],
                      hint="compare it: condition != 0")
    ready = alike((input, other))
    if ready is not None:
        branch = (ready[1] if ready[0].type.weak else ready[0]).type
        if branch.shape == condition.spec.shape and branch.device is condition.spec.device:
            return into(out, wrap(emit(p.where, (read(condition), *ready))))
    home = device_of("where", [x for x in (condition, input, other) if isinstance(x, TensorBase)])
    c = on_device(condition, home)
    a, b = operands("where", (input, other), dtype=result_type(input, other), home=home)
    try:
        shape = broadcast_shapes(c.type.shape, *(n.type.shape for n in (a, b) if not n.type.weak))
    except RuntimeError as error:
        raise failure("where", str(error), [("condition", condition), ("input", input), ("other", other)]) from None
    return into(out, wrap(emit(p.where, (expand(c, shape), expand(a, shape), expand(b, shape)))))


greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne


class ComparisonMethods(TensorBase):
    """Comparisons as methods."""

    __slots__ = ()

    eq = eq
    ne = ne
    lt = lt
    le = le
    gt = gt
    ge = ge
    isnan = isnan
    isinf = isinf
    isposinf = isposinf
    isneginf = isneginf
    isfinite = isfinite
    isclose = isclose
    allclose = allclose
    equal = equal
    greater = greater
    greater_equal = greater_equal
    less = less
    less_equal = less_equal
    not_equal = not_equal

    def where(self: Any, condition: Tensor, other: Value) -> Tensor:
        """self where the condition holds, else other."""
        return where(condition, self, other)

    def eq_(self: Any, other: Value) -> Tensor:
        """`eq` in place."""
        return write(self, p.eq, other)

    def ne_(self: Any, other: Value) -> Tensor:
        """`ne` in place."""
        return write(self, p.ne, other)

    def lt_(self: Any, other: Value) -> Tensor:
        """`lt` in place."""
        return write(self, p.lt, other)

    def le_(self: Any, other: Value) -> Tensor:
        """`le` in place."""
        return write(self, p.le, other)

    def gt_(self: Any, other: Value) -> Tensor:
        """`gt` in place."""
        return write(self, p.gt, other)

    def ge_(self: Any, other: Value) -> Tensor:
        """`ge` in place."""
        return write(self, p.ge, other)

    greater_, greater_equal_, less_, less_equal_, not_equal_ = gt_, ge_, lt_, le_, ne_
