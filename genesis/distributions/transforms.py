"""The transforms, by name: differentiable functions with an inverse and the logarithm of their slope."""

from __future__ import annotations

import math
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.transform import (
    CatTransform,
    ComposeTransform,
    IndependentTransform,
    ReshapeTransform,
    StackTransform,
    Transform,
    identity_transform,
    sum_rightmost,
)
from genesis.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
from genesis.frontend.tensor import Tensor
from genesis.ir.suggest import suggesting
from genesis.nn import functional as F

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
           "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
           "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
           "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
           "identity_transform"]


def _sign(x: Any) -> Any:
    """That of a tensor or a number."""
    return x.sign() if isinstance(x, Tensor) else (x > 0) - (x < 0)


class ExpTransform(Transform):
    """exp."""

    bijective, codomain = True, constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """x."""
        return x


class PowerTransform(Transform):
    """x to a power, of positive x."""

    bijective, domain, codomain = True, constraints.positive, constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        """The sign of `exponent`."""
        return _sign(self.exponent)

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |exponent · y / x|."""
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        """The shape, broadcast with the exponent's."""
        return genesis.broadcast_shapes(shape, getattr(self.exponent, "shape", ()))

    inverse_shape = forward_shape


class SigmoidTransform(Transform):
    """The logistic function."""

    bijective, codomain = True, constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        finfo = genesis.finfo(x.dtype)
        return x.sigmoid().clamp(min=finfo.tiny, max=1.0 - finfo.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        finfo = genesis.finfo(y.dtype)
        y = y.clamp(min=finfo.tiny, max=1.0 - finfo.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Computed by softplus."""
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(Transform):
    """log(1 + exp x)."""

    bijective, codomain = True, constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log sigmoid."""
        return -F.softplus(-x)


class TanhTransform(Transform):
    """The hyperbolic tangent."""

    bijective, codomain = True, constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

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
    def sign(self) -> Any:
        """The sign of `scale`."""
        return _sign(self.scale)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |scale|."""
        scale = self.scale
        found = (scale.abs().log() if isinstance(scale, Tensor)
                 else genesis.full_like(x, math.log(abs(scale))))
        return sum_rightmost(found.expand(x.shape), self._event_dim)

    def forward_shape(self, shape: Any) -> Any:
        """The shape, broadcast with those of loc and scale."""
        return genesis.broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


class SoftmaxTransform(Transform):
    """Any vector to probabilities; adding a constant changes nothing, so that it has no one inverse."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        found = (x - x.max(-1, True)[0]).exp()
        return found / found.sum(-1, True)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


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
        return cropped.log() - left.log() + offset.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Summed over the elements."""
        offset = x.shape[-1] + 1 - x.new_ones(x.shape[-1]).cumsum(-1)
        x = x - offset.log()
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)

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
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """A square matrix to a positive definite one."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        x = LowerCholeskyTransform()(x)
        return x @ x.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform()._inverse(genesis.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """A vector of n (n - 1) / 2 numbers to the Cholesky factor of a correlation matrix. tanh of each is an element's
    share, signed, of what the elements before it leave of a row's length 1; the diagonal takes the rest.
    """

    bijective, domain, codomain = True, constraints.real_vector, constraints.corr_cholesky

    def _call(self, x: Tensor) -> Tensor:
        eps = genesis.finfo(x.dtype).eps
        shares = vec_to_tril_matrix(x.tanh().clamp(min=eps - 1, max=1 - eps), -1)
        left = (1 - shares.pow(2)).sqrt().cumprod(-1)
        shares = shares + genesis.eye(shares.shape[-1], dtype=x.dtype, device=x.device)
        return shares * F.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = F.pad((1 - y.pow(2).cumsum(-1))[..., :-1], [1, 0], value=1)
        return (tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(left, -1).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """That of the elements below the diagonal by x: of tanh, and of the lengths that were left to each."""
        left = tril_matrix_to_vec(1 - y.pow(2).cumsum(-1), -2)
        slopes = 2 * (math.log(2.0) - x - F.softplus(-2 * x))
        return 0.5 * left.log().sum(-1) + slopes.sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        """n rows and columns."""
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        n = (1 + math.isqrt(1 + 8 * shape[-1])) // 2
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Any) -> Any:
        """n (n - 1) / 2 numbers."""
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class CumulativeDistributionTransform(Transform):
    """A distribution's cdf."""

    bijective, codomain = True, constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.distribution, self.domain = distribution, distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The density's logarithm."""
        return self.distribution.log_prob(x)

__getattr__ = suggesting(__name__)
