"""Dropout."""

from __future__ import annotations

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn import functional as F
from genesis.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise failure(type(self).__name__, f"p={p} is not a probability", hint="0 ≤ p ≤ 1", error=ValueError)
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """In training, each element is 0 with probability p, else divided by 1 - p.

    >>> import genesis
    >>> Dropout(0.5).eval()(genesis.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """In training, each channel of (n, channels, length) is 0 with probability p, else divided by 1 - p."""

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """In training, each channel of (n, channels, height, width) is 0 with probability p, else divided by 1 - p."""

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """`Dropout2d` for (n, channels, depth, height, width)."""

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """In training, dropout to the value that SELU saturates at, keeping mean and variance (Klambauer et al. 2017)."""

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype."""
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels of (n, channels, ...)."""

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype."""
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)


_DropoutNd = _Dropout  # the name that programs ask `isinstance` with
