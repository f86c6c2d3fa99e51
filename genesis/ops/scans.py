"""Scans along a dimension: running sums, products, extremes, logarithms of sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.autocast_policy import state as autocast
from genesis.frontend.recording import TensorBase, emit, read, record, wrap
from genesis.ir.errors import failure
from genesis.ir.ops import scan
from genesis.ir.types import DType, int64
from genesis.ops import return_types
from genesis.ops.common import axis_in, cast
from genesis.ops.inplace import write_back
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]


def _accumulated(op: Any, input: Tensor, dim: int | None, dtype: DType | None, axis: int | None) -> Tensor:
    dim = axis if dim is None else dim
    if dim is None:
        raise failure(op.name, "the dimension is missing", [("input", input)], hint="x.cumsum(dim=0)", error=TypeError)
    if autocast.policy[0]:
        (input,) = cast_for(op, input)
    place = axis_in(op.name, dim, input.spec.ndim)
    if dtype is None and input.spec.dtype.kind != "float":
        dtype = int64
    node = read(input) if dtype is None else cast(read(input), dtype)
    return wrap(emit(op, (node,), (place, False, 0))) if input.spec.ndim else wrap(node)


def cumsum(input: Tensor, dim: int | None = None, *, dtype: DType | None = None, axis: int | None = None,
           out: Tensor | None = None) -> Tensor:
    """Sums of the elements up to each one along `dim`; of integers and bools as int64.

    Args:
        input: any shape.
        dtype: of the result and of the sums.

    Raises:
        IndexError: there is no such dimension.

    >>> import genesis
    >>> genesis.cumsum(genesis.tensor([1, 2, 3]), 0)
    tensor([1, 3, 6])
    """
    return into(out, _accumulated(scan.cumsum, input, dim, dtype, axis))


def cumprod(input: Tensor, dim: int | None = None, *, dtype: DType | None = None, axis: int | None = None,
            out: Tensor | None = None) -> Tensor:
    """Products of the elements up to each one along `dim`; of integers and bools as int64.

    >>> import genesis
    >>> genesis.cumprod(genesis.tensor([1., 2., 3.]), 0)
    tensor([1., 2., 6.])
    """
    return into(out, _accumulated(scan.cumprod, input, dim, dtype, axis))


def _running(op: Any, found: Any, input: Tensor, dim: int) -> Any:
    """The result, as a `found`, of an op along a dimension."""
    place = axis_in(op.name, dim, input.spec.ndim)
    if not input.spec.ndim:
        return found(input.clone(), input.new_zeros((), dtype=int64))
    return found(*record(op, (input,), (place,)))


def cummax(input: Tensor, dim: int, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.ValuesIndices:
    """The largest element up to each one along `dim`, and where it is: the last of equal ones.

    Returns:
        (values, indices), both of the input's shape; NaN from the first NaN on.

    Raises:
        IndexError: there is no such dimension.

    >>> import genesis
    >>> genesis.cummax(genesis.tensor([1, 3, 2, 3]), 0).indices
    tensor([0, 1, 1, 3])
    """
    return into(out, _running(scan.cummax, return_types.cummax, input, dim))


def cummin(input: Tensor, dim: int, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.ValuesIndices:
    """The smallest element up to each one along `dim`, and where it is: the last of equal ones.

    >>> import genesis
    >>> genesis.cummin(genesis.tensor([3, 1, 2, 1]), 0).values
    tensor([3, 1, 1, 1])
    """
    return into(out, _running(scan.cummin, return_types.cummin, input, dim))


def logcumsumexp(input: Tensor, dim: int, *, out: Tensor | None = None) -> Tensor:
    """log Σ exp of the elements up to each one along `dim`, without overflow; floating-point only.

    Raises:
        IndexError: there is no such dimension.
        RuntimeError: the input is not floating-point.

    >>> import genesis
    >>> genesis.logcumsumexp(genesis.tensor([1000., 1000.]), 0)
    tensor([1000.0000, 1000.6932])
    """
    place = axis_in("logcumsumexp", dim, input.spec.ndim)
    if input.spec.dtype.kind != "float":
        raise failure("logcumsumexp", "the input must be floating-point", [("input", input)], hint="x.float()")
    if not input.spec.ndim:
        return into(out, input.clone())
    return into(out, wrap(emit(scan.logcumsumexp, (read(input),), (place, False, 0))))


class ScanMethods(TensorBase):
    """The scanning methods of a tensor."""

    __slots__ = ()

    cumsum = cumsum
    cumprod = cumprod
    cummax = cummax
    cummin = cummin
    logcumsumexp = logcumsumexp

    def cumsum_(self: Any, dim: int, *, dtype: DType | None = None) -> Tensor:
        """`cumsum` in place."""
        return write_back("cumsum_", self, lambda: read(cumsum(self, dim, dtype=dtype)))

    def cumprod_(self: Any, dim: int, *, dtype: DType | None = None) -> Tensor:
        """`cumprod` in place."""
        return write_back("cumprod_", self, lambda: read(cumprod(self, dim, dtype=dtype)))
