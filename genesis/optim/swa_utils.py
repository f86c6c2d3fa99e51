"""Averages of weights over steps: of equal shares (Izmailov et al. 2018), or exponential; and the rate that goes to
one.

An average is a module: it has a copy of the model, whose parameters, and buffers if wanted, are averaged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, Literal

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import assign_all
from genesis.ir.types import int64
from genesis.nn.modules.channel_norm import _BatchNorm
from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import changing
from genesis.ops.conversion import copied
from genesis.ops.creation import tensor
from genesis.optim.lr_scheduler.base import LRScheduler
from genesis.optim.optimizer import Optimizer
from genesis.runtime.contexts import Switched, Temporary

__all__ = ["SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
           "update_bn"]

Average = Callable[[Tensor, Tensor, Any], Tensor]
Averages = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """Moves each average by 1 - decay of the way to the parameter."""
    _check(decay)

    @no_grad()
    def update(averages: Sequence[Tensor], parameters: Sequence[Tensor], _: Any) -> None:
        for average, parameter in zip(averages, parameters, strict=True):
            if average.is_floating_point():
                average.lerp_(parameter, 1 - decay)
            else:
                average.copy_(average * decay + parameter * (1 - decay))
    return update


def get_swa_multi_avg_fn() -> Averages:
    """Moves each average by 1 / (number + 1) of the way to the parameter: all have equal shares."""
    @no_grad()
    def update(averages: Sequence[Tensor], parameters: Sequence[Tensor], number: Any) -> None:
        for average, parameter in zip(averages, parameters, strict=True):
            average.copy_(average + (parameter - average) / (number + 1))
    return update


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """`get_ema_multi_avg_fn` for one parameter, as a new tensor."""
    _check(decay)
    return no_grad()(lambda average, parameter, number: decay * average + (1 - decay) * parameter)


def get_swa_avg_fn() -> Average:
    """`get_swa_multi_avg_fn` for one parameter, as a new tensor."""
    return no_grad()(lambda average, parameter, number: average + (parameter - average) / (number + 1))


def _check(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


class AveragedModel(Module):
    """A copy of a model with averaged parameters.

    Args:
        model: what to average.
        device: of the averages; the model's by default.
        avg_fn: (average, parameter, number averaged) → the new average; equal shares by default.
        multi_avg_fn: the same in place, for all parameters at once.
        use_buffers: average buffers, too; otherwise they are copied.

    >>> import genesis
    >>> model = genesis.nn.Linear(1, 1, bias=False)
    >>> average = AveragedModel(model)
    >>> for value in (1.0, 3.0):
    ...     _ = model.weight.data.fill_(value)
    ...     average.update_parameters(model)
    >>> average.module.weight.item(), average.n_averaged.item()
    (2.0, 2)
    """

    n_averaged: Tensor

    def __init__(self, model: Any, device: Any = None, avg_fn: Average | None = None,
                 multi_avg_fn: Averages | None = None, use_buffers: bool = False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's result."""
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Any) -> None:
        """Take the model's parameters into the average; the first time they are the average.

        All averages, the count among them, are written at once: an interrupt finds those of before, or of after.
        """
        def tensors(part: Any) -> list[Tensor]:
            return list(itertools.chain(part.parameters(), part.buffers() if self.use_buffers else ()))
        averages = [x.detach() for x in tensors(self.module)]
        current = [x.detach().to(average.device) for x, average in zip(tensors(model), averages, strict=True)]
        if int(self.n_averaged) == 0:
            new = current
        elif self.avg_fn is None:
            new = [x.clone() for x in averages]
            (self.multi_avg_fn or get_swa_multi_avg_fn())(new, current, self.n_averaged)
        else:
            new = [self.avg_fn(average, x, self.n_averaged) for average, x in zip(averages, current, strict=True)]
        if not self.use_buffers:
            averages += [x.detach() for x in self.module.buffers()]
            new += [x.detach() for x in model.buffers()]
        averages.append(self.n_averaged)
        new.append(self.n_averaged + 1)
        assign_all(averages, [copied(average, x) for average, x in zip(averages, new, strict=True)])


@no_grad()
def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Gather the running statistics of all batch norms anew, over the inputs of a loader.

    Args:
        loader: batches: inputs, or lists and tuples that begin with them.
        model: whose statistics; in its mode again afterwards.
        device: where to move the inputs.
    """
    momenta = {module: module.momentum for module in model.modules() if isinstance(module, _BatchNorm)}
    if not momenta:
        return
    was_training = model.training

    def look() -> Switched:
        return Switched([changing(), *((vars(x).__setitem__, "momentum", None) for x in momenta)],
                        [changing(), *((vars(x).__setitem__, "momentum", own) for x, own in momenta.items())])
    try:
        model.train()
        for module in momenta:
            module.reset_running_stats()
        with Temporary(look):
            for batch in loader:
                given = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(given if device is None else given.to(device))
    finally:
        model.train(was_training)


class SWALR(LRScheduler):
    """The rate goes from where it is to `swa_lr` over some epochs, and stays.

    Args:
        optimizer: whose rates.
        swa_lr: of all groups, or one each.
        anneal_epochs: how many.
        anneal_strategy: "cos" or "linear".
        last_epoch: the epoch already done.
    """

    def __init__(self, optimizer: Optimizer, swa_lr: float | Sequence[float], anneal_epochs: int = 10,
                 anneal_strategy: Literal["cos", "linear"] = "cos", last_epoch: int = -1):
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        for rate, group in zip(rates, groups, strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs, self._linear = anneal_epochs, anneal_strategy == "linear"
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: int) -> float:
        """How far the rate has gone at an epoch."""
        t = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return t if self._linear else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        """What is left of the present rates, whoever set them, and the rest of `swa_lr`."""
        epoch = self._step_count - 1
        if self.anneal_epochs == 0:
            epoch = max(1, epoch)
        gone, share = self._share(epoch - 1), self._share(epoch)
        rates = []
        for group in self.optimizer.param_groups:
            now, last = group["lr"], group["swa_lr"]
            start = last if gone == 1 else (now - gone * last) / (1 - gone)
            rates.append(last * share + start * (1 - share))
        return rates
