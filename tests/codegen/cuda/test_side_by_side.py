"""Small loops that do not wait for each other are one launch, where many layers have the same ones."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
import torch

import genesis
from genesis.codegen.cuda import prefetch
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.source import WAIT
from genesis.ir import Graph, Node
from genesis.ir.ops import composite, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.row_writes import row_put
from genesis.ir.types import int64
from genesis.passes.fusion import side_by_side as rule
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.side_by_side import FEWEST, side_by_side
from genesis.passes.groups import Schedule
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.programs import an_input, inputs, kinds, some
from tests.codegen.cuda.run_interpreted import compile_cubin, empty, run_schedule, run_source
from tests.engine.symbolic.idle import counting

DEPTH = 64


def first_of(x: Node) -> Node:
    """Its first element, as a number."""
    ends = tuple(1 for _ in x.shape)
    return movement.reshape(movement.slice(x, starts=tuple(0 for _ in ends), stops=ends, steps=ends), shape=())


def program(count: int, depth: int = DEPTH) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Operands and results: a layer adds up the rows of two matrices of unequal sizes, and the next reads both sums."""
    operands = a, b, number = an_input(0, (48, depth)), an_input(1, (20, depth)), an_input(2, ())
    outputs: list[Node] = []
    for _ in range(count):
        one, two = r.sum(p.tanh(a * number), axes=(1,)), r.sum(p.exp(b * number), axes=(1,))
        outputs += [one, two]
        number = first_of(one) * 1e-2 + first_of(two) * 1e-2
    return operands, tuple(outputs)


def layers(count: int, depth: int = DEPTH) -> tuple[list[torch.Tensor], Schedule]:
    """(data, kernels) of the program."""
    operands, outputs = program(count, depth)
    return [some(x) * 0.1 for x in operands], fuse(decomposed(Graph(operands, outputs)))


def same(schedule: Schedule, data: list[torch.Tensor]) -> None:
    for got, want in zip(run_schedule(schedule, data, most_programs=512), evaluate(schedule.graph, data, ()),
                         strict=True):
        torch.testing.assert_close(got.reshape(want.shape), want, rtol=1e-5, atol=1e-5)


def test_loops_of_unequal_sizes_are_one_launch_in_every_layer() -> None:
    data, schedule = layers(FEWEST + 1)
    joined = side_by_side(schedule, H200)
    found = [group for group in joined.groups if group.kind == "side_by_side"]
    assert len(found) >= FEWEST and len(joined.groups) == len(schedule.groups) - len(found)
    for group in found:
        source = emit(group)
        assert source.grid[0] == sum(emit(member).grid[0] for member in group.members)
    same(joined, data)


def test_few_layers_are_left_as_they_are() -> None:
    _, schedule = layers(FEWEST - 2)
    assert side_by_side(schedule, H200) is schedule


def test_loops_that_fill_the_gpu_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _, schedule = layers(FEWEST + 1)
    monkeypatch.setattr(rule, "MOST_ELEMENTS", 20 * DEPTH // H200.multiprocessors)
    assert "side_by_side" not in kinds(side_by_side(schedule, H200))


def test_each_asks_for_its_own_rows_before_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "LEAST_WEIGHT", (0, 1))
    data, schedule = layers(FEWEST + 1, 128)
    joined = side_by_side(schedule, H200)
    source = emit(next(group for group in joined.groups if group.kind == "side_by_side"))
    first, second, kernel = source.source.split("@triton.jit")[-3:]
    for loop in (first, second):
        assert 0 < loop.index("g_ask(in0 + program_id.to(tl.int64)") < loop.index(WAIT)
    assert WAIT not in kernel and "(program - start_1, " in kernel
    assert compile_cubin(source)
    same(joined, data)


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_overwritten_is_not_read_beside(apart: bool) -> None:
    """A row is written into memory that another loop of the layer reads: they are two launches."""
    number, index, row = an_input(0, ()), an_input(1, (1,), int64), an_input(2, (1, 1, DEPTH))
    count = FEWEST + 1
    bases = [an_input(3 + i, (1, 40, DEPTH)) for i in range(2 * count)]
    outputs: list[Node] = []
    first = number
    for i in range(count):
        written = row_put(bases[i], row * number, index)
        read = r.sum(p.exp(bases[i + count if apart else i] * number), axes=(2,))
        outputs += [written, read]
        number = first_of(read) * 1e-2 + first_of(written) * 1e-2
    operands = (first, index, row, *bases)
    joined = side_by_side(fuse(decomposed(Graph(operands, tuple(outputs)))), H200)
    assert ("side_by_side" in kinds(joined)) == apart


def test_loops_that_go_through_shared_memory_take_the_same() -> None:
    """Rows across lanes: two such loops of 32 KiB were 64 KiB of one kernel, of which the assembler allows 48."""
    rows, few = 300, replace(H200, multiprocessors=1)
    operands = a, b, c, d, number = inputs((rows, 119), (rows, 125), (rows, 119), (rows, 125), ())
    outputs: list[Node] = []
    for _ in range(FEWEST + 1):
        pair = [composite.softmax(composite.softmax(x * number, axis=1) + y, axis=1) for x, y in ((a, c), (b, d))]
        outputs += pair
        number = first_of(pair[0]) + first_of(pair[1])
    schedule = side_by_side(fuse(decomposed(Graph(operands, tuple(outputs)))), H200)
    group = next(group for group in schedule.groups if group.kind == "side_by_side")
    assert all("g_words_32768" in emit(member, few).source for member in group.members)
    source = emit(group, few)
    assert compile_cubin(source)
    data = {x: some(x) for x in operands}
    found = data | {x: empty(x) for x in group.outputs}
    run_source(source, found)
    want = [torch.softmax(torch.softmax(data[x] * data[number], 1) + data[y], 1)
            for number in (operands[-1],) for x, y in ((a, c), (b, d))]
    for node, value in zip(group.outputs, want, strict=True):
        torch.testing.assert_close(found[node], value, rtol=1e-5, atol=1e-6)


def test_blocks_of_an_index_have_their_own_threads_beside_a_total_of_more() -> None:
    """A thread counts its words. With four times the threads each word was counted four times, and places lay behind
    the block's memory: an illegal address on a GPU, which no interpreter has."""
    with counting() as backend, genesis.device("cuda"):
        table, index = genesis.ones(40, 3, requires_grad=True), genesis.arange(17_000) % 40
        genesis.eval(table, index)
        rows = genesis.nn.functional.embedding(index, table)
        total = (rows * (genesis.arange(51_000) * 0.1).reshape(17_000, 3)).sum()
        total.backward()
        genesis.eval(rows, total, table.grad)
    found = [ast.literal_eval(text) for text in backend.kernels]
    both = [x for x in found if "words_by_block" in x["name"] and "beside" in x["name"] and "tl.sum" in x["source"]]
    assert both and all(dict(x["constexprs"])["RBLOCK_0"] == 32 * x["num_warps"] for x in both)
