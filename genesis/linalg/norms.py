"""Norms of vectors and matrices, and torch.linalg's forms of a few products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import require_tensors
from genesis.ir.errors import failure
from genesis.ir.types import DType
from genesis.ops.diagonals import diagonal as _diagonal
from genesis.ops.linalg import matmul
from genesis.ops.norms import matrix_norm, vector_norm
from genesis.ops.out import into
from genesis.ops.products import cross_along
from genesis.ops.shape import flatten

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["cross", "diagonal", "matmul", "matrix_norm", "norm", "vecdot", "vector_norm"]


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None,
         out: Tensor | None = None) -> Tensor:
    """`vector_norm` over one dimension (or, without ord and dim, of all elements), `matrix_norm` over two."""
    require_tensors(A)
    if isinstance(dim, (tuple, list)) and len(dim) == 1:
        dim = dim[0]
    if dim is None and ord is None:
        found = vector_norm(flatten(A), 2, None, False, dtype=dtype)
        return into(out, found.reshape((1,) * A.spec.ndim if keepdim else ()))
    matrices = isinstance(dim, (tuple, list)) or (dim is None and A.spec.ndim == 2) or isinstance(ord, str)
    if dim is None and A.spec.ndim not in (1, 2):
        raise failure("linalg.norm", "if dim is not specified but ord is, the input must be 1D or 2D", [("A", A)])
    if matrices:
        axes = (-2, -1) if dim is None else dim
        return into(out, matrix_norm(A, "fro" if ord is None else ord, axes, keepdim, dtype=dtype))
    return into(out, vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype))


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Sum of products along a dimension, operands broadcast."""
    return into(out, (x * y).sum(dim))


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Vector product along a dimension of size 3, operands broadcast."""
    return into(out, cross_along("linalg.cross", input, other, dim))


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """`genesis.diagonal` of the last two dimensions."""
    return _diagonal(A, offset, dim1, dim2)
