"""Compiled calls of other lengths, or at other positions: the function runs once more on stand-ins, and replays are
filled in for a length, or a position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import genesis
from genesis import nn
from tests.faults.programs import PROGRAMS, Case, Statement, Unit


class Cached(nn.Module):
    """A cache that grows, a rate and a count that are read, a sum that follows from the length."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(genesis.linspace(-1, 1, 9).view(3, 3))
        self.cache, self.rate, self.turn, self.total = genesis.zeros(2, 3), 0.5, 1, genesis.zeros(())

    def count(self) -> None:
        self.turn += 1

    def slow_down(self) -> None:
        self.rate /= 2

    def keep(self, x: Any) -> None:
        self.cache = genesis.cat([self.cache[-12:], x @ self.weight * self.rate])

    def add(self, x: Any) -> None:
        self.total = self.cache.sum() + x.shape[0] * self.turn

    def forward(self, x: Any) -> Any:
        self.count()
        self.slow_down()
        self.keep(x)
        self.add(x)
        return self.cache.mean(0) + self.rate


class Lengths(Case):
    """A compiled module is called with these lengths; faults are injected into the third call."""

    def __init__(self, lengths: Sequence[int]):
        super().__init__()
        net = self.net = Cached()
        given = [genesis.linspace(0, 1 + turn, 3 * n).view(n, 3).clone() for turn, n in enumerate(lengths)]
        genesis.eval([*given, *(x for _, x in self.kept())])
        compiled = genesis.compile(net)
        turns = [
            Statement("net.count()", net.count),
            Statement("net.slow_down()", net.slow_down),
            Statement("net.keep(x)", lambda: self._untracked(net.keep, given[(net.turn - 2) % len(given)])),
            Statement("net.add(x)", lambda: self._untracked(net.add, given[(net.turn - 2) % len(given)])),
            Statement("y = net.cache.mean(0) + net.rate",
                      lambda: {"y": self._untracked(lambda: net.cache.mean(0) + net.rate)}, ("y",)),
            Statement("value = y.tolist()", lambda: {"value": self.names["y"].tolist()}, ("value",))]
        self.statements = turns * len(lengths)
        self.starts = [len(turns) * i for i in range(len(lengths) + 1)]
        self.target = (self.starts[2], self.starts[3])
        self.whole = Statement("y = net(x)", lambda: {
            "y": self._untracked(compiled, given[(net.turn - 1) % len(given)])}, ("y",))

    def _untracked(self, function: Callable[..., Any], *args: Any) -> Any:
        with genesis.no_grad():
            return function(*args)

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.net.named_parameters()
        yield from (("cache", self.net.cache), ("total", self.net.total))
        yield "rate and turn", genesis.tensor([self.net.rate, self.net.turn])


class Noisy(nn.Module):
    """A net in training mode: a running mean, and random numbers that are drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(genesis.linspace(-1, 1, 9).view(3, 3))
        self.register_buffer("mean", genesis.zeros(3))

    def note(self, x: Any) -> None:
        self.mean.lerp_(x.mean(0), 0.25)

    def noisy(self, x: Any) -> Any:
        return nn.functional.dropout((x - self.mean) @ self.weight, 0.25)

    def forward(self, x: Any) -> Any:
        self.note(x)
        return self.noisy(x)


class NoisyLengths(Case):
    """A compiled net in training mode is called with these lengths; faults are injected into the third call."""

    def __init__(self, lengths: Sequence[int]):
        super().__init__()
        genesis.manual_seed(0)
        net = self.net = Noisy()
        given = [genesis.linspace(0, 1 + turn, 3 * n).view(n, 3).clone() for turn, n in enumerate(lengths)]
        genesis.eval([*given, *(x for _, x in self.kept())])
        compiled = genesis.compile(net)
        for x in given:
            self.starts.append(len(self.statements) + 3)
            self.statements += [
                Statement("net.note(x)", lambda x=x: net.note(x)),
                Statement("y = net.noisy(x)", lambda x=x: {"y": net.noisy(x)}, ("y",)),
                Statement("value = y.tolist()", lambda: {"value": self.names["y"].tolist()}, ("value",))]
        self.target = (self.starts[2], self.starts[3])
        self._calls = [Statement("y = net(x)", lambda x=x: {"y": compiled(x)}, ("y",)) for x in given]
        self.whole = self._calls[0]

    def units(self, first: int, last: int) -> list[Unit]:
        return [unit if unit.statement is not self.whole else Unit(
            unit.first, unit.last, self._calls[unit.first // 3 % len(self._calls)])
            for unit in super().units(first, last)]

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.net.named_parameters()
        yield from self.net.named_buffers()


class Ring(nn.Module):
    """A cache whose rows are written in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", genesis.linspace(0, 1, 12).view(4, 3).clone())

    def write(self, x: Any, at: int) -> None:
        self.rows[at % 4] = x * at

    def read(self, x: Any) -> Any:
        return (self.rows * x).sum(1)

    def forward(self, x: Any, at: int) -> Any:
        self.write(x, at)
        return self.read(x)


class Positions(Case):
    """A compiled ring is called with four positions; faults are injected into this one of the calls."""

    def __init__(self, target: int):
        super().__init__()
        ring = self.ring = Ring()
        x = genesis.linspace(1, 2, 3).clone()
        genesis.eval([x, ring.rows])
        compiled = genesis.compile(ring)
        for at in range(5, 9):
            self.statements += [
                Statement("ring.write(x, at)", lambda at=at: ring.write(x, at)),
                Statement("y = ring.read(x)", lambda: {"y": ring.read(x)}, ("y",)),
                Statement("value = y.tolist()", lambda: {"value": self.names["y"].tolist()}, ("value",))]
        self.starts = [3 * i for i in range(5)]
        self.target = (self.starts[target], self.starts[target + 1])
        self._calls = [Statement("y = ring(x, at)", lambda at=at: {"y": compiled(x, at)}, ("y",)) for at in range(5, 9)]
        self.whole = self._calls[0]

    def units(self, first: int, last: int) -> list[Unit]:
        return [unit if unit.statement is not self.whole else Unit(
            unit.first, unit.last, self._calls[unit.first // 3 % len(self._calls)])
            for unit in super().units(first, last)]

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.ring.named_buffers()


PROGRAMS.update({
    "second position": lambda device: Positions(1),  # the run on stand-ins
    "third position": lambda device: Positions(2),  # a replay that is filled in
    "second length in training": lambda device: NoisyLengths((4, 4, 5, 6)),
    "third length in training": lambda device: NoisyLengths((4, 5, 6, 7)),
    "second length": lambda device: Lengths((4, 4, 5, 6)),  # a capture with a run on stand-ins, as at each call:
    "third length": lambda device: Lengths((4, 5, 6, 7)),  # the numbers that it reads are others
})
