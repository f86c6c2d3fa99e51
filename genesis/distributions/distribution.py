"""The base of distributions: shapes, checks of arguments, and what can be said of any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import genesis
from genesis.distributions import constraints
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Size, Tensor
from genesis.ir.suggest import Suggesting
from genesis.ops.common import required

Shape = tuple[int, ...]


class Distribution(Suggesting):
    """A distribution over values of `event_shape`, `batch_shape` of them side by side.

    Args:
        batch_shape: of the parameters.
        event_shape: of one value.
        validate_args: check parameters and values, which reads them; on unless `set_default_validate_args(False)`.

    Attributes:
        has_rsample: samples are differentiable by the parameters.
    """

    has_rsample: ClassVar[bool] = False
    has_enumerate_support: ClassVar[bool] = False
    arg_constraints: Any = {}
    support: Any = None
    _checks = True
    _validate_args: bool
    _looked_at: ClassVar[Any] = None
    """Constraints of what is checked, where `arg_constraints` names what follows from it."""
    _by_batch: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters, all of the batch's shape, where a class needs no more to be expanded."""

    def __init__(self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (),
                 validate_args: bool | None = None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None or "_validate_args" not in vars(self):
            self._validate_args = Distribution._checks if validate_args is None else validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self) -> None:
        for name, constraint in (self._looked_at or self.arg_constraints).items():
            if constraints.is_dependent(constraint) or name not in vars(self) or not _readable(vars(self)[name]):
                continue
            value = vars(self)[name]
            if name in self._parameters() and constraint.holds_later(value):
                self._put(name, self._required(f"parameter {name}", value, constraint))
            elif not constraint.holds(value):
                raise ValueError(f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                                 f"distribution {self!r} to satisfy the constraint {constraint!r}, but found invalid "
                                 f"values:\n{value}")

    def _parameters(self) -> tuple[str, ...]:
        """Names of the parameters that all else is computed from when it is asked for."""
        return self._by_batch

    def _put(self, name: str, value: Tensor) -> None:
        """Make a value the parameter of that name."""
        setattr(self, name, value)

    def _required(self, what: str, value: Tensor, constraint: constraints.Constraint) -> Tensor:
        """A value of a program that has not run, which raises when something that is computed from it is read, and at
        once where the user would catch it: to read each here would run the program for each."""
        return required(type(self).__name__, value, constraint.check(value),
                        f"Expected {what} to satisfy the constraint {constraint!r}, but found invalid values")

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their arguments where it is not said."""
        if value not in (True, False):
            raise ValueError
        Distribution._checks = value

    @property
    def batch_shape(self) -> Any:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of one value."""
        return self._event_shape

    # The part that a subclass defines

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        if not self._by_batch:
            raise NotImplementedError
        return self._expanded(batch_shape, *self._by_batch)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples that are differentiable by the parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample: its samples are not differentiable")

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at values."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        raise NotImplementedError(f"{type(self).__name__} does not implement mode")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values not above these."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The values that `cdf` maps to these."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first dimension."""
        raise NotImplementedError

    # What follows

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples of shape sample_shape + batch_shape + event_shape, without gradients."""
        with no_grad():
            return self.rsample(sample_shape).detach()

    def sample_n(self, n: int) -> Tensor:
        """n samples."""
        return self.sample((n,))

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def perplexity(self) -> Tensor:
        """e to the entropy."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Any:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Any) -> None:
        """Raise for a value of another shape, or outside of the support."""
        self._checked_sample(value, later=False)

    def _checked_sample(self, value: Any, later: bool) -> Any:
        """The value, if it has the shape of one and is within the support; `later`: it may be looked at when it is
        computed."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        events = len(self._event_shape)
        if events and tuple(value.shape[len(value.shape) - events:]) != tuple(self._event_shape):
            raise ValueError(f"The right-most size of value must match event_shape: {value.shape} vs "
                             f"{self._event_shape}.")
        support = self.support
        if not _readable(value) or support is None or constraints.is_dependent(support):
            return value
        if later and support.holds_later(value):
            return self._required("value argument", value, support)
        if not support.holds(value):
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be "
                             f"within the support ({support!r}) of the distribution {self!r}, but found invalid "
                             f"values:\n{value}")
        return value

    def _checked(self, value: Tensor) -> Tensor:
        if not self._validate_args:
            return value
        if type(self)._validate_sample is not Distribution._validate_sample:  # a class of the user's looks itself
            self._validate_sample(value)
            return value
        return self._checked_sample(value, later=True)

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        new = object.__new__(type(self)) if _instance is None else _instance
        new._validate_args = False
        return new

    def _expanded(self, batch_shape: Sequence[int], *names: str) -> Any:
        """A distribution of the same class with these parameters expanded."""
        new = self._get_checked_instance(type(self))
        for name in names:
            value = getattr(self, name)
            setattr(new, name, value if value is None else value.expand(tuple(batch_shape)))
        Distribution.__init__(new, batch_shape, self._event_shape)
        new._validate_args = self._validate_args
        return new

    def __repr__(self) -> str:
        listed = [(name, vars(self)[name]) for name in self.arg_constraints if name in vars(self)]
        shown = [f"{name}: {value if value.numel() == 1 else value.size()}" for name, value in listed
                 if isinstance(value, Tensor)]
        return f"{type(self).__name__}({', '.join(shown)})"


def _readable(x: Any) -> bool:
    """Whether a value can be looked at now: while a compiled function is captured, checks would be part of it."""
    from genesis.compiler import is_compiling
    return not is_compiling()


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Numbers and tensors as tensors of one shape and dtype.

    >>> [x.tolist() for x in broadcast_all(1.0, genesis.zeros(2))]
    [[1.0, 1.0], [0.0, 0.0]]
    """
    tensors = [x for x in values if isinstance(x, Tensor)]
    like: dict[str, Any] = {"dtype": tensors[0].dtype, "device": tensors[0].device} if tensors else {}
    if like and not like["dtype"].is_floating_point:
        like["dtype"] = genesis.get_default_dtype()
    if not tensors:
        like["dtype"] = genesis.get_default_dtype()
    return genesis.broadcast_tensors(*[x if isinstance(x, Tensor) else genesis.tensor(x, **like) for x in values])
