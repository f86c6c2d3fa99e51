"""plan_memory: a place for every value, checked by running plans symbolically."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genesis.codegen.cpu import lower
from genesis.engine.backends import backend_named
from genesis.ir import Graph, Node
from genesis.ir.parser import parse
from genesis.passes.fusion.group_per_op import group_per_op
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory import plan_memory as plan_memory_module
from genesis.passes.memory.arena import ALIGNMENT, Lent, Request, arranged
from genesis.passes.memory.plan_memory import MayOverwrite, MemoryPlan, plan_memory
from tests.passes.memory.simulate import arena_places, check_plan, most_live_bytes
from tests.passes.random_graphs import graphs

KILOBYTE = 1024  # f32[256]


def anywhere(group: Group, output: Node, operand: Node) -> bool:
    """A backend that writes any result over any operand of its type."""
    return output.type is operand.type


def nowhere(group: Group, output: Node, operand: Node) -> bool:
    """A backend that writes over nothing."""
    return False


def planned(graph: Graph, may_overwrite: MayOverwrite = lower.may_overwrite,
            lend: bool = False) -> tuple[Schedule, MemoryPlan]:
    """The CPU's schedule of a graph, and its plan, checked."""
    schedule = group_per_op(graph, lower.is_view)
    plan = plan_memory(schedule, may_overwrite, lend=lend)
    check_plan(schedule, plan, may_overwrite)
    assert plan.max_live_bytes == most_live_bytes(schedule, plan) <= plan.arena_bytes
    again = arranged(plan.requests, plan.lent)
    assert (again.size, again.peak) == (plan.arena_bytes, plan.max_live_bytes)
    assert plan.value_at.keys() >= set(map(id, arena_places(plan)))
    for place in (*plan.places.values(), *arena_places(plan)):
        value = plan.value_at.get(id(place))
        if value is not None:
            output = None if place.where == "arena" else place.index
            assert (again.lent_to[value], again.offsets[value]) == (output, place.offset)
    return schedule, plan


def plan_of(text: str, may_overwrite: MayOverwrite = lower.may_overwrite, lend: bool = False) -> MemoryPlan:
    """The checked plan of a program."""
    return planned(parse(text), may_overwrite, lend)[1]


def where(plan: MemoryPlan, node: Node) -> tuple[str, int]:
    """Kind and index of a value's place."""
    return plan.places[node].where, plan.places[node].index


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), may=st.sampled_from([anywhere, nowhere, lower.may_overwrite]))
def test_every_read_finds_its_value(graph: Graph, may: MayOverwrite) -> None:
    planned(graph, may)


@pytest.fixture
def lending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small outputs' memory is lent as well."""
    monkeypatch.setattr(plan_memory_module, "LEAST_LENT", 1)


@settings(max_examples=250, deadline=None,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(graph=graphs(), may=st.sampled_from([anywhere, nowhere, lower.may_overwrite]))
def test_every_read_finds_its_value_where_outputs_lend_their_memory(graph: Graph, may: MayOverwrite,
                                                                    lending: None) -> None:
    planned(graph, may, lend=True)


CHAIN = parse("""graph(%x: f32[256]) { %a: f32[256] = exp(%x) %b: f32[256] = sin(%a) %c: f32[256] = cos(%b)
                 %d: f32[256] = tan(%c) %e: f32[256] = neg(%d) return %e }""")
"""Two neighbours are always alive together; only the last is returned."""


def test_an_output_lends_its_memory_to_what_is_gone_before_it_is_written(lending: None) -> None:
    values = [node for node in CHAIN.nodes if node.inputs]
    assert planned(CHAIN, nowhere)[1].arena_bytes == 2 * KILOBYTE
    plan = planned(CHAIN, nowhere, lend=True)[1]
    assert [plan.places[node].where for node in values] == ["output", "arena", "output", "arena", "output"]
    assert plan.arena_bytes == KILOBYTE, "%d is read while %e is written: it is not in its memory"


def test_each_output_lends_its_memory_until_it_is_written_itself(lending: None) -> None:
    graph = parse("""graph(%x: f32[256], %w: f32[256]) { %a: f32[256] = exp(%x) %b: f32[256] = sin(%a)
                     %p: f32[256] = cos(%b) %q: f32[256] = neg(%w) %r: f32[256] = add(%p, %q)
                     return %p, %r }""")
    plan = planned(graph, nowhere, lend=True)[1]
    a, b = (next(node for node in graph.nodes if node.op.name == name) for name in ("exp", "sin"))
    assert where(plan, a)[0] == "output" and where(plan, b) == ("output", 1), "the other one is written of it"


def test_small_outputs_lend_nothing() -> None:
    assert planned(CHAIN, nowhere, lend=True)[1].lent == ()


def test_lent_memory_goes_to_the_smallest_range_that_is_free_for_long_enough() -> None:
    lent = [Lent(0, 4096, 2), Lent(1, 8192, 6), Lent(2, 4096, 6)]
    asked: list[Request] = [(0, 4096), (0, None), (1, 4096), (2, 4096), (1, None), (2, None), (3, 4096), (3, None)]
    found = arranged(asked, lent)
    assert found.lent_to == [0, 2, 1, None], "%3 is alive when the last output is written"
    assert found.size == found.peak == 4096
    assert arranged([(0, 512), (0, None)], [Lent(0, 1 << 20, 2)]).lent_to == [None], "too small a part of it"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), data=st.data())
