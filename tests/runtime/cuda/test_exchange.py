"""Memory in which programs of a kernel hand parts of sums to each other: zeros at first, flags that are 0 again."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import genesis
from genesis import cuda, engine
from genesis.codegen.cuda.templates import streamed_matmul
from genesis.codegen.cuda.templates.streamed_matmul import Form
from genesis.codegen.cuda.templates.tile import Tile
from genesis.engine.backends import FakeCUDABackend
from genesis.ir.place import EXCHANGE_BYTES, EXCHANGE_FLAGS
from genesis.ir.types import Device, tensor_type, uint8
from genesis.runtime.cuda.arena import arena_of, exchange_of
from genesis.runtime.cuda.driver import DeviceProperties, StreamHandle
from genesis.runtime.cuda.memory_pool import pool_of
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import KernelImage, Launch, Place
from genesis.runtime.plan_edges import edges_of

PROGRAMS = 5


class SmallGpu(HostDriver):
    """A GPU that few tiles keep busy."""

    def properties(self, device: int) -> DeviceProperties:
        return replace(super().properties(device), multi_processor_count=PROGRAMS)


def flags() -> np.ndarray:
    """Those of the current stream's memory."""
    cuda.synchronize()
    exchange = exchange_of(cuda.current_stream())
    assert exchange.nbytes >= EXCHANGE_BYTES
    return np.frombuffer(ctypes.string_at(exchange.ptr, 4 * EXCHANGE_FLAGS), np.int32)


def test_products_of_one_plan_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_matmul, "FORMS", (Form(Tile(128, 128, 64, 8, 3), 1, True, 1.0, 0, 0),))
    rng = np.random.default_rng(0)
    with FakeCUDABackend(SmallGpu(memory_bytes=1 << 27)):
        a, b = (genesis.tensor(rng.standard_normal(shape), device="cuda").bfloat16()
                for shape in ((256, 128), (128, 256)))
        genesis.eval(a, b)
        want = a.float().cpu().numpy().astype(np.float64) @ b.float().cpu().numpy().astype(np.float64)
        for _ in range(2):
            first, second = a @ b, (a * 2) @ b
            genesis.eval(first, second)
            plan = engine.last_plan()
            assert plan is not None
            assert sum(any(isinstance(x, Place) and x.where == "exchange" for x in step.args)
                       for step in plan.plan.steps if isinstance(step, Launch)) == 2
            np.testing.assert_allclose(first.float().cpu().numpy(), want, rtol=1e-2, atol=0.2)  # rounded to bfloat16
            np.testing.assert_allclose(second.float().cpu().numpy(), 2 * want, rtol=1e-2, atol=0.4)
            assert not flags().any()


def test_kernels_that_use_it_run_one_after_the_other() -> None:
    place = Place("exchange", 0, 0, tensor_type((EXCHANGE_BYTES,), uint8, Device("cuda")))
    kernel = KernelImage("kernel", b"", 4, 0)
    shared = Launch(kernel, (place,), (1, 1, 1), writes=(place,))
    other = Launch(kernel, (), (1, 1, 1), writes=(Place("arena", 0, 0, place.type),))
    assert edges_of([shared, other, shared]) == ((), (), (0,))


def test_words_of_exact_sums_are_zeros_between_kernels() -> None:
    """Kernels of other sizes have the same words, and a plan without such sums has none."""
    rng = np.random.default_rng(0)
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 28)):
        for rows, count, scale in ((30_000, 20_000, 0), (20_000, 30_000, 15), (30_000, 20_000, 15)):
            base, added = (rng.standard_normal(n).astype(np.float32) for n in (rows, count))
            added *= 10.0 ** rng.uniform(-scale, scale, count).astype(np.float32)
            index = rng.integers(0, rows, count)
            want = base.astype(np.float64)
            np.add.at(want, index, added)
            x, i, y = (genesis.tensor(a, device="cuda") for a in (base, index, added))
            for _ in range(2):
                found = x.scatter_add(0, i, y)
                genesis.eval(found)
                plan = engine.last_plan()
                assert plan is not None
                assert any(isinstance(a, Place) and a.where == "exchange" and a.offset == EXCHANGE_BYTES
                           for step in plan.plan.steps if isinstance(step, Launch) for a in step.args)
                np.testing.assert_allclose(found.cpu().numpy(), want, rtol=2.0 ** -23)
                assert not flags().any()
                exchange = exchange_of(cuda.current_stream())
                words = ctypes.string_at(exchange.ptr + EXCHANGE_BYTES, exchange.nbytes - EXCHANGE_BYTES)
                assert len(words) >= 8 * rows and not np.frombuffer(words, np.int64).any()


