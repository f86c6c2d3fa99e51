"""The model of a GPU: where it comes from, and that splits, tiles, grids and keys follow it."""

from __future__ import annotations

import tokenize
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import genesis
from genesis.codegen.cuda import compile as compile_cuda
from genesis.codegen.cuda.blocks import choose_blocks
from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200, MODELS, GpuModel, model_of
from genesis.codegen.cuda.source import KernelSource
from genesis.engine import backends, plans
from genesis.engine.backends import FakeCUDABackend, backend_named, cuda_backend
from genesis.engine.symbolic.shape_erased import Member, ShapeErased
from genesis.ir import Graph, Node
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.contraction import matmul
from genesis.ir.types import Device, bfloat16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.pipeline import run_passes
from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.cuda.driver import DeviceProperties
from genesis.runtime.fake_cuda.driver import SAID_BY_AN_H200, HostDriver
from tests.codegen.cuda.gpus import GPUS
from tests.codegen.cuda.programs import an_input, inputs

# Where a model comes from


def test_the_driver_and_the_table_agree_on_an_h200() -> None:
    assert model_of(SAID_BY_AN_H200) == H200


def test_a_model_says_what_the_driver_says() -> None:
    l40 = DeviceProperties("NVIDIA L40S", 48 << 30, 8, 9, 142, max_threads_per_multi_processor=1536,
                           regs_per_multiprocessor=65536, shared_memory_per_block_optin=99 << 10,
                           shared_memory_per_multiprocessor=100 << 10, L2_cache_size=96 << 20,
                           memory_clock_rate=9001000, memory_bus_width=384)
    assert model_of(l40) == GpuModel("NVIDIA L40S", (8, 9), 142, 48, 65536, 100 << 10, 99 << 10, 96 << 20, 630e9)


def test_where_the_driver_knows_no_clock_memory_is_as_fast_as_an_h200s_for_each_multiprocessor() -> None:
    assert model_of(replace(SAID_BY_AN_H200, memory_clock_rate=0)).copy_rate == H200.copy_rate
    half = replace(SAID_BY_AN_H200, memory_clock_rate=0, multi_processor_count=66)
    assert model_of(half).copy_rate == H200.copy_rate / 2


@pytest.mark.parametrize("architecture", GPUS)
def test_what_needs_hopper_is_asked_for(architecture: int) -> None:
    gpu = GPUS[architecture]
    assert gpu.architecture == architecture
    assert (gpu.dependent_launch, gpu.bulk_prefetch) == (architecture >= 90,) * 2


def test_cuda_means_an_h200_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise RuntimeError("CUDA is not available")
    monkeypatch.setattr(cuda_python_driver, "driver", none)
    assert backend_named("cuda").gpu == H200


def test_cuda_means_the_gpu_at_hand() -> None:
    cuda_python_driver.install(HostDriver(capability=(8, 9)))
    try:
        gpu = backend_named("cuda").gpu
        assert gpu == backends.gpu_at_hand(0) and isinstance(gpu, GpuModel) and gpu.capability == (8, 9)
    finally:
        cuda_python_driver.install(None)


@pytest.mark.parametrize("name", MODELS)
def test_a_named_gpu_is_a_target(name: str) -> None:
    assert backend_named(name).gpu == MODELS[name] and backend_named(name).name == "cuda"


def test_no_other_file_knows_a_gpu_by_its_numbers() -> None:
    """An H200's multiprocessors, halves and multiples of them, and architectures as Triton calls them. In `ir`, where
    nothing is asked of architectures, these and 66 are numbers as others."""
    root = Path(genesis.__file__).parent
    multiprocessors = {"132", "264", "528", "1056"}
    halves_and_architectures = {"66", *map(str, GPUS)} - {"100"}  # a round number, too
    rooms = {path: multiprocessors if room == "ir" else multiprocessors | halves_and_architectures
             for room in ("ir", "passes", "codegen") for path in root.glob(f"{room}/**/*.py")}
    found = []
    for path in {*rooms} - {root / "codegen/cuda/gpu_model.py", root / "ir/gpu_figures.py"}:
        with path.open("rb") as file:
            numbers = [token for token in tokenize.tokenize(file.readline) if token.type == tokenize.NUMBER]
        found += [f"{path.name}:{n.start[0]}: {n.line.strip()}" for n in numbers if n.string in rooms[path]]
    assert found == []


# What follows it


def kernels(gpu: GpuModel, *outputs: Node) -> list[KernelSource]:
    """The kernels of a program on a GPU."""
    graph = Graph(tuple(dict.fromkeys(x for x in Graph((), outputs).nodes if x.op.name == "input")), outputs)
    return [emit(group, gpu) for group in run_passes(graph, cuda_backend(gpu))[1].groups]


