"""Binding a plan to other memory while the collector takes what it was bound to before."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import genesis
from genesis import engine
from genesis.runtime.cpu.executor import _Bound


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
