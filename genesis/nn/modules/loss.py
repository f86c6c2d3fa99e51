"""Losses as modules; the formulas are in `genesis.nn.functional`."""

from __future__ import annotations

from typing import Any

from genesis.frontend.other_words import reduction_of
from genesis.frontend.tensor import Tensor
from genesis.nn import functional as F
from genesis.nn.modules.module import Module

__all__ = ["BCEWithLogitsLoss", "CTCLoss", "CrossEntropyLoss", "L1Loss", "MSELoss", "NLLLoss"]


class CrossEntropyLoss(Module):
    """Cross-entropy of logits with class numbers or class probabilities.

    Args:
        weight: (classes), a factor for each class.
        ignore_index: a class number whose rows count nothing.
        reduction: "mean", "sum" or "none".
        label_smoothing: this much of the target is spread evenly over the classes.

    >>> import genesis
    >>> loss = CrossEntropyLoss()(genesis.zeros(3, 2), genesis.tensor([0, 1, 1]))
    >>> round(loss.item(), 4)  # log 2
    0.6931
    """

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
                 reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0):
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """(N, C, ...) logits and (N, ...) integers or (N, C, ...) probabilities → the loss."""
        return F.cross_entropy(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
                               label_smoothing=self.label_smoothing)


class NLLLoss(Module):
    """-input[target] with log-probabilities as input; arguments as of `CrossEntropyLoss`."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
                 reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction = ignore_index, reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """(N, C, ...) log-probabilities and (N, ...) integers → the loss."""
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class CTCLoss(Module):
    """-log of a target sequence's probability over all alignments; arguments as of `F.ctc_loss`."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        super().__init__()
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        """(time, batch, classes) log-probabilities and (batch, longest) targets → the loss."""
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction,
                          self.zero_infinity)


class MSELoss(Module):
    """(input - target)²; reduction "mean", "sum" or "none"."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of one shape → the loss."""
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(Module):
    """|input - target|; reduction "mean", "sum" or "none"."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of one shape → the loss."""
        return F.l1_loss(input, target, reduction=self.reduction)


class BCEWithLogitsLoss(Module):
    """Cross-entropy of a two-class logit with the probability of class 1.

    Args:
        weight: a factor of each loss; broadcasts.
        reduction: "mean", "sum" or "none".
        pos_weight: a factor of the part of class 1; broadcasts.
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean", pos_weight: Tensor | None = None):
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Logits and probabilities of one shape → the loss."""
        return F.binary_cross_entropy_with_logits(input, target, self.weight, reduction=self.reduction,
                                                  pos_weight=self.pos_weight)


class _Loss(Module):
    """The base of losses of a user's own, as torch has it: they have a `reduction`."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        self.reduction = reduction_of(size_average, reduce, reduction)


class _WeightedLoss(_Loss):
    """One that has a buffer of weights, too."""

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
