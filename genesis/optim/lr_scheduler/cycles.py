"""Learning rates that go up and down, some with the momentum going the other way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from genesis.optim.lr_scheduler.base import LRScheduler
from genesis.optim.optimizer import Optimizer

Each = float | list[float] | tuple[float, ...]


def for_each_group(name: str, value: Each, optimizer: Optimizer) -> list[float]:
    """One value for each group, or the same for all."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
                         f"param_groups {groups}.")
    return list(value)


def momentum_ends(optimizer: Optimizer, base_momentum: Each, max_momentum: Each) -> tuple[list[float], list[float]]:
    """The least momentum of each group, and the largest.

    Raises:
        ValueError: the optimizer has neither a momentum nor betas.
    """
    if not {"momentum", "betas"} & set(optimizer.defaults):
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return (for_each_group("base_momentum", base_momentum, optimizer),
            for_each_group("max_momentum", max_momentum, optimizer))


def set_momentum(group: dict[str, Any], value: float) -> None:
    """Adam's first beta, or the momentum."""
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CosineAnnealingWarmRestarts(LRScheduler):
    """`CosineAnnealingLR` that starts again after T_0 epochs, after T_mult times as many the next time, and so on
    (Loshchilov and Hutter 2017). `step(epoch)` takes fractions."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: float, group: int) -> float:
        """eta_min + (base - eta_min) · (1 + cos(π · done)) / 2, where done is the part of the cycle."""
        start, length = self._cycle(epoch)
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * (epoch - start) / length)) / 2


    def _cycle(self, epoch: float) -> tuple[int, int]:
        """Where the cycle of this epoch begins, and its length."""
        length, start = self.T_0, 0
        if self.T_mult == 1:
            start = int(epoch // length) * length
        while epoch >= start + length:
            start, length = start + length, length * self.T_mult
        return start, length

    @property
    def T_cur(self) -> float:
        """Epochs since the cycle began."""
        return self.last_epoch - self._cycle(self.last_epoch)[0]

    @property
    def T_i(self) -> int:
        """Epochs of this cycle."""
        return self._cycle(self.last_epoch)[1]


class CyclicLR(LRScheduler):
    """The rate goes from base_lr to max_lr and back, over and over (Smith 2017).

    Args:
        optimizer: whose groups to set.
        base_lr, max_lr: the ends, one for all groups or one each.
        step_size_up, step_size_down: steps from one end to the other; down as up by default.
        mode: what the height of cycle n is multiplied by: 1 ("triangular"), 2^-n ("triangular2"), or gamma^step
            ("exp_range").
        scale_fn: or a function for it, of the cycle from 1 or, with scale_mode="iterations", of the step.
        cycle_momentum: momentum (or Adam's first beta) goes from max_momentum to base_momentum and back.
        last_epoch: the step already done.
    """

    def __init__(self, optimizer: Optimizer, base_lr: Each, max_lr: Each, step_size_up: int = 2000,
                 step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum: Each = 0.8, max_momentum: Each = 0.9,
                 last_epoch: int = -1):
        lowest = for_each_group("base_lr", base_lr, optimizer)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, lowest, strict=True):
                group["lr"] = lr
        self.max_lrs = for_each_group("max_lr", max_lr, optimizer)
        self.up = float(step_size_up)
        self.total = self.up + (self.up if step_size_down is None else float(step_size_down))
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        scales: dict[str, Callable[[float], float]] = {
            "triangular": lambda cycle: 1.0, "triangular2": lambda cycle: 0.5 ** (cycle - 1),
            "exp_range": lambda step: gamma**step}
        self.scale = scale_fn or scales[mode]
        self.by_steps = scale_mode == "iterations" if scale_fn else mode == "exp_range"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = momentum_ends(optimizer, base_momentum, max_momentum)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lowest  # whatever the groups' first rates were, as in torch

    def height(self, epoch: int) -> float:
        """The scaled way from base to max at this step."""
        cycle = math.floor(1 + epoch / self.total)
        place, turn = 1 + epoch / self.total - cycle, self.up / self.total
        rise = place / turn if place <= turn else (place - 1) / (turn - 1)
        return rise * self.scale(epoch if self.by_steps else cycle)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """base + (max - base) · height; the momentum is set too."""
        height = self.height(epoch)
        if self.cycle_momentum:
            low, high = self.base_momentums[group], self.max_momentums[group]
            set_momentum(self.optimizer.param_groups[group], high - (high - low) * height)
        return base + (self.max_lrs[group] - base) * height


class OneCycleLR(LRScheduler):
    """A rate that goes up to max_lr, down to its start and on to nearly 0, once in all steps (Smith and Topin 2019).

    Args:
        optimizer: whose groups to set.
        max_lr: the largest rate, one for all groups or one each.
        total_steps: of the cycle, or epochs times steps_per_epoch.
        pct_start: the part of the steps that goes up.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: momentum (or Adam's first beta) goes from max_momentum to base_momentum and back.
        div_factor: max_lr over the rate at the start.
        final_div_factor: the rate at the start over that at the end.
        three_phase: down to the start's rate in as many steps as up, and only then on to the end's.
        last_epoch: the step already done.

    Raises:
        ValueError: no number of steps, or an argument out of range; from `step`, more steps than that.
    """

    def __init__(self, optimizer: Optimizer, max_lr: Each, total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
                 cycle_momentum: bool = True, base_momentum: Each = 0.85, max_momentum: Each = 0.95,
                 div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
                 last_epoch: int = -1):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.total_steps, self.anneal_strategy, self.cycle_momentum = total_steps, anneal_strategy, cycle_momentum
        up = float(pct_start * total_steps) - 1
        turns = [up, 2 * up] if three_phase else [up]
        self.ends = [*turns, float(total_steps - 1)]
        self.max_lrs = for_each_group("max_lr", max_lr, optimizer)
        self.div_factor, self.final_div_factor, self.three_phase = div_factor, final_div_factor, three_phase
        if last_epoch == -1:
            for group, most in zip(optimizer.param_groups, self.max_lrs, strict=True):
                group["lr"] = group["initial_lr"] = most / div_factor
        if cycle_momentum:
            self.base_momentums, self.max_momentums = momentum_ends(optimizer, base_momentum, max_momentum)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int, group: int) -> float:
        """A rate between those at the ends of the phase; the momentum is set too."""
        if epoch > self.total_steps:
            raise ValueError(f"Tried to step {epoch} times. The specified number of total steps is {self.total_steps}")
        most, last = self.max_lrs[group], base / self.final_div_factor
        if self.cycle_momentum:
            low, high = self.base_momentums[group], self.max_momentums[group]
            turns = [high, low, high, high] if self.three_phase else [high, low, high]
            set_momentum(self.optimizer.param_groups[group], self._between(turns, epoch))
        return self._between([base, most, base, last] if self.three_phase else [base, most, last], epoch)

    def _between(self, values: list[float], epoch: int) -> float:
        start = 0.0
        for number, end in enumerate(self.ends):
            if epoch <= end or number == len(self.ends) - 1:
                part, (a, b) = (epoch - start) / (end - start), values[number:number + 2]
                return b + (a - b) / 2 * (1 + math.cos(math.pi * part)) if self.anneal_strategy == "cos" else (
                    a + (b - a) * part)
            start = end
        raise AssertionError("the last phase has no end")
