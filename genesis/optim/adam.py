"""Adam and AdamW: steps scaled by running moments of the gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops.optimizer import adamw
from genesis.ir.types import float32
from genesis.ops.creation import zeros_like
from genesis.optim.counting import NextStep
from genesis.optim.optimizer import Group, Optimizer, check_option


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015); weight decay is added to the gradient.

    Args:
        params: parameters or groups.
        lr: step size.
        betas: how much of the first and the second moment a step keeps.
        eps: added to the root of the second moment.
        weight_decay: this times the parameter is added to the gradient.
        amsgrad: not supported.
        maximize: follow the gradient up instead of down.
        foreach, fused: accepted for torch's sake; the update is one op in any case.

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
                 eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, fused: bool | None = None):
        name = type(self).__name__
        if amsgrad:
            raise failure(name, "amsgrad=True is not supported",
                          hint="amsgrad=False; supported are lr, betas, eps, weight_decay and maximize",
                          error=ValueError)
        check_option(name, "learning rate", lr)
        check_option(name, "epsilon", eps)
        check_option(name, "weight_decay", weight_decay)
        for index in (0, 1):
            check_option(name, f"beta parameter at index {index}:", betas[index], below=1.0)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "amsgrad": False, "maximize": maximize})

    def initial_state(self, parameter: Tensor, group: Group) -> dict[str, Any]:
        """No steps, moments of 0."""
        dtype = parameter.dtype if parameter.dtype.itemsize >= 4 else float32
        return {"step": 0, **{name: zeros_like(parameter, dtype=dtype)
                              for name in ("exp_avg", "exp_avg_sq")}}

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
        steps: int = self.state[parameter]["step"]
        return steps

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """One `adamw` op for all of them."""
        states = [self.state[p] for p in parameters]
        first, second = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]
        self.record(adamw, (len(parameters), self.decoupled), NextStep(states, partial(self._numbers, group)),
                    [*parameters, *gradients, *first, *second], [*parameters, *first, *second])

    @staticmethod
    def _numbers(group: Group, step: int) -> tuple[float, ...]:
        """The op's numbers: options, and the corrections of the moments' bias."""
        beta1, beta2 = group["betas"]
        return (float(group["lr"]), float(beta1), float(beta2), float(group["eps"]), float(group["weight_decay"]),
                1.0 - beta1**step, 1.0 - beta2**step)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): parameters shrink by
    lr·weight_decay a step, whatever their gradients. Arguments as of `Adam`."""

    decoupled = True

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, fused: bool | None = None):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, foreach=foreach, fused=fused)
