"""A GPU that does nothing: what is left of a program's time on it is the host's.

`IdleDriver` is `CudaDriver` over bindings that answer at once: it packs arguments, adds nodes to graphs and updates
them with the code that runs on a real GPU, but nothing behind cuda-python is called. Kernels are generated and never
compiled. All values read back are 0.

    with idle_gpu():
        ...                        # device="cuda"

With `graph_seconds` graphs and copies take time: streams have clocks, and who waits for one sleeps. So a loop shows
where its host keeps the GPU from working, and a thread beside it what it costs.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from genesis import engine
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.cuda.c_functions import address_of_function
from genesis.runtime.cuda.cuda_python_driver import CudaDriver
from genesis.runtime.fake_cuda.driver import SAID_BY_AN_H200
from genesis.runtime.plan import KernelImage

if TYPE_CHECKING:
    from genesis.codegen.cuda.source import KernelSource

MEMORY: Final = 141 << 30
ALIGNMENT: Final = 512
STEP_NODES: Final = 100
"""Nodes from which on a graph is taken for that of a training step."""


class IdleDriver(CudaDriver):
    """One GPU with the size of an H200 and nothing in it."""

    def __init__(self) -> None:
        self._cuda: Any = _IdleBindings()
        self._count = 1
        self._contexts: dict[int, Any] = {0: 0}
        self._properties = {0: replace(SAID_BY_AN_H200, name="idle", total_memory=MEMORY)}
        self._thread = threading.local()

    def alloc_call(self, nbytes: int, into: Callable[[int], object]) -> Callable[[], object]:
        """The bindings know the address."""
        return lambda: into(self.alloc(nbytes))

    def encode_map(self, *parts: Any) -> None:
        """Nothing: images that were never compiled do not know how their blocks lie."""


COPY_RATE: Final = {"pageable": 4e9, "page-locked": 50e9}
"""Bytes a second between host and GPU: an order of magnitude, of pageable memory that nobody has touched yet."""


class PacedDriver(IdleDriver):
    """A GPU that does nothing, and takes its time for it: streams run side by side, each in its order.

    Args:
        graph_seconds: what a graph of `STEP_NODES` nodes or more takes. Other work takes none, but copies of bytes.

    Attributes:
        calls: how often streams were given work, by name.
    """

    def __init__(self, graph_seconds: float):
        super().__init__()
        self.calls: Counter[str] = Counter()
        self._graph_seconds = graph_seconds
        self._busy_until: dict[int, float] = {}
        self._event_times: dict[int, float] = {}
        self._locked: list[tuple[int, int]] = []

    def _given(self, stream: int, seconds: float) -> None:
        self._busy_until[stream] = max(time.perf_counter(), self._busy_until.get(stream, 0.0)) + seconds

    def graph_call(self, graph: Any, stream: Any) -> Callable[[], None]:
        """A call of `launch_graph`."""
        return partial(self.launch_graph, graph, stream)

    def launch_graph(self, graph: Any, stream: Any) -> None:
        """The stream is busy for as long as a graph takes."""
        self.calls["graph"] += 1
        self._given(stream, self._graph_seconds if len(graph.nodes) >= STEP_NODES else 0.0)

    def launch_call(self, prepared: Any, stream: Any) -> Callable[[], None]:
        """A call of `launch`."""
        return partial(self.launch, prepared, stream)

    def launch(self, prepared: Any, stream: Any) -> None:
        """No time, behind what was given before."""
        self.calls["launch"] += 1

    def update_node(self, graph: Any, number: int, work: Any) -> None:
        """Counted."""
        self.calls["update"] += 1
        super().update_node(graph, number, work)

    def alloc_host(self, nbytes: int) -> int:
        """Memory whose copies are quick, and wait for nothing."""
        address = super().alloc_host(nbytes)
        self._locked.append((address, address + nbytes))
        return address

    def _is_locked(self, host: int) -> bool:
        return any(start <= host < end for start, end in self._locked)

    def copy_to_device(self, address: int, host: int, nbytes: int, stream: Any) -> None:
        """Time by bytes; nobody waits."""
        self.calls["to device"] += 1
        self._given(stream, nbytes / COPY_RATE["page-locked"])

    def copy_to_host(self, host: int, address: int, nbytes: int, stream: Any) -> None:
        """Time by bytes; to pageable memory it returns when it has ended."""
        self.calls["to host"] += 1
        locked = self._is_locked(host)
        self._given(stream, nbytes / COPY_RATE["page-locked" if locked else "pageable"])
        if not locked:
            self.synchronize_stream(stream)
        super().copy_to_host(host, address, nbytes, stream)

    def record_call(self, event: Any, stream: Any) -> Callable[[], None]:
        """A call of `record_event`."""
        return partial(self.record_event, event, stream)

    def record_event(self, event: Any, stream: Any) -> None:
        """The event happens when the stream is done with what it has."""
        self._event_times[event] = self._busy_until.get(stream, 0.0)

    def destroy_event(self, event: Any) -> None:
        """Forgotten."""
        self._event_times.pop(event, None)

    def wait_event(self, stream: Any, event: Any) -> None:
        """The stream's later work begins no sooner."""
        self._busy_until[stream] = max(self._busy_until.get(stream, 0.0), self._event_times.get(event, 0.0))

    def event_is_done(self, event: Any) -> bool:
        """By the clock."""
        return self._event_times.get(event, 0.0) <= time.perf_counter()

    def stream_is_done(self, stream: Any) -> bool:
        """By the clock."""
        return self._busy_until.get(stream, 0.0) <= time.perf_counter()

    def synchronize_event(self, event: Any) -> None:
        """Sleep."""
        self._wait(self._event_times.get(event, 0.0))

    def synchronize_stream(self, stream: Any) -> None:
        """Sleep."""
        self._wait(self._busy_until.get(stream, 0.0))

    def synchronize(self) -> None:
        """Sleep until all streams are done."""
        self.calls["synchronize"] += 1
        self._wait(max(self._busy_until.values(), default=0.0))

    def _wait(self, until: float) -> None:
        self.calls["wait"] += 1
        left = until - time.perf_counter()
        if left > 0:
            time.sleep(left)


