"""LU factors with row exchanges, and what is solved by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import require_tensors
from genesis.ir.errors import failure
from genesis.ir.ops import lu as ops
from genesis.ir.types import float32
from genesis.ops import return_types
from genesis.ops.common import broadcast_shapes, to_dtype
from genesis.ops.creation import empty
from genesis.ops.decompositions import computed, solve_triangular
from genesis.ops.indexing import gather
from genesis.ops.out import into
from genesis.ops.parts import narrow
from genesis.ops.ranges import arange, eye
from genesis.ops.shape import broadcast_to
from genesis.ops.sorting import argsort
from genesis.ops.triangles import tril, triu
from genesis.ops.writing import take_along_dim

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["lu", "lu_factor", "lu_solve", "matrix_exp"]


def lu_factor(A: Tensor, *, pivot: bool = True, out: tuple[Tensor, Tensor] | None = None) -> return_types.LUFactor:
    """L (below the diagonal, ones left out) and U of A in one matrix, and the row exchanges.

    Args:
        A: (*, m, n).
        pivot: must be True: LAPACK always exchanges rows.

    Raises:
        RuntimeError: A is singular, so that U has a zero on its diagonal; `linalg.lu` gives these factors.

    >>> import genesis
    >>> genesis.linalg.lu_factor(genesis.tensor([[0., 2.], [1., 3.]])).pivots
    tensor([2, 2], dtype=genesis.int32)
    """
    return into(out, return_types.linalg_lu_factor(*factors(A, pivot, checked=True)))


def factors(A: Tensor, pivot: bool, *, checked: bool = False) -> tuple[Tensor, Tensor]:
    """LU in one matrix, and the row exchanges; `checked` raises of a singular matrix."""
    if not pivot:
        raise failure("linalg.lu_factor", "LU without pivoting is not implemented on the CPU", [("A", A)])
    found: tuple[Tensor, Tensor] = computed(ops.lu_factor, (A,), (checked,))
    return found


def lu(A: Tensor, *, pivot: bool = True, out: tuple[Tensor, Tensor, Tensor] | None = None) -> return_types.LU:
    """P, L and U with P @ L @ U = A: a permutation, unit lower and upper triangular.

    Args:
        A: (*, m, n).
        pivot: must be True: LAPACK always exchanges rows.

    >>> import genesis
    >>> P, L, U = genesis.linalg.lu(genesis.tensor([[0., 2.], [1., 3.]]))
    >>> P @ L @ U
    tensor([[0., 2.],
            [1., 3.]])
    """
    return into(out, return_types.linalg_lu(*lu_unpack(*factors(A, pivot))))


def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *,
              out: tuple[Tensor, Tensor, Tensor] | None = None) -> return_types.LU:
    """P, L and U from what `lu_factor` gives; what is not unpacked is an empty tensor.

    Args:
        LU_data: (*, m, n).
        LU_pivots: (*, min(m, n)), int32.
    """
    require_tensors(LU_data, LU_pivots)
    m, n = LU_data.spec.shape[-2:]
    k, dtype, device = min(m, n), LU_data.spec.dtype, LU_data.spec.device
    nothing = empty(0, dtype=dtype, device=device)
    if LU_pivots.spec.dtype.name != "int32" and unpack_pivots:
        raise failure("lu_unpack", "LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.",
                      [("LU_pivots", LU_pivots)])
    P = nothing
    if unpack_pivots:
        P = (arange(m, device=device).unsqueeze(-1) == rows(LU_pivots, m).unsqueeze(-2)).to(dtype)
    if not unpack_data:
        return into(out, return_types.lu_unpack(P, nothing, nothing))
    L = tril(narrow(LU_data, -1, 0, k), -1) + eye(m, k, dtype=dtype, device=device)
    return into(out, return_types.lu_unpack(P, L, triu(narrow(LU_data, -2, 0, k))))


def rows(pivots: Tensor, size: int) -> Any:
    """The row of A that each row of L @ U is, (*, size)."""
    return computed(ops.pivots_to_rows, (pivots,), (size,))


def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False,
             out: Tensor | None = None) -> Tensor:
    """X with A @ X = B (or X @ A = B, or with A's transpose), of A's LU factors.

    Args:
        LU, pivots: as `lu_factor` gives them, (*, n, n) and (*, n).
        B: (*, n, k).
        left: False for X @ A = B.
        adjoint: True for Aᵀ in place of A.

    >>> import genesis
    >>> factors = genesis.linalg.lu_factor(genesis.tensor([[0., 2.], [1., 3.]]))
    >>> genesis.linalg.lu_solve(*factors, genesis.tensor([[2.], [4.]])).tolist()
    [[1.0], [1.0]]
    """
    require_tensors(B, LU, pivots)
    if LU.spec.ndim < 2 or LU.spec.shape[-1] != LU.spec.shape[-2]:
        raise failure("linalg.lu_solve", "the factors must be of square matrices", [("LU", LU)])
    if not left:
        return into(out, lu_solve(LU, pivots, B.mT, adjoint=not adjoint).mT)
    place = rows(pivots, LU.spec.shape[-1]).unsqueeze(-1)
    if adjoint:
        found = solve_triangular(LU.mT, solve_triangular(LU.mT, B, upper=False), upper=True, unitriangular=True)
        return into(out, take_along_dim(found, argsort(place, -2), -2))
    chosen = _batched_rows(B, place)
    found = solve_triangular(LU, chosen, upper=False, unitriangular=True)
    return into(out, solve_triangular(LU, found, upper=True))


def _batched_rows(B: Tensor, place: Tensor) -> Tensor:
    """The rows of B in this order; batches broadcast."""
    batch = broadcast_shapes(B.spec.shape[:-2], place.spec.shape[:-2])
    shape = (*batch, *B.spec.shape[-2:])
    return gather(broadcast_to(B, shape), -2, broadcast_to(place, shape))


def matrix_exp(A: Tensor) -> Tensor:
    """Σ Aᵏ / k! of square matrices.

    >>> import genesis
    >>> genesis.linalg.matrix_exp(genesis.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    low = A.spec.dtype.kind == "float" and A.spec.dtype.itemsize < 4
    return to_dtype(computed(ops.matrix_exp, (to_dtype(A, float32) if low else A,)), A.spec.dtype)
