"""bucket_gradients: a reduction of all gradients becomes one all_reduce a bucket, in a chain."""

from __future__ import annotations

from genesis.ir.parser import parse
from genesis.ir.printer import print_graph
from genesis.ir.verify import verify
from genesis.passes.graph.bucket_gradients import bucket_gradients
from genesis.passes.graph.canonicalize import canonicalize

BEFORE = """\
graph(%0: f32[64], %1: f32[64], %2: f32[64], %3: i32[1]) {
  %4: (f32[64], f32[64], f32[64], i32[1]) = reduce_gradients(%0, %1, %2, %3, communicator="group0", first=256, cap=512)
  %5: f32[64] = item(%4, index=0)
  %6: f32[64] = item(%4, index=1)
  %7: f32[64] = item(%4, index=2)
  %8: i32[1] = item(%4, index=3)
  update %3 = %8
  return %5, %6, %7
}"""


def test_each_bucket_follows_the_one_before() -> None:
    """256 bytes a gradient: one in the first bucket, two in the next."""
    graph = verify(bucket_gradients(parse(BEFORE)))
    calls = [node for node in graph.nodes if node.op.name == "all_reduce"]
    assert [len(call.inputs) - 1 for call in calls] == [1, 2]
    assert calls[1].inputs[-1].inputs[0] is calls[0], "the second bucket does not wait for the first"
    assert all(call["reduce"] == "avg" for call in calls)
    assert graph.updates[0][1].inputs[0] is calls[1]
    assert parse(print_graph(graph)) == graph


def test_programs_without_gradients_to_reduce_stay() -> None:
    graph = parse("graph(%0: f32[4]) {\n  %1: f32[4] = exp(%0)\n  return %1\n}")
    assert bucket_gradients(graph) is graph


def test_collectives_whose_results_nobody_reads_stay() -> None:
    """What comes next in the communicator's order needs them."""
    graph = bucket_gradients(parse(BEFORE.replace("return %5, %6, %7", "return")))
    assert sum(node.op.name == "all_reduce" for node in canonicalize(graph).nodes) == 2
