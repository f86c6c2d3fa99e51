"""Binding a plan to other memory while the collector takes what it was bound to before."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import engine
from genesis.engine.plan_lookup import last_plan
from genesis.runtime.cpu.executor import CPUExecutor, _Bound


def test_memory_that_is_collected_while_other_memory_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(x: Any) -> list[float]:
        y = x * 2 + 1
        z = (y * x[0]).sum(0)  # a view of x, which is kept with it
        genesis.eval(y, z)
        return z.tolist()
    forgets = _Bound._forgets

    def collecting(self: _Bound, index: int) -> Any:
        gc.collect()
        bound.append(index)
        return forgets(self, index)
    bound: list[int] = []
    x = genesis.ones(2, 2)
    genesis.eval(x)
    assert run(x) == [6.0, 6.0] and engine.last_plan() is not None
    circle: list[Any] = [x.storage.cell.memory, x]  # type: ignore[union-attr]
    circle.append(circle)
    other = genesis.ones(2, 2) * 2
    genesis.eval(other)
    monkeypatch.setattr(_Bound, "_forgets", collecting)
    del x, circle
    assert run(other) == [20.0, 20.0] and bound


def test_inputs_that_move_are_bound_by_each_run_and_others_once() -> None:
    """Views of both, of which one goes over another view; what moves may come to rest, and move again."""
    w = genesis.arange(12.0).reshape(3, 4)
    genesis.eval(w)
    held = genesis.ones(4, 3)
    genesis.eval(held)

    def run(x: Any) -> Any:
        y = (x.T[1:, ::2] * w[1:3, :2]).sum() + (w.T @ w).sum() * 0.0 + x[2, 1]
        return y.item()
    for turn in range(12):
        x = held if turn in (6, 7, 8) else genesis.arange(12.0).reshape(4, 3) + float(turn)
        genesis.eval(x)
        values = np.array(x.tolist())
        expected = (values.T[1:, ::2] * np.arange(12.0).reshape(3, 4)[1:3, :2]).sum() + values[2, 1]
        assert run(x) == expected
        compiled = last_plan()
        assert compiled is not None and isinstance(compiled.executor, CPUExecutor)
        bound = compiled.executor._free[-1]
        assert len(bound._moving) == (turn >= 2)
        assert len(bound._viewed) == 2 - (turn >= 2)


def test_memory_of_a_moving_input_that_dies_while_the_next_run_uses_its_registers() -> None:
    """Nothing forgets what the run has bound: who keeps a moving input is not asked."""
    def run(x: Any) -> Any:
        y = x[1:] * 2.0
        return (y + x[:2]).exp().sum().item()
    kept = []
    for turn in range(6):
        x = genesis.full((3, 2), float(turn))
        genesis.eval(x)
        kept.append(x)
        assert run(x) == pytest.approx(4 * np.exp(3.0 * turn), rel=1e-6)
    bound = last_plan().executor._free[-1]  # type: ignore[union-attr]
    assert bound._moving and not bound._inputs
    bound.registers[bound._moving[0][0]] = mark = torch.zeros(3, 2)
    kept.clear()
    del x
    assert bound.registers[bound._moving[0][0]] is mark
