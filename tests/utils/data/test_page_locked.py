"""Batches in page-locked memory and on a GPU, on the pretended GPU, whose streams do their work as late as they may."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import genesis
from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.cuda.page_locked import buffers
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.utils.data import DataLoader
from genesis.utils.data.page_locked import MOST_COPIES

SAMPLES = [{"x": np.full((3,), i, np.float32), "n": i, "name": str(i)} for i in range(7)]


@pytest.fixture
def driver() -> Iterator[HostDriver]:
    pretended = HostDriver(lazy=True)
    cuda_python_driver.install(pretended)
    yield pretended
    cuda_python_driver.install(None)


def plain(batch: Any) -> Any:
    return {key: value.tolist() if isinstance(value, genesis.Tensor) else value for key, value in batch.items()}


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_to_the_gpu(workers: int, driver: HostDriver) -> None:
    wanted = [plain(batch) for batch in DataLoader(SAMPLES, 2)]
    found = list(DataLoader(SAMPLES, 2, num_workers=workers, prefetch_device="cuda"))
    assert all(batch["x"].device.type == "cuda" and batch["n"].device.type == "cuda" for batch in found)
    assert [plain(batch) for batch in found] == wanted


def test_batches_that_are_used_and_dropped(driver: HostDriver) -> None:
    """Buffers and memory are used again, but not before the work with them is done."""
    sums = genesis.zeros(3, device="cuda")
    for batch in DataLoader(SAMPLES * 4, 2, prefetch_device="cuda"):
        sums += batch["x"].sum(0)
        del batch
    assert sums.tolist() == [4 * sum(range(7))] * 3
    gc.collect()
    assert sum(map(len, buffers().free.values())) <= 2 * (MOST_COPIES + 2), "of 28 arrays"


def test_a_copy_may_end_before_its_batch_is_asked_for(driver: HostDriver) -> None:
    """And its event is destroyed once, when nobody waits for it any more."""
    found = []
    for batch in DataLoader(range(8), 1, prefetch_device="cuda"):
        found.append(batch.item())
        genesis.cuda.synchronize()  # ends the copy of the next one, too
    assert found == list(range(8))
    batches = iter(DataLoader(range(8), 1, prefetch_device="cuda"))
    next(batches)
    genesis.cuda.synchronize()
    del batches


def test_a_batch_is_copied_while_the_one_before_is_used(driver: HostDriver) -> None:
    made: list[int] = []

    def collate(samples: list[int]) -> Any:
        made.append(samples[0])
        return genesis.tensor(samples)
    batches = iter(DataLoader(range(4), 1, collate_fn=collate, prefetch_device="cuda"))
    assert next(batches).tolist() == [0] and made == [0, 1]
    assert next(batches).tolist() == [1] and made == [0, 1, 2]
    assert [x.tolist() for x in batches] == [[2], [3]]


def test_the_place_in_a_pass_is_that_of_the_batches_given(driver: HostDriver) -> None:
    loader = DataLoader(range(6), 1, prefetch_device="cuda")
    batches = iter(loader)
    assert [next(batches).item(), next(batches).item()] == [0, 1]
    state = loader.state_dict()
    assert state["batches"] == 2, "not the one that is being copied"
    again = DataLoader(range(6), 1, prefetch_device="cuda")
    again.load_state_dict(state)
    assert [x.item() for x in again] == [2, 3, 4, 5]


def test_an_error_comes_when_its_batch_does(driver: HostDriver) -> None:
    class Fails:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> int:
            if i == 1:
                raise ArithmeticError("of sample 1")
            return i
    batches = iter(DataLoader(Fails(), 1, prefetch_device="cuda"))
    assert next(batches).item() == 0
    with pytest.raises(ArithmeticError, match="of sample 1"):
        next(batches)
    assert [batch.item() for batch in batches] == [2]


def test_page_locked_tensors_are_tensors_of_the_cpu(driver: HostDriver) -> None:
    loader = DataLoader(SAMPLES, 2, pin_memory=True)
    assert [plain(batch) for batch in loader] == [plain(batch) for batch in DataLoader(SAMPLES, 2)]
    x = next(iter(loader))["x"]
    address = x.data_ptr()
    assert any(address == id_of for id_of in map(_address, driver._pinned))
    kept = x.numpy()
    del x
    gc.collect()
    assert all(address not in free for free in buffers().free.values()), "numpy still has it"
    del kept
    gc.collect()
    assert any(address in free for free in buffers().free.values())


def _address(buffer: Any) -> int:
    import ctypes
    return ctypes.addressof(buffer)


def test_without_a_gpu_memory_is_ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(genesis.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="there is no GPU"):
        assert [x.tolist() for x in DataLoader(range(3), 2, pin_memory=True)] == [[0, 1], [2]]


def test_data_is_there_after_import_genesis_alone() -> None:
    import subprocess
    import sys
    program = ("import sys, genesis; assert 'genesis.utils.data' not in sys.modules; "
               "print(genesis.utils.data.DataLoader.__name__, genesis.utils.profile.__name__)")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["DataLoader", "genesis.utils.profile"]
