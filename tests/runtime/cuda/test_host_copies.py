"""Memories copied to the host beside the program's work, on streams that do their work as late as they may."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from genesis.ir.types import Device
from genesis.runtime.cuda import cuda_python_driver, host_copies
from genesis.runtime.cuda.driver import DriverError
from genesis.runtime.cuda.host_copies import HostCopies
from genesis.runtime.cuda.page_locked import buffers
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.cuda.stream import current_stream
from genesis.runtime.fake_cuda.driver import HostDriver

GPU = Device("cuda")
PIECE = 64


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostDriver]:
    monkeypatch.setattr(host_copies, "PIECE", PIECE)
    pretended = HostDriver(lazy=True)
    cuda_python_driver.install(pretended)
    yield pretended
    cuda_python_driver.install(None)


def memory_of(content: np.ndarray) -> CUDAStorage:
    memory = CUDAStorage(content.nbytes, GPU)
    memory.copy_from_host(content)
    return memory


@pytest.mark.parametrize("nbytes", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 5 * PIECE + 7])
def test_the_bytes_of_memories_of_any_size(nbytes: int, driver: HostDriver) -> None:
    content = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    memory = memory_of(content)
    assert HostCopies(GPU).bytes_of(memory).tolist() == content.tolist()
    gc.collect()
    assert sum(map(len, buffers().free.values())) == min(2, -(-nbytes // PIECE)), "the pieces are free again"


def test_work_that_was_given_before_is_waited_for_and_no_other(driver: HostDriver) -> None:
    stream = current_stream(0)
    memory, other = memory_of(np.zeros(8, np.uint8)), memory_of(np.zeros(8, np.uint8))
    driver.fill(memory.ptr, 7, 8, stream.handle)
    copies = HostCopies(GPU)
    driver.fill(other.ptr, 9, 8, stream.handle)
    assert copies.bytes_of(memory).tolist() == [7] * 8
    assert not stream.query(), "what the program gave its stream since then is still to be done"


def test_pieces_that_are_still_written_are_not_given_to_others(driver: HostDriver,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    memory, copies = memory_of(np.ones(3 * PIECE, np.uint8)), HostCopies(GPU)

    def failing(event: object) -> None:
        raise DriverError("cuEventSynchronize", "CUDA_ERROR_UNKNOWN", "injected")
    monkeypatch.setattr(driver, "synchronize_event", failing)
    with pytest.raises(DriverError, match="injected"):
        copies.bytes_of(memory)
    gc.collect()
    mine = buffers().empty(PIECE)
    mine[:] = 5
    driver.synchronize()
    assert mine.tolist() == [5] * PIECE
