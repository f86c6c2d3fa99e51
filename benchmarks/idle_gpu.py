"""A GPU that does nothing: what is left of a program's time on it is the host's.

`IdleDriver` is `CudaDriver` over bindings that answer at once: it packs arguments, adds nodes to graphs and updates
them with the code that runs on a real GPU, but nothing behind cuda-python is called. Kernels are generated and never
compiled. All values read back are 0.

    with idle_gpu():
        ...                        # device="cuda"
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from genesis import engine
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.cuda.cuda_python_driver import CudaDriver
from genesis.runtime.fake_cuda.driver import SAID_BY_AN_H200
from genesis.runtime.plan import KernelImage

if TYPE_CHECKING:
    from genesis.codegen.cuda.source import KernelSource

MEMORY: Final = 141 << 30
ALIGNMENT: Final = 512


class IdleDriver(CudaDriver):
    """One GPU with the size of an H200 and nothing in it."""

    def __init__(self) -> None:
        self._cuda: Any = _IdleBindings()
        self._count = 1
        self._contexts: dict[int, Any] = {0: 0}
        self._properties = {0: replace(SAID_BY_AN_H200, name="idle", total_memory=MEMORY)}
        self._thread = threading.local()

    def encode_map(self, *parts: Any) -> None:
        """Nothing: images that were never compiled do not know how their blocks lie."""


class _IdleBindings:
    """`cuda.bindings.driver`, as far as `CudaDriver` asks it: every call succeeds and answers a new number."""

    CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_DEVICE=2)
    CUevent_flags = SimpleNamespace(CU_EVENT_DEFAULT=0, CU_EVENT_DISABLE_TIMING=2)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUmemLocationType = SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE=1)
    CUmemAllocationType = SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED=1)
    CUmemAccess_flags = SimpleNamespace(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUgraphDependencyType = SimpleNamespace(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC=1)
    CUresult = SimpleNamespace(CUDA_ERROR_NOT_READY=600, CUDA_ERROR_OUT_OF_MEMORY=2)
    CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1, 2, 1
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6)
    CUDA_KERNEL_NODE_PARAMS = CUDA_MEMCPY3D = CUgraphEdgeData = SimpleNamespace
    CUlaunchAttribute = CUlaunchAttributeValue = CUlaunchConfig = SimpleNamespace

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
def idle_gpu() -> Iterator[IdleDriver]:
    """Inside, "cuda" is an idle GPU. Plans made inside are forgotten."""
    driver = IdleDriver()
    with IdleBackend(driver):
        try:
            yield driver
        finally:
            engine.reset()
