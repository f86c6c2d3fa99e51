"""Programs as users write them, of kinds that stood only in larger ones: sums at places, workers of a loader, hooks
that leave the program, generators that hold modes, streams, modes of torch's, written optimizers, regions that are
computed again, metrics."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import torch

import genesis
from genesis import nn, optim
from genesis.nn import functional as F
from genesis.utils.checkpoint import checkpoint, checkpoint_sequential
from genesis.utils.data import DataLoader, TensorDataset
from tests.faults.further_programs import Stepping, fill, mlp
from tests.faults.programs import MODELS, OPTIMIZERS, PROGRAMS, Recipe, Statement, Training
from tests.faults.stateful_programs import Turning
from tests.tracing.test_written_optimizers import SAM, Lion


class Places(Turning):
    """Sums of rows and elements at equal places, the gradient of a table, and counts with weights."""

    def __init__(self, device: str):
        self.table = genesis.linspace(-1, 1, 12).view(4, 3).clone().to(device)
        self.weight = nn.Parameter(genesis.linspace(0.1, 1, 12).view(4, 3).clone().to(device))
        self.ids = genesis.tensor([0, 2, 2, 3, 0]).to(device)
        self.rows = genesis.linspace(-0.7, 0.9, 15).view(5, 3).clone().to(device)
        self.opt = optim.SGD([self.weight], lr=0.25, momentum=0.5)
        super().__init__()

    def _loss(self) -> Any:
        return (F.embedding(self.ids, self.weight) * self.rows + self.table[self.ids]).square().sum()

    def _iteration(self) -> Iterator[Statement]:
        table, ids, rows = self.table, self.ids, self.rows
        yield Statement("table.index_add_(0, ids, rows)", lambda: table.index_add_(0, ids, rows) is None or None)
        yield Statement("table.scatter_add_(0, ids[:, None].expand(5, 3), rows)",
                        lambda: table.scatter_add_(0, ids[:, None].expand(5, 3), rows) is None or None)
        yield Statement("table.index_put_((ids,), rows, accumulate=True)",
                        lambda: table.index_put_((ids,), rows, accumulate=True) is None or None)
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("loss = ...", lambda: {"loss": self._loss()}, ("loss",))
        yield Statement("loss.backward()", lambda: self.names["loss"].backward())
        yield Statement("opt.step()", self.opt.step)
        yield Statement("table.mul_(0.25)", lambda: table.mul_(0.25) is None or None)
        yield Statement("sums = bincount(ids, rows[:, 0], 4).tolist()",
                        lambda: {"sums": genesis.bincount(ids, rows[:, 0], 4).tolist()}, ("sums",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from {"table": self.table, "weight": self.weight, "ids": self.ids, "rows": self.rows}.items()
        yield from ((f"weight.{key}", x) for key, x in self.opt.state.get(self.weight, {}).items())

    def graded(self) -> Iterator[tuple[str, Any]]:
        yield "weight", self.weight


class Leaving(Stepping):
    """Hooks of a module and of a gradient call `sys.exit` in a try of the user's, who then goes on."""

    def __init__(self) -> None:
        self.leaves = False
        super().__init__(mlp())
        self.net[2].register_forward_hook(lambda *given: self._hook())
        self.net[0].weight.register_hook(lambda g: self._hook())

    def _hook(self) -> None:
        if self.leaves:
            sys.exit("enough")

    def _left(self, function: Any) -> bool:
        """Whether the function left by `sys.exit`."""
        self.leaves = True
        try:
            function()
        except SystemExit:
            return True
        finally:
            self.leaves = False
        return False

    def _iteration(self) -> Iterator[Statement]:
        plain = [*super()._iteration()]
        yield plain[0]
        yield Statement("first = left(lambda: net(x))", lambda: {"first": self._left(lambda: self.net(self.x))},
                        ("first",))
        yield plain[1]
        yield Statement("second = left(loss.backward)", lambda: {"second": self._left(
            lambda: self.names["loss"].backward(retain_graph=True))}, ("second",))
        yield plain[0]
        yield from plain[2:]


