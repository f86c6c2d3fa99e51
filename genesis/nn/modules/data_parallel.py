"""`DataParallel` as a wrapper: the module on one device, under torch's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.nn.modules.module import Module

__all__ = ["DataParallel"]


class DataParallel(Module):
    """Runs a module on one device; its parameters are under `module.`, as torch's.

    Batches are not spread over GPUs: one process a GPU is how several are used. With one GPU, or none, torch's does
    the same.

    Args:
        module: what to run.
        device_ids: at most one device; None for the one that the module is on.
        output_device, dim: accepted for torch's sake.

    Raises:
        ValueError: several devices.

    >>> import genesis
    >>> model = DataParallel(genesis.nn.Linear(2, 1))
    >>> model(genesis.ones(3, 2)).shape, list(model.state_dict())
    (genesis.Size([3, 1]), ['module.weight', 'module.bias'])
    """

    def __init__(self, module: Any, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0):
        super().__init__()
        if device_ids is not None and len(set(device_ids)) > 1:
            raise ValueError(f"DataParallel runs on one device, not on {list(device_ids)}; "
                             "start a process for each GPU")
        self.module, self.device_ids, self.output_device, self.dim = module, device_ids, output_device, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        return self.module(*inputs, **kwargs)
