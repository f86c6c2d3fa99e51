"""The contract with CUDA: everything that Genesis asks of it.

`Driver` is the contract; `CudaDriver` (cuda_python_driver.py) keeps it with the GPU, `HostDriver`
(fake_cuda/driver.py) with host memory, for tests without a GPU. Nothing else in Genesis calls CUDA.

Addresses are ints. Streams, events, kernels, launches and graphs are whatever objects the driver
likes: the rest of the runtime only hands them back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from genesis.ir.types import DType
from genesis.runtime.plan import KernelImage

MAP_GRANULARITY: Final = 2 << 20
"""Bytes: memory is mapped into reserved ranges in multiples of this, the size of the GPU's large pages."""


SCRATCH_POINTERS: Final = 2
"""Pointers that Triton adds to a kernel's arguments, global scratch and profile scratch; both may be null."""


MAP_BYTES: Final = 128
"""Bytes of CUDA's tensor map, by which a GPU's copy engine knows a matrix."""

MAP_ALIGNMENT: Final = 64
"""Bytes of which its address in host memory has to be a multiple."""

StreamHandle: TypeAlias = Any
"""A driver's stream. Handles are a driver's own objects: the rest of the runtime keeps them and hands them back."""

EventHandle: TypeAlias = Any
"""A driver's event."""

KernelHandle: TypeAlias = Any
"""A kernel that a driver has loaded."""

PreparedLaunch: TypeAlias = Any
"""A launch of a kernel as `Driver.prepare_launch` made it."""

GraphHandle: TypeAlias = Any
"""A driver's executable graph."""


Call: TypeAlias = Callable[[], object]
"""Work that a stream is given when it is called: by an object of C that runs no line of Python, or by a machine that is
pretended. It raises `DriverError` where CUDA refuses the work. It may be called several times."""


class DriverError(RuntimeError):
    """A call of the driver failed.

    Attributes: `call` is the driver's function, `status` CUDA's name of the error.
    """

    def __init__(self, call: str, status: str, description: str):
        super().__init__(f"{call} failed: {status}: {description}")
        self.call, self.status = call, status


class DriverOutOfMemory(DriverError):
    """The GPU does not have that much memory left. The memory pool turns this into `OutOfMemoryError`."""


@dataclass(frozen=True)
class DeviceProperties:
    """A GPU's properties, under torch's names. Memory is in bytes, clocks are in kHz, the bus width is in bits.

    What has a default that is not 0 is the same for every GPU that kernels are built for; 0 says that nobody asked.
    """

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
    max_threads_per_multi_processor: int = 0
    max_threads_per_block: int = 1024
    warp_size: int = 32
    regs_per_multiprocessor: int = 0
    shared_memory_per_block: int = 48 << 10
    shared_memory_per_block_optin: int = 0
    shared_memory_per_multiprocessor: int = 0
    L2_cache_size: int = 0
    clock_rate: int = 0
    memory_clock_rate: int = 0
    memory_bus_width: int = 0
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    uuid: str = ""


OLDEST_CAPABILITY: Final = (8, 0)
"""The least compute capability that kernels are built for: bfloat16 products and asynchronous copies begin with it."""


def require_capability(gpu: DeviceProperties) -> None:
    """Raise RuntimeError before anything runs on a GPU for which no kernels are built.

    >>> require_capability(DeviceProperties("NVIDIA A100", 40 << 30, 8, 0, 108))
    >>> require_capability(DeviceProperties("Tesla T4", 16 << 30, 7, 5, 40))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    RuntimeError: CUDA kernels are built for GPUs of compute capability 8.0 (A100) and newer, but Tesla T4 has 7.5; ...
    """
    if (gpu.major, gpu.minor) < OLDEST_CAPABILITY:
        oldest = ".".join(map(str, OLDEST_CAPABILITY))
        raise RuntimeError(f"CUDA kernels are built for GPUs of compute capability {oldest} (A100) and newer, but "
                           f"{gpu.name} has {gpu.major}.{gpu.minor}; use device=\"cpu\", or show the process another "
                           "GPU with CUDA_VISIBLE_DEVICES")


class Pointer(NamedTuple):
    """A kernel argument that is a device address. Only an interpreter needs to know what it points to.

    `reach` are the ranges (start, end) of addresses that the kernel may touch through it: the value it points to, and
    what the entries of a table point to. Empty: not known.
    """

    address: int
    dtype: DType
    reach: tuple[tuple[int, int], ...] = ()


class MappedMatrix(NamedTuple):
    """A kernel argument that is a matrix's map, for an interpreter: where it lies, the sizes of its dimensions, the
    elements from one to the next along each, and the block that is moved at once."""

    pointer: Pointer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]


class LaunchArguments(Protocol):
    """The arguments of one launch, in the kernel's order. They may change: a launch reads them when it starts."""

    @property
    def address(self) -> int:
        """The address of an array of pointers to 8-byte values: the arguments, then `SCRATCH_POINTERS` nulls."""

    def described(self) -> list[Pointer | MappedMatrix | int]:
        """The arguments as numbers and as pointers with what they point to, for an interpreter."""


