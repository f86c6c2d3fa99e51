"""Losses that want a margin between scores; the formulas are in `genesis.nn.functional`."""

from __future__ import annotations

from genesis.frontend.other_words import reduction_of
from genesis.frontend.tensor import Tensor
from genesis.nn import functional as F
from genesis.nn.modules.module import Module

__all__ = ["HingeEmbeddingLoss", "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
           "MultiMarginLoss", "SoftMarginLoss"]


class MarginRankingLoss(Module):
    """max(0, -target · (input1 - input2) + margin)."""

    def __init__(self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__()
        self.margin, self.reduction = margin, reduction_of(size_average, reduce, reduction)

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Scores, scores, and 1 or -1 → the loss."""
        return F.margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(Module):
    """input where the target is 1, max(0, margin - input) where it is -1."""

    def __init__(self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__()
        self.margin, self.reduction = margin, reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of one shape → the loss."""
        return F.hinge_embedding_loss(input, target, self.margin, reduction=self.reduction)


class SoftMarginLoss(Module):
    """log(1 + exp(-target · input)) with targets 1 and -1."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of one shape → the loss."""
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiMarginLoss(Module):
    """Σ over the wrong classes of max(0, margin - input[target] + input[i])^p, over the number of classes."""

    weight: Tensor | None

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None,
                 reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.register_buffer("weight", weight)
        self.p, self.margin, self.reduction = p, margin, reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """(n, classes) scores and (n) class numbers → the loss."""
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(Module):
    """Σ over pairs of a right and a wrong class of max(0, 1 - (input[right] - input[wrong])), over the classes."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """(n, classes) scores and right classes, then -1 → the loss."""
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(Module):
    """The mean over the classes of -(target·log σ(x) + (1 - target)·log σ(-x))."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__()
        self.register_buffer("weight", weight)
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """(n, classes) scores and probabilities → the loss."""
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)
