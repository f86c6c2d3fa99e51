"""The history of a detached tensor.

`y.detach()` shows y's memory and has no history, until it is written to with what requires grad: then that write is its
history and that of its views, and not y's, whose gradient goes on as if nothing had been written.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from genesis.frontend import session
from genesis.frontend.grad_mode import mode
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.ir.node import Node, make
from genesis.ir.ops import control


def without_history(content: Node) -> Node:
    """The value of a content that needs a gradient, of which none is taken: what was written to the memory last, and
    nothing of what gradients flow through instead. So a program that reads it does not reach what that was made of.

    before: stop_gradient(overwritten(linear(%x, …), %memory))      after: %memory
    """
    while content.op is control.overwritten:
        content = content.inputs[1]
    return make(control.stop_gradient, (content,)) if content.needs_grad else content


def note_detached(tensor: Any) -> None:
    """The tensor shows a memory without the history that this has, which is let go of when no other tensor is left
    (`Storage.forget_history`)."""
    storage = tensor.storage
    held = storage.detached_by
    if held is None:
        storage.detached_by = [weakref.ref(tensor)]
        return
    if len(held) >= FORGET_FROM and not len(held) & (len(held) - 1):
        held[:] = [one for one in held if one() is not None]
    held.append(weakref.ref(tensor))


FORGET_FROM: Final = 8
"""So many notes about one storage from which on those of tensors that died are forgotten, as often as they double."""


class Detached:
    """The way that gradients flow through a detached tensor and its views.

    Attributes:
        history: a node of the whole storage's type that is differentiated for what they read, None for no gradient.
    """

    __slots__ = ("__weakref__", "history")

    def __init__(self) -> None:
        self.history: Node | None = None

    def read(self, content: Node) -> Node:
        """The storage's content, as the detached tensor reads it."""
        if content.needs_grad:
            content = without_history(content)
        history = self.history
        if history is None or not mode.enabled:
            return content
        _refuse()
        return make(control.overwritten, (history, content))

    def keep(self, history: Node) -> None:
        """Gradients flow through what the tensor shows as through this node, of the whole storage's type."""
        self.history = history
        reference = weakref.ref(self)
        if state.session is not None and (running := session.active()) is not None:
            running.note_history(reference)
        state.histories[id(reference)] = reference
        state.tracked_writes += 1

    def replace(self, storage: Storage, written: Node, content: Node | None, writes: int,
                later: list[Storage] | None) -> bool:
        """Write to the storage through the detached tensor: `Storage.replace`, and the history is that of the write.

        What looks at the memory without being detached keeps the history that it has.
        """
        before, history = storage.node, self.history
        value = make(control.stop_gradient, (written,)) if written.needs_grad else written
        if before.needs_grad:
            while before.op is control.overwritten:
                before = before.inputs[0]
            value = make(control.overwritten, (before, value))
        if mode.enabled and written.needs_grad:
            if history is None:
                session.rebound()
            self.keep(written)
        if storage.replace(value, content, writes, later):
            return True
        self.history = history
        return False


def _refuse() -> None:
    """A replay of a compiled function knows one history of a memory."""
    if state.session is not None and (running := session.active()) is not None:
        running.refuse(session.OWN_HISTORY)


def live_histories() -> list[Node]:
    """The histories of detached tensors that somebody still holds; forgets the others."""
    found = []
    for key, reference in list(state.histories.items()):
        detached = reference()
        if detached is None or detached.history is None:
            state.histories.pop(key, None)
        else:
            found.append(detached.history)
    return found
