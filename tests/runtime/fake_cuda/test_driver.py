"""The host driver refuses what CUDA refuses, and interprets what the emitter writes."""

from __future__ import annotations

import numpy as np
import pytest

from genesis.ir.types import bool_, float32, int32
from genesis.runtime.cuda.driver import DeviceCopy, DriverError, DriverOutOfMemory, GraphNode, Pointer
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.fake_cuda.interpreter import bind, load_source
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


class Given(list):
    """Arguments of a launch that nobody packs."""

    address = 0

    def described(self) -> list[Pointer | int]:
        return self


def pointer(array: np.ndarray, dtype=float32) -> Pointer:
    return Pointer(array.ctypes.data, dtype)


def run_softplus(driver: HostDriver, stream) -> tuple[np.ndarray, np.ndarray]:
    """(what the kernel wrote, what it should have)"""
    x = np.linspace(-3, 3, 10, dtype=np.float32).reshape(2, 5)
    keep = np.array([[1, 0, 1, 1, 0], [0, 0, 1, 1, 1]], bool)
    sums = np.full(2, np.nan, np.float32)
    arguments = [pointer(x), pointer(keep, bool_), pointer(sums), 5]
    driver.launch(driver.prepare_launch(driver.load_kernel(IMAGE), IMAGE, (2, 1, 1), Given(arguments)), stream)
    return sums, 2 * np.where(keep, np.log1p(np.exp(x)), 0).sum(1)


def test_libdevice_reductions_helpers_and_constexprs_are_interpreted():
    driver = HostDriver()
    got, wanted = run_softplus(driver, driver.create_stream())
    assert np.allclose(got, wanted, rtol=1e-6)  # two roundings to float32 a term, and a sum of five


ALONG_AXIS = '''
import triton
import triton.language as tl


@triton.jit
def steps(a, x, b, y):
    return a * b, b * x + y


@triton.jit
def scanned(x_ptr, a_ptr, down_ptr, back_ptr, parity_ptr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x, a = tl.load(x_ptr + at), tl.load(a_ptr + at)
    _, down = tl.associative_scan((a, x), 0, steps)
    _, back = tl.associative_scan((a, x), 1, steps, reverse=True)
    tl.store(down_ptr + at, down)
    tl.store(back_ptr + at, back)
    tl.store(parity_ptr + tl.arange(0, ROWS), tl.xor_sum(x, 1))
'''


def test_a_scan_and_a_reduction_by_any_function() -> None:
    """v → a·v + x from place to place, along either axis and backwards. Two launches, one after the other."""
    kernel = load_source(ALONG_AXIS).scanned
    x, a = (np.random.default_rng(seed).integers(-3, 4, (4, 8)).astype(np.int32) for seed in (0, 1))
    down, back, parity = np.zeros((4, 8), np.int32), np.zeros((4, 8), np.int32), np.zeros(4, np.int32)
    run = bind(kernel, (1, 1, 1), [pointer(array, int32) for array in (x, a, down, back, parity)],
               {"ROWS": 4, "BLOCK": 8})
    for _ in range(2):
        run()
        state = np.zeros(8, np.int32)
        for row in range(4):
            state = a[row] * state + x[row]
            np.testing.assert_array_equal(down[row], state)
        state = np.zeros(4, np.int32)
        for column in reversed(range(8)):
            state = a[:, column] * state + x[:, column]
            np.testing.assert_array_equal(back[:, column], state)
        np.testing.assert_array_equal(parity, np.bitwise_xor.reduce(x, 1))
        x += 1


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
        driver.prepare_launch(kernel, IMAGE, (1, 1, 1), Given([1]))
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
        launch = driver.prepare_launch(driver.load_kernel(IMAGE), IMAGE, (2, 1, 1), Given([*arguments, 5]))
        driver.launch(launch, None)
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


def test_a_graph_is_done_in_the_order_that_its_edges_allow_least():
    driver = HostDriver()
    stream = driver.create_stream()
    a, b, c = (driver.alloc(512) for _ in range(3))
    driver.fill(a, 1, 512, stream)
    host = np.zeros(512, np.uint8)

    def last_byte(*edges: tuple[int, ...]) -> int:
        """What c holds after a → b, b → c with these edges."""
        driver.fill(b, 0, 512, stream)
        driver.launch_graph(driver.build_graph([GraphNode(DeviceCopy(b, a, 512), edges[0], False),
                                                GraphNode(DeviceCopy(c, b, 512), edges[1], False)]), stream)
        driver.copy_to_host(host.ctypes.data, c, 512, stream)
        return int(host[0])
    assert last_byte((), (0,)) == 1
    assert last_byte((), ()) == 0
    with pytest.raises(DriverError, match="node 0 after"):
        last_byte((1,), ())


def test_memory_is_mapped_into_a_reserved_range():
    driver = HostDriver(memory_bytes=6 << 20)
    start = driver.reserve_range(64 << 20)
    with pytest.raises(DriverError, match="not device memory"):
        driver.copy(start, start, 1, None)
    for piece in range(3):
        driver.map_memory(start + (piece << 21), 1 << 21)
    driver.fill(start, 7, 6 << 20, None)
    with pytest.raises(DriverOutOfMemory):
        driver.map_memory(start + (6 << 20), 1 << 21)
    assert driver.mem_get_info() == (0, 6 << 20)
    driver.unmap_memory(start + (2 << 20), 4 << 20)
    assert driver.mem_get_info() == (4 << 20, 6 << 20)
    for address, nbytes in [(start + 512, 1 << 21), (start + (2 << 20), 512), (start + (64 << 20), 1 << 21)]:
        with pytest.raises(DriverError, match="cuMemMap"):
            driver.map_memory(address, nbytes)
