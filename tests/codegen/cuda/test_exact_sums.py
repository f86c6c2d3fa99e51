"""Sums at places that are data, as whole numbers in words of 64 bits that many programs add to."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import genesis
from genesis import engine
from genesis.codegen.cuda.compile import compile_sources
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.source import Exchange
from genesis.codegen.cuda.templates.exact_sums import AT_ONCE, EACH, ROUNDS
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import FakeCUDABackend, backend_named
from genesis.ir import Graph
from genesis.ir.node import Node, literal
from genesis.ir.ops import indexing, leaves
from genesis.ir.ops.exact_sums import MOST_POSITIONS, STEPS, exact_fits, exact_sums, windows_of
from genesis.ir.ops.indexing import scatter_add
from genesis.ir.ops.row_number import in_range, report
from genesis.ir.place import SUM_WORDS
from genesis.ir.size_trace import Trace
from genesis.ir.types import dtype_named, int32, int64
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import run_passes
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import Launch
from tests.codegen.cuda.gpus import GPUS
from tests.codegen.cuda.programs import GPU, an_input
from tests.codegen.cuda.run_interpreted import check_what_is_not_finite, compile_cubin, run_schedule, run_source
from tests.codegen.cuda.test_machine_code import remarks
from tests.sweeping import by_default, sweep_but

DIGITS = {"float32": 24, "bfloat16": 8, "float16": 11}


def exact(shape: tuple[int, ...], count: int, dtype: str = "float32", constant: bool = False) -> Schedule:
    """The one kernel that adds positions of lines, or of columns, up."""
    kind, places = dtype_named(dtype), (shape[0], count, *shape[2:])
    base, index, added = an_input(0, shape, kind), an_input(1, places, int64), an_input(2, places, kind)
    onto = leaves.full(shape, 0, kind, GPU) if constant else base
    found = run_passes(Graph((base, index, added), (exact_sums(onto, index, added),)), backend_named("h200"))[1]
    kernel, = (emit(group) for group in found.groups)
    assert kernel.name == "exact_sums"
    return found


def summed(index: torch.Tensor, added: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Sums of all bits: float64 has room for those of a hundred steps of float32."""
    return torch.zeros(shape, dtype=torch.float64).scatter_add(1, index, added.double())


SHAPES = [((1, 700), 3000), ((3, 500), 385), ((2, 40, 17), 65), ((1, 3, 5), 2000), ((5, 1, 3), 4)]


@by_default("shape[0-2]-*", "*-scales2-True")
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("scales", [(0, 0), (-4, 4), (-44, 37)])
@pytest.mark.parametrize(("shape", "dtype"), sweep_but(
    lambda shape, dtype: dtype == "float32" or shape == SHAPES[0], SHAPES, list(DIGITS)))
