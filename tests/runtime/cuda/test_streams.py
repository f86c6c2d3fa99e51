"""Several streams: each runs on its own, and is right whatever the others do.

The host driver is lazy here: a stream's work is done when somebody waits for it and not before, so work that should
have waited for another stream's reads what is not there yet.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from genesis import cuda
from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.cuda.arena import arena_of
from genesis.runtime.cuda.executor import CudaExecutor
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.runtime.kernels import SIZE, add_plan, memory_of, two_step_plan, update_plan, values_of

X = np.arange(SIZE, dtype=np.float32)
Y = np.ones(SIZE, np.float32)


@pytest.fixture(autouse=True)
def lazy_driver():
    driver = HostDriver(lazy=True)
    cuda_python_driver.install(driver)
    yield driver
    cuda_python_driver.install(None)


@pytest.fixture
def waits(lazy_driver, monkeypatch) -> list:
    """The streams that are told to wait, in order."""
    found: list = []
    wait = lazy_driver.wait_event
    monkeypatch.setattr(lazy_driver, "wait_event", lambda stream, event: (found.append(stream), wait(stream, event)))
    return found


def test_work_waits_for_what_it_reads():
    add = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    with cuda.stream(cuda.Stream()):
        [z] = add.run([x, y], [2])
    assert np.array_equal(values_of(z), X + 2)
    with cuda.stream(cuda.Stream()):
        [w] = add.run([z, z], [1])
    assert np.array_equal(values_of(w), 2 * X + 4)


def test_a_write_waits_for_those_who_read():
    add, update = CudaExecutor(add_plan()), CudaExecutor(update_plan(1))
    x, y = memory_of(X), memory_of(Y)
    with cuda.stream(cuda.Stream()):
        [z] = add.run([x, y], [2])
    update.run([x], [10])
    y.copy_from_host(100 * Y)
    assert np.array_equal(values_of(x), X + 10)
    assert np.array_equal(values_of(y), 100 * Y)
    assert np.array_equal(values_of(z), X + 2)


def test_a_write_waits_for_an_earlier_write():
    update = CudaExecutor(update_plan(1))
    x = memory_of(X)
    for step in range(6):
        with cuda.stream(cuda.Stream() if step % 2 else None):
            update.run([x], [1])
    assert np.array_equal(values_of(x), X + 6)


def test_readers_of_the_same_weights_do_not_wait_for_each_other(waits, lazy_driver):
    add = CudaExecutor(add_plan())
    weights, a, b = memory_of(X), memory_of(Y), memory_of(2 * Y)
    first, second = cuda.Stream(), cuda.Stream()
    results = []
    for stream, memory in ((first, a), (second, b)) * 3:
        with cuda.stream(stream):
            results.append(add.run([weights, memory], [1])[0])
    assert waits == [first.handle, second.handle], "once, for what was done before there were streams"
    assert not first.query() and not second.query()
    second.synchronize()
    assert second.query() and not first.query()
    for at, memory in enumerate(results):
        assert np.array_equal(values_of(memory), X + 1 + at % 2)


def test_two_streams_at_once_have_an_arena_and_outputs_each(lazy_driver):
    plan = CudaExecutor(two_step_plan())
    inputs = [[memory_of(X + k), memory_of(Y)] for k in range(2)]
    streams, held = [cuda.Stream(), cuda.Stream()], [[], []]
    for step in range(5):
        for k in range(2):
            with cuda.stream(streams[k]):
                held[k].append(plan.run(inputs[k], [step, 1]))
    assert arena_of(streams[0]).ptr != arena_of(streams[1]).ptr
    for k in (1, 0):
        for step, (out, temporary) in enumerate(held[k]):
            assert np.array_equal(values_of(temporary), X + k + step)
            assert np.array_equal(values_of(out), 2 * (X + k) + step)


def test_a_larger_plan_on_one_stream_between_runs_on_another():
    small, large = CudaExecutor(two_step_plan()), CudaExecutor(replace(two_step_plan(), arena_bytes=5 << 20))
    x, y, side = memory_of(X), memory_of(Y), cuda.Stream()
    for executor, stream in ((small, None), (small, None), (large, side), (small, None), (small, side), (large, None)):
        with cuda.stream(stream):
            out, _ = executor.run([x, y], [1, 1])
        assert np.array_equal(values_of(out), 2 * X + Y)


def test_memory_that_a_stream_still_reads_is_not_given_to_another():
    add = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    with cuda.stream(cuda.Stream()):
        [z] = add.run([x, y], [1])
    address = x.ptr
    del x
    other = memory_of(0 * X)
    assert other.ptr == address, "the test is about memory that is used again"
    assert np.array_equal(values_of(other), 0 * X)
    assert np.array_equal(values_of(z), X + 1)


def test_streams_are_given_in_turn_when_there_are_many():
    streams = [cuda.Stream() for _ in range(64)]
    assert len(set(streams)) == 32 and streams[:32] == streams[32:]
    assert cuda.default_stream() not in streams
    assert cuda.Stream(priority=-1) not in streams


def test_events_and_explicit_waits(lazy_driver):
    add = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    first, second = cuda.Stream(), cuda.Stream()
    event = cuda.Event()
    assert event.query()
    with cuda.stream(first):
        add.run([x, y], [1])
        event.record()
    assert not event.query()
    second.wait_event(event)
    second.synchronize()
    assert event.query()
    with cuda.stream(first):
        add.run([x, y], [2])
    assert not first.query()
    second.wait_stream(first)
    second.synchronize()
    assert first.query()
    with cuda.stream(first):
        add.run([x, y], [3])
    event = first.record_event()
    event.wait(second)
    event.synchronize()
    assert first.query() and not second.query()


def test_copies_between_gpus_wait_both_ways():
    cuda_python_driver.install(HostDriver(devices=2, lazy=True))
    from genesis.ir.types import Device
    update = CudaExecutor(update_plan(1))
    x, there = memory_of(X), CUDAStorage(X.nbytes, Device("cuda", 1))
    update.run([x], [1])
    there.copy_from(x)
    update.run([x], [1])
    assert np.array_equal(values_of(there), X + 1)
    back = memory_of(Y)
    back.copy_from(there)
    there.copy_from_host(0 * X)
    assert np.array_equal(values_of(back), X + 1)
    assert np.array_equal(values_of(x), X + 2)


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_on_random_streams(seed, lazy_driver):
    draw = random.Random(seed)
    streams = [cuda.default_stream(), *(cuda.Stream() for _ in range(3))]
    add, update = CudaExecutor(add_plan()), CudaExecutor(update_plan(2))
    known = [(memory_of(X + k), X + k) for k in range(4)]  # each memory and what it should hold

    def some(count: int) -> list[int]:
        return draw.sample(range(len(known)), count)

    def run_add() -> None:
        a, b = some(2)
        [out] = add.run([known[a][0], known[b][0]], [2])
        known.append((out, known[a][1] + 2 * known[b][1]))

    def run_update() -> None:
        pair = some(2)
        update.run([known[k][0] for k in pair], [1])
        for k in pair:
            known[k] = (known[k][0], known[k][1] + 1)

    def copy() -> None:
        a, b = some(2)
        known[a][0].copy_from(known[b][0])
        known[a] = (known[a][0], known[b][1])

    def write() -> None:
        a, = some(1)
        known[a][0].copy_from_host(X * 3)
        known[a] = (known[a][0], X * 3)

    def check() -> None:
        a, = some(1)
        assert np.array_equal(values_of(known[a][0]), known[a][1])

    def drop() -> None:
        if len(known) > 4:
            del known[draw.randrange(len(known))]
    for _ in range(60):
        with cuda.stream(draw.choice(streams)):
            draw.choice([run_add, run_add, run_update, copy, write, check, drop])()
    for memory, values in known:
        assert np.array_equal(values_of(memory), values)
