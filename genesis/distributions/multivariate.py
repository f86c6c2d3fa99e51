"""Normal variables that depend on each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.distribution import Distribution
from genesis.distributions.location_scale import noise
from genesis.frontend.tensor import Tensor


def squared_distance(L: Tensor, x: Tensor) -> Tensor:
    """xᵀ (L Lᵀ)⁻¹ x of vectors, for lower triangular L."""
    shape = genesis.broadcast_shapes(L.shape[:-2], x.shape[:-1])
    n = x.shape[-1]
    solved = genesis.linalg.solve_triangular(L.expand((*shape, n, n)), x.expand((*shape, n)).unsqueeze(-1),
                                             upper=False)
    return solved.squeeze(-1).pow(2).sum(-1)


class CovarianceForms:
    """A covariance matrix, its inverse and its Cholesky factor: one was given and is kept, the others are computed of
    the factor, `_unbroadcasted_scale_tril`, when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        if "_unbroadcasted_scale_tril" in vars(self):
            L = vars(self)["_unbroadcasted_scale_tril"]
            if name == "scale_tril":
                return L
            if name == "covariance_matrix":
                return L @ L.mT
            if name == "precision_matrix":
                return genesis.cholesky_inverse(L)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")


class MultivariateNormal(CovarianceForms, Distribution):
    """The normal distribution of vectors.

    Args:
        loc: (..., n), the mean.
        covariance_matrix, precision_matrix, scale_tril: one of them, (..., n, n); the last is the Cholesky factor of
            the first.

    >>> import genesis
    >>> MultivariateNormal(genesis.zeros(2), genesis.eye(2)).log_prob(genesis.zeros(2)).item()
    -1.8378770351409912
    """

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = [x for x in (covariance_matrix, precision_matrix, scale_tril) if x is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if given[0].dim() < 2:
            raise ValueError("the matrix must be at least two-dimensional, with optional leading batch dimensions")
        batch, n = genesis.broadcast_shapes(given[0].shape[:-2], loc.shape[:-1]), loc.shape[-1]
        self.loc = loc.expand((*batch, n))
        super().__init__(batch, (n,), validate_args=False)
        if scale_tril is not None:
            self.scale_tril = self._unbroadcasted_scale_tril = scale_tril.expand((*batch, n, n))
        elif covariance_matrix is not None:
            self.covariance_matrix = covariance_matrix.expand((*batch, n, n))
            self._unbroadcasted_scale_tril = genesis.linalg.cholesky(self.covariance_matrix)
        else:
            self.precision_matrix = precision_matrix.expand((*batch, n, n))  # type: ignore[union-attr]
            self._unbroadcasted_scale_tril = genesis.linalg.cholesky(genesis.linalg.inv(self.precision_matrix))
        self._validate_args = Distribution._checks if validate_args is None else validate_args
        if self._validate_args:
            self._check_parameters()

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        n = self._event_shape[0]
        return MultivariateNormal(self.loc.expand((*batch_shape, n)),
                                  scale_tril=self.scale_tril.expand((*batch_shape, n, n)), validate_args=False)

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The covariance's diagonal."""
        return self._unbroadcasted_scale_tril.pow(2).sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + L · noise."""
        eps = noise(genesis.randn, self._extended_shape(sample_shape), self.loc)
        return self.loc + (self._unbroadcasted_scale_tril @ eps.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Computed by the Cholesky factor."""
        L = self._unbroadcasted_scale_tril
        distance = squared_distance(L, self._checked(value) - self.loc)
        half = L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - half

    def entropy(self) -> Tensor:
        """Computed by the Cholesky factor."""
        half = self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half


class LowRankMultivariateNormal(MultivariateNormal):
    """One whose covariance is factor · factorᵀ + diagonal.

    Args:
        loc: (..., n).
        cov_factor: (..., n, rank).
        cov_diag: (..., n).
    """

    arg_constraints = {"loc": constraints.real_vector, "cov_diag": constraints.independent(constraints.positive, 1)}

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None):
        self.cov_factor, self.cov_diag = cov_factor, cov_diag
        super().__init__(loc, cov_factor @ cov_factor.mT + cov_diag.diag_embed(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        n, rank = self.cov_factor.shape[-2:]
        return LowRankMultivariateNormal(self.loc.expand((*batch_shape, n)),
                                         self.cov_factor.expand((*batch_shape, n, rank)),
                                         self.cov_diag.expand((*batch_shape, n)), validate_args=False)
