"""Distributions of distributions: independent dimensions, mixtures, and transformed variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.distribution import Distribution
from genesis.distributions.transform import ComposeTransform, Transform, sum_rightmost
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor


class Independent(Distribution):
    """The last batch dimensions of a distribution as one value.

    Args:
        base_distribution: what is independent along them.
        reinterpreted_batch_ndims: how many dimensions.

    >>> import genesis
    >>> from genesis.distributions import Normal
    >>> Independent(Normal(genesis.zeros(3), 1.0), 1).log_prob(genesis.zeros(3)).shape
    genesis.Size([])
    """

    def __init__(self, base_distribution: Any, reinterpreted_batch_ndims: int, validate_args: bool | None = None):
        batch, event = base_distribution.batch_shape, base_distribution.event_shape
        if reinterpreted_batch_ndims > len(batch):
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                             f"{reinterpreted_batch_ndims} vs {len(batch)}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        cut = len(batch) - reinterpreted_batch_ndims
        super().__init__(batch[:cut], (*batch[cut:], *event), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        rest = self._event_shape[:self.reinterpreted_batch_ndims]
        return Independent(self.base_dist.expand((*batch_shape, *rest)), self.reinterpreted_batch_ndims,
                           validate_args=self._validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """What the base has."""
        return bool(self.base_dist.has_rsample)

    @property
    def support(self) -> Any:
        """The base's, for whole values."""
        base = self.base_dist.support
        return constraints.independent(base, self.reinterpreted_batch_ndims) if base is not None else None

    @property
    def mean(self) -> Tensor:
        """The base's."""
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        """The base's."""
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        """The base's."""
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The base's."""
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The base's."""
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Summed."""
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        """Summed."""
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """What the base has, where no dimension is part of a value."""
        return self.reinterpreted_batch_ndims == 0 and bool(self.base_dist.has_enumerate_support)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """The base's, where no dimension is part of a value."""
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(Distribution):
    """One of several distributions of a family.

    Args:
        mixture_distribution: a `Categorical` over the components.
        component_distribution: with the components along its last batch dimension.
    """

    def __init__(self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None):
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        components = component_distribution.batch_shape
        if mixture_distribution.logits.shape[-1] != components[-1]:
            raise ValueError(f"`mixture_distribution component` ({mixture_distribution.logits.shape[-1]}) does not "
                             f"equal `component_distribution.batch_shape[-1]` ({components[-1]})")
        self._num_component = components[-1]
        super().__init__(components[:-1], component_distribution.event_shape, validate_args=validate_args)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        return MixtureSameFamily(self._mixture_distribution.expand(batch_shape),
                                 self._component_distribution.expand((*batch_shape, self._num_component)))

    @property
    def mixture_distribution(self) -> Any:
        """The distribution over the components."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    @property
    def support(self) -> Any:
        """The components'."""
        return self._component_distribution.support

    def _weighted(self, x: Tensor) -> Tensor:
        """Summed over the components by their probabilities."""
        probs = self._mixture_distribution.probs.reshape(
            *self._mixture_distribution.probs.shape, *(1,) * len(self._event_shape))
        return (probs * x).sum(-1 - len(self._event_shape))

    @property
    def mean(self) -> Tensor:
        """The mean of the components' means."""
        return self._weighted(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """What it is within the components and between them."""
        centre = self.mean.unsqueeze(-1 - len(self._event_shape))
        within = self._weighted(self._component_distribution.variance)
        return within + self._weighted((self._component_distribution.mean - centre).pow(2))

    def cdf(self, value: Tensor) -> Tensor:
        """The mean of the components' cdfs."""
        return self._weighted(self._component_distribution.cdf(value.unsqueeze(-1 - len(self._event_shape))))

    def log_prob(self, value: Tensor) -> Tensor:
        """Computed by logsumexp."""
        found = self._component_distribution.log_prob(self._checked(value).unsqueeze(-1 - len(self._event_shape)))
        weights = genesis.log_softmax(self._mixture_distribution.logits, -1)
        return genesis.logsumexp(found + weights, dim=-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """A sample of the component that is drawn."""
        with no_grad():
            chosen = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            events = len(self._event_shape)
            index = chosen.reshape(*chosen.shape, *(1,) * (events + 1))
            index = index.expand((*chosen.shape, 1, *self._event_shape))
            return drawn.gather(-1 - events, index).squeeze(-1 - events)


class TransformedDistribution(Distribution):
    """What transforms make of a variable.

    Args:
        base_distribution: of the variable.
        transforms: one, or several in order.
    """

    def __init__(self, base_distribution: Any, transforms: Transform | Sequence[Transform],
                 validate_args: bool | None = None):
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        whole = ComposeTransform(self.transforms)
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        if len(shape) < whole.domain.event_dim:
            raise ValueError(f"base_distribution needs to have shape with size at least {whole.domain.event_dim}, but "
                             f"got {shape}.")
        own = len(base_distribution.event_shape)
        after = tuple(whole.forward_shape(shape))
        before = tuple(whole.inverse_shape(after))
        if before != shape:  # parameters of transforms have more dimensions: a variable for each
            base_distribution = base_distribution.expand(before[:len(before) - own])
        lift = whole.domain.event_dim - own
        self.base_dist: Any = Independent(base_distribution, lift) if lift > 0 else base_distribution
        cut = len(after) - max(whole.codomain.event_dim,
                               own + whole.codomain.event_dim - whole.domain.event_dim)
        super().__init__(after[:cut], after[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        shape = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self._event_shape))
        new = self._get_checked_instance(type(self))
        new.transforms = self.transforms
        new.base_dist = self.base_dist.expand(shape[:len(shape) - len(self.base_dist.event_shape)])
        Distribution.__init__(new, batch_shape, self._event_shape)
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """What the base has."""
        return bool(self.base_dist.has_rsample)

    @property
    def support(self) -> Any:
        """What the last transform leads to."""
        if not self.transforms:
            return self.base_dist.support
        found, events = self.transforms[-1].codomain, len(self._event_shape)
        return constraints.independent(found, events - found.event_dim) if events > found.event_dim else found

    def _through(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The base's, transformed."""
        with no_grad():
            return self._through(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The base's, transformed."""
        return self._through(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """The base's, less the transforms' log slopes."""
        y, total, events = self._checked(value), 0.0, len(self._event_shape)
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            events += transform.domain.event_dim - transform.codomain.event_dim
            total = total - sum_rightmost(transform.log_abs_det_jacobian(x, y), events - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y),
                                     events - len(self.base_dist.event_shape))

    def cdf(self, value: Tensor) -> Tensor:
        """The base's at the inverse."""
        sign: Any = 1
        for transform in reversed(self.transforms):
            sign = sign * transform.sign
            value = transform.inv(value)
        found = self.base_dist.cdf(value)
        return found if isinstance(sign, int) and sign == 1 else sign * (found - 0.5) + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        """The base's, transformed."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        value = value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5
        return self._through(self.base_dist.icdf(value))
