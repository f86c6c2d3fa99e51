"""Launches of kernels through cuda-python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from genesis.runtime.cuda.cuda_python_calls import CudaCalls
from genesis.runtime.cuda.driver import KernelHandle, LaunchArguments, StreamHandle
from genesis.runtime.plan import KernelImage

if TYPE_CHECKING:
    from cuda.bindings import driver as bindings

THREADS_PER_WARP: Final = 32
"""Threads of a warp on every NVIDIA GPU."""


MOST_SHARED: Final = 100
"""Percent of what a multiprocessor can share."""


class PackedLaunch(NamedTuple):
    """A kernel launch whose arguments lie in memory as cuLaunchKernel wants them.

    Handing over a tuple makes the bindings build that memory each time: 6.9 µs a launch instead of 3.6.
    """

    function: bindings.CUfunction
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    early: bool  # the kernel may start while the one before it on its stream still runs: it waits for that itself
    addresses: int  # the address of the array of pointers to the arguments
    arguments: LaunchArguments  # keeps alive what those pointers point to


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

    def launch(self, prepared: PackedLaunch, stream: StreamHandle) -> None:
        """Start the kernel; does not wait for it."""
        function, grid, threads, shared_bytes, early, addresses, _ = prepared
        config = self._launch_config()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.sharedMemBytes, config.hStream, config.numAttrs = threads, shared_bytes, stream, early
        status, = self._cuda.cuLaunchKernelEx(config, function, addresses, 0)
        if status:
            self._fail("cuLaunchKernelEx", status)

    def _launch_config(self) -> bindings.CUlaunchConfig:
        """The thread's launch configuration, used for every launch. Its one attribute makes a launch early
        (programmatic dependent launch)."""
        try:
            return self._thread.config
        except AttributeError:
            attribute, value = self._cuda.CUlaunchAttribute(), self._cuda.CUlaunchAttributeValue()
            value.programmaticStreamSerializationAllowed = 1
            attribute.id = self._cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value = value
            config = self._thread.config = self._cuda.CUlaunchConfig()
            config.blockDimY = config.blockDimZ = 1
            config.attrs = [attribute]
            return config
