"""The programs that faults are injected into: training steps and loads, a statement a row."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import genesis
from genesis import nn, optim
from genesis.nn import functional as F
from tests.faults.observing import Observed, draws, modes, set_draws, value_of, values_of

Names = dict[str, Any]


@dataclass(frozen=True)
class Statement:
    """A statement of a program.

    Attributes:
        text: how a user would write it.
        run: what it does; the names that it binds, by the dictionary that it returns.
        binds: these names.
    """

    text: str
    run: Callable[[], Any]
    binds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unit:
    """Statements `first` to `last`, and what runs them."""

    first: int
    last: int
    statement: Statement


class Case:
    """A program with its tensors, ready to run.

    Attributes:
        statements: the plain program's.
        starts: numbers of the statements that begin an iteration: whose pending work was lost begins there again.
        target: (first, last + 1) of the statements into which faults are injected.
        whole: what runs an iteration's statements but the last as one call, of a compiled program.
    """

    def __init__(self) -> None:
        self.names: Names = {}
        self.statements: list[Statement] = []
        self.starts: list[int] = [0]
        self.target = (0, 0)
        self.whole: Statement | None = None

    def kept(self) -> Iterator[tuple[str, Any]]:
        """What must be readable at any time, by name."""
        raise NotImplementedError

    def graded(self) -> Iterator[tuple[str, Any]]:
        """The tensors that have gradients, by name."""
        return iter(())

    def run(self, statement: Statement) -> None:
        """Run a statement and bind what it returns."""
        self.bind(statement.run())

    def bind(self, found: Any) -> None:
        """Bind what a statement returned, if that is names."""
        if type(found) is dict:
            self.names.update(found)

    def units(self, first: int, last: int) -> list[Unit]:
        """What runs the statements from `first` to `last`: each by itself, or those of an iteration as one call."""
        found, at = [], first
        while at < last:
            end = min((start for start in self.starts if start > at), default=last) - 1
            if self.whole is not None and at in self.starts and end < last:
                found.append(Unit(at, end, self.whole))
                at = end
            else:
                found.append(Unit(at, at + 1, self.statements[at]))
                at += 1
        return found

    def run_all(self, first: int, last: int) -> None:
        """Run the statements, as `units` says."""
        for unit in self.units(first, last):
            self.run(unit.statement)

    def resume(self, at: int) -> None:
        """What a user does after a fault before going on with statement number `at`: nothing, mostly."""

    def observe(self) -> Observed:
        """The state, as a user sees it. Reads everything, so that nothing is pending afterwards."""
        seen = Observed(modes=modes(), draws=draws())
        with genesis.no_grad():
            seen.kept = values_of(self.kept())
            for name, x in self.graded():
                seen.bound[f"{name}.grad"] = None if x.grad is None else value_of(x.grad)
            seen.bound.update(values_of(self.names.items()))
        return seen

    def restore_modes(self) -> None:
        """Leave the modes as a program begins with, for the next one, and nothing half done."""
        from genesis.engine.state import engine_state
        from genesis.frontend.autocast_policy import state as autocast
        from genesis.frontend.grad_mode import mode
        from genesis.frontend.state import lock, state
        from genesis.tracing import stance
        mode.flags[:2], autocast.policy[0], state.session = b"\1\0", 0, None
        stance._thread.flags[:2] = b"\0\0"
        sys.setprofile(None)
        state.regions.clear()
        state.rewriting.calls.clear()
        state.volatile.clear()
        engine_state.record = None
        gc.enable()
        while lock._is_owned():  # type: ignore[attr-defined]
            lock.release()


Optimizers = dict[str, Callable[[Any], optim.Optimizer]]

OPTIMIZERS: Optimizers = {
    "SGD": lambda p: optim.SGD(p, lr=0.5),
    "SGD momentum": lambda p: optim.SGD(p, lr=0.5, momentum=0.9, dampening=0.5),
    "Adam": lambda p: optim.Adam(p, lr=0.25),
    "AdamW": lambda p: optim.AdamW(p, lr=0.25),
    "Adadelta": lambda p: optim.Adadelta(p, lr=8.0),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.25),
    "Adamax": lambda p: optim.Adamax(p, lr=0.25),
    "NAdam": lambda p: optim.NAdam(p, lr=0.25),
    "RAdam": lambda p: optim.RAdam(p, lr=0.25),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.25, momentum=0.5),
    "Rprop": lambda p: optim.Rprop(p, lr=0.25),
}


class _Mixed(nn.Module):
    """Layers of two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2).to(genesis.float16)

    def forward(self, x: Any) -> Any:
        return self.second(F.relu(self.first(x)).to(genesis.float16)).float()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(3, 2),
    "mlp": lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)),
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)),
    "mixed dtypes": _Mixed,
}


