"""Adam for tables of which a step sees few rows, `SparseAdam`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from genesis.frontend.recording import read
from genesis.frontend.session import upcoming_numbers
from genesis.frontend.tensor import Tensor
from genesis.ir.node import Node
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import ne, sqrt, where
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import any as any_of
from genesis.optim.counting import NextStep
from genesis.optim.groups import Group, check_option
from genesis.optim.optimizer import Optimizer

MOMENTS = ("exp_avg", "exp_avg_sq")


class SparseAdam(Optimizer):
    """Adam that leaves rows without a gradient, and their moments, as they are.

    torch's takes sparse gradients, whose rows are those that were looked up. Gradients are dense here, of
    `Embedding(sparse=True)` too: rows whose gradient is 0 everywhere count as not looked up.

    Args:
        params: parameters or groups, such as the weights of embeddings.
        lr: step size.
        betas: shares of the old in the running means of gradients and of their squares.
        eps: added to the root of the latter.
        maximize: follow the gradient up.

    Raises:
        ValueError: an option is out of its range.

    >>> import genesis
    >>> table = genesis.nn.Embedding(3, 2, sparse=True)
    >>> before = table.weight.detach().clone()
    >>> optimizer = SparseAdam(table.parameters(), lr=0.5)
    >>> table(genesis.tensor([1])).sum().backward()
    >>> optimizer.step()
    >>> (before - table.weight.detach()).round(decimals=3).tolist()
    [[0.0, 0.0], [0.5, 0.5], [0.0, 0.0]]
    """

    by_element = False

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, maximize: bool = False):
        for name, value in (("learning rate", lr), ("epsilon value", eps)):
            check_option("SparseAdam", name, value)
            if not value > 0:
                raise ValueError(f"Invalid {name}: {value}")
        for number, beta in enumerate(betas):
            if not 0 <= beta < 1:
                raise ValueError(f"Invalid beta parameter at index {number}: {beta}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def initial_state(self, parameter: Tensor, group: Group) -> dict[str, Any]:
        """No steps, and zeros."""
        return {"step": 0, **{name: parameter.detach().new_zeros(parameter.shape) for name in MOMENTS}}

    def kind(self, parameter: Tensor) -> int:
        """What the numbers depend on: the steps that a parameter has made."""
        steps: int = self._states[parameter]["step"]
        return steps

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """New moments and a new parameter for each."""
        writes, states = self.writes(), [self._states[p] for p in parameters]
        following = NextStep(states, partial(_numbers, group))
        (rate, first, second, eps), counted = upcoming_numbers(following, writes.moved)
        written: list[Tensor] = []
        made: list[Node] = []
        for parameter, gradient, state in zip(parameters, gradients, states, strict=True):
            held = [parameter, *[state[name] for name in MOMENTS]]
            before = [read(x) for x in held]
            g, (p, mean, squares) = upcast(read(gradient)), map(upcast, before)
            mean = mean + (g - mean) * first
            squares = squares + (g * g - squares) * second
            seen = _seen(g)
            written += held
            for new, old in zip((p - mean / (sqrt(squares) + eps) * rate, mean, squares), before, strict=True):
                made.append(where(seen, downcast(new, old), old))
        writes.add(written, made, counted, made[0], following)


def _numbers(group: Mapping[str, Any], step: int) -> tuple[float, ...]:
    """The step size, what comes from a new gradient and from its square, and eps."""
    beta1, beta2 = group["betas"]
    rate = float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
    return rate, 1 - beta1, 1 - beta2, float(group["eps"])


def _seen(g: Node) -> Node:
    """Whether an element's row has a gradient."""
    shape, found = g.type.shape, ne(g, 0)
    if len(shape) < 2:
        return found
    rows = any_of(found, axes=tuple(range(1, len(shape))), keepdims=False)
    return expand(reshape(rows, shape=(shape[0], *[1] * (len(shape) - 1))), shape=shape)
