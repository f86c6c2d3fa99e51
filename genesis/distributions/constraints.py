"""Constraints: the sets that parameters and values lie in. `check` says for each value whether it does."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import genesis
from genesis.frontend.host_values import host_copy
from genesis.frontend.tensor import Tensor
from genesis.ir.suggest import suggesting

__all__ = ["Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
           "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent",
           "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer",
           "one_hot", "positive", "positive_definite", "positive_integer", "positive_semidefinite", "real",
           "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval"]


FEW: Final = 1024
"""Numbers up to which a check in host memory takes less time than to record it."""

_LOOKED_AT: Final = frozenset({genesis.float32, genesis.float64, genesis.int64, genesis.int32, genesis.bool})


class Constraint:
    """A set of values.

    Attributes:
        is_discrete: its values are integers.
        event_dim: how many dimensions of a tensor are one value.
    """

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each value is in the set."""
        raise NotImplementedError

    def holds(self, value: Tensor) -> bool:
        """Whether all values are in the set, which reads them. Few numbers in host memory are looked at there: to
        record and run a check takes ten times as long."""
        if not (self._takes_arrays() and value.is_cpu and value.numel() <= FEW and value.dtype in _LOOKED_AT):
            return bool(self.check(value).all())
        import numpy as np
        with np.errstate(all="ignore"):
            return bool(self.check(host_copy(value)).all())

    def holds_later(self, value: Tensor) -> bool:
        """Whether a check may be part of the program that computes the value: one that has not run, on the CPU, where
        the program raises, and a check by numbers alone."""
        return self._takes_arrays() and value.is_cpu and not value.storage.settled

    def _takes_arrays(self) -> bool:
        """Whether `check` takes numpy's arrays, too."""
        return False

    def __repr__(self) -> str:
        return _title(type(self)) + "()"


def _title(kind: type) -> str:
    """torch's name of a class: `greater_than` is an instance's maker there, and GreaterThan the class."""
    name = kind.__name__.removeprefix("_")
    return name if name[0].isupper() else "".join(part.capitalize() for part in name.split("_"))


class _Checked(Constraint):
    """A constraint that a function checks. `arrays`: it takes numpy's arrays, too.

    >>> positive.check(genesis.tensor([1.0, -1.0]))
    tensor([ True, False])
    """

    def __init__(self, name: str, check: Callable[[Any], Any], event_dim: int = 0, is_discrete: bool = False,
                 arrays: bool = False):
        self._name, self._check, self.event_dim, self.is_discrete = name, check, event_dim, is_discrete
        self._arrays = arrays

    def _takes_arrays(self) -> bool:
        return self._arrays

    def check(self, value: Tensor) -> Tensor:
        """See `Constraint.check`."""
        return self._check(value)

    def __repr__(self) -> str:
        return self._name


class _Dependent(Constraint):
    """A set that depends on parameters; nothing checks it."""

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0):
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, *, is_discrete: bool | None = None, event_dim: int | None = None) -> _Dependent:
        """The same with other attributes."""
        return _Dependent(is_discrete=self.is_discrete if is_discrete is None else is_discrete,
                          event_dim=self.event_dim if event_dim is None else event_dim)

    def check(self, value: Tensor) -> Tensor:
        """An error: what it depends on is not known."""
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, _Dependent):
    """A property that is a constraint, which an instance knows and the class does not."""

    def __init__(self, fn: Any = None, *, is_discrete: bool = False, event_dim: int = 0):
        property.__init__(self, fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> dependent_property:  # type: ignore[override]
        """The property, where it is a decorator with arguments."""
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: Any) -> bool:
    """Whether a set depends on parameters."""
    return isinstance(constraint, _Dependent)


