"""The CUDA executor on the host driver: right values whatever moves, one graph launch when nothing does."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pytest

from genesis import cuda
from genesis.ir.types import bool_, tensor_type
from genesis.runtime.cuda import bound_plan
from genesis.runtime.cuda import executor as executor_cuda
from genesis.runtime.cuda.arena import arena_of
from genesis.runtime.cuda.executor import CudaExecutor
from genesis.runtime.cuda.memory_pool import MemoryPool, OutOfMemoryError
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.overlap import EARLY, LAST
from genesis.runtime.plan import KernelImage, Launch, Memories, Rewritten
from tests.runtime.kernels import (
    COUNT,
    GPU,
    NUMBER,
    SIZE,
    add_plan,
    image,
    memory_of,
    place,
    scaled_add,
    two_step_plan,
    update_plan,
    values_of,
)

X = np.arange(SIZE, dtype=np.float32)
Y = np.ones(SIZE, np.float32)


@pytest.fixture(autouse=True)
def pretended_gpu(host_driver, monkeypatch):
    """Where every plan is long enough for a graph."""
    monkeypatch.setattr(executor_cuda, "STEPS_WITHOUT_GRAPH", 0)
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
    assert calls_of(host_driver, run) == {"copy_to_device": 1, "build_graph": 1, "launch_graph": 1}
    assert calls_of(host_driver, run) == {"copy_to_device": 1, "launch_graph": 1}
    assert calls_of(host_driver, run) == {"copy_to_device": 1, "launch_graph": 1}
    for scale, values in enumerate(seen):
        assert np.array_equal(values, X + scale * Y)


def test_few_steps_are_started_one_by_one(host_driver, monkeypatch):
    monkeypatch.setattr(executor_cuda, "STEPS_WITHOUT_GRAPH", 1)
    for plan, wanted in ((add_plan(), {"launch": 3}), (two_step_plan(), {"build_graph": 1, "launch_graph": 2})):
        executor = CudaExecutor(plan)
        run = partial(executor.run, [memory_of(X), memory_of(Y)], [2] * len(plan.numbers))
        found = calls_of(host_driver, lambda run=run: [run() for _ in range(3)])
        assert {name: found.get(name) for name in wanted} == wanted, found


@pytest.mark.parametrize(("needed", "exchanges", "nbytes", "graph"), [
    (False, False, 2408, True), (False, False, 2409, False), (True, False, 2408, False), (False, True, 2408, False)])
def test_few_steps_that_may_run_at_once_are_a_graph_if_they_have_much_to_do(
        host_driver, monkeypatch, needed, exchanges, nbytes, graph):
    """On a stream the second waits for all of the first. Each moves three vectors of 800 bytes and a number. Programs
    that hand parts over to each other do so longer beside another kernel."""
    monkeypatch.setattr(executor_cuda, "STEPS_WITHOUT_GRAPH", 4)
    monkeypatch.setattr(bound_plan, "OVERLAPPED", nbytes)
    plan = two_step_plan()
    if not needed:  # the second reads what the first does
        steps = (scaled_add(place("input", 0), place("input", 1), place("output", 0), 0),
                 scaled_add(place("input", 1), place("input", 0), place("output", 1), 1))
        plan = replace(plan, steps=tuple(replace(step, writes=step.args[3:4]) for step in steps))
    executor = CudaExecutor(plan)
    executor._steps.exchanges = exchanges
    run = partial(executor.run, [memory_of(X), memory_of(Y)], [2, 3])
    found = calls_of(host_driver, lambda: [run() for _ in range(3)])
    assert found.get("launch_graph", 0) == (2 if graph else 0)
    first, second = map(values_of, run())
    assert np.array_equal(first, X + 2 * Y + 3 * X if needed else X + 2 * Y)
    assert np.array_equal(second, X + 2 * Y if needed else Y + 3 * X)


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
    table = executor._on[cuda.current_stream().handle]._numbers.to_numpy()
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


def test_holding_outputs_costs_one_node_each(host_driver):
    executor = CudaExecutor(two_step_plan())
    x, y = memory_of(X), memory_of(Y)
    held = [executor.run([x, y], [1, scale])[0] for scale in range(3)]
    calls = calls_of(host_driver, lambda: held.append(executor.run([x, y], [1, 2])[0]))
    assert calls == {"update_node": 1, "launch_graph": 1}
    both = [executor.run([x, y], [1, 2])]
    calls = calls_of(host_driver, lambda: both.append(executor.run([x, y], [1, 2])))
    assert calls == {"update_node": 2, "launch_graph": 1}


def test_a_held_output_keeps_its_address():
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    executor.run([x, y], [1])
    [output] = executor.run([x, y], [2])
    address = output.ptr
    for scale in range(3, 6):
        [later] = executor.run([x, y], [scale])
        assert np.array_equal(values_of(later), X + scale * Y)
    assert output.ptr == address
    assert np.array_equal(values_of(output), X + 2 * Y)


def test_an_output_that_its_caller_gives_up_while_it_holds_it_is_written_again():
    executor = CudaExecutor(two_step_plan())
    inputs = Memories([memory_of(X), memory_of(Y)])
    first = executor.run(inputs, [1, 2])
    inputs.rewritten = Rewritten(inputs.outputs, others=(1,))
    second = executor.run(inputs, [1, 3])
    assert second[0] is first[0] and np.array_equal(values_of(first[0]), X + Y + 3 * X)
    assert second[1] is not first[1] and np.array_equal(values_of(first[1]), X + Y)
    assert inputs.outputs is not inputs.rewritten.stamp, "the outputs are other memory now"
    third = executor.run(inputs, [1, 4])  # what is held was given up for the outputs before
    assert third[0] is not first[0] and np.array_equal(values_of(first[0]), X + Y + 3 * X)
    inputs.rewritten = Rewritten(inputs.outputs, others=())
    stamp = inputs.outputs
    assert executor.run(inputs, [1, 5])[0] is third[0] and inputs.outputs is stamp


def test_an_output_fed_back_as_input():
    executor = CudaExecutor(add_plan())
    state, y = memory_of(X), memory_of(Y)
    for _ in range(7):
        [state] = executor.run([state, y], [1])
    assert np.array_equal(values_of(state), X + 7)


def test_inputs_that_move_are_read_where_they_are(host_driver):
    executor = CudaExecutor(add_plan())
    y, batches = memory_of(Y), []
    for step in range(8):
        batches.append(memory_of(X + step))
        assert np.array_equal(values_of(executor.run([batches[-1], y], [1])[0]), X + step + 1)
    batches.append(memory_of(X))
    calls = calls_of(host_driver, lambda: executor.run([batches[-1], y], [1]))
    assert calls == {"update_node": 1, "launch_graph": 1}
    batches[-1].copy_from_host(X * 2)  # the same memory, other contents
    assert calls_of(host_driver, lambda: executor.run([batches[-1], y], [1])) == {"launch_graph": 1}
    assert np.array_equal(values_of(executor.run([batches[-1], y], [1])[0]), X * 2 + 1)
    assert host_driver.calls["build_graph"] == 1


def test_only_the_nodes_that_use_a_moved_input_are_updated(host_driver):
    executor = CudaExecutor(two_step_plan())
    x, y = memory_of(X), memory_of(Y)
    for _ in range(2):
        executor.run([x, y], [1, 1])
    y = memory_of(3 * Y)
    calls = calls_of(host_driver, lambda: executor.run([x, y], [1, 1]))
    assert calls == {"update_node": 1, "launch_graph": 1}  # the second launch and the copy read no y
    assert np.array_equal(values_of(executor.run([x, y], [1, 1])[0]), 2 * X + 3 * Y)


def test_only_what_moved_is_looked_at(monkeypatch):
    """Of a model's hundreds of weights none moves from token to token; one that does is checked again."""
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    moved, bound = [], executor_cuda.BoundPlan
    monkeypatch.setattr(bound, "move", lambda self, bases, stream, move=bound.move: (
        moved.append({ref for ref in bases if ref[0] == "input"}), move(self, bases, stream)))
    out = executor.run([x, y], [2])
    assert not moved, "bound for the first time"
    for inputs, wanted in (([x, memory_of(3 * Y)], {("input", 1)}), ([x, y], {("input", 1)}),
                           ([memory_of(5 * X), memory_of(4 * Y)], {("input", 0), ("input", 1)})):
        out = executor.run(inputs, [2])
        assert moved[-1] == wanted
        assert np.array_equal(values_of(out[0]), values_of(inputs[0]) + 2 * values_of(inputs[1]))
    with pytest.raises(ValueError, match="input 1 should be"):
        executor.run([x, memory_of(Y[:1])], [2])
    assert np.array_equal(values_of(executor.run([x, y], [2])[0]), X + 2 * Y)


