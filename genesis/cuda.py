"""`genesis.cuda`: GPUs, streams, events and memory, under torch.cuda's names.

A GPU can be given as a `Device`, a number, "cuda" or "cuda:1"; None is the current one. Sizes are in bytes.
Importing this needs no GPU; every function but `is_available` and `device_count` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from genesis.ir.types import Device
from genesis.runtime import cuda_stream
from genesis.runtime.cuda_driver import before_synchronize, driver
from genesis.runtime.cuda_stream import Event, Stream, device_index, set_current_stream
from genesis.runtime.driver import DeviceProperties
from genesis.runtime.memory_pool import OutOfMemoryError, pool_of

__all__ = [
    "DeviceProperties", "Event", "OutOfMemoryError", "Stream", "current_device", "current_stream", "device",
    "device_count", "empty_cache", "get_device_capability", "get_device_name", "get_device_properties", "is_available",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached",
    "memory_reserved", "memory_snapshot", "memory_stats", "reset_peak_memory_stats", "set_device",
    "set_per_process_memory_fraction",
    "set_stream", "stream", "synchronize",
]

AnyDevice = Device | str | int | None


def is_available() -> bool:
    """Whether there is a GPU to compute on. Never raises."""
    return device_count() > 0


def device_count() -> int:
    """How many GPUs this process sees; 0 without a driver or without cuda-python."""
    try:
        return driver().device_count()
    except RuntimeError:
        return 0


def current_device() -> int:
    """The number of the GPU that "cuda" means."""
    driver()
    return cuda_stream.current_device()


def set_device(device: AnyDevice) -> None:
    """Let "cuda" mean that GPU from now on."""
    cuda_stream.set_current_device(device_index(device))


class device:
    """Let "cuda" mean that GPU inside a `with` block.

    >>> with genesis.cuda.device(1): ...    # doctest: +SKIP
    """

    def __init__(self, device: AnyDevice):
        self.index = device_index(device)

    def __enter__(self) -> None:
        self._before = current_device()
        set_device(self.index)

    def __exit__(self, *_: object) -> None:
        set_device(self._before)


def get_device_properties(device: AnyDevice = None) -> DeviceProperties:
    """Name, compute capability (major, minor), total_memory, multi_processor_count."""
    return driver().properties(device_index(device))


def get_device_name(device: AnyDevice = None) -> str:
    """As the driver calls it: "NVIDIA H200"."""
    return get_device_properties(device).name


def get_device_capability(device: AnyDevice = None) -> tuple[int, int]:
    """Compute capability: (9, 0) for an H200."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def synchronize(device: AnyDevice = None) -> None:
    """Run what is pending, and wait until the GPU has done all it was given."""
    index = device_index(device)
    _flush()
    driver().use(index)
    driver().synchronize()


def current_stream(device: AnyDevice = None) -> Stream:
    """The stream that work of the GPU goes to."""
    return cuda_stream.current_stream(device_index(device))


def set_stream(stream: Stream) -> None:
    """Let later work go to `stream`, after what is pending and all earlier work."""
    _flush()
    set_current_stream(stream)


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Let work recorded inside a `with` block go to `stream`; None changes nothing.

    Streams are ordered: work inside starts after earlier work, and later work after it.
    """
    if stream is None:
        yield
        return
    _flush()
    before = set_current_stream(stream)
    try:
        yield
        _flush()
    finally:
        set_current_stream(before)


def empty_cache() -> None:
    """Give memory that no tensor uses back to the driver, for other processes."""
    pool_of(current_device()).empty_cache()


def memory_allocated(device: AnyDevice = None) -> int:
    """Bytes that tensors, the arena and the runtime's own buffers hold now."""
    return pool_of(device_index(device)).stats().allocated_bytes


def max_memory_allocated(device: AnyDevice = None) -> int:
    """The most that `memory_allocated` was since the start or `reset_peak_memory_stats`."""
    return pool_of(device_index(device)).stats().peak_allocated_bytes


def memory_reserved(device: AnyDevice = None) -> int:
    """Bytes that the pool has taken from the driver."""
    return pool_of(device_index(device)).stats().reserved_bytes


def max_memory_reserved(device: AnyDevice = None) -> int:
    """The most that `memory_reserved` was since the start or `reset_peak_memory_stats`."""
    return pool_of(device_index(device)).stats().peak_reserved_bytes


memory_cached = memory_reserved


def reset_peak_memory_stats(device: AnyDevice = None) -> None:
    """Let the peaks start from what is held now."""
    pool_of(device_index(device)).reset_peaks()


def memory_stats(device: AnyDevice = None) -> dict[str, int]:
    """All numbers of the pool; the names are `genesis.runtime.memory_pool.PoolStats`'s."""
    return asdict(pool_of(device_index(device)).stats())


def memory_snapshot(device: AnyDevice = None) -> list[dict[str, Any]]:
    """Every segment of the pool with its blocks, in order of address."""
    return pool_of(device_index(device)).snapshot()


def mem_get_info(device: AnyDevice = None) -> tuple[int, int]:
    """Free and total bytes of the GPU, whoever uses it."""
    driver().use(device_index(device))
    return driver().mem_get_info()


def set_per_process_memory_fraction(fraction: float, device: AnyDevice = None) -> None:
    """Let this process take at most that part of the GPU's memory.

    Raises:
        ValueError: the fraction is not in [0, 1].
    """
    pool_of(device_index(device)).set_memory_fraction(fraction)


def _flush() -> None:
    for flush in before_synchronize:
        flush()
