"""Optimizers that scale each element's step by its past gradients: Adagrad, Adadelta, RMSprop, Rprop and Adam's kin.

Weight decay is added to the gradient as a multiple of the parameter. `foreach`, `capturable` and `differentiable` are
accepted for torch's sake.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.node import Node
from genesis.ops.comparison import where
from genesis.ops.creation import full_like, ones
from genesis.ops.rounding import maximum
from genesis.optim.composed import ComposedOptimizer, State
from genesis.optim.optimizer import Group, check_option


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

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
                 initial_accumulator_value: float = 0.0, eps: float = 1e-10, foreach: bool | None = None, *,
                 maximize: bool = False, differentiable: bool = False, fused: bool | None = None):
        for name, value in (("learning rate", lr), ("lr_decay", lr_decay), ("weight_decay", weight_decay),
                            ("initial_accumulator_value", initial_accumulator_value), ("epsilon", eps)):
            check_option("Adagrad", name, value)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "maximize": maximize})

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The sums."""
        return ("sum",)

    def initial_state(self, parameter: Tensor, group: Group) -> State:
        """No steps, and the sums' initial value."""
        state = super().initial_state(parameter, group)
        return {**state, "sum": full_like(state["sum"], group["initial_accumulator_value"])}

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """The step size, and eps."""
        return group["lr"] / (1 + (step - 1) * group["lr_decay"]), group["eps"]

    def rule(self, group: Group, p: Tensor, g: Tensor, state: State, *numbers: Node) -> dict[str, Tensor]:
        """p - lr · g / (√sum + eps)."""
        lr, eps = numbers
        total = state["sum"] + g * g
        return {"p": p - g / (total.sqrt() + eps) * lr, "sum": total}


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

    def __init__(self, params: Iterable[Any], lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6,
                 weight_decay: float = 0.0, foreach: bool | None = None, *, capturable: bool = False,
                 maximize: bool = False, differentiable: bool = False):
        check_option("Adadelta", "learning rate", lr)
        check_option("Adadelta", "rho", rho, below=1.0 + 1e-12)
        check_option("Adadelta", "epsilon", eps)
        check_option("Adadelta", "weight_decay", weight_decay)
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize})

    def tensors(self, group: Group) -> tuple[str, ...]:
        """Running means of squared gradients and of squared steps."""
        return "square_avg", "acc_delta"

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """The options."""
        return group["lr"], group["rho"], 1 - group["rho"], group["eps"]

    def rule(self, group: Group, p: Tensor, g: Tensor, state: State, *numbers: Node) -> dict[str, Tensor]:
        """p - lr · √(steps + eps) / √(gradients + eps) · g."""
        lr, rho, rest, eps = numbers
        squares = state["square_avg"] * rho + g * g * rest
        delta = (state["acc_delta"] + eps).sqrt() / (squares + eps).sqrt() * g
        steps = state["acc_delta"] * rho + delta * delta * rest
        return {"p": p - delta * lr, "square_avg": squares, "acc_delta": steps}


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

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
                 weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False, capturable: bool = False,
                 foreach: bool | None = None, maximize: bool = False, differentiable: bool = False):
        for name, value in (("learning rate", lr), ("epsilon", eps), ("momentum", momentum),
                            ("weight_decay", weight_decay), ("alpha", alpha)):
            check_option("RMSprop", name, value)
        super().__init__(params, {"lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
                                  "weight_decay": weight_decay, "maximize": maximize})

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The mean of squares, and what the options need."""
        return ("square_avg", *(("momentum_buffer",) if group["momentum"] > 0 else ()),
                *(("grad_avg",) if group["centered"] else ()))

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """The options."""
        return group["lr"], group["alpha"], 1 - group["alpha"], group["eps"], group["momentum"]

    def rule(self, group: Group, p: Tensor, g: Tensor, state: State, *numbers: Node) -> dict[str, Tensor]:
        """p - lr · g / (√mean + eps), or - lr times the running step."""
        lr, alpha, rest, eps, momentum = numbers
        found = {"square_avg": state["square_avg"] * alpha + g * g * rest}
        spread = found["square_avg"]
        if group["centered"]:
            found["grad_avg"] = state["grad_avg"] * alpha + g * rest
            spread = spread - found["grad_avg"] * found["grad_avg"]
        step = g / (spread.sqrt() + eps)
        if group["momentum"] > 0:
            step = found["momentum_buffer"] = state["momentum_buffer"] * momentum + step
        return {"p": p - step * lr, **found}


class Rprop(ComposedOptimizer):
    """Steps that look only at the gradient's sign: longer while it stays, shorter when it turns (Riedmiller 1993).

    Args:
        params: parameters or groups.
        lr: the first step size of every element.
        etas: factors of a shorter and of a longer step.
        step_sizes: the least and the largest step.
        maximize: follow the gradient up.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50.0), *, capturable: bool = False,
                 foreach: bool | None = None, maximize: bool = False, differentiable: bool = False):
        check_option("Rprop", "learning rate", lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize})

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The last gradients, and the step sizes."""
        return "prev", "step_size"

    def initial_state(self, parameter: Tensor, group: Group) -> State:
        """No gradients, and steps of lr."""
        state = super().initial_state(parameter, group)
        return {**state, "step_size": full_like(state["step_size"], group["lr"])}

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """The factors and the bounds."""
        return (*group["etas"], *group["step_sizes"])

    def rule(self, group: Group, p: Tensor, g: Tensor, state: State, *numbers: Node) -> dict[str, Tensor]:
        """p - sign(g) · step; where the gradient turned the parameter stays for once."""
        shorter, longer, least, most = numbers
        turn, size = g * state["prev"], state["step_size"]
        scaled = where(turn > 0, size * longer, where(turn < 0, size * shorter, size))
        size = (scaled * 0 + most).minimum(maximum(scaled, scaled * 0 + least))
        g = where(turn < 0, g * 0, g)
        return {"p": p - g.sign() * size, "prev": g, "step_size": size}


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

    def __init__(self, params: Iterable[Any], lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False):
        super().__init__(params, lr, betas, eps, weight_decay, maximize=maximize)

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The running mean, and the largest gradient."""
        return "exp_avg", "exp_inf"

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """The corrected step size, and the options."""
        first, second = group["betas"]
        return group["lr"] / (1 - first**step), first, 1 - first, second, group["eps"]

    def rule(self, group: Group, p: Tensor, g: Tensor, state: State, *numbers: Node) -> dict[str, Tensor]:
        """p - lr · mean / largest."""
        lr, first, rest, second, eps = numbers
        mean = state["exp_avg"] * first + g * rest
        largest = maximum(state["exp_inf"] * second, g.abs() + eps)
        return {"p": p - mean / largest * lr, "exp_avg": mean, "exp_inf": largest}


