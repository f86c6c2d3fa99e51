"""The `Driver` contract on host memory: the whole CUDA path runs without a GPU. For tests, and slow.

Device memory is host memory, a stream does its work at once or as late as it may, and a kernel is its Triton
source (`KernelImage.source`) run by Triton's interpreter. Where CUDA would refuse, it refuses too:
a copy out of bounds, a free of an unknown address. A graph runs in an order as far from the given one as its edges
allow.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heapify, heappop, heappush
from mmap import mmap
from typing import TYPE_CHECKING, Final

import numpy as np

from genesis.ir.types import DType
from genesis.runtime.cuda.driver import (
    MAP_GRANULARITY,
    Call,
    CapturedWork,
    DeviceCopy,
    DeviceProperties,
    DriverError,
    DriverOutOfMemory,
    GraphNode,
    LaunchArguments,
    MappedMatrix,
    Pointer,
    require_capability,
)
from genesis.runtime.fake_cuda import interpreter
from genesis.runtime.fake_cuda.streams import HostEvent, HostStream
from genesis.runtime.plan import KernelImage

if TYPE_CHECKING:
    from types import ModuleType

    from triton.runtime.interpreter import InterpretedFunction

MOST_PROGRAMS: Final = 2**31 - 1
"""Programs along a grid's first dimension, at most."""

MOST_BESIDE: Final = 65535
"""Programs along a grid's other dimensions, at most."""

ALIGNMENT = 512
"""Bytes that every address is a multiple of, as cuMemAlloc's are."""

POISON = 0xFF
"""Every byte of fresh memory: a float of these bytes is NaN, an int is -1."""
SAID_BY_AN_H200: Final = DeviceProperties(
    "NVIDIA H200", 150 << 30, 9, 0, 132, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
    shared_memory_per_block=49152, shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472,
    L2_cache_size=62914560, clock_rate=1980000, memory_clock_rate=3201000, memory_bus_width=6016)
"""What cuDeviceGetAttribute answers on one."""

COUNTED = ("launch", "launch_graph", "build_graph", "update_node", "copy", "copy_to_device", "alloc", "map", "load",
           "prefer_shared_memory")


