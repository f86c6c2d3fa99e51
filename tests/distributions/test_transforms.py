"""Transforms whose values have other dimensions than their arguments: shapes, densities and volumes are torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

NUMBERS = np.random.default_rng(0).uniform(-1, 1, (2, 4, 6))


def chains(library: Any) -> dict[str, Any]:
    """Transforms, each of arrays as NUMBERS or of what it says."""
    of, by = library.distributions, library.tensor(NUMBERS[0, :, 0] + 2)
    factor, reshape = of.CorrCholeskyTransform(), of.ReshapeTransform((6,), (2, 3))
    return {
        "factor": factor, "reshape": reshape, "exp then reshape": of.ComposeTransform([of.ExpTransform(), reshape]),
        "reshape then exp": of.ComposeTransform([reshape, of.ExpTransform()]),
        "tanh then factor": of.ComposeTransform([of.TanhTransform(), factor]),
        "reshape then reshape": of.ComposeTransform([reshape, of.ReshapeTransform((2, 3), (6,))]),
        "reshape, exp, back, sticks": of.ComposeTransform([reshape, of.ExpTransform(), reshape.inv,
                                                           of.StickBreakingTransform()]),
        "one value of factors": of.IndependentTransform(factor, 1),
        "one value of sticks": of.IndependentTransform(of.StickBreakingTransform(), 1),
        "affine of rows": of.ComposeTransform([of.AffineTransform(by.unsqueeze(-1), 2.0, event_dim=1), reshape]),
    }


@pytest.mark.parametrize("name", chains(genesis))
def test_a_chain_has_the_shapes_and_the_volume(name: str) -> None:
    def values(library: Any) -> list[Any]:
        to, x = chains(library)[name], library.tensor(NUMBERS)
        y = to(x)
        assert tuple(to.forward_shape(x.shape)) == tuple(y.shape)
        assert tuple(to.inverse_shape(y.shape)) == tuple(x.shape)
        return [to.domain.event_dim, to.codomain.event_dim, y.numpy(), to.inv(y).numpy(),
                to.log_abs_det_jacobian(x, y).numpy()]
    for ours, theirs in zip(values(genesis), values(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        assert np.shape(ours) == np.shape(theirs)


@pytest.mark.parametrize("lifted", [False, True])
@pytest.mark.parametrize("name", chains(genesis))
def test_a_distribution_of_a_chain(name: str, lifted: bool) -> None:
    def values(library: Any) -> list[Any]:
        of, to, x = library.distributions, chains(library)[name], library.tensor(NUMBERS)
        base = of.Normal(x * 0.5, 1.3)
        made = of.TransformedDistribution(of.Independent(base, 1) if lifted else base, to)
        y = to(x)
        assert tuple(made.sample((3,)).shape) == (3, *made.batch_shape, *made.event_shape)
        wide = made.expand((5, *made.batch_shape))
        return [tuple(made.batch_shape), tuple(made.event_shape), tuple(wide.batch_shape), made.log_prob(y).numpy(),
                wide.log_prob(y).numpy()]
    for ours, theirs in zip(values(genesis), values(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        assert np.shape(ours) == np.shape(theirs)


def test_parameters_of_a_transform_widen_the_base() -> None:
    def values(library: Any) -> list[Any]:
        of = library.distributions
        exponents, places = library.tensor([[0.5], [2.0]]), library.tensor([1.0, 2.0, 3.0])
        found = []
        for base, to in ((of.Normal(0.0, 1.0), of.AffineTransform(places, 2.0)),
                         (of.Exponential(1.0), [of.PowerTransform(exponents), of.AffineTransform(0.0, places)])):
            made = of.TransformedDistribution(base, to)
            drawn = made.sample((100,))
            assert len({float(x) for x in drawn.reshape(-1)}) > 550 // (2 if drawn.ndim == 2 else 1)
            found += [tuple(drawn.shape), made.log_prob(library.tensor(0.7)).numpy()]
        return found
    for ours, theirs in zip(values(genesis), values(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    with pytest.raises(ValueError, match="needs to have shape with size at least 1"):
        genesis.distributions.TransformedDistribution(genesis.distributions.Normal(0.0, 1.0),
                                                      genesis.distributions.StickBreakingTransform())


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 2.0, [-2.0, 3.0]])
def test_falling_transforms_turn_the_cdf(exponent: Any) -> None:
    def values(library: Any) -> list[Any]:
        power = library.tensor(exponent, dtype=library.float64)
        to = library.distributions.PowerTransform(power)
        rate = library.tensor([0.7, 1.9], dtype=library.float64)
        made = library.distributions.TransformedDistribution(library.distributions.Exponential(rate), to)
        x = library.tensor([[0.3], [1.4]], dtype=library.float64)
        return [np.asarray(to.sign), made.cdf(x).numpy(), made.icdf(made.cdf(x)).numpy()]
    for ours, theirs in zip(values(genesis), values(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    if exponent == -1.0:
        assert genesis.distributions.PowerTransform(-1).sign == -1  # a number
