"""Groups as calls over registers."""

from __future__ import annotations

from collections import Counter

import pytest

from genesis.codegen.cpu import lower
from genesis.ir import OPS, Graph, tensor_type
from genesis.ir.node import make_apart
from genesis.ir.ops import leaves
from genesis.ir.parser import parse
from genesis.ir.types import float32
from genesis.passes.fusion.group_per_op import group_per_op
from genesis.passes.memory.plan_memory import plan_memory

READERS = 20


def test_what_a_value_is_lowered_by_is_not_asked_for_by_each_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call does follows from its op and from the types of what it reads: it is asked once for all such calls,
    which share what does not differ."""
    lines = "\n".join(f"%r{i}: f32[4] = tanh(%v{i})\n%v{i + 1}: f32[4] = add(%r{i}, %a)" for i in range(READERS))
    schedule = group_per_op(parse(f"graph(%x: f32[4]) {{ %a: f32[4] = exp(%x) %v0: f32[4] = sin(%a)\n{lines}\n"
                                  f"return %v{READERS} }}"), lower.is_view)
    memory = plan_memory(schedule, lower.may_overwrite)
    asked: Counter[str] = Counter()
    found = lower._row
    monkeypatch.setattr(lower, "_row", lambda node: asked.update([node.op.name]) or found(node))
    calls, registers = lower.lower(schedule, memory)
    assert len(calls) == len(schedule.groups) == 2 * READERS + 2
    assert asked == dict.fromkeys(("exp", "sin", "tanh", "add"), 1)
    assert len({id(call.attributes) for call in calls}) == 4
    read = [x for call in calls for x in call.args]
    assert max(Counter(read).values()) == READERS + 1, "all readers have one register for the value"
    assert len(registers) == len(calls) + 1


def test_equal_attributes_of_other_classes_are_told_apart() -> None:
    """A slope is the integer 1 in one call and 1.0 in the other."""
    x = leaves.input(index=0, type=tensor_type((4,), float32))
    y = make_apart(OPS["leaky_relu"], (x,), (1,))
    z = make_apart(OPS["leaky_relu"], (y,), (1.0,))
    schedule = group_per_op(Graph((x,), (z,)), lower.is_view)
    calls, _ = lower.lower(schedule, plan_memory(schedule, lower.may_overwrite))
    assert [repr(call.attributes["slope"]) for call in calls] == ["1", "1.0"]
