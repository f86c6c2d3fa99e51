"""Rows that one program sorts digit by digit, in shared memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from genesis import engine
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import MODELS
from genesis.codegen.cuda.templates import row_digits
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import FakeCUDABackend, backend_named
from genesis.ir import Graph
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import sorting
from genesis.ir.ops.control import item
from genesis.ir.types import dtype_named
from genesis.passes.pipeline import run_passes
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.codegen.cuda.programs import an_input
from tests.codegen.cuda.run_interpreted import run_schedule
from tests.codegen.cuda.test_machine_code import remarks
from tests.codegen.cuda.test_sorting import compiled, same, sorts, tied
from tests.gpu.compare import check, numbers
from tests.sweeping import sweep_but


@pytest.fixture
def short_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of more than 16 elements go by digits, two words a thread, however few they are."""
    for name in ("TILE_OF_32_BITS", "TILE_OF_64_BITS"):
        monkeypatch.setattr(sorting, name, 16)
    monkeypatch.setattr(row_digits, "RUNS_OF_PASSES", (1, 0))
    monkeypatch.setattr(row_digits, "NETWORK", 16)
    monkeypatch.setattr(row_digits, "MANY", 16)
    monkeypatch.setattr(row_digits, "EACH", 2)


@pytest.mark.usefixtures("short_tiles")
@pytest.mark.parametrize(("dtype", "length", "descending"), sweep_but(
    lambda dtype, length, descending: length == 203 or (length == 1100 and dtype == "float32" and descending),
    ["float32", "bfloat16", "float16", "int32", "int16", "int8", "uint8", "bool"], [17, 203, 512, 700, 1100],
    [False, True]))
def test_rows_are_sorted(dtype: str, length: int, descending: bool) -> None:
    """Ties, NaN, infinities and zeros of both signs; 8, 16 and 32 warps; threads with no or one word beside two."""
    x, data = an_input(0, (2, length), dtype_named(dtype)), tied((2, length), dtype)
    assert sorts(x, data, 1, descending) == ["sort_by_digits"]


@pytest.mark.usefixtures("short_tiles")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_every_digit_counts(dtype: str) -> None:
    """Values whose digits all differ, the ends of the dtype's range among them."""
    generator = torch.Generator().manual_seed(0)
    kind = torch.int16 if dtype == "float16" else torch.int32
    low, high = torch.iinfo(kind).min, torch.iinfo(kind).max
    bits = torch.randint(low, high, (1, 300), generator=generator, dtype=kind)
    bits[0, :2] = torch.tensor([low, high], dtype=kind)
    assert sorts(an_input(0, (1, 300), dtype_named(dtype)), bits.view(getattr(torch, dtype)), 1, False) == [
        "sort_by_digits"]


@pytest.mark.usefixtures("short_tiles")
@pytest.mark.parametrize(("k", "largest", "dtype"), [
    (40, True, "float32"), (100, False, "bfloat16"), (1, True, "int8")])
def test_topk_of_many(monkeypatch: pytest.MonkeyPatch, k: int, largest: bool, dtype: str) -> None:
    monkeypatch.setattr(row_digits, "MANY", 1)
    x, data = an_input(0, (2, 300), dtype_named(dtype)), tied((2, 300), dtype)
    schedule = compiled([x], sorting.topk(x, k=k, axis=1, largest=largest))
    assert [emit(group).name for group in schedule.groups] == ["topk_by_digits"]
    values, indices = run_schedule(schedule, [data])
    want = torch.sort(data, dim=1, descending=largest, stable=True)
    same(values, want.values[:, :k])
    assert torch.equal(indices, want.indices[:, :k])


@pytest.mark.parametrize(("length", "k", "name"), [
    (4000, 1000, "topk_by_digits"), (8000, 600, "topk_by_digits"), (1000, 900, "topk_rows"), (4000, 50, "topk_rows")])
def test_which_topk_goes_by_digits(length: int, k: int, name: str) -> None:
    x = an_input(0, (400, length))
    kernels = [emit(group).name for group in compiled([x], sorting.topk(x, k=k, axis=1)).groups]
    assert kernels == [name]


