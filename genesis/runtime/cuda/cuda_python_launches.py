"""Launches of kernels through cuda-python."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from genesis.runtime.cuda.c_functions import CFunction
from genesis.runtime.cuda.cuda_python_calls import CudaCalls
from genesis.runtime.cuda.driver import Call, KernelHandle, LaunchArguments, StreamHandle
from genesis.runtime.plan import KernelImage

if TYPE_CHECKING:
    from cuda.bindings import driver as bindings

THREADS_PER_WARP: Final = 32
"""Threads of a warp on every NVIDIA GPU."""


MOST_SHARED: Final = 100
"""Percent of what a multiprocessor can share."""


PROGRAMMATIC_STREAM_SERIALIZATION: Final = 6
"""Number of the attribute that makes a launch early: its kernel may start while the one before it on its stream still
runs, as it waits for that itself (programmatic dependent launch)."""

_EARLY: Final = ctypes.create_string_buffer(struct.pack("=I4xi60x", PROGRAMMATIC_STREAM_SERIALIZATION, 1), 72)
"""A `CUlaunchAttribute`: its number, and its value, a union of 64 bytes."""

_CONFIG: Final = struct.Struct("=7I4xQQI4x")
"""A `CUlaunchConfig`: programs and threads along three axes, bytes shared, the stream, attributes and their count."""


@dataclass(slots=True, eq=False)
class PackedLaunch:
    """A kernel launch whose arguments lie in memory as cuLaunchKernel wants them.

    Attributes:
        early: the kernel may start while the one before it on its stream still runs: it waits for that itself.
        addresses: the address of the array of pointers to the arguments.
        arguments: keeps alive what those pointers point to.
        ready: the stream that it was last launched on, and the call that does.
    """

    function: bindings.CUfunction
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    early: bool
    addresses: int
    arguments: LaunchArguments
    ready: tuple[StreamHandle, Call] | None = None


class LaunchCalls(CudaCalls):
    """The calls of a driver that load kernels and start them."""

    def load_kernel(self, image: KernelImage) -> KernelHandle:
        """The function of that name in the image's cubin. It stays loaded as long as the process."""
        module = self._check("cuModuleLoadData", self._cuda.cuModuleLoadData(image.cubin))
        return self._check("cuModuleGetFunction", self._cuda.cuModuleGetFunction(module, image.name.encode()))

    def allow_shared_memory(self, kernel: KernelHandle, nbytes: int) -> None:
        """Allow launches of the kernel with that many bytes of dynamic shared memory; 48 KiB need no permission."""
        attribute = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._check("cuFuncSetAttribute", self._cuda.cuFuncSetAttribute(kernel, attribute, nbytes))

    def prefer_shared_memory(self, kernel: KernelHandle) -> None:
        """Have a multiprocessor that runs the kernel keep most of its memory shared, whether the kernel uses it or not.
        What is shared and what caches can change only while nothing runs there: a kernel without shared memory would
        keep the next one's programs, which want some, from starting beside it (one H200, 2026-11-29: a token of
        Qwen3-0.6B at 4096 of context takes 0.852 ms so, and 0.908 as CUDA chooses)."""
        attribute = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        self._check("cuFuncSetAttribute", self._cuda.cuFuncSetAttribute(kernel, attribute, MOST_SHARED))

    def prepare_launch(self, kernel: KernelHandle, image: KernelImage, grid: tuple[int, int, int],
                       arguments: LaunchArguments, early: bool = True) -> PackedLaunch:
        """A launch of a Triton kernel; one that is not `early` starts when all before it on its stream has ended. CUDA
        reads as many bytes of each 8-byte value as the kernel declares: of a number that fits 32 bits, which the kernel
        takes as an i32, it reads the first four."""
        return PackedLaunch(kernel, grid, image.num_warps * THREADS_PER_WARP, image.shared_bytes,
                            early and image.overlap.waits, arguments.address, arguments)

    def launch_call(self, prepared: PackedLaunch, stream: StreamHandle) -> Call:
        """A call that starts the kernel, and does not wait for it."""
        ready = prepared.ready
        if ready is None or ready[0] is not stream:
            config = _CONFIG.pack(*prepared.grid, prepared.threads, 1, 1, prepared.shared_bytes, int(stream),
                                  ctypes.addressof(_EARLY), prepared.early)
            ready = prepared.ready = stream, partial(
                self._launch_kernel, config, ctypes.c_void_p(int(prepared.function)),
                ctypes.c_void_p(prepared.addresses), None)
        return ready[1]

    @cached_property
    def _launch_kernel(self) -> CFunction:
        return self._c_function("cuLaunchKernelEx")
