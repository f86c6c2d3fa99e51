"""Densities, moments, entropies, cdfs and divergences are torch's; samples have the moments that are said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

A, B = np.array([0.5, 1.5, 3.0]), np.array([2.0, 0.7, 1.2])
P, M = np.array([0.2, 0.5, 0.9]), np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
L = np.array([[1.0, 0.0], [0.5, 2.0]])

# class → its arguments, a value
CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "Normal": ({"loc": A, "scale": B}, A - 1), "Laplace": ({"loc": A, "scale": B}, A - 1),
    "Cauchy": ({"loc": A, "scale": B}, A - 1), "Uniform": ({"low": A, "high": A + B}, A + 0.3 * B),
    "Exponential": ({"rate": B}, A), "Gamma": ({"concentration": A, "rate": B}, B),
    "Chi2": ({"df": A}, B), "Beta": ({"concentration1": A, "concentration0": B}, P),
    "Dirichlet": ({"concentration": A}, M[0]), "StudentT": ({"df": A + 2, "loc": A, "scale": B}, B),
    "FisherSnedecor": ({"df1": A + 2, "df2": B + 4}, B), "LogNormal": ({"loc": A, "scale": B}, B),
    "HalfNormal": ({"scale": B}, A), "HalfCauchy": ({"scale": B}, A), "Pareto": ({"scale": A, "alpha": B + 2}, A + 1),
    "Gumbel": ({"loc": A, "scale": B}, B), "Weibull": ({"scale": A, "concentration": B}, B),
    "InverseGamma": ({"concentration": A + 2, "rate": B}, B),
    "Kumaraswamy": ({"concentration1": A, "concentration0": B}, P), "LogisticNormal": ({"loc": A, "scale": B}, None),
    "Bernoulli": ({"probs": P}, np.array([0.0, 1.0, 1.0])), "Geometric": ({"probs": P}, np.array([0.0, 3.0, 1.0])),
    "Binomial": ({"total_count": np.array([4.0, 4.0, 4.0]), "probs": P}, np.array([0.0, 3.0, 4.0])),
    "NegativeBinomial": ({"total_count": B, "probs": P}, np.array([0.0, 3.0, 4.0])),
    "Poisson": ({"rate": B}, np.array([0.0, 3.0, 4.0])), "Categorical": ({"probs": M}, np.array([2, 0])),
    "OneHotCategorical": ({"probs": M}, np.eye(3)[[2, 0]]),
    "Multinomial": ({"total_count": 4, "probs": M}, np.array([[1.0, 1, 2], [4, 0, 0]])),
    "MultivariateNormal": ({"loc": A[:2], "scale_tril": L}, B[:2]),
    "LowRankMultivariateNormal": ({"loc": A[:2], "cov_factor": L[:, 1:], "cov_diag": B[:2]}, B[:2]),
    "Wishart": ({"df": A + 2, "scale_tril": L}, np.array([[2.0, 0.3], [0.3, 1.0]])),
    "LKJCholesky": ({"dim": 3, "concentration": A},
                    np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.48, -0.6, 0.64]])),
    "ContinuousBernoulli": ({"probs": P}, np.array([0.3, 0.7, 1.0])),
    "GeneralizedPareto": ({"loc": A, "scale": B, "concentration": np.array([0.3, 0.0, -0.4])}, None),
    "RelaxedBernoulli": ({"temperature": 0.7, "probs": P}, P),
    "RelaxedOneHotCategorical": ({"temperature": np.array(0.7), "probs": M}, M),
}
QUESTIONS = ("mean", "variance", "stddev", "mode")


def made(library: Any, name: str) -> Any:
    """The distribution, in float64."""
    arguments = {key: library.tensor(x) if isinstance(x, np.ndarray) else x for key, x in CASES[name][0].items()}
    return getattr(library.distributions, name)(**arguments)


def answer(question: Any) -> Any:
    """An array, or None where the distribution has no answer."""
    try:
        return question().detach().numpy()
    except (NotImplementedError, AttributeError):
        return None


def same(ours: Any, theirs: Any, what: str) -> None:
    """Where torch has an answer, ours is equal to rounding of float64."""
    if theirs is not None:
        assert ours is not None, what
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12, err_msg=what)


@pytest.mark.parametrize("name", CASES)
def test_a_distribution_says_what_torchs_says(name: str) -> None:
    ours, theirs, value = made(genesis, name), made(torch, name), CASES[name][1]
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape) and tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    for question in QUESTIONS:
        same(answer(lambda q=question: getattr(ours, q)), answer(lambda q=question: getattr(theirs, q)), question)
    if name != "Multinomial":  # torch takes log n! in float32
        same(answer(ours.entropy), answer(theirs.entropy), "entropy")
    if value is not None:
        same(answer(lambda: ours.log_prob(genesis.tensor(value))), answer(lambda: theirs.log_prob(torch.tensor(value))),
             "log_prob")
        same(answer(lambda: ours.cdf(genesis.tensor(value))), answer(lambda: theirs.cdf(torch.tensor(value))), "cdf")
    if name in ("Normal", "Laplace", "Cauchy", "Uniform", "Exponential", "LogNormal", "Gumbel", "Pareto", "HalfNormal",
                "ContinuousBernoulli", "GeneralizedPareto"):
        same(answer(lambda: ours.icdf(genesis.tensor(P))), answer(lambda: theirs.icdf(torch.tensor(P))), "icdf")
    if name not in ("Multinomial", "LowRankMultivariateNormal"):
        shape = (2, *ours.batch_shape)
        assert tuple(ours.expand(shape).batch_shape) == shape


@pytest.mark.parametrize("name", [name for name in CASES if name not in (
    "Cauchy", "HalfCauchy", "StudentT", "FisherSnedecor", "Pareto", "InverseGamma", "LogNormal")])
def test_samples_have_the_mean(name: str) -> None:
    """20,000 samples: their mean is within six standard errors of the distribution's, where it has one."""
    genesis.manual_seed(1)
    ours, count = made(genesis, name), 20000
    drawn = ours.sample((count,))
    assert tuple(drawn.shape) == (count, *ours.batch_shape, *ours.event_shape) and not drawn.requires_grad
    mean = answer(lambda: ours.mean)
    if mean is not None and np.isfinite(mean).all():
        bound = 6 * np.sqrt(ours.variance.numpy() / count) + 1e-12
        assert (np.abs(drawn.mean(0, dtype=genesis.float64).numpy() - mean) <= bound).all()


