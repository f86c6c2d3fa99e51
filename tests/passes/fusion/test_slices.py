"""Results are written where their concatenation lies: values, which kernels are left, and what stays a copy."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.lower import may_overwrite
from genesis.codegen.cuda.source import MatrixMap
from genesis.engine.backends import backend_named
from genesis.ir import Graph, Node, literal
from genesis.ir.ops import movement, pointwise, reduction
from genesis.ir.ops.attention import sdpa, sdpa_backward
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.control import item
from genesis.ir.ops.flash_attention import beside_each_other
from genesis.ir.types import DType, bfloat16, float16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.groups import Schedule
from genesis.passes.memory.most_alive import most_alive
from genesis.passes.memory.plan_memory import plan_memory
from genesis.passes.pipeline import Passed, run_passes
from tests.codegen.cuda import run_interpreted
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import an_input, check, kinds, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule
from tests.passes.memory.simulate import check_plan

SMALL = replace(H200, multiprocessors=2)
"""A GPU that two tiles keep busy, so that small products are streamed."""

DTYPES = (float32, float16, bfloat16)


def products(*columns: int, rows: int = 16, dtype: DType = float32) -> tuple[tuple[Node, ...], list[Node]]:
    """Inputs, and products of one matrix with others of so many columns."""
    x = an_input(0, (rows, 32), dtype)
    weights = [an_input(1 + i, (32, n), dtype) for i, n in enumerate(columns)]
    return (x, *weights), [matmul(x, w) for w in weights]


def whys(schedule: Schedule, part: Node) -> list[str]:
    """Why a value is copied into its concatenation."""
    return [x.why for x in schedule.missed if x.producer is part and x.why.endswith("the concatenation is copied")]


def copies(schedule: Schedule) -> list[str]:
    """The kinds of the groups that compute a concatenation."""
    return [group.kind for group in schedule.groups
            if group.kind != "joined" and any(node.op is movement.concat for node in group.nodes)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("axis", "columns"), [(0, (16, 16)), (1, (16, 16)), (1, (48, 16, 32)), (0, (40, 40, 40))])
def test_products_are_written_side_by_side(axis: int, columns: tuple[int, ...], dtype: DType) -> None:
    operands, made = products(*columns, dtype=dtype)
    schedule = check(operands, movement.concat(*made, axis=axis))
    assert kinds(schedule) == [*["matmul"] * len(columns), "joined"]


@pytest.mark.parametrize("axis", [0, 1])
def test_a_stack_is_a_concatenation(axis: int) -> None:
    operands, made = products(24, 24, dtype=bfloat16)
    shape = (1, 16, 24) if axis == 0 else (16, 1, 24)
    schedule = check(operands, movement.concat(*(movement.reshape(x, shape=shape) for x in made), axis=axis))
    assert kinds(schedule) == ["matmul", "matmul", "joined"]


def test_parts_are_seen_through_views() -> None:
    """Heads of each product are laid beside each other: rows of the product are runs of 16 in the whole."""
    operands, made = products(16, 16)
    heads = [movement.permute(movement.reshape(x, shape=(4, 4, 16)), axes=(1, 0, 2)) for x in made]
    schedule = check(operands, movement.concat(*heads, axis=2))
    assert kinds(schedule) == ["matmul", "matmul", "loop"]
    assert set(whys(schedule, made[0])) == {"the rows of this part have no one distance there: "
                                            "the concatenation is copied"}
    rows = [pointwise.exp(x) / reduction.spread(reduction.sum(x * x, axes=(1,)), x, (1,)) for x in operands[:1] * 1]
    swapped = movement.permute(movement.reshape(rows[0], shape=(4, 4, 32)), axes=(1, 0, 2))
    other = movement.reshape(made[0], shape=(4, 4, 16))
    schedule = check(operands, movement.concat(swapped, other, axis=2))
    assert kinds(schedule).count("joined") == 1 and not copies(schedule), "a loop writes anywhere"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_epilogues_and_rows_write_slices(dtype: DType) -> None:
    operands, (one, other) = products(32, 32, dtype=dtype)
    x = operands[0]
    rows = pointwise.exp(x) / reduction.spread(reduction.sum(pointwise.exp(x), axes=(1,)), x, (1,))
    whole = movement.concat(pointwise.maximum(one, literal(0.0)), rows, other, axis=1)
    schedule = check(operands, whole)
    assert sorted(kinds(schedule)) == ["joined", "loop", "matmul", "matmul"] and not copies(schedule)


def test_streamed_products_write_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy engine writes each tile where its rows lie in the whole; an epilogue's, too."""
    monkeypatch.setattr(run_interpreted, "emit", lambda group: emit(group, SMALL))
    x = an_input(0, (264, 64), bfloat16)
    weights = [an_input(1 + i, (64, 200), bfloat16) for i in range(2)]
    one, other = (matmul(x, w) for w in weights)
    schedule = check((x, *weights), movement.concat(one, pointwise.maximum(other, literal(0.0)), axis=1))
    sources = [emit(group, SMALL) for group in schedule.groups if group.kind == "matmul"]
    assert [source.name for source in sources] == ["streamed_matmul", "streamed_matmul_maximum"]
    assert [(x.stride, x.start) for source in sources for x in source.args
            if isinstance(x, MatrixMap) and x.shape == (264, 200)] == [(400, 0), (400, 200)]
    assert not copies(schedule)


