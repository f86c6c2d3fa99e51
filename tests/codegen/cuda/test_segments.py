"""Writes through a long index: sorted, then each row of the result takes its segment."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.templates import group_sums, line_sums, long_sort, row_sums, scaled_lines, wide_row_sums
from genesis.codegen.cuda.templates import long_lines as several_warps
from genesis.config import config
from genesis.engine.backends import backend_named
from genesis.ir import OPS, Graph, Node, Op
from genesis.ir.node import literal
from genesis.ir.ops import (
    block_rows,
    grouped_rows,
    indexing,
    leaves,
    movement,
    pointwise,
    segments,
    sort_steps,
    sorting,
    sum_forms,
)
from genesis.ir.ops import line_sums as long_lines
from genesis.ir.ops.line_sums import lines_added, lines_summed
from genesis.ir.ops.row_number import in_range, report
from genesis.ir.ops.sum_forms import parts_of_lines
from genesis.ir.size_trace import Trace
from genesis.ir.types import dtype_named, float32, int32, int64
from genesis.passes import structural_memo
from genesis.passes.fusion.fuse import fuse
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.evaluate import evaluate
from tests.codegen.cuda.programs import GPU, an_input, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule, run_source
from tests.sweeping import by_default, each_value, sweep_but


@pytest.fixture(autouse=True)
def texts_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that changes a constant gets no kernel's text of one before it, and leaves none."""
    monkeypatch.setattr(structural_memo, "_closed", {})


@pytest.fixture(autouse=True)
def no_exact_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tests stand for sizes where all positions at once take longer; those have tests of their own."""
    monkeypatch.setattr(sum_forms, "rather_exact", lambda *sizes: False)


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No index is short enough to be looked through for each row."""
    monkeypatch.setattr(row_sums, "LONGEST", 0)


