"""Programs of kinds that the first ones left out: gradients of several backwards, averages of weights by `swa_utils`,
weights that are computed, functions with their own derivative, hooks, regions that are computed again, optimizers of a
user's own, and containers in containers on the object of a compiled method."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import genesis
from genesis import nn, optim
from genesis.nn import functional as F
from genesis.nn.utils import parametrizations
from genesis.optim import swa_utils
from genesis.utils.checkpoint import checkpoint
from tests.faults.programs import PROGRAMS, Statement
from tests.faults.stateful_programs import Turning


def fill(net: Any) -> Any:
    """Give the parameters of a net values that are the same each time; returns it."""
    with genesis.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(genesis.sin(genesis.arange(p.numel()).float() + i).view(p.shape))
    return net


class Stepping(Turning):
    """A net and an optimizer over four rows."""

    def __init__(self, net: Any, make: Callable[[Any], Any] = lambda p: optim.SGD(p, lr=0.25, momentum=0.5)):
        genesis.manual_seed(5)
        self.net, self.x = fill(net), genesis.linspace(-1, 2, 12).view(4, 3).clone()
        self.y = genesis.tensor([0, 1, 1, 0])
        self.opt = make(self.net.parameters())
        super().__init__()

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("loss = cross_entropy(net(x), y)",
                        lambda: {"loss": F.cross_entropy(self.net(self.x), self.y)}, ("loss",))
        yield Statement("loss.backward()", lambda: self.names["loss"].backward())
        yield Statement("opt.step()", self.opt.step)
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.net.named_parameters()
        yield from self.net.named_buffers()
        for name, p in self.net.named_parameters():
            yield from ((f"{name}.{key}", x) for key, x in self.opt.state.get(p, {}).items())

    def graded(self) -> Iterator[tuple[str, Any]]:
        return self.net.named_parameters()


def mlp() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


class Accumulated(Stepping):
    """Gradients of two halves are added up, and set to zeros rather than dropped."""

    def __init__(self, whole: bool):
        self._whole = whole
        super().__init__(mlp(), lambda p: optim.AdamW(p, lr=0.125))
        if whole:
            step = genesis.compile(self._step)
            self.whole = Statement("loss = step()", lambda: {"loss": step()}, ("loss",))

    def _half(self, at: int) -> Any:
        return F.cross_entropy(self.net(self.x[at:at + 2]), self.y[at:at + 2]) / 2

    def _step(self) -> Any:
        self.opt.zero_grad(set_to_none=False)
        first = self._half(0)
        first.backward()
        loss = self._half(2)
        loss.backward()
        self.opt.step()
        return loss.detach()

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("opt.zero_grad(set_to_none=False)", lambda: self.opt.zero_grad(set_to_none=False))
        if self._whole:
            local: dict[str, Any] = {}
            yield Statement("first = half(0)", lambda: local.update(first=self._half(0)))
            yield Statement("first.backward()", lambda: local["first"].backward())
            yield Statement("loss = half(2)", lambda: local.update(loss=self._half(2)))
            yield Statement("loss.backward()", lambda: local["loss"].backward())
            yield Statement("opt.step()", self.opt.step)
            yield Statement("return loss.detach()", lambda: {"loss": local.pop("loss").detach()}, ("loss",))
        else:
            for at in (0, 2):
                yield Statement("loss = half(at)", lambda at=at: {"loss": self._half(at)}, ("loss",))
                yield Statement("loss.backward()", lambda: self.names["loss"].backward())
            yield Statement("opt.step()", self.opt.step)
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))


class Averaging(Stepping):
    """`AveragedModel` with its buffers, a rate that anneals, and batch statistics that are reset."""

    def __init__(self) -> None:
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        fill(net)
        self.average = swa_utils.AveragedModel(net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.75), use_buffers=True)
        self.schedule: Any = None
        super().__init__(net)
        self.schedule = swa_utils.SWALR(self.opt, 0.0625, 3)

    def _iteration(self) -> Iterator[Statement]:
        yield from [*super()._iteration()][:-1]
        yield Statement("average.update_parameters(net)", lambda: self.average.update_parameters(self.net))
        yield Statement("schedule.step()", lambda: self.schedule.step())
        yield Statement("net[1].reset_running_stats()", self.net[1].reset_running_stats)
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from super().kept()
        yield from ((f"average of {name}", x) for name, x in self.average.state_dict().items())
        yield "modes", tuple(x.training for x in self.average.modules())
        yield "rate", self.opt.param_groups[0]["lr"]
        if self.schedule is not None:
            yield "schedule", repr(self.schedule.state_dict())


class Parametrized(Stepping):
    """Weights that are computed of others: a norm and a direction, and a matrix by its largest singular value."""

    def __init__(self) -> None:
        genesis.manual_seed(3)
        super().__init__(nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 4)), nn.Tanh(),
                                       parametrizations.spectral_norm(nn.Linear(4, 2))))


class _Clipped(genesis.autograd.Function):
    """Its own derivative, with what it has saved and a number."""

    @staticmethod
    def forward(ctx: Any, x: Any, bound: float) -> Any:
        ctx.save_for_backward(x)
        ctx.bound = bound
        return x.clamp(-bound, bound)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, = ctx.saved_tensors
        return g * (x.abs() < 2 * ctx.bound), None


class OwnDerivative(Stepping):
    """A loss through a user's function, counted in its forward hook; gradients pass a hook and are noted."""

    def __init__(self) -> None:
        self.calls, self.seen, self.graded_times = 0, genesis.zeros(2), 0
        super().__init__(mlp(), lambda p: optim.Adam(p, lr=0.125))
        self.net[2].register_forward_hook(self._saw)
        self.net[0].weight.register_hook(lambda g: g * 0.5)

    def _saw(self, module: Any, given: Any, found: Any) -> None:
        self.calls += 1
        self.seen = found.detach().mean(0)

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("hidden = net[0](x)", lambda: {"hidden": self.net[0](self.x)}, ("hidden",))
        yield Statement("out = net[2](clipped(hidden))",
                        lambda: {"out": self.net[2](_Clipped.apply(self.names["hidden"], 0.5))}, ("out",))
        yield Statement("loss = cross_entropy(out, y)",
                        lambda: {"loss": F.cross_entropy(self.names["out"], self.y)}, ("loss",))
        yield Statement("loss.backward()", lambda: self.names["loss"].backward())
        yield Statement("opt.step()", self.opt.step)
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))


