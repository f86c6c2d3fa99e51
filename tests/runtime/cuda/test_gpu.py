"""The runtime on a real GPU: what the host driver only pretends. Run with `pytest -m gpu`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from genesis import cuda
from genesis.ir.types import Device
from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.cuda import executor as executor_cuda
from genesis.runtime.cuda.arena import arena_of
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.driver import DriverError
from genesis.runtime.cuda.executor import CudaExecutor
from genesis.runtime.cuda.kernel_cache import KernelCache
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.cuda.stream import current_stream
from genesis.runtime.plan import KernelImage, Launch, Place, Plan, Table
from tests.runtime.kernels import (
    GPU,
    NUMBER,
    SIZE,
    SOURCE,
    add_plan,
    memory_of,
    place,
    two_step_plan,
    update_plan,
    values_of,
    vector,
)

pytestmark = pytest.mark.gpu

X = np.arange(SIZE, dtype=np.float32)
Y = np.ones(SIZE, np.float32)

# Compiled in a process of its own, as codegen's workers do: this one must not need triton.
COMPILE = """
import importlib.util, json, sys
from genesis.runtime.cuda.kernel_cache import KernelCache
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

file, directory, capability = sys.argv[1], sys.argv[2], int(sys.argv[3])
spec = importlib.util.spec_from_file_location("kernels", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
signatures = {
    "scaled_add": {"x_ptr": "*fp32", "y_ptr": "*fp32", "scale_ptr": "*fp64", "out_ptr": "*fp32", "count": "i32"},
    "increment_all": {"table_ptr": "*i64", "step_ptr": "*fp64", "count": "i32"},
}
for name, signature in signatures.items():
    source = ASTSource(fn=getattr(module, name), signature={**signature, "BLOCK": "constexpr"},
                       constexprs={"BLOCK": 128})
    kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4})
    meta = {"num_warps": 4, "shared_bytes": kernel.metadata.shared}
    assert KernelCache(directory).put(name, kernel.asm["cubin"], meta)
"""


@pytest.fixture(autouse=True)
def real_gpu():
    cuda_python_driver.install(None)
    yield
    cuda.synchronize()
    cuda_python_driver.install(None)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory) -> dict[str, KernelImage]:
    """The kernels of `SOURCE`, compiled for this GPU."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "source.py").write_text(SOURCE)
    major, minor = cuda.get_device_capability()
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", COMPILE, str(folder / "source.py"), str(folder / "cache"), f"{major}{minor}"],
                   check=True, env=environment)
    cache = KernelCache(folder / "cache")
    found = {name: cache.get(name) for name in ("scaled_add", "increment_all")}
    return {name: KernelImage(name, entry.cubin, **entry.meta) for name, entry in found.items()}


def compiled(plan: Plan, kernels: dict[str, KernelImage]) -> Plan:
    """The plan with real binaries in the place of sources."""
    steps = tuple(replace(step, kernel=kernels[step.kernel.name]) if isinstance(step, Launch) else step
                  for step in plan.steps)
    return replace(plan, steps=steps)


def test_what_the_gpu_is():
    properties = cuda.get_device_properties()
    assert cuda.is_available()
    assert properties.name
    assert properties.major >= 7
    assert properties.multi_processor_count > 0
    free, total = cuda.mem_get_info()
    assert 0 < free <= total
    assert properties.total_memory >= total


def test_copies_there_across_and_back():
    values = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
    a, b = memory_of(values), CUDAStorage(values.nbytes, GPU)
    b.copy_from(a)
    assert np.array_equal(values_of(b), values)


def test_the_host_buffer_may_be_reused_as_soon_as_the_copy_returns():
    values = np.zeros(1 << 22, np.float32)
    memories = []
    for step in range(4):
        values[:] = step
        memories.append(CUDAStorage(values.nbytes, GPU))
        memories[-1].copy_from_host(values)
    assert [np.unique(values_of(memory)).tolist() for memory in memories] == [[0], [1], [2], [3]]


def test_fill():
    memory = CUDAStorage(1000, GPU)
    driver().fill(memory.ptr, 7, 1000, current_stream().handle)
    assert np.unique(memory.to_numpy()).tolist() == [7]


def test_direct_launches_then_graph(kernels, monkeypatch):
    monkeypatch.setattr(executor_cuda, "STEPS_WITHOUT_GRAPH", 0)
    executor = CudaExecutor(compiled(two_step_plan(), kernels))
    x, y = memory_of(X), memory_of(Y)
    for a, b in [(2, 3), (2, 3), (5.5, -1), (0, 0)]:
        out, temporary = executor.run([x, y], [a, b])
        assert np.array_equal(values_of(temporary), X + np.float32(a) * Y)
        assert np.array_equal(values_of(out), X + np.float32(a) * Y + np.float32(b) * X)
        del out, temporary
    assert executor._on[current_stream().handle]._bound.graph is not None


