"""Parameters and values of a program that has not run are looked at when it runs: making a distribution reads nothing,
and what is invalid raises where something that is computed from it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import genesis
from genesis import distributions as D
from genesis.engine.state import engine_state


def pending(*values: float) -> genesis.Tensor:
    """Numbers that are still to be computed."""
    return genesis.tensor(values) + 0.0


PARAMETERS: dict[str, tuple[Callable[..., Any], tuple[float, ...], tuple[float, ...], float]] = {
    # name → (the distribution of a parameter, valid ones, invalid ones, a value)
    "loc of Normal": (lambda x: D.Normal(x, 1.0), (0.0, 1.0), (0.0, float("nan")), 0.5),
    "scale of Normal": (lambda x: D.Normal(0.0, x), (1.0, 2.0), (1.0, -1.0), 0.5),
    "Laplace": (lambda x: D.Laplace(0.0, x), (1.0, 2.0), (1.0, 0.0), 0.5),
    "Cauchy": (lambda x: D.Cauchy(0.0, x), (1.0, 2.0), (1.0, -1.0), 0.5),
    "Exponential": (lambda x: D.Exponential(x), (1.0, 2.0), (1.0, -1.0), 0.5),
    "concentration of Gamma": (lambda x: D.Gamma(x, 1.0), (1.0, 2.0), (1.0, -1.0), 0.5),
    "rate of Gamma": (lambda x: D.Gamma(1.0, x), (1.0, 2.0), (1.0, -1.0), 0.5),
    "Chi2": (lambda x: D.Chi2(x), (1.0, 2.0), (1.0, -1.0), 0.5),
    "StudentT": (lambda x: D.StudentT(x), (1.0, 2.0), (1.0, -1.0), 0.5),
    "FisherSnedecor": (lambda x: D.FisherSnedecor(x, 1.0), (1.0, 2.0), (1.0, -1.0), 0.5),
    "Poisson": (lambda x: D.Poisson(x), (1.0, 2.0), (1.0, -1.0), 1.0),
    "VonMises": (lambda x: D.VonMises(0.0, x), (1.0, 2.0), (1.0, -1.0), 0.5),
    "probs of Bernoulli": (lambda x: D.Bernoulli(x), (0.2, 0.5), (0.2, 1.5), 1.0),
    "logits of Bernoulli": (lambda x: D.Bernoulli(logits=x), (0.2, 0.5), (0.2, float("nan")), 1.0),
    "Geometric": (lambda x: D.Geometric(x), (0.2, 0.5), (0.2, 1.5), 1.0),
    "Binomial": (lambda x: D.Binomial(3, x), (0.2, 0.5), (0.2, 1.5), 1.0),
    "NegativeBinomial": (lambda x: D.NegativeBinomial(3.0, x), (0.2, 0.5), (0.2, 1.5), 1.0),
    "ContinuousBernoulli": (lambda x: D.ContinuousBernoulli(x), (0.2, 0.4), (0.2, 1.5), 0.5),
    "Categorical": (lambda x: D.Categorical(logits=x), (0.2, 0.5), (0.2, float("nan")), 1.0),
    "OneHotCategorical": (lambda x: D.OneHotCategorical(logits=x), (0.2, 0.5), (0.2, float("nan")), 1.0),
    "Beta": (lambda x: D.Beta(x, 1.0), (1.0, 2.0), (1.0, -1.0), 0.5),
    "LogNormal": (lambda x: D.LogNormal(0.0, x), (1.0, 2.0), (1.0, -1.0), 0.5),
    "HalfNormal": (lambda x: D.HalfNormal(x), (1.0, 2.0), (1.0, -1.0), 0.5),
    "Independent": (lambda x: D.Independent(D.Normal(0.0, x), 1), (1.0, 2.0), (1.0, -1.0), 0.5),
    "GeneralizedPareto": (lambda x: D.GeneralizedPareto(0.0, x, 0.1), (1.0, 2.0), (1.0, -1.0), 0.5),
}


def at(name: str, made: Any, value: float) -> genesis.Tensor:
    if name == "Categorical":
        return genesis.tensor(1)
    if name == "OneHotCategorical":
        return genesis.tensor([0.0, 1.0])
    return genesis.tensor([value, value])


@pytest.mark.parametrize("name", PARAMETERS)
def test_an_invalid_parameter_raises_when_a_value_is_read(name: str) -> None:
    make, valid, invalid, value = PARAMETERS[name]
    made = make(pending(*valid))
    made.log_prob(at(name, made, value)).tolist()
    raised = []
    for ask in (lambda: make(pending(*invalid)).log_prob(at(name, None, value)).tolist(),
                lambda: make(pending(*invalid)).sample().tolist()):
        with pytest.raises((ValueError, RuntimeError)) as error:  # outside of a `try` of a program's
            ask()
        raised.append(str(error.value))
    assert "Expected parameter" in raised[0], raised


@pytest.mark.parametrize("name", ["loc of Normal", "scale of Normal", "logits of Bernoulli", "Categorical",
                                  "Exponential"])
def test_making_one_and_asking_it_reads_nothing(name: str) -> None:
    make, valid, _, value = PARAMETERS[name]
    make(pending(*valid)).log_prob(at(name, None, value)).tolist()
    ran = engine_state.ran
    x = pending(*valid)
    made = make(x)
    found = made.log_prob(made.sample())
    assert engine_state.ran == ran and not x.storage.settled
    found.tolist()
    assert engine_state.ran > ran


def test_what_is_in_memory_is_looked_at_at_once() -> None:
    for scale in (-1.0, genesis.tensor([1.0, -1.0])):
        with pytest.raises(ValueError, match=r"Expected parameter scale .* GreaterThan\(lower_bound=0.0\)"):
            D.Normal(0.0, scale)
    with pytest.raises(ValueError, match="Expected value argument"):
        D.Exponential(1.0).log_prob(genesis.tensor(-1.0))


@pytest.mark.parametrize("make", [lambda T: T.distributions.Chi2(T.tensor(-1.0)),
                                  lambda T: T.distributions.HalfNormal(T.tensor(-1.0)),
                                  lambda T: T.distributions.HalfCauchy(T.tensor(-1.0)),
                                  lambda T: T.distributions.RelaxedBernoulli(T.tensor(1.0), T.tensor(2.0))])
def test_parameters_of_what_a_distribution_is_made_of(make: Callable[[Any], Any]) -> None:
    import torch
    for T in (torch, genesis):
        with pytest.raises(ValueError, match="Expected parameter"):
            make(T).log_prob(T.tensor(0.5)).tolist()


def test_an_error_that_is_caught_comes_at_once() -> None:
    scale = pending(-1.0)
    try:
        D.Normal(0.0, scale)
    except ValueError as error:
        told = str(error)
    assert "parameter scale" in told and "GreaterThan(lower_bound=0.0)" in told


def test_an_invalid_value_raises_when_its_probability_is_read() -> None:
    for made in (D.Exponential(genesis.tensor(1.0)), D.Beta(genesis.tensor(1.0), 1.0), D.Bernoulli(0.5),
                 D.NegativeBinomial(2.0, genesis.tensor(0.5)), D.HalfNormal(1.0)):
        found = made.log_prob(pending(-1.0))
        with pytest.raises(ValueError, match="Expected value argument to satisfy"):
            found.tolist()


def test_a_step_over_an_invalid_parameter_leaves_the_weights() -> None:
    weight = genesis.tensor([1.0, -3.0], requires_grad=True)
    optimizer = genesis.optim.SGD([weight], lr=0.1)
    loss = -D.Normal(0.0, weight * 2.0).log_prob(genesis.tensor(0.3)).sum()
    loss.backward()
    with pytest.raises(ValueError, match="Expected parameter scale"):
        optimizer.step()
    assert weight.tolist() == [1.0, -3.0]


def test_gradients_go_through() -> None:
    import torch
    grads = []
    for T in (genesis, torch):
        weight = T.tensor([0.5, 2.0], requires_grad=True)
        made = T.distributions.Normal(weight.sin(), weight.exp())
        made.log_prob(T.tensor(0.3)).sum().backward()
        grads.append(weight.grad.tolist())
    assert grads[0] == pytest.approx(grads[1], rel=1e-6)
