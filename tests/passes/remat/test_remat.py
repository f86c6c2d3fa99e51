"""remat: what is cheaper to compute again than to keep is computed again, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genesis.codegen.cuda.gpu_model import H200
from genesis.engine.backends import backend_named
from genesis.ir import OPS, Device, DType, Graph, Node
from genesis.ir.node import make
from genesis.ir.numbers import number
from genesis.ir.ops import control, leaves, movement, reduction
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import random as r
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.recompute import recompute
from genesis.ir.parser import parse
from genesis.ir.types import bfloat16, float32
from genesis.ir.verify import verify
from genesis.ir.walk import walk
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph.autodiff import autodiff
from genesis.passes.graph.canonicalize import canonicalize
from genesis.passes.graph.legalize import legalize
from genesis.passes.groups import Schedule
from genesis.passes.kernel_time import LAUNCH
from genesis.passes.memory.schedule import Lives, lower_peak
from genesis.passes.remat import remat as pass_itself
from genesis.passes.remat.min_cut import FORBIDDEN, Choice, CutValue, cheapest, choice
from genesis.passes.remat.network import StepCosts
from genesis.passes.remat.remat import (
    MOST_TIME,
    NO_MORE,
    WAITS,
    Budget,
    Counted,
    KernelOptions,
    decided,
    options,
    remat,
    spend,
    turns,
)
from genesis.passes.remat.rewrite import WaitsForItselfError, recomputed
from genesis.passes.remat.step_time import moved_bytes, step_bytes
from tests.codegen.cuda.evaluate import evaluate
from tests.codegen.cuda.programs import an_input, inputs, some
from tests.codegen.cuda.run_interpreted import run_schedule
from tests.engine import chains
from tests.engine.test_compile_cost import cost
from tests.passes.fusion.test_fuse_random import Program
from tests.passes.texts import assert_text


def scheduled(graph: Graph) -> Schedule:
    """The CUDA schedule of a program, gradients and composites expanded, before the pass."""
    return lower_peak(fuse(canonicalize(legalize(canonicalize(autodiff(graph)), backend_named("cuda").supports))))


def gradient(loss: Node, *wrt: Node) -> tuple[Node, ...]:
    """Gradients of a scalar."""
    seed = leaves.full((), 1.0, loss.dtype, loss.type.device)
    request = make(control.grad, (loss, seed, *wrt), (1, False, 0, 0))
    return tuple(make(control.item, (request,), (i,)) for i in range(len(wrt)))


def all_that_could_be(step: StepCosts) -> set[Node]:
    """What is made again where it may cost anything."""
    kernels = options(step)
    return set(decided(step, kernels, spend(kernels, Budget(1 << 40, float("inf")))))


def total(x: Node) -> Node:
    """The sum of the squares, in float32."""
    wide = p.cast(x, dtype=float32)
    return reduction.sum(wide * wide, axes=tuple(range(x.type.ndim)))


def assert_same_values(schedule: Schedule, other: Schedule, tolerance: float = 2e-5, **how: object) -> None:
    """Both run in the interpreter, and the first graph in torch, give the same."""
    data = [some(x) for x in schedule.graph.inputs]
    wanted = evaluate(schedule.graph, data, how.get("numbers", ()))  # type: ignore[arg-type]
    for found in (run_schedule(schedule, data, **how), run_schedule(other, data, **how)):  # type: ignore[arg-type]
        for one, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(one.reshape(want.shape), want, rtol=tolerance, atol=tolerance)


# The programs that it is for

DEPTH = 4


def layers(parameters: tuple[tuple[int, ...], ...], x_shape: tuple[int, ...],
           layer: Callable[..., Node], dtype: DType = float32, numbers: int = 0) -> Graph:
    """DEPTH layers with parameters of their own, and the gradients of all."""
    x, *weights = (an_input(i, shape, dtype) for i, shape in enumerate((x_shape, *parameters * DEPTH)))
    y = x
    for i in range(DEPTH):
        y = layer(y, *weights[i * len(parameters):(i + 1) * len(parameters)]) * 0.1
    return Graph((x, *weights), gradient(total(y), *weights), numbers=numbers)


def mlps(rows: int = 32, width: int = 64, dtype: DType = float32) -> Graph:
    """down(gelu(up(x) + b)): without the pass gelu's derivative and its result are kept."""
    def layer(x: Node, up: Node, down: Node, b: Node) -> Node:
        hidden = matmul(x, up) * 0.1 + movement.expand(b, shape=(rows, width))
        return matmul(OPS["gelu"](hidden, approximate="tanh"), down)
    return layers(((16, width), (width, 16), (width,)), (rows, 16), layer, dtype)


