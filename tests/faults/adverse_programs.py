"""Programs of kinds that no other file here has: penalties on gradients, two nets that train against each other,
weights that are normed or orthogonal, states saved and loaded in the middle of a run, weights stacked for `vmap`,
averages with a schedule and a scaler, histories that are written in place."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import genesis
from genesis import func, nn, optim
from genesis.nn import functional as F
from genesis.nn.utils import parametrizations
from genesis.optim import swa_utils
from tests.faults.further_programs import Stepping, fill, mlp
from tests.faults.programs import PROGRAMS, Statement
from tests.faults.stateful_programs import Turning


def moments(opt: Any, named: Any) -> Iterator[tuple[str, Any]]:
    """The state that an optimizer keeps for named parameters."""
    for name, p in named:
        yield from ((f"{name}.{key}", x) for key, x in opt.state.get(p, {}).items())


class Penalized(Stepping):
    """The loss has the norm of its gradient by the input: a second derivative."""

    def __init__(self) -> None:
        super().__init__(mlp(), lambda p: optim.Adam(p, lr=0.0625))

    def _penalty(self) -> Any:
        x = self.x.detach().requires_grad_()
        g, = genesis.autograd.grad(self.net(x).sum(), x, create_graph=True)
        return (g.norm(dim=1) - 1).square().mean()

    def _iteration(self) -> Iterator[Statement]:
        plain = [*super()._iteration()]
        yield plain[0]
        yield Statement("penalty = ...", lambda: {"penalty": self._penalty()}, ("penalty",))
        yield Statement("loss = cross_entropy(net(x), y) + penalty", lambda: {
            "loss": F.cross_entropy(self.net(self.x), self.y) + self.names["penalty"]}, ("loss",))
        yield from plain[2:]


class Adversaries(Turning):
    """A critic and a generator step in turn, each through the other."""

    def __init__(self) -> None:
        genesis.manual_seed(5)
        self.one = fill(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)))
        self.two = fill(nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.125), nn.Dropout(0.25), nn.Linear(4, 1)))
        self.opts = [optim.Adam(self.one.parameters(), lr=0.0625), optim.RMSprop(self.two.parameters(), lr=0.0625)]
        self.noise = genesis.linspace(-1, 1, 8).view(4, 2).clone()
        self.real = genesis.linspace(-1, 2, 12).view(4, 3).clone()
        super().__init__()

    def _critic(self) -> Any:
        fake = self.one(self.noise).detach()
        return F.softplus(self.two(fake)).mean() + F.softplus(-self.two(self.real)).mean()

    def _iteration(self) -> Iterator[Statement]:
        first, second = self.opts
        yield Statement("second.zero_grad()", second.zero_grad)
        yield Statement("loss = critic()", lambda: {"loss": self._critic()}, ("loss",))
        yield Statement("loss.backward()", lambda: self.names["loss"].backward())
        yield Statement("second.step()", second.step)
        yield Statement("first.zero_grad()", first.zero_grad)
        yield Statement("other = softplus(-two(one(noise))).mean()", lambda: {
            "other": F.softplus(-self.two(self.one(self.noise))).mean()}, ("other",))
        yield Statement("other.backward()", lambda: self.names["other"].backward())
        yield Statement("first.step()", first.step)
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        for name, net, opt in (("one", self.one, self.opts[0]), ("two", self.two, self.opts[1])):
            named = [(f"{name}.{key}", x) for key, x in net.named_parameters()]
            yield from named
            yield from ((f"{name}.{key}", x) for key, x in net.named_buffers())
            yield from moments(opt, named)

    def graded(self) -> Iterator[tuple[str, Any]]:
        yield from ((f"one.{key}", x) for key, x in self.one.named_parameters())
        yield from ((f"two.{key}", x) for key, x in self.two.named_parameters())


def normed() -> Any:
    genesis.manual_seed(5)  # `orthogonal` draws a base
    net = mlp()
    parametrizations.weight_norm(net[0])
    parametrizations.orthogonal(net[2])
    return net


class Resumed(Stepping):
    """State is saved to memory in each iteration, and the one of the iteration before is loaded in the middle."""

    def __init__(self) -> None:
        self.files: list[bytes] = []
        super().__init__(mlp(), lambda p: optim.AdamW(p, lr=0.0625))

    def _save(self) -> Any:
        file = io.BytesIO()
        genesis.save({"net": self.net.state_dict(), "opt": self.opt.state_dict()}, file)
        return {"saved": file.getvalue()}

    def _load_net(self) -> None:
        self.net.load_state_dict(genesis.load(io.BytesIO(self.names["saved"]))["net"])

    def _load_opt(self) -> None:
        self.opt.load_state_dict(genesis.load(io.BytesIO(self.names["saved"]))["opt"])

    def _iteration(self) -> Iterator[Statement]:
        plain = [*super()._iteration()]
        yield Statement("saved = save()", self._save, ("saved",))
        yield from plain[:4]
        yield Statement("net.load_state_dict(load(saved)['net'])", self._load_net)
        yield Statement("opt.load_state_dict(load(saved)['opt'])", self._load_opt)
        yield from plain


class Ensemble(Turning):
    """Weights of three nets, stacked, run by `vmap` over `functional_call`, and stepped by hand."""

    def __init__(self) -> None:
        nets = [mlp() for _ in range(3)]
        for i, net in enumerate(nets):
            fill(net)
            with genesis.no_grad():
                for p in net.parameters():
                    p.mul_(1 + i / 4)
        self.weights, self.buffers = func.stack_module_state(nets)
        self.base, self.x = nets[0], genesis.linspace(-1, 2, 12).view(4, 3).clone()
        self.steps = genesis.zeros((), dtype=genesis.int64)
        super().__init__()

    def _loss(self) -> Any:
        def one(weights: Any, buffers: Any) -> Any:
            return func.functional_call(self.base, (weights, buffers), (self.x,)).square().sum()
        return func.vmap(one)(self.weights, self.buffers).sum()

    def _step(self) -> None:
        with genesis.no_grad():
            for p in self.weights.values():
                p.sub_(p.grad * 0.03125)

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("loss = ...", lambda: {"loss": self._loss()}, ("loss",))
        yield Statement("loss.backward()", lambda: self.names["loss"].backward())
        for name, p in self.weights.items():
            yield Statement(f"{name}.data.sub_(grad)", lambda p=p: p.data.sub_(p.grad * 0.03125) is None or None)
            yield Statement(f"{name}.grad = None", lambda p=p: setattr(p, "grad", None))
        yield Statement("steps += 1", lambda: self.steps.add_(1) is None or None)
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.weights.items()
        yield "steps", self.steps

    def graded(self) -> Iterator[tuple[str, Any]]:
        return iter(self.weights.items())


class AveragedAndScaled(Stepping):
    """Accumulated gradients, a scaler, clipping, a schedule and an average: all of a long run at once."""

    def __init__(self) -> None:
        self.scaler = genesis.amp.GradScaler(init_scale=4.0, growth_interval=2)
        self.average: Any = None
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.25), nn.Tanh(), nn.Linear(4, 2))
        Stepping.__init__(self, net, lambda p: optim.AdamW(p, lr=0.0625))

    def _iteration(self) -> Iterator[Statement]:
        if self.average is None:
            self.average = swa_utils.AveragedModel(self.net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.75),
                                                   use_buffers=True)
            self.schedule = optim.lr_scheduler.LinearLR(self.opt, total_iters=6)
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        for half in range(2):
            yield Statement("loss = cross_entropy(net(x), y) / 2", lambda half=half: {"loss": F.cross_entropy(
                self.net(self.x + half), self.y) / 2}, ("loss",))
            yield Statement("scaler.scale(loss).backward()", lambda: self.scaler.scale(self.names["loss"]).backward())
        yield Statement("scaler.unscale_(opt)", lambda: self.scaler.unscale_(self.opt))
        yield Statement("clip_grad_norm_(...)",
                        lambda: nn.utils.clip_grad_norm_(self.net.parameters(), 0.5) is None or None)
        yield Statement("scaler.step(opt)", lambda: self.scaler.step(self.opt) is None or None)
        yield Statement("scaler.update()", self.scaler.update)
        yield Statement("schedule.step()", self.schedule.step)
        yield Statement("average.update_parameters(net)", lambda: self.average.update_parameters(self.net))
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from super().kept()
        if self.average is not None:
            yield from ((f"average.{name}", x) for name, x in self.average.state_dict().items())
        yield "rate", self.opt.param_groups[0]["lr"]
        yield "scale", self.scaler.get_scale()


class WrittenHistories(Turning):
    """What gradients flow through is written in place, through views, masks and indices, before the backward."""

    def __init__(self, device: str):
        self.w = nn.Parameter(genesis.linspace(0.25, 1.5, 12).view(3, 4).clone().to(device))
        self.at, self.total = genesis.tensor([0, 2]).to(device), genesis.zeros(3, 4).to(device)
        self.opt = optim.Adagrad([self.w], lr=0.125)
        super().__init__()

    def _loss(self) -> Any:
        h = self.w * 2
        h[0] = h[1] * h[2]
        h.t()[1].mul_(0.5)
        h.index_add_(0, self.at, h[1:].detach())
        h = h.masked_fill(h > 3, 0.5)
        h[:, ::2] += self.w[:, 1::2]
        return h.square().sum()

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("loss = ...", lambda: {"loss": self._loss()}, ("loss",))
        yield Statement("total[:2] += w.detach()[1:]", lambda: self.total[:2].add_(self.w.detach()[1:]) is None or None)
        yield Statement("loss.backward()", lambda: self.names["loss"].backward())
        yield Statement("total.mul_(0.5)", lambda: self.total.mul_(0.5) is None or None)
        yield Statement("opt.step()", self.opt.step)
        yield Statement("w.data.clamp_(-2, 2)", lambda: self.w.data.clamp_(-2, 2) is None or None)
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from {"w": self.w, "total": self.total}.items()
        yield from moments(self.opt, [("w", self.w)])

    def graded(self) -> Iterator[tuple[str, Any]]:
        yield "w", self.w


class Recurrence(Turning):
    """A recurrent net whose state is on an object, with two schedules for one rate.

    Args:
        stepped: a compiled function runs an iteration, or computes the rates alone.
    """

    def __init__(self, stepped: bool):
        genesis.manual_seed(5)
        self._stepped = stepped
        self.net = nn.ModuleList([fill(nn.GRU(3, 4, num_layers=2, dropout=0.25)), nn.LayerNorm(4),
                                  fill(nn.Linear(4, 2))])
        self.opt = optim.RMSprop(self.net.parameters(), lr=0.03125, momentum=0.5)
        self.schedules = [optim.lr_scheduler.ExponentialLR(self.opt, 0.75),
                          optim.lr_scheduler.LinearLR(self.opt, 0.5, total_iters=4)]
        self.x, self.h = genesis.linspace(-1, 2, 30).view(5, 2, 3).clone(), genesis.zeros(2, 2, 4)
        super().__init__()
        rated = genesis.compile(self._rated)
        self._rates = rated
        if stepped:
            step = genesis.compile(self._step)
            self.whole = Statement("loss = step()", lambda: {"loss": step()}, ("loss",))

    def _loss(self) -> tuple[Any, Any]:
        cells, norm, head = self.net
        y, h = cells(self.x, self.h)
        return F.mse_loss(head(norm(y)), self.x[..., :2]), h

    def _step(self) -> Any:
        self.opt.zero_grad()
        loss, h = self._loss()
        loss.backward()
        nn.utils.clip_grad_value_(self.net.parameters(), 0.25)
        self.opt.step()
        self._turn()
        self.h = h.detach()
        return loss.detach()

    def _turn(self) -> None:
        for schedule in self.schedules:
            schedule.step()

    def _rated(self, x: Any) -> Any:
        y = x * 2
        self._turn()
        return y + 1

    def _iteration(self) -> Iterator[Statement]:
        local: dict[str, Any] = {}
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("loss, h = ...", lambda: local.update(zip(("loss", "h"), self._loss(), strict=True)))
        yield Statement("loss.backward()", lambda: local["loss"].backward())
        yield Statement("clip_grad_value_(parameters, 0.25)",
                        lambda: nn.utils.clip_grad_value_(self.net.parameters(), 0.25))
        yield Statement("opt.step()", self.opt.step)
        if self._stepped:
            for schedule in self.schedules:
                yield Statement("schedule.step()", schedule.step)
        else:
            yield Statement("rated = rates(x)", lambda: {"rated": self._rates(self.x)}, ("rated",))
        yield Statement("self.h = h.detach()", lambda: setattr(self, "h", local["h"].detach()))
        yield Statement("return loss.detach()", lambda: {"loss": local["loss"].detach()}, ("loss",))
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.net.named_parameters()
        yield from moments(self.opt, self.net.named_parameters())
        yield from {"h": self.h, "rate": self.opt.param_groups[0]["lr"],
                    "schedules": repr([x.state_dict() for x in self.schedules])}.items()

    def graded(self) -> Iterator[tuple[str, Any]]:
        return self.net.named_parameters()


ADVERSE_PROGRAMS: Final = {
    "compiled recurrence": lambda device: Recurrence(True),
    "compiled rates": lambda device: Recurrence(False),
    "penalized gradients": lambda device: Penalized(),
    "adversaries": lambda device: Adversaries(),
    "normed weights": lambda device: Stepping(normed()),
    "resumed": lambda device: Resumed(),
    "ensemble": lambda device: Ensemble(),
    "averaged and scaled": lambda device: AveragedAndScaled(),
    "written histories": WrittenHistories,
}
"""Name → what makes the program on a device."""

PROGRAMS.update(ADVERSE_PROGRAMS)
