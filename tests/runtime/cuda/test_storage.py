"""CUDA storages, streams and `genesis.cuda`, on the host driver."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import genesis
from genesis import cuda
from genesis.ir.types import Device
from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.cuda.stream import current_stream
from genesis.runtime.fake_cuda.driver import HostDriver

GPU = Device("cuda")


@pytest.fixture(autouse=True)
def pretended_gpu(host_driver):
    return host_driver


def storage_of(values, dtype=np.float32) -> CUDAStorage:
    array = np.asarray(values, dtype)
    memory = CUDAStorage(array.nbytes, GPU)
    memory.copy_from_host(array)
    return memory


def values_of(memory: CUDAStorage, dtype=np.float32) -> list:
    return memory.to_numpy().view(dtype).tolist()


def test_copies_there_and_back():
    memory = storage_of([1, 2, 3])
    assert values_of(memory) == [1, 2, 3]
    assert (memory.nbytes, memory.device, memory.ptr % 512) == (12, GPU, 0)


def test_memory_nobody_wrote_is_nan():
    assert np.isnan(values_of(CUDAStorage(8, GPU))).all()


def test_copies_between_storages():
    a, b = storage_of([1, 2]), storage_of([0, 0])
    b.copy_from(a)
    assert values_of(b) == [1, 2]
    with pytest.raises(ValueError, match="4 bytes over 8"):
        b.copy_from(storage_of([1]))


def test_empty_storage_takes_no_memory():
    memory = CUDAStorage(0, GPU)
    memory.copy_from_host(b"")
    memory.copy_to_host(bytearray())
    memory.copy_from(CUDAStorage(0, GPU))
    assert (memory.ptr, cuda.memory_allocated()) == (0, 0)


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="8 bytes of memory and a buffer of 4 bytes"):
        CUDAStorage(8, GPU).copy_from_host(b"1234")


def test_memory_goes_back_with_the_last_reference():
    memory = CUDAStorage(1000, GPU)
    watcher, address = weakref.ref(memory), memory.ptr
    assert cuda.memory_allocated() == 1024
    del memory
    assert watcher() is None
    assert cuda.memory_allocated() == 0
    assert CUDAStorage(1000, GPU).ptr == address


def test_trading_swaps_memories_and_pinned_ones_do_not_trade():
    a, b = storage_of([1]), storage_of([2])
    before = a.ptr, b.ptr
    a.trade(b)
    assert (b.ptr, a.ptr) == before
    assert (values_of(a), values_of(b)) == ([2], [1])
    a.pinned = True
    with pytest.raises(ValueError, match="cannot trade"):
        b.trade(a)
    del a, b
    assert cuda.memory_allocated() == 0


def test_where_sizes_vary_memory_serves_another_size(host_driver):
    """Without poison, as on a GPU: then storages take from the shelves themselves."""
    host_driver.poisons = False
    for nbytes in range(2 << 20, 4 << 20, 4096):
        CUDAStorage(nbytes, GPU)
    first = CUDAStorage(9 << 20, GPU)
    address = first.ptr
    assert cuda.memory_allocated() == 12 << 20, "the class of 9 MiB"
    del first
    second = CUDAStorage(10 << 20, GPU)
    assert (second.ptr, second.nbytes) == (address, 10 << 20)
    second.copy_from(CUDAStorage(10 << 20, GPU))
    del second
    assert cuda.memory_allocated() == 0


def test_out_of_memory_is_torchs_kind_of_error(host_driver):
    cuda_python_driver.install(HostDriver(memory_bytes=1 << 20))
    with pytest.raises(cuda.OutOfMemoryError, match="tried to allocate 2 MiB"):
        CUDAStorage(2 << 20, GPU)
    assert issubclass(cuda.OutOfMemoryError, RuntimeError)


def test_what_the_gpu_is():
    assert cuda.is_available()
    assert cuda.device_count() == 1
    assert cuda.get_device_capability() == (9, 0)
    assert cuda.get_device_name("cuda:0") == cuda.get_device_properties().name
    assert cuda.get_device_properties(GPU).total_memory == 1 << 30
    assert cuda.mem_get_info() == (1 << 30, 1 << 30)
    with pytest.raises(RuntimeError, match="no cuda:3"):
        cuda.get_device_name(3)
    with pytest.raises(RuntimeError, match="expected a CUDA device"):
        cuda.get_device_name("cpu")


@pytest.mark.parametrize("capability", [(7, 0), (7, 5)])
def test_a_gpu_that_no_kernels_are_built_for_says_so(host_driver, capability):
    import genesis
    cuda_python_driver.install(HostDriver(capability=capability))
    assert cuda.get_device_capability() == capability
    says = f"built for GPUs of compute capability 8.0 .*has {capability[0]}.{capability[1]}; use device"
    for start in (cuda.init, lambda: genesis.ones(2, device="cuda").tolist(), lambda: genesis.tensor([1]).to("cuda")):
        with pytest.raises(RuntimeError, match=says):
            start()


def test_the_current_device():
    cuda_python_driver.install(HostDriver(devices=2))
    assert cuda.current_device() == 0
    with cuda.device(1):
        assert cuda.current_device() == 1
        assert cuda.current_stream().device is Device("cuda", 1) is Device("cuda") is not Device("cuda:0")
        with Device("cuda"):
            assert genesis.get_default_device() is Device("cuda", 1)
    assert cuda.current_device() == 0 and Device("cuda") is Device("cuda", 0)
    cuda.set_device("cuda:1")
    assert cuda.current_device() == 1
    with pytest.raises(RuntimeError, match="no cuda:2"):
        cuda.set_device(2)
    assert cuda.current_device() == 1
    cuda_python_driver.install(None)
    assert Device("cuda").index == 0


def test_the_default_device_named_without_a_number_is_the_gpu_that_is_current_when_a_tensor_is_made():
    """A rank's script says `set_default_device("cuda")` before `cuda.set_device(local_rank)`: all ranks' tensors were
    on the first GPU."""
    cuda_python_driver.install(HostDriver(devices=2))
    try:
        genesis.set_default_device("cuda")
        assert genesis.ones(1).device is Device("cuda", 0)

        @genesis.compile
        def made():
            return genesis.ones(2) + 1

        made(), made()
        cuda.set_device(1)
        assert genesis.ones(1).device is genesis.get_default_device() is Device("cuda", 1) is made().device
        with cuda.device(0):
            assert genesis.ones(1).device is Device("cuda", 0) is made().device
        assert genesis.ones(1).device is Device("cuda", 1)
        with Device("cpu"):
            cuda.set_device(0)
            assert genesis.ones(1).device.type == "cpu"
        genesis.set_default_device("cuda:0")
        cuda.set_device(1)
        assert genesis.ones(1).device is Device("cuda", 0)
    finally:
        genesis.set_default_device("cpu")


def test_copies_between_gpus():
    cuda_python_driver.install(HostDriver(devices=2))
    there = CUDAStorage(4, Device("cuda", 1))
    there.copy_from(storage_of([5]))
    assert values_of(there) == [5]
    assert cuda.memory_allocated(0) == 0
    assert cuda.memory_allocated(1) == 512


def test_memory_statistics():
    kept = CUDAStorage(1000, GPU)
    del kept
    kept = CUDAStorage(500, GPU)
    assert cuda.memory_allocated() == 512
    assert cuda.max_memory_allocated() == 1024
    assert cuda.memory_reserved() == cuda.memory_cached() == cuda.max_memory_reserved() == 2 << 20
    stats = cuda.memory_stats()
    assert stats["allocation.all.allocated"] == 2 and stats["allocation.all.current"] == 1
    assert stats["allocated_bytes.small_pool.current"] == stats["allocated_bytes.all.current"] == 512
    assert stats["allocated_bytes.all.peak"] == 1024 and stats["reserved_bytes.all.current"] == 2 << 20
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == 512
    del kept
    cuda.empty_cache()
    assert cuda.memory_reserved() == 0


def test_the_current_stream():
    main, side = cuda.current_stream(), cuda.Stream()
    with cuda.stream(side):
        assert cuda.current_stream() is side
        assert current_stream(0) is side
    assert cuda.current_stream() is main is cuda.default_stream()
    with cuda.stream(None):
        assert cuda.current_stream() is main


def test_events_keep_time():
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    end.record()
    end.synchronize()
    assert 0 <= start.elapsed_time(end) < 1000
    assert end.query()
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        start.elapsed_time(cuda.Event())
    with pytest.raises(RuntimeError, match=r"record\(\)"):
        start.elapsed_time(cuda.Event(enable_timing=True))


def test_without_a_driver_there_is_no_gpu_and_no_error(monkeypatch):
    def none():
        raise RuntimeError("CUDA is not available: ...; check with `nvidia-smi` ...")
    cuda_python_driver.install(None)
    monkeypatch.setattr(cuda_python_driver, "CudaDriver", none)
    assert not cuda.is_available()
    assert cuda.device_count() == 0
    with pytest.raises(RuntimeError, match="nvidia-smi"):
        CUDAStorage(4, GPU)