class DeviceCopy(NamedTuple):
    """A copy of bytes between two device addresses, as a node of a graph."""

    destination: int
    source: int
    nbytes: int


@runtime_checkable
class CapturedWork(Protocol):
    """Work of another library, which gives a stream what it likes: of a stream that is captured, a graph is made."""

    @property
    def priority(self) -> int:
        """That of the stream; lower numbers go first."""
    def capture(self, stream: StreamHandle) -> None: ...


class GraphNode(NamedTuple):
    """One node of a CUDA graph.

    Attributes:
        work: what `prepare_launch` made, a copy, or what another library captures.
        after: the numbers of the nodes that must be done before; all are smaller than its own.
        early: whether it may be started while the kernels before it still end: it is a kernel that waits for
            them itself, as its first instruction, and all before it are kernels.
    """

    work: PreparedLaunch | DeviceCopy | CapturedWork
    after: tuple[int, ...]
    early: bool


class Driver(Protocol):
    """The part of CUDA that Genesis uses.

    Calls that name no device act on the one of this thread's last `use`. Copies and fills are
    asynchronous and ordered by their stream.

    What overwrites memory whose storages have to be told is made ready first, as a `Call`: between CUDA's return and
    that of the call there is no line of Python, which a signal's exception could come in.
    """

    poisons: bool
    """Whether handed-out memory should be filled with 0xFF first, so that a value nobody wrote shows."""

    def device_count(self) -> int: ...
    def properties(self, device: int) -> DeviceProperties: ...
    def can_access_peer(self, device: int, peer: int) -> bool: ...
    def use(self, device: int) -> None: ...
    def synchronize(self) -> None: ...
    def synchronize_call(self) -> Call: ...

    def alloc(self, nbytes: int) -> int: ...
    def alloc_call(self, nbytes: int, into: Callable[[int], object]) -> Call:
        """A call, to be made once, of `alloc` and of `into` with the address: no exception comes between."""

    def free(self, address: int) -> None: ...
    def free_call(self, address: int) -> Call: ...
    def alloc_host(self, nbytes: int) -> int: ...
    def reserve_range(self, nbytes: int) -> int: ...
    def map_memory(self, address: int, nbytes: int) -> None: ...
    def unmap_memory(self, address: int, nbytes: int) -> None: ...
    def mem_get_info(self) -> tuple[int, int]: ...
    def copy_to_device(self, address: int, host: int, nbytes: int, stream: StreamHandle) -> None: ...
    def copy_to_host(self, host: int, address: int, nbytes: int, stream: StreamHandle) -> None: ...
    def copy(self, destination: int, source: int, nbytes: int, stream: StreamHandle) -> None: ...
    def copy_call(self, destination: int, source: int, nbytes: int, stream: StreamHandle) -> Call: ...
    def fill(self, address: int, byte: int, nbytes: int, stream: StreamHandle) -> None: ...

    def create_stream(self, priority: int = 0) -> StreamHandle: ...
    def stream_number(self, stream: StreamHandle) -> int: ...
    def foreign_stream(self, number: int) -> StreamHandle: ...
    def destroy_stream(self, stream: StreamHandle) -> None: ...
    def synchronize_stream(self, stream: StreamHandle) -> None: ...
    def stream_is_done(self, stream: StreamHandle) -> bool: ...
    def wait_event(self, stream: StreamHandle, event: EventHandle) -> None: ...

    def create_event(self, timing: bool) -> EventHandle: ...
    def destroy_event(self, event: EventHandle) -> None: ...
    def record_event(self, event: EventHandle, stream: StreamHandle) -> None: ...
    def record_call(self, event: EventHandle, stream: StreamHandle) -> Call: ...
    def synchronize_event(self, event: EventHandle) -> None: ...
    def event_is_done(self, event: EventHandle) -> bool: ...
    def elapsed_ms(self, start: EventHandle, end: EventHandle) -> float: ...

    def load_kernel(self, image: KernelImage) -> KernelHandle: ...
    def allow_shared_memory(self, kernel: KernelHandle, nbytes: int) -> None: ...
    def prefer_shared_memory(self, kernel: KernelHandle) -> None: ...
    def encode_map(self, target: int, address: int, dtype: DType, shape: Sequence[int], strides: Sequence[int],
                   block: Sequence[int]) -> None:
        """Write CUDA's tensor map of a matrix, or of a stack of them, to `target`, 128 bytes at a multiple of 64.

        `strides` are in elements, the last is 1. `block` is the swizzle of its blocks in shared memory, then their
        sizes.
        """

    def prepare_launch(self, kernel: KernelHandle, image: KernelImage, grid: tuple[int, int, int],
                       arguments: LaunchArguments, early: bool = True) -> PreparedLaunch: ...
    def launch_call(self, prepared: PreparedLaunch, stream: StreamHandle) -> Call: ...

    def build_graph(self, nodes: Sequence[GraphNode]) -> GraphHandle: ...
    def update_node(self, graph: GraphHandle, number: int, work: PreparedLaunch | DeviceCopy) -> None: ...
    def graph_call(self, graph: GraphHandle, stream: StreamHandle) -> Call: ...
    def destroy_graph(self, graph: GraphHandle) -> None: ...
