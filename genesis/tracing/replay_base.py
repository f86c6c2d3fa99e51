"""What a replay is, and what both kinds of it have: the result's structure, slots, and leaf tensors without hooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from types import CodeType
from typing import Any, Self

from genesis.frontend.session import Session
from genesis.frontend.storage import Storage
from genesis.tracing.leaf_hooks import LeafHooks
from genesis.tracing.results import Result, reads
from genesis.tracing.slots import Slots


class Replay(ABC):
    """A captured call that can be done again.

    Args:
        effects: what the captured call did.
        shape: the structure of its result.
        tensors: its arguments that are tensors.
        slots: the places that it writes to.

    Attributes:
        storages: the storages that it reads and writes besides its arguments.
        entry_gradients: (tensor, gradient or None) of those that have to have the very gradients of the captured call.
    """

    storages: frozenset[Storage]
    entry_gradients: list[tuple[Any, Any]]

    def __init__(self, effects: Session, shape: Result, tensors: Sequence[Any], slots: Slots | None):
        self._shape, self._slots = shape, slots
        self._hooks = LeafHooks(effects, tensors)
        self.entry_gradients = list(effects.entry_grads.values())

    @property
    def reads(self) -> bool:
        """Whether the result holds numbers that are read from tensors."""
        return reads(self._shape.tree)

    @property
    def slots(self) -> Slots | None:
        """The places that it writes to, with what it puts there."""
        return self._slots

    @property
    @abstractmethod
    def writes_arguments(self) -> bool:
        """Whether it writes to tensors among its arguments."""

    @abstractmethod
    def share_numbers(self, codes: Collection[CodeType]) -> None:
        """Take numbers that stand in this code, the user's that ran, once for many uses, where that is less work."""

    @property
    def finds_gradients(self) -> bool:
        """Whether the tensors whose gradients it looks at have those of the captured call."""
        return all(x._grad is grad for x, grad in self.entry_gradients)

    @property
    @abstractmethod
    def updated(self) -> list[Storage]:
        """The storages that it writes to, but for arguments'."""

    @property
    @abstractmethod
    def changes_state(self) -> bool:
        """Whether it writes to what stays, or draws random numbers: a second run of the function leaves traces."""

    @abstractmethod
    def ready(self, tensors: Sequence[Any]) -> bool:
        """True if gradients and optimizers are as they were at the captured call's start."""

    @abstractmethod
    def run(self, tensors: Sequence[Any]) -> Any:
        """Do the call again on these tensor arguments; returns what the function would."""

    @abstractmethod
    def same_as(self, other: Any) -> bool:
        """Whether another replay does exactly the same."""

    def _returned(self, made: Sequence[Any]) -> Any:
        """What the function returns, of what a call made; puts the rest into the slots."""
        return self._shape.value(made) if self._slots is None else self._slots.result(self._shape, made)

    def _of_another_call(self, shape: Result | None = None) -> Self:
        """A copy, for a call whose results have this structure, or the same one."""
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__)  # `copy` takes five times as long, of a call's 50 µs
        if shape is not None:
            found._shape = shape
            found._slots = None if self._slots is None else self._slots.filled(shape)
        return found
