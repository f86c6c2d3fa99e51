"""Losses that compare two tensors element by element."""

from __future__ import annotations

import math
import warnings

from genesis.frontend.autocast_policy import cast_for, in_float32
from genesis.frontend.other_words import reduction_of
from genesis.frontend.recording import emit, record, require_tensors, wrap
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import pointwise, probability, regression
from genesis.ir.types import bfloat16, float16, float32
from genesis.ops.activation import logsigmoid
from genesis.ops.common import broadcast, operands, promote, required
from genesis.ops.comparison import where
from genesis.ops.creation import full_like
from genesis.ops.exponential import xlogy

__all__ = ["binary_cross_entropy", "binary_cross_entropy_with_logits", "gaussian_nll_loss", "hinge_embedding_loss",
           "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "poisson_nll_loss", "smooth_l1_loss",
           "soft_margin_loss"]

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(op: str, reduction: str) -> None:
    """ValueError unless the reduction is one of "mean", "sum" and "none"."""
    if reduction not in REDUCTIONS:
        raise failure(op, f"{reduction} is not a valid value for reduction", hint="'mean', 'sum' or 'none'",
                      error=ValueError)


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of the losses, or all of them."""
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _before_mean(x: Tensor, reduction: str) -> Tensor:
    """x in float32 where its losses are averaged in 16 bits; their mean is rounded to x's dtype.

    The gradient of one of ten million losses, 1e-7, lies between the two smallest numbers of float16: it has to be
    multiplied by the loss' own derivative before it is rounded.
    """
    return x.to(float32) if reduction == "mean" and x.dtype in (float16, bfloat16) else x


def mse_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
             reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """(input - target)².

    Args:
        input, target: floating point, of shapes that broadcast.
        reduction: "mean", "sum", or "none" for a loss an element.
        weight: a factor of each loss, by whose sum a mean divides; of the input's shape.

    >>> import genesis
    >>> mse_loss(genesis.tensor([1.0, 2.0]), genesis.tensor([1.0, 4.0])).item()
    2.0
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction("mse_loss", reduction)
    _warn_of_sizes(input, target)
    difference = _difference("mse_loss", input, target)
    if weight is not None:
        return _weighted("mse_loss", difference * difference, weight, reduction)
    exact = _before_mean(difference, reduction)
    return reduced(exact * exact, reduction).to(difference.dtype)


