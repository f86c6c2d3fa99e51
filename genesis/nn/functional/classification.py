"""Losses of a choice between classes.

The classes are dimension 1 of the input, (N, C) or (N, C, d1, d2, ...), or all of it, (C).
"""

from __future__ import annotations

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.other_words import reduction_of
from genesis.frontend.recording import read, record, require_tensors, wrap
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.node import Node, make
from genesis.ir.numbers import number
from genesis.ir.ops import composite, pointwise
from genesis.ir.ops import reduction as reduction_ops
from genesis.ir.source import here
from genesis.ir.types import DType, float32, int64
from genesis.nn.functional.losses import check_reduction
from genesis.nn.functional.softmax import log_softmax

__all__ = ["cross_entropy", "nll_loss"]


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                  ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:
    """-log softmax(logits)[target], or, with probabilities as target, -Σ target·log softmax(logits).

    Args:
        input: logits (C), (N, C) or (N, C, d1, ...), floating point.
        target: class numbers (), (N) or (N, d1, ...), or probabilities of the input's shape and
            floating point.
        weight: (C), a factor for each class.
        ignore_index: a class number whose rows count nothing, in the mean neither.
        reduction: "mean" (over class numbers: weighted by `weight`), "sum" or "none".
        label_smoothing: this much of the target is spread evenly over the classes, 0 to 1.

    Returns:
        A scalar, or with "none" one loss a row, in the input's dtype.

    Raises:
        RuntimeError: shapes do not fit.
        ValueError: unknown reduction, label_smoothing outside [0, 1].

    >>> import genesis
    >>> logits = genesis.zeros(2, 4)
    >>> round(cross_entropy(logits, genesis.tensor([3, 1])).item(), 4)  # log 4
    1.3863
    >>> round(cross_entropy(logits, genesis.full((2, 4), 0.25)).item(), 4)
    1.3863
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction("cross_entropy", reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise failure("cross_entropy", f"label_smoothing={label_smoothing} is not between 0 and 1", error=ValueError)
    input, weight = cast_for(composite.cross_entropy, input, weight)
    if target.spec.dtype.kind == "float":
        return _by_probabilities(input, target, weight, reduction, label_smoothing)
    if weight is not None:
        return _weighted(log_softmax(input, _class_axis(input)), target, weight, ignore_index, reduction,
                         label_smoothing)
    rows, numbers = _rows("cross_entropy", input, target)
    losses: Tensor = record(composite.cross_entropy, (rows, numbers), (ignore_index, float(label_smoothing)))
    return _of_rows(losses, target, numbers, ignore_index, reduction)


def _of_rows(losses: Tensor, target: Tensor, numbers: Tensor, ignore_index: int, reduction: str) -> Tensor:
    """A loss for each row, reduced: the mean over the rows that are not ignored."""
    if reduction == "none":
        return losses.reshape(target.spec.shape)
    if reduction == "sum":
        return losses.sum()
    line = here()
    kept = make(pointwise.ne, (read(numbers), number(ignore_index)), (), line)
    return _mean(losses, make(pointwise.cast, (kept,), (int64,), line))


def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
             ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """-input[target] with log-probabilities as input; arguments as of `cross_entropy`.

    >>> import genesis
    >>> nll_loss(genesis.tensor([[-1.0, -2.0]]), genesis.tensor([1])).item()
    2.0
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction("nll_loss", reduction)
    input, weight = cast_for(composite.nll_loss, input, weight)
    if weight is not None:
        return _weighted(input, target, weight, ignore_index, reduction, 0.0)
    rows, numbers = _rows("nll_loss", input, target)
    return _of_rows(record(composite.nll_loss, (rows, numbers), (ignore_index,)), target, numbers, ignore_index,
                    reduction)


def _class_axis(x: Tensor) -> int:
    return 1 if x.spec.ndim > 1 else 0


