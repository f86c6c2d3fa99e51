"""Sorting kernels: rows in one tile, longer rows in runs that are merged, the largest few by groups."""

from __future__ import annotations

import pytest
import torch
import triton

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.templates import long_sort, row_digits
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import backend_named
from genesis.ir import Graph, Node
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import sort_steps, sorting
from genesis.ir.ops.control import item
from genesis.ir.size_trace import Trace
from genesis.ir.types import dtype_named, float32
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.programs import an_input, kinds, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule
from tests.sweeping import by_default, sweep_but

DTYPES = ["float32", "bfloat16", "float16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"]


def compiled(operands: list[Node], node: Node) -> Schedule:
    """The kernels of an op's two results."""
    outputs = tuple(item(node, index=i) for i in (0, 1))
    return run_passes(Graph(tuple(operands), outputs), backend_named("h200"))[1]


def tied(shape: tuple[int, ...], dtype: str, seed: int = 0) -> torch.Tensor:
    """Data with many equal elements; floats also have NaN, infinities and zeros of both signs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-20, 20, shape, generator=generator)
    if not getattr(torch, dtype).is_floating_point:
        return x.abs().to(getattr(torch, dtype)) if dtype in ("uint8", "bool") else x.to(getattr(torch, dtype))
    x = x.to(getattr(torch, dtype)) / 4
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0], dtype=x.dtype)
    where = torch.rand(shape, generator=generator) < 0.3
    return torch.where(where, special[torch.randint(0, 5, shape, generator=generator)], x)


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal, NaN and the signs of zeros included."""
    if got.is_floating_point():
        torch.testing.assert_close(torch.signbit(got) & (got == 0), torch.signbit(want) & (want == 0))
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("place", "descending", "dtype"), sweep_but(
    lambda place, descending, dtype: place == ((3, 37), 1) or (dtype in ("float32", "bool") and descending),
    [((3, 37), 1), ((2, 9, 3), 1), ((512,), 0)], [False, True], DTYPES))
def test_sort(place: tuple[tuple[int, ...], int], descending: bool, dtype: str) -> None:
    shape, axis = place
    assert sorts(an_input(0, shape, dtype_named(dtype)), tied(shape, dtype), axis, descending)


@pytest.mark.parametrize("shape", [(0, 0), (1, 0), (2, 0), (40, 0), (0, 5), (200, 0, 3)])
def test_columns_of_nothing_are_sorted(shape: tuple[int, ...]) -> None:
    """Programs of few columns have few words a thread, but one."""
    x = an_input(0, shape, dtype_named("float32"))
    assert len([emit(group) for group in compiled([x], sorting.sort(x, axis=0, descending=False)).groups]) == 1


@pytest.mark.parametrize(("dtype", "descending"), sweep_but(
    lambda dtype, descending: descending is (dtype in ("bfloat16", "float64")),
    ["float32", "bfloat16", "int64", "float64"], [False, True]))
def test_rows_longer_than_a_tile_are_merged(monkeypatch: pytest.MonkeyPatch, dtype: str, descending: bool) -> None:
    for name in ("TILE_OF_32_BITS", "TILE_OF_64_BITS"):
        monkeypatch.setattr(sorting, name, 16)
    monkeypatch.setattr(sort_steps, "RUN", 16)
    x, data = an_input(0, (2, 203), dtype_named(dtype)), tied((2, 203), dtype)
    kernels = sorts(x, data, 1, descending)
    assert kernels.count("merge_runs") == kernels.count("sort_runs") == (1 if data.element_size() < 8 else 2)


@pytest.mark.parametrize(("dtype", "descending"), sweep_but(
    lambda dtype, descending: dtype != "float64" and descending is (dtype in ("bfloat16", "int8")),
    ["float32", "bfloat16", "int8", "uint8", "float64"], [False, True]))
