"""Decompositions and solvers, of float32 and float64 batches.

A matrix without one raises when it is computed: at once inside a `try` that takes RuntimeErrors, as programs go on with
another matrix or solver there; elsewhere when the result is read.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, record
from genesis.ir.errors import failure
from genesis.ir.ops import decompositions as d
from genesis.ir.types import Device, cpu, float32, float64, int32, int64
from genesis.ops import return_types
from genesis.ops.common import broadcast_shapes, or_raised
from genesis.ops.out import into
from genesis.ops.shape import expand, reshape, transpose, unsqueeze

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

_EPS = {float32: 2.0**-23, float64: 2.0**-52}


def computed(op: Any, tensors: tuple[Tensor, ...], attrs: tuple = ()) -> Any:
    """The op on the host, its results on the tensors' device."""
    device = tensors[0].spec.device
    for x in tensors:
        if not isinstance(x, TensorBase):
            raise TypeError(f"linalg.{op.name}: expected a tensor, not {type(x).__name__}")
        if x.spec.device is not device:
            raise failure(f"linalg.{op.name}", "expected all tensors on one device",
                          [(f"operand {i}", y) for i, y in enumerate(tensors)])
    if device is not cpu:
        _say_once(device)
        tensors = tuple(x.to(cpu) for x in tensors)
    try:
        found = record(op, tensors, attrs)
    except RuntimeError as error:
        named = [(f"operand {i}", x) for i, x in enumerate(tensors)]
        raise failure(f"linalg.{op.name}", str(error), named) from None
    or_raised(op, found)
    if device is cpu:
        return found
    return tuple(x.to(device) for x in found) if isinstance(found, tuple) else found.to(device)


def _say_once(device: Device) -> None:
    warnings.warn(f"matrix decompositions of tensors on {device} are computed on the CPU, which copies "
                  "them there and back", RuntimeWarning, stacklevel=4)