def test_any_order_of_the_groups_gets_a_plan(graph: Graph, data: st.DataObject) -> None:
    """The planner takes the order as it is: here random ones, in which values live long."""
    schedule = group_per_op(graph, lower.is_view)
    waiting, ready, order = list(schedule.groups), set(graph.inputs), []
    while waiting:
        group = data.draw(st.sampled_from([g for g in waiting if ready.issuperset(g.inputs)]))
        waiting.remove(group)
        ready.update(group.outputs)
        order.append(group)
    shuffled = Schedule(graph, tuple(order))
    check_plan(shuffled, plan_memory(shuffled, anywhere), anywhere)


# Where things go

def test_an_output_is_written_where_the_caller_gets_it() -> None:
    graph = parse("graph(%x: f32[256]) { %y: f32[256] = exp(%x) return %y }")
    _, plan = planned(graph)
    assert where(plan, graph.outputs[0]) == ("output", 0)
    assert plan.arena_bytes == 0 and not plan.before and not plan.after and not plan.copies


def test_a_chain_is_computed_in_one_place() -> None:
    plan = plan_of("graph(%x: f32[256]) { %a: f32[256] = exp(%x) %b: f32[256] = sin(%a) %c: f32[256] = tanh(%b) "
                   "%d: f32[256] = exp(%c) return %d }")
    assert plan.arena_bytes == plan.max_live_bytes == KILOBYTE


def test_without_in_place_a_chain_takes_two() -> None:
    plan = plan_of("graph(%x: f32[256]) { %a: f32[256] = exp(%x) %b: f32[256] = sin(%a) %c: f32[256] = tanh(%b) "
                   "%d: f32[256] = exp(%c) return %d }", nowhere)
    assert plan.arena_bytes == 2 * KILOBYTE


def test_a_value_that_is_read_later_is_not_written_over() -> None:
    plan = plan_of("graph(%x: f32[256]) { %a: f32[256] = exp(%x) %b: f32[256] = sin(%a) %c: f32[256] = add(%a, %b) "
                   "%d: f32[256] = exp(%c) return %d }")
    assert plan.arena_bytes == 2 * KILOBYTE


def test_a_value_that_is_read_through_a_view_as_well_is_not_written_over() -> None:
    """y + y.T in y's memory would read elements that it has written."""
    plan = plan_of("graph(%x: f32[16,16]) { %y: f32[16,16] = exp(%x) %t: f32[16,16] = permute(%y, axes=(1,0)) "
                   "%z: f32[16,16] = add(%y, %t) %w: f32[16,16] = sin(%z) return %w }")
    assert plan.arena_bytes == 2 * KILOBYTE


def test_the_smallest_gap_that_fits_is_taken() -> None:
    """a (4 KB) and c (1 KB) are free when e (1 KB) comes; b and d stay."""
    graph = parse("""graph(%x: f32[1024], %y: f32[256]) {
        %a: f32[1024] = exp(%x)
        %b: f32[256] = exp(%y)
        %c: f32[256] = sin(%y)
        %d: f32[256] = tanh(%y)
        %l: f32[] = sum(%a, axes=(0,))
        %m: f32[] = sum(%c, axes=(0,))
        %e: f32[256] = cos(%y)
        %f: f32[256] = add(%b, %d)
        %g: f32[256] = add(%f, %e)
        return %g, %l, %m
    }""")
    schedule, plan = planned(Graph(graph.inputs, graph.outputs), nowhere)
    by_name = {group.nodes[0].op.name: group.outputs[0] for group in schedule.groups}
    assert plan.places[by_name["cos"]].offset in (plan.places[n].offset for n in schedule.graph.nodes
                                                  if n.op.name == "sin")


