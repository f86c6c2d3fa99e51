"""The time of one kernel on its GPU, by events around each of some launches, with nothing of its operands in the L2."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Final

import numpy as np

from genesis.ir.types import TensorType
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.driver import StreamHandle
from genesis.runtime.cuda.executor import CudaExecutor
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.cuda.stream import current_stream
from genesis.runtime.plan import Plan

WARM: Final = 2
"""Launches before those that count."""

ROUNDS: Final = 15
"""Launches of which the median counts."""

PATTERN: Final = 1 << 16
"""Elements of the random numbers that operands are filled with, again and again."""


ONES: Final[dict[str, bool | int | float]] = {"bool": True, "int": 1, "float": 1.0}
"""What numbers of the program are, by the kind of their type."""


def microseconds(plan: Plan) -> float:
    """The median time of a plan's only launch.

    Its operands are memory of its own: floating-point ones have random numbers, as zeros take less power and so less
    time, all others zeros, which are indices of something wherever there is anything.

    Raises:
        OutOfMemoryError: there is no room for the operands.
        RuntimeError: the kernel cannot be loaded or started.
    """
    index = plan.device.index
    gpu, stream = driver(), current_stream(index).handle
    gpu.use(index)
    memories = [_filled(type, stream) for type in plan.inputs]
    executor = CudaExecutor(plan, invalidates=False)
    executor.run(memories, [ONES[type.dtype.kind] for type in plan.numbers])
    (_, start), = executor.launches()
    flush = CUDAStorage(2 * max(gpu.properties(index).L2_cache_size, 1 << 20), plan.device)
    found = [_once(start, flush, stream) for _ in range(WARM + ROUNDS)][WARM:]
    executor.release()
    return 1e3 * median(found)


def _once(start: Callable[[StreamHandle], object], flush: CUDAStorage, stream: StreamHandle) -> float:
    """Milliseconds of a launch after other memory went through the L2."""
    gpu = driver()
    begin, end = gpu.create_event(True), gpu.create_event(True)
    try:
        gpu.fill(flush.ptr, 0, flush.nbytes, stream)
        gpu.record_event(begin, stream)
        start(stream)
        gpu.record_event(end, stream)
        gpu.synchronize_event(end)
        return gpu.elapsed_ms(begin, end)
    finally:
        gpu.destroy_event(begin)
        gpu.destroy_event(end)


def _filled(type: TensorType, stream: StreamHandle) -> CUDAStorage:
    """Memory for a value of this type."""
    gpu, memory = driver(), CUDAStorage(type.nbytes, type.device, "config.tune")
    if not memory.nbytes:
        return memory
    if type.dtype.kind != "float":
        gpu.fill(memory.ptr, 0, memory.nbytes, stream)
        return memory
    pattern = _pattern(type.dtype.name)
    done = min(pattern.nbytes, memory.nbytes)
    gpu.copy_to_device(memory.ptr, pattern.ctypes.data, done, stream)
    while done < memory.nbytes:
        more = min(done, memory.nbytes - done)
        gpu.copy(memory.ptr + done, memory.ptr, more, stream)
        done += more
    return memory


def _pattern(dtype: str) -> np.ndarray:
    """Random numbers as a floating-point type has them."""
    numbers = np.random.default_rng(0).standard_normal(PATTERN).astype(np.float32)
    if dtype == "bfloat16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16)
    return numbers.astype(dtype if dtype in ("float16", "float64") else np.float32)
