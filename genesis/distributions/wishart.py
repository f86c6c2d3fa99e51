"""The Wishart distribution of positive definite matrices."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.distribution import Distribution, _readable
from genesis.distributions.exp_family import ExponentialFamily
from genesis.distributions.gamma_family import standard_gamma
from genesis.distributions.kl import register_kl
from genesis.distributions.location_scale import noise
from genesis.distributions.multivariate import CovarianceForms
from genesis.frontend.tensor import Tensor


def _multivariate_digamma(x: Tensor, n: int) -> Tensor:
    """The derivative of mvlgamma."""
    return (x.unsqueeze(-1) - genesis.arange(n, dtype=x.dtype, device=x.device) / 2).digamma().sum(-1)


class Wishart(CovarianceForms, ExponentialFamily):
    """Σ x xᵀ over `df` normal vectors x: the sum of squares from which a covariance is estimated.

    Args:
        df: degrees of freedom, a real number above n - 1.
        covariance_matrix, precision_matrix, scale_tril: one of them, (..., n, n), of the vectors.

    >>> import genesis
    >>> Wishart(3.0, genesis.eye(2)).mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> Any:
        """What `df` is above depends on the matrices' size."""
        return {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self.event_shape[-1] - 1)}

    def __init__(self, df: Any, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None):
        matrices = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                    "scale_tril": scale_tril}
        given = [(name, x) for name, x in matrices.items() if x is not None]
        if len(given) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        name, matrix = given[0]
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        df = df if isinstance(df, Tensor) else genesis.tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch, event = genesis.broadcast_shapes(matrix.shape[:-2], df.shape), tuple(matrix.shape[-2:])
        self.df, matrix = df.expand(batch), matrix.expand((*batch, *event))
        self._check_freedom(event[-1])
        setattr(self, name, matrix)
        super().__init__(batch, event, validate_args=validate_args)
        if name == "precision_matrix":
            matrix = genesis.linalg.inv(matrix)
        self._unbroadcasted_scale_tril = matrix if name == "scale_tril" else genesis.linalg.cholesky(matrix)

    def _check_freedom(self, n: int) -> None:
        if not _readable(self.df):
            return
        if (self.df <= n - 1).any():
            raise ValueError(f"Value of df={self.df} expected to be greater than ndim - 1 = {n - 1}.")
        if (self.df < n).any():
            warnings.warn("Low df values detected. Singular samples are highly likely to occur for "
                          "ndim - 1 < df < ndim.", stacklevel=3)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        new = self._get_checked_instance(type(self))
        for name in ("covariance_matrix", "precision_matrix", "scale_tril", "_unbroadcasted_scale_tril"):
            if name in vars(self):
                setattr(new, name, getattr(self, name).expand((*batch_shape, *self._event_shape)))
        new.df = self.df.expand(tuple(batch_shape))
        Distribution.__init__(new, batch_shape, self._event_shape)
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Tensor:
        """df · covariance."""
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """(df - n - 1) · covariance, where there is a highest density."""
        factor = self.df - self._event_shape[-1] - 1
        factor = genesis.where(factor <= 0, math.nan, factor)
        return factor[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        """df · (c_ij² + c_ii c_jj), element by element."""
        c = self.covariance_matrix
        diagonal = c.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df[..., None, None] * (c.pow(2) + products)

    def _bartlett(self, sample_shape: Sequence[int]) -> Tensor:
        """L A Aᵀ Lᵀ of a lower triangular A: normal variables below a diagonal of roots of chi-squared ones (Bartlett
        1933)."""
        n, L = self._event_shape[-1], self._unbroadcasted_scale_tril
        halves = (self.df.unsqueeze(-1) - genesis.arange(n, dtype=self.df.dtype, device=self.df.device)) / 2
        chi2 = 2 * standard_gamma(halves.expand((*sample_shape, *halves.shape)))
        diagonal = chi2.sqrt().clamp(min=genesis.finfo(L.dtype).eps)
        below = noise(genesis.randn, self._extended_shape(sample_shape), L).tril(-1)
        factor = L @ (below + diagonal.diag_embed())
        return factor @ factor.mT

    def rsample(self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None) -> Tensor:
        """Drawn by Bartlett's decomposition. Those that rounding made singular are drawn again, `max_try_correction`
        times at most: 10, and 3 in a compiled function, which does not look at them between."""
        looking = _readable(self.df)
        tries = max_try_correction if max_try_correction is not None else 10 if looking else 3
        found = self._bartlett(sample_shape)
        for _ in range(tries):
            singular = ~self.support.check(found.detach())
            if looking and not singular.any():
                break
            found = genesis.where(singular[..., None, None], self._bartlett(sample_shape), found)
        return found

    def _half_log_det(self) -> Tensor:
        """(n log 2 + log det covariance) / 2."""
        diagonal = self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1)
        return self._event_shape[-1] * math.log(2) / 2 + diagonal.log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The density's logarithm."""
        value, n = self._checked(value), self._event_shape[-1]
        spread = _trace_of_ratio(value, self._unbroadcasted_scale_tril)
        return (-self.df * self._half_log_det() - genesis.mvlgamma(self.df / 2, n)
                + (self.df - n - 1) / 2 * genesis.linalg.slogdet(value)[1] - spread / 2)

    def entropy(self) -> Tensor:
        """Computed by digamma."""
        n, half = self._event_shape[-1], self.df / 2
        return ((n + 1) * self._half_log_det() + genesis.mvlgamma(half, n)
                - (self.df - n - 1) / 2 * _multivariate_digamma(half, n) + half * n)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        x, y = natural_params
        n = self._event_shape[-1]
        half = y + (n + 1) / 2
        return (half * (n * math.log(2) - genesis.linalg.slogdet(-2 * x)[1])
                + genesis.mvlgamma(half, n))


def _trace_of_ratio(x: Tensor, L: Tensor) -> Tensor:
    """tr((L Lᵀ)⁻¹ x)."""
    shape = genesis.broadcast_shapes(x.shape, L.shape)
    return (genesis.cholesky_solve(x.expand(shape), L.expand(shape))
            .diagonal(dim1=-2, dim2=-1).sum(-1))


@register_kl(Wishart, Wishart)
def _divergence(p: Wishart, q: Wishart) -> Tensor:
    """E[log p - log q], where E[x] is df · covariance and E[log det x] a sum of digammas."""
    n = p.event_shape[-1]
    apart = q._half_log_det() - p._half_log_det()
    spread = _trace_of_ratio(p.covariance_matrix, q._unbroadcasted_scale_tril)
    return (q.df * apart + p.df * (spread - n) / 2 + genesis.mvlgamma(q.df / 2, n) - genesis.mvlgamma(p.df / 2, n)
            + (p.df - q.df) / 2 * _multivariate_digamma(p.df / 2, n))
