"""The host driver refuses what CUDA refuses, and interprets what the emitter writes."""

from __future__ import annotations

import numpy as np
import pytest

from genesis.ir.types import bool_, float32
from genesis.runtime.driver import DriverError, DriverOutOfMemory, Pointer
from genesis.runtime.host_driver import HostDriver
from genesis.runtime.plan import KernelImage

SOURCE = '''
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def twice(x):
    return x + x


@triton.jit
def softplus_rows(x_ptr, keep_ptr, sums_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    inside = index < columns
    x = tl.load(x_ptr + row * columns + index, mask=inside, other=0.0)
    keep = tl.load(keep_ptr + row * columns + index, mask=inside, other=False)
    y = tl.where(keep, libdevice.log1p(libdevice.exp(x)), tl.zeros([BLOCK], tl.float32))
    tl.store(sums_ptr + row, twice(tl.sum(y, axis=0)))

CONSTEXPRS = {"BLOCK": 8}
'''
IMAGE = KernelImage("softplus_rows", b"", 4, 0, SOURCE)


def pointer(array: np.ndarray, dtype=float32) -> Pointer:
    return Pointer(array.ctypes.data, dtype)


def run_softplus(driver: HostDriver, stream) -> tuple[np.ndarray, np.ndarray]:
    """(what the kernel wrote, what it should have)"""
    x = np.linspace(-3, 3, 10, dtype=np.float32).reshape(2, 5)
    keep = np.array([[1, 0, 1, 1, 0], [0, 0, 1, 1, 1]], bool)
    sums = np.full(2, np.nan, np.float32)
    arguments = [pointer(x), pointer(keep, bool_), pointer(sums), 5]
    driver.launch(driver.prepare_launch(driver.load_kernel(IMAGE), IMAGE, (2, 1, 1), arguments), stream)
    return sums, 2 * np.where(keep, np.log1p(np.exp(x)), 0).sum(1)


def test_libdevice_reductions_helpers_and_constexprs_are_interpreted():
    driver = HostDriver()
    got, wanted = run_softplus(driver, driver.create_stream())
    assert np.allclose(got, wanted, rtol=1e-6)  # two roundings to float32 a term, and a sum of five


def test_interpreting_leaves_the_compiler_as_it_was():
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice
    places = (tl, tl.core, tl.math, tl.standard, tl.tensor, libdevice)
    before = [dict(vars(place)) for place in places]
    interprets = triton.knobs.runtime.interpret
    driver = HostDriver()
    run_softplus(driver, driver.create_stream())
    for place, names in zip(places, before, strict=True):
        assert all(vars(place)[name] is value for name, value in names.items())
    assert triton.knobs.runtime.interpret == interprets


def test_wrong_arguments_are_refused():
    driver = HostDriver()
    kernel = driver.load_kernel(IMAGE)
    with pytest.raises(DriverError, match="takes 4 arguments"):
        driver.prepare_launch(kernel, IMAGE, (1, 1, 1), [1])
    with pytest.raises(DriverError, match="no kernel 'missing'"):
        driver.load_kernel(KernelImage("missing", b"", 4, 0, SOURCE))


@pytest.mark.parametrize("short", ["x", "sums"])
def test_an_access_outside_the_arguments_is_refused(short):
    """A read or a write of the element behind what an argument points to; a masked one is none."""
    driver = HostDriver()
    memory = {"x": np.zeros(10, np.float32), "keep": np.zeros(10, bool), "sums": np.zeros(2, np.float32)}

    def launch(known: dict[str, int]) -> None:
        arguments = [Pointer(x.ctypes.data, bool_ if x.dtype == bool else float32,
                             ((x.ctypes.data, x.ctypes.data + known[name]),)) for name, x in memory.items()]
        driver.launch(driver.prepare_launch(driver.load_kernel(IMAGE), IMAGE, (2, 1, 1), [*arguments, 5]), None)
    sizes = {name: x.nbytes for name, x in memory.items()}
    launch(sizes)
    with pytest.raises(DriverError, match=r"1 of . accesses are outside the kernel's arguments"):
        launch({**sizes, short: sizes[short] - 4})


def test_memory_is_poisoned_limited_and_checked():
    driver = HostDriver(memory_bytes=4096)
    address = driver.alloc(1024)
    host = np.zeros(1024, np.uint8)
    driver.copy_to_host(host.ctypes.data, address, 1024, None)
    assert set(host) == {0xFF}
    with pytest.raises(DriverOutOfMemory, match="CUDA_ERROR_OUT_OF_MEMORY"):
        driver.alloc(4000)
    with pytest.raises(DriverError, match="not device memory"):
        driver.copy(address + 1, address, 1024, None)
    driver.free(address)
    with pytest.raises(DriverError, match="was not allocated"):
        driver.free(address)
    assert driver.mem_get_info() == (4096, 4096)


def test_a_capture_notes_and_forbids_waiting():
    driver = HostDriver()
    stream = driver.create_stream()
    a, b = driver.alloc(512), driver.alloc(512)
    driver.begin_capture(stream)
    driver.fill(a, 1, 512, stream)
    driver.copy(b, a, 512, stream)
    for forbidden in (driver.synchronize, lambda: driver.alloc(512), lambda: driver.free(a),
                      lambda: driver.synchronize_stream(stream)):
        with pytest.raises(DriverError, match="STREAM_CAPTURE"):
            forbidden()
    graph = driver.end_capture(stream)
    host = np.zeros(512, np.uint8)
    for expected in (0xFF, 1):
        driver.copy_to_host(host.ctypes.data, b, 512, stream)
        assert set(host) == {expected}
        driver.launch_graph(graph, stream)