def an_exact_sum() -> tuple[Callable[[], np.ndarray], np.ndarray]:
    """A function that makes sums exactly, and what they are."""
    rows, rng = 20_000, np.random.default_rng(1)
    index, added = rng.integers(0, rows, rows), rng.integers(-9, 9, rows).astype(np.float32)
    want = np.zeros(rows, np.float32)
    np.add.at(want, index, added)
    x, i, y = (genesis.tensor(a, device="cuda") for a in (np.zeros(rows, np.float32), index, added))
    genesis.eval(x, i, y)

    def summed() -> np.ndarray:
        found = x.scatter_add(0, i, y)
        genesis.eval(found)
        cuda.synchronize()
        assert exchange_of(cuda.current_stream()).nbytes > EXCHANGE_BYTES
        return found.cpu().numpy()
    return summed, want


def words() -> np.ndarray:
    """All words of sums of the current stream's memory."""
    exchange = exchange_of(cuda.current_stream())
    return np.frombuffer(ctypes.string_at(exchange.ptr + EXCHANGE_BYTES, exchange.nbytes - EXCHANGE_BYTES), np.int64)


class InterruptedGpu(HostDriver):
    """Memory that is mapped holds what was there before, and it is interrupted when that is to be made 0."""

    interrupted = 0

    def map_memory(self, address: int, nbytes: int) -> None:
        super().map_memory(address, nbytes)
        ctypes.memset(address, 0x55, nbytes)

    def fill(self, address: int, byte: int, nbytes: int, stream: StreamHandle) -> None:
        if byte == 0 and nbytes >= EXCHANGE_BYTES and not self.interrupted:
            self.interrupted += 1
            raise KeyboardInterrupt
        super().fill(address, byte, nbytes, stream)


def test_memory_is_zeros_though_the_first_plan_was_interrupted() -> None:
    with FakeCUDABackend(gpu := InterruptedGpu(memory_bytes=1 << 28)):
        summed, want = an_exact_sum()
        with pytest.raises(KeyboardInterrupt):
            summed()
        assert gpu.interrupted == 1
        for _ in range(2):
            np.testing.assert_array_equal(summed(), want)
        assert not flags().any() and not words().any()


def test_memory_that_was_given_back_is_zeros_when_it_comes_again() -> None:
    with FakeCUDABackend(gpu := InterruptedGpu(memory_bytes=1 << 28)):
        gpu.interrupted = 1
        summed, want = an_exact_sum()
        for _ in range(2):
            np.testing.assert_array_equal(summed(), want)
            cuda.empty_cache()
            assert not exchange_of(cuda.current_stream()).nbytes


def test_another_thread_does_not_take_it_from_a_plan_that_is_being_started() -> None:
    """`empty_cache` leaves both memories of a stream alone while a plan gives the GPU its work."""
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 28)):
        summed, want = an_exact_sum()
        np.testing.assert_array_equal(summed(), want)
        stream = cuda.current_stream()
        before = exchange_of(stream).nbytes
        with arena_of(stream).lock:
            other = threading.Thread(target=cuda.empty_cache)
            other.start()
            other.join()
            assert exchange_of(stream).nbytes == before > EXCHANGE_BYTES
        cuda.empty_cache()
        assert not exchange_of(stream).nbytes


class DisturbedGpu(HostDriver):
    """An interrupt comes just behind one of its calls that map and unmap memory."""

    left: tuple[str, ...] = ()

    def _leave(self, call: str) -> None:
        if self.left[:1] == (call,):
            self.left = self.left[1:]
            raise KeyboardInterrupt

    def map_memory(self, address: int, nbytes: int) -> None:
        super().map_memory(address, nbytes)
        self._leave("map")

    def unmap_memory(self, address: int, nbytes: int) -> None:
        super().unmap_memory(address, nbytes)
        self._leave("unmap")


def test_scratch_memory_is_there_again_after_interrupts() -> None:
    """CUDA maps no range twice, and what was unmapped must not count as memory."""
    with FakeCUDABackend(gpu := DisturbedGpu(memory_bytes=1 << 28)):
        arena, pool = arena_of(cuda.current_stream()), pool_of(0)
        before = pool.stats().reserved_bytes
        for calls in (("map",), ("map", "map", "unmap"), ("unmap",)):
            gpu.left = calls
            for _ in range(len(calls) + 1):
                with suppress(KeyboardInterrupt):
                    arena.reserve(3 << 20)
                with suppress(KeyboardInterrupt):
                    if arena.nbytes and gpu.left:
                        arena.release()
            assert not gpu.left and arena.nbytes == 4 << 20
            gpu.fill(arena.ptr, 1, arena.nbytes, None)
            assert pool.stats().reserved_bytes == before + arena.nbytes
            arena.release()
            assert pool.stats().reserved_bytes == before
