"""Kernels loaded onto a GPU, each cubin once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.cuda.driver import KernelHandle
from genesis.runtime.cuda.memory_pool import pool_of
from genesis.runtime.plan import KernelImage, Launch

SHARED_BYTES_WITHOUT_PERMISSION: Final = 48 << 10
"""Bytes of dynamic shared memory up to which CUDA launches a kernel without `allow_shared_memory`."""


@cached_per_driver
def _loaded(device: int) -> dict[bytes, KernelHandle]:
    return {}


def load(image: KernelImage, device: int) -> KernelHandle:
    """The driver's handle of a kernel on GPU number `device`. Equal cubins are loaded once.

    Raises:
        DriverError: the cubin is not for this GPU, or asks for more shared memory than it has.
        DriverOutOfMemory: there is no memory for the code, even after the pool gave up its cache.
    """
    loaded = _loaded(device)
    key = image.digest
    kernel = loaded.get(key)
    if kernel is None:
        gpu = driver()
        gpu.use(device)
        kernel = pool_of(device).reclaiming(lambda: gpu.load_kernel(image))
        if image.shared_bytes > SHARED_BYTES_WITHOUT_PERMISSION:
            gpu.allow_shared_memory(kernel, image.shared_bytes)
        loaded[key] = kernel
    return kernel


SHORT_BYTES: Final = 32 << 20
"""Bytes that kernels which read early move, in the mean, up to which they leave others shared memory: 8 µs of an
H200's. Qwen3-0.6B's move 6 MB, and a token at 4,096 of context takes 0.95 of the time so. Those of an 8B shape move
80, and their vectors of 28 KB would hardly fit the caches that are left (0.72 of the copy rate; 0.83 where CUDA
chose)."""


def load_together(launches: Iterable[Launch], device: int) -> Mapping[int, KernelHandle]:
    """The handles of a plan's kernels, by the ids of their images. Where short ones read early, those that run beside
    others leave them shared memory: there they overlap by design. In other plans CUDA chooses."""
    launches = list(launches)
    found = {id(launch.kernel): launch.kernel for launch in launches}
    handles = {number: load(image, device) for number, image in found.items()}
    early = [launch.moves for launch in launches if launch.kernel.overlap.reads_before_it_waits]
    if early and sum(early) <= SHORT_BYTES * len(early):
        gpu = driver()
        for number, image in found.items():
            if image.shares_multiprocessors:
                gpu.prefer_shared_memory(handles[number])
    return handles
