"""The GPU behind the `Driver` contract, through cuda-python; and the process's one driver.

This is the only module that imports `cuda.bindings`, and it does so when a `CudaDriver` is made.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, ParamSpec, TypeVar, cast
from uuid import UUID

from genesis.ir.types import DType
from genesis.runtime.cuda.driver import (
    MAP_BYTES,
    CapturedWork,
    DeviceCopy,
    DeviceProperties,
    Driver,
    DriverError,
    DriverOutOfMemory,
    EventHandle,
    GraphNode,
    KernelHandle,
    LaunchArguments,
    StreamHandle,
    require_capability,
)
from genesis.runtime.plan import KernelImage

if TYPE_CHECKING:
    from cuda.bindings import driver as bindings

P = ParamSpec("P")
T = TypeVar("T")

THREADS_PER_WARP: Final = 32
"""Threads of a warp on every NVIDIA GPU."""

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

_SICK: Final = ("CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_ASSERT",
                "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_ILLEGAL_INSTRUCTION")


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


class CudaGraph(NamedTuple):
    """An executable graph, the graph that it was made from, the nodes of that, by which it is updated, and the graphs
    of other libraries' work that are part of it."""

    executable: bindings.CUgraphExec
    template: bindings.CUgraph
    nodes: list[bindings.CUgraphNode]
    captured: list[bindings.CUgraph]


