"""torch's top-level names of matrix functions, from before `linalg`; some have other arguments or results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from genesis.ir.errors import failure
from genesis.linalg import lu_factors
from genesis.linalg.lu_factors import lu_unpack, matrix_exp
from genesis.ops import decompositions as d
from genesis.ops import return_types
from genesis.ops.common import required
from genesis.ops.comparison import where
from genesis.ops.decompositions import det, inv, slogdet, solve_triangular
from genesis.ops.diagonals import diagonal
from genesis.ops.linalg import matmul
from genesis.ops.out import into
from genesis.ops.random import randn
from genesis.ops.ranges import eye
from genesis.ops.shape import clone, expand, transpose

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

inverse = inv


def cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`linalg.cholesky`."""
    return d.cholesky(input, upper=upper, out=out)


def logdet(input: Tensor) -> Tensor:
    """The logarithm of determinants: NaN of negative ones, -inf of 0.

    >>> import genesis
    >>> genesis.logdet(genesis.eye(3))
    tensor(0.)
    """
    sign, absolute = slogdet(input)
    return where(sign < 0, math.nan, absolute)


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`linalg.pinv`, for which singular values up to rcond times the largest count as 0."""
    return d.pinv(input, rcond)


def qr(input: Tensor, some: bool = True, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.QR:
    """`linalg.qr`; some=False gives the complete one."""
    return into(out, return_types.qr(*d.qr(input, "reduced" if some else "complete")))


def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *,
        out: tuple[Tensor, Tensor, Tensor] | None = None) -> return_types.LegacySVD:
    """U, S and V with U @ diag(S) @ V.mT = input; some=False gives square U and V.

    With compute_uv=False U and V are zeros.
    """
    U, S, Vh = d.svd(input, not some)
    if not compute_uv:
        m, n = input.spec.shape[-2:]
        batch = input.spec.shape[:-2]
        U, Vh = input.new_zeros((*batch, m, m)), input.new_zeros((*batch, n, n))
    return into(out, return_types.svd(U, S, transpose(Vh, -1, -2)))


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """(LU, pivots) as `linalg.lu_factor` gives them, of singular matrices too; with get_infos also, for each matrix,
    where from 1 the first zero on U's diagonal is, or 0."""
    LU, pivots = lu_factors.factors(A, pivot)
    if not get_infos:
        return LU, pivots
    zero = diagonal(LU.detach(), dim1=-2, dim2=-1) == 0
    return LU, pivots, where(zero.any(-1), zero.int().argmax(-1) + 1, 0).int()


def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`linalg.lu_solve` with the right-hand side first."""
    return lu_factors.lu_solve(LU_data, LU_pivots, input, out=out)


def triangular_solve(input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False,
                     unitriangular: bool = False) -> return_types.Solution:
    """(X with A @ X = input (or with Aᵀ), a copy of A), for triangular A."""
    matrix = A.mT if transpose else A
    found = solve_triangular(matrix, input, upper=upper != transpose, unitriangular=unitriangular)
    return return_types.triangular_solve(found, clone(expand(A, (*found.spec.shape[:-2], *A.spec.shape[-2:]))))


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """X with A @ X = B, of A's factor by `cholesky`.

    >>> import genesis
    >>> genesis.cholesky_solve(genesis.tensor([[4.]]), genesis.tensor([[2.]])).item()
    1.0
    """
    lower = L.mT if upper else L
    half = solve_triangular(lower, B, upper=False)
    return into(out, solve_triangular(lower.mT, half, upper=True))


def cholesky_inverse(L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The inverse of A, of A's factor by `cholesky`.

    Raises:
        RuntimeError: the factor has a zero on its diagonal.
    """
    if L.spec.ndim < 2 or L.spec.shape[-1] != L.spec.shape[-2]:
        raise failure("cholesky_inverse", "the factors must be square matrices", [("L", L)])
    one = eye(L.spec.shape[-1], dtype=L.spec.dtype, device=L.spec.device)
    L = required("cholesky_inverse", L, diagonal(L.detach(), dim1=-2, dim2=-1) != 0,
                 "a diagonal element is zero, so that the matrix is singular")
    return into(out, cholesky_solve(one, L, upper))


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> return_types.LegacySVD:
    """The q largest singular values of A (less M, broadcast), about, and their vectors.

    By random projection and niter power iterations (Halko, Martinsson and Tropp 2009, algorithm 5.1).

    >>> import genesis
    >>> [round(s, 3) for s in genesis.svd_lowrank(genesis.eye(4), 2).S.tolist()]
    [1.0, 1.0]
    """
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    A = A if M is None else A - M
    wide = A.spec.shape[-2] < A.spec.shape[-1]
    A = A.mT if wide else A
    drawn = randn((A.spec.shape[-1], q), dtype=A.spec.dtype, device=A.spec.device)
    Q = d.qr(matmul(A, drawn)).Q
    for _ in range(niter):
        Q = d.qr(matmul(A, d.qr(matmul(A.mT, Q)).Q)).Q
    U, S, Vh = d.svd(matmul(Q.mT, A), False)
    U, V = matmul(Q, U), Vh.mT
    return return_types.svd(V, S, U) if wide else return_types.svd(U, S, V)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> return_types.LegacySVD:
    """`svd_lowrank` of the columns' deviations from their means: the q principal directions are V's columns."""
    m, n = A.spec.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise failure("pca_lowrank", f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}",
                      [("A", A)], error=ValueError)
    if niter < 0:
        raise failure("pca_lowrank", f"niter(={niter}) must be non-negative integer", error=ValueError)
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


__all__ = ["cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu", "lu_solve",
           "lu_unpack", "matrix_exp", "pca_lowrank", "pinverse", "qr", "slogdet", "svd", "svd_lowrank",
           "triangular_solve"]
