"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops.optimizer import sgd
from genesis.ops.creation import zeros_like
from genesis.optim.counting import NextStep
from genesis.optim.groups import Group, check_option
from genesis.optim.optimizer import Optimizer


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

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0, dampening: float = 0,
                 weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None):
        check_option("SGD", "learning rate", lr)
        check_option("SGD", "momentum", momentum)
        check_option("SGD", "weight_decay", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise failure("SGD", "Nesterov momentum requires a momentum and zero dampening",
                          hint="momentum=0.9, dampening=0", error=ValueError)
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                                  "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
                                  "differentiable": differentiable, "fused": fused})

    def initial_state(self, parameter: Tensor, group: Group) -> dict[str, Any]:
        """A buffer of 0 where there is momentum."""
        return {"step": 0, "momentum_buffer": zeros_like(parameter).detach()} if group["momentum"] else {}

    def complete(self, saved: Mapping[Any, Any], initial: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """torch keeps no count, and None or nothing for a buffer that holds no direction yet."""
        if "step" in saved:
            return saved
        return {**saved, **initial} if saved.get("momentum_buffer") is None else {**saved, "step": 1}

    def kind(self, parameter: Tensor) -> bool:
        """Whether the buffer holds a direction yet: the first gradient enters it undampened."""
        return bool(self._states.get(parameter, {}).get("step"))

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """One `sgd` op for all of them."""
        momentum = bool(group["momentum"])
        states = [self._states[p] for p in parameters] if momentum else []
        buffers = [state["momentum_buffer"] for state in states]
        self.record(sgd, (len(parameters), momentum, bool(group["nesterov"])),
                    NextStep(states, partial(self._numbers, group)),
                    [*parameters, *gradients, *buffers], [*parameters, *buffers])

    @staticmethod
    def _numbers(group: Group, step: int) -> tuple[float, ...]:
        """The options; the first gradient enters the direction undampened."""
        dampening = float(group["dampening"]) if group["momentum"] and step > 1 else 0.0
        return float(group["lr"]), float(group["momentum"]), dampening, float(group["weight_decay"])
