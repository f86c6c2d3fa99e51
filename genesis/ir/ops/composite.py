"""Composites: ops with a name that backends know, and a meaning in simpler ops.

A backend that has a kernel for one runs it; another decomposes it in the legalize pass and lets
the fuser make one kernel of the pieces. They live in softmax, norm, loss and attention, and are
all found here.
"""

from __future__ import annotations

from genesis.ir.node import Node, Op, broadcast_shapes, literal
from genesis.ir.ops.attention import sdpa, sdpa_backward
from genesis.ir.ops.leaves import full
from genesis.ir.ops.loss import cross_entropy, cross_entropy_backward, nll_loss
from genesis.ir.ops.movement import expand
from genesis.ir.ops.norm import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from genesis.ir.ops.pointwise import eq, where_
from genesis.ir.ops.precision import downcast
from genesis.ir.ops.reduction import all
from genesis.ir.ops.samples import ANY, FLOAT, case, cases, forward_only, np, number, positives, reals
from genesis.ir.ops.softmax import log_softmax, log_softmax_backward, softmax, softmax_backward
from genesis.ir.types import DType, TensorType, bool_, float32, tensor_type


def _fill(value: Node, type: TensorType) -> Node:
    def same(x: bool, dtype: DType) -> Node:
        return full(type.shape, x, dtype, type.device)
    return where_(same(True, bool_), value, same(False, type.dtype))


def _scale_gradient_vjp(g: Node, x: Node, factor: Node, y: Node) -> tuple[Node | None, ...]:
    by = expand(downcast(factor, g), shape=g.type.shape)
    return where_(eq(by, literal(0.0)), 0.0, g * by), None


def _scale_gradient_type(x: TensorType, factor: TensorType) -> TensorType:
    if broadcast_shapes(x.shape, factor.shape) != x.shape:
        raise RuntimeError(f"a factor of shape {factor.shape} does not broadcast to {x.shape}")
    return x


scale_gradient = Op("scale_gradient", "composite", _scale_gradient_type, decompose=lambda x, factor: x,
                    vjp=_scale_gradient_vjp,
                    doc="x; its gradient is multiplied by the factor, which broadcasts, and is 0 where that is 0.",
                    samples=cases(*(forward_only(case(reals().of(*s), positives().of(*f))) for s, f in (
                        ((3, 4), (3, 1)), ((), ()), ((0, 2), (0, 1)))), kinds=FLOAT),
                    reference=lambda x, factor: x)

fill = Op("fill", "composite", lambda value, type: type, attrs=("type",), decompose=_fill, differentiable=False,
          doc="A number in every element.",
          samples=cases(*(case(number(1.5), type=tensor_type(s, float32)) for s in ((), (2, 3), (0,)))),
          reference=lambda value, type: np.full(type.shape, value))


def _equal_type(a: TensorType, b: TensorType) -> TensorType:
    if a.shape != b.shape or a.dtype is not b.dtype:
        raise RuntimeError(f"only tensors of one type can be equal, not {a} and {b}")
    return tensor_type((), bool_, a.device)


equal = Op("equal", "composite", _equal_type, differentiable=False,
           decompose=lambda a, b: all(eq(a, b), axes=tuple(range(a.type.ndim)), keepdims=False),
           doc="Whether all elements are equal; NaN equals nothing.",
           samples=cases(*(case(reals(0, high).of(*s), reals(0, high).of(*s)) for s, high in (
               ((2, 3), 9), ((1,), 0), ((2, 2), 0), ((), 0), ((0, 2), 1))), kinds=ANY),
           reference=np.array_equal)

__all__ = ["cross_entropy", "cross_entropy_backward", "equal", "fill", "layer_norm", "layer_norm_backward",
           "log_softmax", "log_softmax_backward", "nll_loss", "rms_norm", "rms_norm_backward",
           "scale_gradient", "sdpa", "sdpa_backward", "softmax", "softmax_backward"]