def test_sums_are_exact_and_rounded_once(shape: tuple[tuple[int, ...], int], dtype: str, scales: tuple[int, int],
                                         constant: bool) -> None:
    """Also where a sum's positions are far apart, or below float32's normal range."""
    sizes, count = shape
    kind, generator = getattr(torch, dtype), torch.Generator().manual_seed(0)
    if dtype == "float16" and scales[1] > 4:
        scales = (-8, 3)
    places = (sizes[0], count, *sizes[2:])
    index = torch.randint(0, sizes[1], places, generator=generator)
    index[:, count // 2:count // 2 + 5] = sizes[1] - 1
    n = index.numel()
    spread = torch.logspace(*scales, n)[torch.randperm(n, generator=generator)].reshape(places)
    added = (torch.randn(places, generator=generator) * spread).to(kind)
    base = torch.randn(sizes, generator=generator).to(kind)
    found, = run_schedule(exact(sizes, count, dtype, constant), [base, index, added])
    want = summed(index, added, sizes) + (0 if constant else base.double())
    magnitude = summed(index, added.abs(), sizes) + (0 if constant else base.double().abs())
    endless = want.to(kind).isinf()  # totals of float16
    assert torch.equal(found[endless], want.to(kind)[endless])
    off = (found.double() - want).where(~endless, 0).abs()
    twice = 2.0 ** -24 if kind is not torch.float32 else 0  # to float32 first
    least = 2.0 ** -150 if kind is torch.float32 else 2.0 ** -24
    allowed = want.abs() * (2.0 ** -DIGITS[dtype] + twice) + magnitude * 2.0 ** -48 + least
    assert (off <= allowed).all(), (off / allowed).max()


@pytest.mark.parametrize("dtype", list(DIGITS))
def test_a_sum_beyond_the_largest_is_infinite(dtype: str) -> None:
    """As torch's is; what is within again at its end is not, as only that is rounded."""
    kind = getattr(torch, dtype)
    most = torch.finfo(kind).max
    index = torch.tensor([[0, 0, 1, 1, 2, 2, 2, 3]])
    added = torch.tensor([[most, most, -most, -most, most, most, -most, most]], dtype=torch.float64).to(kind)
    base = torch.zeros(1, 4, dtype=kind)
    found, = run_schedule(exact((1, 4), 8, dtype), [base, index, added])
    assert found.tolist() == [[math.inf, -math.inf, most, most]]
    assert torch.equal(found[:, :2], base.scatter_add(1, index, added)[:, :2])


def test_positions_in_another_order_give_the_same_bits() -> None:
    """Floats that are added in another order do not: the test's own sums differ."""
    count, rows = 3000, 20
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, rows, (1, count), generator=generator)
    added = torch.randn(1, count, generator=generator) * torch.logspace(-6, 2, count)
    base, order = torch.randn(1, rows, generator=generator), torch.randperm(count, generator=generator)
    schedule = exact((1, rows), count)
    found, = run_schedule(schedule, [base, index, added])
    again, = run_schedule(schedule, [base, index[:, order], added[:, order]])
    assert torch.equal(found, again)
    assert not torch.equal(*(base.scatter_add(1, index[:, x], added[:, x]) for x in (slice(None), order)))


def test_small_ones_beside_large_ones_are_not_lost() -> None:
    """Of numbers that cancel what is left is what is 2^60 times smaller, where floats keep nothing of it."""
    index = torch.tensor([[0, 0, 0, 1, 1, 1]])
    added = torch.tensor([[2.0 ** 40, 2.0 ** -20, -2.0 ** 40, 1e30, 1e-30, -1e30]])
    found, = run_schedule(exact((1, 2), 6), [torch.zeros(1, 2), index, added])
    assert found.tolist() == [[2.0 ** -20, torch.tensor(1e-30).item()]]


@pytest.mark.parametrize("dtype", list(DIGITS))
def test_as_many_as_may_be_of_the_largest_have_room(dtype: str) -> None:
    """Whole numbers of a window, for as many positions as may be, stay within 64 bits; and windows reach all powers."""
    kind = dtype_named(dtype)
    for count in (1, 2, 1000, 1024, MOST_POSITIONS):
        windows = windows_of(kind, count)
        largest = (2 ** windows.digits - 1) << (windows.size - 1)
        assert windows.many * windows.size >= STEPS[kind][2] - STEPS[kind][1] and count * largest < 2 ** 63
    largest = torch.finfo(getattr(torch, dtype)).max / 8192
    added = torch.full((1, 4096), largest, dtype=torch.float64).to(getattr(torch, dtype))
    found, = run_schedule(exact((1, 3), 4096, dtype), [torch.zeros(1, 3).to(added.dtype),
                                                       torch.ones(1, 4096, dtype=torch.int64), added])
    assert found.double().tolist() == [[0, added.double().sum().item(), 0]]


def test_what_is_not_finite_stays_in_its_sum() -> None:
    check_what_is_not_finite(lambda rows, count: exact((1, rows), count))


