"""Learning rates as functions of the epoch.

Each scheduler is a formula for the factor, or the rate, at an epoch. `step()` moves on by one
and writes the rates into the optimizer's groups; being inputs of the plan, they compile nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from genesis.optim.optimizer import Optimizer


class LRScheduler:
    """Sets lr = rate(initial lr, epoch) in every group. Subclasses define `rate`.

    Args:
        optimizer: whose groups to set; their rates now are the initial ones.
        last_epoch: the epoch already done, to go on with a restored optimizer; -1 to start.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group["initial_lr"] = group["lr"]
            elif "initial_lr" not in group:
                raise KeyError("param 'initial_lr' is not specified in param_groups"
                               f"[{number}] when resuming an optimizer")
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.step()

    def rate(self, base: float, epoch: int, group: int) -> float:
        """The learning rate of a group at an epoch, from its initial one."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to the one given."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for number, (group, base) in enumerate(zip(self.optimizer.param_groups, self.base_lrs, strict=True)):
            group["lr"] = self.rate(base, self.last_epoch, number)

    def get_last_lr(self) -> list[float]:
        """The rates of the groups now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The epoch and the initial rates: the formula is the constructor's."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken; the optimizer's rates are set anew."""
        self.base_lrs = list(state_dict["base_lrs"])
        self.step(state_dict["last_epoch"])


class LambdaLR(LRScheduler):
    """The initial rate times lr_lambda(epoch): one function, or one for each group.

    >>> import genesis
    >>> optimizer = genesis.optim.SGD([genesis.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
                 last_epoch: int = -1):
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """base · lr_lambda(epoch)."""
        return base * self.lr_lambdas[group](epoch)


class StepLR(LRScheduler):
    """The rate is multiplied by gamma every step_size epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """base · gamma^⌊epoch / step_size⌋."""
        return base * self.gamma ** (epoch // self.step_size)


class LinearLR(LRScheduler):
    """The factor goes in a line from start_factor to end_factor in total_iters epochs, and stays."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5,
                 last_epoch: int = -1):
        if not 0 < start_factor <= 1:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """base · (start + (end - start) · min(epoch, total) / total)."""
        done = min(epoch, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class CosineAnnealingLR(LRScheduler):
    """The rate falls from its initial value to eta_min along half a cosine in T_max epochs
    (Loshchilov and Hutter 2017), and rises again after."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """eta_min + (base - eta_min) · (1 + cos(π · epoch / T_max)) / 2."""
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2
