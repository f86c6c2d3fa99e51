"""KL(p || q) of each pair of classes that torch has a formula for: values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions.kl import _KL_REGISTRY

import genesis

TWO: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Bernoulli": ({"probs": [0.2, 0.7]}, {"logits": [0.5, -1.0]}),
    "Beta": ({"concentration1": [2.5, 0.7], "concentration0": [1.5, 3.0]},
             {"concentration1": [1.2, 4.0], "concentration0": [0.6, 2.0]}),
    "Binomial": ({"total_count": 4, "probs": [0.2, 0.7]}, {"total_count": 4, "logits": [0.5, -1.0]}),
    "Exponential": ({"rate": [0.5, 3.0]}, {"rate": [2.0, 0.7]}),
    "Gamma": ({"concentration": [2.5, 0.7], "rate": [1.5, 3.0]}, {"concentration": [1.2, 4.0], "rate": [0.6, 2.0]}),
    "Gumbel": ({"loc": [0.3, -1.0], "scale": [0.5, 2.0]}, {"loc": [1.0, 0.4], "scale": [1.5, 0.8]}),
    "Laplace": ({"loc": [0.3, -1.0], "scale": [0.5, 2.0]}, {"loc": [1.0, 0.4], "scale": [1.5, 0.8]}),
    "Normal": ({"loc": [0.3, -1.0], "scale": [0.5, 2.0]}, {"loc": [1.0, 0.4], "scale": [1.5, 0.8]}),
    "Pareto": ({"scale": [0.5, 2.0], "alpha": [2.5, 1.7]}, {"scale": [0.2, 1.0], "alpha": [1.2, 3.0]}),
    "Poisson": ({"rate": [0.5, 3.0]}, {"rate": [2.0, 0.7]}),
    "Uniform": ({"low": [0.25, -0.5], "high": [0.75, 3.0]}, {"low": [-0.5, 0.1], "high": [1.5, 0.9]}),
}
"""Parameters of a distribution as p and as q."""

PAIRS = sorted({(p.__name__, q.__name__) for p, q in _KL_REGISTRY if {p.__name__, q.__name__} <= set(TWO)})


def divergence(L: Any, p: str, q: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """The divergence, and where it is finite its gradients."""
    parameters, made = [], []
    for name, options in ((p, TWO[p][0]), (q, TWO[q][1])):
        own = {key: L.tensor(value, dtype=L.float64, requires_grad=True) if isinstance(value, list) else value
               for key, value in options.items()}
        parameters += [x for x in own.values() if isinstance(x, L.Tensor)]
        made.append(getattr(L.distributions, name)(**own))
    found = L.distributions.kl_divergence(*made)
    if not found.requires_grad or not L.isfinite(found).all():
        return found.detach().numpy(), []
    gradients = L.autograd.grad(found.sum(), parameters, allow_unused=True)
    return found.detach().numpy(), [np.zeros(2) if g is None else g.numpy() for g in gradients]


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_each_pair_has_torchs_divergence(p: str, q: str) -> None:
    ours, theirs = divergence(genesis, p, q), divergence(torch, p, q)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-9, atol=1e-12)
    for ours_of, theirs_of in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(ours_of, theirs_of, rtol=1e-8, atol=1e-11)


def test_there_are_more_than_fifty_pairs() -> None:
    assert len(PAIRS) > 50


def test_binomials_of_fewer_trials_have_no_formula() -> None:
    for L in (genesis, torch):
        with pytest.raises(NotImplementedError, match="total_count > p"):
            L.distributions.kl_divergence(L.distributions.Binomial(3, L.tensor([0.5])),
                                          L.distributions.Binomial(4, L.tensor([0.5])))


def coin(L: Any) -> Any:
    """An exponential family of a user's own."""
    class Coin(L.distributions.ExponentialFamily):  # type: ignore[misc, name-defined]
        arg_constraints: dict[str, Any] = {}
        _natural_params = property(lambda self: (self.logits,))
        _mean_carrier_measure = 0

        def __init__(self, probs: Any):
            self.logits = (probs / (1 - probs)).log()
            super().__init__(probs.shape, validate_args=False)

        def _log_normalizer(self, x: Any) -> Any:
            return (1 + x.exp()).log()
    return Coin


def test_a_family_of_ones_own_has_bregmans_divergence() -> None:
    found = []
    for L in (genesis, torch):
        p, q = (L.tensor(x, dtype=L.float64) for x in ([0.2, 0.7], [0.5, 0.4]))
        family = coin(L)
        found.append(L.distributions.kl_divergence(family(p), family(q)).detach().numpy())
        known = L.distributions.kl_divergence(L.distributions.Bernoulli(p), L.distributions.Bernoulli(q)).numpy()
        np.testing.assert_allclose(found[-1], known, rtol=1e-12)
        with pytest.raises(NotImplementedError, match="cross KL-divergence"):
            L.distributions.kl_divergence(family(p), L.distributions.Poisson(q))
    np.testing.assert_allclose(*found, rtol=1e-12)
