"""What a GPU's stream is given in the loop that overwrites memory and tells its storages: calls of C, all through.

The driver is the real one, over bindings whose functions are in this file: what CUDA would do, it writes down.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
from collections.abc import Callable
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from genesis.frontend.at_once import at_once, changes
from genesis.runtime.cuda.c_functions import address_of_function
from genesis.runtime.cuda.cuda_python_driver import CudaDriver
from genesis.runtime.cuda.cuda_python_graphs import CudaGraph
from genesis.runtime.cuda.driver import DriverError, DriverOutOfMemory
from genesis.runtime.overlap import Overlap

P, U = ctypes.c_void_p, ctypes.c_uint64


class Bindings:
    """`cuda.bindings.driver`, as far as a launch wants it.

    Attributes:
        given: what each of CUDA's functions was called with, in order.
        status: what they say.
        machine: the code that stands for the GPU.
    """

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []
        self.status, self.machine = 0, set[CodeType]()
        self._functions: list[object] = []
        self.CUresult = lambda status: SimpleNamespace(
            name={1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY"}[status], number=status)
        self.CUresult.CUDA_ERROR_OUT_OF_MEMORY = None  # type: ignore[attr-defined]

    def cuGetErrorString(self, status: Any) -> tuple[int, bytes]:
        return 0, f"what {status.number} means".encode()

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> tuple[int, int, int]:
        kinds = {"cuLaunchKernelEx": (P, P, P, P), "cuGraphLaunch": (P, P), "cuMemcpyDtoDAsync": (U, U, U, P),
                 "cuEventRecord": (P, P)}[name.decode()]

        def run(*given: Any) -> int:
            if len(given) == 4 and kinds[0] is P:  # a launch's configuration is only there while CUDA looks at it
                given = ctypes.string_at(given[0], 56), *given[1:]
            self.given.append((name.decode(), *given))
            return self.status
        self.machine |= {run.__code__, ctypes.string_at.__code__}
        function = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(run)
        self._functions.append(function)
        return 0, address_of_function(function), 0


@pytest.fixture
def bindings() -> Bindings:
    return Bindings()


@pytest.fixture
def gpu(bindings: Bindings) -> CudaDriver:
    found = object.__new__(CudaDriver)
    found._cuda = bindings  # type: ignore[assignment]
    return found


IMAGE = SimpleNamespace(num_warps=4, shared_bytes=2048, overlap=Overlap.WAITS_FIRST)
STREAM, OTHER = 7, 9


def calls(gpu: CudaDriver) -> list[Callable[[], object]]:
    launch = gpu.prepare_launch(11, IMAGE, (5, 6, 1), SimpleNamespace(address=13))  # type: ignore[arg-type]
    graph: Any = CudaGraph(17, 18, [], [])  # type: ignore[arg-type]
    return [gpu.launch_call(launch, STREAM), gpu.graph_call(graph, STREAM),
            gpu.copy_call(19, 1 << 40, 1 << 33, STREAM), gpu.record_call(23, STREAM)]


def test_no_line_of_python_runs_from_the_first_launch_to_the_last_storage_that_is_told(gpu, bindings):
    """cuda-python's own functions make a status in Python, behind CUDA's return: a signal came in there."""
    storage = SimpleNamespace()
    loop = changes(calls(gpu), [(setattr, storage, "told", True)])
    entered: list[str] = []

    def enters(frame: Any, event: str, argument: Any) -> None:
        if frame.f_code not in bindings.machine:
            entered.append(frame.f_code.co_qualname)
    sys.settrace(enters)
    at_once(loop)
    sys.settrace(None)
    assert entered == [] and storage.told
    assert [name for name, *_ in bindings.given] == ["cuLaunchKernelEx", "cuGraphLaunch", "cuMemcpyDtoDAsync",
                                                     "cuEventRecord"]


def test_each_call_gives_cuda_what_it_should(gpu, bindings):
    for call in calls(gpu):
        call()
    (_, config, *kernel), *others = bindings.given
    *shape, stream, attributes, count = struct.unpack("=7I4xQQI4x", config)
    assert shape == [5, 6, 1, 4 * 32, 1, 1, 2048] and stream == STREAM and count == 1
    assert struct.unpack("=I4xi", ctypes.string_at(attributes, 12)) == (6, 1)
    assert kernel == [11, 13, None]
    assert others == [("cuGraphLaunch", 17, STREAM),
                      ("cuMemcpyDtoDAsync", 19, 1 << 40, 1 << 33, STREAM),
                      ("cuEventRecord", 23, STREAM)]


def test_a_launch_that_is_not_early_has_no_attribute(gpu, bindings):
    launch = gpu.prepare_launch(11, IMAGE, (5, 1, 1), SimpleNamespace(address=13), early=False)
    gpu.launch_call(launch, STREAM)()
    assert struct.unpack("=7I4xQQI4x", bindings.given[0][1])[-1] == 0


@pytest.mark.parametrize("number", range(4))
def test_a_status_that_is_not_success_is_an_error_and_nothing_is_told(gpu, bindings, number):
    storage, call = SimpleNamespace(), calls(gpu)[number]
    bindings.status = 1
    try:
        with pytest.raises(DriverError, match=r"^cu\w+ failed: CUDA_ERROR_INVALID_VALUE: what 1 means$") as caught:
            at_once(changes([call], [(setattr, storage, "told", True)]))
    finally:
        gc.enable()  # as the engine does behind changes that fail
    assert caught.value.call == bindings.given[0][0] and caught.value.status == "CUDA_ERROR_INVALID_VALUE"
    assert not hasattr(storage, "told")
    bindings.status = 0
    at_once(changes([call], [(setattr, storage, "told", True)]))
    assert storage.told, "the call may be made again"


def test_a_gpu_without_memory_left_says_so(gpu, bindings):
    bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY = status = bindings.CUresult(2)
    made, bindings.CUresult = bindings.CUresult, lambda number: status
    bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY = made.CUDA_ERROR_OUT_OF_MEMORY
    bindings.status = 2
    with pytest.raises(DriverOutOfMemory, match="cuGraphLaunch"):
        calls(gpu)[1]()


def test_a_launch_and_a_graph_are_made_ready_once_for_a_stream(gpu, bindings):
    """A call that was made ready for one stream goes there, also when the next one is for another."""
    launch = gpu.prepare_launch(11, IMAGE, (5, 1, 1), SimpleNamespace(address=13))
    graph: Any = CudaGraph(17, 18, [], [])  # type: ignore[arg-type]
    for ready in (lambda stream: gpu.launch_call(launch, stream), lambda stream: gpu.graph_call(graph, stream)):
        first = ready(STREAM)
        assert ready(STREAM) is first
        other = ready(OTHER)
        bindings.given.clear()
        for call in (first, other, ready(STREAM)):
            call()
        streams = [struct.unpack("=7I4xQQI4x", given[1])[7] if given[0] == "cuLaunchKernelEx" else given[2]
                   for given in bindings.given]
        assert streams == [STREAM, OTHER, STREAM]
