"""The session of a capture: what a function does, besides making nodes, while `genesis.compile` captures it.

Recording, random draws, gradients and optimizers report here what they do beyond making nodes,
so that a replay can do it again. None of them does anything here when no capture runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from genesis.frontend.state import state
from genesis.ir.node import Node, number, unique
from genesis.ir.ops import leaves
from genesis.ir.source import here


class Session:
    """The effects of one captured call.

    Attributes:
        writes: storages whose content was replaced, in order, and how often.
        numbers: (nodes, again): numbers that a replay asks for anew.
        grads: tensors whose `.grad` was set, with what it was before.
        entry_grads: tensors whose `.grad` was looked at before it was set, with what it was.
        freed: values whose backward let go of what it had kept.
        ended: an optimizer ended a step.
        at_end: storages that were not computed when it did, with their contents: the plain call computes them there.
        refusal: why the call cannot be replayed, or None.
        thread: the thread that runs it; what others do is none of its effects.
    """

    def __init__(self) -> None:
        self.writes: dict[Any, int] = {}
        self.numbers: list[tuple[Sequence[Node], Callable[[], Sequence[Any]]]] = []
        self.grads: dict[int, tuple[Any, Any]] = {}
        self.entry_grads: dict[int, tuple[Any, Any]] = {}
        self.freed: list[Node] = []
        self.ended = False
        self.at_end: list[tuple[Callable[[], Any], Node]] = []
        self.refusal: str | None = None
        self.thread = threading.get_ident()

    def note_grad_read(self, tensor: Any) -> None:
        """`.grad` was looked at; a replay needs the same answer unless the call itself set it before."""
        if id(tensor) not in self.grads and id(tensor) not in self.entry_grads:
            self.entry_grads[id(tensor)] = (tensor, tensor._grad)

    def note_grad_written(self, tensor: Any) -> None:
        """`.grad` is about to be set."""
        self.grads.setdefault(id(tensor), (tensor, tensor._grad))

    def refuse(self, reason: str) -> None:
        """The call does something that a replay could not do again."""
        if self.refusal is None:
            place = here()
            self.refusal = reason if place is None else f"{reason} at {place}"


class _Rewriting(threading.local):
    calls = 0


rewriting = _Rewriting()
"""How many functions run on stand-ins for values that are not there yet, as under `vmap`: nothing can be computed."""

def rebound() -> None:
    """A tensor became another one."""
    state.rebound += 1


def active() -> Session | None:
    """The session of the capture that runs in this thread, or None."""
    found = state.session
    return found if found is None or found.thread == threading.get_ident() else None


def enter(session: Session | None) -> Session | None:
    """Make this the running session; returns the one before."""
    before, state.session = state.session, session
    return before


def take_back(numbers: Iterable[Callable[[], Sequence[Any]]]) -> None:
    """Undo what asking for these numbers moved on, where they can: the step that they were for did not run."""
    for again in numbers:
        undo = getattr(again, "undo", None)
        if undo is not None:
            undo()


def live_numbers(again: Callable[[], Sequence[Any]]) -> list[Node]:
    """Operands for numbers that `again()` gives, and gives anew at every replay.

    They are equal to no other number, so that a replay can tell them from the user's.
    """
    values = again()
    session = active()
    if session is None:
        return [number(value) for value in values]
    nodes = []
    for value in values:
        model = number(value)
        nodes.append(unique(leaves.number, (), model.attrs, model.type))
    session.numbers.append((nodes, again))
    return nodes
