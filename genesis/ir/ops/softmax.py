"""Softmax and its logarithm along one axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.ops.pointwise import common, exp, log
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import max, spread, sum
from genesis.ir.ops.samples import FLOAT, Samples, Values, case, cases, np, positives, reals
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from numpy import ndarray


def _float_type(x: TensorType, axis: int) -> TensorType:
    return common((x,), FLOAT)


def _softmax(x: Node, axis: int) -> Node:
    if not x.type.numel:  # rows of nothing have no maximum
        return x
    w = upcast(x)
    e = exp(w - spread(max(w, axes=(axis,)), w, (axis,)))
    return downcast(e / spread(sum(e, axes=(axis,)), e, (axis,)), x)


def _softmax_vjp(g: Node, x: Node, y: Node, axis: int) -> Node:
    return softmax_backward(g, y, axis=axis)


def _softmax_backward(g: Node, y: Node, axis: int) -> Node:
    wg, wy = upcast(g), upcast(y)
    return downcast(wy * (wg - spread(sum(wg * wy, axes=(axis,)), wg, (axis,))), y)


def _rows(*values: Values) -> Samples:
    shapes: tuple[tuple[tuple[int, ...], int], ...] = (((5,), 0), ((3, 4), 1), ((3, 4), 0), ((2, 3, 37), 2),
                                                       ((37, 2), 0), ((2, 1), 1),
                                                       ((0, 3), 1), ((2, 0), 1), ((0, 0), 0))
    return cases(*(case(*(v.of(*s) for v in values), axis=a) for s, a in shapes))


def softmax_value(x: ndarray, axis: int) -> ndarray:
    """softmax in numpy."""
    e = np.exp(x - np.max(x, axis, keepdims=True, initial=-math.inf))
    return e / np.sum(e, axis, keepdims=True)


softmax = Op("softmax", "composite", _float_type, attrs=("axis",), decompose=_softmax, vjp=_softmax_vjp, ulp=4,
             autocast="float32",
             doc="exp(x) / Σ exp(x) along the axis, with the row's maximum taken out first.",
             samples=_rows(reals(-4, 4)), reference=softmax_value)
softmax_backward = Op("softmax_backward", "composite", lambda g, y, axis: y, attrs=("axis",),
                      decompose=_softmax_backward, ulp=4, doc="Gradient of softmax from its result y.",
                      samples=_rows(reals(), positives(1)))


def _log_softmax(x: Node, axis: int) -> Node:
    if not x.type.numel:
        return x
    w = upcast(x)
    shifted = w - spread(max(w, axes=(axis,)), w, (axis,))
    return downcast(shifted - spread(log(sum(exp(shifted), axes=(axis,))), w, (axis,)), x)


def _log_softmax_backward(g: Node, y: Node, axis: int) -> Node:
    wg, wy = upcast(g), upcast(y)
    return downcast(wg - exp(wy) * spread(sum(wg, axes=(axis,)), wg, (axis,)), y)


log_softmax = Op("log_softmax", "composite", _float_type, attrs=("axis",), decompose=_log_softmax, ulp=4,
                 autocast="float32",
                 vjp=lambda g, x, y, axis: log_softmax_backward(g, y, axis=axis), doc="log(softmax(x)) along the axis.",
                 samples=_rows(reals(-4, 4)), reference=lambda x, axis: np.log(softmax_value(x, axis)))
log_softmax_backward: Op = Op("log_softmax_backward", "composite", lambda g, y, axis: y, attrs=("axis",),
                              decompose=_log_softmax_backward, ulp=4, doc="Gradient of log_softmax from its result y.",
                              samples=_rows(reals(), reals(-4, 0)))
