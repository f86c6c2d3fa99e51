"""Composites: ops with a name that backends know, and a meaning in simpler ops.

A backend that has a kernel for one runs it; another decomposes it in the legalize pass and lets
the fuser make one kernel of the pieces. They live in softmax, norm, loss and attention, and are
all found here.
"""

from __future__ import annotations

from genesis.ir.node import Node, Op
from genesis.ir.ops.attention import sdpa, sdpa_backward
from genesis.ir.ops.leaves import full
from genesis.ir.ops.loss import cross_entropy, cross_entropy_backward
from genesis.ir.ops.norm import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from genesis.ir.ops.pointwise import where_
from genesis.ir.ops.precision import narrow, wide
from genesis.ir.ops.samples import case, cases, np, number
from genesis.ir.ops.softmax import log_softmax, log_softmax_backward, softmax, softmax_backward
from genesis.ir.types import DType, TensorType, bool_, float32, tensor_type


def _fill(value: Node, type: TensorType) -> Node:
    def same(x: bool, dtype: DType) -> Node:
        return full(type.shape, x, dtype, type.device)
    return where_(same(True, bool_), value, same(False, type.dtype))


fill = Op("fill", "composite", lambda value, type: type, attrs=("type",), decompose=_fill, differentiable=False,
          doc="A number in every element.",
          samples=cases(*(case(number(1.5), type=tensor_type(s, float32)) for s in ((), (2, 3), (0,)))),
          reference=lambda value, type: np.full(type.shape, value))

__all__ = ["cross_entropy", "cross_entropy_backward", "fill", "layer_norm", "layer_norm_backward", "log_softmax",
           "log_softmax_backward", "narrow", "rms_norm", "rms_norm_backward", "sdpa", "sdpa_backward", "softmax",
           "softmax_backward", "wide"]
