"""Reductions, with torch's dtype rules: sums of integers and bools are int64.

Each takes the dimensions as `dim` or by numpy's name `axis`, and `keepdim` or `keepdims`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.autocast_policy import state as autocast
from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.recording import TensorBase, emit, read, wrap, wrap_all
from genesis.ir.errors import failure
from genesis.ir.node import make
from genesis.ir.ops import composite as c
from genesis.ir.ops import indexing, movement
from genesis.ir.ops import reduction as r
from genesis.ir.ops import statistics as s
from genesis.ir.types import DType, int64, uint8
from genesis.ops import return_types
from genesis.ops.common import Axis, axes_in, axis_in, both_tensors, cast
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "count_nonzero", "log_softmax", "logsumexp",
           "max", "mean", "min", "nanmean", "nansum", "prod", "softmax", "sum"]


def reduce(op: Any, input: Tensor, dim: Axis, keepdim: bool, dtype: DType | None = None, *attrs: Any,
           out: Tensor | None = None) -> Tensor:
    """Record a reduction over `dim` of the input in `dtype`, and write it into `out` if that is given."""
    if autocast.policy[0]:
        (input,) = cast_for(op, input)
    node = read(input)
    if dtype is not None:
        node = cast(node, dtype)
    attrs = (axes_in(op.name, dim, input.spec.ndim), bool(keepdim), *attrs)
    result = wrap(emit(op, (node,), attrs, 3))  # only functions of Genesis call this
    return result if out is None else into(out, result)


def _summed(input: Tensor, dtype: DType | None) -> DType | None:
    return dtype if dtype is not None or input.spec.dtype.kind == "float" else int64


def sum(input: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: DType | None = None, axis: Axis = None,
        keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Sum over `dim` (all dimensions by default), 0 of nothing.

    >>> import genesis
    >>> genesis.sum(genesis.ones(2, 3), dim=1)
    tensor([3., 3.])
    """
    return reduce(r.sum, input, dim if axis is None else axis, keepdim or keepdims, _summed(input, dtype), out=out)