@dataclass(frozen=True)
class Recipe:
    """How a training program is made.

    Attributes:
        clip: the gradients are clipped before the step: "norm" or "value".
        compiled: "forward" or "step" runs as a compiled function.
        scaled: the loss is scaled, by a GradScaler.
        low: the forward runs under autocast.
        read_first: `loss.item()` comes before the backward; "numpy": the loss is shown to numpy there.
        keeps: the compiled step also counts its calls, stores its loss and appends it, in Python's objects.
        warm: iterations before the one that faults are injected into.
        anew: all plans are forgotten before it.
    """

    model: str = "mlp"
    optimizer: str = "AdamW"
    clip: str = ""
    compiled: str = ""
    scaled: bool = False
    low: bool = False
    read_first: bool | str = False
    keeps: bool = False
    warm: int = 2
    anew: bool = False
    device: str = field(default="cpu", compare=False)


class Training(Case):
    """A few warm iterations, an iteration into which faults are injected, and one more."""

    def __init__(self, recipe: Recipe):
        super().__init__()
        self._recipe, device = recipe, recipe.device
        self.calls, self.losses = 0, list[Any]()
        self.last: Any = None
        set_draws(7, 0)
        self.net = MODELS[recipe.model]()
        with genesis.no_grad():
            for i, p in enumerate(self.net.parameters()):
                p.copy_((genesis.sin(genesis.arange(p.numel()).float() + i).view(p.shape)).to(p.dtype))
        self.net.to(device)
        set_draws(7, 0)
        self.opt = OPTIMIZERS[recipe.optimizer](self.net.parameters())
        self.scaler = genesis.amp.GradScaler(init_scale=4.0, growth_interval=2) if recipe.scaled else None
        # Four rows: batch norm of two makes gradients of rounding errors.
        self.x = genesis.tensor([[1.0, 2.0, -1.0], [0.5, -2.0, 1.0], [2.0, 0.25, 0.5], [-1.0, 1.5, 3.0]]).to(device)
        self.y = genesis.tensor([0, 1, 1, 0]).to(device)
        genesis.eval(list(self.net.parameters()), list(self.net.buffers()), [self.x, self.y])
        iteration = [*self._iteration()]
        self.statements = iteration * (recipe.warm + 2)
        self.starts = [len(iteration) * i for i in range(recipe.warm + 3)]
        self.target = (self.starts[recipe.warm], self.starts[recipe.warm + 1])
        self._step = genesis.compile(self._whole_step) if recipe.compiled == "step" else self._whole_step
        self._forward = genesis.compile(self.net) if recipe.compiled == "forward" else self.net
        if recipe.compiled == "step":
            self.whole = Statement("loss = step(x, y)", lambda: {"loss": self._step(self.x, self.y)}, ("loss",))

    def _inside(self) -> Iterator[Statement]:
        """An iteration whose statements are those of a function: its variables are its own."""
        local: Names = {}
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("loss = cross_entropy(net(x), y)",
                        lambda: local.update(loss=F.cross_entropy(self.net(self.x), self.y)))
        if self._recipe.keeps:
            yield Statement("self.calls += 1", self._count)
            yield Statement("self.last = loss.detach() * 2", lambda: self._keep_last(local["loss"]))
            yield Statement("self.losses.append(loss.detach() * 3)",
                            lambda: self.losses.append(local["loss"].detach() * 3))
        yield Statement("loss.backward()", lambda: local["loss"].backward())
        yield Statement("opt.step()", self.opt.step)
        yield Statement("return loss", lambda: {"loss": local.pop("loss")}, ("loss",))
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def _iteration(self) -> Iterator[Statement]:
        recipe = self._recipe
        if recipe.compiled == "step":
            yield from self._inside()
            return
        yield Statement("opt.zero_grad()", self._forget_and_clear if recipe.anew else self.opt.zero_grad)
        yield Statement("out = net(x)", lambda: {"out": self._out()}, ("out",))
        yield Statement("loss = cross_entropy(out, y)",
                        lambda: {"loss": F.cross_entropy(self.names["out"], self.y)}, ("loss",))
        if recipe.read_first == "numpy":
            yield Statement("value = loss.detach().numpy().item()",
                            lambda: {"value": self.names["loss"].detach().numpy().item()}, ("value",))
        elif recipe.read_first:
            yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))
        yield Statement("loss.backward()", lambda: self._backward(self.names["loss"]))
        if recipe.clip:
            yield Statement(f"clip_grad_{recipe.clip}_(parameters, 0.5)", self._clip)
        if self.scaler is None:
            yield Statement("opt.step()", self.opt.step)
        else:
            scaler = self.scaler
            yield Statement("scaler.unscale_(opt)", lambda: scaler.unscale_(self.opt))
            yield Statement("scaler.step(opt)", lambda: scaler.step(self.opt))
            yield Statement("scaler.update()", scaler.update)
        if not recipe.read_first:
            yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def _forget_and_clear(self) -> None:
        genesis.engine.reset()
        self.opt.zero_grad()

    def _out(self) -> Any:
        if self._recipe.low:
            with genesis.autocast(self._recipe.device):
                return self._forward(self.x)
        return self._forward(self.x)

    def _backward(self, loss: Any) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def _clip(self) -> None:
        if self._recipe.clip == "norm":
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        else:
            nn.utils.clip_grad_value_(self.net.parameters(), 0.5)

    def _whole_step(self, x: Any, y: Any) -> Any:
        self.opt.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        if self._recipe.keeps:
            self.calls += 1
            self.last = loss.detach() * 2
            self.losses.append(loss.detach() * 3)
        loss.backward()
        self.opt.step()
        return loss

    def _count(self) -> None:
        self.calls += 1

    def _keep_last(self, loss: Any) -> None:
        self.last = loss.detach() * 2

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield "x", self.x
        yield from self.net.named_parameters()
        yield from self.net.named_buffers()
        for name, p in self.net.named_parameters():
            for key, value in self.opt.state.get(p, {}).items():
                yield f"{name}.{key}", value
        if self._recipe.keeps:
            yield from {"calls": self.calls, "last": self.last, "losses": len(self.losses)}.items()
            yield from ((f"losses.{i}", x) for i, x in enumerate(self.losses))
        if self.scaler is not None:
            yield "scale", self.scaler.get_scale()
            yield "growth", self.scaler._growth_tracker
            yield "unscaled", self._unscaled(self.scaler)
            yield "stepped", (seen := self.scaler._seen.get(id(self.opt))) is not None and seen.stepped

    def _unscaled(self, scaler: Any) -> bool:
        """Whether gradients were divided since the last update: infinite ones do not show it."""
        seen = scaler._seen.get(id(self.opt))
        return seen is not None and seen.overflow is not None and seen.overflow.storage.error is None

    def graded(self) -> Iterator[tuple[str, Any]]:
        return self.net.named_parameters()