def test_an_input_that_moves_in_a_table(host_driver):
    executor = CudaExecutor(update_plan(3))
    parameters = [memory_of(X) for _ in range(3)]
    for _ in range(2):
        executor.run(parameters, [1.0])
    old, parameters[1] = parameters[1], memory_of(Y)
    calls = calls_of(host_driver, lambda: executor.run(parameters, [1.0]))
    assert calls == {"copy_to_device": 1, "update_node": 1, "launch_graph": 1}
    executor.run(parameters, [1.0])
    assert [values_of(memory)[1] for memory in [old, *parameters]] == [3, 5, 3, 5]


def test_a_larger_plan_between_two_runs_of_a_smaller_one(host_driver):
    """The arena grows where it is: the smaller plan's graph stays good."""
    small, large = CudaExecutor(two_step_plan()), CudaExecutor(replace(two_step_plan(), arena_bytes=5 << 20))
    arena = arena_of(cuda.current_stream())
    x, y = memory_of(X), memory_of(Y)
    addresses = set()
    for executor in (small, small, small, large, small, large, small, large):
        out, _ = executor.run([x, y], [1, 1])
        assert np.array_equal(values_of(out), 2 * X + Y)
        addresses.add(arena.ptr)
        del out, _
    assert len(addresses) == 1
    assert arena.nbytes == 6 << 20
    assert host_driver.calls["map"] == host_driver.calls["build_graph"] == 2
    assert calls_of(host_driver, lambda: small.run([x, y], [1, 1])) == {"launch_graph": 1}