def test_rows_of_many_runs_are_sorted_digit_by_digit(monkeypatch: pytest.MonkeyPatch, dtype: str,
                                                     descending: bool) -> None:
    for name in ("TILE_OF_32_BITS", "TILE_OF_64_BITS"):
        monkeypatch.setattr(sorting, name, 16)
    monkeypatch.setattr(row_digits, "LONGEST", 0)
    monkeypatch.setattr(sort_steps, "RUN", 4)
    monkeypatch.setattr(sort_steps, "BLOCK", 64)
    monkeypatch.setattr(long_sort, "BLOCK", 64)
    monkeypatch.setattr(sort_steps, "FEW_BLOCKS", 8 if descending else 7)  # there are 8
    x, data = an_input(0, (2, 203), dtype_named(dtype)), tied((2, 203), dtype)
    kernels = sorts(x, data, 1, descending)
    assert kernels.count("digit_counts") == data.element_size()
    assert kernels.count("digit_scatter") + kernels.count("digit_elements") == data.element_size()
    if dtype != "float64":  # words are made by the first steps, and what is sorted comes along to the last
        assert {name for name in kernels if "digit" not in name} <= {"pad_sum_rows", "cumsum_rows"}


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 11), 1), ((5, 300), 0), ((3, 32, 7), 1), ((2, 33, 3), 1),
                                              ((3, 56, 21), 1), ((100, 18), 0)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_columns_of_any_length(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    assert sorts(an_input(0, shape, dtype_named(dtype)), tied(shape, dtype), axis, dtype == "float32") == [
        "sort_columns"]


@by_default("column0-1000", "column8-64")
@pytest.mark.parametrize(("column", "inner"), sweep_but(
    lambda column, inner: (column[1], inner) in ((4, 1000), (32, 7), (27, 64)),
    [("float32", 4), ("float32", 32), ("bfloat16", 27)], [1000, 7, 64]))
def test_a_thread_sorts_a_short_column_alone(column: tuple[str, int], inner: int) -> None:
    """Nothing goes through memory, nor, as Triton 3.6 compiles it, to other lanes: 3.9 shuffles."""
    dtype, length = column
    x = an_input(0, (300, length, inner), dtype_named(dtype))
    group, = compiled([x], sorting.sort(x, axis=1)).groups
    ptx = compiled_by_triton(emit(group).key_parts(), 90).asm["ptx"]
    assert not any(word in ptx for word in ("bar.sync", ".shared.", "ld.local", "st.local"))
    assert "shfl" not in ptx or not triton.__version__.startswith("3.6.")


@pytest.mark.parametrize(("length", "dtype", "lanes"), [(56, "float32", 2), (123, "float32", 4), (64, "bfloat16", 1)])
def test_few_lanes_of_one_warp_share_a_column(length: int, dtype: str, lanes: int) -> None:
    """They were shared by two warps, whose exchanges met in one bank of shared memory: 450 µs for 8 M float32 of
    columns of 56 (H200), of whose bytes 39."""
    x = an_input(0, (length, 200_001), dtype_named(dtype))
    group, = compiled([x], sorting.sort(x, axis=0)).groups
    kernel = emit(group)
    assert kernel.num_warps == 1
    few = emit(compiled([y := an_input(0, (length, 600), dtype_named(dtype))], sorting.sort(y, axis=0)).groups[0])
    assert few.grid[0] > 600 * kernel.grid[0] // 200_001  # of fewer columns each
    if triton.__version__.startswith("3.6."):  # one exchange for each bit of the lanes, of two halves of 32 words
        ptx = compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]
        assert ptx.count("shfl") <= 64 * (lanes.bit_length() - 1) and "ld.local" not in ptx


def test_the_largest_of_short_columns() -> None:
    x, data = an_input(0, (3, 9, 50), float32), tied((3, 9, 50), "float32")
    values, indices = run_schedule(compiled([x], sorting.topk(x, k=4, axis=1, largest=True)), [data])
    want = torch.sort(data, dim=1, descending=True, stable=True)
    same(values, want.values[:, :4])
    assert torch.equal(indices, want.indices[:, :4])


def sorts(x: Node, data: torch.Tensor, axis: int, descending: bool) -> list[str]:
    """Checks a sort beside torch's; returns the names of its kernels."""
    schedule = compiled([x], sorting.sort(x, axis=axis, descending=descending))
    values, indices = run_schedule(schedule, [data], most_programs=512)
    want = torch.sort(data, dim=axis, descending=descending, stable=True)
    same(values, want.values)
    assert torch.equal(indices, want.indices)
    return [emit(group).name for group in schedule.groups]


