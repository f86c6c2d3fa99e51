"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import setitem
from typing import Any

from genesis.frontend.at_once import at_once
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops.optimizer import sgd
from genesis.ops.creation import zeros_like
from genesis.optim.optimizer import Group, Optimizer, check_option


class SGD(Optimizer):
    """Gradient descent, plain or with momentum (Sutskever et al. 2013).

    Args:
        params: parameters or groups.
        lr: step size.
        momentum: how much of the last step's direction this step keeps.
        dampening: how much of the gradient is left out of the direction, from the second step on.
        weight_decay: this times the parameter is added to the gradient.
        nesterov: look ahead along the new direction; needs momentum and no dampening.
        maximize: follow the gradient up instead of down.
        foreach, fused: accepted for torch's sake; the update is one op in any case.

    >>> import genesis
    >>> w = genesis.tensor([1.0], requires_grad=True)
    >>> optimizer = SGD([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.item()
    0.5
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, fused: bool | None = None):
        check_option("SGD", "learning rate", lr)
        check_option("SGD", "momentum", momentum)
        check_option("SGD", "weight_decay", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise failure("SGD", "Nesterov momentum requires a momentum and zero dampening",
                          hint="momentum=0.9, dampening=0", error=ValueError)
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                                  "nesterov": nesterov, "maximize": maximize})

    def initial_state(self, parameter: Tensor, group: Group) -> dict[str, Any]:
        """With momentum, a buffer of 0."""
        return {"step": 0, "momentum_buffer": zeros_like(parameter).detach()} if group["momentum"] else {}

    def complete(self, saved: Mapping[Any, Any], initial: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """torch keeps no count, and None or nothing for a buffer that holds no direction yet."""
        if "step" in saved:
            return saved
        return {**saved, **initial} if saved.get("momentum_buffer") is None else {**saved, "step": 1}

    def kind(self, parameter: Tensor) -> bool:
        """Whether the buffer holds a direction yet: the first gradient enters it undampened."""
        return bool(self.state.get(parameter, {}).get("step"))

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """One `sgd` op for all of them."""
        momentum = bool(group["momentum"])
        states = [self.state[p] for p in parameters] if momentum else []
        buffers = [state["momentum_buffer"] for state in states]

        self.record(sgd, (len(parameters), momentum, bool(group["nesterov"])), _NextStep(group, states),
                    [*parameters, *gradients, *buffers], [*parameters, *buffers])


class _NextStep:
    """The numbers of the next step of these states, none without momentum, which is counted when they are asked for.

    `undo` takes the count back: the step did not run after all.
    """

    def __init__(self, group: Group, states: Sequence[dict[str, Any]]):
        self._group, self._states = group, states

    def __call__(self) -> tuple[float, ...]:
        steps = self._states[0]["step"] if self._states else 0
        self._count(steps + 1)
        return self._numbers(steps)

    def ahead(self, moved: dict[Any, Any]) -> Any:
        """The same, and the change that counts the step; see `session.ahead_of`."""
        if not self._states:
            return self._numbers(0), [], []
        key = id(self._states[0])
        steps = moved.get(key, self._states[0]["step"])
        moved[key] = steps + 1
        return self._numbers(steps), [(at_once, map(setitem, self._states, repeat("step"), repeat(steps + 1)))], []

    def undo(self) -> None:
        """One step less."""
        if self._states:
            self._count(self._states[0]["step"] - 1)

    def _numbers(self, steps: int) -> tuple[float, ...]:
        group = self._group
        dampening = float(group["dampening"]) if steps else 0.0
        return float(group["lr"]), float(group["momentum"]), dampening, float(group["weight_decay"])

    def _count(self, steps: int) -> None:
        for state in self._states:
            state["step"] = steps