def test_more_sums_or_positions_than_have_room_take_another_form() -> None:
    float32 = dtype_named("float32")
    assert exact_fits(1_200_000, 100_000, float32) and not exact_fits(1_400_000, 100_000, float32)
    assert exact_fits(1_390_000, 1_390_000, dtype_named("bfloat16"))  # more words of others would leave the L2
    assert not exact_fits(1_400_000, 1_400_000, dtype_named("bfloat16"))
    assert exact_fits(1_700_000, 1_700_000, dtype_named("float16"))
    assert exact_fits(900, MOST_POSITIONS, float32) and not exact_fits(900, MOST_POSITIONS + 1, float32)
    assert not exact_fits(900, 100, dtype_named("float64")) and not exact_fits(900, 100, int32)


@pytest.mark.parametrize(("lines", "fits"), [(7, True), (14, False)])
def test_sizes_that_may_change_are_asked_whether_they_have_room(lines: int, fits: bool) -> None:
    """The largest of their classes, 15 lines of 131,071 sums, have none: seven of 90,010 were added up line by line
    (H200: index_add onto bfloat16[7, 90010] 31.6 µs, eager 15.4)."""
    with Trace(A=lines, B=90_010, C=90_000) as trace:
        a, b, c = (trace.symbol(name) for name in "ABC")
        assert exact_fits(a * b, a * c, dtype_named("float32")) == fits
        base, index, added = an_input(0, (a, b)), an_input(1, (a, c), int64), an_input(2, (a, c))
        schedule = run_passes(Graph((base, index, added), (indexing.scatter_add(base, index, added, axis=1),)),
                              backend_named("h200"))[1]
        kernel = emit(schedule.groups[0])
        assert (kernel.name == "exact_sums") == fits
        if fits:
            words, = (x for x in kernel.args if isinstance(x, Exchange) and x.offset)
            assert words.type.numel == SUM_WORDS


@by_default("*-100000-float32")
@pytest.mark.parametrize(("shape", "count", "dtype"), [
    ((1, 100_000), 100_000, "float32"), ((16_500, 16), 16, "float32"), ((1, 16_500, 16), 16_500, "float32"),
    ((1, 7507, 88), 7507, "bfloat16"), ((4, 300), 512, "float16")])
