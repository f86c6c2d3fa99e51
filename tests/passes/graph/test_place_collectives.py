"""place_collectives: a change of layout becomes a collective along the first dimension."""

from __future__ import annotations

import pytest

from genesis.ir.parser import parse
from genesis.ir.printer import print_graph
from genesis.ir.verify import verify
from genesis.passes.graph.place_collectives import place_collectives


def program(shape: str, result: str, before: str, after: str, size: int, world: int = 2) -> str:
    return f"""\
graph(%0: f32[{shape}], %1: i32[1]) {{
  %2: (f32[{result}], i32[1]) = redistribute(%0, %1, communicator="group0", world={world}, place=1, \
before="{before}", after="{after}", size={size})
  %3: f32[{result}] = item(%2, index=0)
  %4: i32[1] = item(%2, index=1)
  update %1 = %4
  return %3
}}"""


@pytest.mark.parametrize("text, expected", [
    (program("4,6", "4,6", "partial sum", "replicate", 0), ["all_reduce"]),
    (program("4,6", "2,6", "partial sum", "shard 0", 0), ["reduce_scatter"]),
    (program("4,6", "4,3", "partial sum", "shard 1", 0), ["permute", "reduce_scatter", "permute"]),
    (program("4,3", "4,6", "shard 1", "replicate", 6), ["permute", "all_gather", "permute"]),
    (program("4,3", "2,6", "shard 1", "shard 0", 6), ["permute", "all_gather", "permute", "slice"]),
    (program("4,5", "4,2", "partial max", "shard 1", 0), ["permute", "pad", "reduce_scatter", "slice", "permute"]),
    (program("4,2", "4,5", "shard 1", "replicate", 5), ["permute", "pad", "all_gather", "slice", "permute"]),
])
def test_each_change_of_layout(text: str, expected: list[str]) -> None:
    graph = verify(place_collectives(parse(text)))
    assert [node.op.name for node in graph.nodes if node.op.name not in ("input", "item")] == expected
    assert graph.updates[0][1].inputs[0].op.kind == "collective", "the communicator's order does not go on"
    assert parse(print_graph(graph)) == graph


def test_programs_without_changes_of_layout_stay() -> None:
    graph = parse("graph(%0: f32[4]) {\n  %1: f32[4] = exp(%0)\n  return %1\n}")
    assert place_collectives(graph) is graph
