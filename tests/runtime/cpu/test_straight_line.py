"""A plan that has run a few times runs as one function: with the same results, errors and memory."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

import genesis
from genesis.engine.plan_lookup import last_plan
from genesis.nn import functional as F
from genesis.runtime.cpu.executor import CPUExecutor
from genesis.runtime.cpu.straight_line import RUNS_BEFORE, StraightLine


def written_out(executor: Any) -> StraightLine | None:
    """The function that the executor's calls are, once they are one."""
    assert isinstance(executor, CPUExecutor)
    return executor._free[-1].straight


def many(x: genesis.Tensor, w: genesis.Tensor) -> list[genesis.Tensor]:
    """Calls of every kind: to places, views, numbers, several results, results that are kept as they are."""
    y = F.linear(x, w).relu() * 2.5 - x
    values, places = y.sort(dim=1)
    return [y.T.reshape(-1) + 1.0, values, places, F.layer_norm(y, (4,)), (y / 3).sum(0), y.isfinite(), y.var()]


def test_results_are_those_of_the_loop_over_calls() -> None:
    w = genesis.randn(4, 4)
    genesis.eval(w)
    found = []
    for turn in range(RUNS_BEFORE + 3):
        genesis.manual_seed(turn % 2)
        results = many(genesis.randn(3, 4), w)
        genesis.eval(results)
        found.append([x.tolist() for x in results])
        plan = last_plan()
        assert plan is not None
        assert (written_out(plan.executor) is not None) == (turn + 1 >= RUNS_BEFORE)
    assert found[0] == found[2] == found[4] != found[1]
    assert found[1] == found[3] == found[5]


def test_plans_that_differ_in_sizes_alone_have_one_code() -> None:
    w = genesis.randn(4, 4)
    genesis.eval(w)
    codes, plans = [], []
    for rows in (3, 5, 7):
        x = genesis.randn(rows, 4)
        genesis.eval(x)
        found = []
        for _ in range(RUNS_BEFORE + 1):
            y = F.linear(x, w).relu()[: rows - 1] * 2.5
            found.append(y.tolist())
        assert found[-1] == found[0] and len(found[0]) == rows - 1
        plan = last_plan()
        assert plan is not None
        straight = written_out(plan.executor)
        assert straight is not None
        codes.append(straight.run.__code__)
        plans.append(plan)
    assert codes[0] is codes[1] is codes[2]
    assert len({id(plan) for plan in plans}) == 3


def test_what_overwrites_memory_is_made_last() -> None:
    w, g = genesis.ones(3), genesis.ones(3)
    for turn in range(RUNS_BEFORE + 3):
        before = w * 1.0
        w.sub_(g * 0.5)
        genesis.eval(before, w)
        assert (before.tolist(), w.tolist()) == ([1 - turn / 2] * 3, [1 - (turn + 1) / 2] * 3)


def test_an_error_names_the_op_and_the_line_and_the_next_run_is_right() -> None:
    table = genesis.arange(5.0)

    def gathered(index: int) -> genesis.Tensor:
        return (table * 2.0).exp()[genesis.tensor([index])] + 1.0

    right = [gathered(1).tolist() for _ in range(RUNS_BEFORE + 2)]
    with pytest.raises(IndexError, match=r"index 9 is out of bounds[\s\S]*test_straight_line.py"):
        gathered(9).tolist()
    assert gathered(1).tolist() == right[0]


def test_inputs_that_nobody_holds_are_not_kept() -> None:
    for _ in range(RUNS_BEFORE + 1):
        x = genesis.randn(64)
        genesis.eval(x)
        (x.view(8, 8).exp() * 2.0 + x.view(8, 8).sin()).tolist()
    assert x.storage.cell is not None
    memory = weakref.ref(x.storage.cell.memory)
    del x
    assert memory() is None
