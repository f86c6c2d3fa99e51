"""Autograd boundaries: values at which backward leaves the recorded program, runs Python, and goes on elsewhere.

A boundary's value is read through a `watch` node over a `stop_gradient`, like a leaf tensor's. Backward collects the
gradients that arrive at a boundary and asks it for the gradients of what it was made from
(`genesis.autograd.backward_engine`).
Moves between devices and a user's functions are boundaries. A hook is not: it belongs to a node, where backward stops.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, leaf_numbers, wrap
from genesis.frontend.state import state
from genesis.ir.errors import failure
from genesis.ir.node import Node, make
from genesis.ir.ops import control

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

Gradients = list[tuple["Tensor", "Tensor"]]
"""(tensor, the gradient that backward goes on with there)."""


class Renewal:
    """Values of a forward that nothing keeps for a backward: equal ones are made when it comes there."""

    def renew(self) -> list[tuple[Node, Node]]:
        """Record the other values: (value that the forward read, the one that gradients read instead)."""
        raise NotImplementedError


class Boundary:
    """Stands between values (its outputs) and the tensors that they were made from (its origins).

    Attributes:
        outputs: how many values are read through it.
        origins: the tensors that they were made from; None for one that gets no gradient.
        records: what makes its gradients only records ops, the same each time: `genesis.compile` may do these again.
        early: it is asked as soon as no other gradient can reach it, before values that were computed later.
        renewal: what backward has to make anew before it reads the outputs.
        ctx: an object whose attributes only its gradients read, unless somebody else holds it; None for none.
        owns_origins: they are tensors over values that it has made for itself: who holds none of them cannot come to
            their storages in another way.
    """

    outputs = 1
    records = False
    early = False
    owns_origins = False
    ctx: Any = None
    renewal: Renewal | None = None
    origins: Sequence[Any] = ()

    @property
    def saved(self) -> list[Tensor]:
        """The tensors of the forward that it keeps for its gradients, and reads only there."""
        return []

    @property
    def holds_values(self) -> bool:
        """Whether it keeps values of the forward, which a backward releases."""
        return False

    def pull(self, gradients: Sequence[Tensor | None]) -> Gradients:
        """The origins' gradients, given the outputs': None for an output that no gradient arrived at."""
        raise NotImplementedError


class Moved(Boundary):
    """The boundary of a copy on another device."""

    def __init__(self, origin: Tensor):
        self.origins = (origin,)

    def pull(self, gradients: Sequence[Tensor | None]) -> Gradients:
        """The gradient, moved back."""
        (found,), (origin,) = gradients, self.origins
        assert found is not None
        return [(origin, found.to(origin.device))]


class Hooks(dict[int, Callable[[Any], Any]]):
    """The user's functions that a gradient goes through, in the order of their registration."""

    def run(self, gradient: Any) -> Any:
        """The gradient that the hooks make of this one; a hook that returns None leaves it as it is.

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
            before, after = ((x.spec.dtype, x.spec.device) for x in (gradient, changed))
            if before != after:
                raise failure("hook", f"hook '{name}' has changed the type of value (was {before}, got {after})",
                              [("before", gradient), ("after", changed)])
            if changed.spec.shape != gradient.spec.shape:
                raise failure("hook", f"hook '{name}' has changed the size of value",
                              [("before", gradient), ("after", changed)])
            gradient = changed
        return gradient


class Renewing(Hooks):
    """The hooks of a value at which backward begins to need what `renewals` make."""

    def __init__(self, renewals: Sequence[Renewal]):
        super().__init__()
        self.renewals = tuple(renewals)


def read_through(boundary: Boundary, output: int, value: Node) -> Node:
    """A node of the same value, which is read in its place from now on: backward stops there and asks the boundary."""
    number = next(leaf_numbers)
    node = make(control.watch, (make(control.stop_gradient, (value,)) if value.needs_grad else value,), (number,))
    node.boundary = (boundary, output)
    # One call of C takes the entry away when the node ends: an interrupt in a callback of Python would be forgotten.
    state.crossings[number] = weakref.ref(node, MethodType(state.crossings.pop, number))
    return node


def insert_boundary(tensor: Any, boundary: Boundary, output: int = 0) -> None:
    """Make the tensor's content be read through the boundary from now on."""
    storage = tensor.storage
    if tensor.part is not None:  # the part is copied: other tensors show the rest of that storage
        fresh = wrap(tensor.part.read(storage.node))
        tensor.storage, tensor.part = fresh.storage, None
        storage = tensor.storage
    node = read_through(boundary, output, storage.node)
    if storage.cell is not None and storage.node.buffer is storage.cell:
        node.buffer = storage.cell
        storage.settle(storage.cell, node)
    else:
        storage.write(node)
    tensor.leaf, tensor.detached, tensor.is_view = None, None, False


class RemovableHandle:
    """The handle of a registered hook: `remove()` takes the hook away, and a context of it does so at its end."""

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
