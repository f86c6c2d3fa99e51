"""Rounding, and keeping values within bounds."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeAlias

from genesis.frontend.recording import TensorBase, emit, read, wrap
from genesis.ir.errors import failure
from genesis.ir.numbers import number
from genesis.ir.ops import arithmetic as a
from genesis.ir.ops import bounds as b
from genesis.ir.ops import floats as f
from genesis.ir.ops import pointwise as p
from genesis.ops.common import both_tensors, operands, pointwise_op
from genesis.ops.inplace import write, write_back
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

    Value: TypeAlias = Tensor | bool | int | float

__all__ = ["ceil", "clamp", "clamp_max", "clamp_min", "clip", "fix", "floor", "fmax", "fmin", "frac", "maximum",
           "minimum", "nan_to_num", "round", "trunc"]


def floor(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The largest integer ≤ x, element by element."""
    found: Tensor = pointwise_op(p.floor, input)
    return found if out is None else into(out, found)


def ceil(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smallest integer ≥ x, element by element."""
    found: Tensor = pointwise_op(p.ceil, input)
    return found if out is None else into(out, found)


def trunc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x without its fraction, element by element."""
    found: Tensor = pointwise_op(p.trunc, input)
    return found if out is None else into(out, found)


def frac(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The fraction of x, with the sign of x; floating-point only."""
    found: Tensor = pointwise_op(a.frac, input)
    return found if out is None else into(out, found)


def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """The nearest integer (or multiple of 10^-decimals), ties to even.

    >>> import genesis
    >>> genesis.round(genesis.tensor([0.5, 1.5, 2.25])), genesis.round(genesis.tensor([123.456]), decimals=1)
    (tensor([0., 2., 2.]), tensor([123.5000]))
    """
    if isinstance(decimals, bool) or not hasattr(decimals, "__index__"):
        raise failure("round", f"argument 'decimals' must be int, not {type(decimals).__name__}", [("input", input)],
                      error=TypeError)
    decimals = operator.index(decimals)
    if not decimals:
        found: Tensor = pointwise_op(p.round, input)
        return found if out is None else into(out, found)
    return into(out, wrap(emit(a.round_to, operands("round", (input,)), (decimals,))))


def maximum(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The larger; NaN if either is. Ties share the gradient."""
    return into(out, pointwise_op(p.maximum, *both_tensors("maximum", input, other)))


def minimum(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smaller; NaN if either is. Ties share the gradient."""
    return into(out, pointwise_op(p.minimum, *both_tensors("minimum", input, other)))


def fmax(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The larger; where one is NaN, the other."""
    return into(out, pointwise_op(b.fmax, *both_tensors("fmax", input, other)))


def fmin(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smaller; where one is NaN, the other."""
    return into(out, pointwise_op(b.fmin, *both_tensors("fmin", input, other)))


def clamp(input: Tensor, min: Value | None = None, max: Value | None = None, *, out: Tensor | None = None) -> Tensor:
    """min(max(x, min), max), bounds may be numbers or tensors; NaN stays NaN. On a bound the gradient is the input's.

    >>> import genesis
    >>> genesis.clamp(genesis.tensor([-2.0, 0.5, 3.0]), 0, 1)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if min is None and max is None:
        raise failure("clamp", "At least one of 'min' or 'max' must not be None", [("input", input)])
    if min is None or max is None:
        return into(out, clamp_min(input, min) if max is None else clamp_max(input, max))  # type: ignore[arg-type]
    found: Tensor = pointwise_op(b.clamp, input, min, max)
    return found if out is None else into(out, found)


def clamp_min(input: Tensor, min: Value, *, out: Tensor | None = None) -> Tensor:
    """max(x, min); on the bound the gradient is the input's."""
    found: Tensor = pointwise_op(b.clamp_min, input, min)
    return found if out is None else into(out, found)


def clamp_max(input: Tensor, max: Value, *, out: Tensor | None = None) -> Tensor:
    """min(x, max); on the bound the gradient is the input's."""
    found: Tensor = pointwise_op(b.clamp_max, input, max)
    return found if out is None else into(out, found)


def nan_to_num(input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None, *,
               out: Tensor | None = None) -> Tensor:
    """x with numbers in place of NaN (0), +∞ (the dtype's largest number) and -∞ (its smallest).

    >>> import genesis
    >>> genesis.nan_to_num(genesis.tensor([float("nan"), float("inf"), 1.0]), posinf=9.0)
    tensor([0., 9., 1.])
    """
    dtype = input.spec.dtype
    if dtype.kind != "float":
        return into(out, input.clone())
    values = (nan or 0.0, dtype.max if posinf is None else posinf, dtype.min if neginf is None else neginf)
    return into(out, wrap(emit(f.nan_to_num, (read(input), *(number(float(x)) for x in values)))))


fix, clip = trunc, clamp


class RoundingMethods(TensorBase):
    """Rounding and bounds as methods."""

    __slots__ = ()

    floor = floor
    ceil = ceil
    trunc = trunc
    fix = fix
    frac = frac
    round = round
    maximum = maximum
    minimum = minimum
    fmax = fmax
    fmin = fmin
    clamp = clamp
    clip = clip
    clamp_min = clamp_min
    clamp_max = clamp_max
    nan_to_num = nan_to_num

    def floor_(self: Any) -> Tensor:
        """`floor` in place."""
        return write(self, p.floor)

    def ceil_(self: Any) -> Tensor:
        """`ceil` in place."""
        return write(self, p.ceil)

    def trunc_(self: Any) -> Tensor:
        """`trunc` in place."""
        return write(self, p.trunc)

    def frac_(self: Any) -> Tensor:
        """`frac` in place."""
        return write(self, a.frac)

    def round_(self: Any, *, decimals: int = 0) -> Tensor:
        """`round` in place."""
        return write_back("round_", self, lambda: read(round(self, decimals=decimals)))

    def clamp_(self: Any, min: Value | None = None, max: Value | None = None) -> Tensor:
        """`clamp` in place."""
        return write_back("clamp_", self, lambda: read(clamp(self, min, max)))

    def clamp_min_(self: Any, min: Value) -> Tensor:
        """`clamp_min` in place."""
        return write(self, b.clamp_min, min)

    def clamp_max_(self: Any, max: Value) -> Tensor:
        """`clamp_max` in place."""
        return write(self, b.clamp_max, max)

    def nan_to_num_(self: Any, nan: float | None = None, posinf: float | None = None,
                    neginf: float | None = None) -> Tensor:
        """`nan_to_num` in place."""
        return write_back("nan_to_num_", self, lambda: read(nan_to_num(self, nan, posinf, neginf)))

    fix_, clip_ = trunc_, clamp_