def test_a_batched_product_and_what_reads_the_whole() -> None:
    """Others read the whole as they would a copy."""
    x, y, w = an_input(0, (3, 16, 32)), an_input(1, (3, 32, 16)), an_input(2, (3, 32, 24))
    whole = movement.concat(matmul(x, y), matmul(x, w), axis=2)
    v = an_input(3, (3, 40, 16))
    rounding = 4e-5  # sums of 40 terms of about 6: a unit in the last place of such a sum is 4e-6
    schedule = check((x, y, w, v), matmul(whole, v), reduction.sum(whole, axes=(0, 1)), tolerance=rounding)
    assert not copies(schedule) and kinds(schedule).count("joined") == 1


def _packed(batch: int, heads: int, groups: int, length: int, size: int, dtype: DType,
            beside: bool) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Attention's packed gradient, as its weight and its bias read it."""
    q = an_input(0, (batch, heads, length, size), dtype)
    k, v = (an_input(i, (batch, groups, length, size), dtype) for i in (1, 2))
    w, g = an_input(3, ((heads + 2 * groups) * size, 16), dtype), an_input(4, q.shape, dtype)
    y = sdpa(q, k, v, causal=True, scale=0.25)
    back = sdpa_backward(g, q, k, v, y, causal=True, scale=0.25)
    tokens = [beside_each_other(item(back, index=i)) for i in range(3)]
    if beside:
        whole = movement.concat(*(movement.reshape(x, shape=(batch * length, n * size)) for x, n in zip(
            tokens, (heads, groups, groups), strict=True)), axis=1)
    else:
        whole = movement.concat(*tokens, axis=2)
        whole = movement.reshape(whole, shape=(batch * length, (heads + 2 * groups) * size))
    return (q, k, v, w, g), (matmul(whole, w), reduction.sum(whole, axes=(0,)))


def _passed(operands: tuple[Node, ...], outputs: tuple[Node, ...]) -> Passed:
    return run_passes(Graph(operands, outputs), backend_named("h200"))


@pytest.mark.parametrize("dtype", [bfloat16, float16, float32], ids=str)
@pytest.mark.parametrize(("batch", "heads", "groups", "length", "size"), [
    (2, 3, 3, 20, 16), (1, 4, 2, 33, 16), (2, 2, 1, 16, 80)])
