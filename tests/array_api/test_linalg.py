"""The linear algebra extension beside numpy's: names, results with names, stacks of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from genesis import array_api as xp

RANDOM = np.random.default_rng(0)
A = RANDOM.standard_normal((2, 3, 3))
POSITIVE = A @ A.swapaxes(-1, -2) + 3 * np.eye(3)
TALL = RANDOM.standard_normal((2, 4, 3))
V = RANDOM.standard_normal((2, 3))

CALLS: dict[str, Any] = {
    "cholesky": lambda m, a: m.linalg.cholesky(a(POSITIVE)),
    "cholesky upper": lambda m, a: m.linalg.cholesky(a(POSITIVE), upper=True),
    "cross": lambda m, a: m.linalg.cross(a(V), a(V[::-1].copy())),
    "det": lambda m, a: m.linalg.det(a(A)), "inv": lambda m, a: m.linalg.inv(a(A)),
    "diagonal": lambda m, a: m.linalg.diagonal(a(TALL), offset=-1),
    "eigvalsh": lambda m, a: m.linalg.eigvalsh(a(POSITIVE)),
    "eigenvalues": lambda m, a: m.linalg.eigh(a(POSITIVE)).eigenvalues,
    **{f"matrix_norm {ord}": lambda m, a, ord=ord: m.linalg.matrix_norm(a(TALL), ord=ord, keepdims=True)
       for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)},
    "matrix_power": lambda m, a: m.linalg.matrix_power(a(A), -2),
    "matrix_rank": lambda m, a: m.linalg.matrix_rank(a(A), rtol=0.1),
    "matrix_transpose": lambda m, a: m.linalg.matrix_transpose(a(TALL)),
    "outer": lambda m, a: m.linalg.outer(a(V[0]), a(V[1])), "pinv": lambda m, a: m.linalg.pinv(a(TALL)),
    "pinv cut": lambda m, a: m.linalg.pinv(a(TALL), rtol=0.5),
    "slogdet": lambda m, a: m.linalg.slogdet(a(A)).logabsdet,
    "solve": lambda m, a: m.linalg.solve(a(A), a(TALL[:, :3])),
    "solve one matrix": lambda m, a: m.linalg.solve(a(A), a(TALL[0, :3])),
    "solve a vector": lambda m, a: m.linalg.solve(a(A), a(V[0])), "svdvals": lambda m, a: m.linalg.svdvals(a(TALL)),
    "singular values": lambda m, a: m.linalg.svd(a(TALL), full_matrices=False).S,
    "trace": lambda m, a: m.linalg.trace(a(TALL), offset=1),
    **{f"vector_norm {ord} {axis}": lambda m, a, ord=ord, axis=axis: m.linalg.vector_norm(a(TALL), axis=axis, ord=ord)
       for ord in (0, 1, 2, 3.5, np.inf, -np.inf) for axis in (None, 1, (0, 2))},
    "vecdot": lambda m, a: m.linalg.vecdot(a(V), a(V[0])),
    "tensordot": lambda m, a: m.linalg.tensordot(a(A), a(A[0]), axes=2),
    "matmul": lambda m, a: m.linalg.matmul(a(A), a(A)),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_gives_what_numpy_gives(name: str) -> None:
    want, got = CALLS[name](np, lambda x: x), CALLS[name](xp, lambda x: xp.asarray(x.copy()))
    assert tuple(got.shape) == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9, atol=1e-11)


def test_factors_have_names() -> None:
    q, r = (qr := xp.linalg.qr(xp.asarray(TALL), mode="complete")).Q, qr.R
    assert q.shape == (2, 4, 4) and r.shape == (2, 4, 3)
    np.testing.assert_allclose((q @ r).numpy(), TALL, atol=1e-12)
    u, s, vh = (svd := xp.linalg.svd(xp.asarray(TALL), full_matrices=False)).U, svd.S, svd.Vh
    np.testing.assert_allclose(((u * s[:, None, :]) @ vh).numpy(), TALL, atol=1e-12)
    values, vectors = (eigh := xp.linalg.eigh(xp.asarray(POSITIVE))).eigenvalues, eigh.eigenvectors
    np.testing.assert_allclose(POSITIVE @ vectors.numpy(), (vectors * values[:, None, :]).numpy(), atol=1e-10)


def test_a_trace_of_small_integers_adds_up_in_int64() -> None:
    x = xp.full((200, 200), 100, dtype=xp.int8)
    assert xp.linalg.trace(x).dtype is xp.int64 and xp.linalg.trace(x).tolist() == 20000
