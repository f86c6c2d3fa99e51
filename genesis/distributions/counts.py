"""Yes or no, and counts: of successes, of failures before one, of events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.distribution import broadcast_all
from genesis.distributions.exp_family import ExponentialFamily
from genesis.distributions.location_scale import noise, open_uniform
from genesis.distributions.probabilities import Probabilities, enumerated
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.nn import functional as F


class Bernoulli(Probabilities, ExponentialFamily):
    """0 or 1.

    Args:
        probs: of 1.
        logits: their log-odds, instead.

    >>> import genesis
    >>> Bernoulli(probs=genesis.tensor(0.25)).log_prob(genesis.tensor(1.0)).exp()
    tensor(0.2500)
    """

    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        self._set(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """probs."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """1 or 0, NaN where both are as likely."""
        found = (self.probs >= 0.5).to(self.probs.dtype)
        return genesis.where(self.probs == 0.5, math.nan, found)

    @property
    def variance(self) -> Tensor:
        """p (1 - p)."""
        return self.probs * (1 - self.probs)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.shape

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Zeros and ones of the parameter's dtype."""
        with no_grad():
            return genesis.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        """Computed from the log-odds."""
        logits, value = broadcast_all(self.logits, self._checked(value))
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        """Computed from the log-odds."""
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 and 1."""
        return enumerated(genesis.arange(2, dtype=self._param.dtype, device=self._param.device), self, expand)


class Geometric(Probabilities):
    """The number of failures before the first success.

    Args:
        probs: of a success.
        logits: their log-odds, instead.
    """

    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        self._set(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """1 / p - 1."""
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        """0."""
        return genesis.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        """(1 / p - 1) / p."""
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Drawn by the inverse of the cdf."""
        with no_grad():
            u = open_uniform(self._extended_shape(sample_shape), self.probs)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        """x log(1 - p) + log p."""
        value, probs = broadcast_all(self._checked(value), self.probs)
        probs = genesis.where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        """A Bernoulli's, over p."""
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class _Counted(Probabilities):
    """Probabilities, and a number of trials."""

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        name = self._given()
        new = self._expanded(batch_shape, name, "total_count")
        new._param = getattr(new, name)
        return new

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.shape


class Binomial(_Counted):
    """The number of successes.

    Args:
        total_count: of trials.
        probs: of a success.
        logits: their log-odds, instead.
    """

    has_enumerate_support = True

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        (self.total_count,) = self._set(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True)
    def support(self) -> Any:
        """0 to total_count."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        """n p."""
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        """⌊(n + 1) p⌋, at most n."""
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        """n p (1 - p)."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """So many trials, counted. The memory of all trials is used."""
        with no_grad():
            trials = int(self.total_count.max())
            shape = (*self._extended_shape(sample_shape), max(1, trials))
            hits = noise(genesis.rand, shape, self._param) < self.probs.unsqueeze(-1)
            counted = genesis.arange(max(1, trials), device=self._param.device) < self.total_count.unsqueeze(-1)
            return (hits & counted).sum(-1).to(self._param.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-probability, with the number of ways."""
        value = self._checked(value)
        n, logits = self.total_count, self.logits
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        normalizer = n * (logits.clamp(min=0) + (-logits.abs()).exp().log1p())
        return value * logits + ways - normalizer

    def entropy(self) -> Tensor:
        """Summed over all values; trials must be as many everywhere."""
        if int(self.total_count.min()) != int(self.total_count.max()):
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        found = self.log_prob(self.enumerate_support(False))
        return -(found.exp() * found).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 to total_count."""
        most = int(self.total_count.max())
        if int(self.total_count.min()) != most:
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        return enumerated(genesis.arange(1 + most, dtype=self._param.dtype, device=self._param.device), self, expand)


class NegativeBinomial(_Counted):
    """The number of successes before `total_count` failures.

    Args:
        total_count: of failures.
        probs: of a success.
        logits: their log-odds, instead.
    """

    support = constraints.nonnegative_integer
    arg_constraints = {"total_count": constraints.nonnegative, "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        (self.total_count,) = self._set(probs, logits, total_count)
        self.total_count = self.total_count.type_as(self._param)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """n times the odds."""
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        """⌊(n - 1) times the odds⌋, at least 0."""
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        """The mean over 1 - p."""
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """A Poisson of a gamma variable."""
        from genesis.distributions.gamma_family import Gamma
        with no_grad():
            rate = Gamma(self.total_count, (-self.logits).exp(), validate_args=False).sample(sample_shape)
            return Poisson(rate, validate_args=False).sample()

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-probability, with the number of ways."""
        value = self._checked(value)
        n = self.total_count
        likelihood = n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)
        ways = (n + value).lgamma() - (1.0 + value).lgamma() - n.lgamma()
        return likelihood + genesis.where(n + value == 0, 0.0, ways)


class Poisson(ExponentialFamily):
    """The number of events.

    Args:
        rate: the mean.
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    _by_batch = ("rate",)

    def __init__(self, rate: Any, validate_args: bool | None = None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """rate."""
        return self.rate

    @property
    def mode(self) -> Tensor:
        """⌊rate⌋."""
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        """rate."""
        return self.rate

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Events whose waiting times sum to less than 1, counted. Uses memory for 10 deviations more than the mean."""
        with no_grad():
            return genesis.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        """x log rate - rate - log x!."""
        rate, value = broadcast_all(self.rate, self._checked(value))
        return genesis.special.xlogy(value, rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.exp()
