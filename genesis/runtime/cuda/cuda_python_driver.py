"""The GPU behind the `Driver` contract, through cuda-python; and the process's one driver.

`cuda_python_calls` is what all calls have in common, `cuda_python_launches` starts kernels, `cuda_python_graphs` makes
CUDA graphs of them, `cuda_python_streams` orders them; here are memory and copies.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter, call
from typing import Final, ParamSpec, TypeVar, cast

from genesis.ir.types import DType
from genesis.runtime.contexts import in_order
from genesis.runtime.cuda.c_functions import CFunction
from genesis.runtime.cuda.cuda_python_graphs import GraphCalls
from genesis.runtime.cuda.cuda_python_launches import LaunchCalls
from genesis.runtime.cuda.driver import MAP_BYTES, Call, Driver, StreamHandle

P = ParamSpec("P")
T = TypeVar("T")


class CudaDriver(LaunchCalls, GraphCalls):
    """The GPUs of this machine.

    Raises:
        RuntimeError: cuda-python is missing, the NVIDIA driver is missing, or there is no GPU.
    """

    poisons = False

    def synchronize(self) -> None:
        """Wait until the GPU has nothing left to do."""
        self._check("cuCtxSynchronize", self._cuda.cuCtxSynchronize())

    def synchronize_call(self) -> Call:
        """A call that does `synchronize`."""
        return self._synchronize

    @functools.cached_property
    def _synchronize(self) -> CFunction:
        return self._c_function("cuCtxSynchronize")

    def alloc(self, nbytes: int) -> int:
        """The address of fresh device memory."""
        return int(self._check("cuMemAlloc", self._cuda.cuMemAlloc(nbytes)))

    def free(self, address: int) -> None:
        """Give back what `alloc` returned."""
        self._check("cuMemFree", self._cuda.cuMemFree(address))

    def alloc_call(self, nbytes: int, into: Callable[[int], object]) -> Call:
        """A call that hands the address of fresh device memory over; it is made once."""
        address = ctypes.c_uint64()
        alloc = functools.partial(self._alloc, ctypes.byref(address), ctypes.c_size_t(nbytes))
        return functools.partial(in_order, chain(map(call, (alloc,)), map(into, map(attrgetter("value"), (address,)))))

    @functools.cached_property
    def _alloc(self) -> CFunction:
        return self._c_function("cuMemAlloc")

    def free_call(self, address: int) -> Call:
        """A call that gives back what was allocated."""
        return functools.partial(self._free, ctypes.c_uint64(address))

    @functools.cached_property
    def _free(self) -> CFunction:
        return self._c_function("cuMemFree")

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

    def copy_call(self, destination: int, source: int, nbytes: int, stream: StreamHandle) -> Call:
        """A call that copies device to device."""
        return functools.partial(self._copy, ctypes.c_uint64(destination), ctypes.c_uint64(source),
                                 ctypes.c_size_t(nbytes), ctypes.c_void_p(int(stream)))

    @functools.cached_property
    def _copy(self) -> CFunction:
        return self._c_function("cuMemcpyDtoDAsync")

    def fill(self, address: int, byte: int, nbytes: int, stream: StreamHandle) -> None:
        """Set every byte of a range of memory."""
        self._check("cuMemsetD8Async", self._cuda.cuMemsetD8Async(address, byte, nbytes, stream))

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
