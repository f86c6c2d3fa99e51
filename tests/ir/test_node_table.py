"""The table of nodes: equal ones are one, and it forgets a node when that ends."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import genesis
from genesis.engine.plan_lookup import last_plan
from genesis.ir import OPS, literal, make, number, numbers
from genesis.ir import node as nodes
from genesis.runtime.plan import Call


def sine(of: Any) -> Any:
    return make(OPS["sin"], (of,))


def test_equal_nodes_are_one_until_they_end() -> None:
    x = literal(0.375)
    before = len(nodes._table)
    first = sine(x)
    assert sine(x) is first and len(nodes._table) == before + 1
    del first
    assert len(nodes._table) == before


def test_a_node_takes_the_place_of_one_that_is_a_tensors_own() -> None:
    x = literal(0.625)
    before = len(nodes._table)
    first = sine(x)
    first.shown = True
    second = sine(x)
    assert second is not first
    del first
    assert sine(x) is second
    del second
    assert len(nodes._table) == before


def test_no_line_of_python_runs_where_a_node_ends() -> None:
    """An interrupt there would be printed and forgotten."""
    x = literal(0.875)
    held, calls = [sine(sine(x))], list[str]()
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        held.clear()
    finally:
        sys.setprofile(None)
    assert calls == []


def test_a_recorded_value_that_gradients_flow_through_is_in_no_table() -> None:
    """It is its tensor's own: to look for an equal one, and to be found, would be for nothing."""
    x = genesis.full((3,), 0.25, requires_grad=True)
    y, z = x.exp(), x.exp()
    held = [entry() for entry in nodes._table.values()]
    assert y.storage.node is not z.storage.node
    assert y.storage.node not in held and z.storage.node not in held
    with genesis.no_grad():
        assert x.sin().storage.node is x.sin().storage.node


def test_equal_values_of_two_tensors_are_computed_once() -> None:
    x = genesis.full((3,), 0.25, requires_grad=True)
    (x.exp() * x.exp()).tolist()
    plan = last_plan()
    assert plan is not None
    assert [call.label.split()[0] for call in plan.plan.steps if isinstance(call, Call)].count("exp") == 1


def test_equal_numbers_are_one_node_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "_apart", False)  # an endless loop of a test before may have asked for it
    first = number(0.8125)
    assert number(0.8125) is first and first.type.weak and (first.op, first.attrs) in nodes._table
    assert number(0.0) is not number(0.0)
    key = first.op, first.attrs
    del first
    assert key not in nodes._table
