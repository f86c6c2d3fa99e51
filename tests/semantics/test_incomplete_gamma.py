"""The incomplete gamma function is torch's where that is exact, and an integral of its density everywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import genesis

NUMBERS = np.random.default_rng(0)


def gammainc(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """In float64."""
    return genesis.special.gammainc(genesis.tensor(a), genesis.tensor(x)).numpy()  # type: ignore[no-any-return]


def test_values_are_torchs() -> None:
    """Shapes of 1e-6 to 1e4, near to where the two ways meet and far from them. torch has lost 1e-9 from shapes of 20
    on, where it takes an asymptotic series; sums over a Poisson variable say more, below."""
    a = np.concatenate([10 ** NUMBERS.uniform(-6, 4, 600), NUMBERS.uniform(0.8, 1.2, 200),
                        NUMBERS.uniform(90, 110, 200)])
    for x in (np.abs(a + NUMBERS.normal(0, 2, 1000) * np.sqrt(a)), a * 10 ** NUMBERS.uniform(-1, 1, 1000), a,
              a * (1 + 1e-9), NUMBERS.uniform(0, 6, 1000)):
        got, wanted = gammainc(a, x), torch.special.gammainc(torch.tensor(a), torch.tensor(x)).numpy()
        np.testing.assert_allclose(got, wanted, rtol=3e-9, atol=1e-15)
        few = a < 20
        np.testing.assert_allclose(got[few], wanted[few], rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("a", [1, 2, 20, 99, 100, 101, 400, 5000])
def test_a_whole_shape_counts_a_poisson_variable(a: int) -> None:
    """P(a, x) is the chance of a or more events where x are expected."""
    x = np.maximum(a + np.linspace(-5, 5, 11) * a**0.5, 0.1)
    events = np.arange(a, a + 40 * math.isqrt(a) + 60)
    logs = events * np.log(x)[:, None] - x[:, None] - np.array([math.lgamma(k + 1) for k in events])
    np.testing.assert_allclose(gammainc(np.full_like(x, a), x), np.exp(logs).sum(1), rtol=3e-11 if a > 1000 else 1e-12)


def test_the_upper_function_is_the_rest_and_keeps_its_digits() -> None:
    """P + Q = 1; Q is torch's, also where it is 1e-200 and 1 - P is 0; of a whole shape it is a Poisson variable's."""
    a = np.concatenate([10 ** NUMBERS.uniform(-2, 3, 400), NUMBERS.uniform(0.8, 1.2, 100)])
    for x in (np.abs(a + NUMBERS.normal(0, 2, 500) * np.sqrt(a)), a * 10 ** NUMBERS.uniform(-1, 1, 500), a):
        upper = genesis.special.gammaincc(genesis.tensor(a), genesis.tensor(x)).numpy()
        np.testing.assert_allclose(upper + gammainc(a, x), 1, rtol=1e-12)
        wanted = torch.special.gammaincc(torch.tensor(a), torch.tensor(x)).numpy()
        np.testing.assert_allclose(upper, wanted, rtol=3e-9, atol=1e-300)
    x = np.array([5.0, 30.0, 100.0, 400.0])
    tail = np.exp(-x) * (1 + x + x**2 / 2)
    found = genesis.special.gammaincc(genesis.tensor(3.0, dtype=genesis.float64), genesis.tensor(x)).numpy()
    np.testing.assert_allclose(found, tail, rtol=1e-11)


def test_the_upper_functions_edges_and_gradients_are_those_of_the_lower() -> None:
    for a, x in ((0.0, 1.0), (1.0, 0.0), (2.0, math.inf), (math.inf, 2.0), (0.0, 0.0), (-1.0, 1.0), (1.0, -1.0),
                 (math.nan, 1.0), (math.inf, math.inf)):
        got = genesis.special.gammaincc(genesis.tensor(a), genesis.tensor(x)).item()
        np.testing.assert_equal(got, torch.special.gammaincc(torch.tensor(a), torch.tensor(x)).item())
    found = []
    for function in (genesis.special.gammainc, genesis.special.gammaincc):
        a = genesis.tensor([0.5, 3.0, 150.0], dtype=genesis.float64, requires_grad=True)
        x = genesis.tensor([0.25, 7.0, 140.0], dtype=genesis.float64, requires_grad=True)
        function(a, x).sum().backward()
        found.append(np.concatenate([a.grad.numpy(), x.grad.numpy()]))
    np.testing.assert_allclose(found[0], -found[1], rtol=1e-11)


@pytest.mark.parametrize("a", [0.7, 3.0, 99.5, 150.0, 3e4, 1e7, 1e10])
def test_shapes_that_differ_by_one_differ_by_a_density(a: float) -> None:
    """P(a, x) - P(a + 1, x) = x^a e^-x / Γ(a + 1), up to six roots of the shape from it."""
    x = np.abs(a + np.linspace(-6, 6, 41) * a**0.5)
    density = np.exp(a * np.log1p((x - a) / a) - (x - a) - (math.lgamma(a + 1) - a * math.log(a) + a)
                     ) if a < 1e5 else np.exp(a * (np.log1p((x - a) / a) - (x - a) / a)) / (2 * np.pi * a)**0.5
    got = gammainc(np.full_like(x, a), x) - gammainc(np.full_like(x, a + 1), x)
    np.testing.assert_allclose(got, density, rtol=1e-4 if a > 1e5 else 1e-9, atol=3e-13)


def test_large_shapes_are_nearly_normal() -> None:
    """By Wilson and Hilferty's root, which is off by less than 1e-4 of a tail there."""
    a = np.array([1e6, 1e8, 1e11])[:, None] * np.ones(25)
    x = a + np.linspace(-6, 6, 25) * np.sqrt(a)
    z = (np.cbrt(x / a) - 1 + 1 / (9 * a)) * 3 * np.sqrt(a)
    normal = genesis.special.ndtr(genesis.tensor(z)).numpy()
    np.testing.assert_allclose(gammainc(a, x), normal, rtol=3e-4, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_edges(dtype: str) -> None:
    edges = [-1.0, 0.0, 1.0, 150.0] + ([0.5, math.inf] if dtype != "int64" else [])
    a, x = (np.ravel(v).astype(dtype) for v in np.meshgrid(edges, edges))
    ours = genesis.special.gammainc(genesis.tensor(a), genesis.tensor(x))
    theirs = torch.special.gammainc(torch.tensor(a), torch.tensor(x)) if dtype != "int64" else (
        torch.special.gammainc(torch.tensor(a).float(), torch.tensor(x).float()))
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9 if dtype == "float64" else 2e-6)
    nans = gammainc(np.array([math.nan, 1.0, math.nan, math.inf]), np.array([1.0, math.nan, 0.0, math.nan]))
    assert np.isnan(nans).all()


