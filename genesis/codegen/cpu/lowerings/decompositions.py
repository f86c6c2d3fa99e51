"""Matrix decompositions: torch's LAPACK calls. A matrix that has none raises torch's LinAlgError, a RuntimeError."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering

_linalg = torch.linalg


def _solve_triangular(a: Tensor, b: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    return _linalg.solve_triangular(a, b, upper=upper, unitriangular=unitriangular)


def _qr(a: Tensor, complete: bool) -> tuple[Tensor, ...]:
    return tuple(_linalg.qr(a, "complete" if complete else "reduced"))


def _eigh(a: Tensor, upper: bool) -> tuple[Tensor, ...]:
    return tuple(_linalg.eigh(a, "U" if upper else "L"))


def _svd(a: Tensor, full_matrices: bool) -> tuple[Tensor, ...]:
    return tuple(_linalg.svd(a, full_matrices))


def _pinv(a: Tensor, rtol: float, hermitian: bool) -> Tensor:
    return _linalg.pinv(a, hermitian=hermitian) if rtol < 0 else _linalg.pinv(a, rtol=rtol, hermitian=hermitian)


def _lu_factor(a: Tensor, checked: bool) -> tuple[Tensor, ...]:
    factors, pivots, zeros = _linalg.lu_factor_ex(a)
    if checked and (found := zeros[zeros > 0]).numel():
        raise RuntimeError(f"linalg.lu_factor: U[{found[0]},{found[0]}] is zero: the matrix is singular, and lu_solve "
                           "would divide by it")
    return factors, pivots


def _fresh(function: Any) -> Lowering:
    return Lowering(function, "fresh")


def _rows(pivots: Tensor, size: int) -> Tensor:
    """The place of each column's 1 in the permutation matrix."""
    if not size:
        return pivots.new_empty(pivots.shape, dtype=torch.int64)
    square = pivots.new_empty((*pivots.shape[:-1], size, pivots.shape[-1]), dtype=torch.float32)
    return torch.lu_unpack(square, pivots, unpack_data=False)[0].argmax(-2)


DECOMPOSITIONS: dict[str, Lowering] = {
    "inv_ex": _fresh(lambda a: tuple(_linalg.inv_ex(a))),
    "solve_ex": _fresh(lambda a, b: tuple(_linalg.solve_ex(a, b))),
    "cholesky_ex": _fresh(lambda a, upper: tuple(_linalg.cholesky_ex(a, upper=upper))),
    "inv": _fresh(lambda a: _linalg.inv(a)),
    "solve": _fresh(lambda a, b: _linalg.solve(a, b)),
    "solve_triangular": _fresh(_solve_triangular),
    "det": _fresh(lambda a: _linalg.det(a)),
    "slogdet": _fresh(lambda a: tuple(_linalg.slogdet(a))),
    "cholesky": _fresh(lambda a, upper: _linalg.cholesky(a, upper=upper)),
    "qr": _fresh(_qr),
    "eigh": _fresh(_eigh),
    "lu_factor": _fresh(_lu_factor),
    "matrix_exp": _fresh(lambda a: torch.matrix_exp(a)),
    "pivots_to_rows": _fresh(_rows),
    "svd": _fresh(_svd),
    "pinv": _fresh(_pinv),
}
