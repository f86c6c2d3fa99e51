"""reduce_early: what ranks reduce is made before what only later reductions need."""

from __future__ import annotations

from dataclasses import replace

from genesis.codegen.cpu import lower
from genesis.ir.parser import parse
from genesis.passes.fusion.group_per_op import group_per_op
from genesis.passes.groups import Schedule
from genesis.passes.memory.reduce_early import reduce_early


def backward(layers: int) -> Schedule:
    """Gradients of layers' inputs, of weights behind them all, and a reduction of each weight's, the last layer's
    first, as a graph has them in the order of its results."""
    lines = ["graph(%x: f32[8,8], %o: i32[1], " + ", ".join(f"%w{i}: f32[8,8]" for i in range(layers)) + ") {"]
    above = "%x"
    for i in reversed(range(layers)):
        lines.append(f"  %x{i}: f32[8,8] = matmul({above}, %w{i})")
        above = f"%x{i}"
    lines += [f"  %g{i}: f32[8,8] = matmul(%x{i}, %x)" for i in range(layers)]
    order = "%o"
    for i in reversed(range(layers)):
        lines += [f'  %c{i}: (f32[8,8], i32[1]) = all_reduce(%g{i}, {order}, communicator="group0", reduce="avg")',
                  f"  %r{i}: f32[8,8] = item(%c{i}, index=0)", f"  %o{i}: i32[1] = item(%c{i}, index=1)"]
        order = f"%o{i}"
    lines += [f"  %u{i}: f32[8,8] = sub(%w{i}, %r{i})" for i in range(layers)]
    lines += [f"  update %w{i} = %u{i}" for i in range(layers)]
    lines += ["  update %o = %o0", "  return %x0", "}"]
    return group_per_op(parse("\n".join(lines)), lower.is_view)


def shown(schedule: Schedule) -> list[str]:
    return [group.nodes[0].op.name for group in schedule.groups]


def test_each_reduction_comes_right_behind_what_it_reduces() -> None:
    given = backward(3)
    found = reduce_early(given, 0)
    assert sorted(map(id, found.groups)) == sorted(map(id, given.groups))
    assert shown(found)[:9] == ["matmul", "matmul", "all_reduce"] * 3
    made = [node for group in found.groups for node in group.outputs]
    for at, group in enumerate(found.groups):
        before = {x for other in found.groups[:at] for x in other.outputs}
        assert all(x in before for x in group.inputs if x in made), "a value is read before it is made"


def test_updates_stand_in_the_order_in_which_their_gradients_arrive() -> None:
    """The program has the first layer's first, whose gradient comes last."""
    given = backward(3)
    given = replace(given, groups=tuple(  # as a GPU's grouping names them
        replace(group, kind="collective") if group.collective is not None else group for group in given.groups))
    found = reduce_early(given, 0)

    def updates(schedule: Schedule) -> list[int]:
        """The layers whose weights are updated, in order."""
        layer = {value: at for at, (_, value) in enumerate(schedule.graph.updates)}
        return [layer[group.outputs[0]] for group in schedule.groups if group.nodes[0].op.name == "sub"]

    assert updates(given) == [0, 1, 2]
    assert updates(found) == [2, 1, 0]


def test_a_gather_of_what_is_in_memory_pulls_nothing_ahead_and_stays() -> None:
    """It stands where the program has it, between two products: what needs it says when."""
    schedule = group_per_op(parse("""\
graph(%x: f32[8,8], %w: f32[4,8], %o: i32[1]) {
  %a: f32[8,8] = matmul(%x, %x)
  %c: (f32[8,8], i32[1]) = all_gather(%w, %o, communicator="group0", world=2)
  %o1: i32[1] = item(%c, index=1)
  %g: f32[8,8] = item(%c, index=0)
  %b: f32[8,8] = matmul(%a, %g)
  %e: f32[8,8] = matmul(%x, %b)
  %d: (f32[8,8], i32[1]) = all_reduce(%a, %o1, communicator="group0", reduce="avg")
  %o2: i32[1] = item(%d, index=1)
  %r: f32[8,8] = item(%d, index=0)
  update %o = %o2
  return %e, %r
}"""), lower.is_view)
    assert shown(schedule) == ["matmul", "all_gather", "matmul", "matmul", "all_reduce"]
    assert shown(reduce_early(schedule, 1 << 20)) == ["matmul", "all_gather", "all_reduce", "matmul", "matmul"]


def with_a_table(rows: int) -> Schedule:
    """Two layers; and a table's gradient, made of many rows of the loss before backward, which is reduced last."""
    return group_per_op(parse(f"""\
graph(%rows: f32[{rows},8], %turned: f32[8,{rows}], %x: f32[8,8], %w: f32[8,8], %o: i32[1]) {{
  %l: f32[{rows},8] = matmul(%rows, %x)
  %t: f32[8,8] = matmul(%turned, %l)
  %x1: f32[8,8] = matmul(%x, %w)
  %x0: f32[8,8] = matmul(%x1, %w)
  %g1: f32[8,8] = matmul(%x1, %x)
  %s: f32[8,8] = add(%t, %x0)
  %c1: (f32[8,8], i32[1]) = all_reduce(%g1, %o, communicator="group0", reduce="avg")
  %o1: i32[1] = item(%c1, index=1)
  %c0: (f32[8,8], i32[1]) = all_reduce(%s, %o1, communicator="group0", reduce="avg")
  %o0: i32[1] = item(%c0, index=1)
  %r1: f32[8,8] = item(%c1, index=0)
  %r0: f32[8,8] = item(%c0, index=0)
  update %o = %o0
  return %r0, %r1
}}"""), lower.is_view)


def test_what_only_the_last_one_needs_hides_the_others_as_far_as_there_is_memory() -> None:
    schedule, rows = with_a_table(64), 64 * 8 * 4
    assert shown(schedule) == ["matmul"] * 4 + ["add", "matmul", "all_reduce", "all_reduce"]
    ahead, kept = (reduce_early(schedule, budget) for budget in (0, rows))
    assert shown(ahead) == ["matmul"] * 4 + ["all_reduce", "matmul", "add", "all_reduce"]
    assert shown(kept) == ["matmul"] * 2 + ["all_reduce"] + ["matmul"] * 3 + ["add", "all_reduce"]
    assert [[group.nodes[0].type.shape for group in found.groups if group.nodes[0].op.name == "matmul"].index((64, 8))
            for found in (ahead, kept)] == [0, 2]


def test_other_programs_stay() -> None:
    schedule = group_per_op(parse("graph(%0: f32[4]) {\n  %1: f32[4] = exp(%0)\n  return %1\n}"), lower.is_view)
    assert reduce_early(schedule, 1 << 20) is schedule
