"""What Genesis asks of CUDA.

`Driver` is the contract; `CudaDriver` (cuda_driver.py) keeps it with the GPU, `HostDriver`
(host_driver.py) with host memory, for tests without a GPU. Nothing else in Genesis calls CUDA.

Addresses are ints. Streams, events, kernels, launches and graphs are whatever objects the driver
likes: the rest of the runtime only hands them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from genesis.ir.types import DType
from genesis.runtime.plan import KernelImage


class DriverError(RuntimeError):
    """A call of the driver failed.

    Attributes: `call` is the driver's function, `status` CUDA's name of the error.
    """

    def __init__(self, call: str, status: str, description: str):
        super().__init__(f"{call} failed: {status}: {description}")
        self.call, self.status = call, status


class DriverOutOfMemory(DriverError):
    """The device has not that much memory left. The memory pool turns it into `OutOfMemoryError`."""


@dataclass(frozen=True)
class DeviceProperties:
    """What a GPU is. `total_memory` is in bytes, `shared_memory` what one block may ask for, in bytes."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    shared_memory: int


class Pointer(NamedTuple):
    """A kernel argument that is a device address. Only an interpreter needs to know what it points to.

    `reach` are the ranges (start, end) of addresses that the kernel may touch through it: the value it points to, and
    what the entries of a table point to. Empty: not known.
    """

    address: int
    dtype: DType
    reach: tuple[tuple[int, int], ...] = ()


class Driver(Protocol):
    """The part of CUDA that Genesis uses.

    Calls that name no device act on the one of this thread's last `use`. Copies and fills are
    asynchronous and ordered by their stream.
    """

    poisons: bool
    """Whether handed-out memory should be filled with 0xFF first, so that a value nobody wrote shows."""

    def device_count(self) -> int: ...
    def properties(self, device: int) -> DeviceProperties: ...
    def use(self, device: int) -> None: ...
    def synchronize(self) -> None: ...

    def alloc(self, nbytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def mem_get_info(self) -> tuple[int, int]: ...
    def copy_to_device(self, address: int, host: int, nbytes: int, stream: Any) -> None: ...
    def copy_to_host(self, host: int, address: int, nbytes: int, stream: Any) -> None: ...
    def copy(self, destination: int, source: int, nbytes: int, stream: Any) -> None: ...
    def fill(self, address: int, byte: int, nbytes: int, stream: Any) -> None: ...

    def create_stream(self, priority: int = 0) -> Any: ...
    def destroy_stream(self, stream: Any) -> None: ...
    def synchronize_stream(self, stream: Any) -> None: ...
    def stream_is_done(self, stream: Any) -> bool: ...
    def wait_event(self, stream: Any, event: Any) -> None: ...

    def create_event(self, timing: bool) -> Any: ...
    def destroy_event(self, event: Any) -> None: ...
    def record_event(self, event: Any, stream: Any) -> None: ...
    def synchronize_event(self, event: Any) -> None: ...
    def event_is_done(self, event: Any) -> bool: ...
    def elapsed_ms(self, start: Any, end: Any) -> float: ...

    def load_kernel(self, image: KernelImage) -> Any: ...
    def allow_shared_memory(self, kernel: Any, nbytes: int) -> None: ...
    def prepare_launch(self, kernel: Any, image: KernelImage, grid: tuple[int, int, int],
                       arguments: Sequence[Pointer | int]) -> Any: ...
    def launch(self, prepared: Any, stream: Any) -> None: ...

    def begin_capture(self, stream: Any) -> None: ...
    def end_capture(self, stream: Any) -> Any: ...
    def launch_graph(self, graph: Any, stream: Any) -> None: ...
    def destroy_graph(self, graph: Any) -> None: ...
