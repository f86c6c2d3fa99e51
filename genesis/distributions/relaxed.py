"""Continuous stand-ins for discrete distributions, whose samples have gradients by the parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.categorical import Categorical
from genesis.distributions.composed import TransformedDistribution
from genesis.distributions.counts import Bernoulli
from genesis.distributions.distribution import Distribution
from genesis.distributions.location_scale import open_uniform
from genesis.distributions.probabilities import clamped
from genesis.distributions.transforms import ExpTransform, SigmoidTransform
from genesis.frontend.tensor import Tensor


class RelaxedBernoulli(TransformedDistribution):
    """A continuous stand-in for a Bernoulli variable (Maddison, Mnih and Teh 2017).

    Args:
        temperature: the lower, the nearer to 0 and 1.
        probs, logits: as of `Bernoulli`.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        super().__init__(_LogitRelaxed(temperature, probs, logits, validate_args), SigmoidTransform(),
                         validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """See the arguments."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Log-odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.logits.sigmoid()


class _LogitRelaxed(Distribution):
    has_rsample = True
    support = constraints.real

    def __init__(self, temperature: Any, probs: Any, logits: Any, validate_args: bool | None):
        self.temperature = temperature
        self.logits = Bernoulli(probs, logits, validate_args=validate_args).logits
        super().__init__(self.logits.shape, validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return _LogitRelaxed(self.temperature, None, self.logits.expand(tuple(batch_shape)), False)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = clamped(open_uniform(self._extended_shape(sample_shape), self.logits))
        return (u.log() - (-u).log1p() + self.logits) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        temperature = genesis.as_tensor(self.temperature, dtype=self.logits.dtype)
        diff = self.logits - value * temperature
        return temperature.log() + diff - 2 * diff.exp().log1p()


class RelaxedOneHotCategorical(TransformedDistribution):
    """A continuous stand-in for a one-hot vector (Jang, Gu and Poole 2017).

    Args:
        temperature: the lower, the nearer to one-hot.
        probs, logits: as of `Categorical`.
    """

    arg_constraints = Categorical.arg_constraints
    support = constraints.simplex

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        super().__init__(_ExpRelaxed(temperature, Categorical(probs, logits)), ExpTransform(),
                         validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """See the arguments."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Logarithms."""
        return self.base_dist._categorical.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist._categorical.probs


class _ExpRelaxed(Distribution):
    has_rsample = True
    support = constraints.real_vector

    def __init__(self, temperature: Any, categorical: Categorical):
        self.temperature, self._categorical = temperature, categorical
        super().__init__(categorical.batch_shape, (categorical._num_events,), validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return _ExpRelaxed(self.temperature, self._categorical.expand(batch_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        logits = self._categorical.logits
        u = clamped(open_uniform(self._extended_shape(sample_shape), logits))
        scores = (logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        n, logits = self._event_shape[0], self._categorical.logits
        temperature = genesis.as_tensor(self.temperature, dtype=logits.dtype)
        constant = math.lgamma(n) - temperature.log() * -(n - 1)
        score = logits - value * temperature
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + constant
