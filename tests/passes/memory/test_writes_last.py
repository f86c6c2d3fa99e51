"""What overwrites memory stands at the end, and is made elsewhere first where something must follow it."""

from __future__ import annotations

import pytest

from genesis.engine.backends import backend_named
from genesis.engine.compilation import compile_graph
from genesis.ir.parser import parse
from genesis.ir.types import cpu
from genesis.passes.pipeline import run_passes
from genesis.runtime.plan import Call


def order_of(body: str) -> list[str]:
    """The names of the ops, in the order in which the CPU computes them."""
    return [group.nodes[0].op.name for group in run_passes(parse(body), backend_named("cpu")).schedule.groups]


def places_of_updates(body: str) -> list[str]:
    """Where the values are made that overwrite inputs."""
    passed = run_passes(parse(body), backend_named("cpu"))
    return [passed.memory.places[value].where for _, value in passed.schedule.graph.updates]


WRITE_FIRST = ("graph(%x: f32[2,2], %y: f32[2,2]) { %a: f32[2,2] = exp(%x) %b: f32[2,2] = matmul(%y, %y) "
               "update %x = %a return %b }")
READ_BY_ANOTHER = ("graph(%x: f32[2,2]) { %a: f32[2,2] = exp(%x) %b: f32[2,2] = matmul(%a, %a) update %x = %a "
                   "return %b }")
READ_BY_A_WRITE = ("graph(%x: f32[2,2], %y: f32[2,2]) { %a: f32[2,2] = exp(%x) %b: f32[2,2] = mul(%a, %y) "
                   "%c: f32[2,2] = exp(%y) update %x = %a update %y = %b return %c }")


def test_a_write_goes_to_the_end_and_into_its_memory() -> None:
    assert order_of(WRITE_FIRST) == ["matmul", "exp"]
    assert places_of_updates(WRITE_FIRST) == ["input"]


def test_what_a_product_reads_is_made_elsewhere_and_copied() -> None:
    """A line of Python runs between the two: an exception there must not find half of the writes done."""
    assert places_of_updates(READ_BY_ANOTHER) == ["arena"]


def test_writes_that_read_each_other_are_made_in_place() -> None:
    assert places_of_updates(READ_BY_A_WRITE) == ["input", "input"]


@pytest.mark.parametrize("program", [WRITE_FIRST, READ_BY_ANOTHER, READ_BY_A_WRITE])
def test_from_the_first_write_on_all_calls_have_a_late_form(program: str) -> None:
    plan = compile_graph(parse(program), cpu).plan
    inputs = {index for index, start in enumerate(plan.registers) if getattr(start, "where", "") == "input"}
    writing = [at for at, call in enumerate(plan.steps) if not inputs.isdisjoint(call.outs)]  # type: ignore[union-attr]
    late = plan.steps[writing[0]:]
    assert writing and all(isinstance(call, Call) and (call.late or call.kind in ("view", "number")) for call in late)