def test_places_are_aligned_and_zero_bytes_have_one() -> None:
    plan = plan_of("graph(%x: f32[3], %e: f32[0]) { %a: f32[3] = exp(%x) %b: f32[0] = exp(%e) %c: f32[0] = sin(%b) "
                   "%d: f32[3] = sin(%a) return %d, %c }")
    assert {place.offset % ALIGNMENT for place in arena_places(plan)} == {0}


# Updates

def test_an_update_is_computed_over_the_old_value() -> None:
    graph = parse("graph(%p: f32[256], %g: f32[256]) { %n: f32[256] = sub(%p, %g) update %p = %n return }")
    _, plan = planned(graph)
    assert where(plan, graph.updates[0][1]) == ("input", 0)
    assert plan.arena_bytes == 0 and not plan.after


def test_an_update_waits_for_readers_of_the_old_value() -> None:
    graph = parse("graph(%p: f32[256], %g: f32[256]) { %n: f32[256] = sub(%p, %g) %l: f32[256] = mul(%p, %n) "
                  "update %p = %n return %l }")
    _, plan = planned(graph)
    assert where(plan, graph.updates[0][1]) == ("arena", 0)
    assert [(source.where, target.where, target.index) for source, target in plan.after] == [("arena", "input", 0)]


def test_readers_of_the_new_value_find_it_in_the_updated_memory() -> None:
    graph = parse("graph(%p: f32[256], %g: f32[256]) { %n: f32[256] = sub(%p, %g) %l: f32[256] = mul(%g, %n) "
                  "update %p = %n return %l }")
    _, plan = planned(graph)
    assert where(plan, graph.updates[0][1]) == ("input", 0) and not plan.after


def test_an_update_that_reads_its_memory_through_a_view_is_copied_at_the_end() -> None:
    plan = plan_of("graph(%p: f32[16,16]) { %t: f32[16,16] = permute(%p, axes=(1,0)) %n: f32[16,16] = add(%p, %t) "
                   "update %p = %n return }")
    assert len(plan.after) == 1 and plan.arena_bytes == KILOBYTE


def test_an_update_by_a_kernel_that_may_not_write_over_its_operand_is_copied() -> None:
    plan = plan_of("graph(%p: f32[16,16]) { %n: f32[16,16] = matmul(%p, %p) update %p = %n return }")
    assert len(plan.after) == 1


def test_two_inputs_are_swapped() -> None:
    plan = plan_of("graph(%a: f32[256], %b: f32[256]) { update %a = %b update %b = %a return }")
    assert len(plan.before) == len(plan.after) == 2 and plan.arena_bytes == 2 * KILOBYTE


def test_an_update_with_itself_is_nothing() -> None:
    plan = plan_of("graph(%a: f32[256]) { update %a = %a return }")
    assert not plan.before and not plan.after and plan.arena_bytes == 0


def test_crossed_updates() -> None:
    """a ← b + 1 and b ← a + 1: one waits in the arena, the other goes in place."""
    plan = plan_of("graph(%a: f32[256], %b: f32[256]) { %c: f32[256] = add(%b, 1.0) %d: f32[256] = add(%a, 1.0) "
                   "update %a = %c update %b = %d return }")
    assert len(plan.after) == 1 and plan.arena_bytes == KILOBYTE


def test_two_updates_with_one_value() -> None:
    plan = plan_of("graph(%a: f32[256], %b: f32[256]) { %c: f32[256] = add(%b, %a) update %a = %c update %b = %c "
                   "return }")
    assert len(plan.after) == 1


@pytest.mark.parametrize("value", ["%a", "%v", "%y"])
def test_a_value_that_is_output_and_update(value: str) -> None:
    plan_of("graph(%a: f32[16,16], %b: f32[16,16]) { %y: f32[16,16] = exp(%b) %v: f32[16,16] = permute(%a, axes=(1,0)) "
            f"update %b = {value} return {value} }}")


# Outputs

def test_an_input_that_is_an_output_is_copied_before_anything_runs() -> None:
    plan = plan_of("graph(%a: f32[256]) { %b: f32[256] = exp(%a) update %a = %b return %a }")
    assert [(source.where, target.where) for source, target in plan.before] == [("input", "output")]
    assert not plan.after


def test_a_value_that_is_two_outputs_is_written_once_and_copied() -> None:
    graph = parse("graph(%a: f32[256]) { %b: f32[256] = exp(%a) return %b, %b, %a, %a }")
    _, plan = planned(graph)
    assert [(at, place.index) for at, _, place in plan.copies] == [(0, 1)]
    assert [target.index for _, target in plan.before] == [2, 3]


