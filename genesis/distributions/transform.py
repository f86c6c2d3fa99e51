"""What a transform is, and transforms that are made of others: composed, inverted, of values with several dimensions,
side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.frontend.tensor import Tensor


def sum_rightmost(value: Any, dims: int) -> Any:
    """Summed over the last dimensions."""
    return value if dims == 0 else value.reshape(*value.shape[:value.ndim - dims], -1).sum(-1)


class Transform:
    """A function y(x), its inverse, and log |dy/dx|.

    Attributes:
        domain, codomain: the constraints that x and y satisfy.
        bijective: each y has one x.
        sign: of the slope, of those that are monotonic.
        inv: the inverse, as a transform.

    >>> genesis.distributions.transforms.ExpTransform().inv(genesis.tensor(1.0))
    tensor(0.)
    """

    bijective = False
    domain: Any = constraints.real
    codomain: Any = constraints.real
    sign: Any = 1

    def __init__(self, cache_size: int = 0):
        self._cache_size = cache_size

    @property
    def event_dim(self) -> int:
        """How many dimensions of a tensor are one value."""
        return int(max(self.domain.event_dim, self.codomain.event_dim))

    @property
    def inv(self) -> Transform:
        """The inverse."""
        return _Inverse(self)

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Itself: equal programs are computed once anyway."""
        return self

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        return self._call(x)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx|, summed over one value."""
        raise NotImplementedError

    def forward_shape(self, shape: Any) -> Any:
        """The shape of y for a shape of x."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of x for a shape of y."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    bijective = True

    def __init__(self, transform: Transform):
        super().__init__()
        self._of = transform
        self.domain, self.codomain = transform.codomain, transform.domain
        self.bijective, self.sign = transform.bijective, transform.sign

    @property
    def inv(self) -> Transform:
        """What this is the inverse of."""
        return self._of

    def _call(self, x: Tensor) -> Tensor:
        return self._of._inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Less that of the transform."""
        return -self._of.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        """See `Transform`."""
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        """See `Transform`."""
        return self._of.forward_shape(shape)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._of!r})"


def _of_dimensions(constraint: Any, events: int) -> Any:
    """The constraint, of values of so many dimensions."""
    more = events - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


class ComposeTransform(Transform):
    """One transform after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        super().__init__(cache_size)
        self.parts = list(parts)
        self.bijective = all(part.bijective for part in self.parts)
        self.sign = math.prod(part.sign for part in self.parts) if self.parts else 1
        self.domain, self.codomain = constraints.real, constraints.real
        if self.parts:
            before, after = self.parts[-1].codomain.event_dim, self.parts[0].domain.event_dim
            for part in reversed(self.parts):
                before = max(before + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
            for part in self.parts:
                after = max(after + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
            self.domain = _of_dimensions(self.parts[0].domain, before)
            self.codomain = _of_dimensions(self.parts[-1].codomain, after)

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inverse(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of all parts'."""
        total: Any = genesis.zeros_like(x) if not self.parts else 0
        events = self.domain.event_dim
        for part in self.parts:
            after = part(x)
            total = total + sum_rightmost(part.log_abs_det_jacobian(x, after), events - part.domain.event_dim)
            events += part.codomain.event_dim - part.domain.event_dim
            x = after
        return total

    def forward_shape(self, shape: Any) -> Any:
        """See `Transform`."""
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """See `Transform`."""
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        parts = ",\n    ".join(map(repr, self.parts))
        return f"{type(self).__name__}(\n    {parts}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last dimensions are one value."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective, self.sign = base_transform.bijective, base_transform.sign
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform._inverse(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Summed over one value."""
        found = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(found, self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        """The base's."""
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        """The base's."""
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Values in another shape."""

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0):
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError("in_shape, out_shape have different numbers of elements")
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """0."""
        return genesis.zeros(x.shape[:x.ndim - len(self.in_shape)], dtype=x.dtype, device=x.device)

    def forward_shape(self, shape: Any) -> Any:
        """See `Transform`."""
        return (*shape[:len(shape) - len(self.in_shape)], *self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        """See `Transform`."""
        return (*shape[:len(shape) - len(self.out_shape)], *self.in_shape)


class _Joined(Transform):
    """Transforms of the parts of a tensor along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None,
                 cache_size: int = 0):
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        self.bijective = all(t.bijective for t in self.transforms)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        return x.split(self.lengths, self.dim)

    def _join(self, parts: list[Tensor]) -> Tensor:
        return genesis.cat(parts, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return self._join([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join([t._inverse(part) for t, part in zip(self.transforms, self._parts(y), strict=True)])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Part by part."""
        return self._join([t.log_abs_det_jacobian(a, b) for t, a, b in
                           zip(self.transforms, self._parts(x), self._parts(y), strict=True)])


class CatTransform(_Joined):
    """Parts side by side, of these lengths."""


class StackTransform(_Joined):
    """Parts along a dimension of their number."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        super().__init__(tseq, dim, None, cache_size)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        return x.unbind(self.dim)

    def _join(self, parts: list[Tensor]) -> Tensor:
        return genesis.stack(parts, self.dim)
