"""Inputs that a program returns: copied by a kernel that there is anyway."""

from __future__ import annotations

from genesis.engine.backends import backend_named
from genesis.ir import Graph
from genesis.ir.ops import pointwise as p
from genesis.ir.parser import parse
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph.snapshots import copy_returned_inputs
from genesis.passes.memory.plan_memory import plan_memory
from tests.codegen.cuda.programs import inputs
from tests.passes.texts import assert_text

MAY_OVERWRITE = backend_named("cuda").may_overwrite


def test_an_output_that_is_overwritten_is_a_copy() -> None:
    before = parse("graph(%p: f32[8], %g: f32[8]) { %q: f32[8] = sub(%p, %g) update %p = %q return %p, %g }")
    assert_text(copy_returned_inputs(before), """graph(%p: f32[8], %g: f32[8]) {
        %q: f32[8] = sub(%p, %g)
        %c: f32[8] = cast(%p, dtype=f32)
        update %p = %q
        return %c, %g
    }""")


def test_inputs_that_stay_as_they_are_stay() -> None:
    graph = parse("graph(%p: f32[8], %g: f32[8]) { %q: f32[8] = sub(%p, %g) update %p = %q return %q, %g }")
    assert copy_returned_inputs(graph) is graph


def test_around_sums_at_places_an_input_that_is_returned_is_a_copy_too() -> None:
    """The gradient of what is added to: as a launch of its own the copy took 3 of 15 us (H200)."""
    before = parse("graph(%x: f32[4,9], %i: i64[4,8], %y: f32[4,8], %g: f32[4,9]) { "
                   "%s: f32[4,9] = scatter_add(%x, %i, %y, axis=1) return %s, %g, %g }")
    found = copy_returned_inputs(before)
    assert [x.op.name for x in found.outputs] == ["scatter_add", "cast", "cast"]
    assert all(x.inputs == (before.inputs[3],) for x in found.outputs[1:])


def test_the_copies_of_all_parameters_are_made_by_the_launch_that_updates_them() -> None:
    shapes = [(6, 4), (4,), (128,)]
    parameters, gradients = inputs(*shapes), inputs(*shapes, *shapes)[3:]
    updated = [x - p.tanh(g) * 0.5 for x, g in zip(parameters, gradients, strict=True)]
    graph = copy_returned_inputs(Graph((*parameters, *gradients), parameters,
                                       tuple(zip(parameters, updated, strict=True))))
    schedule = fuse(graph)
    only, = schedule.groups
    assert (only.kind, len(only.members), len(only.outputs)) == ("foreach", 3, 6)
    plan = plan_memory(schedule, MAY_OVERWRITE)
    assert not (plan.before or plan.after or plan.copies or plan.arena_bytes)
    for x, new, old in zip(parameters, updated, graph.outputs, strict=True):
        assert (plan.places[new].where, plan.places[new].index) == ("input", x["index"])
        assert plan.places[old].where == "output"
