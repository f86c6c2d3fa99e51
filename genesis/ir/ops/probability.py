"""Binary cross-entropy of probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.pointwise import common, log, log1p, maximum
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.samples import FLOAT, case, cases, np, reals

if TYPE_CHECKING:
    from numpy import ndarray

LEAST = -100.0
"""Logarithms are taken no lower than this, so that a certain mistake costs 100 and not infinity."""


def _logs(x: Node) -> tuple[Node, Node]:
    """log x and log(1 - x), at least `LEAST`."""
    w = upcast(x)
    return maximum(log(w), literal(LEAST)), maximum(log1p(-w), literal(LEAST))


def _loss(x: Node, target: Node) -> Node:
    yes, no = _logs(x)
    return downcast((upcast(target) - 1.0) * no - upcast(target) * yes, x)


def _vjp(g: Node, x: Node, target: Node, y: Node) -> tuple[Node, Node]:
    """The gradient by the target is log(1 - x) - log x, as the formula has it."""
    yes, no = _logs(x)
    return binary_cross_entropy_backward(g, x, target), g * downcast(no - yes, x)


def _back(g: Node, x: Node, target: Node) -> Node:
    """(x - target) / (x·(1 - x)), where that is not too small to divide by."""
    w = upcast(x)
    return downcast(upcast(g) * (w - upcast(target)) / maximum((1 - w) * w, literal(1e-12)), x)


def _value(x: ndarray, target: ndarray) -> ndarray:
    return (target - 1) * np.maximum(np.log1p(-x), LEAST) - target * np.maximum(np.log(x), LEAST)


binary_cross_entropy = Op("binary_cross_entropy", "composite", lambda x, target: common((x, target), FLOAT), ulp=4,
                          decompose=_loss, vjp=_vjp,
                          doc="-(target·log x + (1 - target)·log(1 - x)), with logarithms of at least -100.",
                          samples=cases(*(case(reals(0.05, 0.95).of(*s), reals(0, 1).of(*s))
                                          for s in ((), (5,), (3, 4), (0,))), scale=1), reference=_value)
binary_cross_entropy_backward: Op = Op(
    "binary_cross_entropy_backward", "composite", lambda g, x, target: common((g, x, target), FLOAT), ulp=8,
    decompose=_back, doc="Gradient of binary_cross_entropy by x.",
    samples=cases(*(case(reals().of(*s), reals(0.05, 0.95).of(*s), reals(0, 1).of(*s)) for s in ((), (3, 4), (0,))),
                  scale=4),
    reference=lambda g, x, target: g * (x - target) / np.maximum(x * (1 - x), 1e-12))