@pytest.mark.usefixtures("short_tiles")
def test_views_and_casts_before_it_cost_no_kernel() -> None:
    x = an_input(0, (60, 2))
    node = sorting.sort(p.cast(x, dtype=dtype_named("int32")), axis=0)
    schedule = compiled([x], node)
    data = tied((60, 2), "float32").nan_to_num(0, 9, -9) * 4
    values, indices = run_schedule(schedule, [data])
    want = torch.sort(data.int(), dim=0, stable=True)
    assert torch.equal(values, want.values) and torch.equal(indices, want.indices)


@pytest.mark.usefixtures("short_tiles")
@pytest.mark.parametrize("wanted", [0, 1])
def test_one_result_is_written_alone(wanted: int) -> None:
    x, data = an_input(0, (2, 100)), tied((2, 100), "float32")
    node = sorting.sort(x, axis=1)
    schedule = run_passes(Graph((x,), (item(node, index=wanted),)), backend_named("h200"))[1]
    assert [emit(group).name for group in schedule.groups] == ["sort_by_digits"]
    same(run_schedule(schedule, [data])[0], torch.sort(data, dim=1, stable=True)[wanted])


@pytest.mark.parametrize(("shape", "axis", "dtype", "gpu", "name"), [
    ((400, 15900), 1, "float32", "h200", "sort_by_digits"),
    ((400, 15900), 1, "bfloat16", "a100", "sort_by_digits"),
    ((400, 8193), 1, "bfloat16", "l4", "sort_by_digits"),
    ((400, 15900), 1, "float32", "l4", "digit_counts"),  # it has no room for so many words
    ((400, 16385), 1, "float32", "h200", "digit_counts"),
    ((6, 15900), 1, "float32", "h200", "sort_runs"),
    ((7, 15900), 1, "float32", "h200", "sort_by_digits"),
    ((4, 15900), 1, "bfloat16", "h200", "sort_by_digits"),
    ((1, 4096), 1, "float32", "h200", "sort_by_digits"),
    ((400, 1025), 1, "float32", "l4", "sort_by_digits"),
    ((400, 1024), 1, "float32", "h200", "sort_rows"),
    ((200, 400), 0, "float32", "h200", "sort_columns"),
])
def test_which_rows_go_by_digits(shape: tuple[int, ...], axis: int, dtype: str, gpu: str, name: str) -> None:
    x = an_input(0, shape, dtype_named(dtype))
    outputs = tuple(item(sorting.sort(x, axis=axis), index=i) for i in (0, 1))
    schedule = run_passes(Graph((x,), outputs), backend_named(gpu))[1]
    assert emit(schedule.groups[0], MODELS[gpu]).name == name


@pytest.mark.parametrize(("length", "dtype", "spilled"), [
    pytest.param(16384, "float32", 64, marks=pytest.mark.slow), (8192, "float32", 64),
    pytest.param(16384, "bfloat16", 0, marks=pytest.mark.slow)])
def test_words_stay_in_registers(length: int, dtype: str, spilled: int, tmp_path: Path) -> None:
    """1024 threads have 64 registers each, of which 16 words of 64 bits and their places take 48."""
    x = an_input(0, (400, length), dtype_named(dtype))
    group, = compiled([x], sorting.sort(x, axis=1)).groups
    kernel = emit(group)
    made = compiled_by_triton(kernel.key_parts(), 90)
    said = remarks(made.asm["ptx"], tmp_path)
    assert int(said.split(" bytes spill stores")[0].split()[-1]) <= spilled
    threads = 32 * kernel.num_warps
    together = min(MODELS["h200"].shared_memory // (made.metadata.shared + kernel.shared), 65536 // (64 * threads))
    assert together * threads == 1024


@pytest.mark.usefixtures("short_tiles")
def test_one_plan_serves_rows_of_several_lengths() -> None:
    """Threads have room for the longest row of its class."""
    with FakeCUDABackend(HostDriver(memory_bytes=64 << 20)):
        engine.reset()
        for rows, length in ((2, 300), (3, 400), (5, 511), (2, 260)):
            check(lambda x: (*x.sort(1), x.sort(1, descending=True).values), numbers(rows, length))
        plan = engine.last_plan()
        assert plan is not None
        assert [label for label, _ in plan.executor.launches()] == ["sort_by_digits", "sort_by_digits"]
