"""`genesis.accelerator`: the GPUs, whatever their kind; without one, functions that need it say so.

In: which GPU is meant. Out: what `genesis.cuda` says of it.

>>> import genesis
>>> genesis.accelerator.is_available() == genesis.cuda.is_available()
True
"""

from __future__ import annotations

from typing import Any

from genesis import cuda as _cuda
from genesis.cuda import current_device as current_device_index
from genesis.cuda import (
    current_stream,
    device_count,
    empty_cache,
    get_device_capability,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)
from genesis.cuda import (
    device as _on_device,
)
from genesis.cuda import mem_get_info as get_memory_info
from genesis.cuda import set_device as set_device_index
from genesis.ir.suggest import suggesting
from genesis.ir.types import Device

device_index = _on_device
current_device_idx, set_device_idx = current_device_index, set_device_index

__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count",
           "device_index", "empty_cache", "get_device_capability", "get_memory_info", "is_available",
           "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
           "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream", "synchronize"]


def current_accelerator(check_available: bool = False) -> Any:
    """The device "cuda", or None where there is no GPU.

    >>> current_accelerator(check_available=True) is None or is_available()
    True
    """
    return Device("cuda") if _cuda.is_available() else None


__getattr__ = suggesting(__name__)
