"""group_per_op: on the CPU every op is a group, and views are groups that move nothing."""

from __future__ import annotations

from genesis.codegen.cpu.lower import is_view
from genesis.ir.parser import parse
from genesis.passes.fusion.group_per_op import group_per_op

PROGRAM = """graph(%x: f32[4,6], %w: f32[6]; 1 number) {
  %n: f64~[] = scalar(index=0)
  %m: f64~[] = mul(%n, 2.0)
  %c: f32[4,6] = const(value=1.5)
  %t: f32[6,4] = permute(%x, axes=(1,0))
  %u: f32[4,6] = permute(%t, axes=(1,0))
  %p: f32[4,7] = pad(%u, low=(0,0), high=(0,1))
  %s: f32[4,6] = slice(%p, starts=(0,1), stops=(4,7), steps=(1,1))
  %y: f32[4,6] = add(%s, %c)
  %z: f32[4,6] = mul(%y, %m)
  %q: f32[4,6] = mul(%z, %z)
  %b: (f32[4,6],f32[6]) = layer_norm_backward(%q, %z, %w, ndim=1, eps=1e-05)
  %d: f32[6] = item(%b, index=1)
  return %d, %t
}"""


def test_a_group_for_each_op_in_order() -> None:
    graph = parse(PROGRAM.replace("(f32[4,6],f32[6])", "(f32[4,6],f32[6],f32[6])"))
    schedule = group_per_op(graph, is_view)
    assert schedule.graph is graph
    assert [(group.kind, group.nodes[0].op.name) for group in schedule.groups] == [
        ("view", "permute"), ("view", "permute"), ("call", "pad"), ("view", "slice"), ("call", "const"),
        ("call", "add"), ("call", "mul"), ("call", "mul"), ("call", "layer_norm_backward")]
    assert all(group.reason for group in schedule.groups)


def test_numbers_are_no_values_in_memory() -> None:
    graph = parse("graph(%x: f32[4]; 1 number) { %n: f64~[] = scalar(index=0) %m: f64~[] = mul(%n, 2.0) "
                  "%y: f32[4] = mul(%x, %m) return %y }")
    group, = group_per_op(graph, is_view).groups
    assert group.inputs == (graph.inputs[0],)
    assert group.outputs == graph.outputs


def test_an_operand_is_named_once() -> None:
    graph = parse("graph(%x: f32[4]) { %y: f32[4] = mul(%x, %x) return %y }")
    group, = group_per_op(graph, is_view).groups
    assert group.inputs == (graph.inputs[0],)


def test_several_results_are_outputs_of_one_group_used_or_not() -> None:
    graph = parse("graph(%x: f32[4,6], %w: f32[6]) { %b: (f32[4,6],f32[6],f32[6]) = layer_norm_backward(%x, %x, %w, "
                  "ndim=1, eps=1e-05) %d: f32[6] = item(%b, index=1) return %d }")
    group, = group_per_op(graph, is_view).groups
    assert [str(x.type) for x in group.outputs] == ["f32[4,6]", "f32[6]", "f32[6]"]
    assert group.outputs[1] is graph.outputs[0]
    assert group.nodes == (graph.outputs[0].inputs[0], *group.outputs)


def test_nothing_to_compute() -> None:
    assert group_per_op(parse("graph(%x: f32[4]) { update %x = %x return %x }"), is_view).groups == ()