@pytest.mark.parametrize("name", ["Normal", "Laplace", "Exponential", "Gamma", "Dirichlet", "Beta", "Bernoulli",
                                  "Categorical", "OneHotCategorical", "Geometric", "Poisson", "MultivariateNormal",
                                  "ContinuousBernoulli",
                                  "Gumbel",
                                  "Cauchy", "HalfNormal", "LogNormal"])
def test_divergences(name: str) -> None:
    def divergence(library: Any) -> Any:
        p = made(library, name)
        shifted = {key: library.tensor(x[..., ::-1].copy() if key not in ("scale_tril",) else x)
                   for key, x in CASES[name][0].items()}
        return library.distributions.kl_divergence(p, getattr(library.distributions, name)(**shifted)).numpy()
    same(divergence(genesis), divergence(torch), name)


def test_densities_beyond_a_threshold() -> None:
    """torch's take no float64: in float32, of tails that are those of a power, exponential, and that end."""
    def values(library: Any) -> list[Any]:
        c = library.tensor([0.3, 0.0, -0.4, -1.0], requires_grad=True)
        of = library.distributions.GeneralizedPareto(library.tensor([0.5, 1.5, -1.0, 0.0]), 1.3, c)
        x = library.tensor([0.9, 4.0, -0.2, 0.7])
        found = [of.log_prob(x), of.cdf(x), of.log_cdf(x), of.log_survival_function(x)]
        found[0][:1].sum().backward()
        return [y.detach().numpy() for y in found] + [c.grad.numpy()]
    for ours, theirs in zip(values(genesis), values(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=3e-6)
    with pytest.raises(ValueError, match="within the support"):
        genesis.distributions.GeneralizedPareto(0.0, 1.0, -0.5).log_prob(genesis.tensor(2.5))


def test_angles() -> None:
    """torch's Bessel functions are polynomials of seven digits; sums over a circle are exact."""
    loc, c, x = np.array([0.0, 1.0, -3.0]), np.array([0.5, 4.0, 60.0]), np.array([0.3, -2.0, 3.2])
    ours, theirs = (T.distributions.VonMises(T.tensor(loc), T.tensor(c)) for T in (genesis, torch))
    np.testing.assert_allclose(ours.log_prob(genesis.tensor(x)), theirs.log_prob(torch.tensor(x)), rtol=1e-6)
    np.testing.assert_allclose(ours.variance, theirs.variance, atol=1e-6)
    genesis.manual_seed(1)
    drawn = ours.sample((20000,)).numpy()
    assert (np.abs(drawn) <= np.pi).all()
    for direction, wanted in ((np.cos, np.cos(loc)), (np.sin, np.sin(loc))):  # the mean direction, in six errors
        values = direction(drawn)
        assert (np.abs(values.mean(0) - (1 - ours.variance.numpy()) * wanted) < 6 * values.std(0) / 20000**0.5).all()
    other = genesis.distributions.VonMises(genesis.tensor(loc[::-1].copy()), genesis.tensor(c[::-1].copy()))
    points = np.linspace(-np.pi, np.pi, 20001)[:-1]
    logs = [of.log_prob(genesis.tensor(points[:, None])).numpy() for of in (ours, other)]
    p = np.exp(logs[0])
    np.testing.assert_allclose(p.mean(0) * 2 * np.pi, 1, rtol=1e-12)
    np.testing.assert_allclose(ours.variance, 1 - (p * np.cos(points[:, None] - loc)).mean(0) * 2 * np.pi, rtol=1e-9)
    np.testing.assert_allclose(genesis.distributions.kl_divergence(ours, other),
                               (p * (logs[0] - logs[1])).mean(0) * 2 * np.pi, rtol=1e-9)


def test_shapes_of_parameters_and_all_values_of_rows() -> None:
    for name in ("Bernoulli", "Binomial", "NegativeBinomial", "Categorical", "OneHotCategorical", "Multinomial"):
        assert tuple(made(genesis, name).param_shape) == tuple(made(torch, name).param_shape), name

    def values(library: Any, rows: int, expand: bool) -> Any:
        of = library.distributions.Independent(made(library, "Bernoulli"), rows)
        assert of.has_enumerate_support == (rows == 0)
        return of.enumerate_support(expand).numpy()
    for expand in (True, False):
        np.testing.assert_array_equal(values(genesis, 0, expand), values(torch, 0, expand))
    with pytest.raises(NotImplementedError, match="cartesian product"):
        values(genesis, 1, True)


def test_gamma_samples_are_differentiable() -> None:
    """The mean of dx/dα over samples is d mean/dα = 1, within six standard errors; small, middle and large shapes."""
    genesis.manual_seed(2)
    for shape in (0.4, 3.0, 40.0):
        alpha = genesis.full((4000,), shape, dtype=genesis.float64, requires_grad=True)
        genesis.distributions.Gamma(alpha, 1.0).rsample().sum().backward()
        slopes = alpha.grad.numpy()
        assert abs(slopes.mean() - 1) <= 6 * slopes.std() / np.sqrt(len(slopes))


def test_parameters_and_values_are_checked() -> None:
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        genesis.distributions.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match="within the support"):
        genesis.distributions.Exponential(1.0).log_prob(genesis.tensor(-1.0))


