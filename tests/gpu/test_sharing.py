"""GPU memory shared with other libraries: nothing is copied, each side's work waits for the other's, addresses stay."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.frontend import storage
from genesis.ir.types import Device
from genesis.runtime import dlpack
from genesis.runtime.cuda import cuda_python_driver, foreign
from genesis.runtime.fake_cuda.driver import HostDriver

from .compare import array, numbers
from .conftest import CudaUnderTest

GPU = Device("cuda")


def on_cuda(values) -> genesis.Tensor:
    return genesis.tensor(values, device="cuda")


def test_a_capsule_shares_the_memory(cuda):
    x = on_cuda(numbers(3, 4))
    y = genesis.from_dlpack(x.t()[1:].__dlpack__(stream=-1))
    assert x.__dlpack_device__() == (2, 0) and y.device.type == "cuda" and y.stride() == (1, 4)
    assert y.data_ptr() == x.data_ptr() + 4
    np.testing.assert_array_equal(array(y), numbers(3, 4).T[1:])
    y.mul_(2)
    np.testing.assert_array_equal(array(x)[:, 1:], 2 * numbers(3, 4)[:, 1:])
    x[0] = -1
    assert array(y)[:, 0].tolist() == [-1] * 3


@pytest.mark.parametrize(("begin", "dtype", "part"), [
    (1, "float32", lambda x: x), (3, "bfloat16", lambda x: x[:, 1:]), (5, "uint8", lambda x: x.T)])
def test_memory_that_begins_between_two_vectors(cuda, begin, dtype, part):
    """As a slice of another library's does. Kernels are told that memory begins at a multiple of 16 bytes."""
    values = np.abs(numbers(900) * 9).round()
    x = on_cuda(values).to(getattr(genesis, dtype))
    mine = part(x[begin:begin + 800].view(8, 100))
    y = genesis.from_dlpack(mine.__dlpack__(stream=-1))
    assert engine.memory_of(y).ptr % 16 == 0
    assert y.data_ptr() == mine.data_ptr() and y.shape == mine.shape and y.stride() == mine.stride()
    np.testing.assert_array_equal(array(y.float() + 1), array(mine.float() + 1))
    y.add_(1)
    expected = values.copy()
    shown = part(expected[begin:begin + 800].reshape(8, 100))
    shown += 1
    np.testing.assert_array_equal(array(x.float()), expected)


def test_what_was_recorded_before_a_foreign_write_keeps_its_value(cuda):
    x = on_cuda(numbers(4))
    before = x * 2
    other = genesis.from_dlpack(x.__dlpack__(stream=-1))
    after = x + 1
    other.fill_(0)
    np.testing.assert_array_equal(array(before), numbers(4) * 2)
    np.testing.assert_array_equal(array(after), numbers(4) + 1)
    assert array(x).tolist() == [0] * 4


def test_an_address_that_was_given_away_stays(cuda):
    """Plans that run again write their outputs elsewhere while somebody has the old ones."""
    x, kept = on_cuda(numbers(5)), []
    for step in range(5):
        y = x * float(step)
        kept.append((y, y.data_ptr(), y.__dlpack__(stream=-1)))
    for step, (y, address, _) in enumerate(kept):
        assert y.data_ptr() == address
        np.testing.assert_array_equal(array(y), numbers(5) * np.float32(step))


def test_memory_lives_as_long_as_the_capsule(cuda):
    before = genesis.cuda.memory_allocated()
    x = on_cuda(numbers(1000))
    capsule = x.__dlpack__(stream=-1)
    del x
    gc.collect()
    assert genesis.cuda.memory_allocated() > before
    y = genesis.from_dlpack(capsule)
    np.testing.assert_array_equal(array(y), numbers(1000))
    del y, capsule
    gc.collect()
    genesis.cuda.synchronize()
    foreign._drop_finished()
    assert genesis.cuda.memory_allocated() == before


