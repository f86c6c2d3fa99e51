"""Rows added by an index whose blocks are sorted, each for itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
import triton

from genesis.codegen.cuda import side_by_side as beside
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.templates import block_sums, ordered_hits, row_sums, shared_words, written_rows
from genesis.codegen.cuda.worker import compile_kernel
from genesis.engine.backends import backend_named
from genesis.ir import Graph, Node
from genesis.ir.node import literal
from genesis.ir.ops import block_rows, indexing, leaves, sum_forms
from genesis.ir.ops.row_number import in_range, report
from genesis.ir.size_trace import Trace
from genesis.ir.sym_int import hint
from genesis.ir.types import dtype_named, int64
from genesis.passes import structural_memo
from genesis.passes.fusion import side_by_side
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.machine_code import instructions, waits
from tests.codegen.cuda.programs import GPU, an_input
from tests.codegen.cuda.run_interpreted import compile_cubin, run_source
from tests.sweeping import by_default, sweep_but


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices of some hundred positions have several blocks, bins several shares, and programs several lists of
    hits, one after another."""
    monkeypatch.setattr(structural_memo, "_closed", {})
    monkeypatch.setattr(row_sums, "LONGEST", 0)
    monkeypatch.setattr(block_rows, "BLOCKS", (256, 512))
    monkeypatch.setattr(block_sums, "SHARE", 64)
    monkeypatch.setattr(block_sums, "ROUNDS", 1)
    monkeypatch.setattr(row_sums, "ENOUGH", 2)
    monkeypatch.setattr(ordered_hits, "ENOUGH", 2)
    monkeypatch.setattr(written_rows, "ENOUGH", {False: 8, True: 8})
    monkeypatch.setattr(written_rows, "MOST_ROWS", 64)
    monkeypatch.setattr(written_rows, "STEPS", (256, 256))
    monkeypatch.setattr(ordered_hits, "STEP", 256)
    monkeypatch.setattr(ordered_hits, "LISTED_AT_EASE", 32)
    monkeypatch.setattr(block_rows, "DIGITS", ((400, 3), (1 << 21, 4)))


def scheduled(shape: tuple[int, ...], axis: int, count: int, dtype: str, constant: bool) -> Schedule:
    """The kernels of an index_add onto an input or onto zeros, with a check of its index."""
    kind = dtype_named(dtype)
    base, index = an_input(0, shape, kind), an_input(1, (count,), int64)
    source = an_input(2, (*shape[:axis], count, *shape[axis + 1:]), kind)
    at = in_range(index, size=shape[axis], dim=0, negative=True, ignored=None, name="index_add", line="")
    onto = leaves.full(shape, 0, kind, GPU) if constant else base
    return run_passes(Graph((base, index, source), (indexing.index_add(onto, at, source, axis=axis),)),
                      backend_named("h200"))[1]


def run(schedule: Schedule, index: torch.Tensor, wrong: int | None = None) -> tuple[torch.Tensor, torch.Tensor, int]:
    """The kernels' result, what float64 makes of it, and what the check told."""
    base, _, source = schedule.graph.inputs
    axis = source.shape.index(len(index))
    memory, data, word = interpreted(schedule, index)
    rows = base.shape[axis]
    inside = (index >= -rows) & (index < rows)
    places = inside.nonzero()[:, 0]
    constant = len(schedule.graph.roots) > 1 or all(x is not base for group in schedule.groups for x in group.inputs)
    onto = torch.zeros_like(data[0]) if constant else data[0]
    want = onto.double().index_add(axis, index[places] % rows, data[1].double().index_select(axis, places))
    return memory[schedule.graph.roots[0]], want, int(word.item())