class HostDriver:
    """A pretended GPU, or several.

    Args:
        memory_bytes: bytes of memory of each; beyond it `alloc` is out of memory.
        devices: how many GPUs are pretended.
        capability: the compute capability that they report.
        lazy: whether streams do their work as late as they may, so that one that should have waited for another shows.

    Attributes:
        calls: how often each call of `COUNTED` was made, for tests that count. A graph's work counts once, as
            "launch_graph".
    """

    poisons = True

    def __init__(self, memory_bytes: int = 1 << 30, devices: int = 1, lazy: bool = False,
                 capability: tuple[int, int] = (9, 0)):
        self.calls: dict[str, int] = dict.fromkeys(COUNTED, 0)
        self._total = memory_bytes
        self._devices = devices
        self._device = 0
        self._threads = threading.local()  # `used`: a thread that used no GPU has no context
        self._lazy = lazy
        self._capability = capability
        self._streams: list[HostStream] = []
        self._numbered: dict[int, HostStream] = {}  # streams of other libraries, and ours that they were told of
        self._blocks: dict[int, tuple[object, int, int]] = {}  # address → (the buffer, size, device)
        self._ranges: dict[int, mmap] = {}  # address of a reserved range → the mapping that reserves it
        self._pinned: list[ctypes.Array[ctypes.c_char]] = []

    def device_count(self) -> int:
        """The number of pretended GPUs."""
        return self._devices

    def properties(self, device: int) -> DeviceProperties:
        """The properties of an H200 with little memory, so that tests run the kernels that are made for one."""
        self._known(device)
        major, minor = self._capability
        return replace(SAID_BY_AN_H200, name="Genesis host driver", total_memory=self._total, major=major, minor=minor)

    def can_access_peer(self, device: int, peer: int) -> bool:
        """Whether kernels of one GPU can read the other's memory: always, as both are the host's."""
        self._known(device)
        self._known(peer)
        return device != peer

    def use(self, device: int) -> None:
        """Make later calls go to that GPU."""
        self._known(device)
        require_capability(self.properties(device))
        self._device = device
        self._threads.used = True

    def synchronize(self) -> None:
        """Do all waiting work, the newest stream's first."""
        for stream in reversed(self._streams):
            stream.catch_up(stream.given)

    def synchronize_call(self) -> Call:
        """A call that does `synchronize`."""
        return self.synchronize

    def alloc(self, nbytes: int) -> int:
        """The address of poisoned memory, a multiple of 512."""
        self.calls["alloc"] += 1
        if nbytes <= 0:
            raise DriverError("cuMemAlloc", "CUDA_ERROR_INVALID_VALUE", f"{nbytes} bytes")
        self._take(nbytes)
        memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        address = -(-memory.__array_interface__["data"][0] // ALIGNMENT) * ALIGNMENT
        self._blocks[address] = (memory, nbytes, self._device)
        ctypes.memset(address, POISON, nbytes)
        return address

    def free(self, address: int) -> None:
        """Do all waiting work and give back memory that `alloc` returned."""
        self.synchronize()
        if self._blocks.pop(address, None) is None:
            raise DriverError("cuMemFree", "CUDA_ERROR_INVALID_VALUE", f"{address:#x} was not allocated")

    def alloc_call(self, nbytes: int, into: Callable[[int], object]) -> Call:
        """A call of `alloc`, whose address `into` gets."""
        return partial(self._hand_over, nbytes, into)

    def _hand_over(self, nbytes: int, into: Callable[[int], object]) -> None:
        into(self.alloc(nbytes))

    def free_call(self, address: int) -> Call:
        """A call of `free`."""
        return partial(self.free, address)

    def alloc_host(self, nbytes: int) -> int:
        """The address of zeroed memory that kernels can reach."""
        if not hasattr(self._threads, "used"):
            raise DriverError("cuMemHostAlloc", "CUDA_ERROR_INVALID_CONTEXT", "this thread has used no GPU")
        self._pinned.append(ctypes.create_string_buffer(nbytes))
        return ctypes.addressof(self._pinned[-1])

    def reserve_range(self, nbytes: int) -> int:
        """The start of a range of addresses that may be used once memory is mapped there."""
        reserved = mmap(-1, nbytes)  # the host gives it memory when it is touched
        address = ctypes.addressof(ctypes.c_char.from_buffer(reserved))
        self._ranges[address] = reserved
        return address

    def map_memory(self, address: int, nbytes: int) -> None:
        """Map poisoned memory at a part of a reserved range."""
        self.calls["map"] += 1
        reserved = next((start for start, kept in self._ranges.items()
                         if start <= address and address + nbytes <= start + len(kept)), None)
        mapped = any(start < address + nbytes and address < start + known
                     for start, (_, known, _) in self._blocks.items())
        if reserved is None or (address - reserved) % MAP_GRANULARITY or nbytes % MAP_GRANULARITY or mapped:
            raise DriverError("cuMemMap", "CUDA_ERROR_INVALID_VALUE", f"{nbytes} bytes at {address:#x}")
        self._take(nbytes)
        self._blocks[address] = (None, nbytes, self._device)
        ctypes.memset(address, POISON, nbytes)

    def unmap_memory(self, address: int, nbytes: int) -> None:
        """Give back the memory that was mapped there."""
        pieces = [start for start in self._blocks if address <= start < address + nbytes]
        if sum(self._blocks[start][1] for start in pieces) != nbytes:
            raise DriverError("cuMemUnmap", "CUDA_ERROR_INVALID_VALUE", f"{nbytes} bytes at {address:#x}")
        for start in pieces:
            del self._blocks[start]

    def mem_get_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        return self._total - self._used(), self._total

    def copy_to_device(self, address: int, host: int, nbytes: int, stream: HostStream | None) -> None:
        """Copy host to device. Pinned memory is read when the stream gets there; of any other the source is read at
        once, as CUDA stages it."""
        self.calls["copy_to_device"] += 1
        self._inside("cuMemcpyHtoDAsync", address, nbytes)
        source = host if self._is_pinned(host) else ctypes.string_at(host, nbytes)
        self._do(stream, partial(ctypes.memmove, address, source, nbytes))

    def _is_pinned(self, host: int) -> bool:
        return any(0 <= host - ctypes.addressof(buffer) < len(buffer) for buffer in self._pinned)

    def copy_to_host(self, host: int, address: int, nbytes: int, stream: HostStream | None) -> None:
        """Copy device to host."""
        self._inside("cuMemcpyDtoHAsync", address, nbytes)
        self._do(stream, partial(ctypes.memmove, host, address, nbytes))

    def copy(self, destination: int, source: int, nbytes: int, stream: HostStream | None) -> None:
        """Copy device to device."""
        self.calls["copy"] += 1
        self._inside("cuMemcpyDtoDAsync", destination, nbytes)
        self._inside("cuMemcpyDtoDAsync", source, nbytes)
        self._do(stream, partial(ctypes.memmove, destination, source, nbytes))

    def copy_call(self, destination: int, source: int, nbytes: int, stream: HostStream | None) -> Call:
        """A call that does `copy`."""
        return partial(self.copy, destination, source, nbytes, stream)

    def fill(self, address: int, byte: int, nbytes: int, stream: HostStream | None) -> None:
        """Set every byte of a range of memory."""
        self._inside("cuMemsetD8Async", address, nbytes)
        self._do(stream, partial(ctypes.memset, address, byte, nbytes))

    def create_stream(self, priority: int = 0) -> HostStream:
        """A new stream; all have the same priority."""
        self._streams.append(HostStream(self._lazy))
        return self._streams[-1]

    def stream_number(self, stream: HostStream) -> int:
        """A number that `foreign_stream` knows."""
        self._numbered[id(stream)] = stream
        return id(stream)

    def foreign_stream(self, number: int) -> HostStream:
        """The stream of this number, made if there is none."""
        return self._numbered.setdefault(number, HostStream(self._lazy))

    def destroy_stream(self, stream: HostStream) -> None:
        """Destroy a stream. Its pending work still completes."""
        stream.catch_up(stream.given)

    def synchronize_stream(self, stream: HostStream) -> None:
        """Do the stream's work."""
        stream.catch_up(stream.given)

    def stream_is_done(self, stream: HostStream) -> bool:
        """Whether none of the stream's work waits."""
        return stream.done == stream.given

    def wait_event(self, stream: HostStream, event: HostEvent) -> None:
        """Make later work of the stream wait for the event."""
        event.check("cuStreamWaitEvent")
        event.hold_up(stream)

    def create_event(self, timing: bool) -> HostEvent:
        """A new event."""
        return HostEvent()

    def destroy_event(self, event: HostEvent) -> None:
        """Destroy an event, of which nothing must be given back: later calls with it fail."""
        event.check("cuEventDestroy")
        event.destroyed = True

    def record_event(self, event: HostEvent, stream: HostStream) -> None:
        """Put the event after the stream's work so far."""
        event.check("cuEventRecord")
        event.record(stream)

    def record_call(self, event: HostEvent, stream: HostStream) -> Call:
        """A call that does `record_event`."""
        return partial(self.record_event, event, stream)

    def synchronize_event(self, event: HostEvent) -> None:
        """Do the work before the event."""
        event.check("cuEventSynchronize")
        event.synchronize()

    def event_is_done(self, event: HostEvent) -> bool:
        """Whether the work before the event is done."""
        event.check("cuEventQuery")
        return event.is_done()

    def elapsed_ms(self, start: HostEvent, end: HostEvent) -> float:
        """Milliseconds between two records."""
        return start.elapsed_ms(end)

    def load_kernel(self, image: KernelImage) -> HostKernel:
        """The Triton function of that name in the image's source, and the module that it is in."""
        self.calls["load"] += 1
        module = interpreter.load_source(image.source)
        if not hasattr(module, image.name):
            raise DriverError("cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND", f"no kernel {image.name!r} in the source")
        return getattr(module, image.name), module

    def allow_shared_memory(self, kernel: HostKernel, nbytes: int) -> None:
        """Check a GPU's limit of shared memory; the interpreter itself has none."""
        if nbytes > self.properties(self._device).shared_memory_per_block_optin:
            raise DriverError("cuFuncSetAttribute", "CUDA_ERROR_INVALID_VALUE", f"{nbytes} bytes of shared memory")

    def prefer_shared_memory(self, kernel: HostKernel) -> None:
        """Count it; the interpreter has no caches."""
        self.calls["prefer_shared_memory"] += 1

    def encode_map(self, target: int, address: int, dtype: DType, shape: Sequence[int], strides: Sequence[int],
                   block: Sequence[int]) -> None:
        """Check what CUDA checks of a matrix's map: the interpreter reads the matrix itself."""
        if address % 16 or any(n * dtype.itemsize % 16 for n in strides[:-1]) or min(shape) < 1:
            raise DriverError("cuTensorMapEncodeTiled", "CUDA_ERROR_INVALID_VALUE",
                              f"{tuple(shape)} at {address:#x}, strides {tuple(strides)}")

    def prepare_launch(self, kernel: HostKernel, image: KernelImage, grid: tuple[int, int, int],
                       arguments: LaunchArguments, early: bool = True) -> HostLaunch:
        """Bind the arguments to the kernel's parameters in order, passing over `tl.constexpr` ones.

        `tl.constexpr` parameters were fixed when the cubin was made; here they have a default in the source, or a value
        in a dictionary `CONSTEXPRS` of the source: parameter → value. A dictionary `DIVISORS` says which number the
        cubin takes for granted to divide a parameter: parameter → number.
        """
        function, module = kernel
        if grid[0] > MOST_PROGRAMS or max(grid[1:]) > MOST_BESIDE:
            raise DriverError("cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE", f"{image.name}: a grid of {grid}")
        launch = HostLaunch(image.name, function, grid, arguments, getattr(module, "CONSTEXPRS", {}),
                            getattr(module, "DIVISORS", {}))
        launch.bound()  # raises for arguments that do not fit
        return launch

    def launch_call(self, prepared: HostLaunch, stream: HostStream) -> Call:
        """A call that does `launch`."""
        return partial(self.launch, prepared, stream)

    def launch(self, prepared: HostLaunch, stream: HostStream) -> None:
        """Run the kernel's programs one after the other."""
        self.calls["launch"] += 1
        self._do(stream, prepared.bound())

    def build_graph(self, nodes: Sequence[GraphNode]) -> HostGraph:
        """A graph of these nodes as they are now."""
        self.calls["build_graph"] += 1
        for number, node in enumerate(nodes):
            if any(not 0 <= other < number for other in node.after):
                raise DriverError("cuGraphAddNode", "CUDA_ERROR_INVALID_VALUE", f"node {number} after {node.after}")
        return HostGraph([self._node_work(node.work) for node in nodes], [node.after for node in nodes])

    def update_node(self, graph: HostGraph, number: int, work: HostLaunch | DeviceCopy | CapturedWork) -> None:
        """Replace a node's work in later launches of the graph."""
        self.calls["update_node"] += 1
        graph.works[number] = self._node_work(work)

    def graph_call(self, graph: HostGraph, stream: HostStream | None) -> Call:
        """A call that does `launch_graph`."""
        return partial(self.launch_graph, graph, stream)

    def launch_graph(self, graph: HostGraph, stream: HostStream | None) -> None:
        """Do the nodes in the order least like the one that they were given in, so that a missing edge shows."""
        self.calls["launch_graph"] += 1
        works = graph.works.copy()
        self._do(stream, lambda: [works[number]() for number in graph.order])

    def destroy_graph(self, graph: HostGraph) -> None:
        """Destroy a graph, of which nothing must be given back."""
        graph.works.clear()

    def _node_work(self, work: HostLaunch | DeviceCopy | CapturedWork) -> Callable[[], object]:
        if isinstance(work, CapturedWork):
            return partial(work.capture, None)
        if isinstance(work, HostLaunch):
            return work.bound()
        self._inside("cuGraphAddMemcpyNode", work.destination, work.nbytes)
        self._inside("cuGraphAddMemcpyNode", work.source, work.nbytes)
        return partial(ctypes.memmove, *work)

    def _do(self, stream: HostStream | None, work: Callable[[], object]) -> None:
        if stream is None:
            work()
        else:
            stream.give(work)

    def _take(self, nbytes: int) -> None:
        if self._used() + nbytes > self._total:
            raise DriverOutOfMemory("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")

    def _used(self) -> int:
        return sum(size for _, size, device in self._blocks.values() if device == self._device)

    def _known(self, device: int) -> None:
        if not 0 <= device < self._devices:
            raise RuntimeError(f"there is no cuda:{device}: this process sees {self._devices} GPU(s)")

    def _inside(self, call: str, address: int, nbytes: int) -> None:
        at = address
        while at < address + nbytes:  # pieces of mapped memory may lie side by side
            at = next((start + size for start, (_, size, _) in self._blocks.items() if start <= at < start + size), 0)
            if not at:
                raise DriverError(call, "CUDA_ERROR_INVALID_VALUE",
                                  f"{nbytes} bytes at {address:#x} are not device memory")


HostKernel = tuple["InterpretedFunction", "ModuleType"]
"""A kernel, and the module that it is in."""


@dataclass
class HostLaunch:
    """A kernel and its arguments, which may change between launches."""

    name: str
    function: InterpretedFunction
    grid: tuple[int, int, int]
    arguments: LaunchArguments
    constexprs: dict[str, object]
    divisors: dict[str, int] = field(default_factory=dict)

    def bound(self) -> Callable[[], None]:
        """A function that runs the kernel with the arguments as they are now."""
        try:
            described = self.arguments.described()
            run = interpreter.bind(self.function, self.grid, described, self.constexprs)
            self._divide(described)
        except TypeError as error:
            raise DriverError("cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE", str(error)) from error
        return partial(_interpret, self.name, run)

    def _divide(self, arguments: Sequence[Pointer | MappedMatrix | int]) -> None:
        """Refuse arguments that are no multiples of what the kernel was compiled for: on a GPU a vector that begins
        elsewhere is an error, or an edge is taken for whole."""
        for name, argument in zip(interpreter.parameters_of(self.function), arguments, strict=True):
            value = argument if isinstance(argument, int) else argument.address if isinstance(argument, Pointer) else 0
            if name in self.divisors and value % self.divisors[name]:
                raise DriverError("cuLaunchKernel", "CUDA_ERROR_MISALIGNED_ADDRESS",
                                  f"{self.name}: {name} = {value} is no multiple of {self.divisors[name]}")


class HostGraph:
    """Work with edges, and the order in which launches do it: of the pieces that may come next always the last."""

    def __init__(self, works: list[Callable[[], object]], after: Sequence[tuple[int, ...]]):
        self.works = works
        self.order: list[int] = []
        waiting = [len(before) for before in after]
        then: list[list[int]] = [[] for _ in after]
        for number, before in enumerate(after):
            for other in before:
                then[other].append(number)
        ready = [-number for number, count in enumerate(waiting) if not count]
        heapify(ready)
        while ready:
            number = -heappop(ready)
            self.order.append(number)
            for other in then[number]:
                waiting[other] -= 1
                if not waiting[other]:
                    heappush(ready, -other)


def _interpret(name: str, run: Callable[[], None]) -> None:
    try:
        run()
    except Exception as error:
        raise DriverError("cuLaunchKernel", "CUDA_ERROR_LAUNCH_FAILED", f"{name}: {error}") from error