class Generating(Turning):
    """Generators that hold `no_grad` and autocast are dropped before their end, by a call or with their function."""

    def __init__(self, device: str):
        self.x = genesis.linspace(-1, 1, 4).to(device)
        self.w = nn.Parameter(genesis.linspace(0.5, 2, 4).clone().to(device))
        self.device, self.rows = device, None
        super().__init__()

    def _held(self) -> Iterator[Any]:
        with genesis.no_grad(), genesis.autocast(self.device, dtype=genesis.bfloat16):
            for i in range(3):
                yield self.w * self.x + i

    @genesis.no_grad()
    def _decorated(self) -> Iterator[Any]:
        for i in range(3):
            self.w.mul_(1.125)
            yield self.w * i

    def _closed(self) -> Any:
        rows = self._held()
        found = next(rows) + next(rows)
        rows.close()  # type: ignore[attr-defined]
        return found

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("a = closed()", lambda: {"a": self._closed()}, ("a",))
        yield Statement("b = next(held())", lambda: {"b": next(self._held())}, ("b",))
        yield Statement("c = next(decorated())", lambda: {"c": next(self._decorated())}, ("c",))
        yield Statement("d = (w * x).sum()", lambda: {"d": (self.w * self.x).sum()}, ("d",))
        yield Statement("tracked = d.requires_grad", lambda: {"tracked": self.names["d"].requires_grad}, ("tracked",))
        yield Statement("value = (a + b + c).tolist()", lambda: {"value": str(
            (self.names["a"] + self.names["b"] + self.names["c"]).tolist())}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from {"x": self.x, "w": self.w}.items()


class Streams(Turning):
    """Work on another stream, whose memory is recorded there (on a GPU) and dropped while it may be in use."""

    def __init__(self, device: str):
        self.x = genesis.linspace(-1, 1, 8).to(device)
        self.total = genesis.zeros(8).to(device)
        self.side = genesis.cuda.Stream() if device != "cpu" else None
        super().__init__()

    def _work(self) -> None:
        y = self.x * 2 + self.total
        if self.side is None:
            self.total.add_(y)
            return
        with genesis.cuda.stream(self.side):
            z = y.exp()
            y.record_stream(self.side)
            del y
            self.total.add_(z)
        genesis.cuda.current_stream().wait_stream(self.side)

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("work()", self._work)
        yield Statement("total.mul_(0.25)", lambda: self.total.mul_(0.25) is None or None)
        yield Statement("value = total.tolist()", lambda: {"value": str(self.total.tolist())}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from {"x": self.x, "total": self.total}.items()


class _Noting(torch.overrides.TorchFunctionMode):
    """A mode of torch's that a user has entered: it sees calls of torch's functions, and does them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Overridden(Stepping):
    """The loss is read, and the step is made, under a function mode of torch's that the user entered."""

    def __init__(self) -> None:
        self.mode = _Noting()
        super().__init__(mlp(), lambda p: optim.Adam(p, lr=0.125))

    def _under(self, function: Any) -> Any:
        with self.mode:
            return function()

    def _iteration(self) -> Iterator[Statement]:
        for statement in super()._iteration():
            yield Statement(f"with mode: {statement.text}", lambda run=statement.run: self._under(run),
                            statement.binds)


class Perturbed(Training):
    """A compiled step of SAM: up along the gradient, a second backward, down again and a step."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        self.opt: Any = SAM(self.net.parameters(), optim.SGD, rho=0.125, lr=0.25, momentum=0.5)

    def _loss(self) -> Any:
        return F.cross_entropy(self.net(self.x), self.y)

    def _inside(self) -> Iterator[Statement]:
        local: dict[str, Any] = {}
        yield Statement("loss = cross_entropy(net(x), y)", lambda: local.update(loss=self._loss()))
        yield Statement("loss.backward()", lambda: local["loss"].backward())
        yield Statement("opt.first_step(zero_grad=True)", lambda: self.opt.first_step(zero_grad=True))
        yield Statement("cross_entropy(net(x), y).backward()", lambda: self._loss().backward())
        yield Statement("opt.second_step(zero_grad=True)", lambda: self.opt.second_step(zero_grad=True))
        yield Statement("return loss", lambda: {"loss": local.pop("loss")}, ("loss",))
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def _whole_step(self, x: Any, y: Any) -> Any:
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.opt.first_step(zero_grad=True)
        F.cross_entropy(self.net(x), y).backward()
        self.opt.second_step(zero_grad=True)
        return loss


class _Again(nn.Module):
    """Parts are computed again in the backward: with and without an entry of their own, and several in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(3, 4), nn.Linear(4, 4), nn.Dropout(0.25)
        self.last = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))

    def forward(self, x: Any) -> Any:
        hidden = checkpoint(lambda x: self.drop(self.first(x)).tanh(), x, use_reentrant=False)
        hidden = checkpoint(self.second, hidden, use_reentrant=True)
        return checkpoint_sequential(self.last, 2, hidden, use_reentrant=False)