@pytest.mark.parametrize("architecture", GPUS)
def test_kernels_wait_for_each_other_only_where_they_may_overlap(architecture: int) -> None:
    x, = inputs((1 << 24,))
    kernel, = kernels(GPUS[architecture], p.exp(x))
    overlaps = architecture >= 90
    assert ("gdc_wait()" in kernel.source) == ("gdc_launch_dependents()" in kernel.source) == overlaps
    assert ("g_ask(" in kernel.source) == overlaps
    assert "libdevice.exp(" in kernel.source


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_a_sum_of_all_has_eight_programs_for_each_multiprocessor(gpu: GpuModel) -> None:
    x, = inputs((1 << 24,))
    first, _ = kernels(gpu, r.sum(x, axes=(0,)))
    assert first.grid[:2] == (1, 8 * gpu.multiprocessors)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_sums_of_rows_have_four_splits_for_each_multiprocessor(gpu: GpuModel) -> None:
    x, = inputs((1 << 14, 768))
    first, _ = kernels(gpu, r.sum(p.exp(x), axes=(0,)))
    assert first.grid[1] == 4 * gpu.multiprocessors


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_sums_of_rows_in_memory_have_splits_of_256_where_two_programs_for_each_are_left(gpu: GpuModel) -> None:
    x, = inputs((1 << 14, 768))
    first, _ = kernels(gpu, r.sum(x, axes=(0,)))
    blocks, splits = first.grid[:2]
    assert blocks * splits >= 2 * gpu.multiprocessors
    assert (1 << 14) / splits >= 256 or blocks * (splits // 2) < 2 * gpu.multiprocessors


def test_a_product_takes_its_large_tile_where_half_of_the_multiprocessors_get_one() -> None:
    a, b = inputs((4096, 2048), (2048, 2048), dtype=bfloat16)  # 256 tiles of 128 x 256
    few, many = replace(H200, multiprocessors=512), replace(H200, multiprocessors=514)
    tiles = [kernels(replace(gpu, capability=(8, 0)), matmul(a, b))[0].constexprs["J"] for gpu in (few, many)]
    assert tiles == [256, 128]


def test_hopper_shares_tiles_where_the_last_round_would_leave_multiprocessors_idle() -> None:
    a, b = inputs((768, 16384), (16384, 3072), dtype=bfloat16)  # 72 tiles of 128 x 256, 144 of 128 x 128
    shared = {number: "flags" in kernels(replace(H200, multiprocessors=number), matmul(a, b))[0].signature
              for number in (36, 52, 72, 132)}
    assert shared == {36: False, 52: True, 72: False, 132: True}


def test_a_product_with_few_tiles_is_cut_only_where_multiprocessors_would_be_idle() -> None:
    a, b = inputs((768, 16384), (16384, 768), dtype=bfloat16)
    assert len(kernels(H200, matmul(a, b))) == 2
    assert len(kernels(replace(H200, multiprocessors=9), matmul(a, b))) == 1


@pytest.mark.parametrize("head", [64, 128, 256])
@pytest.mark.parametrize("gpu", [MODELS["l4"], H200], ids=lambda gpu: gpu.name)
def test_tiles_of_attention_fit_shared_memory(gpu: GpuModel, head: int) -> None:
    """q and g of a tile stay, a tile of k and v is there and another on its way: all in 16 bits."""
    from tests.codegen.cuda.test_attention import program
    operands, outputs = program((4,), 1024, 1024, head, head, True, 0.1)
    schedule = run_passes(Graph(operands, outputs), cuda_backend(gpu))[1]
    found = next(s for s in (emit(group, gpu) for group in schedule.groups) if s.name == "attention_dq")
    i, j = found.constexprs["I"], found.constexprs["J"]
    assert 2 * 2 * head * (i + (found.num_stages - 1) * j) <= gpu.block_shared_memory


def test_loads_run_ahead_as_far_as_shared_memory_reaches() -> None:
    x, y = (an_input(i, (4096, 16384), float32) for i in range(2))
    group = fuse(Graph((x, y), (r.sum(x * y, axes=(0,)),))).groups[0]
    assert choose_blocks(build(group), H200).num_stages > choose_blocks(build(group), MODELS["l4"]).num_stages


def test_a_gpus_kernel_is_not_anothers() -> None:
    """What equal groups share (`passes/structural_memo.py`) they share on one GPU."""
    x, = inputs((1 << 22,))
    group, = fuse(Graph((x,), (p.exp(x),))).groups
    texts = [emit(group, gpu).source for gpu in (H200, MODELS["a100"], replace(H200, multiprocessors=20), H200)]
    assert len(set(texts)) == 3 and texts[0] == texts[3]


def test_the_gpu_is_part_of_a_kernels_and_of_a_plans_name(monkeypatch: pytest.MonkeyPatch) -> None:
    x, = inputs((64,))
    kernel, = kernels(H200, p.exp(x))
    assert len({compile_cuda.key_of(kernel, gpu) for gpu in GPUS.values()}) == len(GPUS)
    names, program = set(), Member(ShapeErased(), (), [], frozenset(), [])
    for gpu in (H200, replace(H200, multiprocessors=66), replace(H200, l2_bytes=1 << 20), MODELS["h100"]):
        monkeypatch.setattr(backends, "gpu_at_hand", lambda index, gpu=gpu: gpu)
        names.add(plans._name((), program, Device("cuda")))
    assert len(names) == 4


@pytest.mark.parametrize("capability", [(8, 0), (12, 0)])
def test_a_step_on_another_gpu(capability: tuple[int, int]) -> None:
    """Forward, backward and update on the host driver: kernels of that GPU, launched as it can."""
    compiled_for, early = set(), set()

    class Noting(FakeCUDABackend):
        def compile(self, sources):
            compiled_for.add(self.gpu.capability)
            found = super().compile(sources)
            early.update(image.overlap.waits for image in found)
            return found

    with Noting(HostDriver(memory_bytes=64 << 20, capability=capability)):
        losses = {}
        for device in ("cpu", "cuda"):
            genesis.manual_seed(0)
            model = genesis.nn.Sequential(genesis.nn.Linear(8, 16), genesis.nn.GELU(), genesis.nn.Linear(16, 4))
            x, y = genesis.randn(6, 8), genesis.tensor([0, 1, 2, 3, 0, 1])
            model, x, y = model.to(device), x.to(device), y.to(device)
            optimizer = genesis.optim.AdamW(model.parameters(), lr=0.01)
            losses[device] = []
            for _ in range(3):
                loss = genesis.nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[device].append(loss.item())
        np.testing.assert_allclose(losses["cuda"], losses["cpu"], rtol=1e-4)  # float32 sums in another order
        assert compiled_for == {capability} and early == {capability >= (9, 0)}
