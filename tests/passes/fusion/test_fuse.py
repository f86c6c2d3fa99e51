"""What becomes one kernel, what must not, and what fusing costs."""

from __future__ import annotations

import random
import time
from math import prod

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200, MODELS
from genesis.ir import Graph, literal
from genesis.ir.node import Node
from genesis.ir.ops import composite, leaves, loss, movement, optimizer
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.checked import with_check
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.indexing import take
from genesis.ir.types import bfloat16, float32, int64
from genesis.passes.fusion.cluster_graph import ClusterGraph, Refused
from genesis.passes.fusion.finish_groups import LONGEST
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.materialize import CHECKED_TWICE, _checked_by_readers, weight
from genesis.passes.fusion.one_loop import MOST_WEIGHT
from genesis.passes.graph.split_reductions import split_reductions
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import an_input, check, inputs, kinds, some
from tests.codegen.cuda.run_interpreted import run_schedule
from tests.sweeping import each_value


def test_a_pointwise_chain_with_several_outputs() -> None:
    x, y = inputs((6, 4), (6, 4))
    a = p.exp(x) + y
    b = a * 2.0
    assert kinds(check([x, y], a, b, p.sin(b))) == ["loop"]


@pytest.mark.parametrize(("tokens", "by_elements"), [(1000, True), (CHECKED_TWICE // 64 + 1, False)])
def test_an_index_is_checked_by_loops_that_read_little_with_it(tokens: int, by_elements: bool) -> None:
    """A kernel that checks it before takes a launch; elements that check it take longer where there are many."""
    table, index = an_input(0, (50, 64)), an_input(1, (tokens,), dtype=int64)
    rows = with_check(take, (table, index), (0,), None)
    shown = movement.reshape(rows.inputs[1], shape=(tokens, 1))
    for read in (rows, take(table, shown, axis=0)):
        assert bool(_checked_by_readers(Graph((table, index), (read * 2.0,)))) == by_elements
    assert not _checked_by_readers(Graph((table, index), (rows, rows.inputs[1]))), "it is asked for itself"


def test_every_group_and_refusal_says_why() -> None:
    x, y = inputs((6, 4), (4, 4))
    schedule = fuse(Graph((x, y), (r.sum(p.exp(matmul(x, y)), axes=(1,)),)))
    assert all(group.reason for group in schedule.groups)
    assert all(refusal.why for refusal in schedule.missed)


def test_an_output_that_is_a_reshape_costs_no_copy() -> None:
    x, y = inputs((6, 4), (4, 5))
    product = movement.reshape(matmul(x, y), shape=(2, 3, 5))
    schedule = check([x, y], product, p.erf(p.tanh(product)))  # too dear for an epilogue
    assert kinds(schedule) == ["matmul", "loop"]
    assert schedule.groups[0].outputs == (product,) and product in schedule.groups[1].inputs


def test_a_kernel_with_a_reduction_is_not_longer_than_triton_compiles_in_seconds() -> None:
    x, = inputs((64, 64))
    y = x
    for _ in range(30):
        y = p.sin(y)
    schedule = fuse(Graph((x,), (r.sum(y, axes=(1,)),)))
    reducing = [group for group in schedule.groups if any(node.op.kind == "reduction" for node in group.nodes)]
    assert len(reducing) == 1 and sum(map(weight, reducing[0].nodes)) <= MOST_WEIGHT < 30 * weight(y)


def test_updates_are_one_launch_apart_from_the_kernels_of_their_gradients() -> None:
    weights, data = inputs((5,), (5,), (9, 5), (9, 5)), slice(2, 4)
    updates = tuple((w, w - r.sum(x, axes=(0,)) * 0.1) for w, x in zip(weights, weights[data], strict=False))
    schedule = fuse(Graph(weights, (), updates))
    assert [sum(node in group.outputs for _, node in updates) for group in schedule.groups] == [0, 0, 2]


def test_the_sum_of_another_row_is_read_from_memory() -> None:
    x, = inputs((8, 64))
    sums = r.spread(r.sum(x, axes=(1,)), x, (1,))
    schedule = check([x], x - movement.flip(sums, axes=(0,)))
    assert kinds(schedule) == ["loop", "loop"]
    assert any("another row" in refusal.why for refusal in schedule.missed)


def test_a_value_of_rows_is_not_computed_again_for_other_rows() -> None:
    """It is stored anyway. One kernel would compute it for each element of the row that reads it, too."""
    x, rates = inputs((8, 8), (8,))
    doubled = rates * 2.0
    turned = r.spread(movement.flip(doubled, axes=(0,)), x, (1,))
    schedule = check([x, rates], doubled, r.sum(p.mul(x, turned), axes=(1,)))
    assert kinds(schedule) == ["loop", "loop"]
    assert any("another row" in refusal.why for refusal in schedule.missed)


def test_a_value_that_other_rows_read_too_is_in_no_kernel_with_its_rows_sum() -> None:
    """The kernel that computes y at the mirrored row as well does not know that row's sum."""
    x, = inputs((8, 64))
    y = x - r.spread(r.sum(x, axes=(1,)), x, (1,))
    schedule = check([x], y + movement.flip(y, axes=(0,)))
    assert kinds(schedule) == ["loop", "loop"]
    assert any("another row" in refusal.why for refusal in schedule.missed)


def test_a_value_and_its_reshape_as_outputs() -> None:
    x, = inputs((6, 4))
    y = p.exp(x)
    check([x], y, movement.reshape(y, shape=(24,)), movement.reshape(x, shape=(2, 12)))


def test_constants_numbers_and_positions_as_outputs() -> None:
    check([], leaves.full((3, 4), 2.5, float32), leaves.iota(shape=(3, 4), axis=1, dtype=float32))


def test_a_cast_of_memory_is_repeated_and_not_stored() -> None:
    x, = inputs((8, 16), dtype=bfloat16)
    wide = p.cast(x, dtype=float32)
    schedule = check([x], r.sum(wide, axes=(0,)), r.sum(p.exp(wide), axes=(1,)))
    assert all(node.dtype is not float32 or node.type.numel < 128 for g in schedule.groups for node in g.outputs)


def test_no_kernel_is_wanted_before_what_it_reads() -> None:
    """exp feeds a product and, with the product, an addition: one kernel of both would need the product within."""
    x, y = inputs((4, 4), (4, 4))
    a = p.exp(x)
    assert kinds(check([x, y], p.erf(p.tanh(matmul(a, y) + a)))) == ["loop", "matmul", "loop"]


# Epilogues of products

def test_cheap_ops_on_a_product_are_done_before_it_is_stored() -> None:
    """A bias, a residual, a relu and a cast: one kernel with two results; the product itself is in no memory."""
    x, w, b, residual = inputs((24, 16), (16, 40), (40,), (24, 40))
    y = matmul(x, w) + movement.expand(b, shape=(24, 40)) + residual
    schedule = check([x, w, b, residual], p.maximum(y, 0.0), p.cast(y, dtype=bfloat16))
    assert kinds(schedule) == ["matmul"]
    assert "pointwise ops on its tiles" in schedule.groups[0].reason


def test_a_product_that_others_read_is_stored_as_well() -> None:
    x, w = inputs((24, 16), (16, 40), dtype=bfloat16)
    y = matmul(x, w)
    schedule = check([x, w], y, p.maximum(y, 0.0))
    assert kinds(schedule) == ["matmul"] and set(schedule.groups[0].outputs) == set(schedule.graph.outputs)


def test_an_epilogue_through_reshapes_of_batches() -> None:
    x, w, b = inputs((3, 8, 16), (3, 16, 20), (3, 8, 20))
    flat = movement.reshape(matmul(x, w), shape=(24, 20)) * 2.0 + movement.reshape(b, shape=(24, 20))
    assert kinds(check([x, w, b], flat)) == ["matmul"]


@pytest.mark.parametrize("name, after", [
    ("transposed", lambda y: movement.permute(y, axes=(1, 0)) + 1.0),
    ("rows", lambda y: r.sum(y * y, axes=(1,))),
    ("dear", lambda y: p.tanh(y) * p.exp(y)),
])
def test_what_a_tile_does_not_know_or_cannot_wait_for_is_a_kernel_of_its_own(name: str, after) -> None:
    x, w = inputs((24, 16), (16, 24))
    assert kinds(check([x, w], after(matmul(x, w)))) == ["matmul", "loop"]


def test_no_product_waits_for_what_is_made_later() -> None:
    """A gradient's two parts: the product's is ready long before the other, and holds a large operand until then."""
    x, w = inputs((16, 16), (16, 16))
    early = matmul(x, w)
    late = x
    for _ in range(3):
        late = matmul(p.tanh(p.erf(late)), w)
    schedule = check([x, w], early + late)
    maker = next(group for group in schedule.groups if early in group.nodes)
    assert maker.outputs == (early,)


def test_a_dear_value_that_is_broadcast_is_stored() -> None:
    x, y = inputs((1, 5), (40, 5))
    dear = p.tanh(p.erf(p.sin(x)))
    schedule = check([x, y], y + movement.expand(dear, shape=(40, 5)))
    assert len(schedule.groups) == 2
    cheap = check([x, y], y + movement.expand(x + 1.0, shape=(40, 5)))
    assert len(cheap.groups) == 1


@pytest.mark.parametrize(("rows", "groups"), [(64, 1), (4096, 2)])
def test_a_large_value_that_is_stored_is_read_at_other_places_and_not_made_again(rows: int, groups: int) -> None:
    a, b = inputs((rows, 1024), (rows, 1024))
    whole = movement.concat(a, b, axis=0)
    turned = movement.permute(movement.reshape(whole, shape=(2, rows, 1024)), axes=(1, 0, 2))
    sums = r.sum(movement.reshape(turned, shape=(rows, 2048)), axes=(0,))
    schedule = fuse(Graph((a, b), (whole, sums)))
    assert len(schedule.groups) == groups
    if groups == 2:
        assert whole in schedule.groups[1].inputs
        assert any("reading that takes less" in refusal.why for refusal in schedule.missed)


@pytest.mark.parametrize("loss_first", [False, True])
def test_the_larger_saving_wins_whatever_the_order_of_the_outputs(loss_first: bool) -> None:
    """The mean loss and the number of targets could share a kernel, between the logits' softmax and its gradient.
    That would keep these two apart, and (4096, 64) values in memory."""
    logits = an_input(0, (4096, 64), bfloat16)
    target = an_input(1, (4096,), int64)
    counted = p.cast(p.ne(target, -100), dtype=float32)
    count = r.sum(counted, axes=(0,))
    losses = loss.cross_entropy(logits, target, ignore_index=-100, label_smoothing=0.0)
    mean = r.sum(p.cast(losses, dtype=float32), axes=(0,)) / count
    scale = p.cast(movement.expand(movement.reshape(1.0 / count, shape=(1,)), shape=(4096,)), dtype=bfloat16)
    gradient = loss.cross_entropy_backward(scale, logits, target, ignore_index=-100, label_smoothing=0.0)
    outputs = (mean, gradient) if loss_first else (gradient, mean)
    schedule = fuse(decomposed(Graph((logits, target), outputs)))
    large = [node for group in schedule.groups for node in group.outputs if node.type.numel >= 4096 * 64]
    assert [node.dtype for node in large] == [bfloat16]
    assert sum(logits in group.inputs for group in schedule.groups) == 1


def test_what_stands_between_two_values_is_merged_with_them() -> None:
    """The row's logarithm reads a result of the sum and is read by the subtraction: all one kernel."""
    x, = inputs((64, 128))
    e = p.exp(x)
    log = p.log(r.sum(e, axes=(1,)))
    spread = movement.expand(movement.reshape(log, shape=(64, 1)), shape=(64, 128))
    assert kinds(check([x], e - spread, log)) == ["loop"]


@pytest.mark.parametrize("length", [150, 400])
def test_long_chains_are_cut(length: int) -> None:
    x, = inputs((64,))
    y = x
    for i in range(length):
        y = y * 0.5 + x if i % 2 else p.maximum(y, x)
    schedule = fuse(Graph((x,), (y,)))
    weights = [sum(map(weight, group.nodes)) for group in schedule.groups]
    assert 1 < len(weights) <= 2 * sum(weights) // LONGEST + 1 and max(weights) <= LONGEST


def test_a_long_chain_is_cut_where_it_is_narrowest() -> None:
    """Two values live everywhere but in the middle, where one does."""
    x, y = inputs((64,), (64,))

    def wide(start, steps):
        a, b = p.sin(start), p.cos(start)
        for _ in range(steps):
            a, b = a + b, a * b
        return a + b

    middle = wide(x + y, 40)
    schedule = fuse(Graph((x, y), (wide(middle, 40),)))
    assert schedule.groups[0].outputs == (middle,)


def test_cost_grows_linearly_with_the_program() -> None:
    """Fusing and printing 1600 chained ops takes less than 10 times what 400 take (16 would be quadratic)."""
    def seconds(length: int) -> float:
        x, = inputs((4096,))
        y = x
        for i in range(length):
            y = p.sin(y) + x if i % 3 else y * 0.5
        graph = Graph((x,), (y,))
        assert graph.nodes
        start = time.process_time()
        for group in fuse(graph).groups:
            emit(group)
        return time.process_time() - start

    seconds(100)
    assert min(seconds(1600) for _ in range(2)) < 10 * min(seconds(400) for _ in range(3))


def test_an_optimizer_is_one_launch() -> None:
    numbers = [leaves.scalar(index=i, type=literal(1.0).type) for i in range(7)]
    shapes = [(5, 7), (12,), (3, 3, 3), (1,), (90,)]
    tensors = inputs(*shapes * 4)
    results = optimizer.adamw.decompose(*numbers, *tensors, count=5, decoupled=True)
    values = [0.01, 0.9, 0.999, 1e-8, 0.1, 0.1, 0.001]
    schedule = check(tensors, *results, numbers=values, data=[x.abs() for x in _random(tensors)])
    assert kinds(schedule) == ["foreach"]
    group = schedule.groups[0]
    for family in (0, 2, 3):  # parameters and both moments may be updated in place
        assert (results[(0, 0, 5, 10)[family]], tensors[5 * family]) in group.in_place


def _random(nodes):
    from tests.codegen.cuda.programs import some
    return [some(node) for node in nodes]


def test_in_place_is_allowed_only_where_each_element_is_read_where_it_is_written() -> None:
    x, y = inputs((4, 4), (4, 4))
    plain, = fuse(Graph((x, y), (p.exp(x) + y,))).groups
    assert {source for _, source in plain.in_place} == {x, y}
    turned, = fuse(Graph((x, y), (movement.permute(x, axes=(1, 0)) + y,))).groups
    assert {source for _, source in turned.in_place} == {y}
    soft, = fuse(decomposed(Graph((x,), (composite.softmax(x, axis=1),)))).groups
    assert {source for _, source in soft.in_place} == {x}
    other, = fuse(Graph((x, y), (p.exp(x), p.exp(x) + y))).groups
    assert (other.outputs[0], y) not in other.in_place


@each_value
@pytest.mark.parametrize(("shape", "axes"), [((300000,), (0,)), ((65537, 8), (0,)), ((64, 4099), (0, 1)),
                                             ((2, 150001), (1,)), ((50, 16, 901), (0, 2))])
@pytest.mark.parametrize("op", [r.sum, r.max])
def test_large_reductions_to_few_results_are_split(op, shape, axes) -> None:
    x, = inputs(shape)
    graph = split_reductions(Graph((x,), (op(p.exp(x), axes=axes, keepdims=True),)), H200)
    schedule = fuse(graph)
    assert len(schedule.groups) == 2
    assert prod(emit(schedule.groups[0]).grid) >= 16
    from tests.codegen.cuda.programs import some
    from tests.codegen.cuda.run_interpreted import run_schedule
    found, = run_schedule(schedule, [some(x)], most_programs=2000)
    import torch
    want = some(x).double().exp()
    want = want.sum(axes, keepdim=True) if op is r.sum else want.amax(axes, keepdim=True)
    torch.testing.assert_close(found.double(), want, rtol=1e-5, atol=0)


def test_a_reduction_of_many_rows_is_not_split() -> None:
    x, = inputs((8192, 4096))
    graph = Graph((x,), (r.sum(x, axes=(1,)),))
    assert split_reductions(graph, H200).roots == graph.roots


def test_merging_never_makes_a_cycle() -> None:
    """Random merges on random DAGs: the order stays topological, and a refused merge had a path in between."""
    for seed in range(200):
        rnd = random.Random(seed)
        count = rnd.randint(2, 14)
        reads = {n: tuple(sorted(rnd.sample(range(n), min(n, rnd.randint(0, 3))))) for n in range(count)}
        dag: ClusterGraph[int] = ClusterGraph(range(count), reads)
        members = {n: {n} for n in range(count)}
        for _ in range(12):
            a, b = (rnd.choice(sorted(members)) for _ in range(2))
            if a == b:
                continue
            refused = False
            try:
                dag.merge(a, b, members[b])
            except Refused:
                refused = True
            assert refused == _joined_through_a_third(members, reads, a, b)
            if not refused:
                members[a] |= members.pop(b)
            place = {cluster: i for i, cluster in enumerate(dag.order())}
            assert all(place[dag.of[x]] <= place[dag.of[n]] for n in range(count) for x in reads[n])


def _joined_through_a_third(members, reads, a, b) -> bool:
    owner = {node: cluster for cluster, nodes in members.items() for node in nodes}
    edges = {(owner[x], owner[n]) for n in reads for x in reads[n] if owner[x] != owner[n]}
    for start, end in ((a, b), (b, a)):
        seen, pending = set(), [y for x, y in edges if x == start and y != end]
        while pending:
            here = pending.pop()
            if here == end:
                return True
            if here not in seen:
                seen.add(here)
                pending += [y for x, y in edges if x == here]
    return False


def test_a_long_epilogue_where_tiles_are_stored_beside_sums() -> None:
    """A gelu is part of the product's kernel on a GPU that computes it while the next tile is summed up, with one more
    value that the gradient reads; with two where the sums take longer than memory, and not with three."""
    def grouped(*wanted: str, depth: int = 768) -> list[int]:
        x, w, bias = inputs((16384, depth), (depth, 3072), (3072,), dtype=bfloat16)
        linear = matmul(x, w) + movement.expand(bias, shape=(16384, 3072))
        gelu = p.gelu(linear, approximate="tanh")
        made = {"linear": linear, "gelu": gelu, "square": gelu * gelu, "fourth": gelu * gelu * gelu * gelu,
                "sums": r.sum(linear * linear, axes=(0,))}
        graph = decomposed(Graph((x, w, bias), tuple(made[name] for name in wanted)))
        return [len(fuse(graph, gpu=gpu).groups) for gpu in (H200, MODELS["a100"], None)]

    assert grouped("gelu") == grouped("linear", "gelu") == grouped("linear", "gelu", depth=128) == [1, 2, 2]
    assert grouped("linear", "gelu", "square") == [1, 2, 2]
    assert grouped("linear", "gelu", "square", depth=512) == grouped("linear", "gelu", "square", "fourth") == [2, 2, 2]
    on_an_h200, *_, on_any = grouped("gelu", "sums")
    assert on_an_h200 == on_any


def test_a_long_epilogue_that_reads_as_much_as_it_makes_is_a_kernel_of_its_own() -> None:
    """A gelu and its gradient took the product's tiles 181 µs longer, and a kernel of their own takes 106 (H200,
    16384 × 3072); a short one is loaded ahead, and what moves six values takes memory as long."""
    x, w, dy, other = inputs((16384, 2048), (2048, 3072), (16384, 3072), (16384, 3072), dtype=bfloat16)
    y = matmul(x, w)
    s = p.sigmoid(y)

    def alone(*outputs: Node) -> bool:
        found = fuse(decomposed(Graph((x, w, dy, other), outputs)), gpu=H200)
        refused = [missed.why for missed in found.missed if "what it reads, and for" in missed.why]
        assert bool(refused) == (len(found.groups) == 2)
        return bool(refused)

    gelu = p.gelu(y, approximate="tanh")
    assert alone(gelu, dy * (gelu * s * (1 - s) + s)) and not alone(gelu) and not alone(y, y * dy)
    assert not alone(y * s, dy * s, other * s)


def test_sums_of_unlike_values_that_one_kernel_puts_together_are_one_kernel() -> None:
    """The losses of many rows, and how many of these count: two launches of 32 programs each before."""
    losses, targets = an_input(0, (99_991,)), an_input(1, (99_991,), dtype=int64)
    counted = r.sum(p.cast(p.ne(targets, literal(3)), dtype=float32), axes=(0,))
    graph = split_reductions(Graph((losses, targets), (r.sum(losses, axes=(0,)) / counted,)), H200)
    schedule = fuse(graph)
    first, last = schedule.groups
    assert set(first.inputs) == {losses, targets} and set(last.inputs) == set(first.outputs)
    data = [some(losses), some(targets)]
    found, = run_schedule(schedule, data)
    torch.testing.assert_close(found.reshape(()), data[0].sum() / (data[1] != 3).sum(), rtol=1e-4, atol=1e-6)
