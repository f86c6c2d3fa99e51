"""Large host memory goes to the GPU through two pieces, on the pretended GPU, whose streams are as late as they may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from genesis.ir.types import Device
from genesis.runtime.cuda import cuda_python_driver, staged_copies
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.fake_cuda.driver import HostDriver

GPU = Device("cuda:0")
PIECE = 4096


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostDriver]:
    monkeypatch.setattr(staged_copies, "PIECE", PIECE)
    monkeypatch.setattr("genesis.runtime.cuda.storage.STAGED", 100)
    pretended = HostDriver(lazy=True)
    cuda_python_driver.install(pretended)
    yield pretended
    cuda_python_driver.install(None)


def stored(source: np.ndarray) -> CUDAStorage:
    """A memory with a copy of an array, which changes at once."""
    memory, own = CUDAStorage(source.nbytes, GPU), source.copy()
    memory.copy_from_host(own)
    own[:] = 77
    return memory


def read(memory: CUDAStorage) -> np.ndarray:
    found = np.empty(memory.nbytes, np.uint8)
    memory.copy_to_host(found)
    return found


def drawn(nbytes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


@pytest.mark.parametrize("nbytes", [1, 99, 100, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 5 * PIECE + 3])
def test_the_content_is_that_of_the_call(nbytes: int, driver: HostDriver) -> None:
    """Also where pieces are filled again while no copy out of them has begun on the GPU."""
    sources = [drawn(nbytes, seed) for seed in range(4)]
    memories = [stored(source) for source in sources]
    for memory, source in zip(memories, sources, strict=True):
        assert np.array_equal(read(memory), source)


def test_who_finds_no_piece_copies_without(driver: HostDriver) -> None:
    """As a signal handler does that comes between, or another thread."""
    copies = staged_copies.staged_copies(GPU)
    taken = [copies._free.popleft() for _ in range(2)]
    source = drawn(3 * PIECE)
    assert np.array_equal(read(stored(source)), source) and not copies._free
    copies._free.extend(taken)
    assert np.array_equal(read(stored(source)), source) and len(copies._free) == 2


@pytest.mark.parametrize("at", ["copy_to_device", "record_event"])
def test_a_piece_comes_back_after_an_exception(at: str, driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    copies, source = staged_copies.staged_copies(GPU), drawn(3 * PIECE)
    plain, calls = getattr(driver, at), []

    def failing(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return plain(*args)
    monkeypatch.setattr(driver, at, failing)
    memory = CUDAStorage(source.nbytes, GPU)
    with pytest.raises(KeyboardInterrupt):
        memory.copy_from_host(source)
    monkeypatch.setattr(driver, at, plain)
    assert len(copies._free) == 2
    other = drawn(3 * PIECE, 1)
    assert np.array_equal(read(stored(other)), other)
    begun = PIECE * (1 if at == "copy_to_device" else 2)
    assert np.array_equal(read(memory)[:begun], source[:begun]), "a piece was filled again while it was copied"
