"""Lines of floats whose positions are added all at once, as whole numbers of a scale of each sum."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import MODELS
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates import scaled_lines
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import backend_named
from genesis.ir import Graph
from genesis.ir.ops import leaves
from genesis.ir.ops import line_sums as line_sums_of_ops
from genesis.ir.ops.line_sums import ALL_AT_ONCE, lines_summed
from genesis.ir.types import dtype_named, int64
from genesis.passes import structural_memo
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.programs import GPU, an_input
from tests.codegen.cuda.run_interpreted import check_what_is_not_finite, compile_cubin, run_schedule
from tests.codegen.cuda.test_machine_code import remarks
from tests.sweeping import by_default, each_value, sweep_but

DIGITS = {"float32": 24, "bfloat16": 8, "float16": 11}


@pytest.fixture(autouse=True)
def texts_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that changes a constant gets no kernel's text of one before it, and leaves none."""
    monkeypatch.setattr(structural_memo, "_closed", {})


def line_sums(lines: int, rows: int, count: int, dtype: str = "float32", constant: bool = False) -> Schedule:
    """The one kernel that adds positions of lines up."""
    kind = dtype_named(dtype)
    base, index, added = an_input(0, (lines, rows), kind), an_input(1, (lines, count), int64), an_input(
        2, (lines, count), kind)
    onto = leaves.full((lines, rows), 0, kind, GPU) if constant else base
    found = run_passes(Graph((base, index, added), (lines_summed(onto, index, added),)), backend_named("h200"))[1]
    kernel, = (emit(group) for group in found.groups)
    assert kernel.name == "lines_summed" and "g_raised" in kernel.source
    return found


def check(found: torch.Tensor, base: torch.Tensor, index: torch.Tensor, added: torch.Tensor, constant: bool,
          bits: int = 33) -> None:
    """Each sum is rounded once, from one that is off by 2^-bits of its largest position for each of its positions;
    then the base is added."""
    exact = torch.zeros(base.shape, dtype=torch.float64).scatter_add(1, index, added.double())
    most = torch.zeros(base.shape, dtype=torch.float64).scatter_reduce(1, index, added.double().abs(), "amax")
    often = torch.zeros(base.shape, dtype=torch.float64).scatter_add(1, index, torch.ones(index.shape).double())
    want = exact if constant else base.double() + exact
    digits = DIGITS[str(base.dtype).removeprefix("torch.")]
    off = (found.double() - want).abs()
    allowed = want.abs() * 2.0 ** -digits + (exact.abs() + want.abs()) * 2.0 ** -24 + often * most * 2.0 ** -bits + (
        2.0 ** -149 if base.dtype is torch.float32 else 2.0 ** -24)
    assert (off <= allowed).all(), (off / allowed).max()


LINES = [(2, 400, 900), (1, 300, 2500), (3, 5000, 385), (1, 3000, 4096), (2, 1100, 200), (1, 700, 10_000)]
"""(lines, rows, positions): few sums and many, positions and sums that are no multiples of the threads."""


@by_default("line0-*", "*-scales0-True", "*-scales2-False")
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("scales", [(0, 0), (-4, 4), (-44, 37)])
@pytest.mark.parametrize(("line", "dtype"), sweep_but(
    lambda line, dtype: dtype == "float32" or line == LINES[0], LINES, ["float32", "bfloat16", "float16"]))