class Reading(Case):
    """Values are computed and read, writes in place among them; every program ran before."""

    def __init__(self, device: str):
        super().__init__()
        self.x = genesis.tensor([[1.0, 2.0], [3.0, 5.0]]).to(device)
        self.w = genesis.tensor([0.5, -1.0]).to(device)
        genesis.eval(self.x, self.w)
        self.statements = [
            Statement("y = x * w + 1", lambda: {"y": self.x * self.w + 1}, ("y",)),
            Statement("v = y.sum().item()", lambda: {"v": self.names["y"].sum().item()}, ("v",)),
            Statement("w += 1", lambda: self.w.add_(1)),
            Statement("z = x @ w", lambda: {"z": self.x @ self.w}, ("z",)),
            Statement("x[0] = z", lambda: self.x.__setitem__(0, self.names["z"])),
            Statement("u = (x - y).tolist()", lambda: {"u": (self.x - self.names["y"]).tolist()}, ("u",)),
            Statement("u = x.tolist()", lambda: {"u": self.x.tolist()}, ("u",)),
        ] * 3
        self.starts = [0, 7, 14, 21]
        self.target = (7, 14)

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield "x", self.x
        yield "w", self.w


class Loading(Training):
    """States are taken over: of a model, of an optimizer, and from a file."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        other = Training(recipe)
        other.run_all(0, 2 * other.starts[1])
        genesis.eval(*[p.grad for p in other.net.parameters()])
        saved = {"net": other.net.state_dict(), "opt": other.opt.state_dict()}
        self._folder = TemporaryDirectory()
        path = f"{self._folder.name}/net"
        genesis.save(saved["net"], path)
        loads = [
            Statement("net.load_state_dict(saved)", lambda: self.net.load_state_dict(saved["net"])),
            Statement("opt.load_state_dict(saved)", lambda: self.opt.load_state_dict(saved["opt"])),
            Statement("saved = genesis.load(path)", lambda: {"saved": genesis.load(path)["0.bias"]}, ("saved",)),
        ]
        iteration = self.statements[:self.starts[1]]
        self.statements = [*iteration, *loads, *iteration]
        self.target = (len(iteration), len(iteration) + len(loads))
        self.starts = [0, *self.target, len(self.statements)]
        self.saved = saved

    def observe(self) -> Observed:
        found = super().observe()
        found.kept["opt.lr"] = self.opt.param_groups[0]["lr"]
        return found


class Moving(Training):
    """A model changes its dtype, and a parameter its memory."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        iteration = self.statements[:self.starts[1] - 1]
        first = next(self.net.parameters())
        moves = [
            Statement("p.data = p.data * 2", lambda: setattr(first, "data", first.data * 2)),
            Statement("net.double()", lambda: self.net.double()),
            Statement("net.float()", lambda: self.net.float()),
        ]
        self.statements = [*iteration, *moves]
        self.target = (len(iteration), len(self.statements))
        self.starts = [*range(self.target[0], self.target[1] + 1)]