def l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
            reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """|input - target|; arguments as of `mse_loss`.

    >>> import genesis
    >>> l1_loss(genesis.tensor([1.0, 2.0]), genesis.tensor([1.0, 4.0]), reduction="sum").item()
    2.0
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction("l1_loss", reduction)
    _warn_of_sizes(input, target)
    return _weighted("l1_loss", _difference("l1_loss", input, target).abs(), weight, reduction)


def _difference(op: str, input: Tensor, target: Tensor) -> Tensor:
    return wrap(emit(pointwise.sub, operands(op, in_float32(input, target))))


def _warn_of_sizes(input: Tensor, target: Tensor) -> None:
    """Say that sizes differ: predictions (N, 1) of targets (N) broadcast to N × N differences, as a rule by mistake."""
    if isinstance(input, Tensor) and isinstance(target, Tensor) and input.spec.shape != target.spec.shape:
        warnings.warn(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This "
                      "will likely lead to incorrect results due to broadcasting. Please ensure they have the same "
                      "size.", stacklevel=3)


def _weighted(op: str, loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    if weight is None:
        return reduced(loss, reduction)
    _check_weight(op, loss, weight)
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else reduced(loss, reduction)


def _check_weight(op: str, loss: Tensor, weight: Tensor) -> None:
    if weight.spec.shape != loss.spec.shape:
        raise failure(op, "Inputs and weights must have the same size.", [("loss", loss), ("weight", weight)],
                      error=ValueError)


def smooth_l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                   reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """(input - target)² / (2·beta) where that is nearer than beta, else |input - target| - beta / 2 (Girshick 2015).

    Args:
        input, target: floating point, of shapes that broadcast.
        reduction: "mean", "sum", or "none" for a loss an element.
        beta: where the square becomes a line; with 0 this is `l1_loss`.

    Raises:
        RuntimeError: beta is negative.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction("smooth_l1_loss", reduction)
    if beta < 0:
        raise failure("smooth_l1_loss", f"smooth_l1_loss does not support negative values for beta, not {beta}")
    if beta == 0.0:
        return l1_loss(input, target, reduction=reduction)
    _warn_of_sizes(input, target)
    input, target = broadcast("smooth_l1_loss", *cast_for(regression.smooth_l1_loss, input, target))
    input, target = promote(input, target)
    exact = (_before_mean(input, reduction), _before_mean(target, reduction))
    return reduced(record(regression.smooth_l1_loss, exact, (float(beta),)), reduction).to(input.dtype)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
               weight: Tensor | None = None) -> Tensor:
    """(input - target)² / 2 where that is nearer than delta, else delta · (|input - target| - delta / 2) (Huber 1964).

    Args:
        input, target: floating point, of shapes that broadcast; the loss has input's dtype.
        reduction: "mean", "sum", or "none" for a loss an element.
        delta: where the square becomes a line, above 0.
        weight: a factor of each loss; of the input's shape.

    Raises:
        RuntimeError: delta is not positive.
    """
    check_reduction("huber_loss", reduction)
    if delta <= 0:
        raise failure("huber_loss", f"huber_loss does not support non-positive values for delta, not {delta}")
    _warn_of_sizes(input, target)
    input, target = broadcast("huber_loss", *cast_for(regression.huber_loss, input, target))
    dtype = input.dtype
    input, target = promote(input, target)
    if weight is None:
        exact = (_before_mean(input, reduction), _before_mean(target, reduction))
        return reduced(record(regression.huber_loss, exact, (float(delta),)), reduction).to(dtype)
    loss: Tensor = record(regression.huber_loss, (input, target), (float(delta),)).to(dtype)
    _check_weight("huber_loss", loss, weight)
    return reduced(loss * weight, reduction)


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """-(target·log(x) + (1 - target)·log(1 - x)), logarithms at least -100.

    Args:
        input: probabilities of class 1, any shape.
        target: probabilities of class 1, of the input's shape.
        weight: a factor of each loss; broadcasts.
        reduction: "mean", "sum", or "none" for a loss an element.

    Raises:
        ValueError: target and input have different shapes.
        RuntimeError: their dtypes differ.

    An input outside [0, 1] gives NaN or a wrong loss; it is not looked for, as values are not read here.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction("binary_cross_entropy", reduction)
    unfit = input.spec.shape != target.spec.shape
    if unfit:
        raise failure("binary_cross_entropy", f"Using a target size ({target.shape}) that is different to the input "
                      f"size ({input.shape}) is deprecated. Please ensure they have the same size.",
                      [("input", input), ("target", target)], error=ValueError)
    loss: Tensor = record(probability.binary_cross_entropy, (input, target))
    return reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None,
                                     size_average: bool | None = None, reduce: bool | None = None,
                                     reduction: str = "mean", pos_weight: Tensor | None = None) -> Tensor:
    """-(target·log σ(x) + (1 - target)·log(1 - σ(x))), exact for large |x|.

    Args:
        input: logits, floating point, any shape.
        target: probabilities of class 1, of the input's shape.
        weight: a factor of each loss; broadcasts.
        reduction: "mean", "sum", or "none" for a loss an element.
        pos_weight: a factor of the target's part; broadcasts.

    Raises:
        ValueError: target and input have different shapes.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction("binary_cross_entropy_with_logits", reduction)
    if input.spec.shape != target.spec.shape:
        raise failure("binary_cross_entropy_with_logits", f"Target size ({target.shape}) must be the same as input "
                      f"size ({input.shape})", [("input", input), ("target", target)], error=ValueError)
    input, target, weight, pos_weight = in_float32(input, target, weight, pos_weight)
    # log(1 - σ(x)) = log σ(x) - x
    factor = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    loss = (1 - target) * input - logsigmoid(input) * factor
    return reduced(loss if weight is None else loss * weight, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                     reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target · input)) with targets 1 and -1; arguments as of `mse_loss`."""
    reduction = reduction_of(size_average, reduce, reduction)
    require_tensors(input, target)
    check_reduction("soft_margin_loss", reduction)
    return reduced(-logsigmoid(input * target), reduction)


def kl_div(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target · (log target - input): the divergence of distributions (Kullback and Leibler 1951).

    Args:
        input: log-probabilities.
        target: probabilities, or with `log_target` their logarithms; broadcasts with the input.
        reduction: "batchmean" (the sum over the first size), "mean", "sum" or "none".
        log_target: see above.

    >>> import genesis
    >>> kl_div(genesis.tensor([0.5]).log(), genesis.tensor([1.0]), reduction="sum").item()
    0.6931471824645996
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if reduction != "batchmean":
        check_reduction("kl_div", reduction)
    if reduction == "mean":
        warnings.warn("reduction: 'mean' divides the total loss by both the batch size and the support size. "
                      "'batchmean' divides only by the batch size, and aligns with the KL div math definition.",
                      stacklevel=2)
    input, target = in_float32(input, target)
    loss = target.exp() * (target - input) if log_target else xlogy(target, target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.spec.shape[0] if input.spec.ndim else loss.sum()
    return reduced(loss, reduction)


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
                     size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None,
                     reduction: str = "mean") -> Tensor:
    """-log of the Poisson probability of the target, without or with its constant.

    Args:
        input: the expected count, or with `log_input` its logarithm.
        target: counts; broadcasts with the input.
        full: add Stirling's approximation of log(target!) where the target is over 1.
        eps: keeps log(input) finite.
        reduction: "mean", "sum", or "none" for a loss an element.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    require_tensors(input, target)
    check_reduction("poisson_nll_loss", reduction)
    input, target = in_float32(input, target)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + (target * (2 * math.pi)).log() * 0.5
        loss = loss + stirling.masked_fill(target <= 1, 0.0)
    return reduced(loss, reduction)


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
    """-log of the normal density of the target, without or with its constant (Nix and Weigend 1994).

    Args:
        input: expected values.
        target: broadcasts with the input.
        var: variances: of the input's shape, with a last size of 1 or none of it, or one number.
        full: add log(2π) / 2.
        eps: the least variance; the gradient passes it by.
        reduction: "mean", "sum", or "none" for a loss an element.

    Raises:
        ValueError: var has another shape, or is a negative number. A tensor with one raises when it is computed, on the
            CPU.
    """
    check_reduction("gaussian_nll_loss", reduction)
    if isinstance(var, (int, float)) and var < 0:
        raise failure("gaussian_nll_loss", "var has negative entry/entries", error=ValueError)
    variance = full_like(input, var) if isinstance(var, (int, float)) else var
    require_tensors(input, target, variance)
    shape = input.spec.shape
    if variance.spec.shape != shape:
        if variance.spec.shape == shape[:-1]:
            variance = variance.unsqueeze(-1)
        elif variance.spec.shape != (*shape[:-1], 1):
            raise failure("gaussian_nll_loss", "var is of incorrect size", [("input", input), ("var", variance)],
                          error=ValueError)
    if not isinstance(var, (int, float)):
        variance = required("gaussian_nll_loss", variance, variance >= 0, "var has negative entry/entries")
    variance = variance + (variance.clamp(min=eps) - variance).detach()
    loss = (variance.log() + (input - target) ** 2 / variance) * 0.5
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
                        size_average: bool | None = None, reduce: bool | None = None,
                        reduction: str = "mean") -> Tensor:
    """max(0, -target · (input1 - input2) + margin): target 1 wants input1 ranked higher, -1 input2.

    Raises:
        RuntimeError: the tensors have different numbers of dimensions.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction("margin_ranking_loss", reduction)
    unfit = not input1.spec.ndim == input2.spec.ndim == target.spec.ndim
    if unfit:
        raise failure("margin_ranking_loss", "margin_ranking_loss : All input tensors should have same dimension but "
                      f"got sizes: input1: {input1.shape}, input2: {input2.shape}, target: {target.shape}",
                      [("input1", input1), ("input2", input2), ("target", target)])
    input1, input2, target = in_float32(input1, input2, target)
    return reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """input where the target is 1, max(0, margin - input) where it is -1: distances of equal and of unequal pairs."""
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction("hinge_embedding_loss", reduction)
    input, target = broadcast("hinge_embedding_loss", *in_float32(input, target))
    apart = where(target != 1, (margin - input).clamp(min=0), 0.0)
    return reduced(apart + where(target != -1, input, 0.0), reduction)