def interpreted(schedule: Schedule,
                index: torch.Tensor) -> tuple[dict[Node, torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """What the kernels leave in memory, what base and source were, and the word of the index's check."""
    base, _, source = schedule.graph.inputs
    kind, random = getattr(torch, source.dtype.name), torch.Generator().manual_seed(1)
    data = [torch.randn(x.shape, generator=random).to(kind) for x in (base, source)]
    word = torch.zeros(1, dtype=torch.int64)
    memory: dict[Node, torch.Tensor] = {base: data[0], schedule.graph.inputs[1]: index, source: data[1],
                                        literal(0): word}
    for group in schedule.groups:
        kernel = emit(group)
        told = torch.tensor([word.data_ptr(), 1000])
        memory |= {x: told for x in kernel.args if isinstance(x, Node) and x.op is report}
        for node in group.outputs:
            memory[node] = torch.full(node.shape, 77, dtype=getattr(torch, node.dtype.name))
        run_source(kernel, memory, most_programs=8192)
    return memory, data, word


INDICES = {
    "alike": lambda rows, count, random: torch.randint(-rows, rows, (count,), generator=random),
    "one row": lambda rows, count, random: torch.full((count,), rows - 1),
    "half of them one row": lambda rows, count, random: torch.where(
        torch.arange(count) % 2 == 0, rows // 3, torch.randint(0, rows, (count,), generator=random)),
    "few rows": lambda rows, count, random: torch.randint(0, min(rows, 3), (count,), generator=random),
    "Zipf": lambda rows, count, random: (rows ** torch.rand(count, generator=random)).long().clamp(1, rows) - 1,
}


TABLES = [((300, 3), 0, 700, "float32", True), ((2, 90, 70), 1, 600, "float32", False),
          ((500, 20), 0, 1300, "bfloat16", True), ((2, 9), 0, 520, "float64", False),
          ((999, 5), 0, 600, "float16", True), ((4000, 16), 0, 300, "float32", True),
          ((500, 31), 0, 900, "float32", False), ((90, 460), 0, 600, "bfloat16", True)]
"""(table, axis, positions, dtype, whether the base is a constant)."""


@by_default("alike-*", "one row-*", "few rows-*", "Zipf-*")
@pytest.mark.parametrize(("kind", "table"), sweep_but(
    lambda kind, table: (list(INDICES).index(kind) - TABLES.index(table)) % len(TABLES) < 1, INDICES, TABLES))
def test_any_index_gives_the_same_bits_each_time(table: tuple[tuple[int, ...], int, int, str, bool],
                                                 kind: str) -> None:
    shape, axis, count, dtype, constant = table
    schedule = scheduled(shape, axis, count, dtype, constant)
    assert [emit(group).name for group in schedule.groups] == ["words_by_block", "block_sums"]
    index = INDICES[kind](shape[axis], count, torch.Generator().manual_seed(0))
    found, want, told = run(schedule, index)
    again, *_ = run(schedule, index)
    assert torch.equal(found, again) and not told
    tolerance = {"bfloat16": 2**-8, "float16": 2**-11}.get(dtype, 1e-5)
    torch.testing.assert_close(found.double(), want, rtol=tolerance, atol=max(tolerance / 8, 1e-5))


@pytest.mark.parametrize("helper", [partial(shared_words.ended_helper, stride=128), shared_words.plus_helper])
@pytest.mark.parametrize("vector", [1, 2, 4])
def test_each_element_of_a_thread_is_asked_where_it_goes_and_whether(helper: Callable[[str, int], str],
                                                                     vector: int) -> None:
    """Rows of 33 columns are not loaded in vectors, so that a thread's elements are of several rows. On the GPU those
    of a table of 3 columns lost most of their hits, as the first element was asked for all; no interpreter sees it."""
    text = helper("f32", vector)
    assembly, constraints = re.search(r'"""\{ // shared(.*)""", "(.*?)", ', text, re.S).groups()  # type: ignore[union-attr]
    operands = constraints.count(",") + 1
    assert {int(k) for k in re.findall(r"\$(\d+)", assembly)} == set(range(operands))
    wanted = [f"${operands - vector + k}" for k in range(vector)]
    assert [f"setp.ne.b32 %wanted{k}, {operand}, 0;" in assembly for k, operand in enumerate(wanted)] == [True] * vector


@by_default("shape0-*", "shape1-*", "shape4-*")
@pytest.mark.parametrize(("shape", "count", "dtype", "constant"), [
    ((18, 40), 300, "float32", False), ((17, 500), 600, "bfloat16", True), ((70, 90), 520, "float32", True),
    ((140, 33), 300, "float16", False), ((16, 3), 260, "float64", False)])
def test_a_last_axis_is_added_to_where_it_lies(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], count: int,
                                               dtype: str, constant: bool) -> None:
    """The table is read and written once, not moved before and after: that was three times as many bytes."""
    monkeypatch.setattr(sum_forms, "SHORT_LINE", dict.fromkeys(sum_forms.SHORT_LINE, 0))
    schedule = scheduled(shape, 1, count, dtype, constant)
    assert [emit(group).name for group in schedule.groups] == ["words_by_block_beside_1_more", "block_sums"]
    index = INDICES["half of them one row"](shape[1], count, torch.Generator().manual_seed(0))
    found, want, told = run(schedule, index)
    assert torch.equal(found, run(schedule, index)[0]) and not told
    tolerance = {"bfloat16": 2**-8, "float16": 2**-11}.get(dtype, 1e-5)
    torch.testing.assert_close(found.double(), want, rtol=tolerance, atol=max(tolerance / 8, 1e-5))


def look_up_and_gradient(rows: int, columns: int, count: int, dtype: str) -> Schedule:
    """Rows that are looked up, and a table to whose rows others are added, at one checked index."""
    kind = dtype_named(dtype)
    table, index, gradient = an_input(0, (rows, columns), kind), an_input(1, (count,), int64), an_input(2, (
        count, columns), kind)
    at = in_range(index, size=rows, dim=0, negative=True, ignored=None, name="embedding", line="")
    found = indexing.take(table, at, axis=0)
    summed = indexing.index_add(leaves.full((rows, columns), 0, kind, GPU), at, gradient, axis=0)
    return run_passes(Graph((table, index, gradient), (summed, found)), backend_named("h200"))[1]


@pytest.mark.parametrize(("rows", "columns", "dtype"), [(300, 24, "float32"), (97, 31, "bfloat16")])
def test_a_short_look_up_is_one_launch_with_the_sorts_of_its_index(rows: int, columns: int, dtype: str) -> None:
    schedule = look_up_and_gradient(rows, columns, 700, dtype)
    kernels = [emit(group) for group in schedule.groups]
    assert [kernel.name for kernel in kernels] == ["words_by_block_beside_1_more", "block_sums"]
    member, loop = (emit(group) for group in schedule.groups[0].members)
    assert kernels[0].grid[0] == member.grid[0] + loop.grid[0] and kernels[0].num_warps == member.num_warps
    assert kernels[0].shared == member.shared and compile_cubin(kernels[0])
    index = INDICES["alike"](rows, 700, torch.Generator().manual_seed(0))
    found, want, told = run(schedule, index)
    assert torch.equal(found, run(schedule, index)[0]) and not told
    tolerance = {"bfloat16": 2**-8}.get(dtype, 1e-5)
    torch.testing.assert_close(found.double(), want, rtol=tolerance, atol=max(tolerance / 8, 1e-5))


def test_a_look_up_beside_the_sorts_reads_what_is_there_and_both_tell_of_an_index_outside() -> None:
    schedule = look_up_and_gradient(300, 24, 700, "float32")
    index = INDICES["alike"](300, 700, torch.Generator().manual_seed(0))
    memory, data, word = interpreted(schedule, index)
    assert torch.equal(memory[schedule.graph.roots[1]], data[0][index]) and not word
    index[650] = 300
    memory, data, word = interpreted(schedule, index)
    assert word == 1300 and torch.equal(memory[schedule.graph.roots[1]][:650], data[0][index[:650]])


def test_a_long_look_up_is_a_launch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "LOOP_BYTES", 0)
    assert "side_by_side" not in {group.kind for group in look_up_and_gradient(300, 24, 700, "float32").groups}


@pytest.mark.parametrize(("old", "new"), [
    ("def words_by_block(", "def words_by_block_("), ("    cuda.gdc_wait()\n", ""),
    ("block = tl.program_id(0)", "block = tl.program_id(1)"),
    ("block = tl.program_id(0)", "block = tl.num_programs(0)")])
def test_a_kernel_that_others_cannot_be_beside_is_refused(old: str, new: str) -> None:
    group = look_up_and_gradient(300, 24, 700, "float32").groups[0].members[0]
    source = emit(group)
    assert beside._of_template(source)[0].lines
    with pytest.raises(ValueError, match="has no programs that others can be beside"):
        beside._of_template(replace(source, source=source.source.replace(old, new, 1)))


def test_a_program_may_find_none_of_its_bins_words() -> None:
    """Of 4000 rows several programs share a bin, and one alone is hit: the others' groups of lanes write nothing."""
    schedule = scheduled((4000, 16), 0, 300, "float32", True)
    found, want, _ = run(schedule, torch.zeros(300, dtype=torch.int64))
    torch.testing.assert_close(found.double(), want, rtol=1e-5, atol=1e-4)


WRITTEN = [((600, 70), 500, "bfloat16"), ((300, 128), 500, "float32"), ((4000, 65), 700, "float16"),
           ((2, 300, 70), 500, "float32"), ((700, 72), 1300, "bfloat16")]
"""(table, positions, dtype) of rows that are written as soon as they end."""


def written(shape: tuple[int, ...], count: int, dtype: str) -> tuple[Schedule, block_sums._WrittenSums]:
    """The kernels of an index_add onto zeros, and that which writes rows."""
    schedule = scheduled(shape, len(shape) - 2, count, dtype, True)
    group = schedule.groups[-1]
    kernel = block_sums._written(group, next(n for n in group.nodes if n.op.name == "block_sums"))
    assert kernel is not None
    return schedule, kernel


@by_default("alike-*", "one row-*", "few rows-*", "Zipf-*")
@pytest.mark.parametrize(("kind", "table"), sweep_but(
    lambda kind, table: (list(INDICES).index(kind) - WRITTEN.index(table)) % len(WRITTEN) < 2, INDICES, WRITTEN))
def test_rows_are_written_when_their_hits_are_added_up(table: tuple[tuple[int, ...], int, str], kind: str,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    shape, count, dtype = table
    if len(shape) > 2:  # as of a size that has not the hint of its class
        monkeypatch.setattr(written_rows, "columns_of", lambda inner: 32)
    schedule, kernel = written(*table)
    assert kernel.shares and kernel.most_hits > kernel.step / 2 and kernel.tiles.rows > 16
    index = INDICES[kind](shape[-2], count, torch.Generator().manual_seed(0))
    found, want, told = run(schedule, index)
    again, *_ = run(schedule, index)
    assert torch.equal(found, again) and not told
    tolerance = {"bfloat16": 2**-8, "float16": 2**-11}.get(dtype, 1e-5)
    torch.testing.assert_close(found.double(), want, rtol=tolerance, atol=max(tolerance / 8, 1e-5))


def test_programs_have_parts_of_a_bin_a_bin_or_several() -> None:
    """The tables above have programs of each kind."""
    found = set()
    for shape, axis, count, dtype, constant in TABLES:
        group = scheduled(shape, axis, count, dtype, constant).groups[-1]
        kernel = block_sums._OrderedSums(group, next(n for n in group.nodes if n.op.name == "block_sums"))
        assert kernel.several * kernel.tiles.rows == kernel.bins << kernel.node["bits"]
        found.add((kernel.bins > 1, kernel.several > 1))
    assert found == {(True, False), (False, False), (False, True)}


@pytest.mark.parametrize(("wrong", "told"), [(50, True), (-51, True), ((1 << 40) + 3, True), (-50, False)])
def test_an_index_outside_is_told_and_adds_nothing(wrong: int, told: bool) -> None:
    index = torch.randint(-50, 50, (300,), generator=torch.Generator().manual_seed(0))
    index[290] = wrong
    found, want, word = run(scheduled((50, 8), 0, 300, "float32", True), index)
    assert word == (1000 + wrong if told else 0)
    torch.testing.assert_close(found.double(), want, rtol=1e-5, atol=1e-5)


def test_programs_for_shares_leave_all_flags_0() -> None:
    """Each share that is handed over has one program that waits for it, also in the last bin's rows past the end."""
    schedule = scheduled((259, 3), 0, 700, "float32", True)
    flags: list[torch.Tensor] = []
    zeros = torch.zeros

    def kept(*shape: object, **named: object) -> torch.Tensor:
        found = zeros(*shape, **named)
        flags.append(found)
        return found

    index = torch.full((700,), 258)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "zeros", kept)
        found, want, _ = run(schedule, index)
    torch.testing.assert_close(found.double(), want, rtol=1e-5, atol=1e-5)
    exchanged = [x for x in flags if x.dtype is torch.int32 and x.numel() == 1024]
    assert exchanged and not any(x.any() for x in exchanged)


@by_default("shape3-30000-float32")
@pytest.mark.parametrize(("shape", "count", "dtype"), [
    ((20_000, 32), 500_000, "bfloat16"), pytest.param((3, 4096), 20_000, "float32", marks=pytest.mark.slow),
    pytest.param((120_000, 1), 200_000, "float64", marks=pytest.mark.slow), ((150_000, 32), 30_000, "float32"),
    ((100_000, 104), 100_000, "bfloat16"), pytest.param((57, 29_104), 8192, "float32", marks=pytest.mark.slow),
    pytest.param((488, 14_160), 3539, "float32", marks=pytest.mark.slow)])
def test_sums_by_blocks_compile_for_hopper(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], count: int,
                                           dtype: str) -> None:
    monkeypatch.undo()
    for group in scheduled(shape, shape[1] > 4096, count, dtype, True).groups:
        assert compile_cubin(emit(group))


