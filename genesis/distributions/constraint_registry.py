"""Which transform leads from all real numbers to a constraint: one-to-one (`biject_to`) or not (`transform_to`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from genesis.distributions import constraints, transforms
from genesis.distributions.transform import Transform

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Constraint, or class of constraints → a function that makes its transform.

    >>> biject_to(constraints.positive)
    ExpTransform()
    """

    def __init__(self) -> None:
        self._of: dict[Any, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Enter a function; without one, a decorator."""
        if factory is None:
            return lambda given: self.register(constraint, given)
        self._of[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Transform:
        factory = self._of.get(constraint) or self._of.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _above(c: Any) -> Transform:
    to = transforms.ExpTransform()
    if isinstance(c.lower_bound, (int, float)) and c.lower_bound == 0:
        return to
    return transforms.ComposeTransform([to, transforms.AffineTransform(c.lower_bound, 1)])


def _below(c: Any) -> Transform:
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(c.upper_bound, -1)])


def _between(c: Any) -> Transform:
    if (c.lower_bound, c.upper_bound) == (0.0, 1.0) if isinstance(c.lower_bound, (int, float)) else False:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(),
                                        transforms.AffineTransform(c.lower_bound, c.upper_bound - c.lower_bound)])


def _independent(to: ConstraintRegistry, c: Any) -> Transform:
    return transforms.IndependentTransform(to(c.base_constraint), c.reinterpreted_batch_ndims)


for _registry in (biject_to, transform_to):
    _registry.register(constraints.real, lambda c: transforms.identity_transform)
    _registry.register(constraints.greater_than, _above)
    _registry.register(constraints.greater_than_eq, _above)
    _registry.register(constraints.less_than, _below)
    _registry.register(constraints.interval, _between)
    _registry.register(constraints.half_open_interval, _between)
    _registry.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
    _registry.register(constraints.corr_cholesky, lambda c: transforms.CorrCholeskyTransform())
    _registry.register(constraints.positive_definite, lambda c: transforms.PositiveDefiniteTransform())
    _registry.register(constraints.independent, partial(_independent, _registry))
biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
