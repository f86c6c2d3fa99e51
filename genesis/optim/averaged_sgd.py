"""SGD of which the average is kept, `ASGD`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.ops import update_rules
from genesis.optim.composed import ComposedOptimizer, State
from genesis.optim.groups import Group, check_option


class ASGD(ComposedOptimizer):
    """Gradient descent with a step size that falls, and the average of the parameters (Polyak and Juditsky 1992).

    The parameters are those of the last step; their averages are `state[p]["ax"]`.

    Args:
        params: parameters or groups.
        lr: step size; after step t it is lr / (1 + lambd · lr · t) ** alpha.
        lambd: what a parameter loses at a step, times the step size.
        alpha: how fast the step size falls.
        t0: steps after which averages are taken; until then they are the parameters.
        weight_decay: this times the parameter is added to the gradient.
        maximize: follow the gradient up.

    >>> import genesis
    >>> w = genesis.ones(2, requires_grad=True)
    >>> optimizer = ASGD([w], lr=0.25, t0=0)
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> w[0].item() < optimizer.state[w]["ax"][0].item()
    True
    """

    counted = ("step", "eta", "mu")
    op = update_rules.asgd

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
                 t0: float = 1e6, weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False):
        check_option("ASGD", "learning rate", lr)
        check_option("ASGD", "weight_decay", weight_decay)
        super().__init__(params, {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
                                  "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
                                  "capturable": capturable})

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The averages."""
        return ("ax",)

    def initial_state(self, parameter: Tensor, group: Group) -> State:
        """No steps, the first step size, and averages of nothing, which the first step overwrites."""
        state = super().initial_state(parameter, group)
        return {"step": state.pop("step"), "eta": float(group["lr"]), "mu": 1.0, **state}

    def advance(self, group: Group, state: State) -> dict[str, Any]:
        """One step more, with the step size and the average's share of the next one."""
        step, lr = state["step"] + 1, float(group["lr"])
        return {"step": step, "eta": lr / (1 + group["lambd"] * lr * step) ** group["alpha"],
                "mu": 1 / max(1, step - group["t0"])}

    def numbers_between(self, group: Group, before: Mapping[str, Any], counted: Mapping[str, Any]) -> tuple[float, ...]:
        """What is kept of the parameter, the step size and the average's share, as the step before left them. The
        first step's size is what lr is by then."""
        lr = float(group["lr"]) if self.is_first_step(before) else before["eta"]
        return 1 - group["lambd"] * lr, lr, before["mu"]
