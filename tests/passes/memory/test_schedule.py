"""The order in which groups run."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genesis.codegen.cpu import lower
from genesis.ir import Graph, Node
from genesis.ir.parser import parse
from genesis.passes.fusion.group_per_op import group_per_op
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory.arena import aligned
from genesis.passes.memory.plan_memory import plan_memory
from genesis.passes.memory.schedule import Lives, lower_peak, order_groups
from tests.passes.memory.simulate import check_plan
from tests.passes.random_graphs import graphs


def ordered(graph: Graph) -> Schedule:
    """The CPU's groups, in an order with a lower peak."""
    return lower_peak(group_per_op(graph, lower.is_view))


def ops(schedule: Schedule) -> list[str]:
    """The op of each group."""
    return [group.nodes[0].op.name for group in schedule.groups]


def test_what_is_read_late_is_made_late() -> None:
    """`exp` is read at the end alone; until then its 4 KB are not there, and x is there anyway."""
    schedule = ordered(parse("""graph(%x: f32[1024]) {
        %a: f32[1024] = exp(%x)
        %b: f32[1024] = sin(%x)
        %c: f32[1024] = mul(%b, %x)
        %s: f32[] = sum(%c, axes=(0,))
        %e: f32[1024] = expand(%s, shape=(1024,))
        %r: f32[1024] = add(%a, %e)
        return %r
    }"""))
    assert ops(schedule) == ["sin", "mul", "sum", "expand", "exp", "add"]


def test_what_ends_lives_runs_early() -> None:
    """The last layer's sum is asked for first: the sums of those before end the lives of their values meanwhile."""
    schedule = ordered(parse("""graph(%x: f32[64,64], %w: f32[64,64]) {
        %a: f32[64,64] = matmul(%x, %w)
        %b: f32[64,64] = matmul(%a, %w)
        %c: f32[64,64] = matmul(%b, %w)
        %l: f32[64] = sum(%c, axes=(1,))
        %k: f32[64] = sum(%b, axes=(1,))
        %j: f32[64] = sum(%a, axes=(1,))
        return %l, %k, %j
    }"""))
    assert ops(schedule) == ["matmul", "sum", "matmul", "sum", "matmul", "sum"]


def test_an_order_that_gains_nothing_is_left_alone() -> None:
    graph = parse("""graph(%x: f32[64]) {
        %a: f32[64] = exp(%x)
        %b: f32[64] = sin(%x)
        %r: f32[64] = add(%a, %b)
        return %r
    }""")
    schedule = group_per_op(graph, lower.is_view)
    assert lower_peak(schedule) is schedule


def test_old_content_is_read_before_it_is_overwritten() -> None:
    """The sum reads p as it was; it is large and could come last, but p is updated then."""
    graph = parse("""graph(%p: f32[1024]) {
        %a: f32[1024] = exp(%p)
        %q: f32[1024] = sin(%p)
        %r: f32[1024] = add(%q, %q)
        %t: f32[] = sum(%r, axes=(0,))
        %e: f32[1024] = expand(%t, shape=(1024,))
        %o: f32[1024] = add(%a, %e)
        update %p = %q
        return %o
    }""")
    schedule = ordered(graph)
    plan = plan_memory(schedule, lower.may_overwrite)
    check_plan(schedule, plan, lower.may_overwrite)
    assert ops(schedule).index("exp") < ops(schedule).index("sin")


def test_a_second_computation_waits_for_what_it_names() -> None:
    graph = parse("""graph(%x: f32[64], %y: f32[64]) {
        %a: f32[64] = recompute(%x, %y)
        %b: f32[64] = sin(%y)
        %c: f32[64] = recompute(%x, %b)
        %d: f32[64] = exp(%c)
        return %d, %b, %a
    }""")
    names = ops(ordered(graph))
    assert names.index("sin") < names.index("exp")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs())
def test_any_program_keeps_its_meaning_and_its_peak_does_not_rise(graph: Graph) -> None:
    before = group_per_op(graph, lower.is_view)
    after = lower_peak(before)
    assert set(after.groups) == set(before.groups)
    plan = plan_memory(after, lower.may_overwrite)
    check_plan(after, plan, lower.may_overwrite)


