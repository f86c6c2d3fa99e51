"""The LKJ distribution of correlation matrices, by their Cholesky factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.distribution import Distribution, broadcast_all
from genesis.distributions.gamma_family import Beta
from genesis.distributions.location_scale import noise
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor


class LKJCholesky(Distribution):
    """Lower Cholesky factors L of correlation matrices whose density is in proportion to det(L Lᵀ)^(concentration - 1)
    (Lewandowski, Kurowicka and Joe 2009).

    Args:
        dim: rows and columns, 2 at least.
        concentration: 1 for all correlation matrices alike, more for those near to the identity.

    >>> import genesis
    >>> LKJCholesky(3, 1.0).log_prob(genesis.eye(3)).item()
    -1.5963125228881836
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        new = self._expanded(batch_shape, "concentration")
        new.dim = self.dim
        return new

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Row i by the onion method: a direction of i numbers, and a length whose square is a beta variable of i / 2
        and concentration + (dim - 1 - i) / 2, which is what the density says of the row.

        torch's takes i - 1/2 for i / 2, so that its samples of three rows and more have another density than its
        `log_prob`.
        """
        c, n = self.concentration, self.dim
        rows = genesis.arange(1, n, dtype=c.dtype, device=c.device)
        squares = Beta(rows / 2, c.unsqueeze(-1) + (n - 1 - rows) / 2, validate_args=False).sample(sample_shape)
        directions = noise(genesis.randn, self._extended_shape(sample_shape), c)[..., 1:, :].tril()
        directions = directions / directions.norm(dim=-1, keepdim=True)
        below = genesis.nn.functional.pad(squares.sqrt().unsqueeze(-1) * directions, [0, 0, 1, 0])
        left = (1 - below.pow(2).sum(-1)).clamp(min=genesis.finfo(c.dtype).tiny)
        return below + left.sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        """Σ (2 (concentration - 1) + dim - i) · log L_ii over rows from the second, less the normalizer."""
        value, c, n = self._checked(value), self.concentration, self.dim
        order = 2 * (c - 1).unsqueeze(-1) + n - genesis.arange(2, n + 1, dtype=c.dtype, device=c.device)
        density = (order * value.diagonal(dim1=-2, dim2=-1)[..., 1:].log()).sum(-1)
        alpha = c + 0.5 * (n - 1)
        normalizer = (0.5 * (n - 1) * math.log(math.pi) + genesis.mvlgamma(alpha - 0.5, n - 1)
                      - (n - 1) * alpha.lgamma())
        return density - normalizer
