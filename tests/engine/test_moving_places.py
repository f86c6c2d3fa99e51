"""Slices that begin elsewhere each time are one program: their places become numbers once they were seen to differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import engine
from genesis.engine import saved_values, short_read
from genesis.engine.repeated_numbers import LONG
from genesis.engine.state import engine_state
from tests.short_limits import short_limits

limited = short_limits(nodes=512, often=8)


def rows_written(lib: Any, n: int) -> Any:
    out, row = lib.zeros(n, 4), lib.arange(4.0)
    for i in range(n):
        out[i] = row * i
    return out


def table(lib: Any, n: int) -> Any:
    found = lib.ones(n + 2)
    for i in range(2, n + 2):
        found[i] = found[i - 1] * 0.5 + found[i - 2] * 0.4
    return found


def rows_read(lib: Any, n: int) -> Any:
    data, total = lib.arange(4.0 * n).view(n, 4), lib.zeros(4)
    for i in range(n):
        total = total * 0.5 + data[n - 1 - i]
    return total


def every_second(lib: Any, n: int) -> Any:
    data, total = lib.arange(2.0 * n + 8), lib.zeros(3)
    for i in range(n):
        total = total * 0.5 + data[i:i + 6:2]
    return total


def columns(lib: Any, n: int) -> Any:
    out = lib.zeros(4, n)
    for i in range(n):
        out[1:3, i] = i
    return out


def diagonal(lib: Any, n: int) -> Any:
    out, other = lib.zeros(n, n), lib.arange(float(n * n)).view(n, n)
    for i in range(n):
        out[i, n - 1 - i] = other[i, i] + i
    return out


@pytest.mark.parametrize("loop", [rows_written, table, rows_read, every_second, columns, diagonal])
def test_a_loop_over_places_takes_few_plans(loop: Callable[[Any, int], Any], plans: list[Any]) -> None:
    """What leads to it, a turn, and the rest; and where pieces have few turns, the first has the places that it has."""
    turns = 600 if loop is not diagonal else 300
    np.testing.assert_allclose(loop(genesis, turns).tolist(), loop(torch, turns).tolist(), rtol=1e-5)
    assert len(plans) <= 4


def test_a_training_step_over_slices_of_the_data_is_compiled_twice(plans: list[Any]) -> None:
    def train(lib: Any) -> Any:
        data = lib.arange(64.0).view(16, 4) * 0.01
        w = lib.full((4, 1), 0.1, requires_grad=True)
        step = lib.optim.SGD([w], lr=0.1)
        for epoch in range(2):
            for i in range(0, 16, 2):
                step.zero_grad()
                ((data[i:i + 2] @ w - 1) ** 2).mean().backward()
                step.step()
            if epoch == 0 and lib is genesis:
                assert len(plans) <= 4  # the data; the first slice; the first of the others; the first with state
        return w
    before = train(torch).tolist()
    np.testing.assert_allclose(train(genesis).tolist(), before, rtol=1e-5)
    assert len(plans) <= 5


def test_gradients_flow_to_what_moving_slices_read(plans: list[Any]) -> None:
    def gradients(lib: Any) -> list[Any]:
        found = []
        for i in range(5):
            x = lib.arange(12.0).view(6, 2).requires_grad_()
            y = x * 2
            (y[i:i + 2] * (i + 1)).sum().backward()
            found.append(x.grad.tolist())
        return found
    assert gradients(genesis) == gradients(torch)
    assert len(plans) <= 3


def test_the_first_place_keeps_its_plan_and_its_bits(plans: list[Any]) -> None:
    x = genesis.arange(40.0).view(8, 5).sin()
    genesis.eval(x)

    def rows(i: int) -> list[Any]:
        y = x[i:i + 2].exp().sum(0)
        z = (y * 3).cumsum(0) + x[i]
        genesis.eval(y, z)
        return [y.tolist(), z.tolist()]
    first = rows(0)
    other = rows(3)
    made = len(plans)
    assert rows(0) == first and rows(3) == other and rows(5) != other and len(plans) == made
    engine.reset()
    assert rows(3) == other  # as the first program of its kind
    assert rows(0) == first


@pytest.mark.parametrize("body", [lambda lib, best, x, i: lib.maximum(best, x * (i % 13) + 0.5),
                                  lambda lib, best, x, i: best * 0.5 + x * (i * i % 7)])
def test_equal_numbers_are_two_in_an_endless_loop(body: Callable[..., Any], plans: list[Any]) -> None:
    def loop(lib: Any, n: int) -> Any:
        x, best = lib.ones(8), lib.zeros(8)
        for i in range(n):
            best = body(lib, best, x, i)
        return best
    assert loop(genesis, 2000).tolist() == pytest.approx(loop(torch, 2000).tolist())
    assert len(plans) <= 3
    x = y = genesis.ones(2)
    for _ in range(LONG):
        y = y.sin()
    genesis.eval(x, y)  # a long program in which no numbers repeat
    with engine.observe(plans.append):
        genesis.eval(x * 5 + x * 5, x)
    assert sum(node.op.name == "mul" for node in plans[-1].graph.nodes) == 1  # the loop is over


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows where a read is prepared as any program is. Plans of earlier tests are gone."""
    engine.reset()
    found: list[int] = []
    plain = short_read.prepare

    def noted(*given: Any) -> Any:
        found.append(len(given))
        return plain(*given)
    monkeypatch.setattr(short_read, "prepare", noted)
    return found


