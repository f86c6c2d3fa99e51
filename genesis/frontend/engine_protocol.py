"""The protocol between frontend and engine, which hands itself in when it is imported (`engine/flushing.py`).

So tensors, ops and autograd can have values computed without importing what computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genesis.codegen.base import Backend
    from genesis.frontend.storage import Storage
    from genesis.ir.types import Device


class Engine:
    """The engine as the frontend sees it.

    Attributes:
        flush: computes these storages and every pending write, in one plan for each device.
        read_size: computes a storage of a number that sizes depend on, if that is done with few ops; what is written
            elsewhere may stay pending.
        materialize: computes these tensors, and those in lists of tensors.
        end_step: ends a training step: runs all pending work without waiting for a GPU. Given what says whether the
            step wrote to a storage, all of that is written, or nothing where it cannot be; other pending work stays.
        allocate: returns memory of so many bytes on a device.
        memory_of: returns the computed memory of a tensor's storage.
        locked_memory_of: the same, where the lock is held.
        backend_of: what a device's programs run on.
        let_go: is told that the gradients of a model were let go of.
        look: is told of a storage and the number of its content when `state.look_at` is passed: much may be pending.
    """

    flush: Callable[[Sequence[Storage]], None]
    read_size: Callable[[Storage], None]
    materialize: Callable[..., None]
    end_step: Callable[..., None]
    allocate: Callable[[int, Device], Any]
    memory_of: Callable[[Any], Any]
    locked_memory_of: Callable[[Any], Any]
    backend_of: Callable[[Device], Backend]
    look: Callable[[Storage, int], None]
    let_go: Callable[[], None]


engine = Engine()
"""The process's engine; its attributes are there once `genesis` is imported."""


def connect(**functions: Callable[..., Any]) -> None:
    """Take the engine's functions, by the names of `Engine`'s attributes; the engine calls this."""
    for name, function in functions.items():
        setattr(engine, name, function)
