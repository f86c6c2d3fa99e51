"""Adam and AdamW: steps scaled by running moments of the gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops.optimizer import adamw
from genesis.ir.ops.update_rules import amsgrad as amsgrad_op
from genesis.ir.types import float32
from genesis.ops.creation import zeros_like
from genesis.optim.counting import NextStep
from genesis.optim.groups import Group, check_option
from genesis.optim.optimizer import Optimizer


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015); weight decay is added to the gradient.

    Args:
        params: parameters or groups.
        lr: step size.
        betas: how much of the first and the second moment a step keeps.
        eps: added to the root of the second moment.
        weight_decay: this times the parameter is added to the gradient.
        amsgrad: divide by the root of the largest second moment so far (Reddi, Kale and Kumar 2018).
        maximize: follow the gradient up instead of down.
        foreach, fused, capturable, differentiable: accepted for torch's sake; the update is one op in any case, whose
            step number is never on the device.

    The moments of a parameter narrower than float32 are float32.

    >>> import genesis
    >>> w = genesis.tensor([1.0], requires_grad=True)
    >>> optimizer = Adam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.9
    """

    decoupled = False

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False,
                 fused: bool | None = None, decoupled_weight_decay: bool = False):
        name = type(self).__name__
        if decoupled_weight_decay:
            self.decoupled = True
        check_option(name, "learning rate", lr)
        check_option(name, "epsilon", eps)
        check_option(name, "weight_decay", weight_decay)
        for index in (0, 1):
            check_option(name, f"beta parameter at index {index}:", betas[index], below=1.0)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "amsgrad": bool(amsgrad), "maximize": maximize, "foreach": foreach,
                                  "capturable": capturable, "differentiable": differentiable, "fused": fused,
                                  "decoupled_weight_decay": self.decoupled})

    def initial_state(self, parameter: Tensor, group: Group) -> dict[str, Any]:
        """No steps, moments of 0."""
        dtype = parameter.dtype if parameter.dtype.itemsize >= 4 else float32
        return {"step": 0, **{name: zeros_like(parameter, dtype=dtype)
                              for name in _moments(group)}}

    def check_group(self, options: Group) -> None:
        """torch's files say how the parameter decays; which class this is has the last word on AdamW, as there."""
        super().check_group(options)
        if options.get("decoupled_weight_decay") and not self.decoupled:
            raise failure("Adam.load_state_dict", "the saved state is of decoupled weight decay", error=ValueError,
                          hint="load it into an AdamW")
        if "decoupled_weight_decay" in options:
            options["decoupled_weight_decay"] = self.decoupled

    def kind(self, parameter: Tensor) -> int:
        """The number of steps that a parameter has made: bias correction depends on it."""
        steps: int = self._states[parameter]["step"]
        return steps

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """One `adamw` op for all of them."""
        states = [self._states[p] for p in parameters]
        held = [state[name] for name in _moments(group) for state in states]
        op, numbers = (amsgrad_op, self._amsgrad_numbers) if group.get("amsgrad") else (adamw, self._numbers)
        self.record(op, (len(parameters), self.decoupled), NextStep(states, partial(numbers, group)),
                    [*parameters, *gradients, *held], [*parameters, *held])

    def _amsgrad_numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """The numbers of `amsgrad`, weight decay first."""
        lr, beta1, beta2, eps, decay, correction1, correction2 = self._numbers(group, step)
        return (1 - lr * decay if self.decoupled else decay, lr / correction1, beta1, 1 - beta1, beta2, 1 - beta2,
                math.sqrt(correction2), eps)

    @staticmethod
    def _numbers(group: Group, step: int) -> tuple[float, ...]:
        """The op's numbers: options, and the corrections of the moments' bias."""
        beta1, beta2 = group["betas"]
        return (float(group["lr"]), float(beta1), float(beta2), float(group["eps"]), float(group["weight_decay"]),
                1.0 - beta1**step, 1.0 - beta2**step)


def _moments(group: Group) -> tuple[str, ...]:
    """The names of the tensors of a state."""
    return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group.get("amsgrad") else ()))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): parameters shrink by
    lr·weight_decay a step, whatever their gradients. Arguments as of `Adam`."""

    decoupled = True

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
                 fused: bool | None = None):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, foreach=foreach,
                         capturable=capturable, differentiable=differentiable, fused=fused)
