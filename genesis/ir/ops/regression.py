"""Losses of a difference that is squared when small and counted as it is when large, a loss an element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.pointwise import abs, common, le, lt, maximum, minimum, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.samples import FLOAT, Samples, case, cases, np, reals
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy import ndarray


def _huber(x: Node, target: Node, delta: float) -> Node:
    d = upcast(x) - upcast(target)
    far = (abs(d) - 0.5 * delta) * delta
    return downcast(where_(le(abs(d), literal(delta)), d * d * 0.5, far), x)


def _smooth_l1(x: Node, target: Node, beta: float) -> Node:
    d = upcast(x) - upcast(target)
    return downcast(where_(lt(abs(d), literal(beta)), d * d * (0.5 / beta), abs(d) - 0.5 * beta), x)


def _clipped(d: Node, bound: float) -> Node:
    return minimum(maximum(d, literal(-bound)), literal(bound))


def _huber_backward(g: Node, x: Node, target: Node, delta: float) -> Node:
    return downcast(upcast(g) * _clipped(upcast(x) - upcast(target), delta), x)


def _smooth_l1_backward(g: Node, x: Node, target: Node, beta: float) -> Node:
    return downcast(upcast(g) * (_clipped(upcast(x) - upcast(target), beta) / beta), x)


def _type(*types: TensorType, **how: float) -> TensorType:
    return common(types, FLOAT)


def _samples(name: str, operands: int) -> Samples:
    return cases(*(case(*[reals().of(*s)] * operands, **{name: bound}) for s in ((), (5,), (3, 4), (0,))
                   for bound in (1.0, 0.3, 2.5)), scale=2)


def _huber_value(x: ndarray, target: ndarray, delta: float) -> ndarray:
    d = np.abs(x - target)
    return np.where(d <= delta, d * d / 2, delta * (d - delta / 2))


def _rows(name: str, bound: str, loss: Callable[..., Node], back: Callable[..., Node],
          value: Callable[..., ndarray], slope: Callable[..., ndarray], doc: str) -> tuple[Op, Op]:
    backward = Op(f"{name}_backward", "composite", _type, attrs=(bound,), decompose=back, ulp=8,
                  doc=f"Gradient of {name} by x; by the target it is the opposite.", samples=_samples(bound, 3),
                  reference=lambda g, x, target, **how: g * slope(x - target, **how))

    def vjp(g: Node, x: Node, target: Node, y: Node, **how: float) -> tuple[Node, Node]:
        found = backward(g, x, target, **how)
        return found, -found
    return Op(name, "composite", _type, attrs=(bound,), decompose=loss, vjp=vjp, ulp=4, doc=doc,
              autocast="float32",
              samples=_samples(bound, 2), reference=value), backward


huber_loss, huber_loss_backward = _rows(
    "huber_loss", "delta", _huber, _huber_backward, _huber_value, lambda d, delta: np.clip(d, -delta, delta),
    "d² / 2 where d = |x - target| is at most delta, else delta · (d - delta / 2) (Huber 1964).")
smooth_l1_loss, smooth_l1_loss_backward = _rows(
    "smooth_l1_loss", "beta", _smooth_l1, _smooth_l1_backward,
    lambda x, target, beta: _huber_value(x, target, beta) / beta,
    lambda d, beta: np.clip(d, -beta, beta) / beta,
    "d² / (2 · beta) where d = |x - target| is below beta, else d - beta / 2 (Girshick 2015).")
