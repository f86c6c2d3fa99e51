"""Reductions and scans, with torch's dtype rules: sums of integers and bools are int64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from genesis.amp.policy import cast_for
from genesis.amp.policy import state as autocast
from genesis.ir.errors import failure
from genesis.ir.ops import composite as c
from genesis.ir.ops import reduction as r
from genesis.ir.types import DType, int64, uint8
from genesis.ops.common import Axis, axes_in, axis_in, cast, default_dtype
from genesis.recording import TensorBase, emit, read, wrap

if TYPE_CHECKING:
    from genesis.tensor import Tensor


class ValuesIndices(NamedTuple):
    """Extremes along a dimension and where they are."""

    values: Tensor
    indices: Tensor


def _reduce(op: Any, input: Tensor, dim: Axis, keepdim: bool, dtype: DType | None = None) -> Tensor:
    if autocast.dtypes is not None:
        (input,) = cast_for(op.name, input)
    node = read(input)
    if dtype is not None:
        node = cast(node, dtype)
    axes = axes_in(op.name, dim, input.type.ndim)
    return wrap(emit(op, (node,), (axes, bool(keepdim))))


def _summed(input: Tensor, dtype: DType | None) -> DType | None:
    return dtype if dtype is not None or input.type.dtype.kind == "float" else int64


def sum(input: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: DType | None = None, axis: Axis = None,
        keepdims: bool = False) -> Tensor:
    """Sum over `dim` (all dimensions by default). `axis` and `keepdims` are numpy's names.

    >>> import genesis
    >>> genesis.sum(genesis.ones(2, 3), dim=1)
    tensor([3., 3.])
    """
    return _reduce(r.sum, input, dim if axis is None else axis, keepdim or keepdims, _summed(input, dtype))


def prod(input: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Product over `dim` (all dimensions by default)."""
    return _reduce(r.prod, input, dim, keepdim, _summed(input, dtype))


def mean(input: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: DType | None = None, axis: Axis = None,
         keepdims: bool = False) -> Tensor:
    """Arithmetic mean over `dim` (all dimensions by default); floating-point only."""
    if dtype is None and input.type.dtype.kind != "float":
        raise failure("mean", "could not infer output dtype. Input dtype must be floating point", [("input", input)],
                      hint="x.float().mean() or mean(dtype=genesis.float32)")
    return _reduce(r.mean, input, dim if axis is None else axis, keepdim or keepdims, dtype)