class NAdam(_Moments):
    """Adam with Nesterov's momentum (Dozat 2016). Arguments as of `Adam`, and momentum_decay: how fast the momentum's
    schedule reaches beta1; decoupled_weight_decay shrinks the parameter itself."""

    def __init__(self, params: Iterable[Any], lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, momentum_decay: float = 4e-3,
                 decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False):
        check_option("NAdam", "momentum_decay", momentum_decay)
        super().__init__(params, lr, betas, eps, weight_decay, momentum_decay=momentum_decay, maximize=maximize,
                         decoupled_weight_decay=decoupled_weight_decay)

    def initial_state(self, parameter: Tensor, group: Group) -> State:
        """No steps, moments of 0, and the product of no momenta."""
        state = super().initial_state(parameter, group)
        return {**state, "mu_product": ones((), dtype=state["exp_avg"].dtype, device=parameter.device)}

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """The options, the momenta of this step and the next, and the correction of the squares."""
        first, second = group["betas"]
        now, then = (first * (1 - 0.5 * 0.96 ** (t * group["momentum_decay"])) for t in (step, step + 1))
        return (group["lr"], first, 1 - first, second, 1 - second, group["eps"], now, 1 - now, then,
                1 / (1 - second**step))

    def rule(self, group: Group, p: Tensor, g: Tensor, state: State, *numbers: Node) -> dict[str, Tensor]:
        """A step along the gradient and the momentum to come, over the root of squares."""
        lr, first, rest, second, left, eps, now, without, then, correction = numbers
        mean, squares = state["exp_avg"] * first + g * rest, state["exp_avg_sq"] * second + g * g * left
        product = state["mu_product"] * now
        root = (squares * correction).sqrt() + eps
        step = g * without / (1 - product) + mean * then / (1 - product * then)
        return {"p": p - step / root * lr, "exp_avg": mean, "exp_avg_sq": squares, "mu_product": product}


class RAdam(_Moments):
    """Adam whose first steps, when the squares' mean is not yet to be trusted, are plain (Liu et al. 2020).

    Arguments as of `Adam`; decoupled_weight_decay shrinks the parameter itself.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, decoupled_weight_decay: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False):
        super().__init__(params, lr, betas, eps, weight_decay, maximize=maximize,
                         decoupled_weight_decay=decoupled_weight_decay)

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """The options, and the factors of the plain and of the scaled step."""
        first, second = group["betas"]
        most, correction = 2 / (1 - second) - 1, 1 - second**step
        length = most - 2 * step * second**step / correction
        scaled = 0.0
        if length > 5:
            scaled = math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length) * correction)
        return (group["lr"] / (1 - first**step), first, 1 - first, second, 1 - second, group["eps"], scaled,
                float(length <= 5))

    def rule(self, group: Group, p: Tensor, g: Tensor, state: State, *numbers: Node) -> dict[str, Tensor]:
        """p - lr · mean, over the root of squares once there are enough."""
        lr, first, rest, second, left, eps, scaled, plain = numbers
        mean, squares = state["exp_avg"] * first + g * rest, state["exp_avg_sq"] * second + g * g * left
        factor = 1 / (squares.sqrt() + eps) * scaled + plain
        return {"p": p - mean * factor * lr, "exp_avg": mean, "exp_avg_sq": squares}
