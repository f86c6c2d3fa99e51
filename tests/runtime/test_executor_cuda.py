"""The CUDA executor on the host driver: right values whatever moves, one graph launch when nothing does."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from genesis import cuda
from genesis.ir.types import bool_, tensor_type
from genesis.runtime import executor_cuda
from genesis.runtime.cuda_arena import arena_of
from genesis.runtime.cuda_storage import CUDAStorage
from genesis.runtime.executor_cuda import CudaExecutor
from genesis.runtime.memory_pool import MemoryPool, OutOfMemoryError
from genesis.runtime.plan import Launch

from .kernels import COUNT, GPU, NUMBER, SIZE, add_plan, image, memory_of, place, two_step_plan, update_plan, values_of

X = np.arange(SIZE, dtype=np.float32)
Y = np.ones(SIZE, np.float32)


@pytest.fixture(autouse=True)
def pretended_gpu(host_driver):
    return host_driver


def calls_of(driver, action) -> dict[str, int]:
    """What the driver was asked for meanwhile."""
    before = dict(driver.calls)
    action()
    return {name: count - before[name] for name, count in driver.calls.items() if count != before[name]}


def test_first_step_by_step_then_one_graph(host_driver):
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    seen = []

    def run():
        seen.append(values_of(executor.run([x, y], [len(seen)])[0]))

    assert calls_of(host_driver, run)["launch"] == 1
    assert calls_of(host_driver, run) == {"copy_to_device": 1, "launch": 1, "capture": 1, "launch_graph": 1}
    assert calls_of(host_driver, run) == {"copy_to_device": 1, "launch_graph": 1}
    assert calls_of(host_driver, run) == {"copy_to_device": 1, "launch_graph": 1}
    for scale, values in enumerate(seen):
        assert np.array_equal(values, X + scale * Y)


def test_arena_numbers_and_copies(host_driver):
    executor = CudaExecutor(two_step_plan())
    x, y = memory_of(X), memory_of(Y)
    for a, b in [(2, 3), (2, 3), (5.5, -1), (0, 0)]:
        out, temporary = executor.run([x, y], [a, b])
        assert np.array_equal(values_of(temporary), X + np.float32(a) * Y)
        assert np.array_equal(values_of(out), X + np.float32(a) * Y + np.float32(b) * X)
        del out, temporary


def test_numbers_are_written_only_when_they_change(host_driver):
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    for _ in range(3):
        executor.run([x, y], [2])
    assert calls_of(host_driver, lambda: executor.run([x, y], [2])) == {"launch_graph": 1}


def test_numbers_of_every_kind_take_eight_bytes():
    flag = tensor_type((), bool_, GPU, True)
    plan = replace(update_plan(1), numbers=(NUMBER, COUNT, flag))
    executor = CudaExecutor(plan)
    executor.run([memory_of(X)], [0.5, -3, True])
    table = executor._numbers.to_numpy()
    assert table[:8].view(np.float64)[0] == 0.5
    assert table[8:16].view(np.int64)[0] == -3
    assert table[16:].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


def test_updates_in_place_through_a_table(host_driver):
    executor = CudaExecutor(update_plan(3))
    parameters = [memory_of(X), memory_of(Y), memory_of(0 * X)]
    for _ in range(4):
        assert executor.run(parameters, [2.0]) == []
    for memory, start in zip(parameters, (X, Y, 0 * X), strict=True):
        assert np.array_equal(values_of(memory), start + 8)


def test_updated_inputs_that_moved_are_updated_where_they_are():
    executor = CudaExecutor(update_plan(1))
    kept = []
    for _ in range(8):
        kept.append(memory_of(X))
        executor.run([kept[-1]], [1.0])
    assert all(np.array_equal(values_of(memory), X + 1) for memory in kept)


def test_a_held_output_keeps_its_value_and_a_dropped_one_is_reused():
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    held = [executor.run([x, y], [scale])[0] for scale in range(6)]
    for scale, memory in enumerate(held):
        assert np.array_equal(values_of(memory), X + scale * Y)
    assert len({memory.ptr for memory in held}) == 6
    del held, memory
    before = cuda.memory_allocated()
    for scale in range(6):
        executor.run([x, y], [scale])
    assert cuda.memory_allocated() == before


def test_holding_outputs_does_not_cost_the_graph(host_driver):
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    held = [executor.run([x, y], [scale])[0] for scale in range(3)]
    calls = calls_of(host_driver, lambda: held.append(executor.run([x, y], [3])[0]))
    assert calls == {"copy": 1, "copy_to_device": 1, "launch_graph": 1}


def test_a_pinned_output_is_never_moved():
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    executor.run([x, y], [1])
    [output] = executor.run([x, y], [2])
    output.pinned, address = True, output.ptr
    for scale in range(3, 6):
        [later] = executor.run([x, y], [scale])
        assert np.array_equal(values_of(later), X + scale * Y)
    assert output.ptr == address
    assert np.array_equal(values_of(output), X + 2 * Y)


def test_a_huge_held_output_is_given_away_instead_of_copied(host_driver, monkeypatch):
    monkeypatch.setattr(executor_cuda, "GIVEN_AWAY_BYTES", 16)
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    [output] = executor.run([x, y], [1])
    address = output.ptr
    calls = calls_of(host_driver, lambda: executor.run([x, y], [2]))
    assert "copy" not in calls
    assert output.ptr == address
    assert np.array_equal(values_of(output), X + Y)


def test_an_output_fed_back_as_input():
    executor = CudaExecutor(add_plan())
    state, y = memory_of(X), memory_of(Y)
    for _ in range(7):
        [state] = executor.run([state, y], [1])
    assert np.array_equal(values_of(state), X + 7)


def test_a_batch_that_moves_each_time_is_staged(host_driver):
    executor = CudaExecutor(add_plan())
    y, batches = memory_of(Y), []
    for step in range(8):
        batches.append(memory_of(X + step))
        assert np.array_equal(values_of(executor.run([batches[-1], y], [1])[0]), X + step + 1)
    batches.append(memory_of(X))
    calls = calls_of(host_driver, lambda: executor.run([batches[-1], y], [1]))
    assert calls == {"copy": 1, "launch_graph": 1}
    batches[-1].copy_from_host(X * 2)  # the same memory, other contents
    assert np.array_equal(values_of(executor.run([batches[-1], y], [1])[0]), X * 2 + 1)


def test_a_large_input_that_alternates_gets_two_graphs(host_driver, monkeypatch):
    monkeypatch.setattr(executor_cuda, "STAGED_BYTES", 16)
    executor = CudaExecutor(add_plan())
    y, buffers = memory_of(Y), [memory_of(X), memory_of(3 * X)]
    for step in range(6):
        assert np.array_equal(values_of(executor.run([buffers[step % 2], y], [1])[0]), X * (3 if step % 2 else 1) + 1)
    assert calls_of(host_driver, lambda: executor.run([buffers[0], y], [1])) == {"launch_graph": 1}
    assert host_driver.calls["capture"] == 2


def test_only_a_few_sets_of_addresses_are_kept(monkeypatch):
    monkeypatch.setattr(executor_cuda, "STAGED_BYTES", 16)
    executor = CudaExecutor(add_plan())
    y, buffers = memory_of(Y), [memory_of(X + number) for number in range(7)]
    for step in range(28):
        number = step % 7
        assert np.array_equal(values_of(executor.run([buffers[number], y], [1])[0]), X + number + 1)
    assert len(executor._sets) == executor_cuda.SETS_KEPT


def test_plans_share_the_arena_and_notice_when_it_moves(host_driver):
    small, large = CudaExecutor(two_step_plan()), CudaExecutor(replace(two_step_plan(), arena_bytes=1 << 20))
    x, y = memory_of(X), memory_of(Y)
    for executor in (small, small, small, large, small, large, small, large):
        out, _ = executor.run([x, y], [1, 1])
        assert np.array_equal(values_of(out), 2 * X + Y)
        del out, _
    assert arena_of(GPU).nbytes == 1 << 20
    assert calls_of(host_driver, lambda: small.run([x, y], [1, 1])) == {"launch_graph": 1}


def test_a_freed_executor_gives_its_memory_back():
    x, y = memory_of(X), memory_of(Y)
    before = cuda.memory_allocated()
    executor = CudaExecutor(add_plan())
    for _ in range(3):
        executor.run([x, y], [1])
    [held] = executor.run([x, y], [7])
    del executor
    gc.collect()
    assert cuda.memory_allocated() == before + 1024  # the held output
    assert np.array_equal(values_of(held), X + 7 * Y)


def test_release_and_run_again():
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    [held] = executor.run([x, y], [1])
    executor.release()
    for scale in (1, 1, 2):
        assert np.array_equal(values_of(executor.run([x, y], [scale])[0]), X + scale * Y)
    assert np.array_equal(values_of(held), X + Y)


def test_empty_values_and_grids_without_programs():
    executor = CudaExecutor(add_plan(size=0))
    for _ in range(3):
        [out] = executor.run([CUDAStorage(0, GPU), CUDAStorage(0, GPU)], [1])
        assert out.nbytes == 0


@pytest.mark.parametrize("plan, parameters", [(two_step_plan(), 2), (update_plan(), 3)], ids=["outputs", "updates"])
@pytest.mark.parametrize("runs_before", [0, 1, 3])
def test_running_out_of_memory_anywhere_changes_nothing(plan, parameters, runs_before, monkeypatch):
    """Every allocation of a run fails once; inputs and held outputs are as before, and the next run is right."""
    numbers = [1.0] * len(plan.numbers)
    allocate = MemoryPool.allocate
    failing = 0
    while True:
        executor = CudaExecutor(plan)
        inputs = [memory_of(X) for _ in range(parameters)]
        held = [executor.run(inputs, numbers) for _ in range(runs_before)]
        # New addresses, so that the run under test must take all the memory that any run may take.
        inputs = [memory_of(values_of(memory)) for memory in inputs]
        arena_of(GPU).release()
        before = [values_of(memory) for memory in [*inputs, *chain(*held)]]
        asked = 0

        def allocate_or_fail(pool, nbytes, stream=None, failing=failing):
            nonlocal asked
            asked += 1
            if asked == failing + 1:
                raise OutOfMemoryError("injected")
            return allocate(pool, nbytes, stream)

        with monkeypatch.context() as patch:
            patch.setattr(MemoryPool, "allocate", allocate_or_fail)
            try:
                executor.run(inputs, numbers)
            except OutOfMemoryError:
                pass
            else:
                break
        after = [values_of(memory) for memory in [*inputs, *chain(*held)]]
        assert all(np.array_equal(old, new) for old, new in zip(before, after, strict=True)), f"allocation {failing}"

        results = executor.run(inputs, numbers)
        expected = CudaExecutor(plan).run([memory_of(values) for values in before[:parameters]], numbers)
        for got, wanted in zip(results, expected, strict=True):
            assert np.array_equal(values_of(got), values_of(wanted))
        if plan.updates:
            assert all(np.array_equal(values_of(memory), old + 1) for memory, old in zip(inputs, before, strict=False))
        failing += 1
    assert failing >= (1 if runs_before else 2), "the test injected nothing"


def test_launch_blocking_names_the_launch(host_driver, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    plan = add_plan()
    executor = CudaExecutor(plan)
    x, y = memory_of(X), memory_of(Y)
    for _ in range(3):
        executor.run([x, y], [1])
    assert host_driver.calls["capture"] == 0

    broken = replace(plan, steps=(Launch(image("scaled_add"), (place("input"), place("input")), (1, 1, 1)),))
    with pytest.raises(RuntimeError, match="takes 5 arguments"):
        CudaExecutor(broken).run([x, y], [1])

    from genesis.runtime.driver import DriverError

    def sick():
        raise DriverError("cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access")
    monkeypatch.setattr(host_driver, "synchronize", sick)
    with pytest.raises(RuntimeError, match=r"scaled_add: cuCtxSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        executor.run([x, y], [1])


def test_a_capture_that_fails_can_be_tried_again(host_driver, monkeypatch):
    from genesis.runtime.driver import DriverError
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    executor.run([x, y], [1])
    with monkeypatch.context() as patch:
        def broken(prepared, stream):
            raise DriverError("cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE", "invalid argument")
        patch.setattr(host_driver, "launch", broken)
        with pytest.raises(RuntimeError, match="scaled_add: cuLaunchKernel failed"):
            CudaExecutor(add_plan()).run([x, y], [1])
        executor._current._steps = [("scaled_add", lambda stream: broken(None, stream))]
        with pytest.raises(RuntimeError, match="scaled_add: cuLaunchKernel failed"):
            executor.run([x, y], [1])
    assert np.array_equal(values_of(CudaExecutor(add_plan()).run([x, y], [1])[0]), X + Y)


@pytest.mark.parametrize("inputs, numbers, message", [
    (1, [1], "takes 2 inputs, got 1"),
    (2, [], "takes numbers"),
    (2, [1, 2], "takes numbers"),
    (2, ["a"], "takes numbers"),
])
def test_wrong_inputs_are_refused(inputs, numbers, message):
    with pytest.raises(ValueError, match=message):
        CudaExecutor(add_plan()).run([memory_of(X)] * inputs, numbers)


def test_inputs_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match=r"input 1 should be f32\[200\]@cuda:0"):
        CudaExecutor(add_plan()).run([memory_of(X), memory_of(Y[:5])], [1])


def test_a_cpu_plan_is_refused():
    plan = replace(add_plan(), steps=("a CPU call",))
    with pytest.raises(TypeError, match="launches and copies, not str"):
        CudaExecutor(plan)


def test_kernels_are_loaded_once(host_driver):
    CudaExecutor(add_plan())
    CudaExecutor(two_step_plan())
    assert host_driver.calls["load"] == 1