def test_a_view_that_is_an_output_is_copied_while_its_memory_is_good() -> None:
    graph = parse("graph(%a: f32[16,16]) { %b: f32[16,16] = exp(%a) %v: f32[16,16] = permute(%b, axes=(1,0)) "
                  "%c: f32[16,16] = sin(%b) %d: f32[16,16] = exp(%c) return %v, %d }")
    _, plan = planned(graph)
    assert [place.index for _, _, place in plan.copies] == [0]
    assert plan.arena_bytes == KILOBYTE


def test_the_cuda_schedule_gets_a_plan_too() -> None:
    """Groups of the fuser: several outputs, in place where the group says so."""
    text = """graph(%x: f32[64,64]@cuda:0, %w: f32[64]@cuda:0, %p: f32[64,64]@cuda:0) {
        %a: f32[64,64]@cuda:0 = layer_norm(%x, %w, %w, ndim=1, eps=1e-05)
        %b: f32[64,64]@cuda:0 = matmul(%a, %p)
        %c: f32[64,64]@cuda:0 = exp(%b)
        %d: f32[64]@cuda:0 = sum(%c, axes=(0,))
        %e: f32[64,64]@cuda:0 = add(%p, %c)
        %t: f32[64,64]@cuda:0 = permute(%e, axes=(1,0))
        update %p = %e
        return %d, %t, %e
    }"""
    from genesis.passes.pipeline import run_passes
    backend = backend_named("cuda")
    passed = run_passes(parse(text), backend)
    plan = passed.memory
    check_plan(passed.schedule, plan, backend.may_overwrite)
    assert plan.max_live_bytes <= plan.arena_bytes


def test_a_view_of_a_view_keeps_the_value_that_both_show() -> None:
    plan_of("""graph(%x: f32[16,16]) {
        %y: f32[16,16] = exp(%x)
        %a: f32[16,16] = permute(%y, axes=(1,0))
        %b: f32[4,4,16] = reshape(%a, shape=(4,4,16))
        %c: f32[8,32] = reshape(%y, shape=(8,32))
        %d: f32[4,64] = reshape(%c, shape=(4,64))
        %u: f32[16,16] = sin(%x)
        %v: f32[16,16] = cos(%u)
        %w: f32[4,64] = neg(%d)
        return %v, %w }""")


def test_an_update_waits_for_what_an_output_shows_of_the_old_content() -> None:
    plan_of("""graph(%x: f32[6]) {
        %v: f32[2,3] = reshape(%x, shape=(2,3))
        %n: f32[6] = mul(%x, %x)
        update %x = %n
        return %v }""", anywhere)


def test_two_results_of_one_group_are_not_made_over_one_operand() -> None:
    graph = parse("""graph(%x: f32[256]) { %a: f32[256] = exp(%x) %p: f32[256] = sin(%a) %q: f32[256] = cos(%a)
                     %r: f32[256] = mul(%p, %q) return %r }""")
    x, (a, p, q, r) = graph.inputs[0], [node for node in graph.nodes if node.inputs]
    groups = (Group("loop", (a,), (x,), (a,), ""), Group("loop", (p, q), (a,), (p, q), ""),
              Group("loop", (r,), (p, q), (r,), ""))
    places = plan_memory(Schedule(graph, groups), anywhere).places
    assert places[p].where == places[q].where == "arena" and places[p].offset != places[q].offset


def test_a_value_of_a_larger_dtype_is_not_made_over_its_operand() -> None:
    """Even for a backend that would: it reaches into the neighbour."""
    text = """graph(%x: f32[256]) { %a: f32[256] = exp(%x) %s: f32[256] = sin(%x) %b: f64[256] = cast(%a, dtype=f64)
              %c: f64[256] = neg(%b) %d: f32[256] = cos(%s) return %c, %d }"""
    schedule = group_per_op(parse(text), lower.is_view)
    plan = plan_memory(schedule, lambda group, output, operand: True)
    a, s, b = (next(node for node in schedule.graph.nodes if node.op.name == name) for name in ("exp", "sin", "cast"))
    assert plan.places[b].offset != plan.places[a].offset and plan.places[s].where == "arena"


def test_the_rest_of_a_range_is_used_and_neighbours_are_joined() -> None:
    assert arranged([(0, 4096), (0, None), (1, 1024), (2, 1024)]).offsets == [0, 0, 1024]
    joined = arranged([(0, 1024), (1, 1024), (2, 512), (0, None), (1, None), (3, 2048)])
    assert (joined.offsets, joined.size) == ([0, 1024, 2048, 0], 2560)
    joined = arranged([(0, 1024), (1, 1024), (2, 512), (1, None), (0, None), (3, 2048)])
    assert (joined.offsets, joined.size) == ([0, 1024, 2048, 0], 2560)