def test_sums_are_those_of_exact_numbers(line: tuple[int, int, int], dtype: str, scales: tuple[int, int],
                                         constant: bool) -> None:
    """Also where a sum's positions are far apart, or below float32's normal range."""
    lines, rows, count = line
    kind, generator = getattr(torch, dtype), torch.Generator().manual_seed(0)
    if dtype == "float16" and scales[1] > 4:
        scales = (-8, 3)
    index = torch.randint(0, rows, (lines, count), generator=generator)
    index[:, count // 2:count // 2 + 5] = rows - 1
    spread = torch.logspace(*scales, count)[torch.randperm(count, generator=generator)]
    added = (torch.randn(lines, count, generator=generator) * spread).to(kind)
    base = torch.randn(lines, rows, generator=generator).to(kind)
    found, = run_schedule(line_sums(*line, dtype, constant), [base, index, added])
    check(found, base, index, added, constant)


@pytest.mark.parametrize("rows", [1, 8, 3000])
def test_positions_in_another_order_give_the_same_bits(rows: int) -> None:
    """Floats that are added in another order do not: the test's own sums differ."""
    lines, rows, count = 2, max(rows, 300), 3000
    generator = torch.Generator().manual_seed(rows)
    index = torch.randint(0, rows, (lines, count), generator=generator) % (rows if rows > 300 else 8)
    added = torch.randn(lines, count, generator=generator) * torch.logspace(-6, 2, count)
    base, order = torch.randn(lines, rows, generator=generator), torch.randperm(count, generator=generator)
    schedule = line_sums(lines, rows, count)
    found, = run_schedule(schedule, [base, index, added])
    again, = run_schedule(schedule, [base, index[:, order], added[:, order]])
    assert torch.equal(found, again)
    plain = [base.scatter_add(1, index[:, x], added[:, x]) for x in (slice(None), order)]
    assert not torch.equal(*plain)


def test_as_many_as_may_be_of_the_largest_do_not_overflow() -> None:
    """All positions of one sum round up to the next whole number of the upper word."""
    largest = torch.tensor(2.0).nextafter(torch.tensor(0.0))
    for value in (largest, -largest, torch.tensor(1.0 + 2.0 ** -17)):
        added, index = value.expand(1, ALL_AT_ONCE).contiguous(), torch.zeros(1, ALL_AT_ONCE, dtype=torch.int64)
        found, = run_schedule(line_sums(1, 300, ALL_AT_ONCE), [torch.zeros(1, 300), index, added])
        assert abs(found[0, 0].item() / (value.item() * ALL_AT_ONCE) - 1) < 2.0 ** -24 and not found[0, 1:].any()


@pytest.mark.parametrize("share", [False, True])
def test_what_is_not_finite_stays_in_its_sum(monkeypatch: pytest.MonkeyPatch, share: bool) -> None:
    if share:
        monkeypatch.setattr(scaled_lines, "SUMS_AT_ONCE", 128)
    check_what_is_not_finite(lambda rows, count: line_sums(1, rows, count))


def test_as_many_infinities_as_may_be_are_counted() -> None:
    index = torch.zeros(1, ALL_AT_ONCE, dtype=torch.int64)
    for value in (math.inf, -math.inf, math.nan):
        added = torch.full((1, ALL_AT_ONCE), value)
        found, = run_schedule(line_sums(1, 300, ALL_AT_ONCE), [torch.zeros(1, 300), index, added])
        torch.testing.assert_close(found[0, 0], torch.tensor(value), equal_nan=True)


def test_shares_of_a_line_have_its_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaled_lines, "SUMS_AT_ONCE", 160)
    generator = torch.Generator().manual_seed(0)
    base, added = torch.randn(3, 500, generator=generator), torch.randn(3, 900, generator=generator)
    index = torch.randint(0, 500, (3, 900), generator=generator)
    schedule = line_sums(3, 500, 900)
    assert emit(schedule.groups[0]).grid == (3 * 4, 1, 1)
    found, = run_schedule(schedule, [base, index, added])
    check(found, base, index, added, False)


def kernel_of(shape: tuple[int, ...], count: int, dtype: str) -> KernelSource:
    """What adds up positions of lines, or of columns."""
    places, kind = (shape[0], count, *shape[2:]), dtype_named(dtype)
    base, index, added = an_input(0, shape, kind), an_input(1, places, int64), an_input(2, places, kind)
    graph = Graph((base, index, added), (lines_summed(base, index, added),))
    return emit(run_passes(graph, backend_named("h200"))[1].groups[0])


KERNELS = [((3, 300), 500, "float16"), ((3, 14_000), ALL_AT_ONCE, "float32"), ((3, 9000), 5000, "bfloat16"),
           ((13, 100_000), 8000, "float32"), ((88, 42_240), 42_240, "float32"),
           ((9, 1024, 1000), 256, "bfloat16"), ((1, 1000, 900), 1000, "float32")]
"""(the base's shape, positions, dtype)."""


@by_default("*-42240-float32", "*-256-bfloat16")
@pytest.mark.parametrize(("shape", "count", "dtype"), KERNELS)
def test_all_positions_of_a_thread_stay_in_registers(shape: tuple[int, ...], count: int, dtype: str,
                                                     tmp_path: Path) -> None:
    """1024 threads have 64 registers each."""
    kernel = kernel_of(shape, count, dtype)
    assert "g_raised" in kernel.source and compile_cubin(kernel, 120)
    said = remarks(compiled_by_triton(kernel.key_parts(), 90).asm["ptx"], tmp_path)
    assert "0 bytes spill stores" in said and "0 bytes stack frame" in said, said


