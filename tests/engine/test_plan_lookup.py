"""A plan serves the program and the settings that it was made for. Programs that differ in one thing have two plans."""

from __future__ import annotations

import gc
from dataclasses import fields, replace
from typing import Any
from unittest.mock import patch

import pytest
import torch

import genesis
from genesis import config, engine
from genesis.config import Config
from genesis.engine.capture import MANY, Written
from genesis.engine.short_read import MOST_SIZES
from genesis.ir.node import unique
from genesis.ir.numbers import number
from genesis.ir.ops import movement
from genesis.passes import pipeline

SETTINGS = [field.name for field in fields(Config) if field.type == "bool" and field.name != "background_compile"]
"""Those that say how a program is compiled; numbers say when one is computed, and that one who else compiles."""


def made_for(size: int, two_values: bool) -> int:
    """How many plans a program of this size makes: a short read, or a flush of two values."""
    x = genesis.zeros(size) + 1
    genesis.eval(x)
    plans: list[object] = []
    with engine.observe(plans.append):
        y = x * 3
        if two_values:
            genesis.eval(y, x - 1)
        assert y.tolist() == [3.0] * size
    return len(plans)


@pytest.mark.parametrize("two_values", [False, True], ids=["a short read", "a flush"])
@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_has_plans_of_its_own(monkeypatch: pytest.MonkeyPatch, name: str, two_values: bool) -> None:
    gc.collect()  # what another test left pending in a cycle would be part of the program
    engine.reset()
    assert [made_for(5, two_values) for _ in range(2)] == [1, 0]
    monkeypatch.setattr(config, name, not getattr(config, name))
    assert [made_for(5, two_values) for _ in range(2)] == [1, 0]
    monkeypatch.undo()
    assert made_for(5, two_values) == 0


def test_values_that_go_to_each_others_memories() -> None:
    """The programs have the same nodes and results; only what is written where differs."""
    for swapped in (False, True, False):
        x, y = genesis.tensor([1.0, 2.0]), genesis.tensor([10.0, 20.0])
        genesis.eval(x, y)
        values = x + 1, y * 4
        x.copy_(values[swapped])
        y.copy_(values[not swapped])
        genesis.eval(*values)
        found = [x.tolist(), y.tolist()]
        assert found == ([[40.0, 80.0], [2.0, 3.0]] if swapped else [[2.0, 3.0], [40.0, 80.0]])


def test_a_sum_that_is_written_over_either_of_its_terms() -> None:
    for target in (0, 1, 0):
        terms = [genesis.tensor([1.0, 2.0]), genesis.tensor([10.0, 20.0])]
        genesis.eval(*terms)
        total = terms[0] + terms[1]
        terms[target].copy_(total)
        genesis.eval(total)
        assert [x.tolist() for x in terms] == [[11.0, 22.0] if i == target else [[1.0, 2.0], [10.0, 20.0]][i]
                                               for i in (0, 1)]


def test_a_value_that_gradients_flow_through_is_read_again_and_again() -> None:
    """Its first read makes a plan; the next ones must keep the way to differentiate, too."""
    for _ in range(3):
        x = genesis.tensor([1.0, 2.0], requires_grad=True)
        y = x * 2
        assert y.tolist() == [2.0, 4.0]
        z = y * 3
        assert z.tolist() == [6.0, 12.0]
        z.sum().backward()
        assert x.grad.tolist() == [6.0, 6.0]


def test_a_short_read_writes_what_is_pending() -> None:
    for _ in range(3):
        counter, x = genesis.zeros(1), genesis.tensor([1.0, 2.0])
        genesis.eval(counter, x)
        counter.add_(1)
        assert (x * 5).tolist() == [5.0, 10.0]
        assert counter.storage.settled


def _experts(lib: Any, chosen: Any, x: Any, number: int) -> Any:
    out = lib.zeros_like(x)
    for k in range(number):
        rows, = lib.where(chosen == k)
        out[rows] += x[rows] * (k + 1)
    return out


def test_a_read_of_a_size_leaves_writes_elsewhere_pending() -> None:
    """A layer of experts: one flush, however many ask for their rows."""
    chosen = [0, 2, 1, 2, 0, 3]
    x = genesis.arange(12.0).reshape(6, 2)
    picks = genesis.tensor(chosen)
    genesis.eval(x, picks)
    for _ in range(3):
        out = _experts(genesis, picks, x, 4)
        assert not out.storage.settled
    want = _experts(torch, torch.tensor(chosen), torch.arange(12.0).reshape(6, 2), 4)
    assert out.tolist() == want.tolist()


def test_a_size_of_what_is_written_is_that_behind_the_writes() -> None:
    x, other = genesis.zeros(5), genesis.zeros(5)
    genesis.eval(x, other)
    for count in range(1, 5):
        x[count - 1] = 1.0
        other.add_(1)
        assert len(x.nonzero()) == count and len(genesis.where(x == 0)[0]) == 5 - count
    assert other.tolist() == [4.0] * 5


def test_many_reads_of_sizes_flush_what_waits() -> None:
    total, picks = genesis.zeros(3), genesis.arange(2 * MOST_SIZES)
    genesis.eval(total, picks)
    total.add_(1)
    for k in range(MOST_SIZES):
        assert len(genesis.where(picks == k)[0]) == 1 and not total.storage.settled
    assert len(genesis.where(picks == MOST_SIZES)[0]) == 1 and total.storage.settled


def test_who_writes_to_a_constant_changes_no_equal_one() -> None:
    kept = genesis.full((3,), 2.0)
    genesis.eval(kept)
    for _ in range(3):
        x, y = genesis.full((3,), 2.0), genesis.full((3,), 2.0)
        genesis.eval(x)
        x.add_(1)
        genesis.eval(x, y)
        assert x.tolist() == [3.0] * 3 and y.tolist() == kept.tolist() == genesis.full((3,), 2.0).tolist() == [2.0] * 3


def test_a_plan_keeps_no_program_after_the_passes_and_makes_it_anew_with_its_settings() -> None:
    """A graph for each pass is what Python's collector would go through again and again."""
    x = genesis.ones(5)
    config.deterministic = False
    try:
        genesis.eval(x.cumsum(0) * 11)
        plan = engine.last_plan()
    finally:
        config.deterministic = True
    assert plan is not None and "passed" not in vars(plan)
    seen: list[bool] = []

    def noting(work: pipeline.Work, target: pipeline.Target) -> pipeline.Work:
        seen.append(config.deterministic)
        return first.run(work, target)
    first = pipeline.PASSES[0]
    with patch.object(pipeline, "PASSES", (replace(first, run=noting), *pipeline.PASSES[1:])):
        assert plan.schedule.groups
    assert seen == [False] and config.deterministic


@pytest.mark.parametrize("memories", [1, MANY - 3, MANY, 2 * MANY])
def test_a_program_s_text_says_where_each_operand_is(memories: int) -> None:
    """As of an optimizer's node: numbers, some twice, by their types, and memories by their places."""
    tensors = [genesis.ones(i + 1) for i in range(memories)]
    genesis.eval(tensors)
    read, whole, real = [x.storage.node for x in tensors], number(3), number(1.5)
    operands = (real, whole, *read, real)
    node = unique(movement.concat, operands, (0,), read[0].type)
    written = Written()
    written.write([*read, node])
    places = list(range(memories))
    assert written.key == [*places, movement.concat, (0,), real.type, whole.type, *places, real.type]
    assert written.number_nodes == [real, whole, real] and written.position == {
        x: i for i, x in enumerate([*read, node])}