def test_the_arena_counts_as_memory_and_can_be_given_back(host_driver):
    executor = CudaExecutor(two_step_plan())
    x, y = memory_of(X), memory_of(Y)
    for _ in range(2):
        out, _ = executor.run([x, y], [1, 1])
    arena = arena_of(cuda.current_stream())
    allocated, reserved = cuda.memory_allocated(), cuda.memory_reserved()
    arena.release()
    assert cuda.memory_allocated() == allocated - (2 << 20)
    assert cuda.memory_reserved() == reserved - (2 << 20)
    del out, _
    assert calls_of(host_driver, lambda: executor.run([x, y], [1, 1])) == {"map": 1, "launch_graph": 1}
    assert cuda.memory_allocated() == allocated
    assert np.array_equal(values_of(executor.run([x, y], [1, 1])[0]), 2 * X + Y)


def test_an_arena_that_does_not_fit_is_out_of_memory():
    cuda.set_per_process_memory_fraction(4 / 1024)
    executor = CudaExecutor(replace(two_step_plan(), arena_bytes=5 << 20))
    x, y = memory_of(X), memory_of(Y)
    with pytest.raises(OutOfMemoryError, match="6 MiB"):
        executor.run([x, y], [1, 1])
    cuda.set_per_process_memory_fraction(1)
    assert np.array_equal(values_of(executor.run([x, y], [1, 1])[0]), 2 * X + Y)


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
    takes = [(owner, name, getattr(owner, name)) for owner, name in
             ((CUDAStorage, "__init__"), (MemoryPool, "take_outside"))]
    failing = 0
    while True:
        executor = CudaExecutor(plan)
        inputs = [memory_of(X) for _ in range(parameters)]
        held = [executor.run(inputs, numbers) for _ in range(runs_before)]
        # New addresses, so that the run under test must take all the memory that any run may take.
        inputs = [memory_of(values_of(memory)) for memory in inputs]
        arena_of(cuda.current_stream()).release()
        before = [values_of(memory) for memory in [*inputs, *chain(*held)]]
        asked = 0

        def or_fail(take, failing=failing):
            def taken(*args):
                nonlocal asked
                asked += 1
                if asked == failing + 1:
                    args[0]._block = None  # for `CUDAStorage.__del__`
                    raise OutOfMemoryError("injected")
                return take(*args)
            return taken

        with monkeypatch.context() as patch:
            for owner, name, take in takes:
                patch.setattr(owner, name, or_fail(take))
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
    assert failing >= (0 if plan.updates and runs_before else 2), "the test injected nothing"


