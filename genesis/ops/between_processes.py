"""Memory between processes: a tensor's memory on the CPU moves to where others that are forked, or sent it, see it.

Such a storage counts as shared with the outside (`Outside.between_processes`): reading it computes at once, and a write
is in memory before the call returns, of the elements that are written alone.
"""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from genesis.frontend.engine_protocol import engine
from genesis.frontend.state import lock
from genesis.frontend.storage import Cell, Storage
from genesis.ir.types import TensorType
from genesis.ops.copying import reduce_storage
from genesis.runtime.cpu.shared_memory import SharedMemory, shared_copy

if TYPE_CHECKING:
    import torch

    from genesis.frontend.tensor import Tensor


def move(tensor: Tensor) -> None:
    """Move the memory below a CPU tensor to where other processes see it; nothing where it is there. Computes it."""
    storage = tensor.storage
    with lock:
        memory = engine.memory_of(tensor)
        if not isinstance(memory, SharedMemory):
            storage.move(shared_copy(memory))
    ForkingPickler.register(Storage, _reduced)


def _reduced(storage: Storage) -> tuple[Any, ...]:
    """What another process is sent of a storage: its memory if that is shared, else a copy of its content."""
    memory = None if storage.cell is None else storage.cell.memory
    if not isinstance(memory, SharedMemory):
        return reduce_storage(storage)
    return _mapped, (storage.type, memory.block)


def _mapped(type: TensorType, block: torch.Tensor) -> Storage:
    """The storage over memory that another process has sent."""
    memory = SharedMemory(block)
    storage = Storage(type, None, Cell(memory))
    storage.share(memory, between_processes=True)
    ForkingPickler.register(Storage, _reduced)
    return storage
