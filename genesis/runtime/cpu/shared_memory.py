"""Host memory that several processes map: torch's own, so that its way of handing it over is ours.

torch makes a file without a name, or with one (`torch.multiprocessing.set_sharing_strategy`), maps it, and tells
`multiprocessing` how a pickle for another process takes it along; the last process that maps it frees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.runtime.cpu.storage import CPUStorage
from genesis.runtime.host_bytes import address_of

if TYPE_CHECKING:
    import torch


class SharedMemory(CPUStorage):
    """A block of host memory that processes which are forked, or are sent it, read and write as well.

    Attributes:
        block: torch's tensor uint8[nbytes] over it, which another process is sent.

    >>> import torch
    >>> memory = SharedMemory(torch.zeros(8, dtype=torch.uint8).share_memory_())
    >>> memory.nbytes, memory.block.is_shared()
    (8, True)
    """

    __slots__ = ("block",)

    def __init__(self, block: torch.Tensor):
        import torch.multiprocessing  # noqa: F401  it tells `multiprocessing` how a block is sent
        self.block = block
        self._bytes = block.numpy()
        self._ptr = address_of(self._bytes)
        self.nbytes = block.numel()
        self.tensor = self.shown = None


def shared_copy(memory: CPUStorage) -> SharedMemory:
    """New memory with the same content that other processes can be sent.

    Raises:
        RuntimeError: the system has no room for it, or lets the process open no more files.
    """
    import torch
    copy = SharedMemory(torch.empty(memory.nbytes, dtype=torch.uint8, device="cpu").share_memory_())
    copy.bytes[:] = memory.bytes
    return copy