def amax(input: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """Largest element over `dim`; ties share the gradient."""
    return _reduce(r.max, input, dim, keepdim)


def amin(input: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """Smallest element over `dim`; ties share the gradient."""
    return _reduce(r.min, input, dim, keepdim)


def _extremes(name: str, arg: Any, input: Tensor, dim: int, keepdim: bool) -> ValuesIndices:
    axis = axis_in(name, dim, input.type.ndim)
    if input.type.ndim == 0:
        return ValuesIndices(input.clone(), input.new_zeros((), dtype=int64))
    indices = wrap(emit(arg, (read(input),), (axis, True)))
    values = input.gather(axis, indices)
    return ValuesIndices(values, indices) if keepdim else ValuesIndices(values.squeeze(axis), indices.squeeze(axis))


def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Largest element; with `dim` (values, indices) along it; with a tensor the larger of both.

    >>> import genesis
    >>> genesis.max(genesis.tensor([[1, 5], [7, 2]]), dim=1).indices
    tensor([1, 0])
    """
    if dim is None:
        return amax(input)
    if isinstance(dim, TensorBase):
        from genesis.ops.math import maximum
        return maximum(input, dim)  # type: ignore[arg-type]
    return _extremes("max", r.argmax, input, dim, keepdim)


def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Smallest element; with `dim` (values, indices) along it; with a tensor the smaller of both."""
    if dim is None:
        return amin(input)
    if isinstance(dim, TensorBase):
        from genesis.ops.math import minimum
        return minimum(input, dim)  # type: ignore[arg-type]
    return _extremes("min", r.argmin, input, dim, keepdim)


def _arg(op: Any, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if dim is None:
        flat = wrap(emit(op, (read(input.reshape(-1)),), (0, False)))
        return flat.reshape((1,) * input.type.ndim) if keepdim else flat
    axis = axis_in(op.name, dim, input.type.ndim)
    if input.type.ndim == 0:
        return input.new_zeros((), dtype=int64)
    return wrap(emit(op, (read(input),), (axis, bool(keepdim))))


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first largest element, over all elements or along `dim`."""
    return _arg(r.argmax, input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first smallest element, over all elements or along `dim`."""
    return _arg(r.argmin, input, dim, keepdim)


def _truth(op: Any, input: Tensor, dim: Axis, keepdim: bool) -> Tensor:
    found = _reduce(op, input, dim, keepdim)
    return wrap(cast(read(found), uint8)) if input.type.dtype is uint8 else found  # torch's one exception


def any(input: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """True if any element over `dim` is not 0."""
    return _truth(r.any, input, dim, keepdim)


def all(input: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """True if every element over `dim` is not 0."""
    return _truth(r.all, input, dim, keepdim)


def var(input: Tensor, dim: Axis = None, *, correction: float = 1, unbiased: bool | None = None,
        keepdim: bool = False) -> Tensor:
    """Variance over `dim`: squared distances from the mean over (n - correction)."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = 1 if unbiased else 0
    axes = axes_in("var", dim, input.type.ndim)
    count = 1
    for a in axes:
        count *= input.type.shape[a]
    centred = input - mean(input, axes, keepdim=True)
    total = sum(centred * centred, axes, keepdim)
    return total / (float(count - correction) if count > correction else 0.0)


def std(input: Tensor, dim: Axis = None, *, correction: float = 1, unbiased: bool | None = None,
        keepdim: bool = False) -> Tensor:
    """Square root of `var`."""
    return var(input, dim, correction=correction, unbiased=unbiased, keepdim=keepdim).sqrt()


def norm(input: Tensor, p: Any = 2.0, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """Vector norm: (Σ |x|^p)^(1/p); p may be inf, -inf, 0 or "fro" (2)."""
    if p in ("fro", None, 2, 2.0):
        return sum(input * input, dim, keepdim).sqrt()
    size = input.abs()
    if p == float("inf"):
        return amax(size, dim, keepdim)
    if p == float("-inf"):
        return amin(size, dim, keepdim)
    if p == 0:
        return sum((input != 0).to(input.type.dtype), dim, keepdim)
    if p == 1:
        return sum(size, dim, keepdim)
    return sum(size**p, dim, keepdim) ** (1.0 / p)


def logsumexp(input: Tensor, dim: Axis, keepdim: bool = False) -> Tensor:
    """log Σ exp(x) over `dim`, with the maximum taken out first."""
    if input.type.dtype.kind != "float":
        input = wrap(cast(read(input), default_dtype("float")))
    peak = amax(input, dim, keepdim=True).detach()
    peak = peak.masked_fill(peak.isinf(), 0.0)
    total = sum((input - peak).exp(), dim, keepdim=True).log() + peak
    return total if keepdim else total.reshape(sum(input, dim).shape)


def _scan(op: Any, input: Tensor, dim: int, dtype: DType | None) -> Tensor:
    if autocast.dtypes is not None:
        (input,) = cast_for(op.name, input)
    axis = axis_in(op.name, dim, input.type.ndim)
    target = _summed(input, dtype)
    node = read(input) if target is None else cast(read(input), target)
    return wrap(emit(op, (node,), (axis,))) if input.type.ndim else wrap(node)


def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Sums of the elements up to each one along `dim`."""
    return _scan(r.cumsum, input, dim, dtype)


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Products of the elements up to each one along `dim`."""
    return _scan(r.cumprod, input, dim, dtype)


def _along(op: Any, input: Tensor, dim: int, dtype: DType | None) -> Tensor:
    if autocast.dtypes is not None:
        (input,) = cast_for(op.name, input)
    axis = axis_in(op.name, dim, input.type.ndim)
    if dtype is None and input.type.dtype.kind != "float":
        dtype = default_dtype("float")
    node = read(input) if dtype is None else cast(read(input), dtype)
    if input.type.ndim == 0:
        return wrap(emit(op, (read(wrap(node).reshape(1)),), (0,))).reshape(())
    return wrap(emit(op, (node,), (axis,)))


def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """exp(x) / Σ exp(x) along `dim`."""
    return _along(c.softmax, input, dim, dtype)


def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) along `dim`."""
    return _along(c.log_softmax, input, dim, dtype)


class ReductionMethods(TensorBase):
    """The reducing methods of a tensor."""

    __slots__ = ()

    sum = sum
    prod = prod
    mean = mean
    amax = amax
    amin = amin
    max = max
    min = min
    argmax = argmax
    argmin = argmin
    any = any
    all = all
    var = var
    std = std
    norm = norm
    logsumexp = logsumexp
    cumsum = cumsum
    cumprod = cumprod
    softmax = softmax
    log_softmax = log_softmax