def test_its_binary_keeps_all_in_registers(shape: tuple[int, ...], count: int, dtype: str, tmp_path: Path) -> None:
    kernel = emit(exact(shape, count, dtype).groups[0])
    sums, positions = math.prod(shape), count * math.prod(shape) // shape[1]
    rounds = max(1, min(-(-positions // (132 * 256)), ROUNDS))
    adders, makers = -(-positions // (256 * rounds)), [-(-sums // (256 * each)) for each in EACH]
    assert kernel.grid == (adders + makers[adders + makers[0] > AT_ONCE], 1, 1) and compile_cubin(kernel)
    said = remarks(compiled_by_triton(kernel.key_parts(), 90).asm["ptx"], tmp_path)
    assert "0 bytes spill stores" in said and "0 bytes stack frame" in said, said


@pytest.mark.parametrize("wrong", [0, 603, -601])
def test_an_index_outside_is_told_and_adds_nothing(wrong: int) -> None:
    rows, count = 600, 2100
    base, index, added = an_input(0, (3, rows)), an_input(1, (3, count), int64), an_input(2, (3, count))
    at = in_range(index, size=rows, dim=1, negative=True, ignored=None, name="gather", line="")
    group, = run_passes(Graph((base, index, added), (exact_sums(base, at, added),)), backend_named("h200"))[1].groups
    kernel, generator = emit(group), torch.Generator().manual_seed(0)
    where, values = torch.randint(-rows, rows, (3, count), generator=generator), torch.ones(3, count)
    where[1, 35] = wrong
    word, found = torch.zeros(1, dtype=torch.int64), torch.full((3, rows), float("nan"))
    told, = (x for x in kernel.args if isinstance(x, Node) and x.op is report)
    run_source(kernel, {base: torch.zeros(3, rows), index: where, added: values, group.outputs[0]: found,
                        literal(0): word, told: torch.tensor([word.data_ptr(), 1000])})
    where[where < 0] += rows
    values[1, 35] = 0 if wrong else 1
    assert torch.equal(found, torch.zeros(3, rows).scatter_add(1, where.clamp(0, rows - 1), values))
    assert int(word) == (1000 + wrong if wrong else 0)


@pytest.mark.parametrize(("shape", "axis", "count", "dtype", "first"), [
    ((100_000,), 0, 100_000, "float32", "exact_sums"), ((16_500, 16), 0, 16_500, "float32", "exact_sums"),
    ((90_089,), 0, 90_089, "bfloat16", "exact_sums"), ((4, 30_000), 1, 30_000, "float16", "exact_sums"),
    ((4768, 512), 1, 1024, "float32", "lines_summed"), ((88, 42_240), 1, 42_240, "float32", "lines_summed"),
    ((57, 29_104), 1, 8192, "float32", "lines_summed"), ((7507, 88), 0, 7507, "bfloat16", "permute"),
    ((30_000,), 0, 30_000, "float64", "lines_summed"), ((1000,), 0, 100_000, "float64", "lines_summed")])
def test_the_form_of_the_least_time_is_taken(shape: tuple[int, ...], axis: int, count: int, dtype: str,
                                             first: str) -> None:
    """Few long lines or columns are added exactly, many lines in shared memory; doubles have no words."""
    kind, places = dtype_named(dtype), (*shape[:axis], count, *shape[axis + 1:])
    base, index, added = an_input(0, shape, kind), an_input(1, places, int64), an_input(2, places, kind)
    graph = Graph((base, index, added), (scatter_add(base, index, added, axis=axis),))
    groups = run_passes(graph, backend_named("h200"))[1].groups
    kernel = emit((groups[0].members or groups)[0])
    assert kernel.name == first and "inf" not in kernel.note
    if first == "lines_summed":
        assert kernel.note.startswith("lines ") and "parts" not in kernel.note, "they are parts already"
    if first == "exact_sums":
        assert kernel.note.startswith("exact ") and "µs (reckoned; " in kernel.note and len(groups) == 1


def test_a_gather_and_its_gradient_are_one_launch() -> None:
    """The gather's programs come first: an exact sum's last ones wait for its first ones."""
    rng = np.random.default_rng(0)
    table, upstream = (rng.standard_normal((3000, 16)).astype(np.float32) for _ in range(2))
    index = rng.integers(0, 3000, (3000, 16))
    want = np.zeros((3000, 16))
    np.add.at(want, (index, np.arange(16)[None].repeat(3000, 0)), upstream)
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 28)):
        x = genesis.tensor(table, device="cuda", requires_grad=True)
        at, gradient = genesis.tensor(index, device="cuda"), genesis.tensor(upstream, device="cuda")
        genesis.eval(x, at, gradient)
        for _ in range(2):
            x.grad = None
            y = x.gather(0, at)
            y.backward(gradient)
            assert x.grad is not None
            genesis.eval(y, x.grad)
            plan = engine.last_plan()
            assert plan is not None and [step.label for step in plan.plan.steps if isinstance(step, Launch)] == [
                "in_range_gather_beside_1_more"]
            np.testing.assert_array_equal(y.detach().cpu().numpy(), np.take_along_axis(table, index, 0))
            np.testing.assert_allclose(x.grad.cpu().numpy(), want, rtol=2.0 ** -23)


@pytest.mark.parametrize("architecture", [80, 90, 120])
def test_it_compiles_for_every_gpu(architecture: int) -> None:
    for shape, count in (((1, 30_000), 30_000), ((3, 5000, 7), 4000)):
        kernel = emit(exact(shape, count).groups[0], GPUS[architecture])
        [image] = compile_sources([kernel], gpu=GPUS[architecture])
        assert image.shared_bytes < 1024
