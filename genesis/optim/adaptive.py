"""Optimizers that scale each element's step by its past gradients: Adagrad, Adadelta, RMSprop, Rprop and Adam's kin.

Weight decay is added to the gradient as a multiple of the parameter. `foreach`, `capturable` and `differentiable` are
accepted for torch's sake.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.ops import update_rules
from genesis.ops.creation import full_like
from genesis.optim.composed import ComposedOptimizer, State
from genesis.optim.groups import Group, check_option


class Adagrad(ComposedOptimizer):
    """Steps over the root of the sum of squared gradients (Duchi, Hazan and Singer 2011).

    Args:
        params: parameters or groups.
        lr: step size; at step t over 1 + (t - 1) · lr_decay.
        lr_decay: see lr.
        weight_decay: this times the parameter is added to the gradient.
        initial_accumulator_value: what the sums start from.
        eps: added to the root.
        maximize: follow the gradient up.
    """

    op = update_rules.adagrad
    shows_first_state = True

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
                 maximize: bool = False, differentiable: bool = False, fused: bool | None = None):
        for name, value in (("learning rate", lr), ("lr_decay", lr_decay), ("weight_decay", weight_decay),
                            ("initial_accumulator_value", initial_accumulator_value), ("epsilon", eps)):
            check_option("Adagrad", name, value)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused})

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The sums."""
        return ("sum",)

    def initial_state(self, parameter: Tensor, group: Group) -> State:
        """No steps, and the sums' initial value."""
        state = super().initial_state(parameter, group)
        return {**state, "sum": full_like(state["sum"], group["initial_accumulator_value"])}

    def numbers(self, group: Group, counted: Mapping[str, Any]) -> tuple[float, ...]:
        """The step size, and eps."""
        return group["lr"] / (1 + (counted["step"] - 1) * group["lr_decay"]), group["eps"]


class Adadelta(ComposedOptimizer):
    """Steps in the parameters' own units: over past gradients, times past steps (Zeiler 2012).

    Args:
        params: parameters or groups.
        lr: factor of the step.
        rho: how much of the running means stays.
        eps: added under the roots.
        weight_decay: this times the parameter is added to the gradient.
        maximize: follow the gradient up.
    """

    op = update_rules.adadelta

    def __init__(self, params: Iterable[Any], lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6,
                 weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False,
                 maximize: bool = False, differentiable: bool = False):
        check_option("Adadelta", "learning rate", lr)
        check_option("Adadelta", "rho", rho, below=1.0 + 1e-12)
        check_option("Adadelta", "epsilon", eps)
        check_option("Adadelta", "weight_decay", weight_decay)
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
                                  "capturable": capturable, "foreach": foreach, "differentiable": differentiable})

    def tensors(self, group: Group) -> tuple[str, ...]:
        """Running means of squared gradients and of squared steps."""
        return "square_avg", "acc_delta"

    def numbers(self, group: Group, counted: Mapping[str, Any]) -> tuple[float, ...]:
        """The options."""
        return group["lr"], group["rho"], 1 - group["rho"], group["eps"]


class RMSprop(ComposedOptimizer):
    """Steps over the root of a running mean of squared gradients (Hinton 2012; centred: Graves 2013).

    Args:
        params: parameters or groups.
        lr: step size.
        alpha: how much of the running mean stays.
        eps: added to the root.
        weight_decay: this times the parameter is added to the gradient.
        momentum: how much of the last step this step keeps.
        centered: divide by the root of the variance.
        maximize: follow the gradient up.

    >>> import genesis
    >>> w = genesis.tensor([1.0], requires_grad=True)
    >>> optimizer = RMSprop([w], lr=0.1, alpha=0.0)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.9000], requires_grad=True)
    """

    op = update_rules.rmsprop

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
                 weight_decay: float = 0, momentum: float = 0, centered: bool = False, capturable: bool = False,
                 foreach: bool | None = None, maximize: bool = False, differentiable: bool = False):
        for name, value in (("learning rate", lr), ("epsilon", eps), ("momentum", momentum),
                            ("weight_decay", weight_decay), ("alpha", alpha)):
            check_option("RMSprop", name, value)
        super().__init__(params, {"lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
                                  "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
                                  "maximize": maximize, "differentiable": differentiable})

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The mean of squares, and what the options need."""
        return ("square_avg", *(("momentum_buffer",) if group["momentum"] > 0 else ()),
                *(("grad_avg",) if group["centered"] else ()))

    def attributes(self, group: Group) -> tuple[bool, bool]:
        """Which of them there are."""
        return group["momentum"] > 0, bool(group["centered"])

    def numbers(self, group: Group, counted: Mapping[str, Any]) -> tuple[float, ...]:
        """The options."""
        return group["lr"], group["alpha"], 1 - group["alpha"], group["eps"], group["momentum"]


class Rprop(ComposedOptimizer):
    """Steps that look only at the gradient's sign: longer while it stays, shorter when it turns (Riedmiller 1993).

    Args:
        params: parameters or groups.
        lr: the first step size of every element.
        etas: factors of a shorter and of a longer step.
        step_sizes: the least and the largest step.
        maximize: follow the gradient up.
    """

    op = update_rules.rprop

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
                 foreach: bool | None = None, maximize: bool = False, differentiable: bool = False):
        check_option("Rprop", "learning rate", lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, {"lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
                                  "maximize": maximize, "differentiable": differentiable, "capturable": capturable})

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The last gradients, and the step sizes."""
        return "prev", "step_size"

    def initial_state(self, parameter: Tensor, group: Group) -> State:
        """No gradients, and steps of lr."""
        state = super().initial_state(parameter, group)
        return {**state, "step_size": full_like(state["step_size"], group["lr"])}

    def numbers_between(self, group: Group, before: Mapping[str, Any], counted: Mapping[str, Any]) -> tuple[float, ...]:
        """The factors and the bounds. The first step's size is what lr is by then: both bounds are that."""
        least, most = group["step_sizes"]
        if self.is_first_step(before):
            least = most = min(max(float(group["lr"]), least), most)
        return (*group["etas"], least, most)


