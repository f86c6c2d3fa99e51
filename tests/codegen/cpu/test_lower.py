"""Groups as calls over registers."""

from __future__ import annotations

from collections import Counter

import pytest

from genesis.codegen.cpu import lower
from genesis.ir import Node
from genesis.ir.parser import parse
from genesis.passes.fusion.group_per_op import group_per_op
from genesis.passes.memory.plan_memory import plan_memory

READERS = 20


def test_what_a_value_is_lowered_by_is_not_asked_for_by_each_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether torch's result is adopted depends on its maker alone: once for its call, once for its register."""
    lines = "\n".join(f"%r{i}: f32[4] = tanh(%v{i})\n%v{i + 1}: f32[4] = add(%r{i}, %a)" for i in range(READERS))
    schedule = group_per_op(parse(f"graph(%x: f32[4]) {{ %a: f32[4] = exp(%x) %v0: f32[4] = sin(%a)\n{lines}\n"
                                  f"return %v{READERS} }}"), lower.is_view)
    memory = plan_memory(schedule, lower.may_overwrite)
    asked: Counter[Node] = Counter()
    found = lower._lowering
    monkeypatch.setattr(lower, "_lowering", lambda node: asked.update([node]) or found(node))
    calls, registers = lower.lower(schedule, memory)
    assert len(calls) == len(schedule.groups) == 2 * READERS + 2
    assert max(asked.values()) <= 2
    read = [x for call in calls for x in call.args]
    assert max(Counter(read).values()) == READERS + 1, "all readers have one register for the value"
    assert len(registers) == len(calls) + 1
