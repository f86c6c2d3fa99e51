"""Loops whose turns are not quite alike: sizes that change, odd turns, reads in between, graphs that are kept."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import engine
from genesis.engine import limits
from genesis.engine.repeated_numbers import repeats_numbers
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.ir.walk import walk
from tests.short_limits import short_limits

TURNS = 600

limited = short_limits(nodes=512, often=32, nbytes=1 << 20, autouse=False)


def compiled(plans: list[Any]) -> int:
    return sum(plan.origin == "compiled" for plan in plans)


def shrinking(lib: Any, n: int) -> Any:
    x = lib.zeros(n + 2)
    for _ in range(n):
        x = x[1:] + 1
    return x


def growing(lib: Any, n: int) -> Any:
    x, rows = lib.zeros(2, 3), lib.ones(2, 3)
    for _ in range(n):
        x = lib.cat([x * 0.5, rows])
    return x


def statistics_only(lib: Any, n: int) -> Any:
    """The parameters are never read but by the op in which the loop is cut."""
    norm, x = lib.nn.BatchNorm1d(4), lib.ones(8, 4) * 2
    with lib.no_grad():
        for _ in range(n):
            norm(x)
    return norm.running_mean


@pytest.mark.parametrize("loop", [shrinking, growing, statistics_only])
@pytest.mark.usefixtures("limited")
def test_three_plans(loop: Callable[[Any, int], Any], plans: list[Any]) -> None:
    found = loop(genesis, TURNS)
    np.testing.assert_allclose(found.tolist(), loop(torch, TURNS).tolist(), rtol=1e-5)
    assert compiled(plans) <= 3 < len(plans) + (loop is statistics_only)


def read_now_and_then(lib: Any, n: int) -> Any:
    """Where the fifty turns between two reads begin in `i % 3` is another place each time."""
    x, total, most, read = lib.linspace(0, 1, 8), lib.zeros(()), lib.zeros(()), []
    for i in range(n):
        loss = (x * (i % 3) - 0.5).square().mean()
        total = total * 0.9 + loss
        most = lib.maximum(most, loss)
        if i % 50 == 49:
            read.append(total.item() + most.item())
    return lib.tensor(read)


@pytest.mark.parametrize("often", [128, 16])
@pytest.mark.usefixtures("limited")
def test_where_a_read_begins_is_no_program_of_its_own(plans: list[Any], often: int,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs lead to the first read and two to each other, one for each of the two values; and, where the turns
    between two reads are cut, one more, which the pieces and the rest share."""
    monkeypatch.setattr(limits, "OFTEN", often)
    found = read_now_and_then(genesis, TURNS)
    np.testing.assert_allclose(found.tolist(), read_now_and_then(torch, TURNS).tolist(), rtol=1e-5)
    assert compiled(plans) <= (4 if often > 50 else 5)


def test_formulas_of_several_numbers_repeat_and_those_of_one_do_not() -> None:
    x = genesis.ones(4)
    genesis.eval(x)

    def program(several: bool) -> list[Node]:
        total = genesis.zeros(4)
        for i in range(40):
            total = total * 0.5 + (x * (2 + several * (i % 2))).exp()
        return [node for node in walk([total.storage.node]) if node.op is not leaves.number]
    assert repeats_numbers(program(True)) and not repeats_numbers(program(False))


def cleared(lib: Any, n: int) -> Any:
    """What is odd about an odd turn is not what it records, but what it lets go of."""
    last, x = deque([lib.zeros(4)], maxlen=6), lib.ones(4)
    for i in range(n):
        x = lib.cos(x * 0.5 + last[0])
        last.append(x - last[-1] * 0.25)
        if i % 125 == 124:
            last.clear()
            last.append(x)
    return x


def target(lib: Any, n: int) -> Any:
    """An odd turn records one op more."""
    h, w, other = lib.ones(4), lib.full((4,), 0.5), lib.full((4,), 0.25)
    for i in range(n):
        h = lib.tanh(h * w + other)
        w = w * 0.999
        if i % 125 == 124:
            other = w * 0.5
    return h


@pytest.mark.parametrize(("loop", "most"), [(cleared, 12), (target, 8)])
@pytest.mark.usefixtures("limited")
def test_odd_turns_take_as_many_plans_for_twice_the_turns(loop: Callable[[Any, int], Any], most: int,
                                                          plans: list[Any]) -> None:
    found = []
    for n in (8 * TURNS, 16 * TURNS):
        engine.reset()
        plans.clear()
        np.testing.assert_allclose(loop(genesis, n).tolist(), loop(torch, n).tolist(), rtol=1e-4)  # cos of cos of …
        found.append(compiled(plans))
    assert found[1] <= found[0] and found[1] <= most


def test_the_graph_of_a_loss_that_was_read_ends_at_the_parameters() -> None:
    """What they were computed of belongs to the turn before, whose loss would hold the one before that."""
    def nodes() -> int:
        gc.collect()
        return sum(type(x) is Node for x in gc.get_objects())
    w, found = genesis.full((4,), 0.5, requires_grad=True), []
    for i in range(61):
        loss = ((w - i % 3) ** 2).sum()
        loss.item()
        loss.backward()
        with genesis.no_grad():
            w -= 0.01 * w.grad
        w.grad = None
        if i % 20 == 0:
            found.append(nodes())
    assert found[3] <= found[1] + 4


def test_a_parameter_whose_way_has_ended_is_a_value_like_others() -> None:
    """It is overwritten, read again, and computed of the same operands again."""
    w, x = genesis.full((4,), 0.5, requires_grad=True), genesis.ones(4)
    genesis.eval(w, x)
    with genesis.no_grad():
        w.copy_(x * 0.25 + 1)
        before = w * 1
    loss = (w * w).sum()
    assert loss.item() == 6.25
    (gradient,) = genesis.autograd.grad(loss, w)
    with genesis.no_grad():
        w += 1
        genesis.eval(w)
        again = x * 0.25 + 1
    assert before.tolist() == again.tolist() == [1.25] * 4
    assert gradient.tolist() == [2.5] * 4 and w.tolist() == [2.25] * 4
