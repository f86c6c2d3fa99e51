"""Losses of scores (rows, classes) and class numbers (rows): cross-entropy of logits, and of log-probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.indexing import gather
from genesis.ir.ops.leaves import full, iota
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import common, eq, ne, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import mean
from genesis.ir.ops.samples import FLOAT, Operand, Samples, case, cases, integers, np, reals
from genesis.ir.ops.softmax import log_softmax, softmax, softmax_value
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.ops.entry import Attributes


def _cross_entropy_type(logits: TensorType, target: TensorType, ignore_index: int,
                        label_smoothing: float = 0.0) -> TensorType:
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise RuntimeError(f"logits of shape {logits.shape} need class numbers of shape {logits.shape[:1]}, "
                           f"not {target.shape}")
    if target.dtype.kind != "int":
        raise RuntimeError(f"class numbers must be integers, not {target.dtype!r}")
    return common((logits,), FLOAT).with_shape(logits.shape[:1])


def _valid(target: Node, ignore_index: int) -> Node:
    return ne(target, literal(ignore_index))


def _picked(logs: Node, target: Node, ignore_index: int) -> Node:
    """-logs[row, target of the row], of class 0 in ignored rows."""
    rows = logs.type.shape[0]
    chosen = where_(_valid(target, ignore_index), target, 0)
    return -reshape(gather(logs, reshape(chosen, shape=(rows, 1)), axis=1), shape=(rows,))


def _nll_loss(logs: Node, target: Node, ignore_index: int) -> Node:
    return where_(_valid(target, ignore_index), _picked(logs, target, ignore_index), 0.0)


def _cross_entropy(logits: Node, target: Node, ignore_index: int, label_smoothing: float) -> Node:
    logs = log_softmax(upcast(logits), axis=1)
    loss = _picked(logs, target, ignore_index)
    if label_smoothing:
        loss = loss * (1 - label_smoothing) - mean(logs, axes=(1,)) * label_smoothing
    return downcast(where_(_valid(target, ignore_index), loss, 0.0), logits)


def _cross_entropy_backward(g: Node, logits: Node, target: Node, ignore_index: int, label_smoothing: float) -> Node:
    """(softmax - target distribution) · g, and 0 in ignored rows."""
    rows, classes = logits.type.shape
    w = upcast(logits)
    column = iota(shape=(rows, classes), axis=1, dtype=target.dtype, device=logits.type.device)
    hit = eq(column, expand(reshape(target, shape=(rows, 1)), shape=(rows, classes)))
    goal = where_(hit, full((), 1 - label_smoothing, w.dtype, logits.type.device), 0.0)
    if label_smoothing:
        goal = goal + label_smoothing / classes
    scale = where_(_valid(target, ignore_index), upcast(g), 0.0)
    return downcast((softmax(w, axis=1) - goal) * reshape(scale, shape=(rows, 1)), logits)


def _classified(*operands: Operand) -> Samples:
    """Class numbers 0 to 6 of which, with ignore_index=3, some rows are left out."""
    return cases(*(case(*operands, integers(0, 7).of(5), ignore_index=i, label_smoothing=s)
                   for i in (-100, 3) for s in (0.0, 0.25)), scale=1)


def _nll_loss_value(logs: ndarray, target: ndarray, ignore_index: int) -> ndarray:
    chosen = np.take_along_axis(logs, target[:, None], 1)[:, 0]
    return np.where(target == ignore_index, 0.0, -chosen)


def _cross_entropy_value(logits: ndarray, target: ndarray, ignore_index: int, label_smoothing: float) -> ndarray:
    logs = np.log(softmax_value(logits, 1))
    chosen = np.take_along_axis(logs, target[:, None], 1)[:, 0]
    loss = -(1 - label_smoothing) * chosen - label_smoothing * np.mean(logs, 1)
    return np.where(target == ignore_index, 0.0, loss)


_CROSS_ENTROPY: Attributes = {"attrs": ("ignore_index", "label_smoothing"),
                                  "defaults": {"ignore_index": -100, "label_smoothing": 0.0}}

cross_entropy = Op("cross_entropy", "composite", _cross_entropy_type, **_CROSS_ENTROPY, decompose=_cross_entropy, ulp=8,
                   autocast="float32",
                   vjp=lambda g, logits, target, y, **how: (cross_entropy_backward(g, logits, target, **how), None),
                   doc="-log softmax(logits)[target], a loss for each row; 0 where the target is ignore_index.",
                   samples=_classified(reals(-4, 4).of(5, 37)), reference=_cross_entropy_value)
cross_entropy_backward: Op = Op("cross_entropy_backward", "composite", lambda g, logits, target, **how: logits,
                                **_CROSS_ENTROPY, decompose=_cross_entropy_backward, ulp=8,
                                doc="Gradient of cross_entropy by the logits.",
                                samples=_classified(reals().of(5), reals(-4, 4).of(5, 37)))
nll_loss = Op("nll_loss", "composite", _cross_entropy_type, attrs=("ignore_index",), defaults={"ignore_index": -100},
              autocast="float32",
              decompose=_nll_loss, doc="-logs[target], a loss for each row; 0 where the target is ignore_index.",
              samples=cases(*(case(reals(-4, 0).of(5, 37), integers(0, 7).of(5), ignore_index=i) for i in (-100, 3)),
                            scale=1), reference=_nll_loss_value)
