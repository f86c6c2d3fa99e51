"""`genesis.array_api.linalg`: the standard's extension for matrices, in its own signatures."""

from __future__ import annotations

from typing import Any

import genesis
from genesis import Tensor
from genesis.array_api.elementwise import matmul, promoted, tensordot, vecdot
from genesis.array_api.manipulation import matrix_transpose
from genesis.linalg import det, eigh, eigvalsh, inv, matrix_power, slogdet, svdvals

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of symmetric positive definite matrices."""
    return genesis.linalg.cholesky(x, upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three numbers."""
    return genesis.linalg.cross(*promoted(x1, x2), dim=axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices."""
    return genesis.diagonal(x, offset, -2, -1)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norms of matrices: "fro", "nuc", 1, 2, inf, and the negative of these numbers."""
    return genesis.linalg.matrix_norm(x, ord, keepdim=keepdims)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The number of singular values above rtol times the largest."""
    return genesis.linalg.matrix_rank(x, rtol=rtol)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of elements of two vectors."""
    return genesis.outer(*promoted(x1, x2))


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverse of matrices; singular values below rtol times the largest are taken for 0."""
    return genesis.linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """Orthogonal and upper triangular factors (Q, R); `mode` is "reduced" or "complete"."""
    return genesis.linalg.qr(x, mode)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution of x1 @ y = x2: x2 is a vector only if it has one dimension."""
    one, other = promoted(x1, x2)
    if other.ndim == 1:
        return genesis.linalg.solve(one, other[:, None].expand(*one.shape[:-2], -1, 1))[..., 0]
    batch = genesis.broadcast_shapes(one.shape[:-2], other.shape[:-2])  # so that no matrix is taken for many vectors
    return genesis.linalg.solve(one.expand(*batch, *one.shape[-2:]), other.expand(*batch, *other.shape[-2:]))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """Singular vectors and values (U, S, Vh)."""
    return genesis.linalg.svd(x, full_matrices)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sums of diagonals; small integers add up in int64."""
    return diagonal(x, offset=offset).sum(-1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Norms of vectors, along axes or of all elements."""
    return genesis.linalg.vector_norm(x, ord, axis, keepdim=keepdims)
