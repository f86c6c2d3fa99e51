"""Gathers begin as many kernels before their first reader as take their time, within a budget of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from genesis.cli.why_collectives import collective_lines
from genesis.codegen.cpu import lower
from genesis.ir.parser import parse
from genesis.passes.fusion.group_per_op import group_per_op
from genesis.passes.groups import Group, Schedule
from genesis.passes.kernel_time import LAUNCH
from genesis.passes.memory.overlap_collectives import LATENCY, overlap_collectives
from genesis.passes.memory.plan_memory import plan_memory
from genesis.passes.memory.schedule import Lives, lower_peak
from tests.passes.memory.simulate import check_plan, overlap

KERNELS = int(-(-LATENCY // LAUNCH))
"""How many of the smallest kernels a collective takes that moves next to nothing: 7."""

ROW, WHOLE = 4 * 64, 4 * 64 * 64
"""Bytes of what the programs compute with, and of a gathered matrix."""


@dataclass
class FastGpu:
    """A GPU on which everything takes the least time that it can."""

    multiprocessors: int = 1
    copy_rate: float = 1e18
    bus_rate: float = 1e18
    dot_flops: int = 1 << 40
    product_rate: float = 1e21

    def streams(self, product: object) -> bool:
        return False

    def streams_parts(self, product: object) -> bool:
        return False

    def stores_beside_sums(self, product: object) -> bool:
        return False


class Program:
    """A program written line by line, whose collectives are in one order."""

    def __init__(self, layers: int):
        inputs = [f"%w{i}: f32[32,64]" for i in range(layers)]
        self._head = f"graph(%x: f32[1,64], {', '.join(inputs)}, %o: i32[1]) {{"
        self._lines: list[str] = []
        self._order, self._calls, self._values = "%o", 0, 0
        self.value = "%x"

    def line(self, kind: str, text: str) -> str:
        self._values += 1
        self._lines.append(f"%v{self._values}: {kind} = {text}")
        return f"%v{self._values}"

    def collective(self, operand: str, result: str, text: str) -> str:
        """A collective; returns what it gives."""
        self._calls += 1
        call = f"%c{self._calls}"
        self._lines.append(f"{call}: ({result}, i32[1]) = {text.format(f'{operand}, {self._order}')}")
        found = self.line(result, f"item({call}, index=0)")
        self._order = self.line("i32[1]", f"item({call}, index=1)")
        return found

    def gather(self, operand: str) -> str:
        return self.collective(operand, "f32[64,64]", 'all_gather({}, communicator="group0", world=2)')

    def scatter(self, operand: str) -> str:
        return self.collective(operand, "f32[32,64]",
                               'reduce_scatter({}, communicator="group0", world=2, reduce="avg")')

    def kernels(self, count: int) -> None:
        for _ in range(count):
            self.value = self.line("f32[1,64]", f"sin({self.value})")

    def multiply(self, whole: str) -> None:
        self.value = self.line("f32[1,64]", f"matmul({self.value}, {whole})")

    def schedule(self, *returned: str) -> Schedule:
        """The CPU's groups, in the order of the least memory."""
        lines = "\n  ".join([self._head, *self._lines, f"update %o = {self._order}"])
        text = f"{lines}\n  return {', '.join((self.value, *returned))}\n}}"
        return lower_peak(group_per_op(parse(text), lower.is_view))


def forward(layers: int, between: int) -> Schedule:
    """Layers whose matrices are gathered, with so many small kernels in each."""
    program = Program(layers)
    for i in range(layers):
        program.multiply(program.gather(f"%w{i}"))
        program.kernels(between)
    return program.schedule()


def overlapped(schedule: Schedule, budget: int = 1 << 30) -> Schedule:
    """The schedule after the pass; it can be run, and its collectives are in their order."""
    found = overlap_collectives(schedule, FastGpu(), budget)
    check_plan(found, plan_memory(found, lower.may_overwrite), lower.may_overwrite)
    assert sorted(map(id, (g.nodes[0] for g in found.groups))) == sorted(map(id, (g.nodes[0] for g in schedule.groups)))
    assert [x for x in names(found) if x.startswith(("all_", "reduce_"))] == [
        x for x in names(schedule) if x.startswith(("all_", "reduce_"))]
    calls = [g.nodes[0] for g in found.groups if g.nodes[0].op.kind == "collective"]
    for first, second in pairwise(calls):
        assert second.inputs[-1].inputs[0] is first, "a collective passed another"
    return found


def names(schedule: Schedule) -> list[str]:
    return [group.nodes[0].op.name for group in schedule.groups]


def ahead(schedule: Schedule) -> list[int]:
    """For each gather how many kernels stand between it and its first reader."""
    found = []
    for at, group in enumerate(schedule.groups):
        if group.nodes[0].op.name == "all_gather":
            between = schedule.groups[at + 1:]
            reader = next(i for i, other in enumerate(between) if not set(group.outputs[:-1]).isdisjoint(other.inputs))
            found.append(sum(other.nodes[0].op.kind != "collective" for other in between[:reader]))
    return found


def test_a_gather_begins_as_many_kernels_before_its_reader_as_take_its_time() -> None:
    before = forward(layers=3, between=20)
    assert ahead(before) == [0, 0, 0]
    found = overlapped(before)
    assert ahead(found) == [0, KERNELS, KERNELS]
    assert [text.partition(";")[0] for _, text in found.placed] == [
        "begins 0 kernels before it is read, which take 0 µs of its 15 µs",
        *["begins 7 kernels before it is read, which take 17 µs of its 15 µs"] * 2]


