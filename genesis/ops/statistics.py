"""Variance, standard deviation, and differences along a dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, require_tensors
from genesis.ir.errors import failure
from genesis.ir.ops import statistics as s
from genesis.ir.types import bool_
from genesis.ops.common import Axis, axis_in
from genesis.ops.out import into
from genesis.ops.reduction import mean, reduce

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["cumulative_trapezoid", "diff", "std", "std_mean", "trapezoid", "trapz", "var", "var_mean"]

Pair = tuple["Tensor", "Tensor"]


def _how(dim: Any, unbiased: Any, correction: float | None, axis: Axis) -> tuple[Axis, float]:
    """(dimensions, correction) of torch's three ways to say them: f(x, True), f(x, dim, True), f(x, correction=1)."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = 1 if unbiased else 0
    return dim if axis is None else axis, 1 if correction is None else correction


def _spread(name: str, op: Any, input: Tensor, dim: Axis, keepdim: bool, correction: float) -> Tensor:
    kind = input.spec.dtype.kind
    if kind != "float":
        raise failure(name, f"only floating-point dtypes are supported, not {input.spec.dtype!r}", [("input", input)],
                      hint="cast the input with .float()")
    return reduce(op, input, dim, keepdim, None, correction)


def var(input: Tensor, dim: Axis = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: float | None = None, axis: Axis = None, keepdims: bool = False,
        out: Tensor | None = None) -> Tensor:
    """Variance over `dim`: squared distances from the mean over (n - correction), correction 1 by default.

    >>> import genesis
    >>> genesis.var(genesis.tensor([1.0, 2.0, 3.0]))
    tensor(1.)
    """
    over, correction = _how(dim, unbiased, correction, axis)
    return into(out, _spread("var", s.var, input, over, keepdim or keepdims, correction))


def std(input: Tensor, dim: Axis = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: float | None = None, axis: Axis = None, keepdims: bool = False,
        out: Tensor | None = None) -> Tensor:
    """Square root of `var`."""
    over, correction = _how(dim, unbiased, correction, axis)
    return into(out, _spread("std", s.std, input, over, keepdim or keepdims, correction))


def var_mean(input: Tensor, dim: Axis = None, unbiased: bool | None = None, keepdim: bool = False, *,
             correction: float | None = None, axis: Axis = None, keepdims: bool = False) -> Pair:
    """(variance, mean) over `dim`."""
    over, correction = _how(dim, unbiased, correction, axis)
    keep = keepdim or keepdims
    return _spread("var_mean", s.var, input, over, keep, correction), mean(input, over, keep)


def std_mean(input: Tensor, dim: Axis = None, unbiased: bool | None = None, keepdim: bool = False, *,
             correction: float | None = None, axis: Axis = None, keepdims: bool = False) -> Pair:
    """(standard deviation, mean) over `dim`."""
    over, correction = _how(dim, unbiased, correction, axis)
    keep = keepdim or keepdims
    return _spread("std_mean", s.std, input, over, keep, correction), mean(input, over, keep)


def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *,
         out: Tensor | None = None) -> Tensor:
    """n times the difference of neighbours along `dim`, after joining `prepend` and `append` to the ends; of bools ≠.

    >>> import genesis
    >>> genesis.diff(genesis.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    if input.spec.ndim == 0:
        raise failure("diff", "diff expects input to be at least one-dimensional", [("input", input)])
    axis = axis_in("diff", dim, input.spec.ndim)
    if n < 0:
        raise failure("diff", f"order must be non-negative but got {n}", [("input", input)])
    for name, end in (("prepend", prepend), ("append", append)):
        if end is not None and end.spec.ndim != input.spec.ndim:
            raise failure("diff", "diff expects prepend or append to be the same dimension as input",
                          [("input", input), (name, end)])
    if n == 0:
        return into(out, input.clone())
    from genesis.ops.parts import cat
    parts = [x for x in (prepend, input, append) if x is not None]
    found = cat(parts, axis) if len(parts) > 1 else input
    for _ in range(n):
        size = found.spec.shape[axis]
        later, earlier = (found.narrow(axis, start, max(size - 1, 0)) for start in (min(1, size), 0))
        found = later ^ earlier if found.spec.dtype is bool_ else later - earlier
    return into(out, found)


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """The integral of y along `dim` by the trapezoidal rule, at the points x or in steps of dx.

    >>> import genesis
    >>> genesis.trapezoid(genesis.tensor([1.0, 2.0, 3.0]))
    tensor(4.)
    """
    axis = axis_in("trapezoid", dim, y.spec.ndim)
    size = y.spec.shape[axis]
    if x is None and y.spec.dtype is not bool_:
        if size == 0:
            return y.sum(axis, dtype=y.spec.dtype)
        return (y.sum(axis) - (y.select(axis, 0) + y.select(axis, size - 1)) * 0.5) * dx
    return _areas("trapezoid", y, x, dx, axis).sum(axis)


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """The integral of y from the first point to each other one, by the trapezoidal rule."""
    axis = axis_in("cumulative_trapezoid", dim, y.spec.ndim)
    return _areas("cumulative_trapezoid", y, x, dx, axis).cumsum(axis)


def _areas(name: str, y: Tensor, x: Tensor | None, dx: float, axis: int) -> Any:
    """The area of each trapezoid: half the sum of neighbours, times their distance."""
    require_tensors(y, x)
    size = y.spec.shape[axis]
    if y.spec.dtype is bool_:
        raise failure(name, "received a bool input for x or y, but bool is not supported", [("y", y)])
    later, earlier = y.narrow(axis, min(1, size), max(size - 1, 0)), y.narrow(
        axis, 0, max(size - 1, 0))
    if x is None:
        return (later + earlier) * (dx / 2)
    if x.spec.dtype is bool_:
        raise failure(name, "received a bool input for x or y, but bool is not supported", [("x", x)])
    if x.spec.ndim == 1 and y.spec.ndim > 1:
        if x.spec.numel != size:
            raise failure(name, f"There must be one x value for each sample point, but got {x.spec.numel} x values "
                          f"and {size} points", [("x", x), ("y", y)])
        x = x.view(-1, *(1,) * (y.spec.ndim - 1 - axis))
        return (later + earlier) * diff(x, dim=0) / 2.0
    widths = diff(x, dim=axis - y.spec.ndim)
    return (later + earlier) * widths / 2.0


trapz = trapezoid


class StatisticsMethods(TensorBase):
    """Variance and differences as methods."""

    __slots__ = ()

    var = var
    std = std
    diff = diff