def test_tables_update_parameters_in_place(kernels):
    executor = CudaExecutor(compiled(update_plan(3), kernels))
    parameters = [memory_of(X), memory_of(Y), memory_of(0 * X)]
    for _ in range(5):
        executor.run(parameters, [2.0])
    for memory, start in zip(parameters, (X, Y, 0 * X), strict=True):
        assert np.array_equal(values_of(memory), start + 10)


def test_held_outputs_and_moving_inputs(kernels):
    executor = CudaExecutor(compiled(add_plan(), kernels))
    y = memory_of(Y)
    held = [(step, executor.run([memory_of(X + step), y], [step])[0]) for step in range(10)]
    for step, memory in held:
        assert np.array_equal(values_of(memory), X + 2 * step)


def test_a_larger_plan_between_two_runs_of_a_smaller_one(kernels):
    small = CudaExecutor(compiled(two_step_plan(), kernels))
    large = CudaExecutor(replace(compiled(two_step_plan(), kernels), arena_bytes=300 << 20))
    x, y = memory_of(X), memory_of(Y)
    reserved = cuda.memory_reserved()
    for executor in (small, small, large, small, large, small):
        out, _ = executor.run([x, y], [1, 1])
        assert np.array_equal(values_of(out), 2 * X + Y)
    arena = arena_of(current_stream())
    assert arena.nbytes == 300 << 20 and cuda.memory_reserved() >= reserved + arena.nbytes - (2 << 20)
    arena.release()
    assert cuda.memory_reserved() < reserved + (300 << 20)
    out, _ = small.run([x, y], [1, 1])
    assert np.array_equal(values_of(out), 2 * X + Y)


def test_streams_wait_for_what_they_need(kernels):
    executor = CudaExecutor(compiled(update_plan(1), kernels))
    parameter = memory_of(X)
    side = cuda.Stream()
    for step in range(6):
        with cuda.stream(side if step % 2 else None):
            executor.run([parameter], [1.0])
    assert np.array_equal(values_of(parameter), X + 6)


def test_two_streams_run_at_the_same_time(kernels):
    """One program a kernel over 8 M elements takes long and a hundredth of the GPU: two take about as long as one."""
    size = 1 << 23
    table = Table((place("input", 0, type=vector(size)),))
    launch = Launch(kernels["increment_all"], (table, Place("numbers", 0, 0, NUMBER), size), (1, 1, 1))
    plan = Plan(GPU, (vector(size),), (), (0,), (NUMBER,), (launch,), 0)
    executors, streams = [CudaExecutor(plan), CudaExecutor(plan)], [cuda.Stream(), cuda.Stream()]
    memories = [memory_of(np.zeros(size, np.float32)) for _ in range(2)]

    def milliseconds(used: int) -> float:
        start, ends = cuda.Event(enable_timing=True), [cuda.Event(enable_timing=True) for _ in range(used)]
        cuda.synchronize()
        start.record()
        for k in range(used):
            streams[k].wait_event(start)
            with cuda.stream(streams[k]):
                for _ in range(3):
                    executors[k].run([memories[k]], [1.0])
                ends[k].record()
        cuda.synchronize()
        return max(start.elapsed_time(end) for end in ends)
    milliseconds(2)
    one, two = milliseconds(1), milliseconds(2)
    assert two < 1.5 * one, f"one stream {one:.2f} ms, two {two:.2f} ms"
    assert np.unique(values_of(memories[1])).tolist() == [6]


def test_events_keep_time(kernels):
    executor = CudaExecutor(compiled(update_plan(1), kernels))
    parameter = memory_of(X)
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    executor.run([parameter], [1.0])
    start.record()
    executor.run([parameter], [1.0])
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 1000
    assert end.query()


def test_launch_blocking(kernels, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    executor = CudaExecutor(compiled(add_plan(), kernels))
    for scale in range(3):
        assert np.array_equal(values_of(executor.run([memory_of(X), memory_of(Y)], [scale])[0]), X + scale * Y)


def test_out_of_memory_leaves_the_process_usable():
    total = cuda.get_device_properties().total_memory
    with pytest.raises(cuda.OutOfMemoryError, match="tried to allocate"):
        CUDAStorage(2 * total, GPU)
    assert np.array_equal(values_of(memory_of(X)), X)


def test_an_error_has_cudas_name():
    with pytest.raises(DriverError, match=r"cuModuleLoadData failed: CUDA_ERROR_\w+: "):
        driver().load_kernel(KernelImage("nothing", b"this is no cubin", 4, 0))


def test_the_gpu_path_loads_no_torch_and_no_triton():
    script = ("import sys, json, numpy; from genesis.runtime.cuda.storage import CUDAStorage;"
              "from genesis.ir.types import Device; memory = CUDAStorage(8, Device('cuda'));"
              "memory.copy_from_host(numpy.zeros(8, numpy.uint8)); assert not memory.to_numpy().any();"
              "print(json.dumps([name for name in ('torch', 'triton') if name in sys.modules]))")
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == []


def test_copies_between_gpus():
    if cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    there = CUDAStorage(X.nbytes, Device("cuda", 1))
    there.copy_from(memory_of(X))
    assert np.array_equal(values_of(there), X)


