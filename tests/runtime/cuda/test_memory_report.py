"""What `genesis.cuda` says about memory: every block with its line, torch's numbers, a table, who holds what."""

from __future__ import annotations

import pytest

from genesis import cuda
from genesis.ir.types import Device
from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.fake_cuda.driver import HostDriver

GPU = Device("cuda")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def pretended_gpu():
    cuda_python_driver.install(HostDriver(100 * MIB))
    yield
    cuda_python_driver.install(None)


def held() -> list[tuple[int, str | None]]:
    return [(entry["size"], entry["line"]) for entry in cuda.memory_snapshot() if entry["state"] == "active_allocated"]


def test_the_snapshot_has_every_block_in_order():
    first, gap, last = (CUDAStorage(size, GPU, source) for size, source in ((600, "a"), (512, "b"), (5 * MIB, "c")))
    del gap
    snapshot = cuda.memory_snapshot()
    assert [entry["address"] for entry in snapshot] == sorted(entry["address"] for entry in snapshot)
    assert sum(entry["size"] for entry in snapshot) == cuda.memory_reserved() == 22 * MIB
    assert sum(entry["size"] for entry in snapshot
               if entry["state"] == "active_allocated") == cuda.memory_allocated() == 1024 + 5 * MIB
    assert sorted(held(), key=str) == [(1024, "a"), (5 * MIB, "c")]
    found = {entry["address"]: entry for entry in snapshot}
    assert found[first.ptr]["segment_type"] == "small" and found[first.ptr]["segment_size"] == 2 * MIB
    assert found[last.ptr]["segment"] == last.ptr
    assert all(entry["line"] is None for entry in snapshot if entry["state"] == "inactive")


def test_a_block_is_named_after_who_holds_it_now():
    memory = CUDAStorage(700, GPU, "first")
    memory.source = "renamed"
    assert held() == [(1024, "renamed")]
    del memory
    assert held() == []
    memory = CUDAStorage(700, GPU)
    assert held() == [(1024, None)] and memory.source is None


def test_traded_memories_keep_what_they_are_for():
    a, b = CUDAStorage(512, GPU, "a"), CUDAStorage(512, GPU, "b")
    addresses = {a.ptr: "b", b.ptr: "a"}
    a.trade(b)
    assert (a.source, b.source) == ("a", "b")
    assert {entry["address"]: entry["line"] for entry in cuda.memory_snapshot() if entry["line"]} == addresses


def test_running_out_of_memory_lists_the_holders_by_line():
    weights = [CUDAStorage(20 * MIB, GPU, "model.py:3 Net.__init__") for _ in range(3)]
    batch = CUDAStorage(10 * MIB, GPU, "train.py:9 step")
    with pytest.raises(cuda.OutOfMemoryError) as caught:
        CUDAStorage(40 * MIB, GPU)
    lines = str(caught.value).splitlines()
    assert "tried to allocate 40 MiB" in lines[0] and "70 MiB allocated" in lines[0]
    assert lines[2].split() == ["60", "MiB", "in", "3", "blocks:", "model.py:3", "Net.__init__"]
    assert lines[3].split() == ["10", "MiB", "in", "1", "block:", "train.py:9", "step"]
    assert "try:" in lines[-1]
    del weights, batch
    assert CUDAStorage(40 * MIB, GPU).nbytes == 40 * MIB


def test_only_the_largest_holders_are_listed():
    kept = [CUDAStorage(512, GPU, f"line {number}") for number in range(20)]
    with pytest.raises(cuda.OutOfMemoryError) as caught:
        CUDAStorage(200 * MIB, GPU)
    assert "4 KiB from 8 other lines" in str(caught.value)
    assert len(kept) == 20


def test_torchs_statistics():
    small, large = CUDAStorage(1, GPU), CUDAStorage(3 * MIB, GPU)
    del large
    stats = cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == stats["active_bytes.small_pool.current"] == small._block.size
    assert stats["allocated_bytes.all.peak"] == 512 + 3 * MIB
    assert stats["reserved_bytes.large_pool.current"] == 20 * MIB
    assert stats["inactive_split_bytes.all.current"] == 2 * MIB - 512
    assert stats["segment.all.current"] == stats["num_device_alloc"] == 2
    cuda.empty_cache()
    stats = cuda.memory_stats()
    assert (stats["segment.all.current"], stats["num_device_free"], stats["num_ooms"]) == (1, 1, 0)


def test_the_summary_is_a_table():
    kept = CUDAStorage(3 * MIB, GPU, "train.py:9 step")
    text = cuda.memory_summary()
    assert "cuda:0" in text and "3 MiB in     1: train.py:9 step" in text
    assert "train.py:9" not in cuda.memory_summary(abbreviated=True)
    assert kept.ptr


def test_the_share_of_this_process():
    assert cuda.get_per_process_memory_fraction() == 1.0
    cuda.set_per_process_memory_fraction(0.5)
    assert cuda.get_per_process_memory_fraction() == 0.5
    with pytest.raises(cuda.OutOfMemoryError, match="share is 50 MiB"):
        CUDAStorage(60 * MIB, GPU)
    with pytest.raises(ValueError, match="in \\[0, 1\\]"):
        cuda.set_per_process_memory_fraction(2)
    with pytest.raises(TypeError, match="must be a number"):
        cuda.set_per_process_memory_fraction("all")


def test_before_cuda_is_used_there_is_nothing(monkeypatch):
    cuda_python_driver.install(None)
    monkeypatch.setattr(cuda_python_driver, "CudaDriver", lambda: pytest.fail("CUDA was started"))
    assert not cuda.is_initialized()
    assert (cuda.memory_allocated(), cuda.memory_reserved(), cuda.max_memory_allocated()) == (0, 0, 0)
    assert (cuda.memory_stats(), cuda.memory_snapshot()) == ({}, [])
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
