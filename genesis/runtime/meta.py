"""The "meta" device: tensors have shapes and dtypes and no elements. Programs on it are planned, and nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from genesis.ir.types import Device

if TYPE_CHECKING:
    import numpy as np

    from genesis.runtime.plan import Plan


class MetaMemory:
    """Memory of a size, without content.

    >>> memory = MetaMemory(8, None)
    >>> memory.copy_to_host(None)
    Traceback (most recent call last):
    NotImplementedError: Cannot copy out of meta tensor; no data!
      try: module.to_empty(device=…) for memory, and then values
    """

    def __init__(self, nbytes: int, device: Device | None):
        self.nbytes, self.device = nbytes, device

    def copy_from_host(self, buffer: np.ndarray) -> None:
        """Nothing is kept."""

    def copy_to_host(self, buffer: np.ndarray | None) -> None:
        """There is nothing to copy.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("Cannot copy out of meta tensor; no data!\n"
                                  "  try: module.to_empty(device=…) for memory, and then values")

    def clone(self) -> MetaMemory:
        """Another of so many bytes, which are not there either."""
        return MetaMemory(self.nbytes, self.device)


class MetaExecutor:
    """Gives the outputs of a plan memory."""

    def __init__(self, plan: Plan):
        self._outputs = plan.outputs

    def run(self, memories: Sequence[MetaMemory], numbers: Sequence[bool | int | float]) -> list[MetaMemory]:
        """Memory for each output."""
        return [MetaMemory(x.nbytes, x.device) for x in self._outputs]
