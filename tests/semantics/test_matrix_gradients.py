"""Gradients of factors, solutions and determinants are torch's, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis

A = np.random.default_rng(0).standard_normal((2, 4, 4)) + 3 * np.eye(4)
B = np.random.default_rng(1).standard_normal((2, 4, 3))
POSITIVE = A @ A.transpose(0, 2, 1) + np.eye(4)
WIDE, TALL = B.transpose(0, 2, 1).copy(), B

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "inv": (lambda L, a: L.linalg.inv(a), (A,)),
    "det": (lambda L, a: L.linalg.det(a), (A,)),
    "slogdet": (lambda L, a: L.linalg.slogdet(a)[1], (A,)),
    "solve": (lambda L, a, b: L.linalg.solve(a, b), (A, B)),
    "solve_triangular": (lambda L, a, b: L.linalg.solve_triangular(a, b, upper=True), (A, B)),
    "solve_triangular with ones": (
        lambda L, a, b: L.linalg.solve_triangular(a, b, upper=False, unitriangular=True), (A, B)),
    "cholesky": (lambda L, a: L.linalg.cholesky(a @ a.mT), (A,)),
    "cholesky upper": (lambda L, a: L.linalg.cholesky(a @ a.mT, upper=True), (A,)),
    "qr of tall": (lambda L, a: (lambda f: f[0] @ f[1] * 2 + f[0] @ f[1].abs())(L.linalg.qr(a)), (TALL,)),
    "qr of wide": (lambda L, a: L.linalg.qr(a)[1].square(), (WIDE,)),
    "eigvalsh": (lambda L, a: L.linalg.eigvalsh(a + a.mT), (POSITIVE,)),
    "eigenvectors": (lambda L, a: L.linalg.eigh(a + a.mT)[1].square(), (POSITIVE,)),
    "singular values": (lambda L, a: L.linalg.svdvals(a), (TALL,)),
    "singular vectors of tall": (lambda L, a: L.linalg.svd(a, full_matrices=False)[0].square(), (TALL,)),
    "singular vectors of wide": (lambda L, a: L.linalg.svd(a, full_matrices=False)[2].square(), (WIDE,)),
    "pinv of tall": (lambda L, a: L.linalg.pinv(a), (TALL,)),
    "pinv of wide": (lambda L, a: L.linalg.pinv(a), (WIDE,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_is_torchs(name: str) -> None:
    """Of a sum whose terms have different weights, so that no two errors cancel."""
    function, arrays = FUNCTIONS[name]
    found: list[list[np.ndarray]] = []
    for library in (genesis, torch):
        operands = [library.tensor(x, dtype=library.float64, requires_grad=True) for x in arrays]  # type: ignore
        y = function(library, *operands)
        weights = np.random.default_rng(2).uniform(0.5, 1.5, tuple(y.shape))
        (y * library.tensor(weights)).sum().backward()  # type: ignore[attr-defined]
        found.append([np.asarray(x.grad.tolist()) for x in operands])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