@pytest.mark.parametrize("beside", [True, False], ids=["rows", "heads"])
def test_packed_gradients_are_written_by_attention(batch: int, heads: int, groups: int, length: int, size: int,
                                                   dtype: DType, beside: bool) -> None:
    operands, outputs = _packed(batch, heads, groups, length, size, dtype, beside)
    passed = _passed(operands, outputs)
    assert not copies(passed.schedule) and kinds(passed.schedule).count("joined") == 1
    data = [some(x) for x in operands]
    found = run_schedule(passed.schedule, data, most_programs=512)
    wide = [x.double() for x in data]
    leaves = [x.requires_grad_() for x in wide[:3]]
    y = torch.nn.functional.scaled_dot_product_attention(*leaves, scale=0.25, is_causal=True, enable_gqa=True)
    y.backward(wide[4])
    packed = torch.cat([x.grad.transpose(1, 2).reshape(batch * length, -1) for x in leaves], 1)
    for got, want in zip(found, (packed @ wide[3], packed.sum(0)), strict=True):
        error = (got.double().reshape(want.shape) - want).abs().max().item()
        allowed = 1e-4 if dtype is float32 else 2e-2  # a few roundings to the dtype, by the largest
        assert error <= allowed * want.abs().max().item()


# What stays a copy, and why

@pytest.mark.parametrize(("columns", "dtype", "why"), [
    ((4, 4), float32, "neighbours of this part are 16 bytes there"),
    ((17, 16), float32, "this part lies at no multiple of 16 bytes"),
    ((20, 16), bfloat16, "this part lies at no multiple of 16 bytes")])
def test_narrow_and_odd_parts_are_copied(columns: tuple[int, ...], dtype: DType, why: str) -> None:
    operands, made = products(*columns, dtype=dtype)
    schedule = check(operands, movement.concat(*made, axis=1))
    assert kinds(schedule) == ["matmul", "matmul", "loop"]
    assert {text for x in made for text in whys(schedule, x)} == {f"{why}: the concatenation is copied"}


def test_odd_rows_are_no_hindrance_along_the_first_axis() -> None:
    operands, (one, other) = products(16, 16, rows=13, dtype=bfloat16)
    assert not copies(check(operands, movement.concat(one, other, axis=0)))


@pytest.mark.parametrize("case", ["another reads it", "it is returned", "it comes twice", "it is in memory",
                                  "the whole overwrites memory"])
def test_what_cannot_be_a_slice(case: str) -> None:
    operands, (one, other) = products(32, 32)
    whole = movement.concat(one, operands[1] if case == "it is in memory" else other, axis=0)
    if case == "it is in memory":
        operands = (*operands[:1], operands[1], operands[2])
    outputs = {"another reads it": (whole, reduction.sum(one, axes=(1,))), "it is returned": (whole, one),
               "it comes twice": (movement.concat(one, one, axis=0),)}.get(case, (whole,))
    if case == "the whole overwrites memory":
        target = an_input(3, whole.shape)
        graph = decomposed(Graph((*operands, target), (), ((target, whole),)))
        assert "joined" not in kinds(fuse(graph))
        return
    schedule = check(operands, *outputs)
    assert "joined" not in kinds(schedule) and len(copies(schedule)) == 1


def test_a_concatenation_of_concatenations() -> None:
    """One that nobody else reads is not there; one that is returned is copied into the other."""
    operands, (one, other, third) = products(16, 16, 16)
    inner = movement.concat(one, other, axis=0)
    schedule = check(operands, movement.concat(inner, third, axis=0))
    assert kinds(schedule) == ["matmul"] * 3 + ["joined"]
    schedule = check(operands, movement.concat(inner, third, axis=0), inner)
    assert sorted(kinds(schedule)) == ["joined", "loop", *["matmul"] * 3]


@pytest.mark.parametrize(("rows", "launches"), [(16, ["foreach", "loop"]), (65536, [*["loop"] * 4, "joined"])])
def test_small_pointwise_parts_are_one_launch_and_large_ones_are_not_copied(rows: int, launches: list[str]) -> None:
    """Twenty small kernels would take longer than a copy; a copy of large values takes longer than a launch."""
    operands = [an_input(i, (rows, 32)) for i in range(4)]
    schedule = fuse(Graph(tuple(operands), (movement.concat(*map(pointwise.tanh, operands), axis=1),)))
    assert kinds(schedule) == launches