def nansum(input: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: DType | None = None, axis: Axis = None,
           keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Sum over `dim` of the elements that are not NaN."""
    target = _summed(input, dtype)
    op = s.nansum if input.spec.dtype.kind == "float" else r.sum
    return reduce(op, input, dim if axis is None else axis, keepdim or keepdims, target, out=out)


def prod(input: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: DType | None = None, axis: Axis = None,
         keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Product over `dim` (all dimensions by default), 1 of nothing."""
    return reduce(r.prod, input, dim if axis is None else axis, keepdim or keepdims, _summed(input, dtype), out=out)


def mean(input: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: DType | None = None, axis: Axis = None,
         keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Arithmetic mean over `dim` (all dimensions by default); floating-point only, NaN of nothing."""
    _must_be_float("mean", input, dtype)
    return reduce(r.mean, input, dim if axis is None else axis, keepdim or keepdims, dtype, out=out)


def nanmean(input: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: DType | None = None, axis: Axis = None,
            keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Arithmetic mean over `dim` of the elements that are not NaN; floating-point only.

    >>> import genesis
    >>> genesis.nanmean(genesis.tensor([1.0, float("nan"), 3.0]))
    tensor(2.)
    """
    _must_be_float("nanmean", input, dtype)
    return reduce(s.nanmean, input, dim if axis is None else axis, keepdim or keepdims, dtype, out=out)


def _must_be_float(name: str, input: Tensor, dtype: DType | None = None) -> None:
    if (dtype or input.spec.dtype).kind != "float":
        raise failure(name, "could not infer output dtype. Input dtype must be floating point", [("input", input)],
                      hint=f"x.float().{name}() or {name}(dtype=genesis.float32)")


def count_nonzero(input: Tensor, dim: Axis = None, *, axis: Axis = None) -> Tensor:
    """Number of elements over `dim` that are not 0, as int64."""
    return reduce(s.count_nonzero, input, dim if axis is None else axis, False)


def amax(input: Tensor, dim: Axis = None, keepdim: bool = False, *, axis: Axis = None, keepdims: bool = False,
         out: Tensor | None = None) -> Tensor:
    """Largest element over `dim`; ties share the gradient."""
    return into(out, _extremum("amax", r.max, input, dim if axis is None else axis, keepdim or keepdims))


def amin(input: Tensor, dim: Axis = None, keepdim: bool = False, *, axis: Axis = None, keepdims: bool = False,
         out: Tensor | None = None) -> Tensor:
    """Smallest element over `dim`; ties share the gradient."""
    return into(out, _extremum("amin", r.min, input, dim if axis is None else axis, keepdim or keepdims))


def _extremum(name: str, op: Any, input: Tensor, dim: Axis, keepdim: bool) -> Tensor:
    empty = input.spec.numel == 0
    if empty and (dim is None or dim == ()):
        raise failure(name, "Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
                      "with the 'dim' argument.", [("input", input)])
    return reduce(op, input, dim, keepdim)


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False, axis: int | None = None,
            keepdims: bool = False, out: tuple[Tensor, Tensor] | None = None) -> return_types.MinMax:
    """Smallest and largest element, over all elements or along one dimension.

    >>> import genesis
    >>> genesis.aminmax(genesis.tensor([1, 5, 3])).max
    tensor(5)
    """
    dim, keepdim = dim if axis is None else axis, keepdim or keepdims
    least, most = (_extremum("aminmax", op, input, dim, keepdim) for op in (r.min, r.max))
    return into(out, return_types.aminmax(least, most))


def _extremes(name: str, arg: Any, input: Tensor, dim: int, keepdim: bool) -> return_types.ValuesIndices:
    """Elements chosen by `arg`, and where they are. `name`: max or min."""
    found = return_types.max if name == "max" else return_types.min
    axis = axis_in(name, dim, input.spec.ndim)
    if input.spec.ndim == 0:
        return found(input.clone(), input.new_zeros((), dtype=int64))
    node = read(input)
    kept = r.reduced_shape(node.type.shape, (axis,), True)
    indices = emit(arg, (node,), (axis, bool(keepdim)))
    values = emit(indexing.gather, (node, indices if keepdim else make(movement.reshape, (indices,), (kept,))), (axis,))
    best = values if keepdim else make(movement.reshape, (values,), (indices.type.shape,))
    return found(*wrap_all([best, indices]))


def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None, axis: int | None = None,
        keepdims: bool = False, out: Any = None) -> Any:
    """Largest element; with `dim` (values, indices) along it; with a tensor the larger of both.

    >>> import genesis
    >>> genesis.max(genesis.tensor([[1, 5], [7, 2]]), dim=1).indices
    tensor([1, 0])
    """
    from genesis.ops.rounding import maximum
    dim, keepdim = dim if axis is None else axis, keepdim or keepdims
    return into(out, _max_or_min("max", r.max, r.argmax, maximum, input, dim, keepdim, other))


def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None, axis: int | None = None,
        keepdims: bool = False, out: Any = None) -> Any:
    """Smallest element; with `dim` (values, indices) along it; with a tensor the smaller of both."""
    from genesis.ops.rounding import minimum
    dim, keepdim = dim if axis is None else axis, keepdim or keepdims
    return into(out, _max_or_min("min", r.min, r.argmin, minimum, input, dim, keepdim, other))


def _max_or_min(name: str, op: Any, arg: Any, of_two: Any, input: Tensor, dim: Any, keepdim: bool,
                other: Tensor | None) -> Any:
    if keepdim and other is None and isinstance(dim, TensorBase):  # else it is the other operand
        dim = dim.__index__()  # type: ignore[attr-defined]
    if other is not None or isinstance(dim, TensorBase):
        return of_two(*both_tensors(name, input, dim if other is None else other))
    both_tensors(name, input, input)
    if dim is None:
        return _extremum(name, op, input, None, False)
    return _extremes(name, arg, input, dim, keepdim)


