"""Kernels loaded onto a GPU, each cubin once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.cuda.driver import KernelHandle
from genesis.runtime.cuda.memory_pool import pool_of
from genesis.runtime.plan import KernelImage

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


def load_together(images: Iterable[KernelImage], device: int) -> Mapping[int, KernelHandle]:
    """The handles of a plan's kernels, by the ids of their images. Where one reads early, those that run beside others
    leave them shared memory: there they overlap by design. In other plans CUDA chooses."""
    found = {id(image): image for image in images}
    handles = {number: load(image, device) for number, image in found.items()}
    if any(image.overlap.reads_before_it_waits for image in found.values()):
        gpu = driver()
        for number, image in found.items():
            if image.shares_multiprocessors:
                gpu.prefer_shared_memory(handles[number])
    return handles