class Again(Stepping):
    """Parts of the forward are computed again in the backward, with dropout inside."""

    def __init__(self) -> None:
        self.drop = nn.Dropout(0.25)
        super().__init__(mlp())

    def _hidden(self, x: Any) -> Any:
        return self.drop(self.net[1](self.net[0](x)))

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("loss = cross_entropy(net[2](checkpoint(hidden, x)), y)", lambda: {"loss": F.cross_entropy(
            self.net[2](checkpoint(self._hidden, self.x, use_reentrant=False)), self.y)}, ("loss",))
        yield Statement("loss.backward()", lambda: self.names["loss"].backward())
        yield Statement("clip_grad_norm_(parameters, 0.25)",
                        lambda: nn.utils.clip_grad_norm_(self.net.parameters(), 0.25) is None or None)
        yield Statement("opt.step()", self.opt.step)
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))


class _Signs(optim.Optimizer):
    """A user's optimizer: the sign of a running mean, a parameter after another."""

    def __init__(self, parameters: Any, lr: float):
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        raise NotImplementedError("its lines are statements here")


class OwnOptimizer(Stepping):
    """Each line of its step is a statement."""

    def __init__(self) -> None:
        super().__init__(mlp(), lambda p: _Signs(p, lr=0.0625))

    def _begin(self, p: Any) -> None:
        if "mean" not in self.opt.state[p]:
            self.opt.state[p]["mean"] = genesis.zeros_like(p)

    def _move(self, p: Any) -> None:
        with genesis.no_grad():
            p.add_(self.opt.state[p]["mean"].sign(), alpha=-self.opt.param_groups[0]["lr"])

    def _iteration(self) -> Iterator[Statement]:
        yield from [*super()._iteration()][:3]
        for p in self.net.parameters():
            yield Statement("state.setdefault(mean=zeros_like(p))", lambda p=p: self._begin(p))
            yield Statement("mean.lerp_(p.grad, 0.25)",
                            lambda p=p: self.opt.state[p]["mean"].lerp_(p.grad, 0.25) is None or None)
            yield Statement("p.add_(mean.sign(), alpha=-lr)", lambda p=p: self._move(p))
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))


