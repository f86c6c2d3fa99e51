"""torch's methods for matrix functions: `legacy.py`'s. Tensors find them here when first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase
from genesis.linalg import legacy

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor
    from genesis.ops.return_types import QR, LegacySVD, SlogDet, Solution


class MatrixMethods(TensorBase):
    """Matrix functions as methods. Each is the function of its name in `genesis`."""

    __slots__ = ()

    def det(self: Any) -> Tensor:
        """Determinants."""
        return legacy.det(self)

    def slogdet(self: Any) -> SlogDet:
        """Sign and logarithm of the absolute value of determinants."""
        return legacy.slogdet(self)

    def logdet(self: Any) -> Tensor:
        """Logarithms of determinants."""
        return legacy.logdet(self)

    def inverse(self: Any) -> Tensor:
        """Inverse matrices."""
        return legacy.inverse(self)

    def matrix_exp(self: Any) -> Tensor:
        """Σ Aᵏ / k!."""
        return legacy.matrix_exp(self)

    def pinverse(self: Any, rcond: float = 1e-15) -> Tensor:
        """Moore and Penrose's inverse."""
        return legacy.pinverse(self, rcond)

    def cholesky(self: Any, upper: bool = False) -> Tensor:
        """The lower (or upper) triangular factor."""
        return legacy.cholesky(self, upper)

    def cholesky_solve(self: Any, L: Tensor, upper: bool = False) -> Tensor:
        """X with A @ X = this, of A's Cholesky factor."""
        return legacy.cholesky_solve(self, L, upper)

    def cholesky_inverse(self: Any, upper: bool = False) -> Tensor:
        """A's inverse, of its Cholesky factor."""
        return legacy.cholesky_inverse(self, upper)

    def qr(self: Any, some: bool = True) -> QR:
        """Orthonormal columns, and an upper triangle."""
        return legacy.qr(self, some)

    def svd(self: Any, some: bool = True, compute_uv: bool = True) -> LegacySVD:
        """U, S and V."""
        return legacy.svd(self, some, compute_uv)

    def lu(self: Any, pivot: bool = True, get_infos: bool = False) -> Any:
        """LU factors in one matrix, and row exchanges."""
        return legacy.lu(self, pivot, get_infos)

    def lu_solve(self: Any, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
        """X with A @ X = this, of A's LU factors."""
        return legacy.lu_solve(self, LU_data, LU_pivots)

    def triangular_solve(self: Any, A: Tensor, upper: bool = True, transpose: bool = False,
                         unitriangular: bool = False) -> Solution:
        """(X with A @ X = this, a copy of A), for triangular A."""
        return legacy.triangular_solve(self, A, upper, transpose, unitriangular)
