"""Schedules made of others, and one that looks at a measure of success."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from genesis.ir.errors import failure
from genesis.optim.lr_scheduler.base import LRScheduler
from genesis.optim.lr_scheduler.cycles import for_each_group
from genesis.optim.optimizer import Optimizer


def states_of(state: dict[str, Any]) -> list[dict[str, Any]]:
    """The states of a combined schedule's parts; torch calls them "_schedulers"."""
    found: list[dict[str, Any]] = state["_schedulers" if "_schedulers" in state else "schedulers"]
    return found


def take_parts(scheduler: LRScheduler, state: dict[str, Any]) -> None:
    """Set what the state of a combined schedule says of it and of its parts, but no rates."""
    own, states = scheduler.parts(), states_of(state)
    if not isinstance(states, (list, tuple)) or len(states) != len(own):
        raise failure(f"{type(scheduler).__name__}.load_state_dict", f"the state is not of {len(own)} schedules",
                      error=ValueError, hint="the state_dict() of one that is made of the same schedules")
    scheduler.take_values(state)
    for part, its in zip(own, states, strict=True):
        if part.parts():
            take_parts(part, its)
        else:
            part.take_values(its)


def epoch_of(state: dict[str, Any]) -> Any:
    """The epoch that a state is of; torch's chained schedules leave it to their parts.

    Raises:
        KeyError: neither it nor its first part says.
    """
    if "last_epoch" in state or not states_of(state):
        return state["last_epoch"]
    return epoch_of(states_of(state)[0])


def step_back(scheduler: LRScheduler) -> None:
    """Take the first step of a schedule back, or of its parts."""
    for part in scheduler.parts():
        step_back(part)
    if not scheduler.parts():
        scheduler.last_epoch -= 1


class _Combined(LRScheduler):
    """A schedule made of others."""

    schedulers: list[LRScheduler]
    required = ("last_epoch",)

    def parts(self) -> Sequence[LRScheduler]:
        """The schedules, in their order."""
        return self.schedulers

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and the states of the schedules."""
        return {"last_epoch": self.last_epoch, "schedulers": [s.state_dict() for s in self.schedulers],
                "_last_lr": self.get_last_lr()}


class SequentialLR(_Combined):
    """One schedule after another: the next begins, at its epoch 0, at each of the milestones."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int],
                 last_epoch: int = -1):
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler to be chained, but got no scheduler.")
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ValueError("SequentialLR expects all schedulers to belong to the same optimizer")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError("Sequential Schedulers expects number of schedulers provided to be one more than the "
                             f"number of milestone points, but got number of schedulers {len(schedulers)} and the "
                             f"number of milestones to be equal to {len(milestones)}")
        self.optimizer, self.schedulers, self.milestones = optimizer, list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        self.base_lrs = list(schedulers[0].base_lrs)
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in schedulers:
            step_back(scheduler)
        first = schedulers[bisect_right(self.milestones, 0)]
        first.begin()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Move the schedule of this epoch on by one."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        number = bisect_right(self.milestones, self.last_epoch)
        begins = number > 0 and self.milestones[number - 1] == self.last_epoch
        self.schedulers[number].step(0 if begins else None)
        self._last_lr = self.schedulers[number].get_last_lr()

    def take(self, state: dict[str, Any]) -> None:
        """The epoch, then each schedule's own state; the one of this epoch sets the rates."""
        take_parts(self, state)
        current = self.schedulers[bisect_right(self.milestones, self.last_epoch)]
        current.resume(states_of(state)[self.schedulers.index(current)])


class ChainedScheduler(_Combined):
    """Schedules at the same time: each goes on from the rate that the one before has just set."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if not schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ValueError("ChainedScheduler expects all schedulers to belong to the same optimizer")
        self.optimizer, self.schedulers = optimizer, list(schedulers)
        self.base_lrs = list(schedulers[0].base_lrs)
        self.last_epoch = schedulers[0].last_epoch
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Move all on by one, or to the epoch given."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for scheduler in self.schedulers:
            scheduler.step(epoch)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def take_values(self, state: dict[str, Any]) -> None:
        """Set what is in a state dict, and the epoch of its parts where it has none of its own, as torch's."""
        super().take_values({"last_epoch": epoch_of(state), **state})

    def take(self, state: dict[str, Any]) -> None:
        """The epoch, then each schedule's own state; together they set the rates."""
        take_parts(self, state)
        self.base_lrs = list(self.schedulers[0].base_lrs)
        if "_last_lr" in state:
            self.write([float(lr) for lr in state["_last_lr"]])
        else:
            self.step(self.last_epoch)


class ReduceLROnPlateau(LRScheduler):
    """The rate is multiplied by a factor when a measure has not improved for a while.

    Args:
        optimizer: whose groups to set.
        mode: "min" if less is better, or "max".
        factor: below 1.
        patience: epochs without improvement that are waited for.
        threshold: the least improvement that counts.
        threshold_mode: "rel" to the best so far, or "abs".
        cooldown: epochs after a reduction in which none are counted.
        min_lr: the least rate, one for all groups or one each.
        eps: a smaller change is not made.

    >>> import genesis
    >>> optimizer = genesis.optim.SGD([genesis.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = ReduceLROnPlateau(optimizer, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     scheduler.step(loss)
    >>> scheduler.get_last_lr()
    [0.1]
    """

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
                 threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
                 min_lr: float | list[float] = 0, eps: float = 1e-8):
        _check_plateau(mode, factor, threshold_mode)
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lrs = for_each_group("min_lr", min_lr, optimizer)
        self.best = math.inf if mode == "min" else -math.inf
        self._last_lr = [group["lr"] for group in optimizer.param_groups]
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Look at the measure of this epoch; a tensor is computed."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _reduce_lr(self, epoch: int | None) -> None:
        """Multiply the rates by the factor: torch's name, as schedules of a user's own override it."""
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            lower = max(group["lr"] * self.factor, least)
            if group["lr"] - lower > self.eps:
                group["lr"] = lower

    @property
    def in_cooldown(self) -> bool:
        """Whether epochs without improvement are not counted now."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether a is an improvement that counts."""
        margin = -self.threshold if self.mode == "min" else self.threshold
        bound = best * (1 + margin) if self.threshold_mode == "rel" else best + margin
        return a < bound if self.mode == "min" else a > bound

    required = ("mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "eps", "min_lrs", "best",
                "num_bad_epochs", "cooldown_counter", "last_epoch")

    def take(self, state: dict[str, Any]) -> None:
        """All of it; the rates are the optimizer's own, which loads them itself."""
        self.take_values(state)
        _check_plateau(self.mode, self.factor, self.threshold_mode)


def _check_plateau(mode: str, factor: float, threshold_mode: str) -> None:
    if factor >= 1.0:
        raise ValueError("Factor should be < 1.0.")
    if mode not in ("min", "max"):
        raise ValueError(f"mode {mode} is unknown!")
    if threshold_mode not in ("rel", "abs"):
        raise ValueError(f"threshold mode {threshold_mode} is unknown!")