def test_what_one_kernel_computes_stays_one_kernel() -> None:
    x, y = an_input(0, (16, 32)), an_input(1, (16, 32))
    schedule = check((x, y), movement.concat(pointwise.exp(x), pointwise.neg(y), axis=1))
    assert kinds(schedule) == ["loop"] and not schedule.missed


# Random programs

def _random(seed: int) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Concatenations of products, epilogues, rows and inputs through views, read by products, sums and each other."""
    draw = random.Random(seed)
    dtype, (batch, rows) = draw.choice(DTYPES), draw.choice([(1, 16), (2, 12), (3, 16), (4, 4)])
    operands: list[Node] = []

    def some_input(*shape: int) -> Node:
        operands.append(an_input(len(operands), shape, dtype))
        return operands[-1]

    def value(columns: int) -> Node:
        kind = draw.choice(["product", "product", "epilogue", "rows", "input", "batched"])
        if kind == "input":
            return pointwise.neg(some_input(batch * rows, columns))
        if kind == "rows":
            x = some_input(batch * rows, columns)
            return x - reduction.spread(reduction.max(x, axes=(1,)), x, (1,))
        if kind == "batched":
            made = matmul(some_input(batch, rows, 16), some_input(batch, 16, columns))
            return movement.reshape(made, shape=(batch * rows, columns))
        made = matmul(some_input(batch * rows, 16), some_input(16, columns))
        return pointwise.maximum(made, literal(0.0)) if kind == "epilogue" else made

    def joined() -> Node:
        axis, columns = draw.choice([0, 1]), draw.choice([8, 16, 24, 32, 9])
        count = draw.randint(2, 3)
        parts = [value(columns if axis == 0 else draw.choice([columns, 16])) for _ in range(count)]
        if axis == 1 and draw.random() < 0.4:
            heads = [movement.reshape(x, shape=(batch, rows, x.shape[1])) for x in parts]
            whole = movement.concat(*(movement.permute(x, axes=(1, 0, 2)) for x in heads), axis=2)
            return movement.reshape(whole, shape=(batch * rows, whole.shape[2]))
        return movement.concat(*parts, axis=axis)

    wholes = [joined() for _ in range(draw.randint(1, 2))]
    outputs: list[Node] = []
    for whole in wholes:
        outputs += draw.sample([whole, reduction.sum(whole, axes=(0,)), pointwise.tanh(whole),
                                matmul(whole, some_input(whole.shape[1], 8))], draw.randint(1, 3))
    return tuple(operands), tuple(outputs)


def _random_programs(seeds: range) -> int:
    """How many of these programs have slices; all have torch's values, and their plans find what they read."""
    found = 0
    for seed in seeds:
        operands, outputs = _random(seed)
        schedule = check(operands, *outputs, tolerance=3e-2 if operands[0].dtype is not float32 else 1e-4)
        plan = plan_memory(schedule, may_overwrite)
        check_plan(schedule, plan, may_overwrite)
        assert sum(x.nbytes for x in most_alive(schedule, plan)[1]) == plan.max_live_bytes
        found += "joined" in kinds(schedule)
    return found


def test_random_programs() -> None:
    assert _random_programs(range(12)) >= 3


@pytest.mark.sweep
def test_more_random_programs() -> None:
    assert _random_programs(range(100, 190)) >= 25


@pytest.mark.slow
def test_slices_compile() -> None:
    """The packed gradient's kernels and streamed products, for a Hopper GPU."""
    passed = _passed(*_packed(2, 12, 12, 256, 64, bfloat16, beside=False))
    x, *weights = (an_input(i, shape, bfloat16) for i, shape in enumerate([(16384, 768), (768, 768), (768, 3072)]))
    whole = movement.concat(*(matmul(x, w) for w in weights), axis=1)
    groups = [*passed.schedule.groups, *_passed((x, *weights), (whole,)).schedule.groups]
    sliced = [emit(group) for group in groups if group.slices]
    assert {source.name for source in sliced} == {"attention_dq", "attention_dkv", "streamed_matmul"}
    assert all(compile_cubin(source) for source in sliced)