class independent(Constraint):
    """Values of a constraint, the last dimensions of which are one value."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def _takes_arrays(self) -> bool:
        return type(self) is independent and self.base_constraint._takes_arrays()

    def check(self, value: Tensor) -> Tensor:
        """All of the last dimensions are in the set."""
        found = self.base_constraint.check(value)
        lead = found.ndim - self.reinterpreted_batch_ndims
        return found.reshape(*found.shape[:lead], -1).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class _Bounded(Constraint):
    """Values between bounds, which may be tensors."""

    def __init__(self, lower_bound: Any = None, upper_bound: Any = None, closed: tuple[bool, bool] = (True, True),
                 integer: bool = False):
        self.lower_bound, self.upper_bound, self._closed, self.is_discrete = lower_bound, upper_bound, closed, integer

    def _takes_arrays(self) -> bool:
        return type(self).check is _Bounded.check and not any(
            isinstance(bound, Tensor) for bound in (self.lower_bound, self.upper_bound))

    def check(self, value: Tensor) -> Tensor:
        """Whether it is between the bounds."""
        found = [value % 1 == 0] if self.is_discrete and value.dtype.kind in ("float", "f") else []  # numpy's: "f"
        if self.lower_bound is not None:
            found.append((value >= self.lower_bound) if self._closed[0] else (value > self.lower_bound))
        if self.upper_bound is not None:
            found.append((value <= self.upper_bound) if self._closed[1] else (value < self.upper_bound))
        return functools.reduce(operator.and_, found or [value == value])  # NaN is on no side of a bound

    def __repr__(self) -> str:
        title = _title(type(self)) if type(self) is not _Bounded else "IntegerGreaterThan"
        bounds = [f"{name}={bound}" for name in ("lower_bound", "upper_bound")
                  if (bound := getattr(self, name)) is not None]
        return f"{title}({', '.join(bounds)})"


class greater_than(_Bounded):
    """Numbers above a bound."""

    def __init__(self, lower_bound: Any):
        super().__init__(lower_bound, None, (False, True))


class greater_than_eq(_Bounded):
    """Numbers not below a bound."""

    def __init__(self, lower_bound: Any):
        super().__init__(lower_bound)


class less_than(_Bounded):
    """Numbers below a bound."""

    def __init__(self, upper_bound: Any):
        super().__init__(None, upper_bound, (True, False))


class interval(_Bounded):
    """Numbers between two bounds, both included."""

    def __init__(self, lower_bound: Any, upper_bound: Any):
        super().__init__(lower_bound, upper_bound)


class half_open_interval(_Bounded):
    """Numbers between two bounds, the lower one included."""

    def __init__(self, lower_bound: Any, upper_bound: Any):
        super().__init__(lower_bound, upper_bound, (True, False))


class integer_interval(_Bounded):
    """Integers between two bounds, both included."""

    def __init__(self, lower_bound: Any, upper_bound: Any):
        super().__init__(lower_bound, upper_bound, integer=True)


class multinomial(Constraint):
    """Counts that sum to at most a number."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        """Not negative, and of that sum."""
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _Joined(Constraint):
    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None):
        self.cseq, self.dim = list(cseq), dim
        self.lengths = list(lengths) if lengths is not None else [1] * len(self.cseq)
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        self.event_dim = max(c.event_dim for c in self.cseq)


class cat(_Joined):
    """Values side by side along a dimension, each part of its own constraint."""

    def check(self, value: Tensor) -> Tensor:
        """Part by part."""
        parts = value.split(self.lengths, self.dim)
        return genesis.cat([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class stack(_Joined):
    """Values stacked along a dimension, each of its own constraint."""

    def check(self, value: Tensor) -> Tensor:
        """Part by part."""
        parts = value.unbind(self.dim)
        return genesis.stack([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


def _lower(x: Tensor) -> Tensor:
    return (x.tril() == x).flatten(-2).all(-1)


def _positive_definite(x: Tensor) -> Tensor:
    return (x.isclose(x.mT, atol=1e-6).flatten(-2).all(-1) & (genesis.linalg.eigvalsh(x) > 0).all(-1))


boolean = _Checked("Boolean()", lambda x: (x == 0) | (x == 1), is_discrete=True, arrays=True)
real = _Checked("Real()", lambda x: x == x, arrays=True)
real_vector = independent(real, 1)
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
nonnegative_integer, positive_integer = _Bounded(0, integer=True), _Bounded(1, integer=True)
one_hot = _Checked("OneHot()", lambda x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1), 1, True,
                   True)
simplex = _Checked("Simplex()", lambda x: (x >= 0).all(-1) & (abs(x.sum(-1) - 1) < 1e-6), 1, arrays=True)
lower_triangular = _Checked("LowerTriangular()", _lower, 2)
lower_cholesky = _Checked("LowerCholesky()", lambda x: _lower(x) & (x.diagonal(dim1=-2, dim2=-1) > 0).all(-1), 2)
corr_cholesky = _Checked("CorrCholesky()", lambda x: lower_cholesky.check(x) & (
    (x.norm(dim=-1) - 1).abs() <= 10 * genesis.finfo(x.dtype).eps * x.shape[-1]).all(-1), 2)
square = _Checked("Square()", lambda x: genesis.full(x.shape[:-2], x.shape[-1] == x.shape[-2], dtype=genesis.bool), 2)
symmetric = _Checked("Symmetric()", lambda x: x.isclose(x.mT, atol=1e-6).flatten(-2).all(-1), 2)
positive_semidefinite = _Checked("PositiveSemidefinite()", lambda x: (genesis.linalg.eigvalsh(x) >= -1e-6).all(-1), 2)
positive_definite = _Checked("PositiveDefinite()", _positive_definite, 2)
dependent = _Dependent()

__getattr__ = suggesting(__name__)
