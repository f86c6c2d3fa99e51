"""Memory in which programs of a kernel hand parts of sums to each other: zeros at first, flags that are 0 again."""

from __future__ import annotations

import ctypes
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
from genesis.runtime.cuda.arena import exchange_of
from genesis.runtime.cuda.driver import DeviceProperties
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
