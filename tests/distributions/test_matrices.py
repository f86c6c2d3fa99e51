"""Distributions of matrices: their densities' gradients are torch's, and samples have the moments of the densities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

COUNT = 20000
COVARIANCE = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])
OTHER = np.array([[1.0, -0.2, 0.1], [-0.2, 1.5, 0.4], [0.1, 0.4, 0.8]])


def within_errors(values: np.ndarray, mean: Any) -> None:
    """The mean over the first axis is this one, in six standard errors."""
    assert (np.abs(values.mean(0) - mean) <= 6 * values.std(0) / len(values)**0.5 + 1e-12).all()


@pytest.mark.parametrize("given", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_wishart_by_each_of_its_matrices(given: str) -> None:
    """Properties, log_prob and its gradients, of a batch of matrices and degrees of freedom."""
    def values(library: Any) -> list[Any]:
        matrix = np.stack([COVARIANCE, OTHER])
        matrix = library.tensor(np.linalg.cholesky(matrix) if given == "scale_tril" else matrix, requires_grad=True)
        df = library.tensor([[3.5], [7.0], [4.0]], dtype=library.float64, requires_grad=True)
        x = library.tensor(np.stack([OTHER, COVARIANCE]), requires_grad=True)
        of = library.distributions.Wishart(df, **{given: matrix})
        found = of.log_prob(x)
        found.sum().backward()
        wide = of.expand((4, 3, 2))
        asked = [of.mean, of.variance, of.mode, of.entropy(), of.covariance_matrix, of.precision_matrix, of.scale_tril,
                 wide.log_prob(x), wide.mean]
        slope = matrix.grad.numpy()  # torch has numbers above a factor's diagonal, too, which nothing reads
        return [y.detach().numpy() for y in [found, *asked]] + [
            np.tril(slope) if given == "scale_tril" else slope, df.grad.numpy(), x.grad.numpy()]
    for ours, theirs in zip(values(genesis), values(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


def test_wishart_samples_have_the_moments_and_the_gradients_of_moments() -> None:
    genesis.manual_seed(1)
    df = genesis.tensor([3.5, 9.0], dtype=genesis.float64)
    of = genesis.distributions.Wishart(df, genesis.tensor(COVARIANCE))
    drawn = of.sample((COUNT,))
    assert not drawn.requires_grad and of.support.check(drawn).all()
    values, mean = drawn.numpy(), of.mean.numpy()
    within_errors(values, mean)
    within_errors((values - mean)**2, of.variance.numpy())
    within_errors(-of.log_prob(drawn).numpy(), of.entropy().numpy())
    df = genesis.full((COUNT,), 4.5, dtype=genesis.float64, requires_grad=True)
    scale = genesis.tensor(np.linalg.cholesky(COVARIANCE)).expand(COUNT, 3, 3).detach().requires_grad_()
    genesis.distributions.Wishart(df, scale_tril=scale).rsample()[:, 0, 0].sum().backward()
    within_errors(df.grad.numpy(), COVARIANCE[0, 0])  # the mean is df · covariance
    within_errors(scale.grad.numpy()[:, 0, 0], 2 * 4.5 * COVARIANCE[0, 0]**0.5)


def test_wishart_divergence_is_the_mean_of_the_difference_of_logarithms() -> None:
    genesis.manual_seed(2)
    p = genesis.distributions.Wishart(genesis.tensor([4.0, 8.5], dtype=genesis.float64), genesis.tensor(COVARIANCE))
    q = genesis.distributions.Wishart(genesis.tensor([6.0, 5.0], dtype=genesis.float64), genesis.tensor(OTHER))
    drawn = p.sample((COUNT,))
    within_errors((p.log_prob(drawn) - q.log_prob(drawn)).numpy(), genesis.distributions.kl_divergence(p, q).numpy())
    np.testing.assert_allclose(genesis.distributions.kl_divergence(p, p), 0, atol=1e-12)


def test_wishart_arguments_are_checked() -> None:
    wishart, eye = genesis.distributions.Wishart, genesis.eye(3)
    with pytest.raises(ValueError, match="expected to be greater than ndim - 1 = 2"):
        wishart(2.0, eye)
    with pytest.raises(AssertionError, match="Exactly one of"):
        wishart(4.0, eye, eye)
    with pytest.raises(ValueError, match="at least two-dimensional"):
        wishart(4.0, genesis.ones(3))
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        wishart(4.0, -eye)
    with pytest.warns(UserWarning, match="Low df"):
        wishart(2.5, eye)
    with pytest.raises(ValueError, match="within the support"):
        wishart(4.0, eye).log_prob(-eye)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_correlations_are_beta_variables(n: int) -> None:
    """Each correlation is 2 b - 1 of b ~ Beta(a, a), a = concentration - 1 + n / 2: its second and fourth moments, and
    the mean of log det, of which the density's normalizer says the derivative."""
    genesis.manual_seed(3)
    c = genesis.tensor([0.6, 1.0, 4.0], dtype=genesis.float64, requires_grad=True)
    of = genesis.distributions.LKJCholesky(n, c)
    L = of.sample((COUNT,))
    assert not L.requires_grad and tuple(L.shape) == (COUNT, 3, n, n) and of.support.check(L).all()
    correlations = (L @ L.mT).numpy()
    a = c.detach().numpy() - 1 + n / 2
    for i in range(n):
        for j in range(i):
            r = correlations[..., i, j]
            within_errors(r, 0)
            within_errors(r**2, 1 / (2 * a + 1))
            within_errors(r**4, 3 / ((2 * a + 1) * (2 * a + 3)))
    of.log_prob(genesis.eye(n, dtype=genesis.float64)).sum().backward()
    within_errors(2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1).numpy(), -c.grad.numpy())


