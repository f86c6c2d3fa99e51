"""Tensors that a compiled function makes of Python's numbers (`tensor(2 / pi)`), over sizes that change: equal numbers
are one constant of all its replays, and others are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import genesis
from genesis import nn

LENGTHS = (3, 3, 5, 5, 7, 9, 11, 8, 3, 6)


def by_hand(x: Any) -> Any:
    """GELU as tutorials write it."""
    return 0.5 * x * (1 + genesis.tanh(genesis.sqrt(genesis.tensor(2.0 / math.pi)) * (x + 0.044715 * x ** 3)))


def only_computes() -> Callable[[Any], Any]:
    return lambda x: (by_hand(x) * genesis.tensor([1.0, 2.0, 3.0, 4.0])).sum()


def a_step() -> Callable[[Any], Any]:
    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    with genesis.no_grad():
        for p in net.parameters():
            p.copy_(genesis.arange(p.numel()).reshape(p.shape) / 10 - 1)
    optimizer = genesis.optim.Adam(net.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (by_hand(net(x)) * genesis.tensor([1.0, 2.0])).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


@pytest.mark.parametrize("make", [only_computes, a_step])
def test_equal_numbers_are_one_constant(make: Callable[[], Callable[[Any], Any]]) -> None:
    plain, compiled = make(), genesis.compile(make())
    for length in LENGTHS:
        x = genesis.arange(length * 4.0).reshape(length, 4) / 7 - 3
        assert compiled(x).item() == plain(x).item()
    assert genesis.explain(compiled).captures == 2, genesis.explain(compiled)
    assert compiled.hits == 8


class Scale(nn.Module):
    """A factor that changes between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.by = 1.0

    def forward(self, x: Any) -> Any:
        return x * genesis.tensor([1.0, self.by]) * genesis.tensor(-0.0 if self.by < 2 else 0.0)


def test_other_numbers_are_another() -> None:
    """A factor that changes with the sizes, or between calls of one size, down to the sign of its zero."""
    plain, scale = Scale(), Scale()
    compiled = genesis.compile(scale)
    for i, length in enumerate((*LENGTHS, *LENGTHS)):
        plain.by = scale.by = 1.0 + i // 3
        x = genesis.ones(length, 2)
        assert str(compiled(x).tolist()) == str(plain(x).tolist())


@pytest.mark.parametrize("make", [
    lambda n: float(n), lambda n: [int(n), 2], lambda n: 2.0 if n > 6 else 3.0, lambda n: n % 3, lambda n: 1 / n,
    lambda n: math.sqrt(n), lambda n: [0.5] * 2 if n < 5 else [1.5] * 2, lambda n: sum(range(n)), lambda n: n])
def test_numbers_that_follow_from_a_size(make: Callable[[Any], Any]) -> None:
    def function(x: Any) -> Any:
        return x * genesis.tensor(make(x.shape[0]))
    compiled = genesis.compile(function)
    for length in LENGTHS:
        x = genesis.arange(length * 2.0).reshape(length, 2)
        assert compiled(x).tolist() == function(x).tolist()


def test_a_constant_that_a_call_writes_to_is_its_own() -> None:
    def function(x: Any) -> Any:
        sums = genesis.tensor([1.0, 2.0])
        shown = x * genesis.tensor([1.0, 2.0])
        sums += x.sum(0)
        return shown + sums
    compiled = genesis.compile(function)
    for length in LENGTHS:
        x = genesis.arange(length * 2.0).reshape(length, 2)
        assert compiled(x).tolist() == function(x).tolist()