def test_gradients() -> None:
    """By the value the density, at 0 and at inf too; by the shape central differences of the function itself."""
    a = np.array([0.3, 1.0, 2.0, 5.0, 50.0, 120.0, 120.0, 3e4, 1.0, 2.0, 200.0, 1.0])
    x = np.array([0.2, 0.4, 3.0, 4.0, 70.0, 100.0, 130.0, 3.01e4, 0.0, 0.0, 0.0, np.inf])
    shape, value = genesis.tensor(a, requires_grad=True), genesis.tensor(x, requires_grad=True)
    genesis.special.gammainc(shape, value).sum().backward()
    density = np.exp(genesis.distributions.Gamma(genesis.tensor(a[:8]), 1.0).log_prob(genesis.tensor(x[:8])).numpy())
    np.testing.assert_allclose(value.grad.numpy(), [*density, 1, 0, 0, 0], rtol=1e-9)
    step = 1e-5 * a
    slopes = (gammainc(a + step, x) - gammainc(a - step, x)) / (2 * step)
    np.testing.assert_allclose(shape.grad.numpy(), slopes, rtol=1e-6, atol=1e-12)


def test_it_compiles() -> None:
    a, x = genesis.rand(20) * 10, genesis.rand(20) * 10
    compiled = genesis.compile(lambda a, x: genesis.special.gammainc(a, x) * 2)
    for _ in range(3):
        np.testing.assert_allclose(compiled(a, x).numpy(), 2 * genesis.special.gammainc(a, x).numpy(), rtol=1e-6)
