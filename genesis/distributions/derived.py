"""Distributions that are a transform of another: of normal, uniform, gamma and exponential variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.composed import TransformedDistribution
from genesis.distributions.distribution import broadcast_all
from genesis.distributions.gamma_family import Gamma
from genesis.distributions.location_scale import Cauchy, Exponential, Normal, Uniform
from genesis.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ExpTransform,
    PowerTransform,
    StickBreakingTransform,
)
from genesis.frontend.tensor import Tensor

EULER = 0.57721566490153286060
"""Euler and Mascheroni's constant: the mean of Gumbel's distribution."""


class LogNormal(TransformedDistribution):
    """exp of a normal variable.

    Args:
        loc, scale: of the logarithm.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The logarithm's."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The logarithm's."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        """exp(loc + scale² / 2)."""
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Tensor:
        """exp(loc - scale²)."""
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        """(exp scale² - 1) exp(2 loc + scale²)."""
        square = self.scale.pow(2)
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        """The logarithm's, and loc."""
        return self.base_dist.entropy() + self.loc


class LogisticNormal(TransformedDistribution):
    """Probabilities made of normal variables by stick breaking.

    Args:
        loc, scale: (..., n): there are n + 1 classes.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)


class _Half(TransformedDistribution):
    """The absolute value of a variable around 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    base: Any

    def __init__(self, scale: Any, validate_args: bool | None = None):
        super().__init__(self.base(0, scale, validate_args=validate_args), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The variable's, before its sign is dropped."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        """0."""
        return genesis.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        """Twice the density, of values that are not negative."""
        found = self.base_dist.log_prob(self._checked(value)) + math.log(2)
        return genesis.where(value >= 0, found, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        """The values of one side, as both have the same."""
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Tensor) -> Tensor:
        """The values of one side, as both have the same."""
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        """The variable's, less log 2."""
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """The absolute value of a normal variable around 0."""

    base = Normal

    @property
    def mean(self) -> Tensor:
        """scale √(2 / π)."""
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        """scale² (1 - 2 / π)."""
        return self.scale.pow(2) * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """The absolute value of a Cauchy variable around 0."""

    base = Cauchy

    @property
    def mean(self) -> Tensor:
        """∞."""
        return genesis.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        """∞."""
        return genesis.full_like(self.scale, math.inf)


class Pareto(TransformedDistribution):
    """A number above `scale`, whose density falls as a power.

    Args:
        scale: the least value.
        alpha: the power, less 1.
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None):
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(Exponential(self.alpha, validate_args=validate_args),
                         [ExpTransform(), AffineTransform(loc=0, scale=self.scale)], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        return Pareto(self.scale.expand(tuple(batch_shape)), self.alpha.expand(tuple(batch_shape)))

    @property
    def support(self) -> Any:
        """Numbers from `scale` on."""
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        """∞ for alpha ≤ 1."""
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        """scale."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """∞ for alpha ≤ 2."""
        a = self.alpha.clamp(min=2)
        return self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))

    def entropy(self) -> Tensor:
        """Computed in closed form."""
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class Gumbel(TransformedDistribution):
    """The largest of many.

    Args:
        loc, scale: where, and how wide.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        self.loc, self.scale = broadcast_all(loc, scale)
        finfo = genesis.finfo(self.loc.dtype)
        base = Uniform(genesis.full_like(self.loc, finfo.tiny), genesis.full_like(self.loc, 1 - finfo.eps),
                       validate_args=validate_args)
        super().__init__(base, [ExpTransform().inv, AffineTransform(0, -genesis.ones_like(self.scale)),
                                ExpTransform().inv, AffineTransform(self.loc, -self.scale)],
                         validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        return Gumbel(self.loc.expand(tuple(batch_shape)), self.scale.expand(tuple(batch_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        """Computed in closed form."""
        y = (self.loc - self._checked(value)) / self.scale
        return (y - y.exp()) - self.scale.log()

    @property
    def mean(self) -> Tensor:
        """loc + γ scale."""
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """π² scale² / 6."""
        return (math.pi / math.sqrt(6) * self.scale).pow(2)

    def entropy(self) -> Tensor:
        """log scale + 1 + γ."""
        return self.scale.log() + (1 + EULER)


class Weibull(TransformedDistribution):
    """A power of a waiting time.

    Args:
        scale: of the time.
        concentration: 1 over the power.
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        super().__init__(Exponential(genesis.ones_like(self.scale), validate_args=validate_args),
                         [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)],
                         validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        return Weibull(self.scale.expand(tuple(batch_shape)), self.concentration.expand(tuple(batch_shape)))

    @property
    def mean(self) -> Tensor:
        """scale Γ(1 + 1/k)."""
        return self.scale * (1 + self.concentration_reciprocal).lgamma().exp()

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        k = self.concentration
        return self.scale * ((k - 1) / k).pow(self.concentration_reciprocal)

    @property
    def variance(self) -> Tensor:
        """Computed by gamma functions."""
        r = self.concentration_reciprocal
        return self.scale.pow(2) * ((1 + 2 * r).lgamma().exp() - (2 * (1 + r).lgamma()).exp())

    def entropy(self) -> Tensor:
        """Computed in closed form."""
        r = self.concentration_reciprocal
        return EULER * (1 - r) + (self.scale * r).log() + 1


class InverseGamma(TransformedDistribution):
    """1 over a gamma variable.

    Args:
        concentration, rate: of the gamma variable.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None):
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-genesis.ones((), dtype=base.rate.dtype, device=base.rate.device)),
                         validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """The gamma variable's."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """The gamma variable's."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        """rate / (a - 1), ∞ for a ≤ 1."""
        return genesis.where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        """rate / (a + 1)."""
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        """∞ for a ≤ 2."""
        a = self.concentration
        return genesis.where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        """Computed by digamma."""
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class Kumaraswamy(TransformedDistribution):
    """A probability whose cdf has a closed form.

    Args:
        concentration1, concentration0: of the two powers.
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        one = genesis.ones_like(self.concentration0)
        super().__init__(Uniform(0 * one, one, validate_args=False),
                         [PowerTransform(self.concentration0.reciprocal()), AffineTransform(1.0, -1.0),
                          PowerTransform(self.concentration1.reciprocal())], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        return Kumaraswamy(self.concentration1.expand(tuple(batch_shape)),
                           self.concentration0.expand(tuple(batch_shape)))

    def entropy(self) -> Tensor:
        """Computed by digamma."""
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + EULER
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - a.log() - b.log()

    def _moment(self, n: int) -> Tensor:
        a, b = 1 + n / self.concentration1, self.concentration0
        return (b.log() + a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    @property
    def mode(self) -> Tensor:
        """Where the density is highest, NaN where that is at an end."""
        a, b = self.concentration1, self.concentration0
        found = (b.reciprocal() * (-b).log1p() - (-a * b).log1p()).exp()  # torch's formula
        return genesis.where((a < 1) | (b < 1), math.nan, found)

    @property
    def mean(self) -> Tensor:
        """Computed by gamma functions."""
        return self._moment(1)

    @property
    def variance(self) -> Tensor:
        """Computed by gamma functions."""
        return self._moment(2) - self._moment(1).pow(2)