def _training(**choices: Any) -> Callable[[str], Case]:
    return lambda device: Training(Recipe(device=device, **choices))


PROGRAMS: dict[str, Callable[[str], Case]] = {
    "reads": Reading,
    **{f"step of {name}": _training(optimizer=name) for name in OPTIMIZERS},
    "loss read first": _training(read_first=True),
    "loss shown to numpy": _training(read_first="numpy"),
    "batch norm": _training(model="batch norm", optimizer="SGD momentum"),
    "dropout": _training(model="dropout"),
    "mixed dtypes": _training(model="mixed dtypes"),
    "clip norm": _training(clip="norm"),
    "clip value": _training(clip="value"),
    "autocast": _training(low=True),
    "grad scaler": _training(scaled=True),
    "compiled forward": _training(compiled="forward"),
    "compiled step": _training(compiled="step"),
    "compiled SGD momentum": _training(compiled="step", optimizer="SGD momentum"),
    "compiled batch norm": _training(compiled="step", model="batch norm"),
    "compiled dropout": _training(compiled="step", model="dropout"),
    "compiled mixed dtypes": _training(compiled="step", model="mixed dtypes"),
    "compiled state": _training(compiled="step", keeps=True, warm=3),
    "capture": _training(compiled="step", warm=0),
    "capture of state": _training(compiled="step", keeps=True, warm=0),
    "second capture of state": _training(compiled="step", keeps=True, warm=1),
    "capture of a forward": _training(compiled="forward", warm=0),
    "compile": _training(anew=True, optimizer="SGD momentum", warm=0),
    "loading": lambda device: Loading(Recipe(device=device)),
    "moving": lambda device: Moving(Recipe(device=device)),
}
"""Name → what makes the program on a device."""
