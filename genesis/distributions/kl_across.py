"""Divergences between families: KL(p || q) is the mean of -log q(x) under p, less p's entropy.

The mean needs few moments of p: of x, x², log x or exp(-x / s). Where p has chances that q has not, it is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import genesis
from genesis.distributions.counts import Bernoulli, Binomial, Poisson
from genesis.distributions.derived import EULER, Gumbel, Pareto
from genesis.distributions.exp_family import ExponentialFamily
from genesis.distributions.gamma_family import Beta, Gamma
from genesis.distributions.kl import register_kl
from genesis.distributions.location_scale import Exponential, Laplace, Normal, Uniform
from genesis.distributions.transform import sum_rightmost
from genesis.frontend.tensor import Tensor

Moment = Callable[..., Tensor]


def _x_log_x(x: Tensor) -> Tensor:
    return genesis.xlogy(x, x)


def _uniform_mean_log(p: Any) -> Tensor:
    return (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1


MEAN_LOG: Final[dict[type, Moment]] = {
    Exponential: lambda p: -p.rate.log() - EULER,
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Pareto: lambda p: p.scale.log() + p.alpha.reciprocal(),
    Uniform: _uniform_mean_log,
}
"""The mean of log x."""

MEAN_DECAY: Final[dict[type, Moment]] = {
    Exponential: lambda p, s: p.rate / (p.rate + 1 / s),
    Gamma: lambda p, s: (1 + 1 / (p.rate * s)).pow(-p.concentration),
    Normal: lambda p, s: (0.5 * (p.scale / s).pow(2) - p.loc / s).exp(),
    Uniform: lambda p, s: s * ((-p.low / s).exp() - (-p.high / s).exp()) / (p.high - p.low),
}
"""The mean of exp(-x / s)."""

STARTS: Final[dict[type, Callable[[Any], Any]]] = {Uniform: lambda p: p.low}
"""Where the support begins, of families that may begin below 0."""


def _of_exponential(p: Any, q: Any, _: type) -> Tensor:
    return q.rate * p.mean - q.rate.log()


def _of_gamma(p: Any, q: Any, family: type) -> Tensor:
    constant = q.concentration.lgamma() - q.concentration * q.rate.log()
    return constant + q.rate * p.mean - (q.concentration - 1) * MEAN_LOG[family](p)


def _of_normal(p: Any, q: Any, _: type) -> Tensor:
    spread = (p.variance + (p.mean - q.loc).pow(2)) / (2 * q.scale.pow(2))
    return spread + q.scale.log() + 0.5 * math.log(2 * math.pi)


def _of_gumbel(p: Any, q: Any, family: type) -> Tensor:
    decay = (q.loc / q.scale).exp() * MEAN_DECAY[family](p, q.scale)
    return q.scale.log() + (p.mean - q.loc) / q.scale + decay


def _of_pareto(p: Any, q: Any, family: type) -> Tensor:
    found = (q.alpha + 1) * MEAN_LOG[family](p) - q.alpha.log() - q.alpha * q.scale.log()
    return genesis.where(p.low < q.scale, math.inf, found)


def _of_beta(p: Any, q: Any, _: type) -> Tensor:
    width = p.high - p.low
    rest = (_x_log_x(1 - p.low) - _x_log_x(1 - p.high)) / width - 1  # the mean of log(1 - x)
    constant = q.concentration1.lgamma() + q.concentration0.lgamma() - (q.concentration1 + q.concentration0).lgamma()
    found = constant - (q.concentration1 - 1) * _uniform_mean_log(p) - (q.concentration0 - 1) * rest
    return genesis.where((p.high > 1) | (p.low < 0), math.inf, found)


def _of_uniform(p: Any, q: Any, _: type) -> Tensor:
    return genesis.where((q.low > 0) | (q.high < 1), math.inf, (q.high - q.low).log())  # p is a Beta


def _of_poisson(p: Any, q: Any, _: type) -> Tensor:
    return q.rate - p.probs * q.rate.log()


CROSS: Final = (
    (_of_exponential, Exponential, (Beta, Gamma, Pareto, Uniform)),
    (_of_gamma, Gamma, (Beta, Exponential, Pareto, Uniform)),
    (_of_normal, Normal, (Beta, Exponential, Gamma, Gumbel, Laplace, Pareto)),
    (_of_gumbel, Gumbel, (Exponential, Gamma, Normal, Uniform)),
    (_of_pareto, Pareto, (Uniform,)),
    (_of_beta, Beta, (Uniform,)),
    (_of_uniform, Uniform, (Beta,)),
    (_of_poisson, Poisson, (Bernoulli,)),
)
"""The mean of -log q under p: how, of which q, under which p."""

BEYOND: Final = {
    Beta: (Pareto,), Exponential: (Beta, Pareto, Uniform), Gamma: (Beta, Pareto, Uniform), Pareto: (Beta, Uniform),
    Gumbel: (Beta, Exponential, Gamma, Pareto, Uniform), Laplace: (Beta, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, Exponential, Gamma, Pareto, Uniform), Poisson: (Bernoulli, Binomial),
}
"""p → the q whose support is smaller than p's, whatever the parameters."""


def _less_entropy(cross: Callable[[Any, Any, type], Tensor], family: type, above_zero: bool, p: Any, q: Any) -> Tensor:
    found = cross(p, q, family) - p.entropy()
    return genesis.where(STARTS[family](p) < 0, math.inf, found) if above_zero and family in STARTS else found


def _infinite(p: Any, q: Any) -> Tensor:
    return p.mean.new_full(p.batch_shape, math.inf)


def _of_one_family(p: Any, q: Any) -> Tensor:
    """Bregman's divergence of the log-normalizer: A(η) - A(θ) - (η - θ) · ∇A(θ)."""
    if type(p) is not type(q):
        raise NotImplementedError(f"The cross KL-divergence between different exponential families cannot be computed "
                                  f"using Bregman divergences: {type(p).__name__}, {type(q).__name__}")
    ours = [x.detach().requires_grad_() for x in p._natural_params]
    normalizer = p._log_normalizer(*ours)
    gradients = genesis.autograd.grad(normalizer.sum(), ours, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for x, y, g in zip(ours, q._natural_params, gradients, strict=True):
        result = result - sum_rightmost((y - x) * g, len(q.event_shape))
    return result


for _cross, _q, _families in CROSS:
    for _p in _families:
        register_kl(_p, _q)(partial(_less_entropy, _cross, _p, _q in (Exponential, Gamma)))
for _wide, _narrow in ((p, q) for p, smaller in BEYOND.items() for q in smaller):
    register_kl(_wide, _narrow)(_infinite)
register_kl(ExponentialFamily, ExponentialFamily)(_of_one_family)