def test_launch_blocking_names_the_launch(host_driver, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    plan = add_plan()
    executor = CudaExecutor(plan)
    x, y = memory_of(X), memory_of(Y)
    for _ in range(3):
        executor.run([x, y], [1])
    assert host_driver.calls["build_graph"] == 0

    broken = replace(plan, steps=(Launch(image("scaled_add"), (place("input"), place("input")), (1, 1, 1)),))
    with pytest.raises(RuntimeError, match="takes 5 arguments"):
        CudaExecutor(broken).run([x, y], [1])

    from genesis.runtime.cuda.driver import DriverError

    def sick():
        raise DriverError("cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access")
    monkeypatch.setattr(host_driver, "synchronize", sick)
    with pytest.raises(RuntimeError, match=r"scaled_add: cuCtxSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        executor.run([x, y], [1])


def test_launch_blocking_writes_where_storages_are_told_of_it(host_driver, monkeypatch):
    """An interrupt behind a run's writes, and before a storage was told, left an update that was made again."""
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    inputs = [memory_of(X) for _ in update_plan().inputs]
    _, writes = CudaExecutor(update_plan()).start(inputs, [1.0])
    assert all(np.array_equal(values_of(x), X) for x in inputs)
    for write in writes:
        write()
    assert all(np.array_equal(values_of(x), X + 1) for x in inputs)


def test_a_graph_that_cannot_be_built_is_tried_again(host_driver, monkeypatch):
    from genesis.runtime.cuda.driver import DriverError
    executor = CudaExecutor(add_plan())
    x, y = memory_of(X), memory_of(Y)
    executor.run([x, y], [1])

    def broken(*_):
        raise DriverError("cuGraphInstantiate", "CUDA_ERROR_INVALID_VALUE", "invalid argument")
    with monkeypatch.context() as patch:
        patch.setattr(host_driver, "build_graph", broken)
        with pytest.raises(DriverError, match="cuGraphInstantiate failed"):
            executor.run([x, y], [1])
    assert np.array_equal(values_of(executor.run([x, y], [2])[0]), X + 2 * Y)
    assert host_driver.calls["build_graph"] == 1


def test_a_launch_that_fails_names_itself(host_driver, monkeypatch):
    from genesis.runtime.cuda.driver import DriverError

    def broken(*_):
        raise DriverError("cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE", "invalid argument")
    monkeypatch.setattr(host_driver, "launch", broken)
    with pytest.raises(RuntimeError, match="scaled_add: cuLaunchKernel failed"):
        CudaExecutor(add_plan()).run([memory_of(X), memory_of(Y)], [1])


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
    with pytest.raises(TypeError, match="launches, copies and collectives, not str"):
        CudaExecutor(plan)


def test_kernels_are_loaded_once(host_driver):
    CudaExecutor(add_plan())
    CudaExecutor(two_step_plan())
    assert host_driver.calls["load"] == 1


@pytest.fixture
def started_early(host_driver, monkeypatch):
    """Whether each launch that was prepared may start early, in order."""
    found, prepare = [], host_driver.prepare_launch

    def noted(kernel, image, grid, arguments, early=True):
        found.append(early)
        return prepare(kernel, image, grid, arguments, early)
    monkeypatch.setattr(host_driver, "prepare_launch", noted)
    return found


def reading_early(kernel: KernelImage) -> KernelImage:
    """The kernel, as if it read memory before it waited."""
    return replace(kernel, source=f"{kernel.source}\n{EARLY}\n# cuda.gdc_wait()\n")


def letting_next_begin(kernel: KernelImage) -> KernelImage:
    """The kernel, as if it let the next one start before it waited."""
    return replace(kernel, source=f"{kernel.source}\n# cuda.gdc_launch_dependents()\n# cuda.gdc_wait()\n")


@pytest.mark.parametrize(("kinds", "wanted"), [
    ((reading_early, reading_early), [False, True]), ((letting_next_begin, reading_early), [True, False]),
    ((letting_next_begin, letting_next_begin), [True, True])])
def test_what_reads_early_starts_when_all_before_its_plan_has_ended(started_early, kinds, wanted):
    """Another plan's kernel before it may still write what it reads."""
    plan = two_step_plan()
    steps = [replace(step, kernel=kind(step.kernel)) for step, kind in zip(plan.steps, kinds, strict=False)]
    CudaExecutor(replace(plan, steps=(*steps, plan.steps[-1]))).run([memory_of(X), memory_of(Y)], [2, 3])
    assert started_early == wanted


def waiting_last(kernel: KernelImage) -> KernelImage:
    """The kernel, as if it waited when it has done its work."""
    return replace(kernel, source=f"{kernel.source}\n{LAST}\n# cuda.gdc_launch_dependents()\n# cuda.gdc_wait()\n")


@pytest.mark.parametrize(("reads", "wanted"), [("other", True), ("what the first writes", False)])
def test_what_waits_last_begins_with_the_kernel_before_it_where_it_needs_nothing_of_it(started_early, reads, wanted):
    """Else it is launched when that one has ended; as the first of a plan it would not know what is before it. In a
    graph no step may begin early that does not wait before it reads."""
    plan = two_step_plan()
    first, second, last = (replace(step, writes=(step.args[3],)) if isinstance(step, Launch) else step
                           for step in plan.steps)
    if reads == "other":
        second = replace(second, args=(first.args[0], *second.args[1:]))
    waits = [replace(step, kernel=replace(step.kernel, source=f"{step.kernel.source}\n# cuda.gdc_wait()\n"))
             for step in (first, second)]
    second = replace(second, kernel=waiting_last(second.kernel))
    executor = CudaExecutor(replace(plan, steps=(waits[0], second, last)))
    executor.run([memory_of(X), memory_of(Y)], [2, 3])
    assert started_early == [True, wanted] and not executor._steps.early[1]
    started_early.clear()
    CudaExecutor(replace(plan, steps=(replace(first, kernel=waiting_last(first.kernel)), waits[1], last))).run(
        [memory_of(X), memory_of(Y)], [2, 3])
    assert started_early[0] is False


def test_a_plan_that_gave_its_outputs_back_runs_over_the_same_inputs_again(monkeypatch):
    monkeypatch.setattr(executor_cuda, "KEPT", 0)
    inputs = Memories([memory_of(X), memory_of(Y)])
    first, other = CudaExecutor(add_plan()), CudaExecutor(add_plan())
    first.run(inputs, [2])
    for _ in range(2):
        other.run([memory_of(X), memory_of(Y)], [3])
    held = [memory_of(X) for _ in range(4)]  # who has what was given back
    out, = first.run(inputs, [2])
    assert np.array_equal(values_of(out), X + 2 * Y)
    assert all(np.array_equal(values_of(memory), X) for memory in held)


def test_outputs_that_somebody_holds_are_given_back_by_a_later_call(host_driver, monkeypatch):
    """Parameters are drawn whole by one program and shared out one after another: the second program that runs twice
    found some of them held, and none was given back from then on."""
    monkeypatch.setattr(executor_cuda, "KEPT", 0)
    first = CudaExecutor(add_plan())
    held = first.run([memory_of(X), memory_of(Y)], [2])
    inside = weakref.ref(held[0])
    for _ in range(2):
        other = CudaExecutor(add_plan())
        for _ in range(2):
            other.run([memory_of(X), memory_of(Y)], [3])
        if held:
            assert inside() is not None
            held.clear()
    assert inside() is None
