"""most_alive: what a plan's peak is made of."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings

from genesis.codegen.cpu import lower
from genesis.ir import Graph
from genesis.ir.parser import parse
from genesis.passes.fusion.group_per_op import group_per_op
from genesis.passes.memory.most_alive import Alive, most_alive
from genesis.passes.memory.plan_memory import plan_memory
from tests.passes.random_graphs import graphs


def found(graph: Graph) -> tuple[int, Sequence[Alive], int]:
    """The peak's group, what is alive there, and what the plan says that is."""
    schedule = group_per_op(graph, lower.is_view)
    plan = plan_memory(schedule, lower.may_overwrite)
    return *most_alive(schedule, plan), plan.max_live_bytes


def test_the_values_between_which_the_most_is_alive() -> None:
    at, alive, most = found(parse("""graph(%w: f32[256,256]) {
        %a: f32[256] = sum(%w, axes=(0,), keepdims=False) %b: f32[256,256] = exp(%w)
        %c: f32[256] = sum(%b, axes=(1,), keepdims=False) %d: f32[256] = add(%a, %c)
        %e: f32[256] = sin(%d) return %e }"""))
    assert at == 2 and [x.value.op.name for x in alive] == ["exp", "sum", "sum"]
    assert sum(x.nbytes for x in alive) == most


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs())
def test_they_are_as_many_bytes_as_the_plan_says(graph: Graph) -> None:
    """Copies that are kept for the end beside their values are the plan's own."""
    schedule = group_per_op(graph, lower.is_view)
    plan = plan_memory(schedule, lower.may_overwrite)
    _, alive = most_alive(schedule, plan) if schedule.groups else (0, [])
    copies = len({id(source) for source, _ in plan.after} - set(map(id, plan.places.values())))
    assert sum(x.nbytes for x in alive) <= plan.max_live_bytes
    assert copies or sum(x.nbytes for x in alive) == plan.max_live_bytes