VALUES = ([0.25, 0.75], [1.0, -1.0], [float("nan"), 0.5], [float("inf"), 1.0], [float("inf"), -float("inf")],
          [0.0, 1.0], [0.5, 0.5000021], [3.0, 2.0], [2.5, 1.0], [[0.0, 1.0], [1.0, 0.0]], [])
LOOKED_AT = ("boolean", "real", "real_vector", "positive", "nonnegative", "unit_interval", "nonnegative_integer",
             "positive_integer", "one_hot", "simplex")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool"])
@pytest.mark.parametrize("name", LOOKED_AT)
def test_few_numbers_are_checked_as_many_are(name, dtype):
    constraint = getattr(genesis.distributions.constraints, name)
    for value in VALUES:
        with np.errstate(invalid="ignore"):
            x = genesis.tensor(np.array(value).astype(dtype))
        assert constraint.holds(x) == bool(constraint.check(x).all()), value


def test_a_constraint_of_the_users_is_given_tensors():
    class Even(genesis.distributions.constraints.Constraint):
        def check(self, value):
            return value.fmod(2).eq(0)
    assert Even().holds(genesis.tensor([2.0, 4.0])) and not Even().holds(genesis.tensor([1.0]))
    below = genesis.distributions.constraints.less_than(genesis.tensor([1.0, 2.0]))
    assert below.holds(genesis.tensor([0.5, 1.5])) and not below.holds(genesis.tensor([0.5, 2.5]))


@pytest.mark.parametrize("rate", [0.0, 0.3, 4.0, 90.0])
def test_counts_of_events_have_their_mean_and_variance(rate: float) -> None:
    """Within five standard errors, for the function and the distribution; the same seed gives the same counts."""
    many, generator = 20_000, genesis.Generator().manual_seed(7)
    rates = genesis.full((many,), rate, requires_grad=True)
    found = genesis.poisson(rates, generator=generator)
    assert found.dtype is genesis.float32 and not found.requires_grad and (found == found.floor()).all()
    assert genesis.equal(found, genesis.poisson(rates, genesis.Generator().manual_seed(7)))
    for counts in (found, genesis.distributions.Poisson(rate).sample((many,))):
        assert abs(counts.mean().item() - rate) <= 5 * (rate / many) ** 0.5
        assert abs(counts.var().item() - rate) <= 5 * rate * ((2 + 1 / max(rate, 0.1)) / many) ** 0.5
    hits = genesis.binomial(genesis.full((many,), 9.0), genesis.full((many,), 0.3))
    assert abs(hits.mean().item() - 2.7) <= 5 * (1.89 / many) ** 0.5 and hits.max().item() <= 9


def test_counts_that_cannot_be_drawn() -> None:
    assert genesis.poisson(genesis.zeros(0, 2)).shape == (0, 2)
    for lib in (genesis, torch):
        with pytest.raises(RuntimeError, match="expected rate to be non-negative"):
            lib.poisson(lib.tensor([1.0, -1.0])).tolist()
    with pytest.raises(RuntimeError, match="not implemented"):
        genesis.poisson(genesis.tensor([1]))
    with pytest.raises(RuntimeError, match="one dtype"):
        genesis.binomial(genesis.tensor([1.0]), genesis.tensor([0.5]).double())
    with pytest.raises(RuntimeError, match="too many"):
        genesis.poisson(genesis.tensor([float("inf")]))
