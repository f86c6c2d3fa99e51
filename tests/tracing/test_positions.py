"""Ints that say where in a tensor, or how long one is: replayed over positions as over sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from calls import ramp, values

import genesis
import genesis.nn.functional as F
from genesis import nn

ROWS = 10


class Ring(nn.Module):
    """A cache of the last rows, written at `at % ROWS`."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.register_buffer("rows", genesis.zeros(ROWS, 3, device=device))
        self.at = 0

    def write(self, x: Any) -> None:
        self.rows[self.at % ROWS] = x
        self.at += 1

    def forward(self, x: Any) -> Any:
        self.write(x)
        return (self.rows * x).sum(1)


class Narrowed(Ring):
    def write(self, x: Any) -> None:
        self.rows.narrow(0, self.at, 1).copy_(x[None])
        self.at = (self.at + 1) % ROWS


class Grown(Ring):
    """A cache with room for all rows, of which those that were written are read."""

    def forward(self, x: Any) -> Any:
        self.at %= ROWS
        self.rows[self.at:self.at + 1] = x
        self.at += 1
        return (self.rows[:self.at] * x).sum(1)


class Attending(Ring):
    """A cache of keys as language models have it: as many rows as come are written, all rows so far are read."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.register_buffer("values", genesis.zeros(1, 2, ROWS, 3, device=device))

    def forward(self, x: Any) -> Any:
        self.at %= ROWS
        rows = x.expand(1, 2, 1, 3)
        self.values[:, :, self.at:self.at + rows.shape[2]] = rows * 2
        self.at += 1
        kept = self.values[:, :, :self.at]
        return F.scaled_dot_product_attention(rows, kept, kept)


@pytest.mark.parametrize("kind", [Ring, Narrowed, Grown, Attending])
def test_a_cache_that_is_written_at_a_position_replays(kind: type[Ring], cpu_or_pretended_gpu: str) -> None:
    plain, cached = kind(cpu_or_pretended_gpu), kind(cpu_or_pretended_gpu)
    compiled = genesis.compile(cached)
    calls = 25 if cpu_or_pretended_gpu == "cpu" else 12
    for i in range(calls):
        x = ramp(3).to(cpu_or_pretended_gpu) * (i + 1)
        with genesis.no_grad():
            assert values(compiled(x)) == values(plain(x))
        assert values(cached.rows) == values(plain.rows) and cached.at == plain.at
    found = genesis.explain(compiled)
    assert found.captures <= 6 and found.captures + found.hits == calls


FUNCTIONS: dict[str, Callable[[Any, int, int], Any]] = {
    "a row": lambda x, i, j: x[i] * 2,
    "a column": lambda x, i, j: x[:, i] + j,
    "an element": lambda x, i, j: x[i, j] * 1.0,
    "from the end": lambda x, i, j: x[-i] * 2,
    "a slice": lambda x, i, j: x[i:j] * 2,
    "two parts": lambda x, i, j: genesis.cat([x[:i], x[j:] * 2]),
    "a position that is computed": lambda x, i, j: x[(i * 5 + j) % 7] * 1.5,
    "as a number too": lambda x, i, j: x[i] * i + j,
    "a branch": lambda x, i, j: x[i] * 2 if i < j else x[j] * 3,
    "a row that is written": lambda x, i, j: F.relu(x).index_fill(0, genesis.tensor([1]), 2.0)[i] * 1.0,
    "a size": lambda x, i, j: genesis.ones(i, 3) + j,
    "a reshape": lambda x, i, j: x[:i, :4].reshape(2, -1) * 1.0,
    "repeated": lambda x, i, j: x.repeat(i, 1),
    "the k largest": lambda x, i, j: x.topk(i, 1)[0],
    "chunks": lambda x, i, j: x.chunk(i)[0] * 2,
    "an axis": lambda x, i, j: x.sum(i % 2),
    "a power": lambda x, i, j: x[2 ** i % 7] * 1.0,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_positions_that_change(name: str) -> None:
    """Those outside too: what they raise is what an undecorated call raises."""
    function = FUNCTIONS[name]
    compiled, x = genesis.compile(function), (ramp(7, 8) * 0.37).sin()
    for i, j in [(2, 5), (3, 6), (4, 4), (0, 1), (1, 0), (6, 2), (7, 8), (5, 3), (9, 2), (2, 5), (-1, 3), (3, -2)]:
        try:
            expected: Any = repr(function(x, i, j).tolist())
        except (RuntimeError, IndexError, ValueError) as error:
            expected = type(error)
        try:
            found: Any = repr(compiled(x, i, j).tolist())
        except (RuntimeError, IndexError, ValueError) as error:
            found = type(error)
        assert found == expected, (i, j)


@pytest.mark.parametrize("name", ["a row", "a column", "an element", "a position that is computed", "as a number too",
                                  "a size"])
def test_a_new_position_is_no_new_capture(name: str) -> None:
    function = FUNCTIONS[name]
    compiled, x = genesis.compile(function), ramp(7, 8)
    for i in range(2, 7):
        for j in range(2, 7):
            assert values(compiled(x, i, j)) == values(function(x, i, j))
    assert genesis.explain(compiled).captures <= 4


def test_what_refuses_a_symbol_takes_the_number() -> None:
    """Over other sizes too, for one number."""
    compiled = genesis.compile(lambda x, n: x[:, :n].chunk(n, 1)[0].sum() * n)
    for n in (3, 4, 3, 4):
        for rows in (4, 5, 6, 7, 8):
            x = ramp(rows, 6)
            assert compiled(x, n).tolist() == (x[:, :n].chunk(n, 1)[0].sum() * n).tolist()
    assert genesis.explain(compiled).captures <= 3


def test_a_step_over_positions() -> None:
    """Rows of the data by a number, in a compiled training step: a batch for each."""
    data = ramp(40, 3) * 0.05

    def made() -> tuple[Any, Any, Callable[[int], Any]]:
        genesis.manual_seed(0)
        net = nn.Linear(3, 2)
        optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)

        def step(at: int) -> Any:
            optimizer.zero_grad()
            loss = net(data[at:at + 4]).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        return net, optimizer, step
    plain, _, step = made()
    net, _, other = made()
    compiled = genesis.compile(other)
    for at in range(0, 36, 3):
        assert values(compiled(at)) == values(step(at))
        assert values([*net.parameters()]) == values([*plain.parameters()])
    assert genesis.explain(compiled).captures <= 4