class _IdleBindings:
    """`cuda.bindings.driver`, as far as `CudaDriver` asks it: every call succeeds and answers a new number."""

    CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_DEVICE=2)
    CUevent_flags = SimpleNamespace(CU_EVENT_DEFAULT=0, CU_EVENT_DISABLE_TIMING=2)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUmemLocationType = SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE=1)
    CUmemAllocationType = SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED=1)
    CUmemAccess_flags = SimpleNamespace(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                                           CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT=9)
    CUgraphDependencyType = SimpleNamespace(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC=1)
    CUresult = SimpleNamespace(CUDA_ERROR_NOT_READY=600, CUDA_ERROR_OUT_OF_MEMORY=2)
    CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1, 2, 1
    CUDA_KERNEL_NODE_PARAMS = CUDA_MEMCPY3D = CUgraphEdgeData = SimpleNamespace

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._free = ALIGNMENT
        self._pinned: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., tuple[int, ...]]:
        """A call without an answer, or with a handle for one."""
        if not name.startswith("cu"):
            raise AttributeError(name)
        answers = any(part in name for part in ("Create", "Add", "Load", "GetFunction", "Instantiate"))
        numbers = self._numbers
        call = (lambda *args: (0, next(numbers))) if answers else (lambda *args: (0,))
        setattr(self, name, call)
        return call

    @staticmethod
    def CUmemAllocationProp() -> Any:
        """What memory is asked for."""
        return SimpleNamespace(location=SimpleNamespace())

    CUmemAccessDesc = CUmemAllocationProp

    @staticmethod
    def cuGetProcAddress(name: bytes, version: int, flags: int) -> tuple[int, int, int]:
        """A function of C that gives 0 for any arguments: dlerror, as there is no error."""
        return 0, address_of_function(ctypes.CDLL(None).dlerror), 0

    def cuMemAlloc(self, nbytes: int) -> tuple[int, int]:
        """Addresses that nothing is at."""
        start = self._free
        self._free += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return 0, start

    def cuMemAddressReserve(self, nbytes: int, *options: int) -> tuple[int, int]:
        """The same."""
        return self.cuMemAlloc(nbytes)

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple[int, int]:
        """Memory that is there: the host reads it."""
        self._pinned.append(ctypes.create_string_buffer(nbytes))
        return 0, ctypes.addressof(self._pinned[-1])

    def cuMemcpyDtoHAsync(self, host: int, address: int, nbytes: int, stream: Any) -> tuple[int]:
        """Zeros."""
        ctypes.memset(host, 0, nbytes)
        return 0,

    def cuMemGetInfo(self) -> tuple[int, int, int]:
        """Nothing is taken."""
        return 0, MEMORY, MEMORY

    def cuEventElapsedTime(self, start: Any, end: Any) -> tuple[int, float]:
        """No time passes."""
        return 0, 0.0


class IdleBackend(FakeCUDABackend):
    """Kernels as text only."""

    def compile(self, sources: Sequence[KernelSource]) -> list[KernelImage]:
        """Nothing is made of them."""
        return [KernelImage(s.name, b"", s.num_warps, 0, s.source) for s in sources]


@contextmanager
def idle_gpu(graph_seconds: float = 0.0) -> Iterator[IdleDriver]:
    """Inside, "cuda" is an idle GPU; with `graph_seconds` a `PacedDriver`. Plans made inside are forgotten."""
    driver = PacedDriver(graph_seconds) if graph_seconds else IdleDriver()
    with IdleBackend(driver):
        try:
            yield driver
        finally:
            engine.reset()
