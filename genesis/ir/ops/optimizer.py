"""Whole optimizer updates as one op over all parameters of a dtype."""

from __future__ import annotations

from genesis.ir.node import Node, Op
from genesis.ir.ops.pointwise import cast, sqrt
from genesis.ir.types import TensorType, float32


def _split(operands: tuple, numbers: int, count: int) -> tuple[tuple, list[tuple]]:
    """(the leading numbers, the families of `count` tensors each)."""
    rest = operands[numbers:]
    return operands[:numbers], [rest[i:i + count] for i in range(0, len(rest), count)]


def _adamw_type(*types: TensorType, count: int, decoupled: bool) -> tuple[TensorType, ...]:
    _, (parameters, _, first, second) = _split(types, 7, count)
    return parameters + first + second


def _adamw(*operands: Node, count: int, decoupled: bool) -> tuple[Node, ...]:
    (lr, beta1, beta2, eps, decay, correction1, correction2), families = _split(operands, 7, count)
    updated: list[tuple[Node, Node, Node]] = []
    for p, g, m, v in zip(*families, strict=True):
        wide = p if p.dtype.itemsize >= 4 else cast(p, dtype=float32)
        gradient = cast(g, dtype=wide.dtype) if g.dtype is not wide.dtype else g
        if decoupled:
            wide = wide * (1 - lr * decay)
        else:
            gradient = gradient + wide * decay
        new_m = m + (gradient - m) * (1 - beta1)
        new_v = v * beta2 + gradient * gradient * (1 - beta2)
        denominator = sqrt(new_v) / sqrt(correction2) + eps
        new_p = wide - new_m / denominator * (lr / correction1)
        updated.append((cast(new_p, dtype=p.dtype) if new_p.dtype is not p.dtype else new_p, new_m, new_v))
    return tuple(part for family in zip(*updated, strict=True) for part in family)


adamw = Op("adamw", "composite", _adamw_type, attrs=("count", "decoupled"), decompose=_adamw, differentiable=False,
           doc="Adam (Kingma and Ba 2015), with weight decay decoupled (Loshchilov and Hutter 2019) or added to the "
               "gradient. Operands: lr, beta1, beta2, eps, weight decay, 1 - beta1^t, 1 - beta2^t, then `count` "
               "parameters, gradients, first and second moments; results: parameters and both moments.")


def _sgd_type(*types: TensorType, count: int, momentum: bool, nesterov: bool) -> tuple[TensorType, ...]:
    _, families = _split(types, 4, count)
    return families[0] + (families[2] if momentum else ())


def _sgd(*operands: Node, count: int, momentum: bool, nesterov: bool) -> tuple[Node, ...]:
    (lr, rate, dampening, decay), families = _split(operands, 4, count)
    parameters, buffers = [], []
    for i in range(count):
        p, g = families[0][i], families[1][i]
        step = g + p * decay
        if momentum:
            buffer = families[2][i] * rate + step * (1 - dampening)
            buffers.append(buffer)
            step = step + buffer * rate if nesterov else buffer
        parameters.append(p - step * lr)
    return tuple(parameters + buffers)


sgd = Op("sgd", "composite", _sgd_type, attrs=("count", "momentum", "nesterov"), decompose=_sgd, differentiable=False,
         doc="Stochastic gradient descent (Sutskever et al. 2013 for the momentum forms). Operands: lr, momentum, "
             "dampening, weight decay, then `count` parameters, gradients and, with momentum, buffers; results: "
             "parameters, then buffers.")
