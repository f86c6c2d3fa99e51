"""What all learning rate schedules have in common."""

from __future__ import annotations

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
                group.setdefault("initial_lr", group["lr"])  # that of a scheduler made before stays
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

    def get_lr(self) -> list[float]:
        """The rates at this epoch, by the formula."""
        return [self.rate(base, self.last_epoch, number) for number, base in enumerate(self.base_lrs)]

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
