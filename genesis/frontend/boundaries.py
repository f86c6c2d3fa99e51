"""Borders: values at which backward leaves the recorded program, does something in Python, and goes on elsewhere.

A border's value is read through a `watch` node over a `stop_gradient`, like a leaf tensor's. Backward collects the
gradients that arrive at a border and asks it for the gradients of what it was made from
(`genesis.autograd.backward_engine`).
Moves between devices and a user's functions are borders. A hook is none: it belongs to a node, where backward stops.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, crossings, leaf_numbers, wrap
from genesis.ir.errors import failure
from genesis.ir.node import Node, make
from genesis.ir.ops import control

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

Gradients = list[tuple["Tensor", "Tensor"]]
"""(tensor, the gradient that backward goes on with there)."""


class Border:
    """What is between values and what they were made from.

    Attributes:
        outputs: how many values it stands in front of.
        origins: what they were made from, None for what gets no gradient.
    """

    outputs = 1
    origins: Sequence[Any] = ()

    @property
    def holds_values(self) -> bool:
        """Does it keep values of the forward?"""
        return False

    def pull(self, gradients: Sequence[Tensor | None]) -> Gradients:
        """From the outputs' gradients, None for those that nothing arrived at, to what was behind."""
        raise NotImplementedError


class Moved(Border):
    """A copy on another device."""

    def __init__(self, origin: Tensor):
        self.origins = (origin,)

    def pull(self, gradients: Sequence[Tensor | None]) -> Gradients:
        """The gradient, moved back."""
        (found,), (origin,) = gradients, self.origins
        assert found is not None
        return [(origin, found.to(origin.device))]


class Hooks(dict[int, Callable[[Any], Any]]):
    """The user's functions that a gradient goes through, in the order in which they were registered."""

    def run(self, gradient: Any) -> Any:
        """The gradient that they leave; one that returns None keeps it.

        Raises:
            TypeError, RuntimeError: one returns something else than a tensor, or one of another shape, dtype or device.
        """
        for hook in list(self.values()):
            changed = hook(gradient)
            if changed is None:
                continue
            name = getattr(hook, "__name__", type(hook).__name__)
            if not isinstance(changed, TensorBase):
                raise failure("hook", f"expected Tensor, but hook '{name}' returned '{type(changed).__name__}'",
                              error=TypeError)
            before, after = ((x.type.dtype, x.type.device) for x in (gradient, changed))
            if before != after:
                raise failure("hook", f"hook '{name}' has changed the type of value (was {before}, got {after})",
                              [("before", gradient), ("after", changed)])
            if changed.type.shape != gradient.type.shape:
                raise failure("hook", f"hook '{name}' has changed the size of value",
                              [("before", gradient), ("after", changed)])
            gradient = changed
        return gradient


def put_before(border: Border, output: int, value: Node) -> Node:
    """The value as it is read from now on: backward stops here and asks the border."""
    number = next(leaf_numbers)
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
