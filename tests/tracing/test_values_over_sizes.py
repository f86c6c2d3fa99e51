"""Values that a function reads last, in calls whose sizes and numbers change, where it ends no step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from calls import counts, ramp, values

import genesis
from genesis import nn

CALLS = 20


@pytest.mark.parametrize("function", [
    lambda x, k: x.sum().item(),
    lambda x, k: float((x * 2).sum()),
    lambda x, k: (x * 2).tolist(),
    lambda x, k: x.sum().item() / x.shape[0],
    lambda x, k: x.sum().item() * k,
    lambda x, k: (x * k, {"sum": x.sum().item(), "rows": x.size(0)}),
    lambda x, k: round((x * 3).sum().item(), 1) if x.shape[0] > 8 else x.mean().item(),
], ids=["item", "float", "tolist", "over a size", "times a number", "beside a tensor", "branches"])
def test_a_value_that_is_returned(function: Callable[..., Any]) -> None:
    compiled = genesis.compile(function)
    for length in range(2, CALLS + 2):
        x = ramp(length) * (length / 3)
        assert values(compiled(x, length / 4)) == values(function(x, length / 4))
    captures, hits = counts(compiled)
    assert captures <= 6 and hits == CALLS - captures


class Meter:
    """What training programs keep of their losses."""

    def __init__(self) -> None:
        self.total: Any = 0.0
        self.count = 0
        self.by_name = {"last": 0.0, "sum": 0}
        self.history: list[float] = []


@pytest.mark.parametrize("keeps", ["total", "mean", "item", "history", "moving"])
@pytest.mark.parametrize("sized", [False, True], ids=["one size", "sizes"])
def test_a_value_that_is_kept(keeps: str, sized: bool) -> None:
    class Total(Meter):
        def add(self, x: Any) -> Any:
            self.total += (x * 2).sum().item()

    class Mean(Meter):
        def add(self, x: Any) -> Any:
            self.total += x.mean().item() * x.shape[0]
            self.count += 1

    class Item(Meter):
        def add(self, x: Any) -> Any:
            self.by_name["sum"] += x.sum().item()

    class History(Meter):
        def add(self, x: Any) -> Any:
            self.history.append((x * 2).sum().item())

    class Moving(Meter):
        def add(self, x: Any) -> Any:
            self.total = 0.9 * self.total + 0.1 * x.sum().item()
    kind = {"total": Total, "mean": Mean, "item": Item, "history": History, "moving": Moving}[keeps]
    plain, ours = kind(), kind()
    compiled = genesis.compile(ours.add)
    for call in range(CALLS):
        x = ramp(2 + call if sized else 3) * (1 + call / 7)
        if call == CALLS // 2:
            plain.total, ours.total = 0, 0  # begun anew, as an int
        compiled(x)
        plain.add(x)
        assert repr(vars(ours)) == repr(vars(plain))
    captures, hits = counts(compiled)
    assert captures <= 8 and hits >= CALLS - 8, genesis.explain(compiled)


def test_a_value_of_a_layer_that_keeps_means() -> None:
    plain, ours = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    compiled = genesis.compile(lambda x: ours(x).square().sum().item())
    for length in range(2, CALLS):
        x = ramp(length, 3)
        assert compiled(x) == plain(x).square().sum().item()
        assert values([*ours.buffers()]) == values([*plain.buffers()])
    assert counts(compiled)[0] <= 6


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32, np.longdouble])
def test_a_value_beside_a_number_of_numpy_s(kind: Any) -> None:
    class Total(Meter):
        def add(self, x: Any) -> None:
            self.total += x.sum().item()
    plain, ours = Total(), Total()
    compiled = genesis.compile(ours.add)
    for call in range(8):
        if call == 3:
            plain.total = ours.total = kind(call)
        compiled(ramp(3) / 7)
        plain.add(ramp(3) / 7)
        assert repr(ours.total) == repr(plain.total)


def test_a_list_that_is_made_behind_a_kept_value() -> None:
    def add(meter: Meter, x: Any, call: int) -> Any:
        meter.total = x.sum().item()
        made, held = [], [meter.total]
        made.append(call)
        held.append(call)
        return made, held
    plain, ours, compiled = Meter(), Meter(), genesis.compile(add)
    for call in range(CALLS):
        x = ramp(2 + call)
        assert values(compiled(ours, x, call)) == values(add(plain, x, call))
        assert repr(vars(ours)) == repr(vars(plain))
    assert counts(compiled)[1] >= CALLS - 8, genesis.explain(compiled)


@pytest.mark.parametrize("at", ["slots.Slots.values_now", "slots.Slots.put", "results.Result._describe"])
def test_an_interrupt_beside_stand_ins_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    class Total(Meter):
        def add(self, x: Any) -> Any:
            self.total += (x * 2).sum().item()
    plain, ours = Total(), Total()
    compiled = genesis.compile(ours.add)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt
    interrupts = 0
    for length in range(2, CALLS):
        before = repr(vars(ours))
        if interrupts < 2:
            with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
                patch.setattr(f"genesis.tracing.{at}", interrupted)
                compiled(ramp(length))
                before = ""
            interrupts += bool(before)
            assert not before or repr(vars(ours)) == before
        if before:
            compiled(ramp(length))
        plain.add(ramp(length))
        assert repr(vars(ours)) == repr(vars(plain))
    assert interrupts and counts(compiled)[1] > 8