class CudaDriver:
    """The GPUs of this machine.

    Raises:
        RuntimeError: cuda-python is missing, the NVIDIA driver is missing, or there is no GPU.
    """

    poisons = False

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

    def synchronize(self) -> None:
        """Wait until the GPU has nothing left to do."""
        self._check("cuCtxSynchronize", self._cuda.cuCtxSynchronize())

    def alloc(self, nbytes: int) -> int:
        """The address of fresh device memory."""
        return int(self._check("cuMemAlloc", self._cuda.cuMemAlloc(nbytes)))

    def free(self, address: int) -> None:
        """Give back what `alloc` returned."""
        self._check("cuMemFree", self._cuda.cuMemFree(address))

    def alloc_host(self, nbytes: int) -> int:
        """The address of zeroed host memory that the GPUs read and write at the same address. It is never freed."""
        address = int(self._check("cuMemHostAlloc", self._cuda.cuMemHostAlloc(
            nbytes, self._cuda.CU_MEMHOSTALLOC_PORTABLE | self._cuda.CU_MEMHOSTALLOC_DEVICEMAP)))
        ctypes.memset(address, 0, nbytes)
        return address

    def reserve_range(self, nbytes: int) -> int:
        """A range of addresses with no memory behind them; `nbytes` is a multiple of `MAP_GRANULARITY`."""
        return int(self._check("cuMemAddressReserve", self._cuda.cuMemAddressReserve(nbytes, 0, 0, 0)))

    def map_memory(self, address: int, nbytes: int) -> None:
        """Put fresh memory behind a part of a reserved range; both are multiples of `MAP_GRANULARITY`."""
        cuda, place = self._cuda, self._cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted, access = cuda.CUmemAllocationProp(), cuda.CUmemAccessDesc()
        wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location.type = access.location.type = place
        wanted.location.id = access.location.id = self._thread.device
        access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        memory = self._check("cuMemCreate", cuda.cuMemCreate(nbytes, wanted, 0))
        try:
            self._check("cuMemMap", cuda.cuMemMap(address, nbytes, 0, memory, 0))
        finally:
            self._check("cuMemRelease", cuda.cuMemRelease(memory))  # the memory lives until it is unmapped
        self._check("cuMemSetAccess", cuda.cuMemSetAccess(address, nbytes, [access], 1))

    def unmap_memory(self, address: int, nbytes: int) -> None:
        """Give back the memory behind a part that was mapped in one or several pieces. Nothing may be using it."""
        self._check("cuMemUnmap", self._cuda.cuMemUnmap(address, nbytes))

    def mem_get_info(self) -> tuple[int, int]:
        """Free and total bytes of the GPU, whoever uses it."""
        free, total = self._check("cuMemGetInfo", self._cuda.cuMemGetInfo())
        return free, total

    def copy_to_device(self, address: int, host: int, nbytes: int, stream: StreamHandle) -> None:
        """Copy host to device. Pageable host memory is staged before this returns, so it may be reused at once."""
        self._check("cuMemcpyHtoDAsync", self._cuda.cuMemcpyHtoDAsync(address, host, nbytes, stream))

    def copy_to_host(self, host: int, address: int, nbytes: int, stream: StreamHandle) -> None:
        """Copy device to host. The bytes are there once the stream is synchronized."""
        self._check("cuMemcpyDtoHAsync", self._cuda.cuMemcpyDtoHAsync(host, address, nbytes, stream))

    def copy(self, destination: int, source: int, nbytes: int, stream: StreamHandle) -> None:
        """Copy device to device."""
        self._check("cuMemcpyDtoDAsync", self._cuda.cuMemcpyDtoDAsync(destination, source, nbytes, stream))

    def fill(self, address: int, byte: int, nbytes: int, stream: StreamHandle) -> None:
        """Set every byte of a range of memory."""
        self._check("cuMemsetD8Async", self._cuda.cuMemsetD8Async(address, byte, nbytes, stream))

    def create_stream(self, priority: int = 0) -> StreamHandle:
        """A stream that does not wait for CUDA's legacy default stream. Lower numbers go first."""
        flag = self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
        return self._check("cuStreamCreateWithPriority", self._cuda.cuStreamCreateWithPriority(flag, priority))

    def stream_number(self, stream: StreamHandle) -> int:
        """The number by which other libraries know the stream."""
        return int(stream)

    def foreign_stream(self, number: int) -> StreamHandle:
        """The other library's stream of this number; 1 is CUDA's legacy default stream, 2 the thread's default one."""
        return self._cuda.CUstream(number)

    def destroy_stream(self, stream: StreamHandle) -> None:
        """Destroy a stream. Its pending work still completes."""
        self._check("cuStreamDestroy", self._cuda.cuStreamDestroy(stream))

    def synchronize_stream(self, stream: StreamHandle) -> None:
        """Wait until the stream's work is done."""
        self._check("cuStreamSynchronize", self._cuda.cuStreamSynchronize(stream))

    def stream_is_done(self, stream: StreamHandle) -> bool:
        """Whether the stream has no work left."""
        return self._is_ready("cuStreamQuery", self._cuda.cuStreamQuery(stream))

    def wait_event(self, stream: StreamHandle, event: EventHandle) -> None:
        """Make later work of the stream wait for the event's last record."""
        self._check("cuStreamWaitEvent", self._cuda.cuStreamWaitEvent(stream, event, 0))

    def create_event(self, timing: bool) -> EventHandle:
        """A new event; one that keeps no time is cheaper."""
        flags = self._cuda.CUevent_flags
        flag = flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
        return self._check("cuEventCreate", self._cuda.cuEventCreate(flag))

    def destroy_event(self, event: EventHandle) -> None:
        """Destroy an event. A stream's pending wait for it stays."""
        self._check("cuEventDestroy", self._cuda.cuEventDestroy(event))

    def record_event(self, event: EventHandle, stream: StreamHandle) -> None:
        """Record the event: it happens when the stream's work so far is done."""
        self._check("cuEventRecord", self._cuda.cuEventRecord(event, stream))

    def synchronize_event(self, event: EventHandle) -> None:
        """Wait for the event's last record."""
        self._check("cuEventSynchronize", self._cuda.cuEventSynchronize(event))

    def event_is_done(self, event: EventHandle) -> bool:
        """Whether the event's last record has happened."""
        return self._is_ready("cuEventQuery", self._cuda.cuEventQuery(event))

    def elapsed_ms(self, start: EventHandle, end: EventHandle) -> float:
        """Milliseconds between two recorded events."""
        return self._check("cuEventElapsedTime", self._cuda.cuEventElapsedTime(start, end))

    def load_kernel(self, image: KernelImage) -> KernelHandle:
        """The function of that name in the image's cubin. It stays loaded as long as the process."""
        module = self._check("cuModuleLoadData", self._cuda.cuModuleLoadData(image.cubin))
        return self._check("cuModuleGetFunction", self._cuda.cuModuleGetFunction(module, image.name.encode()))

    def allow_shared_memory(self, kernel: KernelHandle, nbytes: int) -> None:
        """Allow launches of the kernel with that many bytes of dynamic shared memory; 48 KiB need no permission."""
        attribute = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._check("cuFuncSetAttribute", self._cuda.cuFuncSetAttribute(kernel, attribute, nbytes))

    def encode_map(self, target: int, address: int, dtype: DType, shape: Sequence[int], strides: Sequence[int],
                   block: Sequence[int]) -> None:
        """Write CUDA's tensor map of a matrix to `target`; what lies outside of the matrix is read as 0."""
        cuda = self._cuda
        swizzle, *sizes = block
        answer = cuda.cuTensorMapEncodeTiled(
            getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{dtype.name.upper()}"), len(shape), address,
            [cuda.cuuint64_t(n) for n in reversed(shape)],
            [cuda.cuuint64_t(n * dtype.itemsize) for n in reversed(strides[:-1])],
            [cuda.cuuint32_t(n) for n in reversed(sizes)], [cuda.cuuint32_t(1)] * len(shape),
            cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, cuda.CUtensorMapSwizzle(swizzle),
            cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
        found = self._check("cuTensorMapEncodeTiled", answer)
        ctypes.memmove(target, found.getPtr(), MAP_BYTES)

    def prepare_launch(self, kernel: KernelHandle, image: KernelImage, grid: tuple[int, int, int],
                       arguments: LaunchArguments) -> PackedLaunch:
        """A launch of a Triton kernel. CUDA reads as many bytes of each 8-byte value as the kernel declares: of a
        number that fits 32 bits, which the kernel takes as an i32, it reads the first four."""
        return PackedLaunch(kernel, grid, image.num_warps * THREADS_PER_WARP, image.shared_bytes, image.waits,
                            arguments.address, arguments)

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

    def build_graph(self, nodes: Sequence[GraphNode]) -> CudaGraph:
        """An executable graph of these nodes, with their launches' arguments as they are now."""
        graph = self._check("cuGraphCreate", self._cuda.cuGraphCreate(0))
        handles: list[bindings.CUgraphNode] = []
        captured: list[bindings.CUgraph] = []
        try:
            for work, after, early in nodes:
                before = [handles[number] for number in after]
                handles.append(self._add_node(graph, work, [] if early else before, captured))
                if early and before:
                    edges = [self._early_edge] * len(before)
                    self._check("cuGraphAddDependencies", self._cuda.cuGraphAddDependencies(
                        graph, before, [handles[-1]] * len(before), edges, len(before)))
            executable = self._check("cuGraphInstantiate", self._cuda.cuGraphInstantiate(graph, 0))
        except BaseException:
            for each in (graph, *captured):
                self._cuda.cuGraphDestroy(each)  # a failure of this call must not hide the first one
            raise
        return CudaGraph(executable, graph, handles, captured)

    def _add_node(self, graph: bindings.CUgraph, work: PackedLaunch | DeviceCopy | CapturedWork,
                  before: list[bindings.CUgraphNode], captured: list[bindings.CUgraph]) -> bindings.CUgraphNode:
        if isinstance(work, CapturedWork):
            inner = self._captured(work)
            captured.append(inner)
            return self._check("cuGraphAddChildGraphNode", self._cuda.cuGraphAddChildGraphNode(
                graph, before, len(before), inner))
        if isinstance(work, DeviceCopy):
            return self._check("cuGraphAddMemcpyNode", self._cuda.cuGraphAddMemcpyNode(
                graph, before, len(before), self._copy_parameters(work), self._context()))
        return self._check("cuGraphAddKernelNode", self._cuda.cuGraphAddKernelNode(
            graph, before, len(before), self._launch_parameters(work)))

    def _captured(self, work: CapturedWork) -> bindings.CUgraph:
        """A graph of what another library gives a stream."""
        cuda = self._cuda
        stream = self.create_stream()
        try:
            self._check("cuStreamBeginCapture", cuda.cuStreamBeginCapture(
                stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
            try:
                work.capture(stream)
            except BaseException:
                cuda.cuStreamEndCapture(stream)  # a failure of this call must not hide the first one
                raise
            return self._check("cuStreamEndCapture", cuda.cuStreamEndCapture(stream))
        finally:
            self.destroy_stream(stream)

    def update_node(self, graph: CudaGraph, number: int, work: PackedLaunch | DeviceCopy) -> None:
        """Replace a node's work in later launches of the graph: the same kernel, or a copy, over other addresses."""
        node = graph.nodes[number]
        if isinstance(work, DeviceCopy):
            self._check("cuGraphExecMemcpyNodeSetParams", self._cuda.cuGraphExecMemcpyNodeSetParams(
                graph.executable, node, self._copy_parameters(work), self._context()))
        else:
            self._check("cuGraphExecKernelNodeSetParams", self._cuda.cuGraphExecKernelNodeSetParams(
                graph.executable, node, self._launch_parameters(work)))

    def _launch_parameters(self, launch: PackedLaunch) -> bindings.CUDA_KERNEL_NODE_PARAMS:
        found = self._cuda.CUDA_KERNEL_NODE_PARAMS()
        found.func, found.sharedMemBytes, found.kernelParams = launch.function, launch.shared_bytes, launch.addresses
        found.gridDimX, found.gridDimY, found.gridDimZ = launch.grid
        found.blockDimX, found.blockDimY, found.blockDimZ = launch.threads, 1, 1
        return found

    def _copy_parameters(self, copy: DeviceCopy) -> bindings.CUDA_MEMCPY3D:
        found = self._cuda.CUDA_MEMCPY3D()
        found.srcMemoryType = found.dstMemoryType = self._cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        found.dstDevice, found.srcDevice, found.WidthInBytes = copy
        found.Height = found.Depth = 1
        return found

    @functools.cached_property
    def _early_edge(self) -> bindings.CUgraphEdgeData:
        """An edge from a kernel to one that waits for it itself (programmatic dependent launch)."""
        edge = self._cuda.CUgraphEdgeData()
        edge.type = self._cuda.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
        edge.from_port = self._cuda.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
        return edge

    def _context(self) -> bindings.CUcontext:
        return self._contexts[self._thread.device]

    def launch_graph(self, graph: CudaGraph, stream: StreamHandle) -> None:
        """Start the graph; does not wait for it."""
        status, = self._cuda.cuGraphLaunch(graph.executable, stream)
        if status:
            self._fail("cuGraphLaunch", status)

    def destroy_graph(self, graph: CudaGraph) -> None:
        """Destroy a graph of which no launch is in flight."""
        self._check("cuGraphExecDestroy", self._cuda.cuGraphExecDestroy(graph.executable))
        for each in (graph.template, *graph.captured):
            self._check("cuGraphDestroy", self._cuda.cuGraphDestroy(each))

    def _device(self, device: int) -> bindings.CUdevice:
        if not 0 <= device < self._count:
            raise RuntimeError(f"there is no cuda:{device}: this process sees {self._count} GPU(s)")
        return self._check("cuDeviceGet", self._cuda.cuDeviceGet(device))

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


_installed: list[Driver] = []
_caches: Final[list[Callable[[], None]]] = []


def driver() -> Driver:
    """The process's driver: the GPU's, unless a test installed another.

    Raises:
        RuntimeError: there is no GPU, or cuda-python is not installed.
    """
    if not _installed:
        _installed.append(CudaDriver())
    return _installed[0]


def is_started() -> bool:
    """Whether the process has its driver already."""
    return bool(_installed)


def install(new: Driver | None) -> None:
    """Make `new` the process's driver (None: the GPU's, made on its first use).

    Pools, streams and modules belong to a driver, so all of them are forgotten. For tests.
    """
    _installed[:] = [] if new is None else [new]
    for clear in _caches:
        clear()


def forgotten_with_driver(clear: Callable[[], None]) -> None:
    """Make `install` call this function, which forgets what belongs to the old driver."""
    _caches.append(clear)


def cached_per_driver(make: Callable[P, T]) -> Callable[P, T]:
    """A decorator like `functools.cache`, whose cache `install` clears."""
    cached = functools.cache(make)
    _caches.append(cached.cache_clear)
    return cast("Callable[P, T]", cached)
