"""Losses that compare two tensors element by element."""

from __future__ import annotations

from genesis.amp.policy import cast_for
from genesis.ir.errors import failure
from genesis.nn.functional.activations import logsigmoid
from genesis.tensor import Tensor

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(op: str, reduction: str) -> None:
    """ValueError unless the reduction is one of "mean", "sum" and "none"."""
    if reduction not in REDUCTIONS:
        raise failure(op, f"reduction={reduction!r} is unknown", hint="'mean', 'sum' or 'none'", error=ValueError)


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(input - target)².

    Args:
        input, target: floating point, of shapes that broadcast.
        reduction: "mean", "sum", or "none" for a loss an element.

    >>> import genesis
    >>> mse_loss(genesis.tensor([1.0, 2.0]), genesis.tensor([1.0, 4.0])).item()
    2.0
    """
    check_reduction("mse_loss", reduction)
    input, target = cast_for("mse_loss", input, target)
    difference = input - target
    return _reduced(difference * difference, reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|input - target|; arguments as of `mse_loss`.

    >>> import genesis
    >>> l1_loss(genesis.tensor([1.0, 2.0]), genesis.tensor([1.0, 4.0]), reduction="sum").item()
    2.0
    """
    check_reduction("l1_loss", reduction)
    input, target = cast_for("l1_loss", input, target)
    return _reduced((input - target).abs(), reduction)


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None,
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
    check_reduction("binary_cross_entropy_with_logits", reduction)
    if input.type.shape != target.type.shape:
        raise failure("binary_cross_entropy_with_logits", "target and input must have one shape",
                      [("input", input), ("target", target)], error=ValueError)
    input, target, weight, pos_weight = cast_for("binary_cross_entropy_with_logits", input, target, weight, pos_weight)
    # log(1 - σ(x)) = log σ(x) - x
    factor = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    loss = (1 - target) * input - logsigmoid(input) * factor
    return _reduced(loss if weight is None else loss * weight, reduction)