def test_the_host_can_have_a_copy(cuda):
    x = on_cuda(numbers(2, 3))
    for there in (np.from_dlpack(x, device="cpu"), np.asarray(x), x.numpy(force=True)):
        np.testing.assert_array_equal(there, numbers(2, 3))
    with pytest.raises(BufferError, match="cannot be shared"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    back = genesis.from_dlpack(numbers(2, 3), device="cuda")
    np.testing.assert_array_equal(array(back), numbers(2, 3))
    with pytest.raises(TypeError, match=r"tensor.cpu\(\)"):
        x.numpy()


def test_the_array_interface(cuda):
    x = on_cuda(numbers(3, 4))
    shown = x.t().__cuda_array_interface__
    assert shown["shape"] == (4, 3) and shown["strides"] == (4, 16) and shown["typestr"] == "<f4"
    assert shown["data"] == (x.data_ptr(), False) and shown["version"] == 3 and shown["stream"] > 0
    assert x.__cuda_array_interface__["strides"] is None
    assert x.bfloat16().__cuda_array_interface__["typestr"] == "<V2"
    with pytest.raises(RuntimeError, match="require gradient"):
        genesis.ones(2, device="cuda", requires_grad=True).__cuda_array_interface__  # noqa: B018


def test_copies_and_pickles(cuda):
    x = on_cuda(numbers(2, 3)).requires_grad_()
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert again.device == x.device and again.requires_grad
        np.testing.assert_array_equal(array(again), numbers(2, 3))
    pair = pickle.loads(pickle.dumps([x.detach(), x.detach()[1:]]))
    pair[0].zero_()
    assert array(pair[1]).tolist() == [[0, 0, 0]]


class Library:
    """Another library's work on the lazy host driver: bytes set on a stream of its own, as late as possible."""

    def __init__(self, driver: HostDriver, number: int):
        self.driver, self.stream = driver, driver.foreign_stream(number)

    def fill(self, address: int, value: float, count: int) -> None:
        """Write the number to all elements, in the stream's order."""
        values = (ctypes.c_float * count)(*[value] * count)
        self.stream.give(lambda: ctypes.memmove(address, values, ctypes.sizeof(values)))

    def read(self, address: int, count: int) -> list[float]:
        """What the stream sees when it is done with all it was given."""
        found = (ctypes.c_float * count)()
        self.stream.give(lambda: ctypes.memmove(found, address, ctypes.sizeof(found)))
        self.stream.catch_up(self.stream.given)
        return list(found)


@pytest.fixture
def lazy_cuda(host_cuda: HostDriver) -> HostDriver:
    """A host driver whose streams do their work as late as they may."""
    driver = HostDriver(memory_bytes=64 << 20, lazy=True)
    cuda_python_driver.install(driver)
    return driver


def test_the_other_stream_waits_for_our_work_and_ours_for_its(lazy_cuda):
    library = Library(lazy_cuda, 77)
    x = on_cuda(numbers(4)) * 2
    address = x.data_ptr()
    capsule = x.__dlpack__(stream=77)
    assert library.read(address, 4) == (numbers(4) * 2).tolist()
    library.fill(address, 5.0, 4)
    y = x + 1
    library.fill(address, 50.0, 4)
    assert array(y).tolist() == [6] * 4, "read between two writes of the other library"
    x.mul_(3)
    assert library.read(address, 4) == [150] * 4
    library.fill(address, 7.0, 4)
    assert array(x).tolist() == [7] * 4
    del capsule


def test_large_memory_is_read_at_once_and_in_order(lazy_cuda, monkeypatch):
    monkeypatch.setattr(storage, "SNAPSHOT_BYTES", 0)
    library = Library(lazy_cuda, 77)
    x = on_cuda(numbers(8))
    capsule = x.__dlpack__(stream=77)
    for value in (1.0, 2.0, 3.0):
        library.fill(x.data_ptr(), value, 8)
        y = x * 10
        library.fill(x.data_ptr(), -1.0, 8)
        assert array(y).tolist() == [value * 10] * 8
    del capsule


def test_given_back_memory_is_not_used_before_the_other_library_is_done(lazy_cuda):
    library = Library(lazy_cuda, 77)
    x = on_cuda(numbers(128))
    address = x.data_ptr()
    capsule = x.__dlpack__(stream=77)
    library.fill(address, 9.0, 128)  # not done yet when the memory comes back
    del x, capsule
    gc.collect()
    fresh = on_cuda(numbers(128, seed=1))
    assert fresh.data_ptr() == address
    for _ in range(2):
        np.testing.assert_array_equal(array(fresh), numbers(128, seed=1))
        library.stream.catch_up(library.stream.given)


def test_foreign_memory_is_kept_until_our_work_is_done(lazy_cuda):
    class Owner:
        """Notes its end."""

        alive = True

        def __del__(self) -> None:
            Owner.alive = False
    memory = lazy_cuda.alloc(512)
    given = dlpack.Described(memory, (4,), (1,), genesis.float32, GPU, owner=Owner())
    library = Library(lazy_cuda, foreign.LEGACY_STREAM)
    library.fill(memory, 3.0, 4)
    x = genesis.from_dlpack(dlpack.capsule_of(given, versioned=False))
    del given
    y = x * 2
    genesis.eval(y)
    del x
    gc.collect()
    assert Owner.alive, "the GPU has not read it yet"
    assert array(y).tolist() == [6] * 4
    foreign._drop_finished()
    gc.collect()
    assert not Owner.alive


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_torch_on_the_gpu(dtype):
    torch = pytest.importorskip("torch")
    x = on_cuda(numbers(3, 5)).to(getattr(genesis, dtype))
    theirs = torch.from_dlpack(x.t())
    assert theirs.data_ptr() == x.data_ptr() and theirs.is_cuda and theirs.dtype is getattr(torch, dtype)
    assert theirs.float().cpu().tolist() == array(x).T.astype(np.float32).tolist()
    back = genesis.from_dlpack(theirs[1:])
    back.zero_()
    assert not theirs[1:].any() and array(x)[:, 1:].sum() == 0
    if dtype == "float32":
        assert torch.as_tensor(x, device="cuda").data_ptr() == x.data_ptr()  # through the array interface


@pytest.mark.gpu
def test_torch_and_genesis_take_turns_without_waiting():
    """Thousands of kernels on both sides, and nobody calls synchronize."""
    torch = pytest.importorskip("torch")
    theirs = torch.zeros(1 << 22, device="cuda")
    ours = genesis.from_dlpack(theirs)
    for _ in range(100):
        theirs.add_(1)
        ours.mul_(2)
        theirs.sub_(ours.numel() and 1)
        assert (ours * 1).numel() == theirs.numel()
        ours.sub_(theirs.numel() * 0)
        theirs.div_(2)
    # 2 (x + 1) - 1, halved: x → x + 1/2
    assert theirs[::100_000].tolist() == [50.0] * len(theirs[::100_000])
    assert array(ours[::100_000]).tolist() == [50.0] * len(theirs[::100_000])


@pytest.mark.gpu
def test_memory_goes_back_and_forth_without_piling_up():
    torch = pytest.importorskip("torch")
    x = genesis.ones(1000, 1000, device="cuda")
    genesis.eval(x)

    def there_and_back() -> None:
        y = genesis.from_dlpack(torch.from_dlpack(x) * 2)
        assert float((y.sum() / 1e6).item()) == 2.0

    there_and_back()  # a plan keeps its last output until it runs again
    before = genesis.cuda.memory_allocated(), torch.cuda.memory_allocated()
    for _ in range(50):
        there_and_back()
    gc.collect()
    genesis.cuda.synchronize()
    foreign._drop_finished()
    gc.collect()
    genesis.cuda.empty_cache()
    assert genesis.cuda.memory_allocated() <= before[0] and torch.cuda.memory_allocated() == before[1]


def test_the_fixture_is_what_it_says(cuda: CudaUnderTest, request: pytest.FixtureRequest):
    assert cuda.real is not isinstance(cuda.driver, HostDriver) or request.config.getoption("--pretend-gpu")