class Metrics(Training):
    """A compiled step that keeps a window of losses, a matrix of confusions and a count on its object."""

    def __init__(self, recipe: Recipe):
        self.window: deque[Any] = deque(maxlen=2)
        self.matrix, self.count = genesis.zeros(2, 2, dtype=genesis.int64).to(recipe.device), 0
        super().__init__(recipe)

    def _confuse(self, out: Any, y: Any) -> None:
        at = y * 2 + out.argmax(1)
        self.matrix.view(4).index_add_(0, at, genesis.ones_like(at))

    def _inside(self) -> Iterator[Statement]:
        local: dict[str, Any] = {}
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("out = net(x)", lambda: local.update(out=self.net(self.x)))
        yield Statement("loss = cross_entropy(out, y)",
                        lambda: local.update(loss=F.cross_entropy(local["out"], self.y)))
        yield Statement("loss.backward()", lambda: local["loss"].backward())
        yield Statement("opt.step()", self.opt.step)
        yield Statement("self.confuse(out)", lambda: self._confuse(local["out"].detach(), self.y))
        yield Statement("self.window.append(loss.detach())", lambda: self.window.append(local["loss"].detach()))
        yield Statement("self.count += len(x)", lambda: setattr(self, "count", self.count + len(self.x)))
        yield Statement("return loss", lambda: {"loss": local.pop("loss")}, ("loss",))
        yield Statement("value = stack(window).mean().item()",
                        lambda: {"value": genesis.stack([*self.window]).mean().item()}, ("value",))

    def _whole_step(self, x: Any, y: Any) -> Any:
        self.opt.zero_grad()
        out = self.net(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        self.opt.step()
        self._confuse(out.detach(), y)
        self.window.append(loss.detach())
        self.count += len(x)
        return loss

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from super().kept()
        yield from {"matrix": self.matrix, "count": self.count, "held": len(self.window)}.items()
        yield from ((f"window.{i}", x) for i, x in enumerate(self.window))


class Worked(Turning):
    """A pass over a loader whose batches a process makes; it is left before its end, and begun again."""

    def __init__(self) -> None:
        self.total = genesis.zeros(2)
        self.loader: Any = DataLoader(TensorDataset(genesis.arange(12).float().view(6, 2)), batch_size=2, num_workers=1)
        super().__init__()

    def _first(self) -> Any:
        for batch, in self.loader:
            return batch
        return None

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("batch = first(loader)", lambda: {"batch": self._first()}, ("batch",))
        yield Statement("total.add_(batch.sum(0))",
                        lambda: self.total.add_(self.names["batch"].sum(0)) is None or None)
        yield Statement("rows = [x.sum().item() for x, in loader]",
                        lambda: {"rows": tuple([x.sum().item() for x, in self.loader])}, ("rows",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield "total", self.total


MODELS["again"] = lambda: fill(_Again())
OPTIMIZERS["Lion"] = lambda p: Lion(p, lr=0.0625, weight_decay=0.125)

WITH_WORKERS: Final = "loader with workers"
"""Each run of it makes processes, which takes a fifth of a second."""

WRITTEN_PROGRAMS: Final = {
    "sums at places": Places,
    "hooks that exit": lambda device: Leaving(),
    "generators with modes": Generating,
    "streams": Streams,
    "a mode of torch's": lambda device: Overridden(),
    "compiled Lion": lambda device: Training(Recipe(device=device, optimizer="Lion", compiled="step", warm=4)),
    "compiled SAM": lambda device: Perturbed(Recipe(device=device, compiled="step", warm=4)),
    "regions in a row": lambda device: Training(Recipe(device=device, model="again", optimizer="SGD momentum")),
    "compiled regions": lambda device: Training(Recipe(device=device, model="again", compiled="step")),
    "metrics": lambda device: Metrics(Recipe(device=device, compiled="step", warm=4)),
    WITH_WORKERS: lambda device: Worked(),
}
"""Name → what makes the program on a device."""

PROGRAMS.update(WRITTEN_PROGRAMS)
