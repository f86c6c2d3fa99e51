"""bucket_gradients: a reduction of all gradients becomes one all_reduce a bucket, in a chain."""

from __future__ import annotations

from genesis.ir.parser import parse
from genesis.ir.printer import print_graph
from genesis.ir.verify import verify
from genesis.nn.parallel.bucket_size import cap_for
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


def buckets(sizes: list[int], first: int, cap: int) -> list[int]:
    """How many gradients of so many bytes each bucket has."""
    types = ", ".join(f"f32[{size // 4}]" for size in sizes)
    order = len(sizes)
    inputs = ", ".join(f"%{at}: {kind}" for at, kind in enumerate(types.split(", ")))
    graph = verify(bucket_gradients(parse(f"""\
graph({inputs}, %{order}: i32[1]) {{
  %a: ({types}, i32[1]) = reduce_gradients({", ".join(f"%{at}" for at in range(order + 1))}, communicator="group0",\
                                 first={first}, cap={cap})
  %b: i32[1] = item(%a, index={order})
  update %{order} = %b
  return %0
}}""")))
    return [len(node.inputs) - 1 for node in graph.nodes if node.op.name == "all_reduce"]


def test_buckets_are_as_large_as_is_said_and_grow_with_the_root_of_the_whole_where_nobody_says() -> None:
    """On four H200s 8 MiB in all have buckets of 13 MiB, which is one, 64 have buckets of 38, 256 of 76, and 192 of 66:
    there a table of 128 MiB, larger than any, is a bucket of its own. On PCIe they are a quarter as large."""
    layer = 8 << 20

    def chosen(sizes: list[int], rate: float = 3.6e11) -> list[int]:
        cap = cap_for(sum(sizes), rate, 4)
        return buckets(sizes, cap, cap)

    assert buckets([layer] * 8, 1 << 20, 25 << 20) == [1, 3, 3, 1], "as the user says"
    assert chosen([layer // 8] * 8) == [8]
    assert chosen([layer] * 8) == [4, 4]
    assert chosen([layer] * 32) == [9, 9, 9, 5]
    assert chosen([layer] * 8 + [16 * layer]) == [8, 1]
    assert chosen([layer] * 8, 2e10) == [1] * 8 and chosen([layer] * 32, 2e10) == [2] * 16


def test_programs_without_gradients_to_reduce_stay() -> None:
    graph = parse("graph(%0: f32[4]) {\n  %1: f32[4] = exp(%0)\n  return %1\n}")
    assert bucket_gradients(graph) is graph


def test_collectives_whose_results_nobody_reads_stay() -> None:
    """What comes next in the communicator's order needs them."""
    graph = bucket_gradients(parse(BEFORE.replace("return %5, %6, %7", "return")))
    assert sum(node.op.name == "all_reduce" for node in canonicalize(graph).nodes) == 2
