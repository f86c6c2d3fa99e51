"""Borders: values at which backward leaves the recorded program, does something in Python, and goes on elsewhere.

A border's value is read through a `watch` node over a `stop_gradient`, like a leaf tensor's. Backward collects the
gradients that arrive at a border, latest borders first, so that each gets all that comes from what was made of it, and
asks it for the gradients of what it was made from. Moves between devices, hooks and a user's functions are borders.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from genesis.ir.node import Node, make
from genesis.ir.ops import control
from genesis.recording import crossings, leaf_numbers, wrap

if TYPE_CHECKING:
    from genesis.tensor import Tensor

Gradients = list[tuple["Tensor", "Tensor"]]
"""(tensor, the gradient that backward goes on with there)."""


class Border:
    """What is between values and what they were made from.

    Attributes:
        outputs: how many values it stands in front of.
        latest: a number that grows with time.
    """

    outputs = 1
    latest = 0

    def pull(self, gradients: Sequence[Tensor | None]) -> Gradients:
        """From the outputs' gradients, None for those that nothing arrived at, to what was behind."""
        raise NotImplementedError


class Moved(Border):
    """A copy on another device."""

    def __init__(self, origin: Tensor):
        self.origin = origin

    def pull(self, gradients: Sequence[Tensor | None]) -> Gradients:
        """The gradient, moved back."""
        (found,) = gradients
        assert found is not None
        return [(self.origin, found.to(self.origin.device))]


class Hooked(Border):
    """A value whose gradient goes through the user's functions."""

    def __init__(self, origin: Tensor):
        self.origin = origin
        self.hooks: dict[int, Callable[[Any], Any]] = {}
        self.keepers: dict[int, Callable[[Any], Any]] = {}  # see what the hooks leave

    def pull(self, gradients: Sequence[Tensor | None]) -> Gradients:
        """The gradient that the hooks leave."""
        found = run_hooks(self.hooks, gradients[0])
        run_hooks(self.keepers, found)
        return [(self.origin, found)]


def run_hooks(hooks: dict[int, Callable[[Any], Any]], gradient: Any) -> Any:
    """The gradient after every hook; one that returns None keeps it."""
    for hook in list(hooks.values()):
        changed = hook(gradient)
        if changed is not None:
            gradient = changed
    return gradient


def put_before(border: Border, output: int, value: Node) -> Node:
    """The value as it is read from now on: backward stops here and asks the border."""
    number = next(leaf_numbers)
    border.latest = max(border.latest, number)
    node = make(control.watch, (make(control.stop_gradient, (value,)) if value.needs_grad else value,), (number,))
    crossings[number] = (border, output)
    weakref.finalize(node, crossings.pop, number, None)
    return node


def stand_before(tensor: Any, border: Border, output: int = 0) -> None:
    """Let the tensor's content be read through the border."""
    storage = tensor.storage
    if tensor.part is not None:  # a copy: others look at the rest of that storage
        fresh = wrap(tensor.part.read(storage.node))
        tensor.storage, tensor.part = fresh.storage, None
        storage = tensor.storage
    node = put_before(border, output, storage.node)
    if storage.cell is not None and storage.node.buffer is storage.cell:
        node.buffer = storage.cell
        storage.settle(storage.cell, node)
    else:
        storage.write(node)
    tensor.leaf, tensor.detached, tensor.is_view = None, False, False


class RemovableHandle:
    """What registering a hook returns: `remove()` takes it away; as a context it does so at the end."""

    def __init__(self, hooks: dict[int, Any], hook: Any):
        self._hooks, self.id = hooks, next(leaf_numbers)
        hooks[self.id] = hook

    def remove(self) -> None:
        """Take the hook away."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()