def layer_norms(rows: int = 32, width: int = 64) -> Graph:
    """Products after layer norms: without the pass x̂ is kept for a norm's backward, and 1.5 x̂ for a product's."""
    def layer(x: Node, w: Node) -> Node:
        return matmul(OPS["layer_norm"](x, ndim=1, eps=1e-5) * 1.5, w)
    return layers(((width, width),), (rows, width), layer)


def dropouts() -> Graph:
    """tanh of products, dropped out with masks that depend on two numbers."""
    seed, draw = (leaves.scalar(index=i, type=number(7).type) for i in range(2))

    def layer(x: Node, w: Node, b: Node) -> Node:
        bits = r.random_bits(seed, draw, shape=(64, 32), word=0, device=x.type.device)
        hidden = p.tanh(x + movement.expand(b, shape=(64, 32)))
        return matmul(hidden * p.cast(p.gt(bits, 0), dtype=float32), w)
    return layers(((32, 32), (32,)), (64, 32), layer, numbers=2)


@pytest.mark.parametrize("program", [mlps, layer_norms])
def test_it_moves_fewer_bytes_keeps_fewer_and_launches_no_more(program: Callable[[], Graph]) -> None:
    before = scheduled(program())
    after = remat(before, fuse, least=0, sparing=True)
    assert after is not before
    assert moved_bytes(after) <= NO_MORE * moved_bytes(before)
    assert Lives(after).peak() < Lives(before).peak()
    assert len(after.groups) <= len(before.groups)
    assert_same_values(before, after, most_programs=256)


@pytest.mark.parametrize("program", [mlps, layer_norms, dropouts])
def test_where_memory_is_not_spared_fewer_bytes_move(program: Callable[[], Graph]) -> None:
    before = scheduled(program())
    after, spared = (remat(before, fuse, least=0, sparing=sparing) for sparing in (False, True))
    assert moved_bytes(after) <= moved_bytes(before) and Lives(after).peak() <= Lives(before).peak()
    assert after is before or moved_bytes(after) <= moved_bytes(spared)  # what raises the peak is not done


def test_what_is_made_again_is_made_by_the_kernel_that_reads_it() -> None:
    """Each second computation stands beside the gradient that reads it: no kernel only repeats something."""
    before = scheduled(mlps())
    after = remat(before, fuse, least=0, sparing=True)
    again = [group for group in after.groups if any(node.op.name == "recompute" for node in group.nodes)]
    assert len(again) == DEPTH - 1 and len(after.groups) == len(before.groups)
    assert all(sum(x.op.name == "matmul" for x in group.inputs) == 2 for group in again)  # up's result, and a gradient


def test_a_dropout_mask_is_the_forwards() -> None:
    """Its bits depend on seed, draw and place alone: the second computation has the same ones."""
    before = scheduled(dropouts())
    after = remat(before, fuse, least=0, sparing=True)
    assert after is not before
    assert_same_values(before, after, numbers=(7, 3))


# Memory that is bought with time

NOTHING = Budget(0, 2.0)
"""Buys nothing; each byte that the peak is higher has to save two."""


