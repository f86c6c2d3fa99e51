"""Distances of vectors, and losses of them; the formulas are in `genesis.nn.functional`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genesis.frontend.other_words import reduction_of
from genesis.frontend.tensor import Tensor
from genesis.nn import functional as F
from genesis.nn.modules.module import Module

__all__ = ["CosineEmbeddingLoss", "CosineSimilarity", "PairwiseDistance", "TripletMarginLoss",
           "TripletMarginWithDistanceLoss"]


class CosineEmbeddingLoss(Module):
    """1 - cos(x1, x2) for pairs with the target 1, max(0, cos(x1, x2) - margin) for those with -1."""

    def __init__(self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__()
        self.margin, self.reduction = margin, reduction_of(size_average, reduce, reduction)

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """(n, size) twice and (n) → the loss."""
        return F.cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction)


class TripletMarginLoss(Module):
    """max(0, ‖anchor - positive‖ - ‖anchor - negative‖ + margin) (Balntas et al. 2016)."""

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
                 size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """(n, size) three times → the loss."""
        return F.triplet_margin_loss(anchor, positive, negative, self.margin, self.p, self.eps, self.swap,
                                     reduction=self.reduction)


class TripletMarginWithDistanceLoss(Module):
    """`TripletMarginLoss` with another distance, by default `functional.pairwise_distance`."""

    def __init__(self, *, distance_function: Callable[[Tensor, Tensor], Any] | None = None, margin: float = 1.0,
                 swap: bool = False, reduction: str = "mean"):
        super().__init__()
        self.distance_function, self.margin = distance_function or PairwiseDistance(), margin
        self.swap, self.reduction = swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """(n, size) three times → the loss."""
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, margin=self.margin, swap=self.swap,
            reduction=self.reduction)


class CosineSimilarity(Module):
    """x1·x2 / (max(‖x1‖, eps) · max(‖x2‖, eps)) along a dimension."""

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Two tensors → their cosines, without the dimension."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """‖x1 - x2 + eps‖ along the last dimension."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """(..., size) twice → (...)."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
