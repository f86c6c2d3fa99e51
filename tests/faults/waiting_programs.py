"""Programs in which something waits where a step begins: counts, averages of the weights, rows of a table, before plain
steps, captured and replayed calls; a scaler's step that divides the gradients itself; several compiled functions over
one state, and a state that is returned and passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import genesis
from genesis import nn
from genesis.nn import functional as F
from tests.faults.combined_programs import SecondOrder
from tests.faults.programs import PROGRAMS, Case, Recipe, Statement, Training, Unit


class Kept:
    """What is written beside the steps of a model."""

    def __init__(self, net: nn.Module, device: str):
        self.weights = list(net.parameters())
        self.count, self.rows = genesis.zeros(1, device=device), genesis.zeros(3, device=device)
        self.averages = [p.detach().clone() for p in self.weights]
        genesis.eval(self.count, self.rows, self.averages)

    def average(self) -> None:
        with genesis.no_grad():
            self.averages[0].lerp_(self.weights[0], 0.25)

    def statements(self) -> Iterator[Statement]:
        yield Statement("count += 1", lambda: self.count.add_(1))
        yield Statement("average.lerp_(weight, 0.25)", self.average)
        yield Statement("rows[1] += 1", lambda: self.rows[1].add_(1))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from (("count", self.count), ("rows", self.rows), ("average", self.averages[0]))


class Waiting(Training):
    """What the iteration before has written beside its step is pending where the next one begins."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        self.beside = Kept(self.net, recipe.device)
        size = len(self.statements) // (recipe.warm + 2)
        iteration = [*self.statements[:size], *self.beside.statements()]
        self.statements = iteration * (recipe.warm + 2)
        begin = [len(iteration) * i for i in range(recipe.warm + 3)]
        self.starts = sorted({*begin, *[first + size for first in begin[:-1]]})
        self.target = (begin[recipe.warm], begin[recipe.warm + 1])
        self._begin, self._called = begin, size - 1

    def units(self, first: int, last: int) -> list[Unit]:
        """The call of the compiled function, where there is one, and each statement behind it."""
        found, at = [], first
        while at < last:
            called = self.whole is not None and at in self._begin and at + self._called <= last
            end = at + (self._called if called else 1)
            found.append(Unit(at, end, self.statements[at] if end == at + 1 else self.whole or self.statements[at]))
            at = end
        return found

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from super().kept()
        yield from self.beside.kept()


class Unscaled(Waiting):
    """A scaler's step divides the gradients itself."""

    def _iteration(self) -> Iterator[Statement]:
        yield from (s for s in super()._iteration() if "unscale_" not in s.text)


class WaitingSecondOrder(SecondOrder):
    """A count and an average wait where LBFGS begins, whose step reads them no more than the closure does."""

    beside: Kept | None = None

    def _iteration(self) -> Iterator[Statement]:
        yield from super()._iteration()
        self.beside = Kept(self.net, str(self.x.device))
        yield from self.beside.statements()

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from super().kept()
        if self.beside is not None:
            yield from self.beside.kept()


class Shared(Case):
    """Three compiled functions over one state: one adds to gradients and statistics, one makes a step of them, one
    carries a hidden state that is returned and passed in."""

    def __init__(self, device: str, warm: int = 2):
        super().__init__()
        genesis.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
        with genesis.no_grad():
            for i, p in enumerate(self.net.parameters()):
                p.copy_(genesis.sin(genesis.arange(p.numel()).float() + i).view(p.shape))
        self.net.to(device)
        self.opt = genesis.optim.SGD(self.net.parameters(), lr=0.125, momentum=0.5)  # no rounding errors scaled up
        self.x = genesis.linspace(-1, 2, 12).view(4, 3).to(device)
        self.y = genesis.tensor([0, 1, 1, 0]).to(device)
        self.beside, state = Kept(self.net, device), genesis.zeros(4, 2).to(device)
        for p in self.net.parameters():
            p.grad = genesis.zeros_like(p)
        genesis.eval(self.x, self.y, state, *[x for _, x in self.kept()], [p.grad for p in self.net.parameters()])
        self.names["h"] = state
        add, step, carry = genesis.compile(self._add), genesis.compile(self._step), genesis.compile(self._carry)
        iteration = [
            Statement("h = carry(x, h)", lambda: {"h": carry(self.x, self.names["h"])}, ("h",)),
            Statement("add(x, y)", lambda: add(self.x, self.y)),
            *self.beside.statements(),
            Statement("add(-x, y)", lambda: add(-self.x, self.y)),
            Statement("step()", step),
            Statement("value = h.tolist()", lambda: {"value": self.names["h"].tolist()}, ("value",))]
        self.statements = iteration * (warm + 2)
        self.starts = [len(iteration) * i for i in range(warm + 3)]
        self.target = (self.starts[warm], self.starts[warm + 1])

    def _add(self, x: Any, y: Any) -> None:
        F.cross_entropy(self.net(x), y).backward()

    def _step(self) -> None:
        self.opt.step()
        self.opt.zero_grad(set_to_none=False)

    def _carry(self, x: Any, h: Any) -> Any:
        with genesis.no_grad():
            return (self.net[3](self.net[0](x)) + h * 0.5).tanh()

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.net.named_parameters()
        yield from self.net.named_buffers()
        for name, p in self.net.named_parameters():
            yield from ((f"{name}.{key}", value) for key, value in self.opt.state.get(p, {}).items())
        yield from self.beside.kept()

    def graded(self) -> Iterator[tuple[str, Any]]:
        return self.net.named_parameters()


def _waiting(**choices: Any) -> Callable[[str], Case]:
    return lambda device: Waiting(Recipe(device=device, **choices))


WAITING_PROGRAMS: Final[dict[str, Callable[[str], Case]]] = {
    "waiting before a step": _waiting(),
    "waiting before SGD": _waiting(optimizer="SGD momentum", model="batch norm"),
    "waiting before a replay": _waiting(compiled="step"),
    "waiting before a replay with batch norm": _waiting(compiled="step", model="batch norm", optimizer="SGD momentum"),
    "waiting before a capture": _waiting(compiled="step", warm=0),
    "waiting before a second capture": _waiting(compiled="step", warm=1, keeps=True),
    "scaled without unscaling": lambda device: Unscaled(Recipe(device=device, scaled=True)),
    "waiting before LBFGS": lambda device: WaitingSecondOrder(None, device),
    "waiting before a search": lambda device: WaitingSecondOrder("strong_wolfe", device),
    "shared state": Shared,
    "capture of shared state": lambda device: Shared(device, 0),
}
PROGRAMS.update(WAITING_PROGRAMS)