def test_reads_of_slices_that_move_are_short_from_the_second_time_on(prepared: list[int]) -> None:
    """As a layer of experts asks, at each step, for the rows of each of its experts."""
    data = genesis.arange(24.0).view(6, 4)
    genesis.eval(data)
    for turn in range(4):
        before = len(prepared)
        assert [(data[i] * (turn + 2.0)).sum().item() for i in range(6)] == [
            (16 * i + 6) * (turn + 2.0) for i in range(6)]
        assert len(prepared) - before == (6 if turn == 0 else 0)


def test_values_that_a_read_of_a_moving_slice_saves() -> None:
    found = []
    for lib in (torch, genesis):
        w = lib.linspace(-1, 1, 12).view(6, 2).clone().requires_grad_()
        for _ in range(3):
            for i in range(6):
                y = (w[i] * 3).exp()
                found.append(y.sum().item())
                (y * y).sum().backward()
        found += w.grad.view(-1).tolist()
    half = len(found) // 2
    assert found[half:] == pytest.approx(found[:half], rel=1e-5)


def test_a_step_that_writes_to_places_that_move_is_a_situation() -> None:
    """Each step of an episode writes to its row; an episode has the same rows as the one before."""
    w = genesis.ones(3, requires_grad=True)
    optimizer = genesis.optim.SGD([w], lr=0.5)
    rows = genesis.zeros(5, 3)
    for episode in range(4):
        prepared = len(engine_state.plans.situations)
        for i in range(5):
            rows[i] = w.detach() * i
            optimizer.zero_grad()
            (w * rows[i]).sum().backward()
            optimizer.step()
        if episode > 1:
            assert len(engine_state.plans.situations) == prepared
    peer = [1.0] * 3
    expected: list[list[float]] = []
    for _ in range(4):
        expected = []
        for i in range(5):
            expected.append([x * i for x in peer])
            peer = [x - 0.5 * x * i for x in peer]
    assert np.allclose(rows.numpy(), expected) and np.allclose(w.detach().numpy(), peer)


def test_what_a_backward_reads_is_asked_once_for_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forecast that is read at each turn, of rows that are another each time."""
    asked = []
    plain = saved_values._positions_read
    monkeypatch.setattr(saved_values, "_positions_read", lambda *args: asked.append(1) or plain(*args))

    def forecast(lib: Any) -> list[list[float]]:
        w, data = lib.full((3, 3), 0.3, requires_grad=True), lib.linspace(0, 1, 60).reshape(20, 3)
        h, seen = lib.zeros(3), 0.0
        for t in range(20):
            h = lib.tanh(data[t] + h @ w)
            seen += h.sum().item()
        h.sum().backward()
        return [[seen], w.grad.flatten().tolist()]
    for found, expected in zip(forecast(genesis), forecast(torch), strict=True):
        assert found == pytest.approx(expected, rel=1e-5)
    assert 1 <= len(asked) <= 3
