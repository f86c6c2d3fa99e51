"""Norms of vectors and matrices, and torch.norm, which is both."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure
from genesis.ir.ops import statistics as s
from genesis.ir.types import DType
from genesis.ops.common import Axis, axis_in
from genesis.ops.decompositions import inv, svdvals
from genesis.ops.out import into
from genesis.ops.reduction import reduce
from genesis.ops.shape import movedim, unsqueeze

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["norm"]


def norm(input: Tensor, p: Any = "fro", dim: Axis = None, keepdim: bool = False, dtype: DType | None = None, *,
         axis: Axis = None, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """Vector norm over `dim` (all dimensions by default): (Σ |x|^p)^(1/p); p may be ±inf, 0 or "fro" (2).

    >>> import genesis
    >>> genesis.norm(genesis.tensor([3.0, 4.0]))
    tensor(5.)
    """
    dim = dim if axis is None else axis
    if p == "nuc":
        return matrix_norm(input, "nuc", (-2, -1) if dim is None else tuple(dim), keepdim or keepdims, out=out)  # type: ignore[arg-type]
    if p in ("fro", None):
        p = 2.0
    if isinstance(p, str):
        raise failure("norm", f"p must be a number, 'fro' or 'nuc', not {p!r}", [("input", input)])
    return reduce(s.vector_norm, input, dim, keepdim or keepdims, dtype, float(p), out=out)


def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None,
                out: Tensor | None = None) -> Tensor:
    """(Σ |x|^ord)^(1/ord) over `dim`, over all elements by default.

    Args:
        x: floating point.
        ord: a number, ±inf (the largest and smallest |x|) or 0 (how many are not 0).
        dim: one dimension, or several.
        keepdim: keep the dimensions with size 1.
        dtype: cast to it first.

    >>> import genesis
    >>> genesis.linalg.vector_norm(genesis.tensor([[3., 4.], [6., 8.]]), dim=1)
    tensor([ 5., 10.])
    """
    if x.spec.dtype.kind != "float" and dtype is None:
        raise failure("linalg.vector_norm", f"expected a floating point tensor as input, got {x.spec.dtype!r}",
                      [("x", x)], hint="cast it with .float()")
    return reduce(s.vector_norm, x, dim, keepdim, dtype, float(ord), out=out)


def matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: DType | None = None,
                out: Tensor | None = None) -> Tensor:
    """Norm of matrices.

    Args:
        A: floating point, at least two dimensions.
        ord: "fro" (root of the sum of squares), "nuc" (sum of singular values), inf and -inf (largest and smallest
            row sum of |A|), 1 and -1 (the same of columns), 2 and -2 (largest and smallest singular value).
        dim: the rows' and the columns' dimension.
        keepdim: keep the two dimensions with size 1.
        dtype: cast to it first.

    >>> import genesis
    >>> genesis.linalg.matrix_norm(genesis.tensor([[1., -2.], [3., 4.]]), 1)
    tensor(6.)
    """
    if dtype is not None:
        A = A.to(dtype)
    if A.spec.dtype.kind != "float":
        raise failure("linalg.matrix_norm", f"expected a floating point tensor as input, got {A.spec.dtype!r}",
                      [("A", A)])
    if isinstance(dim, int) or len(dim) != 2:
        raise failure("linalg.matrix_norm", f"dim must be a 2-tuple, got {dim}", [("A", A)])
    rows, columns = (axis_in("linalg.matrix_norm", d, A.spec.ndim) for d in dim)
    if rows == columns:
        raise failure("linalg.matrix_norm", f"dims must be different, got {tuple(dim)}", [("A", A)])
    sizes = (A.spec.shape[rows], A.spec.shape[columns])
    if ord == "fro":
        return into(out, vector_norm(A, 2, (rows, columns), keepdim))
    if ord in ("nuc", 2, -2):
        values = svdvals(movedim(A, (rows, columns), (-2, -1)))
        if ord == 2 and 0 in sizes:
            ord = "nuc"  # nothing, as the sum of no value is
        found = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    elif ord in (math.inf, -math.inf, 1, -1):
        summed, left = (columns, rows) if abs(ord) == math.inf else (rows, columns)
        sums = A.abs().sum(summed, keepdim=True)
        if ord > 0 and sums.spec.shape[left] == 0:
            sums = sums.sum(left, keepdim=True)
        found = (sums.amax(left, keepdim=True) if ord > 0 else sums.amin(left, keepdim=True)).squeeze((rows, columns))
    else:
        raise failure("linalg.matrix_norm", f"order {ord} is not supported", [("A", A)],
                      hint="'fro', 'nuc', inf, -inf, 1, -1, 2 or -2", error=RuntimeError)
    if keepdim:
        for axis in sorted((rows, columns)):
            found = unsqueeze(found, axis)
    return into(out, found)


def cond(A: Tensor, p: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Condition number: the norm times the inverse's norm, by default the ratio of extreme singular values."""
    if p in (None, 2, -2):
        values = svdvals(A)
        first, last = values[..., 0], values[..., -1]
        return into(out, last / first if p == -2 else first / last)
    return into(out, matrix_norm(A, p) * matrix_norm(inv(A), p))


class NormMethods(TensorBase):
    """torch.norm as a method."""

    __slots__ = ()

    norm = norm