@pytest.mark.parametrize("gpu", list(MODELS))
def test_sums_of_a_program_fit_any_gpu(gpu: str) -> None:
    for rows in (300, 8000, 14_000, 100_000, 131_072):
        found = line_sums(1, rows, 4000)
        kernel = emit(found.groups[0], MODELS[gpu])
        assert kernel.shared + scaled_lines.TRITONS_BYTES <= MODELS[gpu].block_shared_memory


COLUMNS = [(2, 300, 70, 37), (1, 1000, 900, 13), (5, 500, 300, 5), (1, 40, 1000, 20)]
"""(outer, rows, positions, columns): 16 of a program, 8, across the outer size, and few sums."""


@by_default("columns0-*-False", "*-float32-True")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("columns", "dtype"), sweep_but(
    lambda columns, dtype: dtype == "float32" or columns == COLUMNS[0], COLUMNS, ["float32", "bfloat16", "float16"]))
def test_columns_are_added_up_where_they_lie(monkeypatch: pytest.MonkeyPatch, columns: tuple[int, int, int, int],
                                             dtype: str, shared: bool) -> None:
    monkeypatch.setattr(line_sums_of_ops, "FEWEST_PROGRAMS", 1)
    if shared:
        monkeypatch.setattr(scaled_lines, "SUMS_AT_ONCE", 8 * 352)
    outer, rows, count, inner = columns
    kind, generator = getattr(torch, dtype), torch.Generator().manual_seed(0)
    shape, places = (outer, rows, inner), (outer, count, inner)
    base, index, added = an_input(0, shape, dtype_named(dtype)), an_input(1, places, int64), an_input(
        2, places, dtype_named(dtype))
    schedule = run_passes(Graph((base, index, added), (lines_summed(base, index, added),)), backend_named("h200"))[1]
    kernel, = (emit(group) for group in schedule.groups)
    assert "g_raised" in kernel.source
    where = torch.randint(0, rows, places, generator=generator)
    data = [torch.randn(shape, generator=generator).to(kind), where,
            (torch.randn(places, generator=generator) * torch.logspace(-5, 3, inner)).to(kind)]
    found, = run_schedule(schedule, data, most_programs=4096)
    check(*(x.transpose(1, 2).reshape(outer * inner, -1) for x in (found, *data)), False)


LONG = [(2, 500, ALL_AT_ONCE + 1), (1, 700, 20_000), (1, 40_000, 18_000)]
"""(lines, rows, positions) that do not stay in registers: little more than a turn, several turns, and shares."""


@each_value
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("scales", [(0, 0), (-4, 4), (-44, 37)])
@pytest.mark.parametrize("line", LONG)
def test_positions_of_long_lines_are_read_in_turns(line: tuple[int, int, int], scales: tuple[int, int],
                                                   constant: bool) -> None:
    lines, rows, count = line
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, rows, (lines, count), generator=generator)
    index[:, count // 2:] %= max(rows // 5000, 3)
    spread = torch.logspace(*scales, count)[torch.randperm(count, generator=generator)]
    added, base = torch.randn(lines, count, generator=generator) * spread, torch.randn(lines, rows, generator=generator)
    schedule = line_sums(lines, rows, count, constant=constant)
    found, = run_schedule(schedule, [base, index, added])
    check(found, base, index, added, constant, bits=29)
    order = torch.randperm(count, generator=generator)
    again, = run_schedule(schedule, [base, index[:, order], added[:, order]])
    assert torch.equal(found, again)


def test_as_many_as_may_be_of_a_long_line_do_not_overflow() -> None:
    count = 1 << 15
    for value in (1.9999999, -1.9999999, 1.0 + 2.0 ** -15, math.inf, -math.inf, math.nan):
        added, index = torch.full((1, count), value), torch.zeros(1, count, dtype=torch.int64)
        found, = run_schedule(line_sums(1, 300, count), [torch.zeros(1, 300), index, added])
        torch.testing.assert_close(found[0, 0], (added[0, 0].double() * count).float(), rtol=2.0 ** -24, atol=0,
                                   equal_nan=True)
        assert not found[0, 1:].any()
