"""Learning rates as functions of the epoch.

Each scheduler has a formula for the rate at an epoch from the initial one (`rate`), and all but `LambdaLR` one from the
rate that the group has (`following`): so several of them change one rate together, and go on from what a user sets.
`step()` moves on by one and writes the rates into the optimizer's groups; being inputs of the plan, they compile
nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from genesis.optim.lr_scheduler.base import LRScheduler
from genesis.optim.lr_scheduler.states import give_callables, of_callables
from genesis.optim.optimizer import Optimizer

Factor = Callable[[int], float]
"""What a rate is multiplied by at an epoch."""


def _for_each_group(lr_lambda: Factor | Sequence[Factor], optimizer: Optimizer) -> list[Factor]:
    """One function for each group, or the same for all."""
    groups = len(optimizer.param_groups)
    found = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
    if len(found) != groups:
        raise ValueError(f"Expected {groups} lr_lambdas, but got {len(found)}")
    return found


class _ByFunctions(LRScheduler):
    """A schedule by functions of the epoch, one for each group."""

    lr_lambdas: list[Factor]

    def state_dict(self) -> dict[str, Any]:
        """The state of any schedule, and the attributes of the objects that are its functions."""
        return super().state_dict() | {"lr_lambdas": of_callables(self.lr_lambdas)}

    def take_values(self, state: dict[str, Any]) -> None:
        """Set what is in a state dict, that of the functions too."""
        super().take_values(state)
        give_callables(self.lr_lambdas, state.get("lr_lambdas", [None] * len(self.lr_lambdas)))

    def resume(self, state: dict[str, Any]) -> None:
        """The rates as they were saved; where there are none the functions are asked, which may count their calls."""
        if "_last_lr" in state:
            self.write([float(lr) for lr in state["_last_lr"]])
        else:
            super().resume(state)


class LambdaLR(_ByFunctions):
    """The initial rate times lr_lambda(epoch): one function, or one for each group.

    >>> import genesis
    >>> optimizer = genesis.optim.SGD([genesis.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor],
                 last_epoch: int = -1):
        self.lr_lambdas = _for_each_group(lr_lambda, optimizer)
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

    def following(self, now: float, group: int) -> float:
        """now · gamma at each multiple of step_size."""
        epoch = self.last_epoch
        return now * self.gamma if epoch and epoch % self.step_size == 0 else now


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
        return base * self._factor(epoch)

    def following(self, now: float, group: int) -> float:
        """now times the factor at this epoch over the one before."""
        epoch = self.last_epoch
        if epoch == 0:
            return now * self.start_factor
        if self._is_initial or epoch > self.total_iters:
            return now
        return now * (self._factor(epoch) / self._factor(epoch - 1))

    def _factor(self, epoch: int) -> float:
        done = min(epoch, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done


class CosineAnnealingLR(LRScheduler):
    """The rate falls from its initial value to eta_min along half a cosine in T_max epochs
    (Loshchilov and Hutter 2017), and rises again after."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """eta_min + (base - eta_min) · (1 + cos(π · epoch / T_max)) / 2."""
        return self.eta_min + (base - self.eta_min) * self._height(epoch)

    def following(self, now: float, group: int) -> float:
        """The same with what is above eta_min now, in the place of the initial rate; from the bottom on with the
        initial one, as nothing is above it there."""
        if self._is_initial:
            return now
        epoch = self.last_epoch
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            return now + (self.base_lrs[group] - self.eta_min) * self._height(epoch)
        return self.eta_min + (now - self.eta_min) * (self._height(epoch) / self._height(epoch - 1))

    def _height(self, epoch: int) -> float:
        return (1 + math.cos(math.pi * epoch / self.T_max)) / 2


class MultiplicativeLR(_ByFunctions):
    """The rate is multiplied by lr_lambda(epoch) at each epoch: one function, or one for each group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor],
                 last_epoch: int = -1):
        self.lr_lambdas = _for_each_group(lr_lambda, optimizer)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """The rate of the group now, times lr_lambda(epoch)."""
        now: float = self.optimizer.param_groups[group]["lr"]
        return now if self._is_initial else now * self.lr_lambdas[group](epoch)

    def resume(self, state: dict[str, Any]) -> None:
        """The rates as they were saved: there is no formula for them. Without them those of the optimizer stay."""
        self.write(state.get("_last_lr", [group["lr"] for group in self.optimizer.param_groups]))


class MultiStepLR(LRScheduler):
    """The rate is multiplied by gamma at each of the milestones."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """base · gamma^(milestones up to the epoch)."""
        return base * self.gamma ** bisect_right(self.milestones, epoch)

    def following(self, now: float, group: int) -> float:
        """now · gamma^(how often the epoch is a milestone)."""
        return now * self.gamma ** self.milestones.count(self.last_epoch)


class ConstantLR(LRScheduler):
    """The rate is multiplied by a factor for the first total_iters epochs."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1):
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """base · factor, and later base."""
        return base * self.factor if epoch < self.total_iters else base

    def following(self, now: float, group: int) -> float:
        """now · factor at first, now / factor when these epochs are over; the initial rate where that factor is 0."""
        if self.last_epoch == 0:
            return now * self.factor
        if self.last_epoch != self.total_iters:
            return now
        return now / self.factor if self.factor else self.base_lrs[group]


class ExponentialLR(LRScheduler):
    """The rate is multiplied by gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """base · gamma^epoch."""
        return base * self.gamma**epoch

    def following(self, now: float, group: int) -> float:
        """now · gamma."""
        return now if self._is_initial else now * self.gamma


class PolynomialLR(LRScheduler):
    """The rate falls to 0 in total_iters epochs, as a power of what is left."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """base · (1 - min(epoch, total) / total)^power."""
        return base * (1 - min(epoch, self.total_iters) / self.total_iters) ** self.power

    def following(self, now: float, group: int) -> float:
        """now times the power of what is left over what was left before."""
        epoch, total = self.last_epoch, self.total_iters
        if self._is_initial or epoch > total:
            return now
        return now * ((1 - epoch / total) / (1 - (epoch - 1) / total)) ** self.power
