"""Normal, Laplace, Cauchy, uniform and exponential distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.distribution import Distribution, broadcast_all
from genesis.distributions.exp_family import ExponentialFamily
from genesis.frontend.tensor import Tensor


def noise(draw: Any, shape: Sequence[int], like: Tensor) -> Tensor:
    """Random numbers of a tensor's dtype and device."""
    return draw(tuple(shape), dtype=like.dtype, device=like.device)


def open_uniform(shape: Sequence[int], like: Tensor) -> Tensor:
    """Uniform numbers that are neither 0 nor 1."""
    tiny = genesis.finfo(like.dtype).tiny
    return noise(genesis.rand, shape, like).clamp(min=tiny)


class _LocationScale(Distribution):
    """loc + scale · a standard variable."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _by_batch = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _standard(self, value: Tensor) -> Tensor:
        return (self._checked(value) - self.loc) / self.scale

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc


class Normal(_LocationScale, ExponentialFamily):
    """The normal distribution.

    Args:
        loc: mean.
        scale: standard deviation.

    >>> Normal(0.0, 2.0).variance
    tensor(4.)
    """

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def stddev(self) -> Tensor:
        """scale."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """scale²."""
        return self.scale.pow(2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + scale · noise."""
        return self.loc + noise(genesis.randn, self._extended_shape(sample_shape), self.loc) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        """-(x - loc)² / 2 scale² - log(scale √2π)."""
        z = self._checked(value) - self.loc
        return -(z * z) / (2 * self.scale * self.scale) - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value: Tensor) -> Tensor:
        """Computed by erf."""
        return 0.5 * (1 + (self._standard(value) / math.sqrt(2)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        """Computed by erfinv."""
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        """log(scale √2πe)."""
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()


class Laplace(_LocationScale):
    """A density that falls exponentially on both sides.

    Args:
        loc: mean.
        scale: mean distance.
    """

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """2 scale²."""
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        """√2 scale."""
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Drawn by the inverse of the cdf."""
        u = 2 * open_uniform(self._extended_shape(sample_shape), self.loc) - 1
        u = u.clamp(min=-1 + genesis.finfo(self.loc.dtype).eps)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        """-|x - loc| / scale - log 2 scale."""
        return -(2 * self.scale).log() - (self._checked(value) - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        """Computed for both sides at once."""
        z = self._standard(value)
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """Computed for both sides at once."""
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        """1 + log 2 scale."""
        return 1 + (2 * self.scale).log()


class Cauchy(_LocationScale):
    """The ratio of two normal variables; it has no mean.

    Args:
        loc: median.
        scale: half width at half height.
    """

    @property
    def mean(self) -> Tensor:
        """NaN."""
        return genesis.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        """∞."""
        return genesis.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Drawn by the inverse of the cdf."""
        return self.icdf(open_uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        """-log π scale (1 + z²)."""
        z = self._standard(value)
        return -math.log(math.pi) - self.scale.log() - (z * z).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        """Computed by the arctangent."""
        return self._standard(value).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        """Computed by the tangent."""
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        """log 4π scale."""
        return math.log(4 * math.pi) + self.scale.log()


class Uniform(Distribution):
    """Constant on [low, high).

    Args:
        low, high: the bounds.
    """

    has_rsample = True
    _by_batch = ("low", "high")

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ValueError("Uniform is not defined when low>= high")

    arg_constraints = {"low": constraints.dependent, "high": constraints.dependent}

    @constraints.dependent_property
    def support(self) -> Any:
        """Numbers from low to high."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        """The middle."""
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        """NaN: all values are as likely."""
        return math.nan * self.high

    @property
    def variance(self) -> Tensor:
        """(high - low)² / 12."""
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """low + noise · (high - low)."""
        return self.low + noise(genesis.rand, self._extended_shape(sample_shape), self.low) * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        """-log(high - low) inside."""
        value = self._checked(value)
        inside = (self.low <= value) & (self.high > value)
        return genesis.log(inside.type_as(self.low)) - genesis.log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        """How far it is."""
        return ((self._checked(value) - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        """Where it is."""
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        """log(high - low)."""
        return genesis.log(self.high - self.low)


class Exponential(ExponentialFamily):
    """Waiting times of events.

    Args:
        rate: events per unit.
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _by_batch = ("rate",)

    def __init__(self, rate: Any, validate_args: bool | None = None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """1 / rate."""
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        """0."""
        return genesis.zeros_like(self.rate)

    @property
    def variance(self) -> Tensor:
        """1 / rate²."""
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Drawn by the inverse of the cdf."""
        u = noise(genesis.rand, self._extended_shape(sample_shape), self.rate)
        return -(-u).log1p() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        """log rate - rate · x."""
        return self.rate.log() - self.rate * self._checked(value)

    def cdf(self, value: Tensor) -> Tensor:
        """1 - exp(-rate · x)."""
        return 1 - (-self.rate * self._checked(value)).exp()

    def icdf(self, value: Tensor) -> Tensor:
        """-log(1 - p) / rate."""
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        """1 - log rate."""
        return 1.0 - self.rate.log()
