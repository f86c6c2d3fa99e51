"""One of several classes: its number, or a one-hot vector; and how often each comes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.counts import Binomial
from genesis.distributions.distribution import Distribution, Shape, broadcast_all
from genesis.distributions.probabilities import Probabilities, clamped, enumerated
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.nn import functional as F


class Categorical(Probabilities):
    """One of several classes, by number.

    Args:
        probs: (..., classes), not negative; they are divided by their sum.
        logits: their logarithms up to a constant, instead.

    >>> import genesis
    >>> Categorical(genesis.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given = probs if logits is None else logits
        if given.ndim < 1:
            raise ValueError(f"`{'probs' if logits is None else 'logits'}` parameter must be at least one-dimensional.")
        if logits is None:
            self.probs = self._param = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = self._param = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(self._param.shape[:-1], validate_args=validate_args)

    @staticmethod
    def _to_probs(logits: Tensor) -> Tensor:
        return F.softmax(logits, dim=-1)

    @staticmethod
    def _to_logits(probs: Tensor) -> Tensor:
        return clamped(probs).log()

    @constraints.dependent_property(is_discrete=True)
    def support(self) -> Any:
        """0 to classes - 1."""
        return constraints.integer_interval(0, self._num_events - 1)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        name = self._given()
        new = self._get_checked_instance(type(self))
        new._param = self._param.expand((*batch_shape, self._num_events))
        setattr(new, name, new._param)
        new._num_events = self._num_events
        Distribution.__init__(new, batch_shape)
        new._validate_args = self._validate_args
        return new

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.shape

    @property
    def mean(self) -> Tensor:
        """NaN: classes have no order."""
        return genesis.full(self._batch_shape, math.nan, dtype=self.probs.dtype, device=self.probs.device)

    variance = mean

    @property
    def mode(self) -> Tensor:
        """The most likely class."""
        return self.probs.argmax(dim=-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """int64 numbers of classes."""
        shape = tuple(sample_shape)
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = genesis.multinomial(rows, math.prod(shape), True).T
            return drawn.reshape(self._extended_shape(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """The class's logarithm."""
        value = self._checked(value).long().unsqueeze(-1)
        value, logits = genesis.broadcast_tensors(value, self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        """-Σ p log p."""
        logits = self.logits.clamp(min=genesis.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All classes."""
        return enumerated(genesis.arange(self._num_events, device=self._param.device), self, expand)


class _OfDraws(Distribution):
    """A distribution over what draws of a `Categorical` are made into."""

    arg_constraints = Categorical.arg_constraints
    _categorical: Categorical

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        new = self._get_checked_instance(type(self))
        new._categorical = self._categorical.expand(batch_shape)
        Distribution.__init__(new, batch_shape, self._event_shape)
        return new

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Their logarithms."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape


class OneHotCategorical(_OfDraws):
    """`Categorical` whose values are one-hot vectors; arguments as of it."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, (self._categorical._num_events,), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """probs."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The most likely vector."""
        return F.one_hot(self.probs.argmax(-1), self._event_shape[0]).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        """p (1 - p)."""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """One-hot vectors of the parameter's dtype."""
        drawn = self._categorical.sample(sample_shape)
        return F.one_hot(drawn, self._event_shape[0]).to(self._categorical._param.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """The class's logarithm."""
        return self._categorical.log_prob(self._checked(value).max(-1)[1])

    def entropy(self) -> Tensor:
        """-Σ p log p."""
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All vectors."""
        n = self._event_shape[0]
        values = genesis.eye(n, dtype=self.probs.dtype).view((n, *(1,) * len(self._batch_shape), n))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One whose samples have the gradient of the probabilities (Bengio et al. 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """A sample, with the probabilities' gradient."""
        return OneHotCategorical.sample(self, sample_shape) + (self.probs - self.probs.detach())


class Multinomial(_OfDraws):
    """How often each class comes in several draws.

    Args:
        total_count: of draws.
        probs, logits: as of `Categorical`.
    """

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, (self._categorical._num_events,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Counts of that sum."""
        return constraints.multinomial(self.total_count)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        new = super().expand(batch_shape)
        new.total_count = self.total_count
        return new

    @property
    def mean(self) -> Tensor:
        """n p."""
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        """n p (1 - p)."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, counted."""
        shape: Shape = tuple(sample_shape)
        drawn = self._categorical.sample((self.total_count, *shape))
        return F.one_hot(drawn, self._event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-probability, with the number of ways."""
        logits, value = broadcast_all(self.logits, self._checked(value))
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        logits = genesis.where((value == 0) & (logits == -math.inf), 0.0, logits)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        """The entropy of the draws, less that of the ways."""
        n = self.total_count
        counts = Binomial(n, self.probs).enumerate_support(False)[1:]
        weights = Binomial(n, self.probs, validate_args=False).log_prob(counts).exp()
        return (n * self._categorical.entropy() - math.lgamma(n + 1)
                + (weights * (counts + 1).lgamma()).sum((0, -1)))