def _arg(op: Any, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    kind = input.spec
    ndim, numel = kind.ndim, kind.numel
    if dim is None:
        if numel == 0:
            raise failure(op.name, "Expected reduction dim to be specified for input.numel() == 0.",
                          [("input", input)], error=IndexError)
        flat = emit(op, (make(movement.reshape, (read(input),), ((numel,),)),), (0, False))
        return wrap(make(movement.reshape, (flat,), ((1,) * ndim,)) if keepdim else flat)
    axis = axis_in(op.name, dim, ndim)
    if ndim == 0:
        return input.new_zeros((), dtype=int64)
    return wrap(emit(op, (read(input),), (axis, bool(keepdim))))


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None,
           keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Index of the first largest element, over all elements or along `dim`."""
    return into(out, _arg(r.argmax, input, dim if axis is None else axis, keepdim or keepdims))


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None,
           keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Index of the first smallest element, over all elements or along `dim`."""
    return into(out, _arg(r.argmin, input, dim if axis is None else axis, keepdim or keepdims))


def _truth(op: Any, input: Tensor, dim: Axis, keepdim: bool) -> Tensor:
    found = reduce(op, input, dim, keepdim)
    return wrap(cast(read(found), uint8)) if input.spec.dtype is uint8 else found  # torch's one exception


def any(input: Tensor, dim: Axis = None, keepdim: bool = False, *, axis: Axis = None, keepdims: bool = False,
        out: Tensor | None = None) -> Tensor:
    """True if any element over `dim` is not 0."""
    return into(out, _truth(r.any, input, dim if axis is None else axis, keepdim or keepdims))


def all(input: Tensor, dim: Axis = None, keepdim: bool = False, *, axis: Axis = None, keepdims: bool = False,
        out: Tensor | None = None) -> Tensor:
    """True if every element over `dim` is not 0."""
    return into(out, _truth(r.all, input, dim if axis is None else axis, keepdim or keepdims))


def logsumexp(input: Tensor, dim: Axis = None, keepdim: bool = False, *, axis: Axis = None, keepdims: bool = False,
              out: Tensor | None = None) -> Tensor:
    """log Σ exp(x) over `dim`, with the maximum taken out first. Integers become floating-point.

    >>> import genesis
    >>> genesis.logsumexp(genesis.tensor([1000.0, -1000.0]), dim=0)
    tensor(1000.)
    """
    dtype = None if input.spec.dtype.kind == "float" else default_dtype("float")
    return reduce(s.logsumexp, input, dim if axis is None else axis, keepdim or keepdims, dtype, out=out)


def _along(op: Any, input: Tensor, dim: int, dtype: DType | None) -> Tensor:
    if autocast.policy[0]:
        (input,) = cast_for(op, input)
    axis = axis_in(op.name, dim, input.spec.ndim)
    if dtype is None and input.spec.dtype.kind != "float":
        dtype = default_dtype("float")
    node = read(input) if dtype is None else cast(read(input), dtype)
    if input.spec.ndim == 0:
        return wrap(emit(op, (read(wrap(node).reshape(1)),), (0,))).reshape(())
    return wrap(emit(op, (node,), (axis,)))


def softmax(input: Tensor, dim: int, dtype: DType | None = None, *, out: Tensor | None = None) -> Tensor:
    """exp(x) / Σ exp(x) along `dim`."""
    return into(out, _along(c.softmax, input, dim, dtype))


def log_softmax(input: Tensor, dim: int, dtype: DType | None = None, *, out: Tensor | None = None) -> Tensor:
    """log(softmax(x)) along `dim`."""
    return into(out, _along(c.log_softmax, input, dim, dtype))


class ReductionMethods(TensorBase):
    """The reducing methods of a tensor."""

    __slots__ = ()

    sum = sum
    nansum = nansum
    prod = prod
    mean = mean
    nanmean = nanmean
    count_nonzero = count_nonzero
    amax = amax
    amin = amin
    aminmax = aminmax
    max = max
    min = min
    argmax = argmax
    argmin = argmin
    any = any
    all = all
    logsumexp = logsumexp
    softmax = softmax
    log_softmax = log_softmax
