"""The `Driver` contract on host memory: the whole CUDA path runs without a GPU. For tests, and slow.

Device memory is host memory, a stream is done as soon as it is given work, and a kernel is its Triton
source (`KernelImage.source`) run by Triton's interpreter. Where CUDA would refuse, it refuses too:
a copy out of bounds, an allocation or a wait during capture, a free of an unknown address.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from genesis.runtime import host_interpreter
from genesis.runtime.driver import DeviceProperties, DriverError, DriverOutOfMemory, Pointer
from genesis.runtime.plan import KernelImage

ALIGNMENT = 512
POISON = 0xFF  # a float of these bytes is NaN, an int -1


class HostStream:
    """A stream: at most the work that a capture notes."""

    def __init__(self) -> None:
        self.noted: list[Callable[[], None]] | None = None


class HostEvent:
    """The host's clock at the last record."""

    def __init__(self) -> None:
        self.seconds: float | None = None


class HostDriver:
    """A pretended GPU, or several.

    Args:
        memory_bytes: what each has; beyond it `alloc` is out of memory.
        devices: how many there are.

    Attributes:
        calls: how often each of "launch", "launch_graph", "capture", "copy", "copy_to_device", "alloc" and
            "load" was done, for tests that count. What a graph replays counts once, as "launch_graph".
    """

    poisons = True

    def __init__(self, memory_bytes: int = 1 << 30, devices: int = 1):
        self.calls: dict[str, int] = dict.fromkeys(
            ("launch", "launch_graph", "capture", "copy", "copy_to_device", "alloc", "load"), 0)
        self._total = memory_bytes
        self._devices = devices
        self._device = 0
        self._blocks: dict[int, tuple[np.ndarray, int, int]] = {}  # address → (memory, size, device)
        self._capturing: HostStream | None = None
        self._modules: dict[str, Any] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="genesis_kernels_")

    def device_count(self) -> int:
        """How many GPUs are pretended."""
        return self._devices

    def properties(self, device: int) -> DeviceProperties:
        """Those of a small GPU of compute capability 9.0."""
        self._known(device)
        return DeviceProperties("Genesis host driver", 9, 0, self._total, 4, 227 << 10)

    def use(self, device: int) -> None:
        """Later calls go to that one."""
        self._known(device)
        self._device = device

    def synchronize(self) -> None:
        """Everything is done already."""
        self._refuse_in_capture("cuCtxSynchronize")

    def alloc(self, nbytes: int) -> int:
        """The address of poisoned memory, a multiple of 512."""
        self._refuse_in_capture("cuMemAlloc")
        self.calls["alloc"] += 1
        if nbytes <= 0:
            raise DriverError("cuMemAlloc", "CUDA_ERROR_INVALID_VALUE", f"{nbytes} bytes")
        if self._used() + nbytes > self._total:
            raise DriverOutOfMemory("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
        memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        address = -(-memory.__array_interface__["data"][0] // ALIGNMENT) * ALIGNMENT
        self._blocks[address] = (memory, nbytes, self._device)
        ctypes.memset(address, POISON, nbytes)
        return address

    def free(self, address: int) -> None:
        """Give back what `alloc` returned."""
        self._refuse_in_capture("cuMemFree")
        if self._blocks.pop(address, None) is None:
            raise DriverError("cuMemFree", "CUDA_ERROR_INVALID_VALUE", f"{address:#x} was not allocated")

    def mem_get_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        return self._total - self._used(), self._total

    def copy_to_device(self, address: int, host: int, nbytes: int, stream: Any) -> None:
        """Host to device. The source is read at once, also in a capture, as CUDA stages small copies."""
        self.calls["copy_to_device"] += 1
        self._inside("cuMemcpyHtoDAsync", address, nbytes)
        self._do(stream, partial(ctypes.memmove, address, host, nbytes))

    def copy_to_host(self, host: int, address: int, nbytes: int, stream: Any) -> None:
        """Device to host."""
        self._inside("cuMemcpyDtoHAsync", address, nbytes)
        self._do(stream, partial(ctypes.memmove, host, address, nbytes))

    def copy(self, destination: int, source: int, nbytes: int, stream: Any) -> None:
        """Device to device."""
        self.calls["copy"] += 1
        self._inside("cuMemcpyDtoDAsync", destination, nbytes)
        self._inside("cuMemcpyDtoDAsync", source, nbytes)
        self._do(stream, partial(ctypes.memmove, destination, source, nbytes))

    def fill(self, address: int, byte: int, nbytes: int, stream: Any) -> None:
        """Set every byte."""
        self._inside("cuMemsetD8Async", address, nbytes)
        self._do(stream, partial(ctypes.memset, address, byte, nbytes))

    def create_stream(self, priority: int = 0) -> HostStream:
        """A stream; all have the same priority."""
        return HostStream()

    def destroy_stream(self, stream: Any) -> None:
        """Nothing is pending."""

    def synchronize_stream(self, stream: Any) -> None:
        """Everything is done already."""
        self._refuse_in_capture("cuStreamSynchronize")

    def stream_is_done(self, stream: Any) -> bool:
        """Always."""
        return True

    def wait_event(self, stream: Any, event: Any) -> None:
        """It has happened."""

    def create_event(self, timing: bool) -> HostEvent:
        """An event."""
        return HostEvent()

    def destroy_event(self, event: Any) -> None:
        """Nothing to give back."""

    def record_event(self, event: HostEvent, stream: Any) -> None:
        """Note the time."""
        event.seconds = time.perf_counter()

    def synchronize_event(self, event: HostEvent) -> None:
        """It has happened."""
        self._refuse_in_capture("cuEventSynchronize")

    def event_is_done(self, event: HostEvent) -> bool:
        """Always."""
        return True

    def elapsed_ms(self, start: HostEvent, end: HostEvent) -> float:
        """Milliseconds between two records."""
        if start.seconds is None or end.seconds is None:
            raise DriverError("cuEventElapsedTime", "CUDA_ERROR_INVALID_HANDLE", "an event was not recorded")
        return (end.seconds - start.seconds) * 1e3

    def load_kernel(self, image: KernelImage) -> Any:
        """The Triton function of that name in the image's source, and the module it is in."""
        self.calls["load"] += 1
        module = self._modules.get(image.source)
        if module is None:
            file = Path(self._folder.name) / f"kernels_{len(self._modules)}.py"
            module = self._modules[image.source] = host_interpreter.load_source(image.source, file)
        if not hasattr(module, image.name):
            raise DriverError("cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND", f"no kernel {image.name!r} in the source")
        return getattr(module, image.name), module

    def allow_shared_memory(self, kernel: Any, nbytes: int) -> None:
        """The interpreter has no such limit; a GPU's is kept."""
        if nbytes > 227 << 10:
            raise DriverError("cuFuncSetAttribute", "CUDA_ERROR_INVALID_VALUE", f"{nbytes} bytes of shared memory")

    def prepare_launch(self, kernel: Any, image: KernelImage, grid: tuple[int, int, int],
                       arguments: Sequence[Pointer | int]) -> Callable[[], None]:
        """Bind the arguments to the kernel's parameters in order, passing over `tl.constexpr` ones.

        Those were fixed when the cubin was made; here they have a default in the source, or a value in a
        dictionary `CONSTEXPRS` of the source: parameter → value.
        """
        function, module = kernel
        try:
            run = host_interpreter.bind(function, grid, arguments, getattr(module, "CONSTEXPRS", {}))
        except TypeError as error:
            raise DriverError("cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE", str(error)) from error
        return partial(_interpret, image.name, run)

    def launch(self, prepared: Callable[[], None], stream: HostStream) -> None:
        """Run the kernel's programs one after the other."""
        self.calls["launch"] += 1
        self._do(stream, prepared)

    def begin_capture(self, stream: HostStream) -> None:
        """From now on work on the stream is noted instead of done."""
        if self._capturing is not None:
            raise DriverError("cuStreamBeginCapture", "CUDA_ERROR_ILLEGAL_STATE", "already capturing")
        self._capturing = stream
        stream.noted = []

    def end_capture(self, stream: HostStream) -> list[Callable[[], None]]:
        """What was noted."""
        self.calls["capture"] += 1
        noted, stream.noted, self._capturing = stream.noted, None, None
        return noted or []

    def launch_graph(self, graph: list[Callable[[], None]], stream: Any) -> None:
        """Do what was noted."""
        self.calls["launch_graph"] += 1
        for work in graph:
            work()

    def destroy_graph(self, graph: list[Callable[[], None]]) -> None:
        """Forget it."""
        graph.clear()

    def _do(self, stream: HostStream | None, work: Callable[[], Any]) -> None:
        if stream is not None and stream.noted is not None:
            stream.noted.append(work)
        else:
            work()

    def _used(self) -> int:
        return sum(size for _, size, device in self._blocks.values() if device == self._device)

    def _known(self, device: int) -> None:
        if not 0 <= device < self._devices:
            raise RuntimeError(f"there is no cuda:{device}: this process sees {self._devices} GPU(s)")

    def _inside(self, call: str, address: int, nbytes: int) -> None:
        for start, (_, size, _device) in self._blocks.items():
            if start <= address and address + nbytes <= start + size:
                return
        raise DriverError(call, "CUDA_ERROR_INVALID_VALUE", f"{nbytes} bytes at {address:#x} are not device memory")

    def _refuse_in_capture(self, call: str) -> None:
        if self._capturing is not None:
            raise DriverError(call, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted when stream is capturing")


def _interpret(name: str, run: Callable[[], None]) -> None:
    try:
        run()
    except Exception as error:
        raise DriverError("cuLaunchKernel", "CUDA_ERROR_LAUNCH_FAILED", f"{name}: {error}") from error
