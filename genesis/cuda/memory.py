"""GPU memory: how much there is, who holds it, and how much this process may take. Sizes are in bytes.

What tensors on GPUs show is computed before anything is counted, so that the numbers are those of the tensors that
there are; if that fails, whoever reads the value is told.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from genesis.cuda.devices import AnyDevice, is_initialized, run_pending
from genesis.ir.memos import memo_figures
from genesis.ir.suggest import suggesting
from genesis.runtime.cuda.arena import release_idle_arenas
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.memory_pool import MemoryPool, OutOfMemoryError, PoolStats, pool_of
from genesis.runtime.cuda.memory_report import blocks_of, size_text, summary, torch_stats
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.cuda.stream import current_device, device_index

__all__ = [
    "CUDAStorage", "OutOfMemoryError", "empty_cache", "get_per_process_memory_fraction", "max_memory_allocated",
    "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved",
    "memory_snapshot", "memory_stats", "memory_summary", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_memory_stats", "set_per_process_memory_fraction",
]


def memory_allocated(device: AnyDevice = None) -> int:
    """Bytes that tensors, the arena and the runtime's own buffers hold now; 0 before CUDA was used."""
    return _stats(device).allocated_bytes


def max_memory_allocated(device: AnyDevice = None) -> int:
    """The most that `memory_allocated` was since the start or `reset_peak_memory_stats`."""
    return _stats(device).peak_allocated_bytes


def memory_reserved(device: AnyDevice = None) -> int:
    """Bytes that the pool has taken from the driver."""
    return _stats(device).reserved_bytes


def max_memory_reserved(device: AnyDevice = None) -> int:
    """The most that `memory_reserved` was since the start or `reset_peak_memory_stats`."""
    return _stats(device).peak_reserved_bytes


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: AnyDevice = None) -> None:
    """Start the peaks anew at what is held now."""
    pool = _pool(device)
    if pool is not None:
        pool.reset_peaks()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def empty_cache() -> None:
    """Give memory that no tensor uses back to the driver, for other processes."""
    pool = _pool(None)
    if pool is not None:
        release_idle_arenas(pool.device)
        pool.empty_cache()


def memory_stats(device: AnyDevice = None) -> dict[str, int]:
    """The pool's numbers under torch's names, such as "allocated_bytes.all.current"; {} before CUDA was used."""
    pool = _pool(device)
    return {} if pool is None else torch_stats(pool)


def memory_summary(device: AnyDevice = None, abbreviated: bool = False) -> str:
    """A table of the numbers, of the lines that hold memory unless `abbreviated`, and of what the process remembers of
    programs, in host memory: plans and tables of answers, all of them bounded.

    >>> import genesis
    >>> "remembered in host memory, plans:" in genesis.cuda.memory_summary()
    True
    """
    pool = _pool(device)
    text = "CUDA was not used yet" if pool is None else summary(pool, abbreviated)
    return "\n".join([text, *(
        f"remembered in host memory, {name}: {found.entries} entries, about {size_text(found.nbytes)} "
        f"of at most {size_text(found.most_bytes)}" for name, found in memo_figures().items())])


def memory_snapshot(device: AnyDevice = None) -> list[dict[str, Any]]:
    """Every block of the pool, in order of address.

    Returns:
        For each a dictionary: "address", "size", "state" ("active_allocated" while somebody has it, else
        "inactive"), "line" (the line of the user's program that made what it holds, or what the runtime uses it
        for; None if it is free or unknown), "device", "segment" and "segment_size" (the driver's allocation that it
        is in), "segment_type" ("small" or "large").
    """
    pool = _pool(device)
    return [] if pool is None else [
        {"address": block.address, "size": block.size, "state": "active_allocated" if block.held else "inactive",
         "line": block.source, "device": pool.device, "segment": block.segment, "segment_size": block.segment_size,
         "segment_type": "small" if block.small else "large"} for block in blocks_of(pool)]


def mem_get_info(device: AnyDevice = None) -> tuple[int, int]:
    """Free and total bytes of the GPU, whoever uses it."""
    driver().use(device_index(device))
    return driver().mem_get_info()


def set_per_process_memory_fraction(fraction: float, device: AnyDevice = None) -> None:
    """Limit this process to that part of the GPU's memory.

    Raises:
        ValueError: the fraction is not in [0, 1].
        TypeError: it is no number.
    """
    if not isinstance(fraction, (int, float)):
        raise TypeError(f"memory fraction must be a number, not {type(fraction).__name__}")
    pool_of(device_index(device)).set_memory_fraction(fraction)


def get_per_process_memory_fraction(device: AnyDevice = None) -> float:
    """The part of the GPU's memory that this process may take."""
    return pool_of(device_index(device)).memory_fraction


def _pool(device: AnyDevice) -> MemoryPool | None:
    """The GPU's pool, with what is live computed; None before CUDA was used."""
    if not is_initialized():
        return None
    with suppress(RuntimeError):
        run_pending()
    return pool_of(current_device() if device is None else device_index(device))


def _stats(device: AnyDevice) -> PoolStats:
    pool = _pool(device)
    return PoolStats() if pool is None else pool.stats()

__getattr__ = suggesting(__name__)