class Containers(Turning):
    """A compiled method that keeps tensors and numbers in containers in containers, and returns such."""

    def __init__(self) -> None:
        self.x, self.memory = genesis.linspace(-1, 1, 4), {"h": [genesis.zeros(4), (genesis.ones(4), 0)]}
        self.counts, self.trace = {"calls": 0}, list[Any]()
        self._call = genesis.compile(self._forward)
        super().__init__()
        self.whole = Statement("found = forward(x)", lambda: {"found": self._call(self.x)}, ("found",))

    def _forward(self, x: Any) -> Any:
        self.counts["calls"] += 1
        h = self.memory["h"][0] * 0.5 + x
        self.memory["h"][0] = h
        self.memory["h"][1] = (h.tanh(), 2)
        self.trace.append({"mean": h.mean(), "n": 4})
        return {"h": [h.sum(), h * 2]}["h"][1]

    def _count(self) -> None:
        self.counts["calls"] += 1

    def _iteration(self) -> Iterator[Statement]:
        local: dict[str, Any] = {}
        yield Statement("self.counts['calls'] += 1", self._count)
        yield Statement("h = ...", lambda: local.update(h=self.memory["h"][0] * 0.5 + self.x))
        yield Statement("self.memory['h'][0] = h", lambda: self.memory["h"].__setitem__(0, local["h"]))
        yield Statement("self.memory['h'][1] = (h.tanh(), 2)",
                        lambda: self.memory["h"].__setitem__(1, (local["h"].tanh(), 2)))
        yield Statement("self.trace.append(...)", lambda: self.trace.append({"mean": local["h"].mean(), "n": 4}))
        yield Statement("return ...", lambda: {"found": local.pop("h") * 2}, ("found",))
        yield Statement("value = found.tolist()", lambda: {"value": self.names["found"].tolist()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield "x", self.x
        yield "h", self.memory["h"][0]
        yield "tanh", self.memory["h"][1][0]  # type: ignore[index]
        yield "number", self.memory["h"][1][1]  # type: ignore[index]
        yield "calls", self.counts["calls"]
        yield "traced", len(self.trace)
        yield from ((f"trace.{i}", x["mean"]) for i, x in enumerate(self.trace))


class LastRead(Turning):
    """A compiled method reads its result last, appends it and stores it; faults are injected into this iteration."""

    def __init__(self, target: int) -> None:
        self.x, self.total = genesis.linspace(-1, 1, 4), genesis.zeros(4)
        self.calls, self.last, self.values = 0, 0.0, list[float]()
        call = genesis.compile(self._forward)
        super().__init__()
        self.whole = Statement("value = forward(x)", lambda: {"value": call(self.x)}, ("value",))
        self.target = (self.starts[target], self.starts[target + 1])

    def _forward(self, x: Any) -> Any:
        self.calls += 1
        self.total.add_(x)
        value = self.total.square().sum().item()
        self.values.append(value)
        self.last = value
        return value

    def _count(self) -> None:
        self.calls += 1

    def _iteration(self) -> Iterator[Statement]:
        local: dict[str, Any] = {}
        yield Statement("self.calls += 1", self._count)
        yield Statement("self.total.add_(x)", lambda: self.total.add_(self.x) is None or None)
        yield Statement("value = ...", lambda: local.update(value=self.total.square().sum().item()))
        yield Statement("self.values.append(value)", lambda: self.values.append(local["value"]))
        yield Statement("self.last = value", lambda: setattr(self, "last", local["value"]))
        yield Statement("return value", lambda: {"value": local.pop("value")}, ("value",))
        yield Statement("total = self.total * 2", lambda: {"twice": self.total * 2}, ("twice",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from {"x": self.x, "total": self.total, "calls": self.calls, "last": self.last,
                    "values": tuple(self.values)}.items()


class Tallied(Stepping):
    """A compiled step puts its loss, read last, into a deque that is full, running totals in a dictionary, a list in a
    dictionary and a mean, reads from another tensor how many were right, and counts in between: faults are injected
    into this iteration."""

    def __init__(self, target: int) -> None:
        self.recent: deque[Any] = deque([0.5, 0.25], maxlen=2)
        self.totals: dict[str, Any] = {"loss": 0.0, "calls": 0, "right": 0}
        self.logs: dict[str, list[Any]] = {"values": []}
        self.turn, self.sum, self.mean = 0, 0.0, 0.0
        super().__init__(mlp())
        self.starts = [len(self.statements) // 4 * i for i in range(target + 3)]
        self.statements = self.statements[:self.starts[1]] * (target + 2)
        self.target = (self.starts[target], self.starts[target + 1])
        self.step = genesis.compile(self._tally)
        self.whole = Statement("value = step(x, y)", lambda: {"value": self.step(self.x, self.y)}, ("value",))

    def _tally(self, x: Any, y: Any) -> Any:
        self.opt.zero_grad()
        out = self.net(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        self.opt.step()
        value = loss.item()
        self.recent.append(value)
        self.totals["loss"] += value / 2
        self.totals["calls"] += 1
        self.totals["right"] += (out.argmax(1) == y).sum().item()
        self.logs["values"].append((self.turn, value))
        self.turn += 1
        self.sum += value
        self.mean = self.sum / self.turn
        return value

    def _iteration(self) -> Iterator[Statement]:
        local: dict[str, Any] = {}
        logs, totals = self.logs["values"], self.totals
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("out = self.net(x)", lambda: local.update(out=self.net(self.x)))
        yield Statement("loss = ...", lambda: local.update(loss=F.cross_entropy(local["out"], self.y)))
        yield Statement("loss.backward()", lambda: local["loss"].backward())
        yield Statement("opt.step()", self.opt.step)
        yield Statement("value = loss.item()", lambda: local.update(value=local["loss"].item()))
        yield Statement("self.recent.append(value)", lambda: self.recent.append(local["value"]))
        yield Statement("self.totals['loss'] += value / 2",
                        lambda: totals.__setitem__("loss", totals["loss"] + local["value"] / 2))
        yield Statement("self.totals['calls'] += 1", lambda: totals.__setitem__("calls", totals["calls"] + 1))
        yield Statement("self.totals['right'] += ...", lambda: totals.__setitem__(
            "right", totals["right"] + (local["out"].argmax(1) == self.y).sum().item()))
        yield Statement("self.logs['values'].append((self.turn, value))",
                        lambda: logs.append((self.turn, local["value"])))
        yield Statement("self.turn += 1", lambda: setattr(self, "turn", self.turn + 1))
        yield Statement("self.sum += value", lambda: setattr(self, "sum", self.sum + local["value"]))
        yield Statement("self.mean = self.sum / self.turn", lambda: setattr(self, "mean", self.sum / self.turn))
        yield Statement("return value", lambda: {"value": local.pop("value")}, ("value",))
        yield Statement("twice = next(net.parameters()) * 2",
                        lambda: {"twice": next(self.net.parameters()) * 2}, ("twice",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from super().kept()
        yield from {"recent": tuple(self.recent), "totals": (*self.totals.items(),), "logs": tuple(self.logs["values"]),
                    "turn": self.turn, "sum": self.sum, "mean": self.mean}.items()


class Scattered(Turning):
    """Writes through masks, indices, views of views and functions with `out`; draws of every kind between."""

    def __init__(self) -> None:
        genesis.manual_seed(11)
        self.table, self.ring = genesis.linspace(0, 1, 15).view(5, 3).clone(), genesis.zeros(4, 3)
        self.at = genesis.tensor([0, 2, 2, 4])
        super().__init__()

    def _iteration(self) -> Iterator[Statement]:
        table, ring = self.table, self.ring
        yield Statement("table[table > 0.5] = 0.25", lambda: table.__setitem__(table > 0.5, 0.25))
        yield Statement("table.index_add_(0, at, ones(4, 3))",
                        lambda: table.index_add_(0, self.at, genesis.ones(4, 3)) is None or None)
        yield Statement("noise = rand(3) + randn(3)", lambda: {"noise": genesis.rand(3) + genesis.randn(3)}, ("noise",))
        yield Statement("table.t()[0].mul_(0.5)", lambda: table.t()[0].mul_(0.5) is None or None)
        yield Statement("ring.copy_(ring.roll(1, 0))", lambda: ring.copy_(ring.roll(1, 0)) is None or None)
        yield Statement("ring[0] = noise", lambda: ring.__setitem__(0, self.names["noise"]))
        yield Statement("genesis.cumsum(ring, 0, out=ring)",
                        lambda: genesis.cumsum(ring, 0, out=ring) is None or None)
        yield Statement("ring.bernoulli_(0.5)", lambda: ring.bernoulli_(0.5) is None or None)
        yield Statement("i = multinomial(ring.sum(1) + 1, 2).tolist()",
                        lambda: {"i": genesis.multinomial(ring.sum(1) + 1, 2).tolist()}, ("i",))
        yield Statement("order = randperm(5)", lambda: {"order": genesis.randperm(5)}, ("order",))
        yield Statement("table.copy_(table[order])",
                        lambda: table.copy_(table[self.names["order"]]) is None or None)

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from {"table": self.table, "ring": self.ring, "at": self.at}.items()


class Restored(Stepping):
    """A copy of all states is taken, a step is made, and all is put back; groups are added."""

    def __init__(self) -> None:
        self.saved: Any = None
        super().__init__(mlp(), lambda p: optim.RAdam(list(p), lr=0.125))

    def _save(self) -> None:
        self.saved = copy.deepcopy((self.net.state_dict(), self.opt.state_dict()))

    def _iteration(self) -> Iterator[Statement]:
        step = [*super()._iteration()]
        yield from step[:-1]
        yield Statement("saved = deepcopy((net.state_dict(), opt.state_dict()))", self._save)
        yield from step[:-1]
        yield Statement("net.load_state_dict(saved[0])", lambda: self.net.load_state_dict(self.saved[0]) and None)
        yield Statement("opt.load_state_dict(saved[1])", lambda: self.opt.load_state_dict(self.saved[1]))
        yield step[-1]


class Recurrent(Stepping):
    """An LSTM over a sequence with dropout between layers, and attention; the loss is a list of losses' sum."""

    def __init__(self) -> None:
        super().__init__(nn.ModuleDict({"rnn": nn.LSTM(3, 4, 2, dropout=0.25, batch_first=True),
                                        "attention": nn.MultiheadAttention(4, 2, batch_first=True),
                                        "norm": nn.LayerNorm(4), "head": nn.Linear(4, 2)}),
                         lambda p: optim.RMSprop(p, lr=0.0625))

    def _losses(self) -> list[Any]:
        found, _ = self.net["rnn"](self.x[None])
        mixed, _ = self.net["attention"](found, found, found, need_weights=False)
        out = self.net["head"](self.net["norm"](found + mixed))[0]
        return [F.cross_entropy(out[i:i + 1], self.y[i:i + 1]) for i in range(4)]

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("losses = ...", lambda: {f"loss{i}": x for i, x in enumerate(self._losses())},
                        tuple(f"loss{i}" for i in range(4)))
        yield Statement("sum(losses).backward()", lambda: sum(self.names[f"loss{i}"] for i in range(4)).backward())
        yield Statement("opt.step()", self.opt.step)
        yield Statement("value = loss0.item()", lambda: {"value": self.names["loss0"].item()}, ("value",))


PROGRAMS.update({
    "accumulated": lambda device: Accumulated(False),
    "compiled accumulation": lambda device: Accumulated(True),
    "averages with buffers": lambda device: Averaging(),
    "computed weights": lambda device: Parametrized(),
    "own derivative": lambda device: OwnDerivative(),
    "computed again": lambda device: Again(),
    "own optimizer": lambda device: OwnOptimizer(),
    "containers": lambda device: Containers(),
    "value read last": lambda device: LastRead(2),
    "capture of a value read last": lambda device: LastRead(0),
    "tallies": lambda device: Tallied(4),
    "capture of tallies": lambda device: Tallied(0),
    "scattered writes": lambda device: Scattered(),
    "restored": lambda device: Restored(),
    "recurrent": lambda device: Recurrent(),
})
