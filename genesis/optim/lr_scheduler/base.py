"""The base of all learning rate schedules."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any, ClassVar

from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.session import active, repeated
from genesis.ir.errors import failure
from genesis.ir.suggest import check_keywords
from genesis.optim.lr_scheduler.states import copied, is_like, is_plain, taken
from genesis.optim.optimizer import Optimizer
from genesis.runtime.contexts import leaving


class LRScheduler:
    """Sets every group's lr, epoch by epoch. Subclasses define `rate`, of the initial lr and the epoch, and
    `following`, of the rate that the group has, if other schedules and what the user sets are to stay in it; or
    `get_lr`, as in torch.

    >>> import genesis
    >>> optimizer = genesis.optim.SGD([genesis.ones(1, requires_grad=True)], lr=1.0)
    >>> class Halves(LRScheduler):
    ...     def get_lr(self):
    ...         return [group["lr"] / 2 if self.last_epoch else group["lr"] for group in self.optimizer.param_groups]
    >>> Halves(optimizer).step()
    >>> optimizer.param_groups[0]["lr"]
    0.5

    Args:
        optimizer: whose groups to set; their rates now are the initial ones.
        last_epoch: the epoch already done, to go on with a restored optimizer; -1 to start.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not hasattr(optimizer, "param_groups"):
            raise failure(type(self).__name__, f"{type(optimizer).__name__} is not an Optimizer", error=TypeError)
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])  # the rate of a scheduler made before stays
            elif "initial_lr" not in group:
                raise KeyError("param 'initial_lr' is not specified in param_groups"
                               f"[{number}] when resuming an optimizer")
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.begin()

    _is_initial = False
    """Whether the first rates are being set, as in torch: the groups have none of an epoch before."""

    # torch's names, which schedules of a user's own read in `get_lr`.

    _step_count = 0
    """How often the schedule has set rates, its first ones included."""

    _get_lr_called_within_step = False
    """Whether `step` asks for the rates, or somebody else."""

    def begin(self) -> None:
        """Set the rates of the epoch behind `last_epoch`, with which the schedule starts."""
        self._is_initial, self._step_count = True, 0
        try:
            self.step()
        finally:
            del self._is_initial

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """A schedule that sets nothing yet, whose `__init__` takes these options."""
        if options:
            check_keywords(cls, options)
        return super().__new__(cls)

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        if cls.__module__.startswith("genesis.") and "step" in vars(cls):
            cls.step = _at_each_call(vars(cls)["step"])  # type: ignore[method-assign]

    def rate(self, base: float, epoch: int, group: int) -> float:
        """The learning rate of a group at an epoch, from its initial one."""
        raise NotImplementedError

    def following(self, now: float, group: int) -> float:
        """The learning rate of a group at `last_epoch`, from the one that it has."""
        return self.rate(self.base_lrs[group], self.last_epoch, group)

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to the one given, whose rates do not depend on those that the groups have."""
        self._step_count += 1
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                rates = self.get_lr()
            else:
                self.last_epoch = epoch
                rates = self._rates_of_epoch()
        finally:
            del self._get_lr_called_within_step
        self.write(rates)

    def _rates_of_epoch(self) -> list[float]:
        """The rates of `last_epoch`, whatever the groups have: by the formula, or by that of a user's schedule."""
        if self._has_formula():
            return [self.rate(base, self.last_epoch, number) for number, base in enumerate(self.base_lrs)]
        closed = getattr(self, "_get_closed_form_lr", None)  # torch's name for it
        return self.get_lr() if closed is None else closed()

    def _has_formula(self) -> bool:
        return type(self).rate is not LRScheduler.rate

    def write(self, rates: Sequence[float]) -> None:
        """Set the groups' rates."""
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = lr
        self._last_lr = list(rates)

    def get_lr(self) -> list[float]:
        """The rates of `last_epoch`, from those that the groups have."""
        return [self.following(group["lr"], number) for number, group in enumerate(self.optimizer.param_groups)]

    def get_last_lr(self) -> list[float]:
        """The rates that this schedule set last."""
        return list(self._last_lr)

    # States

    required: ClassVar[tuple[str, ...]] = ("last_epoch", "base_lrs")
    """The entries that a state dict must have. Torch's have the formula's own numbers too, some by other names."""

    per_group: ClassVar[tuple[str, ...]] = ("_last_lr", "base_lrs", "max_lrs", "min_lrs", "base_momentums",
                                            "max_momentums")

    def state_dict(self) -> dict[str, Any]:
        """The epoch, the initial rates, the formula's numbers and the rates now, and what a schedule of the user's has
        besides; of functions nothing, of objects that are called for factors their attributes, as in torch."""
        return self._plain() | {name: inner.state_dict() for name, inner in self._inner().items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken, or raise and change nothing; the optimizer's rates are set anew.

        Raises:
            KeyError: an entry is missing.
            ValueError: an entry is something else than the scheduler's own, or of another number of groups.
        """
        with all_or_nothing(self):
            self.take(state_dict)

    def take(self, state: dict[str, Any]) -> None:
        """Set what is in a state dict, and the rates."""
        self.take_values(state)
        self.resume(state)

    def take_values(self, state: dict[str, Any]) -> None:
        """Set what is in a state dict."""
        own, name = self._plain(), type(self).__name__
        for missing in (entry for entry in self.required if entry not in state):
            raise KeyError(missing)
        for entry in own.keys() & state.keys():
            value = sorted(state[entry].elements()) if isinstance(state[entry], Counter) else state[entry]
            if not is_like(value, own[entry]):
                raise failure(f"{name}.load_state_dict", f"{entry} is {value!r}; expected one like {own[entry]!r}",
                              hint=f"the state_dict() of a {name}", error=ValueError)
            if entry in self.per_group and len(value) != len(self.optimizer.param_groups):
                raise failure(f"{name}.load_state_dict", f"{entry} has {len(value)} entries, the optimizer "
                              f"{len(self.optimizer.param_groups)} parameter groups", error=ValueError)
            setattr(self, entry, taken(value, own[entry]))
        for entry, inner in self._inner().items():
            if isinstance(state.get(entry), dict):
                inner.load_state_dict(state[entry])

    def resume(self, state: dict[str, Any]) -> None:
        """Set the rates that the state was taken with, or where it does not tell them those of its epoch."""
        if self._has_formula():  # it may set momenta, too
            count = self._step_count
            self.step(self.last_epoch)
            self._step_count = count  # these are rates that the state has counted
        if "_last_lr" in state:
            self.write([float(lr) for lr in state["_last_lr"]])

    def parts(self) -> Sequence[LRScheduler]:
        """The schedulers that this one is made of."""
        return ()

    def _plain(self) -> dict[str, Any]:
        """The attributes that are data: numbers, texts and lists of numbers; of a user's schedule containers, too."""
        own = not type(self).__module__.startswith("genesis.")
        return {name: copied(value) for name, value in vars(self).items()
                if isinstance(value, (Real, str))
                or (isinstance(value, list) and all(isinstance(x, Real) for x in value))
                or (own and is_plain(value))}

    def _inner(self) -> dict[str, LRScheduler]:
        """The schedules that a schedule of the user's goes on with."""
        return {name: value for name, value in vars(self).items() if isinstance(value, LRScheduler)}


def _at_each_call(step: Callable[..., None]) -> Callable[..., None]:
    """A `step` that compiled functions run at each call, captured or replayed: rates are numbers of their plans. What
    raises in it, an interrupt as well, leaves epoch and rates as they were."""
    @functools.wraps(step)
    def stepping(self: LRScheduler, *args: Any, **options: Any) -> None:
        kept: list[tuple[dict[str, Any], dict[str, Any]]] = []

        def action() -> None:
            kept[:] = _state_of(self)
            restore = leaving(*_restoring(kept))  # made now: where the stack ends there is no room for making it
            try:
                step(self, *args, **options)
            except BaseException:
                restore()
                raise
        running = active()
        notes = running is not None and not running.repeating  # not of a part that another schedule steps
        repeated(action, lambda: _restore(kept), kept.clear)
        if notes and kept:
            groups = kept[-len(self.optimizer.param_groups):]
            running.options += [(group, before, dict(group)) for group, before in groups]  # type: ignore[union-attr]
    return stepping


LRScheduler.step = _at_each_call(LRScheduler.step)  # type: ignore[method-assign]


def _state_of(scheduler: LRScheduler) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The attributes of a scheduler and of its parts, and the options of the optimizer's groups, with copies."""
    return [(target, dict(target))
            for target in (*map(vars, _with_parts(scheduler)), *scheduler.optimizer.param_groups)]


def _restoring(kept: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> list[Change]:
    return [change for target, content in kept for change in ((target.clear,), (target.update, content))]


def _restore(kept: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    at_once(changes((), _restoring(kept)))


@contextmanager
def all_or_nothing(scheduler: LRScheduler) -> Iterator[None]:
    """Whatever raises inside leaves the scheduler, its parts and the optimizer's options as they were."""
    restore = leaving(*_restoring(_state_of(scheduler)))
    try:
        yield
    except BaseException:
        restore()
        raise


def _with_parts(scheduler: LRScheduler) -> Iterator[LRScheduler]:
    yield scheduler
    for part in scheduler.parts():
        yield from _with_parts(part)
