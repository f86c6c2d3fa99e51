"""A state's tensors on their way to the disk, while the program trains on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from genesis import Tensor
from genesis.engine import memory_of
from genesis.ir.types import Device
from genesis.utils.serialization import elements

if TYPE_CHECKING:
    import numpy as np

    from genesis.runtime.cuda.host_copies import HostCopies


def reader(tensors: Iterable[Tensor]) -> Callable[[Tensor], np.ndarray]:
    """What gives the elements of these tensors as they are now, in any thread, in row-major order.

    A tensor on a GPU is copied beside the work that the GPU gets meanwhile. Nobody writes to the tensors from now on.

    Args:
        tensors: each has a memory of its own, in row-major order.
    """
    memories: dict[int, Any] = {id(x): memory_of(x) for x in tensors if x.is_cuda}
    copies: dict[Device, HostCopies] = {}
    if memories:
        from genesis.runtime.cuda.host_copies import HostCopies
        copies = {device: HostCopies(device) for device in {memory.device for memory in memories.values()}}

    def read(tensor: Tensor) -> np.ndarray:
        if not tensor.is_cuda:
            return elements(tensor)
        memory, spec = memories[id(tensor)], tensor.spec
        return copies[memory.device].bytes_of(memory).view(spec.dtype.numpy).reshape(spec.shape)
    return read
