"""Losses of values and distributions; the formulas are in `genesis.nn.functional`."""

from __future__ import annotations

from genesis.frontend.other_words import reduction_of
from genesis.frontend.tensor import Tensor
from genesis.nn import functional as F
from genesis.nn.modules.module import Module

__all__ = ["BCELoss", "GaussianNLLLoss", "HuberLoss", "KLDivLoss", "PoissonNLLLoss", "SmoothL1Loss"]


class SmoothL1Loss(Module):
    """(input - target)² / (2·beta) where that is nearer than beta, else |input - target| - beta / 2 (Girshick 2015)."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
                 beta: float = 1.0):
        super().__init__()
        self.reduction, self.beta = reduction_of(size_average, reduce, reduction), beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of one shape → the loss."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(Module):
    """(input - target)² / 2 where nearer than delta, else delta · (|input - target| - delta / 2) (Huber 1964)."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        super().__init__()
        self.reduction, self.delta = reduction, delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of one shape → the loss."""
        return F.huber_loss(input, target, self.reduction, self.delta)


class BCELoss(Module):
    """Cross-entropy of the probability of class 1 with a target probability."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__()
        self.register_buffer("weight", weight)
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Probabilities of one shape → the loss."""
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class KLDivLoss(Module):
    """target · (log target - input); reduction "batchmean" divides the sum by the first size."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
                 log_target: bool = False):
        super().__init__()
        self.reduction, self.log_target = reduction_of(size_average, reduce, reduction), log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Log-probabilities and probabilities → the loss."""
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(Module):
    """-log of the Poisson probability of the target; arguments as of `functional.poisson_nll_loss`."""

    def __init__(self, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-8,
                 reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.log_input, self.full, self.eps = log_input, full, eps
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Expected counts, or their logarithms, and counts → the loss."""
        return F.poisson_nll_loss(input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(Module):
    """-log of the normal density of the target; arguments as of `functional.gaussian_nll_loss`."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__()
        self.full, self.eps, self.reduction = full, eps, reduction

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """Expected values, values and variances → the loss."""
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)
