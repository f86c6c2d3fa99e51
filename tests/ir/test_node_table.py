"""The table of nodes: equal ones are one, and it forgets a node when that ends."""

from __future__ import annotations

import sys
from typing import Any

from genesis.ir import OPS, literal, make
from genesis.ir import node as nodes


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