def alive_by_definition(schedule: Schedule, order: list[int]) -> list[int]:
    """For each place of an order the bytes of what is made there or before and read there or later: of every value but
    views, outputs and what an update writes."""
    maker = {node: group for group in schedule.groups for node in group.outputs}
    place = {schedule.groups[i].outputs: at for at, i in enumerate(order)}
    found = [0] * len(order)

    def shown(x: Node) -> Node:
        while x in maker and maker[x].kind == "view":
            x = maker[x].inputs[0]
        return x

    for value in set(map(shown, maker)).intersection(maker):
        if value not in schedule.graph.outputs and value not in [new for _, new in schedule.graph.updates]:
            made = place[maker[value].outputs]
            read = [place[group.outputs] for group in schedule.groups if value in map(shown, group.inputs)]
            for at in range(made, max([made, *read]) + 1):
                found[at] += aligned(value.type.nbytes)
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs())
def test_what_is_alive_is_what_was_made_and_is_still_read(graph: Graph) -> None:
    schedule = group_per_op(graph, lower.is_view)
    lives, recorded = Lives(schedule), list(range(len(schedule.groups)))
    for order in (recorded, lives.late(recorded), lives.early()):
        assert sorted(order) == recorded
        assert lives.alive(order) == alive_by_definition(schedule, order)


def test_a_reader_that_moved_still_keeps_its_operand() -> None:
    """The cast, which makes twice what it ends, moves to its reader at the end, and x stays for it. So the sine, which
    stands before, does not end x any more and moves to its reader, too, and x itself right before that."""
    found = group_per_op(parse("""graph(%i: f32[1024]) {
        %x: f32[1024] = exp(%i)
        %a: f32[1024] = sin(%x)
        %p: f32[1024] = tanh(%a)
        %b: f64[1024] = cast(%x, dtype=f64)
        %z: f32[1024] = cos(%i)
        %q: f64[1024] = neg(%b)
        return %p, %z, %q
    }"""), lower.is_view)
    by_op = {group.nodes[0].op.name: group for group in found.groups}
    given = ["exp", "sin", "cast", "cos", "tanh", "neg"]
    schedule = replace(found, groups=tuple(by_op[name] for name in given))
    assert [given[i] for i in Lives(schedule).late(range(6))] == ["cos", "exp", "sin", "tanh", "cast", "neg"]


def test_a_group_runs_after_what_it_names_without_reading_it() -> None:
    graph = parse("graph(%x: f32[4]) { %a: f32[4] = exp(%x) %b: f32[4] = sin(%x) return %a, %b }")
    a, b = graph.outputs
    first, second = (Group("loop", (node,), graph.inputs, (node,), "", after=after) for node, after in ((a, (b,)),
                                                                                                     (b, ())))
    assert order_groups([first, second]) == (second, first)


def any_order(lives: Lives, random: Random) -> list[int]:
    """An order in which nothing runs before what it needs."""
    waiting = [set(before) for before in lives.before]
    order: list[int] = []
    while len(order) < len(waiting):
        order.append(random.choice([i for i, before in enumerate(waiting) if i not in order and not before - {*order}]))
    return order


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(graphs(), st.randoms(use_true_random=False))
def test_no_order_has_less_alive_at_a_group_than_the_least(graph: Graph, random: Random) -> None:
    lives = Lives(group_per_op(graph, lower.is_view))
    given_order = list(range(len(lives.made)))
    for order in (given_order, lives.early(), lives.late(given_order), any_order(lives, random)):
        alive = lives.alive(order)
        assert all(lives.least(group) <= alive[at] for at, group in enumerate(order))


def test_the_least_counts_a_value_of_each_chain() -> None:
    """At the sum are alive: what it reads, %a, which is read behind it, and either %q or both %b and %c."""
    schedule = group_per_op(parse("""graph(%x: f32[1024]) {
        %a: f32[1024] = exp(%x)
        %b: f32[1024] = sin(%a)
        %c: f32[1024] = cos(%a)
        %q: f32[1024] = mul(%b, %c)
        %u: f32[1024] = sub(%a, %b)
        %t: f32[1024] = sub(%u, %c)
        %s: f32[] = sum(%t, axes=(0,))
        %e: f32[1024] = expand(%s, shape=(1024,))
        %r: f32[1024] = mul(%q, %e)
        %l: f32[1024] = mul(%r, %a)
        return %l
    }"""), lower.is_view)
    at = ops(schedule).index("sum")
    assert Lives(schedule).least(at) == 2 * 4096 + 4096 + 512


def test_no_other_order_is_tried_where_none_can_be_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a chain that a backward reads are all alive at its turn, in any order."""
    lines = [f"%f{i}: f32[1024] = sin(%f{i - 1})" for i in range(1, 20)]
    back = [f"%g{i}: f32[1024] = mul(%g{i + 1}, %f{i})" for i in range(18, -1, -1)]
    text = "\n".join(["graph(%x: f32[1024]) {", "%f0: f32[1024] = exp(%x)", *lines,
                      "%g19: f32[1024] = mul(%f19, %f19)", *back, "return %g0 }"])
    schedule = group_per_op(parse(text), lower.is_view)
    monkeypatch.setattr(Lives, "late", None)
    assert lower_peak(schedule) is schedule
