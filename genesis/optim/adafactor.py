"""Adafactor: Adam's second moment as a row and a column, steps in proportion to a parameter's own size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from genesis.frontend.recording import read
from genesis.frontend.session import upcoming_numbers
from genesis.frontend.tensor import Tensor
from genesis.ir.node import Node, broadcast
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.pointwise import maximum, rsqrt, sqrt
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import reduced_shape, sum
from genesis.ir.types import TensorType
from genesis.ops.creation import zeros
from genesis.ops.limits import finfo
from genesis.optim.counting import NextStep
from genesis.optim.groups import Group, check_option
from genesis.optim.optimizer import Optimizer

FACTORED: Final = ("row_var", "col_var")
"""The state of a parameter of two dimensions and more: mean squares of gradients over columns, and over rows."""


class Adafactor(Optimizer):
    """Steps scaled by a second moment that is kept as the product of a row and a column (Shazeer and Stern 2018).

    A matrix of n × m has n + m numbers of state, not 2 · n · m as Adam's. What a step does is bounded: its root mean
    square is at most `d` times the learning rate, which is relative to the parameter's own root mean square.

    Args:
        params: parameters or groups.
        lr: step size at most; it falls as 1/√step.
        beta2_decay: the share of a new gradient in the second moment is step to this power.
        eps: the least second moment, by default the dtype's eps, and the least size of a parameter.
        d: steps of a larger root mean square are cut to it.
        weight_decay: parameters shrink by lr · weight_decay a step.
        maximize: follow the gradient up.

    Raises:
        ValueError: an option is out of its range.

    >>> import genesis
    >>> w = genesis.ones(4, 3, requires_grad=True)
    >>> optimizer = Adafactor([w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w[0, 0].item(), 4), optimizer.state[w]["row_var"].shape
    (0.99, genesis.Size([4, 1]))
    """

    by_element = False

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, beta2_decay: float = -0.8,
                 eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0, *,
                 foreach: bool | None = None, maximize: bool = False):
        for name, value in (("Learning rate", lr), ("beta2_decay", -beta2_decay), ("epsilon1", eps[0] or 0.0),
                            ("epsilon2", eps[1]), ("weight_decay", weight_decay)):
            check_option("Adafactor", name, value)
        if d < 1:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        super().__init__(params, {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d,
                                  "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize})

    def initial_state(self, parameter: Tensor, group: Group) -> dict[str, Any]:
        """No steps, and zeros: a row and a column of the last two dimensions, or where there are fewer all elements."""
        shape = tuple(parameter.shape)
        shapes = ({"variance": shape} if len(shape) < 2 else
                  {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])})
        return {"step": 0, **{name: zeros(*each, dtype=parameter.dtype, device=parameter.device)
                              for name, each in shapes.items()}}

    def kind(self, parameter: Tensor) -> int:
        """What the numbers depend on: the steps that a parameter has made."""
        steps: int = self._states[parameter]["step"]
        return steps

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """A new second moment and a new parameter for each."""
        writes, states = self.writes(), [self._states[p] for p in parameters]
        following = NextStep(states, partial(_numbers, group))
        (share, rate, kept), counted = upcoming_numbers(following, writes.moved)
        written: list[Tensor] = []
        made: list[Node] = []
        for parameter, gradient, state in zip(parameters, gradients, states, strict=True):
            p, g = upcast(read(parameter)), upcast(read(gradient))
            eps, least = group["eps"]
            eps = finfo(parameter.dtype).eps if eps is None else float(eps)
            held = [state[name] for name in (FACTORED if parameter.ndim > 1 else ("variance",))]
            moments = [_towards(upcast(read(x)), found, share) for x, found in zip(held, _squares(g), strict=True)]
            step = rsqrt(maximum(_variance(moments, eps), eps * eps)) * g
            size = maximum(_root_mean_square(p), float(least)) * rate / maximum(
                _root_mean_square(step) * (1 / float(group["d"])), 1.0)
            written += [parameter, *held]
            moved = p * kept - step * broadcast(size, p)[0]
            made.append(downcast(moved, read(parameter)))
            made += [downcast(x, read(y)) for x, y in zip(moments, held, strict=True)]
        writes.add(written, made, counted, made[0], following)


def _numbers(group: Mapping[str, Any], step: int) -> tuple[float, ...]:
    """The share of a new gradient, the relative step size, and what is kept of a parameter."""
    lr = float(group["lr"])
    return float(step) ** float(group["beta2_decay"]), min(lr, 1 / math.sqrt(step)), 1 - lr * group["weight_decay"]


def _mean(x: Node, axis: int) -> Node:
    """The mean along an axis, which stays with size 1."""
    kind: TensorType = x.type
    found = sum(x, axes=(axis,), keepdims=False)
    return reshape(found, shape=reduced_shape(kind.shape, (axis,), keepdims=True)) * (1 / max(1, kind.shape[axis]))


def _squares(g: Node) -> list[Node]:
    """The mean squares of a gradient over columns and over rows, or its squares."""
    square, n = g * g, g.type.ndim
    return [_mean(square, n - 1), _mean(square, n - 2)] if n > 1 else [square]


def _towards(moment: Node, found: Node, share: Node) -> Node:
    return moment + (found - moment) * share


def _variance(moments: Sequence[Node], eps: float) -> Node:
    """The second moment: the product of row and column by the row's mean."""
    if len(moments) == 1:
        return moments[0]
    row, column = moments
    a, b, c = broadcast(row, column, maximum(_mean(row, row.type.ndim - 2), eps))
    return a * b / c


def _root_mean_square(x: Node) -> Node:
    axes = tuple(range(x.type.ndim))
    return sqrt(sum(x * x, axes=axes, keepdims=False) * (1 / max(1, math.prod(x.type.shape)))) if axes else sqrt(x * x)