def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Inverse of square matrices.

    Args:
        A: (*, n, n).

    Raises:
        RuntimeError: A is not square; or, when it is computed, singular.

    >>> import genesis
    >>> genesis.linalg.inv(genesis.tensor([[2., 0.], [0., 4.]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return into(out, computed(d.inv, (A,)))


def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """X with A @ X = B (or X @ A = B), for square matrices A.

    Args:
        A: (*, n, n).
        B: (*, n, k), or vectors (*, n) where that is A's shape without its last dimension, or one vector.
        left: False for X @ A = B.

    >>> import genesis
    >>> genesis.linalg.solve(genesis.tensor([[2., 0.], [0., 4.]]), genesis.tensor([2., 2.]))
    tensor([1.0000, 0.5000])
    """
    vectors = B.spec.ndim == 1 or (A.spec.ndim - 1 == B.spec.ndim and B.spec.shape == A.spec.shape[:-1])
    right = unsqueeze(B, -1) if vectors else B
    if not left:
        if vectors:
            raise failure("linalg.solve", "left=False needs matrices B", [("A", A), ("B", B)])
        return into(out, transpose(solve(transpose(A, -1, -2), transpose(B, -1, -2)), -1, -2))
    A, right = _batched(A, right)
    found = computed(d.solve, (A, right))
    return into(out, reshape(found, found.spec.shape[:-1]) if vectors else found)


def _batched(*matrices: Tensor) -> list[Tensor]:
    """The matrices with their batches broadcast."""
    unbatched = any(x.spec.ndim < 2 for x in matrices)
    if unbatched:
        return list(matrices)
    batch = broadcast_shapes(*(x.spec.shape[:-2] for x in matrices))
    return [expand(x, (*batch, *x.spec.shape[-2:])) for x in matrices]


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False,
                     out: Tensor | None = None) -> Tensor:
    """X with A @ X = B (or X @ A = B), for triangular matrices A, of which only that triangle is read.

    Args:
        A: (*, n, n).
        B: (*, n, k).
        upper: which triangle.
        left: False for X @ A = B.
        unitriangular: take A's diagonal for ones.
    """
    A, B = _batched(A, B)
    if left:
        return into(out, computed(d.solve_triangular, (A, B), (upper, unitriangular)))
    turned = computed(d.solve_triangular, (transpose(A, -1, -2), transpose(B, -1, -2)), (not upper, unitriangular))
    return into(out, transpose(turned, -1, -2))


def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Determinants of square matrices.

    >>> import genesis
    >>> genesis.linalg.det(genesis.tensor([[1., 2.], [3., 4.]]))
    tensor(-2.)
    """
    return into(out, computed(d.det, (A,)))


def slogdet(A: Tensor, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.SlogDet:
    """Sign and logarithm of the absolute value of determinants."""
    return into(out, return_types.slogdet(*computed(d.slogdet, (A,))))


def cholesky(A: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """L with L @ L.mT = A, lower triangular, for symmetric positive definite A; with `upper` its transpose.

    >>> import genesis
    >>> genesis.linalg.cholesky(genesis.tensor([[4., 0.], [0., 9.]]))
    tensor([[2., 0.],
            [0., 3.]])
    """
    return into(out, computed(d.cholesky, (A,), (upper,)))


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False,
                out: tuple[Tensor, Tensor] | None = None) -> return_types.CholeskyEx:
    """`cholesky`, which reports matrices that are not positive definite and does not raise.

    Args:
        A: (*, n, n), symmetric; float32 or float64.
        upper: the factor's transpose.
        check_errors: raise after all, as `cholesky` does.

    Returns:
        (L, info): info is int32 of A's batch, 0 where L is a factor, else the order of the first leading minor that is
        not positive definite, and L is not to be used.

    >>> import genesis
    >>> genesis.linalg.cholesky_ex(genesis.tensor([[1., 2.], [2., 1.]])).info
    tensor(2, dtype=genesis.int32)
    """
    if check_errors:
        from genesis.ops.creation import zeros
        L = cholesky(A, upper=upper)
        found: Any = (L, zeros(A.spec.shape[:-2], dtype=int32, device=A.spec.device))
    else:
        found = computed(d.cholesky_ex, (A,), (upper,))
    return into(out, return_types.linalg_cholesky_ex(*found))


def inv_ex(A: Tensor, *, check_errors: bool = False, out: tuple[Tensor, Tensor] | None = None
           ) -> return_types.InverseEx:
    """`inv`, which reports singular matrices and does not raise.

    Args:
        A: (*, n, n); float32 or float64.
        check_errors: raise after all, as `inv` does.

    Returns:
        (inverse, info): info is int32 of A's batch, 0 where there is an inverse, else which column's pivot was 0.

    >>> import genesis
    >>> genesis.linalg.inv_ex(genesis.ones(2, 2)).info
    tensor(2, dtype=genesis.int32)
    """
    if check_errors:
        from genesis.ops.creation import zeros
        found: Any = (inv(A), zeros(A.spec.shape[:-2], dtype=int32, device=A.spec.device))
    else:
        found = computed(d.inv_ex, (A,))
    return into(out, return_types.linalg_inv_ex(*found))


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False,
             out: tuple[Tensor, Tensor] | None = None) -> return_types.SolutionEx:
    """`solve`, which reports singular matrices and does not raise.

    Args:
        A: (*, n, n); float32 or float64.
        B: as for `solve`.
        left: False for X @ A = B.
        check_errors: raise after all, as `solve` does.

    Returns:
        (result, info): info is int32 of the batch, 0 where there is a solution, else which column's pivot was 0.

    >>> import genesis
    >>> genesis.linalg.solve_ex(genesis.ones(2, 2), genesis.ones(2)).info
    tensor(2, dtype=genesis.int32)
    """
    if check_errors:
        from genesis.ops.creation import zeros
        solved = solve(A, B, left=left)
        batch = A.spec.shape[:-2] if solved.spec.ndim < 2 else broadcast_shapes(A.spec.shape[:-2],
                                                                               solved.spec.shape[:-2])
        return into(out, return_types.linalg_solve_ex(solved, zeros(batch, dtype=int32, device=A.spec.device)))
    vectors = B.spec.ndim == 1 or (A.spec.ndim - 1 == B.spec.ndim and B.spec.shape == A.spec.shape[:-1])
    right = unsqueeze(B, -1) if vectors else B
    if not left:
        if vectors:
            raise failure("linalg.solve_ex", "left=False needs matrices B", [("A", A), ("B", B)])
        turned = solve_ex(transpose(A, -1, -2), transpose(B, -1, -2))
        return into(out, return_types.linalg_solve_ex(transpose(turned.result, -1, -2), turned.info))
    A, right = _batched(A, right)
    found, info = computed(d.solve_ex, (A, right))
    found = reshape(found, found.spec.shape[:-1]) if vectors else found
    return into(out, return_types.linalg_solve_ex(found, info))


def qr(A: Tensor, mode: str = "reduced", *, out: tuple[Tensor, Tensor] | None = None) -> return_types.QR:
    """Q with orthonormal columns and upper triangular R with Q @ R = A.

    Args:
        A: (*, m, n).
        mode: "reduced" (k = min(m, n) columns), "complete" (m columns) or "r" (no Q).
    """
    if mode not in ("reduced", "complete", "r"):
        raise failure("linalg.qr", f"mode is 'reduced', 'complete' or 'r', not {mode!r}", [("A", A)])
    q, r = computed(d.qr, (A,), (mode == "complete",))
    if mode == "r":
        from genesis.ops.creation import empty
        q = empty(0, dtype=A.spec.dtype, device=A.spec.device)
    return into(out, return_types.linalg_qr(q, r))


def eigh(A: Tensor, UPLO: str = "L", *, out: tuple[Tensor, Tensor] | None = None) -> return_types.Eigh:
    """Eigenvalues and eigenvectors of symmetric matrices; UPLO says which triangle is read."""
    if UPLO.upper() not in ("L", "U"):
        raise failure("linalg.eigh", f"UPLO is 'L' or 'U', not {UPLO!r}", [("A", A)])
    return into(out, return_types.linalg_eigh(*computed(d.eigh, (A,), (UPLO.upper() == "U",))))


def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor:
    """The eigenvalues that `eigh` gives."""
    return into(out, eigh(A, UPLO).eigenvalues)


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None,
        out: tuple[Tensor, Tensor, Tensor] | None = None) -> return_types.SVD:
    """U @ diag(S) @ Vh = A with orthogonal U and Vh.

    Args:
        A: (*, m, n).
        full_matrices: square U and Vh; else only min(m, n) columns and rows.
        driver: of a CUDA solver; has no effect.
    """
    return into(out, return_types.linalg_svd(*computed(d.svd, (A,), (full_matrices,))))


def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor:
    """Singular values in descending order."""
    return into(out, svd(A, False).S)


def pinv(A: Tensor, rcond: float | None = None, hermitian: bool = False, *, rtol: float | None = None,
         atol: float | None = None, out: Tensor | None = None) -> Tensor:
    """Moore and Penrose's inverse.

    Args:
        A: (*, m, n).
        rcond: rtol's older name.
        hermitian: A is symmetric.
        rtol: singular values up to rtol times the largest count as 0; max(m, n) · eps by default.
        atol: not supported beside None and 0.
    """
    if atol:
        raise failure("linalg.pinv", "atol is not supported", [("A", A)], hint="use rtol")
    chosen = rtol if rtol is not None else rcond
    return into(out, computed(d.pinv, (A,), (-1.0 if chosen is None else float(chosen), hermitian)))


def matrix_rank(A: Tensor, tol: float | None = None, hermitian: bool = False, *, atol: float | None = None,
                rtol: float | None = None, out: Tensor | None = None) -> Tensor:
    """The number of singular values larger than max(atol, rtol · the largest); rtol is max(m, n) · eps by default."""
    values = eigvalsh(A).abs() if hermitian else svdvals(A)
    absolute = tol if tol is not None else atol
    relative: Any = rtol
    if rtol is None:
        relative = 0.0 if absolute is not None else max(A.spec.shape[-2:]) * _EPS[A.spec.dtype]
    largest = values.amax(-1) if values.spec.shape[-1] else values.sum(-1)
    limit = largest * relative
    if absolute is not None:
        from genesis.ops.rounding import maximum
        limit = maximum(limit, limit * 0 + absolute)
    return into(out, (values > unsqueeze(limit, -1)).sum(-1))


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> return_types.LstSq:
    """X with the least ‖A @ X - B‖, of several the shortest.

    Args:
        A: (*, m, n).
        B: (*, m, k), or vectors (*, m).
        rcond: singular values up to rcond times the largest count as 0.
        driver: LAPACK's name: "gels" gives no rank, "gelsy" no residuals, only "gelsd" and "gelss" singular values.
            Whatever it is, the pseudo-inverse is used, so that all ranks work.

    Returns:
        (solution, residuals, rank, singular_values); without m > n there are no residuals. Gradients flow through the
        first two.
    """
    from genesis.ops.creation import empty
    from genesis.ops.linalg import matmul
    vectors = A.spec.ndim - 1 == B.spec.ndim
    right = unsqueeze(B, -1) if vectors else B
    solution = matmul(pinv(A, rcond), right)
    *_, m, n = A.spec.shape
    nothing = empty(0, dtype=A.spec.dtype, device=A.spec.device)
    residuals = (matmul(A, solution) - right).square().sum(-2) if m > n and driver != "gelsy" else nothing
    ranked = driver in (None, "gelsy", "gelsd", "gelss")
    rank = matrix_rank(A, rtol=rcond) if ranked else nothing.to(int64)
    values = svdvals(A.detach()) if driver in ("gelsd", "gelss") else nothing
    return return_types.linalg_lstsq(solution.squeeze(-1) if vectors else solution, residuals, rank, values)
