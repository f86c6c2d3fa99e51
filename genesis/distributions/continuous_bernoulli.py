"""The continuous Bernoulli distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.distribution import broadcast_all
from genesis.distributions.kl import register_kl
from genesis.distributions.location_scale import noise
from genesis.distributions.probabilities import Probabilities, clamped
from genesis.frontend.tensor import Tensor


class ContinuousBernoulli(Probabilities):
    """A density on [0, 1] in proportion to pˣ (1 - p)¹⁻ˣ (Loaiza-Ganem and Cunningham 2019).

    With t = 1 - 2p it is that times 2 artanh(t) / t. Formulas divide by t, so that near t = 0 their series stand in.

    Args:
        probs: p.
        logits: their log-odds, instead.
        lims: probabilities between which the series are taken.

    >>> import genesis
    >>> ContinuousBernoulli(probs=genesis.tensor(0.5)).log_prob(genesis.tensor(0.3))
    tensor(0.)
    """

    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
                 validate_args: bool | None = None):
        self._set(probs, logits)
        self._lims = lims
        super().__init__(self._param.shape, validate_args=validate_args)
        if logits is None:  # checked as they were given
            self.probs = self._param = clamped(self.probs)

    @staticmethod
    def _to_probs(logits: Tensor) -> Tensor:
        return clamped(logits.sigmoid())

    def _far(self) -> tuple[Tensor, Tensor]:
        """Where p is not near a half, and p there, with a number elsewhere by which formulas may divide."""
        far = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return far, genesis.where(far, self.probs, self._lims[0])

    def _log_odds(self, p: Tensor) -> Tensor:
        return p.log() - (-p).log1p()

    def _log_norm(self) -> Tensor:
        """log(2 artanh(t) / t)."""
        far, p = self._far()
        x = (self.probs - 0.5).pow(2)
        series = 0.6931471805599453 + (4 / 3 + 104 / 45 * x) * x
        return genesis.where(far, (self._log_odds(p) / (2 * p - 1)).log(), series)

    @property
    def mean(self) -> Tensor:
        """1 / (2 artanh(t)) - p / t."""
        far, p = self._far()
        x = self.probs - 0.5
        return genesis.where(far, p / (2 * p - 1) - 1 / self._log_odds(p), 0.5 + (1 / 3 + 16 / 45 * x.pow(2)) * x)

    @property
    def variance(self) -> Tensor:
        """1 / (2 artanh(t))² - p (1 - p) / t²."""
        far, p = self._far()
        x = (self.probs - 0.5).pow(2)
        return genesis.where(far, self._log_odds(p).pow(-2) - p * (1 - p) / (1 - 2 * p).pow(2),
                             1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.shape

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Drawn by the inverse of the cdf."""
        return self.icdf(noise(genesis.rand, self._extended_shape(sample_shape), self.probs))

    def log_prob(self, value: Tensor) -> Tensor:
        """Computed from the log-odds."""
        logits, value = broadcast_all(self.logits, self._checked(value))
        return value * logits - genesis.nn.functional.softplus(logits) + self._log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        """(pˣ (1 - p)¹⁻ˣ + p - 1) / (2p - 1)."""
        far, p = self._far()
        value = self._checked(value)
        found = (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1)
        return genesis.where(far, found, value).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        """Computed from the log-odds."""
        far, p = self._far()
        found = ((-p + value * (2 * p - 1)).log1p() - (-p).log1p()) / self._log_odds(p)
        return genesis.where(far, found, value)

    def entropy(self) -> Tensor:
        """-mean · log-odds - log(1 - p) - log(2 artanh(t) / t)."""
        found: Tensor = -self.mean * self._log_odds(self.probs) - self._log_norm() - (-self.probs).log1p()
        return found


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _divergence(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    own, other = ((-x.probs).log1p() + x._log_norm() for x in (p, q))
    return p.mean * (p.logits - q.logits) + own - other
