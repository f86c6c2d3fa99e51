"""group_messages: neighbouring messages become one op where none waits for another."""

from __future__ import annotations

from genesis.ir.graph import Graph
from genesis.ir.parser import parse
from genesis.ir.printer import print_graph
from genesis.ir.verify import verify
from genesis.passes.graph.group_messages import group_messages

RECV = 'to=(), shapes=((4,),), dtypes=(f32,), device=cuda:0, communicator="group0"'
SEND = 'sources=(), shapes=(), dtypes=(), device=cuda:0, communicator="group0"'


def _grouped(text: str) -> tuple[Graph, list[tuple[object, object]]]:
    graph = verify(group_messages(verify(parse(text))))
    assert parse(print_graph(graph)) == graph
    return graph, [(node["to"], node["sources"]) for node in graph.nodes if node.op.name == "messages"]


def test_a_receipt_and_what_is_sent_behind_it_are_one() -> None:
    """A ring: from the process before, to the one behind, and back. What is sent is computed after what is received
    was asked for."""
    graph, calls = _grouped(f"""\
graph(%0: f32[4]@cuda:0, %1: i32[1]@cuda:0) {{
  %2: (f32[4]@cuda:0, i32[1]@cuda:0) = messages(%1, sources=(3,), {RECV})
  %3: i32[1]@cuda:0 = item(%2, index=1)
  %4: f32[4]@cuda:0 = exp(%0)
  %5: (i32[1]@cuda:0) = messages(%4, %3, to=(1,), {SEND})
  %6: i32[1]@cuda:0 = item(%5, index=0)
  %7: (f32[4]@cuda:0, i32[1]@cuda:0) = messages(%6, sources=(1,), {RECV})
  %8: i32[1]@cuda:0 = item(%7, index=1)
  %9: f32[4]@cuda:0 = item(%2, index=0)
  %10: f32[4]@cuda:0 = item(%7, index=0)
  update %1 = %8
  return %9, %10
}}""")
    assert calls == [((1,), (3, 1))]
    first, second = graph.outputs
    assert (first["index"], second["index"], graph.updates[0][1]["index"]) == (0, 1, 2)
    assert first.inputs == second.inputs == graph.updates[0][1].inputs


def test_what_is_made_of_a_message_is_sent_after_it() -> None:
    _, calls = _grouped(f"""\
graph(%0: i32[1]@cuda:0) {{
  %1: (f32[4]@cuda:0, i32[1]@cuda:0) = messages(%0, sources=(0,), {RECV})
  %2: f32[4]@cuda:0 = item(%1, index=0)
  %3: f32[4]@cuda:0 = exp(%2)
  %4: i32[1]@cuda:0 = item(%1, index=1)
  %5: (i32[1]@cuda:0) = messages(%3, %4, to=(2,), {SEND})
  %6: i32[1]@cuda:0 = item(%5, index=0)
  update %0 = %6
  return %2
}}""")
    assert calls == [((), (0,)), ((2,), ())]


def test_a_message_does_not_wait_for_what_another_collective_brings_to_the_next_one() -> None:
    """That one may come from a process that waits for the first message; and collectives of the group stay between."""
    _, calls = _grouped(f"""\
graph(%0: f32[4]@cuda:0, %1: i32[1]@cuda:0, %2: i32[1]@cuda:0) {{
  %3: (i32[1]@cuda:0) = messages(%0, %1, to=(1,), {SEND})
  %4: i32[1]@cuda:0 = item(%3, index=0)
  %5: (f32[4]@cuda:0, i32[1]@cuda:0) = all_reduce(%0, %2, communicator="group1", reduce="sum")
  %6: f32[4]@cuda:0 = item(%5, index=0)
  %7: (i32[1]@cuda:0) = messages(%6, %4, to=(1,), {SEND})
  %8: i32[1]@cuda:0 = item(%7, index=0)
  %9: (f32[4]@cuda:0, i32[1]@cuda:0) = all_reduce(%0, %8, communicator="group0", reduce="sum")
  %10: i32[1]@cuda:0 = item(%9, index=1)
  %11: (i32[1]@cuda:0) = messages(%0, %10, to=(1,), {SEND})
  %12: i32[1]@cuda:0 = item(%11, index=0)
  %13: i32[1]@cuda:0 = item(%5, index=1)
  %14: f32[4]@cuda:0 = item(%9, index=0)
  update %1 = %12
  update %2 = %13
  return %14
}}""")
    assert calls == [((1,), ())] * 3


def test_other_programs_stay() -> None:
    graph = parse("graph(%0: f32[4]) {\n  %1: f32[4] = exp(%0)\n  return %1\n}")
    assert group_messages(graph) is graph