class _Moments(ComposedOptimizer):
    """The base of Adam's relatives: their options, and checks of these."""

    def __init__(self, params: Iterable[Any], lr: float, betas: tuple[float, float], eps: float, weight_decay: float,
                 **more: Any):
        name = type(self).__name__
        check_option(name, "learning rate", lr)
        check_option(name, "epsilon", eps)
        check_option(name, "weight_decay", weight_decay)
        for index in (0, 1):
            check_option(name, f"beta parameter at index {index}:", betas[index], below=1.0)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, **more})

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The running means of gradients and of their squares."""
        return "exp_avg", "exp_avg_sq"


class Adamax(_Moments):
    """Adam with the largest past gradient in place of the root of squares (Kingma and Ba 2015); arguments as Adam's."""

    op = update_rules.adamax

    def __init__(self, params: Iterable[Any], lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False):
        super().__init__(params, lr, betas, eps, weight_decay, foreach=foreach, maximize=maximize,
                         differentiable=differentiable, capturable=capturable)

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The running mean, and the largest gradient."""
        return "exp_avg", "exp_inf"

    def numbers(self, group: Group, counted: Mapping[str, Any]) -> tuple[float, ...]:
        """The corrected step size, and the options."""
        first, second = group["betas"]
        return group["lr"] / (1 - first ** counted["step"]), 1 - first, second, group["eps"]


class NAdam(_Moments):
    """Adam with Nesterov's momentum (Dozat 2016). Arguments as of `Adam`, and momentum_decay: how fast the momentum's
    schedule reaches beta1; decoupled_weight_decay shrinks the parameter itself."""

    counted = ("step", "mu_product")
    op = update_rules.nadam

    def __init__(self, params: Iterable[Any], lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 4e-3,
                 decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False):
        check_option("NAdam", "momentum_decay", momentum_decay)
        super().__init__(params, lr, betas, eps, weight_decay, momentum_decay=momentum_decay,
                         decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach,
                         capturable=capturable, differentiable=differentiable)

    def initial_state(self, parameter: Tensor, group: Group) -> State:
        """No steps, moments of 0, and the product of no momenta."""
        state = super().initial_state(parameter, group)
        return {"step": state.pop("step"), "mu_product": 1.0, **state}

    def advance(self, group: Group, state: State) -> dict[str, Any]:
        """One step more, with its momentum."""
        step = state["step"] + 1
        return {"step": step, "mu_product": state["mu_product"] * self._momentum(group, step)}

    def numbers(self, group: Group, counted: Mapping[str, Any]) -> tuple[float, ...]:
        """The options, the correction of the squares, and the step sizes along the gradient and along the mean."""
        (first, second), step, product = group["betas"], counted["step"], counted["mu_product"]
        then = self._momentum(group, step + 1)
        now = 1 - self._momentum(group, step)
        return (1 - first, second, 1 - second, group["eps"], 1 - second**step, group["lr"] * now / (1 - product),
                group["lr"] * then / (1 - product * then))

    @staticmethod
    def _momentum(group: Group, step: int) -> float:
        found: float = group["betas"][0] * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"]))
        return found


class RAdam(_Moments):
    """Adam whose first steps, when the squares' mean is not yet to be trusted, are plain (Liu et al. 2020).

    Arguments as of `Adam`; decoupled_weight_decay shrinks the parameter itself.
    """

    op = update_rules.radam

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False):
        super().__init__(params, lr, betas, eps, weight_decay, maximize=maximize, foreach=foreach,
                         capturable=capturable, decoupled_weight_decay=decoupled_weight_decay,
                         differentiable=differentiable)

    def numbers(self, group: Group, counted: Mapping[str, Any]) -> tuple[float, ...]:
        """The options, and the factors of the plain and of the scaled step."""
        (first, second), step = group["betas"], counted["step"]
        most, correction = 2 / (1 - second) - 1, 1 - second**step
        length = most - 2 * step * second**step / correction
        scaled = 0.0
        if length > 5:
            scaled = math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length) * correction)
        return (group["lr"] / (1 - first**step), 1 - first, second, 1 - second, group["eps"], scaled,
                float(length <= 5))