@pytest.mark.parametrize(("place", "largest", "dtype"), sweep_but(
    lambda place, largest, dtype: (dtype == "float32" and largest) or (dtype == "int64" and not largest)
    or (place == (403, 3) and largest) or (place == (70, 30) and not largest),
    [(400, 3), (403, 3), (403, 1), (70, 30), (40, 40)], [False, True],
    ["float32", "bfloat16", "float16", "int64", "int32", "uint8"]))
def test_topk_is_the_first_of_a_stable_sort(monkeypatch: pytest.MonkeyPatch, place: tuple[int, int], largest: bool,
                                            dtype: str) -> None:
    length, k = place
    for name in ("TILE_OF_32_BITS", "TILE_OF_64_BITS"):
        monkeypatch.setattr(sorting, name, 64)
    monkeypatch.setattr(sort_steps, "RUN", 32)
    x, data = an_input(0, (2, length), dtype_named(dtype)), tied((2, length), dtype)
    values, indices = run_schedule(compiled([x], sorting.topk(x, k=k, axis=1, largest=largest)), [data],
                                   most_programs=512)
    want = torch.sort(data, dim=1, descending=largest, stable=True)
    same(values, want.values[:, :k])
    assert torch.equal(indices, want.indices[:, :k])


def test_views_and_casts_before_a_sort_cost_no_kernel() -> None:
    x = an_input(0, (5, 6))
    schedule = compiled([x], sorting.sort(p.cast(x, dtype=dtype_named("int32")), axis=0))
    assert kinds(schedule) == ["sort"]
    data = some(x) * 4
    values, _ = run_schedule(schedule, [data])
    assert torch.equal(values, torch.sort(data.int(), dim=0, stable=True).values)


@by_default("1000-0-int32-")
@pytest.mark.parametrize(("length", "k", "cast", "literals"), sweep_but(
    lambda length, k, cast, literals: (length, k, cast, literals) in (
        (994, 0, "", "T"), (1001, 50, "", None), (1000, 0, "int32", "")),
    [994, 1000, 1001], [0, 50], ["", "int32"], [None, "", "T"]))
def test_words_start_where_the_network_takes_them_to_be(length: int, k: int, cast: str,
                                                        literals: str | None) -> None:
    """How many neighbours a thread has is known of lengths that a kernel names by their number, and where what is
    stored is narrower than what is loaded. Elsewhere the words would change places at every step: 264 and 480 loads
    from shared memory were seven times as slow (H200, 2026-11)."""
    with Trace(T=length) as trace:
        trace.literals = frozenset(literals or "")
        size = length if literals is None else trace.symbol("T")
        x = an_input(0, (3, size), dtype_named("int64" if cast else "float32"))
        value = p.cast(x, dtype=dtype_named(cast)) if cast else x
        node = sorting.topk(value, k=k, axis=1) if k else sorting.sort(value, axis=1)
        group, = run_passes(Graph((x,), (item(node, index=0),)), backend_named("h200"))[1].groups
        kernel = emit(group)
    assert compiled_by_triton(kernel.key_parts(), 90).asm["ptx"].count("ld.shared") <= 40


@pytest.mark.parametrize(("dtype", "length"), [
    ("bfloat16", 1024), pytest.param("bfloat16", 8192, marks=pytest.mark.slow),
    pytest.param("float32", 4096, marks=pytest.mark.slow)])
def test_tiles_compile_for_hopper(dtype: str, length: int) -> None:
    x = an_input(0, (16384, length), dtype_named(dtype))
    group, = compiled([x], sorting.sort(x, axis=1)).groups
    assert compile_cubin(emit(group))


@pytest.mark.parametrize("length", [16384, pytest.param(1 << 20, marks=pytest.mark.slow)])
def test_long_sorts_compile_for_hopper(length: int) -> None:
    x = an_input(0, (1, length), float32)
    kernels = [emit(group) for group in compiled([x], sorting.sort(x, axis=1)).groups]
    assert all(compile_cubin(kernel) for kernel in {kernel.name: kernel for kernel in kernels}.values())


def test_topk_of_a_vocabulary_is_six_kernels() -> None:
    x = an_input(0, (4096, 50304), dtype_named("bfloat16"))
    kernels = [emit(group).name for group in compiled([x], sorting.topk(x, k=50, axis=1)).groups]
    assert len(kernels) == 6 and kernels.count("topk_rows") == 2
