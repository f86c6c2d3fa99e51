"""Losses of scores: the right classes should beat the others by a margin."""

from __future__ import annotations

from genesis.frontend.autocast_policy import in_float32
from genesis.frontend.other_words import reduction_of
from genesis.frontend.recording import require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn.functional.losses import check_reduction, reduced
from genesis.ops.activation import logsigmoid
from genesis.ops.ranges import arange

__all__ = ["multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss"]


def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
                      size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """Σ over the wrong classes of max(0, margin - input[target] + input[i])^p, over the number of classes.

    Args:
        input: scores, (n, classes) or (classes), floating point.
        target: class numbers, (n) or ().
        p: 1 or 2.
        margin: by how much the right class should lead.
        weight: (classes), a factor for each right class, inside the power as in torch.
        reduction: "mean", "sum", or "none" for a loss a row.

    Raises:
        RuntimeError: shapes do not fit.
        ValueError: p is neither 1 nor 2.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    require_tensors(input, target, weight)
    op = "multi_margin_loss"
    check_reduction(op, reduction)
    if p not in (1, 2):
        raise failure(op, "only p == 1 and p == 2 supported", error=ValueError)
    input, weight = in_float32(input, weight)
    if weight is not None and weight.spec.ndim != 1:
        raise failure(op, "weight must be one-dimensional", [("input", input), ("weight", weight)], error=ValueError)
    if weight is not None and weight.spec.shape != input.spec.shape[-1:]:
        raise failure(op, f"inconsistent weight size, expected {input.spec.shape[-1:]} but got {weight.spec.shape}",
                      [("input", input), ("weight", weight)])
    rows, numbers = _rows(op, input, target)
    classes = rows.spec.shape[1]
    column = numbers.unsqueeze(1)
    short = (rows - rows.gather(1, column) + margin).clamp(min=0)
    losses = short if p == 1 else short * short
    if weight is not None:
        losses = losses * weight[numbers].unsqueeze(1)
    wrong = arange(classes, device=input.device) != column
    found = (losses * wrong.to(losses.dtype)).sum(dim=1) / classes
    return reduced(found.reshape(target.spec.shape) if reduction == "none" else found, reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                           reduction: str = "mean") -> Tensor:
    """Σ over pairs of a right and a wrong class of max(0, 1 - (input[right] - input[wrong])), over the classes.

    Args:
        input: scores, (n, classes) or (classes), floating point.
        target: of the input's shape: the numbers of the right classes, then -1.
        reduction: "mean", "sum", or "none" for a loss a row.

    Raises:
        RuntimeError: shapes do not fit.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    op = "multilabel_margin_loss"
    check_reduction(op, reduction)
    if input.spec.shape != target.spec.shape or input.spec.ndim > 2 or target.spec.dtype.kind != "int":
        raise failure(op, f"inconsistent target size: {list(target.spec.shape)} for input of size: "
                      f"{list(input.spec.shape)}", [("input", input), ("target", target)])
    single = input.spec.ndim < 2
    rows = input.reshape(1, -1) if single else input
    numbers = target.reshape(1, -1) if single else target
    classes = rows.spec.shape[1]
    counts = (numbers >= 0).long().cumprod(dim=1).bool()                      # up to the first -1
    chosen = numbers.clamp(min=0)
    one_hot = (arange(classes, device=input.device) == chosen.unsqueeze(2)) & counts.unsqueeze(2)
    right = one_hot.any(dim=1)                                                # (n, classes)
    short = (1 - rows.gather(1, chosen).unsqueeze(2) + rows.unsqueeze(1)).clamp(min=0)
    pairs = counts.unsqueeze(2) & ~right.unsqueeze(1)
    found = (short * pairs.to(short.dtype)).sum(dim=(1, 2)) / max(classes, 1)
    return reduced(found.reshape(()) if single else found, reduction)


def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None,
                                size_average: bool | None = None, reduce: bool | None = None,
                                reduction: str = "mean") -> Tensor:
    """The mean over the classes of -(target·log σ(x) + (1 - target)·log σ(-x)).

    Args:
        input: scores, (n, classes) or (classes), floating point.
        target: probabilities, of the input's shape.
        weight: (classes), a factor for each.
        reduction: "mean", "sum", or "none" for a loss a row.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    require_tensors(input, target, weight)
    check_reduction("multilabel_soft_margin_loss", reduction)
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    return reduced((losses if weight is None else losses * weight).mean(dim=-1), reduction)


def _rows(op: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(n, classes) and (n)."""
    fits = target.spec.ndim == max(input.spec.ndim - 1, 0) or target.spec.shape == (1,)
    if input.spec.ndim > 2 or not fits or target.spec.dtype.kind != "int":
        raise failure(op, f"inconsistent target size: {list(target.spec.shape)} for input of size: "
                      f"{list(input.spec.shape)}", [("input", input), ("target", target)],
                      hint="(n) class numbers for (n, classes) scores")
    rows, numbers = input.reshape(1, -1) if input.spec.ndim < 2 else input, target.reshape(-1)
    if numbers.spec.shape != rows.spec.shape[:1]:
        raise failure(op, f"inconsistent target size, expected {rows.spec.shape[0]} but got {list(target.spec.shape)}",
                      [("input", input), ("target", target)])
    return rows, numbers