def test_gathers_that_follow_each_other_closely_begin_early_for_one_another() -> None:
    """The third layer's matrix comes behind the second's, over one bus; the layers in between are too short for it."""
    program = Program(3)
    program.multiply(program.gather("%w0"))
    program.kernels(20)
    program.multiply(program.gather("%w1"))
    program.multiply(program.gather("%w2"))
    assert ahead(overlapped(program.schedule())) == [0, 2 * KERNELS - 2, KERNELS]


@pytest.mark.parametrize("matrices", [0, 1, 2, 3])
def test_no_more_is_alive_than_the_budget_allows(matrices: int) -> None:
    before = forward(layers=6, between=2)
    found = overlapped(before, matrices * WHOLE)
    peak, least = Lives(found).peak(), Lives(before).peak()
    assert peak <= least + matrices * WHOLE
    assert (peak > least) == (matrices > 0)
    if not matrices:
        assert all("more would be alive at one time than prefetch_bytes allow" in text for _, text in found.placed[1:])


def test_below_the_peak_a_gather_costs_nothing() -> None:
    """The first layer's kernels hold much: the second layer's gather is behind that, and ahead of its reader."""
    program = Program(2)
    program.multiply(program.gather("%w0"))
    wide = program.line("f32[512,64]", f"expand({program.value}, shape=(512,64))")
    more = program.line("f32[512,64]", f"exp({wide})")
    program.value = program.line("f32[1,64]", f"sum({more}, axes=(0,), keepdims=True)")
    program.kernels(4)
    program.multiply(program.gather("%w1"))
    before = program.schedule()
    found = overlapped(before, 0)
    assert ahead(found)[1] >= 4 and Lives(found).peak() == Lives(before).peak()


def test_why_says_it_of_each_gather() -> None:
    found = overlapped(forward(layers=2, between=20))
    lines = collective_lines(found, lambda node: "a line")
    assert [line for line in lines if line.startswith("    begins ")] == [f"    {text}" for _, text in found.placed]


def test_a_gather_that_nothing_reads_is_done_before_the_next_one_has_to_begin() -> None:
    program = Program(2)
    program.kernels(20)
    program.gather("%w0")
    program.multiply(program.gather("%w1"))
    found = overlapped(program.schedule())
    assert names(found).index("all_gather") == 20 - 2 * KERNELS + 1  # 30 µs are 13 kernels
    assert [text.partition(":")[0] for _, text in found.placed] == [
        "nothing reads it", f"begins {KERNELS} kernels before it is read, which take 17 µs of its 15 µs"]


def test_what_is_cast_for_a_gather_moves_with_it() -> None:
    program = Program(2)
    program.multiply(program.gather("%w0"))
    program.kernels(20)
    part = program.line("f32[32,64]", "neg(%w1)")
    program.multiply(program.gather(part))
    found = names(overlapped(program.schedule()))
    at = len(found) - 1 - found[::-1].index("all_gather")
    assert found[at - 1:at + 1] == ["neg", "all_gather"] and found[at + 1:-1] == ["sin"] * (len(found) - at - 2)
    assert len(found) - at - 2 == KERNELS


def test_what_is_computed_by_products_is_gathered_where_it_stands() -> None:
    program = Program(2)
    program.multiply(program.gather("%w0"))
    program.kernels(3)
    wide = program.line("f32[32,64]", f"expand({program.value}, shape=(32,64))")
    whole = program.gather(wide)
    program.kernels(10)
    program.multiply(whole)
    before = program.schedule()
    assert names(overlapped(before)) == names(before)


def scattered(budget: int) -> tuple[Schedule, Group]:
    """A matrix' gradient that is scattered in the middle of small kernels, and the group that scatters it."""
    program = Program(1)
    program.kernels(2)
    wide = program.line("f32[64,64]", f"expand({program.value}, shape=(64,64))")
    part = program.scatter(program.line("f32[64,64]", f"exp({wide})"))
    for _ in range(12):  # each as large as the gradient
        wide = program.line("f32[64,64]", f"expand({program.value}, shape=(64,64))")
        program.value = program.line("f32[1,64]", f"sum({program.line('f32[64,64]', f'exp({wide})')}, "
                                                  "axes=(0,), keepdims=True)")
    found = overlapped(program.schedule(part), budget)
    return found, next(g for g in found.groups if g.nodes[0].op.name == "reduce_scatter")


@pytest.mark.parametrize("budget", [0, WHOLE])
def test_a_scattered_gradient_keeps_its_memory_while_it_is_reduced(budget: int) -> None:
    """Without memory for both, the next value of its size is written over it, and waits for the reduction."""
    found, group = scattered(budget)
    plan = plan_memory(found, lower.may_overwrite)
    at = found.groups.index(group)
    kernels = [g for g in found.groups[at + 1:] if g.kind != "view"][:KERNELS]
    over = [y for g in kernels for y in g.outputs if overlap(plan.places[y], plan.places[group.inputs[0]])]
    assert bool(over) == (budget == 0)
    assert plan.max_live_bytes <= 2 * WHOLE + 8 * ROW
    (said,) = [text for call, text in found.placed if call is group.nodes[0]]
    assert said.startswith("takes 15 µs; what it moves keeps its memory for ")
    assert ("prefetch_bytes" in said) == (budget == 0)


def test_a_program_without_gathers_stays() -> None:
    schedule = group_per_op(parse("graph(%0: f32[4]) {\n  %1: f32[4] = exp(%0)\n  return %1\n}"), lower.is_view)
    assert overlap_collectives(schedule, FastGpu(), 1 << 30) is schedule