@pytest.fixture
def grouped(sorts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No index is short enough for its blocks to be sorted each for itself."""
    monkeypatch.setattr(block_rows, "MOST_BLOCKS", 0)


ROWS = [((7, 5), 0, (300,)), ((2, 40, 3), 1, (20, 15)), ((900,), 0, (300,)), ((1, 3), 0, (300,))]
ELEMENTS = [((7, 5), 0, (40, 3)), ((3, 9, 2), 1, (3, 50, 2)), ((3, 70), 1, (2, 60)), ((30,), 0, (90,))]


def scheduled(name: str, shape: tuple[int, ...], axis: int, where: tuple[int, ...], dtype: str,
              constant: bool = False) -> Schedule:
    """The kernels of a write, onto an input or onto zeros."""
    source_shape = shape[:axis] + where + shape[axis + 1:] if name.startswith("index") else where
    kind = dtype_named(dtype)
    base, index, source = an_input(0, shape, kind), an_input(1, where, int64), an_input(2, source_shape, kind)
    onto = leaves.full(shape, 0, kind, GPU) if constant else base
    graph = Graph((base, index, source), (OPS[name](onto, index, source, axis=axis),))
    return run_passes(graph, backend_named("h200"))[1]


def names(schedule: Schedule) -> list[str]:
    """Of the kernels, of which several may be one launch."""
    return [emit(each).name for group in schedule.groups
            for each in (group.members if group.kind == "side_by_side" else (group,))]


def check(schedule: Schedule, data: list[torch.Tensor], graph: Graph, tolerance: float) -> None:
    """The kernels give what the ops say."""
    found, = run_schedule(schedule, data, most_programs=4096)
    want, = evaluate(graph, data)
    torch.testing.assert_close(found.reshape(want.shape), want, rtol=tolerance, atol=tolerance)


WRITES = [(name, *case) for name in ("index_add", "index_copy") for case in ROWS] + [
    (name, *case) for name in ("scatter_add", "scatter") for case in ELEMENTS]


@pytest.mark.parametrize(("write", "dtype", "constant"), sweep_but(
    lambda write, dtype, constant: constant is (dtype == "bfloat16") and (
        WRITES.index(write) % 2 == (dtype == "int64") and write not in (WRITES[2], WRITES[-1])),
    WRITES, ["float32", "bfloat16", "int64"], [False, True]))
@pytest.mark.usefixtures("sorts")
def test_long_indices(monkeypatch: pytest.MonkeyPatch, write: tuple[str, tuple[int, ...], int, tuple[int, ...]],
                      dtype: str, constant: bool) -> None:
    name, shape, axis, where = write
    monkeypatch.setattr(segments, "COARSE", 16)
    schedule = scheduled(name, shape, axis, where, dtype, constant)
    whole_sums = dtype == "int64" and name.endswith("add")
    by_line = name == "scatter_add" and all(a == b for i, (a, b) in enumerate(zip(shape, where, strict=False))
                                            if i != axis)
    grouped = name == "index_add" and (constant or 2 * prod(where) >= shape[axis])
    first = "rows_added" if whole_sums else "lines_summed" if by_line else "words_by_block" if grouped else "sort"
    assert any(kernel.startswith(first) for kernel in names(schedule))
    base, index, source = (an_input(i, x.type.shape, x.type.dtype) for i, x in enumerate(schedule.graph.inputs))
    data = [some(base), torch.randint(0, shape[axis], where, generator=torch.Generator().manual_seed(0)), some(source)]
    onto = leaves.full(shape, 0, base.dtype, GPU) if constant else base
    graph = Graph((base, index, source), (OPS[name](onto, index, source, axis=axis),))
    check(schedule, data, graph, {"bfloat16": 3e-2}.get(dtype, 1e-5))


@pytest.mark.usefixtures("sorts")
def test_a_row_that_is_hit_by_all_is_added_up_by_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """And always in the same order: the sum of numbers that cancel is the same bits every time."""
    monkeypatch.setattr(segments, "COARSE", 16)
    schedule = scheduled("index_add", (700, 3), 0, (301,), "float32")
    assert names(schedule).count("segment_parts") == 1
    base, source = torch.zeros(700, 3), torch.randn(301, 3, generator=torch.Generator().manual_seed(1)) * 1e4
    index = torch.full((301,), 3)
    index[::50] = 1
    found = [run_schedule(schedule, [base, index, source], most_programs=512)[0] for _ in range(2)]
    assert torch.equal(found[0], found[1])
    want = base.double().index_add(0, index, source.double())
    torch.testing.assert_close(found[0].double(), want, rtol=1e-5, atol=1e-1)


@pytest.mark.usefixtures("sorts")
def test_sums_in_any_order_where_the_user_allows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "deterministic", False)
    schedule = scheduled("index_add", (7, 5), 0, (300,), "float32")
    assert names(schedule) == ["rows_added"]
    base, index, source = torch.zeros(7, 5), torch.arange(300) % 7, torch.ones(300, 5)
    found, = run_schedule(schedule, [base, index, source], most_programs=512)
    assert torch.equal(found, base.index_add(0, index, source))
    assert "block_sums" in names(scheduled("index_add", (7, 5), 0, (3000,), "bfloat16"))


LONG_LINES = [((3, 70), 1, (3, 50)), ((3, 9, 2), 1, (3, 50, 2)), ((40,), 0, (90,)), ((7, 5), 0, (40, 5))]


@each_value
@pytest.mark.parametrize(("shape", "axis", "where"), LONG_LINES)
@pytest.mark.parametrize("constant", [False, True])
def test_elements_of_long_lines_are_rows_that_blocks_add(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...],
                                                         axis: int, where: tuple[int, ...], constant: bool) -> None:
    """Wherever the axis is, in three launches: sorting each line took fourteen."""
    monkeypatch.setattr(sum_forms, "LONGEST", {False: 0, True: 0})
    schedule = scheduled("scatter_add", shape, axis, where, "float32", constant)
    assert names(schedule)[-2:] == ["words_by_block", "block_sums"] and len(schedule.groups) == 3
    base, index, source = (an_input(i, x.type.shape, x.type.dtype) for i, x in enumerate(schedule.graph.inputs))
    data = [some(base), torch.randint(0, shape[axis], where, generator=torch.Generator().manual_seed(0)), some(source)]
    onto = leaves.full(shape, 0, base.dtype, GPU) if constant else base
    check(schedule, data, Graph((base, index, source), (OPS["scatter_add"](onto, index, source, axis=axis),)), 1e-5)


@pytest.mark.parametrize(("shape", "axis", "where", "kernels"), [
    ((16_500, 16), 0, (16_500, 16), 3), ((45_587,), 0, (8192,), 1), ((128, 8192), 1, (128, 8192), 1),
    ((88, 42_240), 1, (88, 42_240), 1), ((1024, 300), 1, (1024, 300), 1), ((2, 60_000), 1, (2, 60_000), 2),
    ((99_991,), 0, (99_991,), 2)])
def test_long_lines_are_few_launches(shape: tuple[int, ...], axis: int, where: tuple[int, ...], kernels: int) -> None:
    """Of 3.7 million positions, too many for blocks, a line is a few programs': its sorts were 26 launches."""
    assert len(scheduled("scatter_add", shape, axis, where, "float32").groups) == kernels


def test_all_parts_of_a_line_are_loaded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 18 operands four elements a thread left room for six in 32 registers: 6.2 µs (H200)."""
    monkeypatch.setattr(sum_forms, "H200", replace(sum_forms.H200, position_us=1e-3))
    *_, added = (emit(group) for group in scheduled("scatter_add", (100_000,), 0, (100_000,), "float32").groups)
    assert added.source.count("tl.load") > 16 and added.constexprs["XBLOCK"] == 32 * added.num_warps


def test_of_equal_indices_the_last_wins() -> None:
    schedule = scheduled("index_copy", (4, 2), 0, (300,), "float32")
    index = torch.arange(300) % 3
    source = torch.arange(600.0).reshape(300, 2)
    found, = run_schedule(schedule, [torch.full((4, 2), -1.0), index, source], most_programs=512)
    assert found.tolist() == [[594.0, 595.0], [596.0, 597.0], [598.0, 599.0], [-1.0, -1.0]]


def test_the_gradient_of_an_embedding_compiles_for_hopper() -> None:
    schedule = scheduled("index_add", (50304, 768), 0, (16, 1024), "bfloat16", constant=True)
    assert names(schedule) == ["words_by_block", "block_sums"]
    for group in schedule.groups:
        assert compile_cubin(emit(group)), group


def test_short_indices_are_looked_through() -> None:
    assert names(scheduled("index_add", (7, 5), 0, (20,), "float32")) == ["rows_summed"]
    assert names(scheduled("index_copy", (7, 5), 0, (20,), "float32")) == ["index_copy"]
    assert names(scheduled("scatter", (7, 50), 1, (7, 20), "float32")) == ["scatter"]


@pytest.mark.usefixtures("sorts")
def test_only_the_rows_that_are_hit_are_written() -> None:
    """The base's memory is the result's where nobody needs the old content, and else it is copied first."""
    for update in (True, False):
        base, index, source = an_input(0, (4096, 8)), an_input(1, (200,), int64), an_input(2, (200, 8))
        found = OPS["index_add"](base, index, source, axis=0)
        graph = Graph((base, index, source), (), ((base, found),)) if update else Graph((base, index, source), (found,))
        _, schedule, memory, *_ = run_passes(graph, backend_named("h200"))
        group = next(group for group in schedule.groups if group.kind == "segment" and group.starts_from)
        assert group.in_place == group.starts_from
        assert [place.where for _, place, _ in memory.starts] == ([] if update else ["input"])


@pytest.mark.usefixtures("sorts")
def test_a_source_that_is_the_base_is_read_before_it_is_written() -> None:
    base, index = an_input(0, (300, 2)), an_input(1, (300,), int64)
    graph = Graph((base, index), (), ((base, OPS["index_copy"](base, index, base, axis=0)),))
    _, schedule, memory, *_ = run_passes(graph, backend_named("h200"))
    assert next(group for group in schedule.groups if group.starts_from).in_place == ()
    assert len(memory.starts) == len(memory.after) == 1


@pytest.mark.parametrize("longest", [0, 8192])
def test_rows_are_added_where_they_lie_unless_they_are_the_source(monkeypatch: pytest.MonkeyPatch,
                                                                  longest: int) -> None:
    monkeypatch.setattr(row_sums, "LONGEST", longest)
    base, index, source = an_input(0, (300, 2)), an_input(1, (300,), int64), an_input(2, (300, 2))
    for added in (base, source):
        graph = Graph((base, index, source), (), ((base, OPS["index_add"](base, index, added, axis=0)),))
        group = next(group for group in run_passes(graph, backend_named("h200"))[1].groups
                     if emit(group).name in ("rows_summed", "block_sums"))
        assert bool(group.in_place) == (added is source)


def test_columns_waste_little() -> None:
    from genesis.codegen.cuda.templates.segments import columns_of
    assert all(-(-n // columns_of(n)) * columns_of(n) <= n * 1.125 or columns_of(n) <= 128 for n in range(1, 5000))



LINES = [(1, 5, 3), (3, 5, 9), (2, 70, 64), (5, 1, 33), (9, 300, 129), (1, 4096, 40), (40, 3, 1), (2, 8, 1000)]
"""(lines, rows, positions) of indices that are sorted where their sums are made."""


@pytest.mark.parametrize(("line", "constant", "dtype"), sweep_but(
    lambda line, constant, dtype: line[2] < 40 and constant is (dtype == "bfloat16"),
    LINES, [False, True], ["float32", "bfloat16"]))
@pytest.mark.parametrize("op", ["lines_added", "lines_summed"])
def test_a_line_is_added_up_by_one_program(line: tuple[int, int, int], constant: bool, dtype: str, op: str) -> None:
    lines, rows, count = line
    base, index, source = (an_input(0, (lines, rows), dtype_named(dtype)), an_input(1, (lines, count), int64),
                           an_input(2, (lines, count), dtype_named(dtype)))
    onto = leaves.full((lines, rows), 0, base.dtype, GPU) if constant else base
    graph = Graph((base, index, source), (OPS[op](onto, index, source),))
    schedule = run_passes(graph, backend_named("h200"))[1]
    assert [name for name in names(schedule) if name not in ("fill", "copy")] == [op]
    where = torch.randint(0, rows, (lines, count), generator=torch.Generator().manual_seed(0))
    found, = run_schedule(schedule, [some(base), where, some(source)], most_programs=4096)
    want = (torch.zeros(lines, rows) if constant else some(base)).double().scatter_add(1, where, some(source).double())
    tolerance = 1e-4 if dtype == "float32" else 3e-2  # of up to a thousand numbers around 1
    torch.testing.assert_close(found.double(), want, rtol=tolerance, atol=tolerance * max(1, count / rows) ** 0.5)


@by_default("shape0-*", "shape1-*")
@pytest.mark.parametrize(("shape", "count"), [((300_000, 8000), 100), ((40_000, 60_000), 3), ((9, 8000, 40_000), 50)])
def test_a_result_that_32_bits_do_not_count_has_wide_places_also_if_the_index_has_few(
        shape: tuple[int, ...], count: int) -> None:
    """The gradient of one logit in each row of many: places in the result are rows times its length."""
    where = (shape[0], count, *shape[2:])
    index, source = an_input(0, where, int64), an_input(1, where)
    base = leaves.full(shape, 0, source.dtype, GPU)
    group, = fuse(Graph((index, source), (lines_summed(base, index, source),))).groups
    kernel = emit(group)
    rows = [line for line in kernel.source.splitlines() if line.strip().startswith(("x_0 =", "column ="))]
    assert rows and all(".to(tl.int64) * XBLOCK" in line for line in rows)
    assert compile_cubin(kernel)


@pytest.mark.parametrize("op", [lines_added, lines_summed])
def test_what_is_not_finite_stays_in_its_row(op: Op) -> None:
    base, index, source = an_input(0, (1, 4)), an_input(1, (1, 6), int64), an_input(2, (1, 6))
    schedule = run_passes(Graph((base, index, source), (op(base, index, source),)), backend_named("h200"))[1]
    inf, nan = float("inf"), float("nan")
    data = [torch.zeros(1, 4), torch.tensor([[2, 0, 1, 2, 0, 3]]), torch.tensor([[inf, nan, 1.0, -inf, 2.0, -0.5]])]
    found, = run_schedule(schedule, data)
    torch.testing.assert_close(found, torch.tensor([[nan, 1.0, nan, -0.5]]), equal_nan=True)


@pytest.mark.parametrize(("rows", "count", "one"), [(140_000, 4096, True), (140_000, 4097, False),
                                                    (1 << 20, 4096, False)])
def test_lines_that_do_not_fit_a_program_are_sorted_in_memory(rows: int, count: int, one: bool) -> None:
    schedule = scheduled("scatter_add", (2, rows), 1, (2, count), "float32")
    assert ("lines_added" in names(schedule)) == one


@pytest.mark.parametrize(("rows", "count", "one"), [(4096, 4096, True), (74, 16384, True), (74, 16385, False),
                                                    (4096, 131_072, True), (131_072, 4096, True),
                                                    (131_073, 4096, False)])
def test_sums_that_fit_the_shared_memory_are_made_there(rows: int, count: int, one: bool) -> None:
    assert ("lines_summed" in names(scheduled("scatter_add", (2, rows), 1, (2, count), "float32"))) == one


def test_sums_are_made_in_the_order_of_the_positions() -> None:
    """As one thread would make them: torch's own loop on the host gives the same bits, many numbers to a sum."""
    base, index, source = an_input(0, (3, 40)), an_input(1, (3, 500), int64), an_input(2, (3, 500))
    schedule = run_passes(Graph((base, index, source), (lines_summed(base, index, source),)),
                          backend_named("h200"))[1]
    where = torch.randint(0, 40, (3, 500), generator=torch.Generator().manual_seed(0))
    scales = torch.logspace(-3, 3, 500)
    data = [some(base), where, some(source) * scales]
    found, = run_schedule(schedule, data)
    want = data[0].clone()
    for line in range(3):
        for at, value in zip(where[line], data[2][line], strict=True):
            want[line, at] += value
    assert torch.equal(found, want)


LONG = [(2, 400, 900), (1, 300, 2500), (3, 5000, 385), (1, 3000, 4096), (1, 512, 1300),
        (2, 1100, 200)]
"""(lines, rows, positions) of lines that several warps take: in one turn and in more, with few sums and with many."""


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize(("line", "dtype"), sweep_but(
    lambda line, dtype: dtype == "float32" or line == LONG[0], LONG,
    ["float32", "bfloat16", "float16", "float64", "int8"]))
def test_the_warps_of_a_program_add_in_the_order_of_the_positions(
        monkeypatch: pytest.MonkeyPatch, line: tuple[int, int, int], dtype: str, share: bool) -> None:
    """Of those that meet in one sum, or in a slot of several, the first adds: the host's own loop gives the same bits.
    Also where each of several programs has a share of a line's sums. (Floats of few positions are whole numbers.)"""
    monkeypatch.setattr(several_warps, "in_whole_numbers", lambda *sizes: False)
    lines, rows, count = line
    if share:
        monkeypatch.setattr(several_warps, "SUMS_BYTES", max(rows // 3, 4) * (8 if dtype == "float64" else 4))
    kind = getattr(torch, dtype)
    base, index, added = (an_input(0, (lines, rows), dtype_named(dtype)), an_input(1, (lines, count), int64),
                          an_input(2, (lines, count), dtype_named(dtype)))
    onto = leaves.full((lines, rows), 0, base.dtype, GPU) if dtype == "bfloat16" else base
    schedule = run_passes(Graph((base, index, added), (lines_summed(onto, index, added),)), backend_named("h200"))[1]
    assert names(schedule) == ["lines_summed"]
    kernel, = (emit(group) for group in schedule.groups)
    assert kernel.num_warps > 1 and "g_least_first" in kernel.source
    generator = torch.Generator().manual_seed(0)
    where = torch.randint(0, rows, (lines, count), generator=generator)
    where[:, count // 2:count // 2 + 5] = rows - 1  # several in a row
    data = [torch.randn(lines, rows, generator=generator).mul(9).to(kind), where,
            (torch.randn(lines, count, generator=generator) * torch.logspace(-2, 2, count)).to(kind)]
    found, = run_schedule(schedule, data)
    held = torch.int32 if dtype == "int8" else torch.float64 if dtype == "float64" else torch.float32
    want = torch.zeros_like(data[0], dtype=held) if dtype == "bfloat16" else data[0].to(held)
    for at in range(count):
        want.scatter_add_(1, where[:, at:at + 1], data[2][:, at:at + 1].to(held))
    assert torch.equal(found, want.to(kind))


@pytest.mark.parametrize(("lines", "rows"), [(88, 42_240), (66, 30_000), (1, 100_000)])
def test_two_programs_of_a_multiprocessor_have_different_shares_of_their_lines(lines: int, rows: int) -> None:
    """Few sums that all positions hit are in one share: some multiprocessors had two such programs, others none."""
    base, index, source = an_input(0, (lines, rows)), an_input(1, (lines, rows), int64), an_input(2, (lines, rows))
    group, = run_passes(Graph((base, index, source), (lines_summed(base, index, source),)),
                        backend_named("h200"))[1].groups
    kernel = several_warps._LongLines(group, group.nodes[-1])
    shares = [eval(kernel.which_share().replace("tl.program_id(0)", str(program)))
              for program in range(lines * kernel.shares)]
    assert all(sorted(shares[at:at + kernel.shares]) == list(range(kernel.shares))
               for at in range(0, len(shares), kernel.shares))
    beside = line_sums.MULTIPROCESSORS
    assert all(one != other for one, other in zip(shares, shares[beside:], strict=False))


@pytest.mark.parametrize("most", ["all", "half", "a few sums"])
@pytest.mark.parametrize(("line", "dtype"), [
    ((2, 257, 900), "float32"), ((1, 5000, 2500), "float64"), ((2, 600, 1300), "int8"), ((9, 74, 74), "float32"),
    ((3, 3, 300), "float16")])
def test_positions_that_mostly_meet_in_one_sum_are_added_at_once(
        monkeypatch: pytest.MonkeyPatch, line: tuple[int, int, int], dtype: str, most: str) -> None:
    """One after another they took a turn of a whole program each: 42,240 of a line 53 ms, for torch's 0.25 (H200)."""
    monkeypatch.setattr(several_warps, "in_whole_numbers", lambda *sizes: False)
    lines, rows, count = line
    kind, generator = getattr(torch, dtype), torch.Generator().manual_seed(0)
    base, index, added = (an_input(0, (lines, rows), dtype_named(dtype)), an_input(1, (lines, count), int64),
                          an_input(2, (lines, count), dtype_named(dtype)))
    schedule = run_passes(Graph((base, index, added), (lines_summed(base, index, added),)), backend_named("h200"))[1]
    assert names(schedule) == ["lines_summed"]
    where = torch.randint(0, rows, (lines, count), generator=generator)
    if most == "half":
        where[:, ::2] = rows - 1
    else:
        where = torch.full_like(where, rows - 1) if most == "all" else where % 3
    data = [torch.randint(-9, 9, (lines, rows), generator=generator).to(kind), where,
            torch.randint(-3, 4, (lines, count), generator=generator).to(kind)]
    found, = run_schedule(schedule, data)
    want = data[0].double().scatter_add(1, where, data[2].double())
    assert torch.equal(found, want.to(torch.int64).to(kind) if dtype == "int8" else want.to(kind))


@each_value
@pytest.mark.parametrize("architecture", [90, 120])
@pytest.mark.parametrize(("rows", "count", "dtype"), [(300, 500, "float16"), (42_240, 42_240, "float32"),
                                                      (9000, 5000, "float64")])
def test_long_lines_compile(rows: int, count: int, dtype: str, architecture: int) -> None:
    kernel, = (emit(group) for group in scheduled("scatter_add", (88, rows), 1, (88, count), dtype).groups)
    assert kernel.name == "lines_summed" and compile_cubin(kernel, architecture)


@pytest.mark.usefixtures("sorts")
def test_an_index_of_all_lines_is_checked_where_they_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check by itself, of a thousand numbers, would be another launch."""
    from genesis.codegen.cuda.templates import scatter
    monkeypatch.setattr(scatter, "SHORT", 0)
    base, index, source = an_input(0, (20, 500)), an_input(1, (600,), int64), an_input(2, (20, 600))
    schedule = run_passes(Graph((base, index, source), (
        indexing.index_add(base, checked(index, 500), source, axis=1),)), backend_named("h200"))[1]
    group, = schedule.groups
    kernel = emit(group)
    assert kernel.name == "lines_summed"
    where = torch.randint(0, 500, (600,), generator=torch.Generator().manual_seed(0))
    word, found = torch.zeros(1, dtype=torch.int64), torch.full((20, 500), float("nan"))
    data = {base: some(base), index: where, source: some(source), group.outputs[0]: found, literal(0): word,
            next(x for x in kernel.args if isinstance(x, Node) and x.op is report):
            torch.tensor([word.data_ptr(), 1000])}
    run_source(kernel, data)
    assert word.item() == 0
    torch.testing.assert_close(found, data[base].index_add(1, where, data[source]), rtol=1e-5, atol=1e-5)


COLUMNS = [(5, 9, 3, 1), (9, 20, 6, 2), (70, 64, 33, 1), (300, 7, 2, 3), (40, 129, 1, 2)]
"""(rows, positions, columns, outer), of which a sum has few positions that are taken at once."""


def columns_summed(monkeypatch: pytest.MonkeyPatch, case: tuple[int, ...], dtype: str,
                   small: bool) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """(index and source, what the sums begin as, the sums) of warps that have columns side by side, twice the same
    bits: few columns and a share of their sums, if small."""
    monkeypatch.setattr(several_warps, "FEWEST_COLUMNS", 1)
    if small:
        monkeypatch.setattr(line_sums, "COLUMN_BYTES", 4 * 8 * 32 * (2 if dtype == "float64" else 1))
        monkeypatch.setattr(line_sums, "ROOM", 1024)
    rows, count, columns, outer = case
    table, places, kind = (outer, rows, columns), (outer, count, columns), getattr(torch, dtype)
    base, index, added = an_input(0, table, dtype_named(dtype)), an_input(1, places, int64), an_input(
        2, places, dtype_named(dtype))
    onto = leaves.full(table, 0, base.dtype, GPU) if dtype == "bfloat16" else base
    schedule = run_passes(Graph((base, index, added), (lines_summed(onto, index, added),)),
                          backend_named("h200"))[1]
    assert names(schedule) == ["lines_summed"]
    generator = torch.Generator().manual_seed(0)
    where = torch.randint(0, rows, (outer, count, columns), generator=generator)
    source = (torch.randn(outer, count, columns, generator=generator) * torch.logspace(-2, 2, count)[None, :, None])
    data = [torch.randn(outer, rows, columns, generator=generator).mul(9).to(kind), where, source.to(kind)]
    found = [run_schedule(schedule, data, most_programs=4096)[0] for _ in range(2)]
    assert torch.equal(found[0], found[1])
    held = torch.int32 if dtype == "int8" else torch.float64 if dtype == "float64" else torch.float32
    begun = torch.zeros_like(data[0], dtype=held) if dtype == "bfloat16" else data[0].to(held)
    return [where, data[2].to(held)], begun, found[0]


@each_value
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(("case", "dtype"), sweep_but(
    lambda case, dtype: dtype == "float32" or case in COLUMNS[1:3],
    COLUMNS, ["float32", "bfloat16", "float16", "float64", "int8"]))
def test_columns_are_added_up_where_they_lie(monkeypatch: pytest.MonkeyPatch, case: tuple[int, ...], dtype: str,
                                             small: bool) -> None:
    """In the order of the positions, as one thread would: the host's own loop gives the same bits. Also where each of
    several programs has a share of a column's sums."""
    (where, added), want, found = columns_summed(monkeypatch, case, dtype, small)
    for at in range(where.shape[1]):
        want.scatter_add_(1, where[:, at:at + 1], added[:, at:at + 1])
    assert torch.equal(found, want.to(found.dtype))


@pytest.mark.parametrize(("small", "lanes"), [(False, 1), (True, 4)])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.sweep),
                                   pytest.param("bfloat16", marks=pytest.mark.sweep)])
def test_where_many_of_a_column_meet_those_of_the_lanes_are_added_as_a_tree(
        monkeypatch: pytest.MonkeyPatch, dtype: str, small: bool, lanes: int) -> None:
    """Of 40 positions of one sum four lanes take four each, twice: more than `MANY_TURNS`. The eight behind them take
    turns. Where a column has one lane, its positions do, whatever their number."""
    monkeypatch.setattr(line_sums, "FEW", ())
    (_, added), want, found = columns_summed(monkeypatch, (1, 40, 5, 1), dtype, small)
    pieces = [*added.split(lanes, 1)[:32 // lanes], *added[:, 32:].split(1, 1)]
    for piece in pieces:
        while piece.shape[1] > 1:
            piece = piece[:, ::2] + piece[:, 1::2]
        want += piece
    assert torch.equal(found, want.to(found.dtype))


@pytest.mark.parametrize("share", [False, True])
def test_shares_of_lines_take_what_is_theirs(monkeypatch: pytest.MonkeyPatch, share: bool) -> None:
    if share:
        monkeypatch.setattr(scaled_lines, "SUMS_AT_ONCE", 64)
    schedule = scheduled("scatter_add", (3, 300), 1, (3, 500), "float32")
    kernel, = (emit(group) for group in schedule.groups)
    assert kernel.name == "lines_summed" and kernel.grid[0] == (15 if share else 3)
    where = torch.randint(0, 300, (3, 500), generator=torch.Generator().manual_seed(0))
    data = [torch.zeros(3, 300), where, torch.randn(3, 500, generator=torch.Generator().manual_seed(1))]
    found, = run_schedule(schedule, data)
    torch.testing.assert_close(found, data[0].scatter_add(1, where, data[2]), rtol=1e-5, atol=1e-5)


def test_columns_of_any_size_compile_and_are_checked_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_warps, "FEWEST_COLUMNS", 1)
    with Trace(A=2000, B=1200, C=2047) as trace:
        rows, columns, places = (trace.symbol(name) for name in "ABC")
        base, index, source = (an_input(0, (1, rows, columns)), an_input(1, (1, places, columns), int64),
                               an_input(2, (1, places, columns)))
        found = lines_summed(base, checked(index, rows), source)
        group, = run_passes(Graph((base, index, source), (found,)), backend_named("h200"))[1].groups
        assert emit(group).name == "lines_summed" and compile_cubin(emit(group))


def test_columns_with_many_sums_are_moved_to_where_lines_are() -> None:
    """A warp would have few of them side by side: short pieces of rows are slower than two transposes (H200). Programs
    of several warps take those of floats that are many."""
    for shape, count, dtype in (((40, 64), 50, "float32"), ((1000, 1283), 900, "float16")):
        assert names(scheduled("scatter_add", shape, 0, (count, shape[1]), dtype)) == ["lines_summed"]
    for shape, count, dtype in (((1000, 1283), 900, "float64"), ((2368, 1283), 2048, "float16")):
        found = names(scheduled("scatter_add", shape, 0, (count, shape[1]), dtype))
        assert found.count("lines_summed") == 1 and len(found) > 1 and "lines_added" not in found


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_moved_to_lines_is_read_there(monkeypatch: pytest.MonkeyPatch, dtype: str, many: bool) -> None:
    """The index, the source and a base of 16 bits are moved by kernels of their own: a warp that followed the columns
    would read a sector of memory for each element. The numbers of a large index are moved in as few bytes as may be,
    and a base of float32 is added where the sums are moved back."""
    monkeypatch.setattr(several_warps, "FEWEST_COLUMNS", 64)
    monkeypatch.setattr(long_lines, "FEW_SUMS", 0)
    monkeypatch.setattr(long_lines, "MANY_MOVED", 1 if many else 1 << 20)
    schedule = scheduled("scatter_add", (2, 60, 33), 1, (2, 90, 33), dtype)
    index_moved = "maximum_minimum_permute" if many else "permute"
    assert names(schedule) == (["permute", index_moved, "permute", "lines_summed", "permute"] if dtype == "bfloat16"
                               else [index_moved, "permute", "lines_summed", "permute_add"])
    base, index, source = schedule.graph.inputs
    data = [some(base), torch.randint(0, 60, index.shape, generator=torch.Generator().manual_seed(0)), some(source)]
    check(schedule, data, Graph((base, index, source), (indexing.scatter_add(base, index, source, axis=1),)),
          1e-5 if dtype == "float32" else 2**-7)


@pytest.mark.parametrize("rows", [100, 40_000])
def test_numbers_outside_stay_outside_where_they_are_narrowed(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """65,536 more is the same number in 16 bits; what no line has is left out."""
    monkeypatch.setattr(several_warps, "FEWEST_COLUMNS", 64)
    monkeypatch.setattr(long_lines, "FEW_SUMS", 0)
    monkeypatch.setattr(long_lines, "MANY_MOVED", 1)
    base, index, source = an_input(0, (1, rows, 3)), an_input(1, (1, 50, 3), int64), an_input(2, (1, 50, 3))
    schedule = run_passes(Graph((base, index, source), (lines_summed(base, index, source),)), backend_named("h200"))[1]
    where = torch.arange(150).reshape(1, 50, 3) % 90
    far = where.clone()
    far[0, ::2] += torch.tensor([1 << 16, 1 << 32, -(1 << 16)])
    data = [some(base), far, some(source)]
    found, = run_schedule(schedule, data, most_programs=4096)
    kept = torch.where(far == where, data[2], 0)
    torch.testing.assert_close(found, data[0].scatter_add(1, where, kept), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("count", "dtype", "constant"), [
    (2400, "float32", False), (2400, "bfloat16", True), (2400, "float16", False), (2401, "float32", True)])
def test_few_long_lines_are_added_up_in_parts(monkeypatch: pytest.MonkeyPatch, count: int, dtype: str,
                                              constant: bool) -> None:
    monkeypatch.setattr(sum_forms, "H200", replace(sum_forms.H200, position_us=0.03))
    monkeypatch.setattr(sum_forms, "PROGRAMS", 12)
    schedule = scheduled("scatter_add", (3, 270), 1, (3, count), dtype, constant)
    assert [group.outputs[0].shape for group in schedule.groups if group.kind == "scatter"] == [(12, 270)]
    base, source = (an_input(i, x.type.shape, x.type.dtype) for i, x in enumerate(schedule.graph.inputs) if i != 1)
    data = [some(base), torch.randint(0, 270, (3, count), generator=torch.Generator().manual_seed(0)), some(source)]
    onto = torch.zeros_like(data[0]) if constant else data[0]
    want = onto.double().scatter_add(1, data[1], data[2].double())
    found, = run_schedule(schedule, data, most_programs=4096)
    tolerance = {"bfloat16": 2**-8, "float16": 2**-11}.get(dtype, 1e-5)
    torch.testing.assert_close(found.double(), want, rtol=tolerance, atol=tolerance / 8)


@pytest.mark.parametrize("wrong", [0, 277])
@pytest.mark.usefixtures("sorts")
def test_an_index_that_is_cut_into_parts_is_checked(monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    """Also one whose last part is filled up; and once, behind the loop: a check within it waits for what is loaded
    ahead."""
    from genesis.codegen.cuda.templates import scatter
    monkeypatch.setattr(scatter, "SHORT", 0)
    monkeypatch.setattr(sum_forms, "H200", replace(sum_forms.H200, position_us=0.03))
    monkeypatch.setattr(sum_forms, "PROGRAMS", 4)
    base, index, source = an_input(0, (274,)), an_input(1, (2401,), int64), an_input(2, (2401,))
    schedule = run_passes(Graph((base, index, source), (
        indexing.index_add(base, checked(index, 274), source, axis=0),)), backend_named("h200"))[1]
    assert names(schedule) == ["lines_summed", "add"]
    group = schedule.groups[0]
    kernel = emit(group)
    assert kernel.source.count("= g_in_range(") == 0 and kernel.source.count("g_in_range(strange") == 1
    where = torch.randint(-274, 274, (2401,), generator=torch.Generator().manual_seed(0))
    where[35] = wrong
    word, found = torch.zeros(1, dtype=torch.int64), torch.full((4, 274), float("nan"))
    data = {index: where, source: some(source), group.outputs[0]: found, literal(0): word,
            next(x for x in kernel.args if isinstance(x, Node) and x.op is report):
            torch.tensor([word.data_ptr(), 1000])}
    run_source(kernel, data)
    assert word.item() == (1000 + wrong if wrong else 0)
    if not wrong:
        want = torch.zeros(274).index_add(0, where % 274, data[source])
        torch.testing.assert_close(found.sum(0), want, rtol=1e-5, atol=1e-5)


def test_lines_are_cut_into_parts_that_are_alike() -> None:
    for scaled in (False, True):
        assert parts_of_lines(1, 100_000, 100_000, scaled) > 8 and parts_of_lines(2, 60_000, 60_000, scaled) > 4
        assert {parts_of_lines(*line, scaled) for line in ((88, 42_240, 42_240), (3000, 1100, 16_384),
                                                          (1, 50, 2000))} == {1}
    with Trace(A=90_000, B=2) as trace:
        count, lines = trace.symbol("A"), trace.symbol("B")
        index, source = an_input(0, (lines, count), int64), an_input(1, (lines, count))
        found = indexing.scatter_add(leaves.full((lines, 500), 0, source.dtype, GPU), index, source, axis=1)
        schedule = run_passes(Graph((index, source), (found,)), backend_named("h200"))[1]
        assert all(compile_cubin(emit(group)) for group in schedule.groups)


@pytest.mark.parametrize(("shape", "count", "dtype", "first"), [
    ((20, 50), 30, "float32", "lines_summed"), ((4, 5, 40), 300, "bfloat16", "lines_summed"),
    ((17, 9, 3), 200, "float32", "permute")])
@pytest.mark.usefixtures("sorts")
def test_short_rows_of_many_sizes_are_lines_or_moved_together(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...],
                                                              count: int, dtype: str, first: str) -> None:
    """Each program would look through the index for a handful of elements."""
    from genesis.codegen.cuda.templates import scatter
    monkeypatch.setattr(scatter, "SHORT", 0)
    axis = len(shape) - 1 if first == "lines_summed" else 1
    schedule = scheduled("index_add", shape, axis, (count,), dtype)
    assert first in names(schedule)[:2] and "index_add" not in names(schedule)  # beside the sorts of its index
    base, _, source = schedule.graph.inputs
    data = [some(base), torch.randint(0, shape[axis], (count,), generator=torch.Generator().manual_seed(0)),
            some(source)]
    want = data[0].double().index_add(axis, data[1], data[2].double())
    found, = run_schedule(schedule, data, most_programs=4096)
    tolerance = {"bfloat16": 2**-8}.get(dtype, 1e-5)
    torch.testing.assert_close(found.double(), want, rtol=tolerance, atol=tolerance)


def test_a_long_columns_lines_are_moved_and_sorted() -> None:
    found = names(scheduled("scatter_add", (140_000, 3), 0, (4000, 3), "float32"))
    assert "lines_summed" not in found and "lines_added" in found


def interleaved_marks(labels: torch.Tensor, slots: int, lanes: int) -> list[tuple[int, int]]:
    """What the assembly of `g_added` does with the labels of one call, a row for each of a lane's elements, by its own
    steps: (turn, label) of each addition, in the order in which they happen."""
    marks = torch.zeros(slots, len(labels), dtype=torch.int64)
    fold = (slots - 1).bit_length()
    slot = (labels ^ (labels >> fold)) & (slots - 1)
    for k, row in enumerate(labels):
        for lane in range(lanes):
            if row[lane] >= 0:
                marks[slot[k, lane], k] |= 1 << lane
    ranks = [[sum(int(marks[slot[k, lane], j]).bit_count() for j in range(k))
              + (int(marks[slot[k, lane], k]) & ((1 << lane) - 1)).bit_count() if row[lane] >= 0 else -1
              for lane in range(lanes)] for k, row in enumerate(labels)]
    return [(turn, int(labels[k, lane])) for turn in range(max(map(max, ranks)) + 1)
            for k in range(len(labels)) for lane in range(lanes) if ranks[k][lane] == turn]


@pytest.mark.parametrize(("rows", "slots"), [(3, 4), (200, 64), (5000, 256), (1, 256)])
def test_no_two_of_one_turn_meet_in_a_sum(rows: int, slots: int) -> None:
    labels = torch.randint(-1, rows, (4, 32), generator=torch.Generator().manual_seed(rows))
    order = interleaved_marks(labels, slots, 32)
    assert len(order) == len([x for x in labels.flatten() if x >= 0])
    assert len(set(order)) == len(order)


def test_views_and_casts_of_what_is_added_to_lines_cost_no_kernel() -> None:
    base, index, source = an_input(0, (5, 40)), an_input(1, (90,), int32), an_input(2, (5, 1), dtype_named("bfloat16"))
    where = movement.expand(movement.reshape(pointwise.cast(index, dtype=int64), shape=(1, 90)), shape=(5, 90))
    added = movement.expand(pointwise.cast(source, dtype=base.dtype), shape=(5, 90))
    schedule = run_passes(Graph((base, index, source), (lines_summed(base, where, added),)),
                          backend_named("h200"))[1]
    assert names(schedule) == ["lines_summed"]
    data = [some(base), torch.randint(0, 40, (90,), generator=torch.Generator().manual_seed(0)).int(), some(source)]
    found, = run_schedule(schedule, data)
    want = data[0].scatter_add(1, data[1].long().expand(5, 90), data[2].float().expand(5, 90))
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5)


def checked(index: Node, size: int) -> Node:
    """An index as capture hands it on, with numbers from the end."""
    return in_range(index, size=size, dim=1, negative=True, ignored=None, name="gather", line="")


def test_those_who_read_an_index_once_check_it() -> None:
    """No kernel writes the index of a gather for its gradient, as both read it element by element."""
    x, index, gradient = an_input(0, (9, 74)), an_input(1, (9, 50), int64), an_input(2, (9, 50))
    at = checked(index, 74)
    summed = lines_summed(leaves.full((9, 74), 0, x.dtype, GPU), at, gradient)
    schedule = run_passes(Graph((x, index, gradient), (indexing.gather(x, at, axis=1), summed)),
                          backend_named("h200"))[1]
    assert names(schedule) == ["in_range_gather", "lines_summed"]
    assert all(node.dtype is float32 for group in schedule.groups for node in group.outputs)


@pytest.mark.parametrize(("rows", "launches"), [(23, ["in_range_take"]), (300_000, ["in_range", "take"])])
def test_loops_that_read_at_a_short_index_check_it(rows: int, launches: list[str]) -> None:
    """Until each element's check takes longer than a launch: an index of the last axis is read for every row."""
    x, index = an_input(0, (rows, 37)), an_input(1, (41,), int64)
    shown = movement.reshape(checked(index, 37), shape=(41,))
    schedule = run_passes(Graph((x, index), (indexing.take(x, shown, axis=1),)), backend_named("h200"))[1]
    assert names(schedule) == launches


def test_an_index_that_is_a_result_is_checked_once() -> None:
    x, index = an_input(0, (23, 37)), an_input(1, (41,), int64)
    at = checked(index, 37)
    schedule = run_passes(Graph((x, index), (at, indexing.take(x, at, axis=1))), backend_named("h200"))[1]
    assert names(schedule) == ["in_range", "take"]


@pytest.mark.parametrize(("rows", "count", "wrong"), [
    (74, 40, 77), (74, 300, -75), (74, 300, 0), (74, 500, 77), (600, 500, 603), (600, 2100, -601), (600, 700, 0)])
def test_an_index_outside_is_told_and_adds_nothing(rows: int, count: int, wrong: int) -> None:
    base, index, source = an_input(0, (3, rows)), an_input(1, (3, count), int64), an_input(2, (3, count))
    schedule = run_passes(Graph((base, index, source), (lines_summed(base, checked(index, rows), source),)),
                          backend_named("h200"))[1]
    group, = schedule.groups
    kernel = emit(group)
    where = torch.randint(-rows, rows, (3, count), generator=torch.Generator().manual_seed(0))
    where[1, 35] = wrong
    word, found = torch.zeros(1, dtype=torch.int64), torch.full((3, rows), float("nan"))
    data = {base: some(base), index: where, source: some(source), group.outputs[0]: found, literal(0): word,
            next(x for x in kernel.args if isinstance(x, Node) and x.op is report):
            torch.tensor([word.data_ptr(), 1000])}
    run_source(kernel, data)
    assert word.item() == (1000 + wrong if wrong else 0)
    added = torch.where((where >= -rows) & (where < rows), data[source], 0)
    want = data[base].scatter_add(1, where.clamp(-rows, rows - 1) % rows, added)
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reads_base", [False, True])
def test_sums_lie_where_the_base_does_unless_the_source_reads_it(reads_base: bool) -> None:
    base, index, source = an_input(0, (3, 70)), an_input(1, (3, 70), int64), an_input(2, (3, 70))
    added = movement.expand(movement.take_range(base, 0, 2, 3), shape=(3, 70)) if reads_base else source
    found = lines_summed(base, index, added)
    schedule = run_passes(Graph((base, index, source), (), ((base, found),)), backend_named("h200"))[1]
    group = next(group for group in schedule.groups if group.kind == "scatter")
    assert bool(group.in_place) != reads_base


SHAPES = [((7, 5), 0, (300,)), ((2, 40, 3), 1, (20, 15)), ((400,), 0, (600,)), ((1, 300), 0, (40,)),
          ((70, 33), 0, (2500,)), ((3, 9, 64), 1, (5,)), ((9, 300), 0, (2100,)), ((9, 300), 0, (2048,))]
"""(table, axis, positions) of indices that each program looks through. The last is for numbers of 8 bytes, the one
before for smaller ones: 2048 times 128 columns of doubles are as much as a program may add by itself (`WORST`)."""



@by_default("case0-*", "case4-*", "case7-*", "case8-*", "case10-*", "case36-*")
@pytest.mark.parametrize(("case", "dtype", "constant"), [each for each in sweep_but(
    lambda case, dtype, constant: constant is (dtype in ("bfloat16", "int32")) and (
        case in SHAPES[::3] if dtype == "float32" else case is SHAPES[dtype == "bfloat16"]),
    SHAPES, ["float32", "bfloat16", "float64", "int32", "int64", "uint8"], [False, True])
    if each.values[0] not in SHAPES[6:] or each.values[0] is SHAPES[6 + each.values[1].endswith("64")]])
def test_a_row_looks_for_its_positions(case: tuple[tuple[int, ...], int, tuple[int, ...]], dtype: str,
                                       constant: bool) -> None:
    shape, axis, where = case
    schedule = scheduled("index_add", shape, axis, where, dtype, constant)
    assert names(schedule) == ["rows_summed"]
    base, index, source = (an_input(i, x.type.shape, x.type.dtype) for i, x in enumerate(schedule.graph.inputs))
    data = [some(base), torch.randint(0, shape[axis], where, generator=torch.Generator().manual_seed(0)), some(source)]
    onto = leaves.full(shape, 0, base.dtype, GPU) if constant else base
    graph = Graph((base, index, source), (indexing.index_add(onto, index, source, axis=axis),))
    check(schedule, data, graph, {"bfloat16": 3e-2, "float32": 1e-4}.get(dtype, 1e-9))


WIDE = [((10, 3, 5), 0, (2,)), ((2, 40, 3), 1, (20, 15)), ((5, 70), 0, (40,)), ((1, 9), 0, (6,))]


@pytest.mark.parametrize("case", WIDE)
@pytest.mark.parametrize(("dtype", "constant"), [("float32", True), ("bfloat16", True), ("float32", False),
                                                 ("int64", True)])
def test_a_program_has_a_part_of_a_long_row(case: tuple[tuple[int, ...], int, tuple[int, ...]], dtype: str,
                                            constant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_row_sums, "SHORTEST", 1)
    monkeypatch.setattr(wide_row_sums, "LONGEST", 300)
    monkeypatch.setattr(wide_row_sums, "PART_BYTES", 64)
    shape, axis, where = case
    schedule = scheduled("index_add", shape, axis, where, dtype, constant)
    assert names(schedule) == ["rows_summed"]
    kernel = emit(schedule.groups[-1])
    assert "next = tl.min(" in kernel.source and kernel.constexprs["COLUMNS"] * max(kernel.grid[1] - 1, 0) < 200
    base, index, source = (an_input(i, x.type.shape, x.type.dtype) for i, x in enumerate(schedule.graph.inputs))
    data = [some(base), torch.randint(0, shape[axis], where, generator=torch.Generator().manual_seed(3)), some(source)]
    onto = leaves.full(shape, 0, base.dtype, GPU) if constant else base
    graph = Graph((base, index, source), (indexing.index_add(onto, index, source, axis=axis),))
    check(schedule, data, graph, {"bfloat16": 3e-2, "float32": 1e-4}.get(dtype, 1e-9))


@pytest.mark.parametrize(("shape", "count", "wide"), [
    ((10, 524_288), 2, True), ((8, 1_930_240), 8, True), ((64, 2048), 64, True), ((64, 2000), 64, False),
    ((9, 4096), 300, False)])
def test_long_rows_of_a_short_index_are_added_in_registers(shape: tuple[int, int], count: int, wide: bool) -> None:
    """Programs of eight rows of 256 columns were 1173 instructions of each of four warps (the gradient of two rows of
    ten of 524,288 float32: 33 µs of an H200, 6 by its bytes)."""
    schedule = scheduled("index_add", shape, 0, (count,), "float32", constant=True)
    assert names(schedule) == ["rows_summed"]
    kernel = emit(schedule.groups[-1])
    assert ("next = tl.min(" in kernel.source) == wide
    assert kernel.shared == 0 and (not wide or compile_cubin(kernel))


@pytest.mark.parametrize(("rows", "width", "count", "warps"), [
    (1024, 256, 1792, 8), (4096, 64, 6992, 8), (912, 293, 1792, 4), (1500, 64, 3111, 4)])
def test_few_programs_of_sums_of_rows_have_eight_warps(rows: int, width: int, count: int, warps: int) -> None:
    """Of 228 programs of four warps each thread had 1929 instructions, and 152 bytes in memory."""
    schedule = scheduled("index_add", (rows, width), 0, (count,), "float32", constant=True)
    kernel = next(kernel for kernel in map(emit, schedule.groups) if kernel.name == "rows_summed")
    assert kernel.num_warps == warps


@pytest.mark.parametrize("row", [0, pytest.param(6, marks=pytest.mark.sweep), None])
def test_sums_of_rows_are_the_same_bits_each_time(row: int | None) -> None:
    """Of numbers that cancel, in a list that is full several times; also where all positions hit one row."""
    schedule = scheduled("index_add", (7, 5), 0, (5000,), "float32", constant=True)
    index = torch.full((5000,), row) if row is not None else torch.arange(5000) % 7
    source = torch.randn(5000, 5, generator=torch.Generator().manual_seed(1)) * 1e4
    found = [run_schedule(schedule, [torch.zeros(7, 5), index, source], most_programs=512)[0] for _ in range(2)]
    assert torch.equal(found[0], found[1])
    want = torch.zeros(7, 5, dtype=torch.float64).index_add(0, index, source.double())
    torch.testing.assert_close(found[0].double(), want, rtol=1e-5, atol=1.0)


def test_what_is_not_finite_stays_in_its_row_of_a_table() -> None:
    schedule = scheduled("index_add", (4, 1), 0, (6,), "float32")
    inf, nan = float("inf"), float("nan")
    source = torch.tensor([inf, nan, 1.0, -inf, 2.0, -0.5]).reshape(6, 1)
    found, = run_schedule(schedule, [torch.zeros(4, 1), torch.tensor([2, 0, 1, 2, 0, 3]), source])
    torch.testing.assert_close(found, torch.tensor([[nan], [1.0], [nan], [-0.5]]), equal_nan=True)


@pytest.mark.parametrize("shape", [(1, 2000, 1), (1, 3, 3), (5, 7, 20), (1, 50304, 768), (1, 9, 2048)])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_no_two_warps_have_one_sum(shape: tuple[int, int, int], itemsize: int) -> None:
    """A warp more than a program's groups have elements would add its own share a second time."""
    tiles = row_sums.tiles_of(*shape, 512, itemsize)
    assert 32 * tiles.warps <= tiles.groups * tiles.columns
    assert tiles.rows * tiles.columns * tiles.groups * max(itemsize, 4) <= 32 << 10


@pytest.mark.parametrize(("rows", "width", "count", "dtype", "short"), [
    (1500, 64, 3111, "bfloat16", True), (2013, 768, 3968, "bfloat16", True), (20439, 32, 100_000, "bfloat16", False),
    (50304, 768, 512, "bfloat16", True), (50304, 768, 16384, "bfloat16", False), (2, 768, 16385, "bfloat16", False),
    (8440, 64, 8192, "bfloat16", True), (8440, 64, 8440, "bfloat16", False), (29104, 57, 8192, "float32", False),
    (100_000, 32, 600, "float32", False), (618, 1024, 6144, "float32", False), (9, 300, 2048, "float64", True),
    (9, 300, 2049, "float64", False), (9, 300, 4096, "float32", True), (9, 300, 4097, "float32", False)])
def test_an_index_is_looked_through_as_long_as_that_takes_little(rows: int, width: int, count: int, dtype: str,
                                                                 short: bool) -> None:
    schedule = scheduled("index_add", (rows, width), 0, (count,), dtype, constant=True)
    assert (names(schedule) == ["rows_summed"]) == short


def test_few_rows_of_a_large_table_are_added_where_it_lies() -> None:
    assert "segment_add" in names(scheduled("index_add", (50304, 768), 0, (512,), "bfloat16"))


def test_a_table_of_some_megabytes_is_written_anew_where_many_of_its_rows_are_hit() -> None:
    by_blocks = ["words_by_block", "block_sums"]
    assert names(scheduled("index_add", (20_000, 300), 0, (5000,), "float32")) == by_blocks
    assert "segment_add" in names(scheduled("index_add", (20_000, 300), 0, (500,), "float32"))
    assert "segment_add" in names(scheduled("index_add", (60_000, 300), 0, (15_000,), "float32"))


@pytest.mark.parametrize(("shape", "axis", "count", "dtype", "kernel"), [
    ((1029, 5796), 0, 200, "float16", "rows_summed"), ((2091, 184, 8), 1, 46, "bfloat16", "index_add"),
    ((65_568, 6), 1, 6, "float32", "index_add"), ((9000, 6), 1, 6, "float32", "lines_summed")])
def test_where_few_rows_are_added_and_all_must_be_copied_that_is_one_launch(
        shape: tuple[int, ...], axis: int, count: int, dtype: str, kernel: str) -> None:
    """Of the launches that looked for the rows each took as long as a sixth of the copy."""
    schedule = scheduled("index_add", shape, axis, (count,), dtype)
    assert names(schedule) == [kernel] and compile_cubin(emit(schedule.groups[0]))


def test_the_gradient_of_what_is_added_to_is_copied_beside_what_is_read_of_it() -> None:
    """No copy is a step of its own."""
    shape, where = (3, 5, 24, 21), (3, 5, 23, 21)
    base, index, source, gradient = (an_input(0, shape), an_input(1, where, int64), an_input(2, where),
                                     an_input(3, shape))
    found = run_passes(Graph((base, index, source, gradient), (
        indexing.scatter_add(base, index, source, axis=2), gradient, indexing.gather(gradient, index, axis=2))),
        backend_named("h200"))
    assert sorted(group.kind for group in found.schedule.groups) == ["scatter", "side_by_side"]
    assert not (found.memory.before or found.memory.copies or found.memory.after)
    data = [some(base), torch.randint(0, 24, where, generator=torch.Generator().manual_seed(0)), some(source),
            some(gradient)]
    summed, copied, read = run_schedule(found.schedule, data, most_programs=4096)
    torch.testing.assert_close(summed, data[0].scatter_add(2, data[1], data[2]), rtol=1e-5, atol=1e-5)
    assert torch.equal(copied, data[3]) and torch.equal(read, data[3].gather(2, data[1]))


def test_few_rows_of_any_sizes_are_added_in_one_launch() -> None:
    with Trace(A=1029, B=5796, C=200) as trace:
        rows, columns, places = (trace.symbol(name) for name in "ABC")
        operands = an_input(0, (rows, columns)), an_input(1, (places,), int64), an_input(2, (places, columns))
        schedule = run_passes(Graph(operands, (indexing.index_add(*operands, axis=0),)), backend_named("h200"))[1]
        assert names(schedule) == ["rows_summed"]


@pytest.mark.parametrize("rows", [3, 6, 15])
def test_programs_have_all_sums_of_short_lines_of_any_size(rows: int) -> None:
    """Where kernels name short sizes by their numbers: of lines of 2 to 8 sums each program had a share of one, and one
    block of lines where others have eight."""
    with Trace(A=9000, B=rows, C=6) as trace:
        trace.literals = frozenset("BC")
        lines, sums, places = (trace.symbol(name) for name in "ABC")
        index, source = an_input(1, (lines, places), int64), an_input(2, (lines, places))
        base = an_input(0, (lines, sums))
        group, = run_passes(Graph((base, index, source), (lines_summed(base, index, source),)),
                            backend_named("h200"))[1].groups
        kernel = emit(group)
        assert "row_0 = tl.program_id" not in kernel.source and compile_cubin(kernel)


def test_an_embedding_and_its_gradient_check_the_index_themselves() -> None:
    """Two launches that wait for nothing of each other."""
    table, index, gradient = an_input(0, (50, 74)), an_input(1, (9, 20), int32), an_input(2, (9, 20, 74))
    at = in_range(index, size=50, dim=0, negative=True, ignored=None, name="take", line="")
    found = indexing.index_add(leaves.full((50, 74), 0, table.dtype, GPU), at, gradient, axis=0)
    schedule = run_passes(Graph((table, index, gradient), (indexing.take(table, at, axis=0), found)),
                          backend_named("h200"))[1]
    assert names(schedule) == ["in_range_take", "rows_summed"]
    assert all(node.dtype is float32 for group in schedule.groups for node in group.outputs)
    assert all(compile_cubin(emit(group)) for group in schedule.groups)


@by_default("-51-True", "-50-False")
@pytest.mark.parametrize(("wrong", "told"), [(50, True), (-51, True), (1 << 40, True), (-50, False)])
def test_an_index_outside_a_table_is_told_and_adds_nothing(wrong: int, told: bool) -> None:
    base, index, source = an_input(0, (50, 8)), an_input(1, (300,), int64), an_input(2, (300, 8))
    at = in_range(index, size=50, dim=0, negative=True, ignored=None, name="index_add", line="")
    schedule = run_passes(Graph((base, index, source), (indexing.index_add(base, at, source, axis=0),)),
                          backend_named("h200"))[1]
    group, = schedule.groups
    kernel = emit(group)
    where = torch.randint(-50, 50, (300,), generator=torch.Generator().manual_seed(0))
    where[35] = wrong
    word, found = torch.zeros(1, dtype=torch.int64), torch.full((50, 8), float("nan"))
    data = {base: some(base), index: where, source: some(source), group.outputs[0]: found, literal(0): word,
            next(x for x in kernel.args if isinstance(x, Node) and x.op is report):
            torch.tensor([word.data_ptr(), 1000])}
    run_source(kernel, data, most_programs=512)
    assert word.item() == (1000 + wrong if told else 0)
    added = torch.where(((where >= -50) & (where < 50))[:, None], data[source], 0)
    torch.testing.assert_close(found, data[base].index_add(0, where.clamp(-50, 49) % 50, added), rtol=1e-5, atol=1e-5)


def test_sums_of_rows_of_any_number_compile() -> None:
    with Trace(A=3000, B=1500) as trace:
        places, rows = trace.symbol("A"), trace.symbol("B")
        index, source = an_input(0, (places,), int64), an_input(1, (places, 64))
        found = indexing.index_add(leaves.full((rows, 64), 0, source.dtype, GPU), checked(index, rows), source, axis=0)
        group, = run_passes(Graph((index, source), (found,)), backend_named("h200"))[1].groups
        assert compile_cubin(emit(group))


@pytest.mark.usefixtures("grouped")
@pytest.mark.parametrize(("rows", "dtype", "row"), [
    pytest.param(300, "float32", None, marks=pytest.mark.sweep),
    pytest.param(270, "bfloat16", 269, marks=pytest.mark.sweep), (2, "float64", None)])
def test_a_long_index_is_sorted_by_groups_of_rows(monkeypatch: pytest.MonkeyPatch, rows: int, dtype: str,
                                                  row: int | None) -> None:
    """Rows that half of the positions hit, or all, are added up by chunks."""
    monkeypatch.setattr(grouped_rows, "FEWEST", 64)
    schedule = scheduled("index_add", (rows, 3), 0, (400,), dtype, constant=True)
    assert names(schedule) == ["cast", "digit_counts", "digit_scatter", "group_parts", "group_sums"]
    index = torch.randint(0, rows, (400,), generator=torch.Generator().manual_seed(0))
    index[::2] = rows - 1
    if row is not None:
        index[:] = row
    data = [torch.zeros(rows, 3, dtype=getattr(torch, dtype)), index,
            torch.randn(400, 3, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype))]
    found, = run_schedule(schedule, data, most_programs=8192)
    want = torch.zeros(rows, 3, dtype=torch.float64).index_add(0, index, data[2].double())
    tolerance = 1e-2 if dtype == "bfloat16" else 1e-4
    torch.testing.assert_close(found.double(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("grouped")
def test_a_group_that_nothing_hits_reads_sums_that_all_threads_have_made_0() -> None:
    """Its loop over words makes no turn: none of the loop's barriers are between the writes and the reads."""
    schedule = scheduled("index_add", (600, 64), 0, (300,), "float32", constant=True)
    kernel, = (emit(group) for group in schedule.groups if emit(group).name == "group_sums")
    zeros, found, _ = kernel.source.rpartition(" g_put_f32(words")[2].partition("while begin < ")
    assert found and "tl.debug_barrier()" in zeros
    assert compile_cubin(kernel)


@pytest.mark.usefixtures("grouped")
@pytest.mark.parametrize(("dtype", "skewed"), [
    ("float32", True), pytest.param("bfloat16", False, marks=pytest.mark.sweep),
    pytest.param("float64", False, marks=pytest.mark.sweep)])
def test_narrow_rows_that_are_hit_rarely_are_many_to_a_program(monkeypatch: pytest.MonkeyPatch, dtype: str,
                                                               skewed: bool) -> None:
    """And give the same bits each time, also where half of the positions hit one row."""
    monkeypatch.setattr(grouped_rows, "FEWEST", 64)
    for where in (row_sums, group_sums):
        monkeypatch.setattr(where, "ENOUGH", 2)
    for where in (sort_steps, long_sort):
        monkeypatch.setattr(where, "DIGIT", 4)
    monkeypatch.setattr(group_sums, "PROBES", 4)
    schedule = scheduled("index_add", (600, 20), 0, (500,), dtype, constant=True)
    kernel = next(emit(group) for group in schedule.groups if emit(group).name == "group_sums")
    assert kernel.constexprs["ROWS"] > row_sums.MOST_ROWS and compile_cubin(kernel)
    index = torch.randint(0, 600, (500,), generator=torch.Generator().manual_seed(0))
    if skewed:
        index[::2] = 599
    kind = getattr(torch, dtype)
    source = torch.randn(500, 20, generator=torch.Generator().manual_seed(1)).to(kind)
    data = [torch.zeros(600, 20, dtype=kind), index, source]
    found = [run_schedule(schedule, data, most_programs=8192)[0] for _ in range(2)]
    assert torch.equal(found[0], found[1])
    want = torch.zeros(600, 20, dtype=torch.float64).index_add(0, index, source.double())
    tolerance = 1e-2 if dtype == "bfloat16" else 1e-4
    torch.testing.assert_close(found[0].double(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("binaries", [False, pytest.param(True, marks=pytest.mark.sweep)])
@pytest.mark.usefixtures("grouped")
def test_an_index_that_may_be_long_is_sorted_in_two_steps_where_its_class_is_not(binaries: bool) -> None:
    """(8, 12798): up to 15 × 16383, of which 8 × 16384 counts: no scan of 60 blocks' counts.

    By default the binaries are those of the test below."""
    with Trace(A=8, B=12_798) as trace:
        many = trace.symbol("A") * trace.symbol("B")
        index, source = an_input(0, (many,), int64), an_input(1, (many, 32))
        found = indexing.index_add(leaves.full((100_000, 32), 0, source.dtype, GPU), checked(index, 100_000), source,
                                   axis=0)
        groups = run_passes(Graph((index, source), (found,)), backend_named("h200"))[1].groups
        kernels = [emit(group) for group in groups]
        assert [kernel.name for kernel in kernels[1:]] == ["digit_counts", "digit_scatter", "group_parts", "group_sums"]
        assert not binaries or all(compile_cubin(kernel) for kernel in kernels)


@pytest.mark.sweep
@pytest.mark.usefixtures("grouped")
def test_sums_of_groups_of_any_number_compile() -> None:
    with Trace(A=30_000, B=20_000) as trace:
        places, rows = trace.symbol("A"), trace.symbol("B")
        index, source = an_input(0, (places,), int64), an_input(1, (places, 64))
        found = indexing.index_add(leaves.full((rows, 64), 0, source.dtype, GPU), checked(index, rows), source, axis=0)
        groups = run_passes(Graph((index, source), (found,)), backend_named("h200"))[1].groups
        kernels = [emit(group) for group in groups]
        assert {"group_parts", "group_sums"} < {kernel.name for kernel in kernels}
        assert all(compile_cubin(kernel) for kernel in kernels)


@pytest.mark.parametrize(("shape", "count"), [((390, 9), 12), ((50, 9, 3), 5), ((40, 50, 3), 20), ((30, 5), 200)])
@pytest.mark.parametrize("name", ["index_add", "index_copy"])
def test_short_rows_of_many_are_taken_together(name: str, shape: tuple[int, ...], count: int) -> None:
    """A thousand elements to a program: not a program for each of the outer sizes. Single elements are added by lines,
    several to a warp, which checks the index."""
    schedule = scheduled(name, shape, 1, (count,), "float32")
    kernel = emit(schedule.groups[-1])
    elements = shape[0] * (shape[2] if len(shape) > 2 else 1) * shape[1]
    by_lines = name == "index_add" and len(shape) == 2
    assert kernel.name == ("lines_summed" if by_lines else name)
    assert kernel.grid[0] * kernel.grid[1] <= (shape[0] if by_lines else 4 + elements // 256)
    base, index, source = (an_input(i, x.type.shape, x.type.dtype) for i, x in enumerate(schedule.graph.inputs))
    where = torch.randint(0, shape[1], (count,), generator=torch.Generator().manual_seed(0))
    graph = Graph((base, index, source), (OPS[name](base, index, source, axis=1),))
    check(schedule, [some(base), where, some(source)], graph, 1e-5)


def test_an_index_is_sorted_by_the_digits_that_its_rows_have() -> None:
    """Of 50,000 rows 16 bits, not the 32 of the dtype."""
    schedule = scheduled("index_copy", (50_000, 64), 0, (100_000,), "bfloat16", constant=True)
    assert names(schedule).count("digit_counts") == 2


@pytest.mark.parametrize(("below", "few"), [(2, 4), (300, 4), (300, 3)])
def test_numbers_are_sorted_as_sort_does(monkeypatch: pytest.MonkeyPatch, below: int, few: int) -> None:
    """By the counts of all blocks, two of four at a time, or by their running sums."""
    for where, name, size in ((sort_steps, "RUN", 4), (sort_steps, "BLOCK", 64), (long_sort, "BLOCK", 64),
                              (sort_steps, "FEW_BLOCKS", few), (long_sort, "FEW_BLOCKS", 2)):
        monkeypatch.setattr(where, name, size)
    numbers = an_input(0, (203,), int32)
    schedule = run_passes(Graph((numbers,), sorting.sorted_numbers(numbers, below)), backend_named("h200"))[1]
    data = torch.randint(0, below, (203,), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    values, order = run_schedule(schedule, [data])
    want = torch.sort(data, stable=True)
    assert torch.equal(values, want.values) and torch.equal(order, want.indices)


def test_lines_compile() -> None:
    schedule = scheduled("scatter_add", (64, 300), 1, (64, 200), "bfloat16")
    assert all(compile_cubin(emit(group)) for group in schedule.groups if emit(group).name == "lines_summed")
    schedule = scheduled("scatter_add", (2, 90_000), 1, (2, 200), "bfloat16")
    assert all(compile_cubin(emit(group)) for group in schedule.groups if emit(group).name == "lines_added")


def test_lines_that_are_taken_in_turns_wait_until_the_last_sums_are_read() -> None:
    """The lanes of a warp run as far ahead of each other as they like, between two of its barriers."""
    schedule = scheduled("scatter_add", (200_000, 9), 1, (200_000, 40), "float32")
    source, = (emit(group) for group in schedule.groups if emit(group).name == "lines_summed")
    turns, _, of_a_turn = source.source.rpartition("for turn in ")[2].partition("\n")
    assert not turns.endswith("range(0, 1):")
    last_read = max(number for number, line in enumerate(of_a_turn.splitlines()) if "g_get_" in line)
    assert any("debug_barrier" in line for line in of_a_turn.splitlines()[last_read:])
    assert compile_cubin(source)


@by_default("75-75", "900-20")
@pytest.mark.parametrize(("rows", "count"), [(9, 9), (75, 75), (900, 20), (900, 900)])
def test_sums_of_lines_of_any_length_compile(rows: int, count: int) -> None:
    """With symbolic sizes the loops over a line's sums are loops, whatever stands before them."""
    with Trace(A=4000, B=rows, C=count) as trace:
        lines, sums, places = (trace.symbol(name) for name in "ABC")
        base, index, source = (an_input(0, (lines, sums)), an_input(1, (lines, places), int64),
                               an_input(2, (lines, places)))
        found = lines_summed(base, checked(index, sums), source)
        group, = run_passes(Graph((base, index, source), (found,)), backend_named("h200"))[1].groups
        assert compile_cubin(emit(group))


@pytest.mark.parametrize("shape", [(21, 12284, 4), (9, 32, 8, 21)])
def test_elements_of_short_lines_are_a_thread_each(shape: tuple[int, ...]) -> None:
    """Of eight a thread each load of a warp was of as many sectors as lanes: 13.6 µs for 14 MB (H200)."""
    kernel, = (emit(group) for group in scheduled("scatter_add", shape, 2, shape, "bfloat16").groups)
    assert kernel.name == "scatter_add" and kernel.constexprs["BLOCK"] == 32 * kernel.num_warps


@each_value
@pytest.mark.parametrize(("name", "shape", "axis", "count"), [
    ("index_add", (9, 40, 6), 1, 70), ("index_copy", (9, 40, 6), 1, 70), ("index_copy", (3, 45, 70), 1, 40),
    ("index_copy", (30, 70), 1, 90)])
def test_rows_of_a_program_take_their_positions_at_the_same_time(name: str, shape: tuple[int, ...], axis: int,
                                                                 count: int) -> None:
    """The first of each row, then the second: all that hit a program's rows took turns, in which its threads met twice
    (H200: the gradient of index_select of float16[1, 4, 121, 56, 48] along 3 at 56 places 17.2 µs, eager with its
    forward 15). Sums are made in the order of the positions, as one thread would, and of equal ones the last wins."""
    schedule = scheduled(name, shape, axis, (count,), "float32")
    base, source = some(an_input(0, shape)) * 1e4, some(an_input(1, (*shape[:axis], count, *shape[axis + 1:]))) * 1e4
    index = torch.randint(0, shape[axis], (count,), generator=torch.Generator().manual_seed(2))
    index[::3] = 37
    want = base.clone()
    for i, row in enumerate(index.tolist()):
        added = want.select(axis, row) if name == "index_add" else 0.0
        want.select(axis, row).copy_(added + source.select(axis, i))
    found, = run_schedule(schedule, [base, index, source], most_programs=4096)
    assert torch.equal(found, want) and names(schedule)[-1] == name
    assert "hit = tl.full([BLOCK, 1]" in emit(schedule.groups[-1]).source or name == "index_copy"


@pytest.mark.parametrize(("outer", "elements"), [(484, 4096), (20, 1024)])
def test_programs_that_compare_rows_with_positions_have_many_elements(outer: int, elements: int) -> None:
    """As many as leave each multiprocessor two programs: to compare takes as long for few."""
    kernel = emit(scheduled("index_add", (outer, 56, 48), 1, (56,), "float16").groups[-1])
    assert kernel.constexprs["BLOCK"] * kernel.constexprs["COLUMNS"] == elements


def test_a_program_takes_as_many_turns_as_there_are_columns_for() -> None:
    """Not as many as a product of four classes stands for, up to 14 times as many columns: each of 320 programs took
    four blocks of its 20,448, one after another (H200: scatter_add along 3 of float32[4, 71, 36, 128, 2] with gradients
    131 µs, eager 61)."""
    for shape, programs in (((4, 71, 36, 128, 2), 1278), ((30, 99, 60, 128, 15), 7956)):
        with Trace(**dict(zip("ABCDE", shape, strict=True))) as trace:
            sizes = tuple(trace.symbol(name) for name in "ABCDE")
            base, index, source = an_input(0, sizes), an_input(1, sizes, int64), an_input(2, sizes)
            group, = run_passes(Graph((base, index, source), (indexing.scatter_add(base, index, source, axis=3),)),
                                backend_named("h200"))[1].groups
            kernel = emit(group)
            assert kernel.name == "lines_summed" and int(kernel.grid[0].__index__()) == programs
            assert compile_cubin(kernel)


@pytest.mark.parametrize(("columns", "beside"), [(3, 4), (40, 4), (2000, 8)])
def test_few_columns_are_few_beside_each_other(columns: int, beside: int) -> None:
    """156 programs had 32 each, and all of their rounds one after another (H200: gather of float16[64, 56, 89] with its
    gradient 22.5 µs, eager 18.8)."""
    schedule = scheduled("scatter_add", (64, columns), 0, (50, columns), "float32")
    kernel = emit(schedule.groups[0])
    assert kernel.name == "lines_summed" and kernel.constexprs["XBLOCK"] == beside
    assert kernel.constexprs["RBLOCK"] * beside == 32
    base, index, source = (an_input(i, x.type.shape, x.type.dtype) for i, x in enumerate(schedule.graph.inputs))
    data = [some(base), torch.randint(0, 64, (50, columns), generator=torch.Generator().manual_seed(0)), some(source)]
    check(schedule, data, Graph((base, index, source), (OPS["scatter_add"](base, index, source, axis=0),)), 1e-5)
    many = emit(scheduled("scatter_add", (64, 40_000), 0, (50, 40_000), "float32").groups[0])
    assert many.constexprs["XBLOCK"] == 32 and "marks" not in many.source  # nobody else adds to a lane's sums


@pytest.mark.parametrize(("shape", "where", "dtype", "kernel"), [
    ((20, 144, 200), (16, 144, 200), "float32", "lines_summed"),
    ((20, 144, 200), (8, 144, 200), "float32", "scatter_add"),
    ((20, 144, 200), (16, 144, 199), "float32", "scatter_add"),
    ((20, 144, 200), (16, 144, 200), "int64", "scatter_add")])
def test_columns_of_few_positions_are_read_once(shape: tuple[int, ...], where: tuple[int, ...], dtype: str,
                                                kernel: str) -> None:
    assert kernel in names(scheduled("scatter_add", shape, 0, where, dtype))
