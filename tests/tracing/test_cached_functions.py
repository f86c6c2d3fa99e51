"""Functions under `functools.lru_cache` and `functools.cache` in a compiled function: their results are guarded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import genesis

FACTOR = 3.0


@functools.cache
def scale_of(width: int) -> float:
    return width ** -0.5


@functools.lru_cache(maxsize=8)
def positions(length: int) -> Any:
    return genesis.arange(length, dtype=genesis.float32) / length


@functools.cache
def doubled_ones(length: int) -> Any:
    return genesis.ones(length) * 2


class Masked(genesis.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = genesis.nn.Linear(3, 3)

    @functools.lru_cache(None)  # noqa: B019  as programs write it
    def mask(self, size: int) -> Any:
        return genesis.ones(size, size).tril()

    def forward(self, x: Any) -> Any:
        return self.linear(x) @ self.mask(3)


@pytest.mark.parametrize("cached", [scale_of, positions, doubled_ones])
def test_a_cached_result_does_not_stop_replay(cached: Callable[[int], Any]) -> None:
    def plain(x: Any) -> Any:
        return (x * cached(x.shape[-1])).sum()
    step = genesis.compile(plain)
    for i in range(5):
        x = genesis.full((2, 3), float(i))
        assert step(x).item() == plain(x).item()
    assert genesis.explain(step).hits >= 3


def test_a_training_step_with_a_cached_mask_is_replayed() -> None:
    model = Masked()
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)

    @genesis.compile
    def step(x: Any) -> Any:
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(genesis.ones(2, 3)).item() for _ in range(5)]
    assert genesis.explain(step).hits >= 2
    assert [losses[i] - losses[i + 1] for i in range(4)] == pytest.approx([losses[0] - losses[1]] * 4, rel=1e-4)


def test_a_cleared_cache_is_seen_though_it_computed_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    @functools.lru_cache(maxsize=4)
    def times(n: int) -> float:
        return n * FACTOR

    def plain(x: Any) -> Any:
        return (x * times(2)).sum()
    step, x = genesis.compile(plain), genesis.ones(2)
    assert [step(x).item() for _ in range(4)] == [12.0] * 4
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert step(x).item() == plain(x).item() == 12.0
    times.cache_clear()
    assert [step(x).item(), plain(x).item(), step(x).item(), step(x).item()] == [20.0] * 4


def test_a_result_that_was_dropped_is_computed_again() -> None:
    @functools.lru_cache(maxsize=2)
    def row(n: int) -> Any:
        return genesis.ones(3) * n
    step = genesis.compile(lambda x, n: (x + row(n)).sum())
    assert [step(genesis.zeros(3), n).item() for n in (1, 1, 1, 2, 2, 1, 3, 3, 3, 1, 1, 1)] == [
        3.0 * n for n in (1, 1, 1, 2, 2, 1, 3, 3, 3, 1, 1, 1)]


def test_a_write_to_a_cached_tensor_is_seen() -> None:
    @functools.cache
    def row(n: int) -> Any:
        return genesis.ones(3) * n
    step = genesis.compile(lambda x: (x + row(1)).sum())
    assert [step(genesis.zeros(3)).item() for _ in range(4)] == [3.0] * 4
    row(1).mul_(10)
    assert [step(genesis.zeros(3)).item() for _ in range(3)] == [30.0] * 3