def test_lkj_gradients_and_checks() -> None:
    def gradients(library: Any) -> list[Any]:
        c = library.tensor([0.6, 1.0, 4.0], dtype=library.float64, requires_grad=True)
        x = library.tensor(np.linalg.cholesky([[1, 0.5, 0.1], [0.5, 1, -0.3], [0.1, -0.3, 1]]), requires_grad=True)
        found = library.distributions.LKJCholesky(3, c).expand((2, 3)).log_prob(x)
        found.sum().backward()
        return [found.detach().numpy(), c.grad.numpy(), x.grad.numpy()]
    for ours, theirs in zip(gradients(genesis), gradients(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    of = genesis.distributions.LKJCholesky(3, 1.0)
    assert of.log_prob(of.sample((1000,))).dtype == genesis.float32
    with pytest.raises(ValueError, match="greater than or equal to 2"):
        genesis.distributions.LKJCholesky(1)
    with pytest.raises(ValueError, match="within the support"):
        of.log_prob(genesis.eye(3) * 1.001)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_vectors_become_factors_of_correlations(n: int) -> None:
    numbers = np.random.default_rng(n).standard_normal((4, n * (n - 1) // 2))

    def values(library: Any) -> list[Any]:
        to = library.distributions.biject_to(library.distributions.constraints.corr_cholesky)
        assert tuple(to.forward_shape((7, numbers.shape[-1]))) == (7, n, n)
        assert tuple(to.inverse_shape((7, n, n))) == (7, numbers.shape[-1])
        x = library.tensor(numbers, requires_grad=True)
        y = to(x)
        back, volume = to.inv(y.detach()), to.log_abs_det_jacobian(x, y)
        assert to.codomain.check(y).all()
        first, = library.autograd.grad(y[..., -1, :].sin().sum(), x, retain_graph=True)
        second, = library.autograd.grad(volume.sum(), x)
        return [found.detach().numpy() for found in (y, back, volume, first, second)]
    ours = values(genesis)
    for found, wanted in zip(ours, values(torch), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours[1], numbers, rtol=1e-9)


def test_shapes_that_no_factor_has() -> None:
    to = genesis.distributions.CorrCholeskyTransform()
    assert to == genesis.distributions.CorrCholeskyTransform() and to.domain.event_dim == 1 and to.event_dim == 2
    with pytest.raises(ValueError, match="not a flattened lower-diagonal number"):
        to.forward_shape((4,))
    with pytest.raises(ValueError, match="Input is not square"):
        to.inverse_shape((2, 3))
