"""Kullback and Leibler's divergence: a table over pairs of classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import genesis
from genesis.distributions import categorical, counts, derived, gamma_family, location_scale
from genesis.distributions.composed import Independent, TransformedDistribution
from genesis.distributions.distribution import Distribution
from genesis.distributions.multivariate import MultivariateNormal, squared_distance
from genesis.distributions.transform import sum_rightmost
from genesis.frontend.tensor import Tensor

Rule = Callable[[Any, Any], Tensor]
_RULES: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """A decorator that enters a rule for a pair of classes, and for what derives from them."""
    if not (isinstance(type_p, type) and issubclass(type_p, Distribution)):
        raise TypeError(f"Expected type_p to be a Distribution subclass but got {type_p}")
    if not (isinstance(type_q, type) and issubclass(type_q, Distribution)):
        raise TypeError(f"Expected type_q to be a Distribution subclass but got {type_q}")

    def enter(rule: Rule) -> Rule:
        _RULES[type_p, type_q] = rule
        return rule
    return enter


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean of log p(x) - log q(x) for x of p, by a formula.

    Raises:
        NotImplementedError: there is no formula for the pair.

    >>> import genesis
    >>> from genesis.distributions import Bernoulli
    >>> kl_divergence(Bernoulli(0.5), Bernoulli(0.5)).item()
    0.0
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _RULES:
                return _RULES[a, b](p, q)
    raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
                              f"{type(q).__name__}")


@register_kl(location_scale.Normal, location_scale.Normal)
def _normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(location_scale.Laplace, location_scale.Laplace)
def _laplace(p: Any, q: Any) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + apart / q.scale + ratio * (-apart / p.scale).exp() - 1


@register_kl(location_scale.Uniform, location_scale.Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return genesis.where((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(location_scale.Exponential, location_scale.Exponential)
def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(location_scale.Cauchy, location_scale.Cauchy)
def _cauchy(p: Any, q: Any) -> Tensor:
    both = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return both.log() - (4 * p.scale * q.scale).log()


@register_kl(counts.Bernoulli, counts.Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    softplus = genesis.nn.functional.softplus
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return genesis.where(p.probs == 0, 0.0, one) + genesis.where(p.probs == 1, 0.0, zero)


@register_kl(categorical.Categorical, categorical.Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    t = p.probs * (p.logits - q.logits)
    t = genesis.where((q.probs == 0).expand_as(t), math.inf, t)
    return genesis.where((p.probs == 0).expand_as(t), 0.0, t).sum(-1)


@register_kl(categorical.OneHotCategorical, categorical.OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(counts.Binomial, counts.Binomial)
def _binomial(p: Any, q: Any) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return genesis.where(p.total_count > q.total_count, math.inf, found)


@register_kl(counts.Geometric, counts.Geometric)
def _geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(counts.Poisson, counts.Poisson)
def _poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(gamma_family.Gamma, gamma_family.Gamma)
def _gamma(p: Any, q: Any) -> Tensor:
    return (q.concentration * (p.rate / q.rate).log() + q.concentration.lgamma() - p.concentration.lgamma()
            + (p.concentration - q.concentration) * p.concentration.digamma()
            + (q.rate - p.rate) * (p.concentration / p.rate))


@register_kl(gamma_family.Dirichlet, gamma_family.Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    return (total.lgamma() - b.sum(-1).lgamma() + (b.lgamma() - a.lgamma()).sum(-1)
            + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1))


@register_kl(gamma_family.Beta, gamma_family.Beta)
def _beta(p: Any, q: Any) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(derived.HalfNormal, derived.HalfNormal)
def _half_normal(p: Any, q: Any) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(derived.Gumbel, derived.Gumbel)
def _gumbel(p: Any, q: Any) -> Tensor:
    ratio, shift = p.scale / q.scale, p.loc / q.scale - q.loc / q.scale
    found = ratio.log() * -1 + shift + ratio * derived.EULER
    return found + (-shift + (1 + ratio).lgamma()).exp() - (1 + derived.EULER)


@register_kl(derived.Pareto, derived.Pareto)
def _pareto(p: Any, q: Any) -> Tensor:
    scale, alpha = p.scale / q.scale, q.alpha / p.alpha
    found = q.alpha * scale.log() - alpha.log() + alpha - 1
    return genesis.where(p.scale < q.scale, math.inf, found)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Tensor:
    a, b, n = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril, p.event_shape[0]
    half = (b.diagonal(dim1=-2, dim2=-1).log() - a.diagonal(dim1=-2, dim2=-1).log()).sum(-1)
    shape = genesis.broadcast_shapes(a.shape, b.shape)
    solved = genesis.linalg.solve_triangular(b.expand(shape), a.expand(shape), upper=False)
    spread = solved.pow(2).sum((-2, -1))
    return half + 0.5 * (spread + squared_distance(b, q.loc - p.loc) - n)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(location_scale.Uniform, location_scale.Normal)
def _uniform_normal(p: Any, q: Any) -> Tensor:
    width, centre = p.high - p.low, (p.high + p.low - 2 * q.loc) / 2
    spread = (width.pow(2) / 12 + centre.pow(2)) / (2 * q.scale.pow(2))
    return (math.sqrt(2 * math.pi) * q.scale / width).log() + spread


@register_kl(location_scale.Normal, location_scale.Laplace)
def _normal_laplace(p: Any, q: Any) -> Tensor:
    z = (p.loc - q.loc) / p.scale
    apart = p.scale * (math.sqrt(2 / math.pi) * (-0.5 * z.pow(2)).exp() + z * (math.sqrt(0.5) * z).erf())
    return (2 * q.scale / p.scale).log() - 0.5 * math.log(2 * math.pi) - 0.5 + apart / q.scale
