"""Exponential families: the entropy by derivatives of the log normalizer."""

from __future__ import annotations

from typing import Any

from genesis.autograd import grad
from genesis.distributions.distribution import Distribution
from genesis.frontend.tensor import Tensor


class ExponentialFamily(Distribution):
    """A density exp(θ · t(x) - A(θ) + k(x)); a subclass gives θ, A and the mean of k."""

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """A(θ) - θ · ∇A(θ) - the mean of k."""
        parameters = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*parameters)
        gradients = grad(normalizer.sum(), parameters, create_graph=True)
        result = -self._mean_carrier_measure + normalizer
        for p, g in zip(parameters, gradients, strict=True):
            result = result - (p * g).reshape(*self._batch_shape, -1).sum(-1)
        return result
