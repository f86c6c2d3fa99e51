"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.distribution import Distribution, broadcast_all
from genesis.distributions.location_scale import noise
from genesis.frontend.tensor import Tensor


class GeneralizedPareto(Distribution):
    """What lies beyond a high threshold: P(X > x) = (1 + c z)^(-1/c) with z = (x - loc) / scale, exp(-z) for c = 0.

    Args:
        loc: the threshold.
        scale: positive.
        concentration: c. Tails are those of a power for c > 0; below 0 values end at loc - scale / c.

    >>> import genesis
    >>> GeneralizedPareto(0.0, 2.0, 0.0).cdf(genesis.tensor(2.0))  # an exponential distribution's
    tensor(0.6321)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True
    _by_batch = ("loc", "scale", "concentration")

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None):
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        """Numbers from loc to where values end."""
        zero, c = self._concentration()
        ends = genesis.where(zero | (c > 0), math.inf, self.loc - self.scale / c)
        return constraints.interval(self.loc, ends)

    def _concentration(self) -> tuple[Tensor, Tensor]:
        """Where it is 0, and itself, with a number there by which formulas may divide."""
        zero = self.concentration == 0
        return zero, genesis.where(zero, 1.0, self.concentration)

    @property
    def mean(self) -> Tensor:
        """loc + scale / (1 - c), NaN from c = 1 on."""
        has = self.concentration < 1
        c = genesis.where(has, self.concentration, 0.5)
        return genesis.where(has, self.loc + self.scale / (1 - c), math.nan)

    @property
    def variance(self) -> Tensor:
        """scale² / ((1 - c)² (1 - 2c)), NaN from c = 1/2 on."""
        has = self.concentration < 0.5
        c = genesis.where(has, self.concentration, 0.25)
        return genesis.where(has, self.scale.pow(2) / ((1 - c).pow(2) * (1 - 2 * c)), math.nan)

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Drawn by the inverse of the cdf."""
        return self.icdf(noise(genesis.rand, self._extended_shape(sample_shape), self.loc))

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log P(X > x)."""
        z = (self._checked(value) - self.loc) / self.scale
        zero, c = self._concentration()
        return genesis.where(zero, -z, -(c * z).log1p() / c)

    def log_prob(self, value: Tensor) -> Tensor:
        """-(1 + 1/c) log(1 + c z) - log scale."""
        z = (self._checked(value) - self.loc) / self.scale
        zero, c = self._concentration()
        power = 1 / c + 1
        falls = genesis.where(zero, z, genesis.where(power == 0, 0.0, power * (c * z).log1p()))
        return -self.scale.log() - falls

    def log_cdf(self, value: Tensor) -> Tensor:
        """log P(X ≤ x)."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        """1 - (1 + c z)^(-1/c)."""
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """loc + scale ((1 - u)^(-c) - 1) / c."""
        zero, c = self._concentration()
        logs = (-value).log1p()
        found: Tensor = self.loc + self.scale * genesis.where(zero, -logs, (-c * logs).expm1() / c)
        return found

    def entropy(self) -> Tensor:
        """1 + c + log scale."""
        return self.scale.log() + self.concentration + 1