MORE_WAITS = 2 if triton.__version__.startswith("3.6.") else 14  # 3.9 loads two elements, and waits for them


def test_odd_rows_are_loaded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each element of 16 bits has a register of its own: more of them than there is room for waited for each other, 20
    times for nine. What programs for shares have is read one after another, of bins that are hit often alone."""
    monkeypatch.undo()
    waited = []
    for columns in (21, 22):  # wider rows are written when they end
        *_, group = scheduled((8191, columns), 0, 65_000, "bfloat16", True).groups
        waited.append(waits([line for _, line in instructions(compile_cubin(emit(group))) if "STRONG" not in line]))
    assert waited[0] < waited[1] + MORE_WAITS


@pytest.mark.parametrize(("dtype", "columns", "programs"), [
    ("bfloat16", 300, 1), ("bfloat16", 301, 2), ("float32", 301, 1), ("float64", 300, 2)])
def test_a_program_has_2_kb_of_the_sums_of_wide_rows(monkeypatch: pytest.MonkeyPatch, dtype: str, columns: int,
                                                     programs: int) -> None:
    """In programs of 256 columns those of 300 were two, of which one had 44 and looked for its hits as long as the
    other (H200: 41.6 µs for 29 MB). Sums begin and end half of the rows at a time, so that registers hold them."""
    monkeypatch.undo()
    with Trace(A=32_116, B=16_058, C=columns) as trace:
        trace.literals = frozenset("BC")
        places, rows, length = (trace.symbol(name) for name in "ABC")
        index, source = an_input(0, (places,), int64), an_input(1, (places, length), dtype_named(dtype))
        found = indexing.index_add(leaves.full((rows, length), 0, source.dtype, GPU), index, source, axis=0)
        *_, group = run_passes(Graph((index, source), (found,)), backend_named("h200"))[1].groups
        kernel = emit(group)
        assert kernel.name == "block_sums" and hint(kernel.grid[1]) == programs
        spilled = [line for _, line in instructions(compile_cubin(kernel)) if re.search(r"\b(LDL|STL)\b", line)]
        assert columns % 2 or len(spilled) <= {"bfloat16": 0}.get(dtype, len(spilled))


def test_sums_by_blocks_of_any_number_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with Trace(A=30_000, B=20_000) as trace:
        places, rows = trace.symbol("A"), trace.symbol("B")
        index, source = an_input(0, (places,), int64), an_input(1, (places, 64))
        found = indexing.index_add(leaves.full((rows, 64), 0, source.dtype, GPU), index, source, axis=0)
        schedule = run_passes(Graph((index, source), (found,)), backend_named("h200"))[1]
        kernels = [emit(group) for group in schedule.groups]
        assert [kernel.name for kernel in kernels] == ["words_by_block", "block_sums"]
        assert all(compile_cubin(kernel) for kernel in kernels)


def test_shares_have_a_flag_each_and_room() -> None:
    for count in (3000, 100_000, 262_144):
        for programs in (1, 8, 100, 400):
            for nbytes in (4, 4096, 65536):
                for bins in (1, 160, 256):
                    share = block_sums.share_of(count, bins, programs, nbytes, 256)
                    shares = count // share if share else 0
                    assert shares * programs <= 1024 and shares * programs * nbytes <= 160 * 128 * 256 * 4
                    assert not share or share >= 2 * count // bins or count // bins >= 4 * 256
    assert block_sums.share_of(100_000, 160, 400, 4096, 256) == 0


def test_blocks_are_few_and_bins_not_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert block_rows.fits_blocks(9, 4, 1000)
    assert not block_rows.fits_blocks(3 << 20, 4, 1000)
    assert not block_rows.fits_blocks(9, 4, 3_000_000)
    for inner in (64, 65):
        assert block_rows.fits_blocks(9, inner, 300_000) == (inner < block_rows.WIDE)
    assert block_rows.fits_blocks(50_000, 80, 400_000, zeros=True)  # these are written when they end
    assert not block_rows.fits_blocks(50_000, 80, 600_000, zeros=True)
    assert not block_rows.fits_blocks(9000, 80, 400_000, zeros=True)
    assert not block_rows.fits_blocks(50_000, 80, 400_000)


@pytest.mark.parametrize(("shape", "count", "taken"), [
    ((100_000, 104), 100_000, True), ((20_000, 32), 500_000, False), ((900_000, 32), 262_144, True),
    ((50_000, 80), 400_000, True), ((65_000, 128), 524_000, True), ((32_769, 96), 524_000, True),
    ((7071, 11), 9000, False)])
def test_rows_that_are_written_when_they_end_have_room_for_their_hits(
        monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], count: int, taken: bool) -> None:
    """Wide rows by many blocks of the index are: as sums of each group they have not been tried."""
    monkeypatch.undo()
    group = scheduled(shape, 0, count, "bfloat16", True).groups[-1]
    kernel = block_sums._written(group, next(n for n in group.nodes if n.op.name == "block_sums"))
    assert (kernel is not None) == taken


WORDS = '''import triton
import triton.language as tl
{helper}

@triton.jit
def added(out, BLOCK: tl.constexpr):
    words = g_words()
    place = tl.arange(0, BLOCK)
    g_put_s32(words + place * 4, place, place >= 0)
    tl.store(out + place, tl.cumsum(place, 0))
'''


@pytest.mark.parametrize("beside", [False, True])
def test_words_and_what_triton_wants_are_no_more_than_a_launch_gets(beside: bool) -> None:
    """48 KiB that are declared leave no room for a scan's: the launch failed on an H200."""
    nbytes = 48 << 10
    helper = shared_words.words_helper(nbytes, beside) + shared_words.put_helper("s32")
    parts = {"name": "added", "source": WORDS.format(helper=helper), "constexprs": [("BLOCK", 1024)],
             "signature": [("out", "*i32"), ("BLOCK", "constexpr")], "aligned": ["out"], "eights": [], "flushes": False,
             "language": "triton", "num_warps": 4, "num_stages": 1, "shared": nbytes if beside else 0}
    if beside:
        assert compile_kernel(parts, 90)["shared_bytes"] > nbytes
        return
    with pytest.raises(RuntimeError, match="declares 49152 bytes"):
        compile_kernel(parts, 90)
