"""The von Mises distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.distribution import Distribution, broadcast_all
from genesis.distributions.kl import register_kl
from genesis.distributions.location_scale import noise, open_uniform
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor


class VonMises(Distribution):
    """A density over angles in proportion to exp(concentration · cos(x - loc)). Samples are from -π to π.

    Args:
        loc: the most likely angle.
        concentration: 0 for all angles alike.

    >>> import genesis
    >>> VonMises(0.0, 4.0).log_prob(genesis.tensor([0.0, 2 * 3.14159265]))
    tensor([-0.2628, -0.2628])
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    _by_batch = ("loc", "concentration")

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """The direction of the mean: loc."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance of directions, 1 - I₁(c) / I₀(c)."""
        c = self.concentration
        return 1 - genesis.special.i1e(c) / genesis.special.i0e(c)

    def log_prob(self, value: Tensor) -> Tensor:
        """c · cos(x - loc) - log 2π I₀(c)."""
        c = self.concentration
        found: Tensor = (c * ((self._checked(value) - self.loc).cos() - 1) - math.log(2 * math.pi)
                         - genesis.special.i0e(c).log())
        return found

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Proposals from a wrapped Cauchy distribution, at least 0.65 of which are taken (Best and Fisher 1979): drawn
        until there is one for each sample, in float64."""
        shape = self._extended_shape(sample_shape)
        c = self.concentration.double().expand(shape)
        tau = 1 + (1 + 4 * c * c).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * c)
        r = genesis.where(c < 1e-5, 1 / c + c, (1 + rho * rho) / (2 * rho))
        found, done = genesis.zeros_like(c), genesis.zeros_like(c, dtype=genesis.bool)
        while not done.all():
            z = (math.pi * noise(genesis.rand, shape, c)).cos()
            f = (1 + r * z) / (r + z)
            odds, u = c * (r - f), open_uniform(shape, c)
            taken = (odds * (2 - odds) - u > 0) | ((odds / u).log() + 1 - odds >= 0)
            angle = f.clamp(-1, 1).acos() * (noise(genesis.rand, shape, c) - 0.5).sign()
            found, done = genesis.where(taken & ~done, angle, found), done | taken
        return ((found + math.pi + self.loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)


@register_kl(VonMises, VonMises)
def _divergence(p: VonMises, q: VonMises) -> Tensor:
    """E[log p - log q]: the mean of exp(ix) under p is I₁ / I₀ in direction loc."""
    a, b = p.concentration, q.concentration
    mean = genesis.special.i1e(a) / genesis.special.i0e(a)
    return (mean * (a - b * (p.loc - q.loc).cos())
            + genesis.special.i0e(b).log() + b - genesis.special.i0e(a).log() - a)
