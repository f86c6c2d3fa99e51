"""`AsyncMemoryPool`: a GPU's memory by addresses, over the pool that tensors use."""

from __future__ import annotations

from typing import Any

from genesis.cuda.devices import current_device
from genesis.ir.errors import failure
from genesis.runtime.cuda.memory_pool import pool_of


class AsyncMemoryPool:
    """Hands out aligned memory of the current GPU, and takes it back for reuse.

    Attributes:
        alignment: bytes that every address is a multiple of.
        allocated_blocks: address → the block that was handed out there.
    """

    alignment = 512

    def __init__(self) -> None:
        self.allocated_blocks: dict[int, Any] = {}

    def allocate(self, size_bytes: int) -> int:
        """The address of that many bytes, which stay until `deallocate`."""
        block = pool_of(current_device()).allocate(size_bytes)
        self.allocated_blocks[block.address] = block
        return block.address

    def deallocate(self, ptr: int) -> None:
        """Give the memory at an address back to the pool.

        Raises:
            RuntimeError: it was not handed out, or was given back.
        """
        if ptr not in self.allocated_blocks:
            raise failure("deallocate", f"no memory of this pool is at {ptr:#x}")
        pool_of(current_device()).give_back(self.allocated_blocks.pop(ptr))
