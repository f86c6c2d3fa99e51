"""Whole optimizer updates as one op over all parameters of a dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.ops.pointwise import cast, sqrt
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.samples import Samples, case, cases, np, number, positives, reals
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from numpy import ndarray


def _split(operands: tuple, numbers: int, count: int) -> tuple[tuple, list[tuple]]:
    """(the leading numbers, the groups of `count` tensors each)."""
    rest = operands[numbers:]
    return operands[:numbers], [rest[i:i + count] for i in range(0, len(rest), count)]


def _upcast(*roles: Node) -> list[Node]:
    """A parameter, its gradient and its moments in at least float32, and all in the largest of their dtypes: a model
    that was made float64 after the first step keeps moments of float32."""
    found = list(map(upcast, roles))
    largest = max(found, key=lambda x: x.dtype.itemsize).dtype
    return [x if x.dtype is largest else cast(x, dtype=largest) for x in found]


def _adamw_type(*types: TensorType, count: int, decoupled: bool) -> tuple[TensorType, ...]:
    _, (parameters, _, first, second) = _split(types, 7, count)
    return parameters + first + second


def _adamw(*operands: Node, count: int, decoupled: bool) -> tuple[Node, ...]:
    (lr, beta1, beta2, eps, decay, correction1, correction2), groups = _split(operands, 7, count)
    updated: list[tuple[Node, ...]] = []
    for p, g, m, v in zip(*groups, strict=True):
        old_p, gradient, old_m, old_v = _upcast(p, g, m, v)
        if decoupled:
            old_p = old_p * (1 - lr * decay)
        else:
            gradient = gradient + old_p * decay
        new_m = old_m + (gradient - old_m) * (1 - beta1)
        new_v = old_v * beta2 + gradient * gradient * (1 - beta2)
        denominator = sqrt(new_v) / sqrt(correction2) + eps
        new_p = old_p - new_m / denominator * (lr / correction1)
        updated.append((downcast(new_p, p), downcast(new_m, m), downcast(new_v, v)))
    return tuple(part for group in zip(*updated, strict=True) for part in group)


def _steps(*flags: str) -> Samples:
    """Two parameters of different shapes, at the third step and with corrections that are far from 1."""
    gradients = reals().of(3, 37), reals().of(5)
    moments = positives(1).of(3, 37), positives(1).of(5)
    numbers = [number(x) for x in (0.01, 0.9, 0.99, 1e-3, 0.1, 1 - 0.9**3, 1 - 0.99**3)]
    return cases(*(case(*numbers, *gradients, *gradients, *gradients, *moments, count=2, decoupled=decoupled)
                   for decoupled in (True, False)), scale=1)


def _adamw_value(lr: float, beta1: float, beta2: float, eps: float, decay: float, correction1: float,
                 correction2: float, *tensors: ndarray, count: int, decoupled: bool) -> tuple[ndarray, ...]:
    found = []
    for p, g, m, v in zip(*_split(tensors, 0, count)[1], strict=True):
        g = g if decoupled else g + decay * p
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        step = lr * (m / correction1) / (np.sqrt(v / correction2) + eps)
        found.append((p * (1 - lr * decay if decoupled else 1) - step, m, v))
    return tuple(x for group in zip(*found, strict=True) for x in group)


adamw = Op("adamw", "composite", _adamw_type, attrs=("count", "decoupled"), decompose=_adamw, differentiable=False,
           ulp=4,
           doc="Adam (Kingma and Ba 2015), with weight decay decoupled (Loshchilov and Hutter 2019) or added to the "
               "gradient. Operands: lr, beta1, beta2, eps, weight decay, 1 - beta1^t, 1 - beta2^t, then `count` "
               "parameters, gradients, first and second moments; results: parameters and both moments.",
           samples=_steps("decoupled"), reference=_adamw_value)


def _sgd_type(*types: TensorType, count: int, momentum: bool, nesterov: bool) -> tuple[TensorType, ...]:
    _, groups = _split(types, 4, count)
    return groups[0] + (groups[2] if momentum else ())


def _sgd(*operands: Node, count: int, momentum: bool, nesterov: bool) -> tuple[Node, ...]:
    (lr, rate, dampening, decay), groups = _split(operands, 4, count)
    parameters, buffers = [], []
    for i in range(count):
        p, g, *held = _upcast(*(group[i] for group in groups))
        step = g + p * decay
        if momentum:
            buffer = held[0] * rate + step * (1 - dampening)
            buffers.append(downcast(buffer, groups[2][i]))
            step = step + buffer * rate if nesterov else buffer
        parameters.append(downcast(p - step * lr, groups[0][i]))
    return tuple(parameters + buffers)


def _momenta() -> Samples:
    group = reals().of(3, 37), reals().of(5)
    numbers = [number(x) for x in (0.1, 0.9, 0.25, 0.01)]
    none = [number(x) for x in (0.1, 0.0, 0.25, 0.01)]
    return cases(case(*numbers, *group, *group, count=2, momentum=False, nesterov=False),
                 case(*numbers, *group * 3, count=2, momentum=True, nesterov=False),
                 case(*numbers, *group * 3, count=2, momentum=True, nesterov=True),
                 case(*none, *group * 3, count=2, momentum=True, nesterov=False), scale=1)


def _sgd_value(lr: float, rate: float, dampening: float, decay: float, *tensors: ndarray, count: int, momentum: bool,
               nesterov: bool) -> tuple[ndarray, ...]:
    groups = _split(tensors, 0, count)[1]
    steps = [g + decay * p for p, g in zip(*groups[:2], strict=True)]
    buffers = [rate * b + (1 - dampening) * d for b, d in zip(groups[2], steps, strict=True)] if momentum else []
    taken = [d + rate * b if nesterov else b for d, b in zip(steps, buffers, strict=True)] if momentum else steps
    return tuple(p - lr * d for p, d in zip(groups[0], taken, strict=True)) + tuple(buffers)


sgd = Op("sgd", "composite", _sgd_type, attrs=("count", "momentum", "nesterov"), decompose=_sgd, differentiable=False,
         ulp=4,
         doc="Stochastic gradient descent (Sutskever et al. 2013 for the momentum forms). Operands: lr, momentum, "
             "dampening, weight decay, then `count` parameters, gradients and, with momentum, buffers; results: "
             "parameters, then buffers.", samples=_momenta(), reference=_sgd_value)
