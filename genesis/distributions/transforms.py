"""Transforms: differentiable functions with an inverse and the logarithm of their slope."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.frontend.tensor import Tensor
from genesis.nn import functional as F

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CumulativeDistributionTransform",
           "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform",
           "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform",
           "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform"]


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

    >>> ExpTransform().inv(genesis.tensor(1.0))
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
        return f"{self._of!r}.inv"


class ComposeTransform(Transform):
    """One transform after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        super().__init__(cache_size)
        self.parts = list(parts)
        self.bijective = all(part.bijective for part in self.parts)
        self.sign = math.prod(part.sign for part in self.parts) if self.parts else 1
        events = max((part.event_dim for part in self.parts), default=0)
        first = self.parts[0].domain if self.parts else constraints.real
        last = self.parts[-1].codomain if self.parts else constraints.real
        self.domain, self.codomain = (c if c.event_dim >= events else constraints.independent(c, events - c.event_dim)
                                      for c in (first, last))

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inverse(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Of all, summed."""
        total: Any = genesis.zeros_like(x) if not self.parts else 0
        for part in self.parts:
            after = part(x)
            total = total + sum_rightmost(part.log_abs_det_jacobian(x, after), self.event_dim - part.event_dim)
            x = after
        return total  # type: ignore[no-any-return]

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
        return sum_rightmost(found, self.reinterpreted_batch_ndims)  # type: ignore[no-any-return]


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


class ExpTransform(Transform):
    """exp."""

    bijective, codomain = True, constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """x."""
        return x


class PowerTransform(Transform):
    """x to a power, of positive x."""

    bijective, domain, codomain = True, constraints.positive, constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.exponent = exponent

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |exponent · y / x|."""
        return (self.exponent * y / x).abs().log()  # type: ignore[no-any-return]


class SigmoidTransform(Transform):
    """The logistic function."""

    bijective, codomain = True, constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        finfo = genesis.finfo(x.dtype)
        return x.sigmoid().clamp(min=finfo.tiny, max=1.0 - finfo.eps)  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        finfo = genesis.finfo(y.dtype)
        y = y.clamp(min=finfo.tiny, max=1.0 - finfo.eps)
        return y.log() - (-y).log1p()  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """By softplus."""
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(Transform):
    """log(1 + exp x)."""

    bijective, codomain = True, constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log sigmoid."""
        return -F.softplus(-x)


class TanhTransform(Transform):
    """The hyperbolic tangent."""

    bijective, codomain = True, constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log(1 - tanh²), written so that it does not lose its digits."""
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AbsTransform(Transform):
    """The absolute value, whose inverse is positive."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """loc + scale · x."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim
        if event_dim:
            self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    @property
    def sign(self) -> Any:  # type: ignore[override]
        """Of scale."""
        return self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |scale|."""
        scale = self.scale
        found = (scale.abs().log() if isinstance(scale, Tensor)
                 else genesis.full_like(x, math.log(abs(scale))))
        return sum_rightmost(found.expand(x.shape), self._event_dim)  # type: ignore[no-any-return]


class SoftmaxTransform(Transform):
    """Any vector to probabilities; adding a constant changes nothing, so that it has no one inverse."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        found = (x - x.max(-1, True)[0]).exp()
        return found / found.sum(-1, True)  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()  # type: ignore[no-any-return]


class StickBreakingTransform(Transform):
    """A vector to probabilities of one class more: each element says how much of what is left is broken off."""

    bijective, domain, codomain = True, constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        offset = x.shape[-1] + 1 - x.new_ones(x.shape[-1]).cumsum(-1)
        z = (x - offset.log()).sigmoid()
        left = (1 - z).cumprod(-1)
        return F.pad(z, [0, 1], value=1) * F.pad(left, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        cropped = y[..., :-1]
        offset = y.shape[-1] - cropped.new_ones(cropped.shape[-1]).cumsum(-1)
        left = (1 - cropped.cumsum(-1)).clamp(min=genesis.finfo(y.dtype).tiny)
        return cropped.log() - left.log() + offset.log()  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Summed over the elements."""
        offset = x.shape[-1] + 1 - x.new_ones(x.shape[-1]).cumsum(-1)
        x = x - offset.log()
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)  # type: ignore[no-any-return]

    def forward_shape(self, shape: Any) -> Any:
        """One class more."""
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        """One class less."""
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """A square matrix to a lower triangular one with a positive diagonal."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()  # type: ignore[no-any-return]


class PositiveDefiniteTransform(Transform):
    """A square matrix to a positive definite one."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        x = LowerCholeskyTransform()(x)
        return x @ x.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform()._inverse(genesis.linalg.cholesky(y))


class _Joined(Transform):
    """Transforms of the parts of a tensor along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None,
                 cache_size: int = 0):
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        self.bijective = all(t.bijective for t in self.transforms)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        return x.split(self.lengths, self.dim)  # type: ignore[no-any-return]

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
        return x.unbind(self.dim)  # type: ignore[no-any-return]

    def _join(self, parts: list[Tensor]) -> Tensor:
        return genesis.stack(parts, self.dim)


class CumulativeDistributionTransform(Transform):
    """A distribution's cdf."""

    bijective, codomain = True, constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.distribution, self.domain = distribution, distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The density's logarithm."""
        return self.distribution.log_prob(x)  # type: ignore[no-any-return]