def _rows(op: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The input as (rows, classes) and the class numbers as (rows), which they must fit."""
    require_tensors(input, target)
    shape, axis = input.spec.shape, _class_axis(input)
    if axis and target.spec.ndim and target.spec.dtype.kind == "int" and target.spec.shape[0] != shape[0]:
        raise failure(op, f"Expected input batch_size ({shape[0]}) to match target batch_size "
                      f"({target.spec.shape[0]}).", [("input", input), ("target", target)], error=ValueError)
    if not shape or target.spec.dtype.kind != "int" or target.spec.shape != shape[:axis] + shape[axis + 1:]:
        raise failure(op, "input (N, C, d1, ...) needs class numbers (N, d1, ...) or probabilities (N, C, d1, ...)",
                      [("input", input), ("target", target)],
                      hint="integers as class numbers; input.flatten(0, -2) for (..., C) logits")
    if len(shape) == 2:
        return input, target
    return input.movedim(axis, -1).reshape(-1, shape[axis]), target.reshape(-1)


def _weighted(logs: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
              label_smoothing: float) -> Tensor:
    """-weight·log-probability of the target, each step written out."""
    rows, numbers = _rows("nll_loss", logs, target)                       # (rows, C), (rows)
    kept = numbers != ignore_index
    chosen = numbers.masked_fill(~kept, 0)
    factors = kept.to(rows.dtype)
    if weight is not None:
        _check_weight(weight, rows)
        factors = factors * weight[chosen]
    losses = -rows.gather(1, chosen.unsqueeze(1)).squeeze(1) * factors
    losses = losses.masked_fill(~kept, 0.0)                               # an ignored row may hold -inf
    if label_smoothing:
        everywhere = rows if weight is None else rows * weight
        smooth = -everywhere.mean(dim=1).masked_fill(~kept, 0.0)
        losses = losses * (1 - label_smoothing) + smooth * label_smoothing
    if reduction == "none":
        return losses.reshape(target.spec.shape)
    return losses.sum() if reduction == "sum" else _mean(losses, read(factors))


def _mean(losses: Tensor, factors: Node) -> Tensor:
    """Σ losses / Σ factors of the rows, in float32 at least: float16 counts no further than 2048.

    No tensor is made for a step of it: most training steps take this mean.
    """
    dtype, line = losses.spec.dtype, here()
    computed_in = dtype if dtype.itemsize >= 4 else float32

    def cast(x: Node, to: DType) -> Node:
        return x if x.type.dtype is to else make(pointwise.cast, (x,), (to,), line)

    def total(x: Node) -> Node:
        return make(reduction_ops.sum, (x,), ((0,), False), line)
    counted = factors if factors.type.dtype is int64 else cast(factors, computed_in)
    return wrap(cast(make(pointwise.div, (total(cast(read(losses), computed_in)), cast(total(counted), computed_in)),
                          (), line), dtype))


def _by_probabilities(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str,
                      label_smoothing: float) -> Tensor:
    """-Σ over the classes of weight·target·log softmax; the mean is over rows."""
    require_tensors(input, target)
    if input.spec.shape != target.spec.shape or not input.spec.shape:
        raise failure("cross_entropy", "probabilities must have the input's shape",
                      [("input", input), ("target", target)],
                      hint="one probability a class, or integer class numbers")
    axis = _class_axis(input)
    classes = input.spec.shape[axis]
    logs = log_softmax(input, axis)
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    terms = logs * target.to(logs.dtype)
    if weight is not None:
        _check_weight(weight, logs.movedim(axis, -1))
        terms = terms * weight.reshape(classes, *[1] * (input.spec.ndim - axis - 1))
    losses = -terms.sum(dim=axis)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / losses.spec.numel


def _check_weight(weight: Tensor, rows: Tensor) -> None:
    require_tensors(weight)
    if weight.spec.shape != rows.spec.shape[-1:]:
        raise failure("cross_entropy", "weight must hold one factor a class", [("weight", weight), ("input", rows)])
