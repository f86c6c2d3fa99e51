"""Matrix functions by torch's older names and as methods, beside torch's; opinfo has the samples and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import genesis


def matrices(*shape, seed=0):
    """Well-conditioned matrices, of both libraries."""
    values = np.random.default_rng(seed).normal(size=shape)
    if shape[-1] == shape[-2]:
        values = values + 3 * np.eye(shape[-1])
    return genesis.tensor(values), torch.tensor(values)


CALLS = {
    "det": lambda x: x.det(), "slogdet": lambda x: x.slogdet(), "logdet": lambda x: (x @ x.mT).logdet(),
    "inverse": lambda x: x.inverse(), "pinverse": lambda x: x.pinverse(),
    "matrix_exp": lambda x: (x * 0.1).matrix_exp(),
    "cholesky": lambda x: (x @ x.mT).cholesky(), "upper": lambda x: (x @ x.mT).cholesky(upper=True),
    "cholesky_solve": lambda x: x.cholesky_solve((x @ x.mT).cholesky()),
    "cholesky_inverse": lambda x: (x @ x.mT).cholesky().cholesky_inverse(), "lu": lambda x: x.lu(),
    "svd": lambda x: x.svd().S, "no_vectors": lambda x: x.svd(compute_uv=False),
    "triangular_solve": lambda x: x.triangular_solve(x, upper=False),
    "transposed": lambda x: x.triangular_solve(x, transpose=True, unitriangular=True),
    "lu_solve": lambda x: x.lu_solve(*x.lu()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_methods_are_torchs(call):
    found, wanted = (call(x) for x in matrices(2, 4, 4))
    for x, y in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted)), strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape, some", [((4, 4), True), ((5, 3), False), ((3, 5), True)])
def test_factors_multiply_to_the_matrix(shape, some):
    x, like = matrices(*shape)
    q, r = x.qr(some)
    u, s, v = x.svd(some)
    k = min(shape)
    assert tuple(q.shape) == tuple(like.qr(some).Q.shape) and tuple(v.shape) == tuple(like.svd(some).V.shape)
    np.testing.assert_allclose((q @ r).numpy(), like.numpy(), atol=1e-12)
    np.testing.assert_allclose((u[:, :k] * s @ v[:, :k].mT).numpy(), like.numpy(), atol=1e-12)


def test_a_matrix_of_low_rank_is_found_by_projection():
    a, b = matrices(20, 3)[0], matrices(12, 3, seed=1)[0]
    x = a @ b.mT
    u, s, v = genesis.svd_lowrank(x, 3)
    np.testing.assert_allclose((u * s @ v.mT).numpy(), x.numpy(), atol=1e-9)
    u, s, v = genesis.pca_lowrank(x, 3)
    np.testing.assert_allclose((u * s @ v.mT).numpy(), (x - x.mean(0)).numpy(), atol=1e-9)


def test_the_logarithm_of_a_negative_determinant_is_nan():
    for lib in (genesis, torch):
        x = lib.tensor([[0.0, 1.0], [1.0, 0.0]])
        assert np.isnan(lib.logdet(x).item()) and lib.logdet(lib.zeros(2, 2)).item() == -np.inf


@pytest.mark.parametrize("call", [
    lambda lib: lib.linalg.lu_factor(lib.ones(3, 3), pivot=False), lambda lib: lib.linalg.tensorinv(lib.ones(2, 3)),
    lambda lib: lib.linalg.matrix_exp(lib.ones(2, 3)), lambda lib: lib.linalg.tensorsolve(lib.ones(2, 3), lib.ones(2)),
    lambda lib: lib.cholesky_inverse(lib.ones(3)), lambda lib: lib.linalg.vander(lib.ones(3), N=0),
])
def test_what_torch_refuses_is_refused(call):
    for lib in (genesis, torch):
        with pytest.raises(RuntimeError):
            call(lib)


def test_second_derivative_of_the_exponential():
    x = matrices(3, 3)[0].mul(0.1).requires_grad_()
    assert genesis.autograd.gradgradcheck(genesis.matrix_exp, (x,))


def test_small_integers_stay_small_where_a_size_of_1_is_stretched():
    x, y = ([lib.ones(*shape, dtype=lib.int8) for lib in (genesis, torch)] for shape in ((1, 2), (3, 4)))
    ours, theirs = (lib.tensordot(a, b, dims=([0], [0])) for lib, a, b in zip((genesis, torch), x, y, strict=True))
    assert ours.dtype is genesis.int8 and ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_what_least_squares_gives_is_up_to_the_driver(driver):
    (x, a), (y, b) = matrices(5, 3), matrices(5, 2, seed=1)
    x, a = x.requires_grad_(), a.requires_grad_()
    ours, theirs = genesis.linalg.lstsq(x, y, driver=driver), torch.linalg.lstsq(a, b, driver=driver)
    for found, wanted in zip(ours, theirs, strict=True):
        assert tuple(found.shape) == tuple(wanted.shape)
        assert found.requires_grad is wanted.requires_grad or not wanted.numel()
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("ord", [None, 1, -1, 2, -2, float("inf"), "fro", "nuc"])
def test_norms_and_condition_numbers_of_each_order(ord) -> None:
    a = [[4.0, 1.0, 0.5], [-2.0, 3.0, 1.0], [0.0, 1.0, -5.0]]
    ours, theirs = genesis.tensor(a, dtype=genesis.float64), torch.tensor(a, dtype=torch.float64)
    assert genesis.linalg.norm(ours, ord).item() == pytest.approx(torch.linalg.norm(theirs, ord).item(), rel=1e-12)
    assert genesis.linalg.cond(ours, ord).item() == pytest.approx(torch.linalg.cond(theirs, ord).item(), rel=1e-9)


SINGULAR = {
    "square": [[1.0, 2.0], [2.0, 4.0]], "zero": [[0.0, 0.0], [0.0, 0.0]], "wide": [[0.0, 1.0, 2.0], [0.0, 3.0, 4.0]],
    "tall": [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]], "one of two": [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 4.0]]],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SINGULAR)
def test_factors_of_a_singular_matrix_are_refused_where_systems_are_solved_by_them(name):
    """torch raises from `linalg.lu_factor` alone; `lu` gives the factors, and says where the first zero is."""
    a, b = genesis.tensor(SINGULAR[name]), torch.tensor(SINGULAR[name])
    for lib, x in ((genesis, a), (torch, b)):
        with pytest.raises(RuntimeError, match=r"linalg.lu_factor.*U\[\d,\d\] is zero"):
            lib.linalg.lu_factor(x).pivots.tolist()
        try:
            lib.linalg.lu_factor(x)
            pytest.fail("it was factored")
        except RuntimeError as error:
            assert "is zero" in str(error)
        regular = lib.linalg.lu_factor(lib.stack([lib.eye(2), lib.tensor([[1.0, 2.0], [3.0, 4.0]])]))
        assert lib.equal(regular.pivots, lib.tensor([[1, 2], [2, 2]], dtype=lib.int32))
    for found, wanted in ((genesis.linalg.lu(a), torch.linalg.lu(b)), (genesis.lu(a), torch.lu(b)),
                          (genesis.lu(a, get_infos=True), torch.lu(b, get_infos=True))):
        for x, y in zip(found, wanted, strict=True):
            assert str(x.dtype).split(".")[1] == str(y.dtype).split(".")[1]
            np.testing.assert_array_equal(x.numpy(), y.numpy())


def test_a_singular_factor_has_no_inverse():
    for lib in (genesis, torch):
        L = lib.tensor([[[1.0, 0.0], [2.0, 3.0]], [[1.0, 0.0], [2.0, 0.0]]])
        with pytest.raises(RuntimeError, match=r"diagonal element.* is zero"):
            lib.cholesky_inverse(L).sum().item()
