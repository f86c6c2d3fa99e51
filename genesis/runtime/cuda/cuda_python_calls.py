"""Calls of the driver through cuda-python: what they return, what their errors say, which GPU a thread uses.

This is the only module that imports `cuda.bindings`, and it does so when a driver is made.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import UUID

from genesis.runtime.cuda.c_functions import CFunction, c_function
from genesis.runtime.cuda.driver import DeviceProperties, DriverError, DriverOutOfMemory, require_capability

if TYPE_CHECKING:
    from cuda.bindings import driver as bindings

CHECK: Final = ("check with `nvidia-smi` that there is a GPU and its driver works, get the bindings with "
                "`pip install cuda-python`; without a GPU use device='cpu'")

_DEVICE_ATTRIBUTES: Final = {
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "max_threads_per_multi_processor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "warp_size": "WARP_SIZE",
    "regs_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared_memory_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared_memory_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "L2_cache_size": "L2_CACHE_SIZE",
    "clock_rate": "CLOCK_RATE",
    "memory_clock_rate": "MEMORY_CLOCK_RATE",
    "memory_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
    "is_integrated": "INTEGRATED",
    "is_multi_gpu_board": "MULTI_GPU_BOARD",
    "pci_bus_id": "PCI_BUS_ID",
    "pci_device_id": "PCI_DEVICE_ID",
    "pci_domain_id": "PCI_DOMAIN_ID",
}
"""Fields of `DeviceProperties` → CUDA's attributes."""

FUNCTIONS_OF: Final = 11060
"""The version of CUDA, 11.6, whose functions are called through ctypes: the first with cuLaunchKernelEx."""

_SICK: Final = ("CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_ASSERT",
                "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_ILLEGAL_INSTRUCTION")


class CudaCalls:
    """The GPUs of this machine, of which each thread uses one.

    Raises:
        RuntimeError: cuda-python is missing, the NVIDIA driver is missing, or there is no GPU.
    """

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver as cuda
        except ImportError as error:
            raise RuntimeError(f"CUDA is not available: cuda-python is not installed ({error}); {CHECK}") from error
        self._cuda = cuda
        try:
            status, = cuda.cuInit(0)
        except RuntimeError as error:  # the bindings raise a RuntimeError when there is no libcuda
            raise RuntimeError(f"CUDA is not available: {error}; {CHECK}") from error
        if status:
            raise RuntimeError(f"CUDA is not available: cuInit says {status.name}; {CHECK}")
        self._count = self._check("cuDeviceGetCount", cuda.cuDeviceGetCount())
        if not self._count:
            raise RuntimeError(f"CUDA is not available: no GPU is visible (is CUDA_VISIBLE_DEVICES set?); {CHECK}")
        self._contexts: dict[int, bindings.CUcontext] = {}
        self._properties: dict[int, DeviceProperties] = {}
        self._thread = threading.local()

    def device_count(self) -> int:
        """The number of GPUs that the process sees."""
        return self._count

    def properties(self, device: int) -> DeviceProperties:
        """The properties of GPU number `device`."""
        found = self._properties.get(device)
        if found is None:
            found = self._properties[device] = self._ask_properties(device)
        return found

    def _ask_properties(self, device: int) -> DeviceProperties:
        cuda, handle = self._cuda, self._device(device)
        numbers = {
            field: self._check("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(
                getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}"), handle))
            for field, attribute in _DEVICE_ATTRIBUTES.items()}
        name = self._check("cuDeviceGetName", cuda.cuDeviceGetName(256, handle))
        uuid = self._check("cuDeviceGetUuid", cuda.cuDeviceGetUuid(handle))
        return DeviceProperties(name=name.split(b"\0")[0].decode(), uuid=str(UUID(bytes=bytes(uuid.bytes))),
                                total_memory=self._check("cuDeviceTotalMem", cuda.cuDeviceTotalMem(handle)), **numbers)

    def can_access_peer(self, device: int, peer: int) -> bool:
        """Whether kernels of one GPU can read the other's memory."""
        return bool(self._check("cuDeviceCanAccessPeer", self._cuda.cuDeviceCanAccessPeer(
            self._device(device), self._device(peer))))

    def use(self, device: int) -> None:
        """Make this thread's calls go to that GPU; starts its primary context the first time.

        Raises:
            RuntimeError: kernels are not built for such a GPU.
        """
        if getattr(self._thread, "device", None) == device:
            return
        context = self._contexts.get(device)
        if context is None:
            require_capability(self.properties(device))
            # The primary context, so that NCCL and other libraries in the process share it.
            context = self._check("cuDevicePrimaryCtxRetain", self._cuda.cuDevicePrimaryCtxRetain(self._device(device)))
            self._contexts[device] = context
        self._check("cuCtxSetCurrent", self._cuda.cuCtxSetCurrent(context))
        self._thread.device = device

    def _device(self, device: int) -> bindings.CUdevice:
        if not 0 <= device < self._count:
            raise RuntimeError(f"there is no cuda:{device}: this process sees {self._count} GPU(s)")
        return self._check("cuDeviceGet", self._cuda.cuDeviceGet(device))

    def _context(self) -> bindings.CUcontext:
        return self._contexts[self._thread.device]

    def _c_function(self, name: str) -> CFunction:
        """CUDA's function of this name, which raises `DriverError` by itself and runs no line of Python before that."""
        address, _ = self._check("cuGetProcAddress", self._cuda.cuGetProcAddress(name.encode(), FUNCTIONS_OF, 0))
        return c_function(int(address), partial(self._fail_by_number, name))

    def _fail_by_number(self, call: str, status: int) -> NoReturn:
        self._fail(call, self._cuda.CUresult(status))

    def _check(self, call: str, answer: tuple) -> Any:
        """The values that a call returned after its status: None, one value, or a tuple of several."""
        if answer[0]:
            self._fail(call, answer[0])
        if len(answer) == 1:
            return None
        return answer[1] if len(answer) == 2 else answer[1:]

    def _is_ready(self, call: str, answer: tuple) -> bool:
        if answer[0] == self._cuda.CUresult.CUDA_ERROR_NOT_READY:
            return False
        self._check(call, answer)
        return True

    def _fail(self, call: str, status: bindings.CUresult) -> NoReturn:
        _, text = self._cuda.cuGetErrorString(status)
        description = text.decode() if text else "no description"
        if status == self._cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise DriverOutOfMemory(call, status.name, description)
        if status.name in _SICK:
            description += ("; a kernel before this call did it and the process can no longer use this GPU: run it "
                            "again with CUDA_LAUNCH_BLOCKING=1 to see which")
        raise DriverError(call, status.name, description)