def heads(rows: int = 64, width: int = 64) -> Graph:
    """Layers over three axes, whose products read rows of two: down(silu(gate(x)) · up(x)), as Llama's."""
    def layer(x: Node, gate: Node, up: Node, down: Node) -> Node:
        flat = movement.reshape(x, shape=(rows, 16))
        left, right = (movement.reshape(matmul(flat, w) * 0.1, shape=(4, rows // 4, width)) for w in (gate, up))
        hidden = movement.reshape(OPS["silu"](left) * right, shape=(rows, width))
        return movement.reshape(matmul(hidden, down), shape=(4, rows // 4, 16))
    return layers(((16, width), (16, width), (width, 16)), (4, rows // 4, 16), layer)


@pytest.mark.parametrize("program", [mlps, heads])
def test_what_a_product_reads_a_second_time_is_bought_with_time(program: Callable[[], Graph]) -> None:
    """The gradients' kernel has the operands of the hidden value at hand: it writes that again, and adds no launch."""
    before = scheduled(program())
    without, bought = (remat(before, fuse, gpu, least=0) for gpu in (None, H200))
    assert Lives(bought).peak() < Lives(without).peak() <= Lives(before).peak()
    extra = moved_bytes(bought) - moved_bytes(without)
    assert 0 < extra <= MOST_TIME * step_bytes(before, H200)
    assert extra <= 1.1 * (DEPTH - 1) * 4 * 64 * 64, "a store of each hidden value but the last, and no more loads"
    assert len(bought.groups) == len(before.groups)


def test_bought_memory_changes_no_bit() -> None:
    before = scheduled(heads())
    without, bought = (remat(before, fuse, gpu, least=0) for gpu in (None, H200))
    data = [some(x) for x in before.graph.inputs]
    for one, other in zip(run_schedule(without, data), run_schedule(bought, data), strict=True):
        assert torch.equal(one, other)


def offer(traffic: int, held: int) -> KernelOptions:
    """A kernel whose values may be kept for nothing, 100 bytes, or made again."""
    kept = Choice((0,), (), 0, 100)
    return KernelOptions((), kept, kept, Choice((), (0,), traffic, held), 0)


def freed(found: Sequence[Choice]) -> list[bool]:
    """Of each kernel whether its values are made again."""
    return [bool(choice.again) for choice in found]


def test_the_cheapest_is_bought_first_and_nothing_above_its_price() -> None:
    kernels = [offer(90, 0), offer(30, 0), offer(60, 50), offer(250, 0)]  # 0.9, 0.3, 1.2 and 2.5 bytes a byte
    assert freed(spend(kernels, NOTHING)) == [False] * 4
    assert freed(spend(kernels, Budget(1000, 1.0))) == [True, True, False, False]
    assert freed(spend(kernels, Budget(1000, 2.0))) == [True, True, True, False]
    assert freed(spend(kernels, Budget(100, 9.0))) == [False, True, True, False], "the first would be 120 by then"


def test_what_was_bought_is_used_if_it_keeps_to_its_budget() -> None:
    """1000 bytes moved of which 100 are saved for nothing, so 900 are what counts; a peak of 500."""
    given, budget = Counted(1000, 500), Budget(50, 0.5, 100)
    assert given.allows(Counted(940, 400), budget)
    assert not given.allows(Counted(960, 100), budget), "60 bytes are more than were to be spent"
    assert not given.allows(Counted(940, 430), budget), "40 bytes are too much for 70"
    assert not given.allows(Counted(900, 501), budget)
    assert given.allows(Counted(1001, 400), NOTHING) and not given.allows(Counted(1100, 400), NOTHING)
    assert given.allows(Counted(900, 550), NOTHING) and not given.allows(Counted(900, 551), NOTHING)
    assert not given.allows(given, NOTHING)


def test_a_step_takes_what_its_kernels_move_or_multiply() -> None:
    """A product of 4096³ takes 0.2 ms on an H200, in which 0.73 GB could be moved."""
    a, b = inputs((4096, 4096), (4096, 4096))
    product = matmul(p.cast(a, dtype=bfloat16), p.cast(b, dtype=bfloat16))
    schedule = scheduled(Graph((a, b), (p.exp(reduction.sum(product, axes=(0,))),)))
    multiplied = 2 * 4096 ** 3 * H200.copy_rate / H200.product_rate
    moved = sum(x.type.nbytes for group in schedule.groups if group.kind != "matmul"
                for x in (*group.inputs, *group.outputs))
    launched = len(schedule.groups) * LAUNCH / 1e6 * H200.copy_rate
    assert step_bytes(schedule, H200) == pytest.approx(multiplied + moved + launched)
    assert multiplied == pytest.approx(0.73e9, rel=0.05)


# What it leaves alone

def test_few_bytes_are_not_worth_it() -> None:
    schedule = scheduled(mlps())
    assert remat(schedule, fuse) is schedule


def test_a_program_without_a_turn_stays() -> None:
    x, = inputs((64, 64))
    schedule = scheduled(Graph((x,), (p.exp(p.sin(x)) * 2.0,)))
    assert remat(schedule, fuse, least=0) is schedule


def test_products_and_sums_are_kept() -> None:
    """The far reader wants a row's sum and a product's result: both stay as they are."""
    schedule = scheduled(layer_norms())
    step = StepCosts(schedule, turns(Lives(schedule).alive()))
    assert all(node.op.kind in ("pointwise", "movement", "random") for node in all_that_could_be(step))


def test_values_that_the_next_kernel_reads_are_kept() -> None:
    """A residual stream: x1 = x0 + f(x0), x2 = x1 + f(x1), … Making x9 again would take all that was ever added."""
    x, w = inputs((32, 32), (32, 32))
    stream = x
    for _ in range(4):
        stream = stream + matmul(OPS["layer_norm"](stream, ndim=1, eps=1e-5), w)
    schedule = scheduled(Graph((x, w), (*gradient(total(stream), w),)))
    step = StepCosts(schedule, turns(Lives(schedule).alive()))
    sums = {node for node in step.home if node.op.name == "add" and any(
        y.op.name == "matmul" for y in node.inputs) and step.near(node)}
    assert sums and sums.isdisjoint(all_that_could_be(step))


def group_norms(images: int, size: int) -> Graph:
    """A group norm of two groups of three channels, and its weights' gradients: x̂ · g is for one sum alone."""
    x, w, b, g = inputs((images, 6, size), (6,), (6,), (images, 6, size), dtype=bfloat16)
    rows = p.cast(movement.reshape(x, shape=(images, 2, 3 * size)), dtype=float32)
    norm = movement.reshape(OPS["layer_norm"](rows, ndim=1, eps=1e-5), shape=x.shape)
    columns = [movement.expand(movement.reshape(p.cast(y, dtype=float32), shape=(1, 6, 1)), shape=x.shape)
               for y in (w, b)]
    came = p.cast(g, dtype=float32)
    return Graph((x, w, b, g), (p.cast(norm * columns[0] + columns[1], dtype=bfloat16),
                                reduction.sum(norm * came, axes=(0, 2)), reduction.sum(came, axes=(0, 2))))


def residuals(rows: int = 32, width: int = 64, turned: bool = False) -> Graph:
    """A residual stream of float32, to which products in bfloat16 of its layer norms are added, or `turned` ones."""
    x, *weights = inputs((rows, width), *[(width, width)] * 6)
    stream = x
    for w in weights:
        norm = p.cast(OPS["layer_norm"](stream, ndim=1, eps=1e-5), dtype=bfloat16)
        added = p.cast(matmul(norm, p.cast(w, dtype=bfloat16)), dtype=float32)
        if turned:
            added = movement.reshape(movement.permute(added, axes=(1, 0)), shape=added.shape)
        stream = stream + added
    return Graph((x, *weights), gradient(total(stream), *weights))


def stream_values(step: StepCosts) -> list[Node]:
    """The values of the stream that a norm's backward would read, in order."""
    return [node for node in step.home if node.op is p.add and step.near(node) and node.dtype is float32]


@pytest.mark.parametrize("turned", [False, True])
def test_of_a_residual_stream_every_second_value_is_bought(turned: bool) -> None:
    """From the one before it, which is kept, and from what was added in half of the bytes. Not where finding that takes
    index arithmetic."""
    schedule = scheduled(residuals(turned=turned))
    step = StepCosts(schedule, turns(Lives(schedule).alive()))
    again = all_that_could_be(step)
    made = [node in again for node in stream_values(step)]
    assert len(made) > 3 and sum(made) == (0 if turned else 2)
    assert not any(one and other for one, other in pairwise(made))


def test_a_stream_that_is_bought_keeps_fewer_bytes_and_changes_no_bit() -> None:
    before = scheduled(residuals())
    without, bought = (remat(before, fuse, gpu, least=0) for gpu in (None, H200))
    second = [x for x in bought.graph.nodes if x.op is p.add and any(y.op is recompute for y in x.inputs)]
    assert len(second) == 2 and Lives(bought).peak() < Lives(without).peak()
    assert moved_bytes(bought) - moved_bytes(without) <= MOST_TIME * step_bytes(before, H200)
    assert len(bought.groups) == len(before.groups), "the kernels that read them make them"
    data = [some(x) for x in before.graph.inputs]
    for one, other in zip(run_schedule(without, data), run_schedule(bought, data), strict=True):
        assert torch.equal(one, other)


def test_what_is_kept_for_one_sum_alone_is_made_again() -> None:
    """And the sum of what comes in is made beside it: one kernel reads both (1024 images of 64 × 14 × 14 in bfloat16:
    154, 51 and 26 MB, then 103 and 51)."""
    before = scheduled(group_norms(10, 8))
    after = remat(before, fuse, least=0)
    assert len(after.groups) < len(before.groups) and moved_bytes(after) < 0.8 * moved_bytes(before)
    assert_same_values(before, after, most_programs=256)


# Its parts

def test_rewriting() -> None:
    before = parse("""graph(%x: f32[4]) {
        %a: f32[4] = exp(%x)
        %b: f32[4] = sin(%a)
        %c: f32[4] = cos(%b)
        %d: f32[4] = mul(%c, %a)
        return %d
    }""")
    _, a, b, c, d = before.nodes
    found = recomputed(before, {a: 0, b: 0, c: 1, d: 1}, {a: c})
    assert_text(found, """graph(%x: f32[4]) {
        %a: f32[4] = exp(%x)
        %b: f32[4] = sin(%a)
        %c: f32[4] = cos(%b)
        %x2: f32[4] = recompute(%x, %c)
        %a2: f32[4] = exp(%x2)
        %d: f32[4] = mul(%c, %a2)
        return %d
    }""")


@pytest.mark.parametrize("alive, found", [
    ([], []), ([0, 0], []), ([5], [0]), ([1, 2, 3, 2], [2]), ([9, 1, 5, 1], [0, 2]), ([4, 3, 4, 1, 3], [0])])
def test_turns(alive: list[int], found: list[int]) -> None:
    assert turns(alive) == found


@st.composite
def networks(draw: st.DrawFn) -> tuple[CutValue, ...]:
    """Small networks: what has no operands is given."""
    found = []
    for i in range(draw(st.integers(1, 6))):
        operands = tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=3)))) if i else ()
        again = draw(st.integers(0, 9)) if operands and draw(st.booleans()) else FORBIDDEN
        keepable = again == FORBIDDEN or draw(st.booleans())
        found.append(CutValue(operands, draw(st.integers(0, 9)), draw(st.integers(0, 9)), again, keepable,
                           draw(st.booleans())))
    return tuple(found)


def possible(values: tuple[CutValue, ...], found: Choice) -> bool:
    """Is all that is wanted there, and what it is made of?"""
    there = {*found.kept, *found.again}
    return (all(i in there for i, value in enumerate(values) if value.wanted)
            and all(values[i].again != FORBIDDEN and there.issuperset(values[i].operands) for i in found.again)
            and all(values[i].keepable for i in found.kept))


@settings(max_examples=200, deadline=None)
@given(values=networks(), worth=st.sampled_from([0.0, 1.0, 4.0]))
def test_no_choice_is_cheaper_than_the_cut(values: tuple[CutValue, ...], worth: float) -> None:
    """Against all 3^n ways to keep, to make again, or to do without."""
    def cost(found: Choice) -> float:
        return found.traffic + worth * found.held

    found = cheapest(values, worth)
    assert possible(values, found)
    for ways in product("ka-", repeat=len(values)):
        other = choice(values, *(tuple(i for i, way in enumerate(ways) if way == kind) for kind in "ka"))
        assert not possible(values, other) or cost(found) <= cost(other) + 1e-9


@pytest.mark.parametrize("seed", range(0, 120, 4))
def test_random_programs_cut_anywhere(seed: int) -> None:
    """Wherever a random program is cut in two, and whatever is made again, it means the same."""
    program = Program(seed)
    schedule = fuse(Graph(tuple(program.inputs), program.outputs()))
    generator = random.Random(seed)
    step = StepCosts(schedule, [generator.randrange(len(schedule.groups))])
    before = {at: node for node, at in step.home.items()}
    after = {node: before[min(step.far(node)) - 1] for node, at in step.home.items()
             if step.far(node) and node.op.kind == "pointwise" and min(step.far(node)) - 1 in before
             and step.parts[before[min(step.far(node)) - 1]] > step.parts[node] and generator.random() < 0.7}
    graph = recomputed(schedule.graph, step.parts, after)
    verify(graph)
    again = fuse(graph)
    wanted = evaluate(schedule.graph, program.data)
    for one, want in zip(run_schedule(again, program.data), wanted, strict=True):
        torch.testing.assert_close(one.reshape(want.shape), want, rtol=1e-4, atol=1e-4)


def test_its_cost_grows_about_linearly() -> None:
    def seconds(size: int) -> float:
        graph = chains.training_step(size, Device("cuda"))
        for transform in (autodiff, canonicalize, lambda g: legalize(g, backend_named("cuda").supports)):
            graph = transform(graph)
        schedule = fuse(graph)
        return cost(lambda: remat(schedule, fuse, least=0, sparing=True))

    seconds(64)
    assert min(seconds(400) for _ in range(2)) < 8 * min(seconds(100) for _ in range(3))


def test_low_precision_values_are_made_again_as_they_were() -> None:
    """In bfloat16: what the gradients read again is what the forward had, within its rounding."""
    before = scheduled(mlps(dtype=bfloat16))
    after = remat(before, fuse, least=0, sparing=True)
    assert after is not before
    assert_same_values(before, after, tolerance=0.15, most_programs=256)  # torch rounds each of 40 ops and 32 terms


def test_a_second_computation_does_not_wait_for_itself() -> None:
    """The later part's value waits for what would be made again behind it."""
    x = an_input(0, (4,))
    first = p.exp(x)
    later = p.exp(recompute(x, first))
    graph = Graph((x,), (p.add(first, later),))
    with pytest.raises(WaitsForItselfError) as circle:
        recomputed(graph, {first: 0, later: 1, graph.outputs[0]: 1}, {first: later})
    assert circle.value.value is first


def behind_its_reader(step: StepCosts, value: Node) -> Node:
    """What the first kernel computes that would make the value again: a circle, if that waits for it."""
    return step.value(step.groups[min(step.far(value))].outputs[0])


def test_what_would_wait_for_itself_is_kept_and_told_and_all_else_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before, chosen = scheduled(mlps()), dict[Node, Node]()

    def with_a_circle(step: StepCosts, *arguments: Any) -> dict[Node, Node]:
        after = decided(step, *arguments)
        behind = behind_its_reader(step, next(filter(step.far, after)))
        value = next(x for x in after if x in walk([behind]) and after.keys().isdisjoint(x.inputs))  # it does wait
        chosen.update(after | {value: behind})
        return dict(chosen)
    monkeypatch.setattr(pass_itself, "decided", with_a_circle)
    after = remat(before, fuse, least=0, sparing=True)
    told = {x.producer: x.consumer for x in after.missed if x.why == WAITS}
    assert told and told.items() < chosen.items()
    assert any(node.op is recompute for node in after.graph.nodes) and Lives(after).peak() < Lives(before).peak()
    assert_same_values(before, after, most_programs=256)


def test_where_all_would_wait_for_themselves_everything_is_kept_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = scheduled(mlps())

    def circles(step: StepCosts, *arguments: Any) -> dict[Node, Node]:
        return {value: behind_its_reader(step, value) for value in filter(step.far, decided(step, *arguments))}
    monkeypatch.setattr(pass_itself, "decided", circles)
    after = remat(before, fuse, least=0, sparing=True)
    assert after.groups == before.groups
    told = [x for x in after.missed if x.why == WAITS]
    assert told and all(x.producer in walk([x.consumer]) for x in told)
