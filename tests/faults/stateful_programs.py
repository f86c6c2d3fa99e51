"""Programs that keep state in other places: averages of weights, a scale that skips, states that are carried, merged
factors, gradients of each example, caches, attributes of a compiled method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import genesis
from genesis import engine, nn, optim
from genesis.nn import functional as F
from tests.faults.programs import PROGRAMS, Case, Recipe, Statement, Training


class Averaged(Training):
    """After each step averages of the weights follow, each by a line."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        self.averages = {name: p.detach().clone() for name, p in self.net.named_parameters()}
        genesis.eval(list(self.averages.values()))
        iteration = [*self._iteration()]
        with_averages = [*iteration[:-1], *map(self._follows, self.averages), iteration[-1]]
        self.statements = with_averages * (recipe.warm + 2)
        self.starts = [len(with_averages) * i for i in range(recipe.warm + 3)]
        self.target = (self.starts[recipe.warm], self.starts[recipe.warm + 1])

    def _follows(self, name: str) -> Statement:
        p = dict(self.net.named_parameters())[name]
        return Statement("average.lerp_(p.detach(), 0.25)",
                         lambda: self.averages[name].lerp_(p.detach(), 0.25) is None or None)

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from super().kept()
        yield from ((f"average of {name}", x) for name, x in self.averages.items())


class Skipping(Training):
    """Scaled gradients overflow: the scaler leaves the step out."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        assert self.scaler is not None
        self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": 2.0 ** 127})


class Turning(Case):
    """A few equal iterations; faults are injected into the third."""

    def __init__(self) -> None:
        super().__init__()
        genesis.eval([x for _, x in self.kept() if isinstance(x, genesis.Tensor)])
        iteration = [*self._iteration()]
        self.statements = iteration * 4
        self.starts = [len(iteration) * i for i in range(5)]
        self.target = (self.starts[2], self.starts[3])

    def _iteration(self) -> Iterator[Statement]:
        raise NotImplementedError


class Carried(Turning):
    """A recurrent state goes from one iteration to the next, without its history."""

    def __init__(self) -> None:
        self.cell, self.x = nn.LSTMCell(3, 2), genesis.linspace(-1, 1, 12).view(4, 3)
        with genesis.no_grad():
            for i, p in enumerate(self.cell.parameters()):
                p.copy_(genesis.sin(genesis.arange(p.numel()).float() + i).view(p.shape))
        self.opt = optim.SGD(self.cell.parameters(), lr=0.5, momentum=0.9)
        self.start = genesis.zeros(4, 2)
        super().__init__()
        self.names.update(h=self.start, c=self.start)

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("h, c = cell(x, (h, c))", lambda: dict(
            zip("hc", self.cell(self.x, (self.names["h"], self.names["c"])), strict=True)), ("h", "c"))
        yield Statement("loss = h.square().mean()", lambda: {"loss": self.names["h"].square().mean()}, ("loss",))
        yield Statement("loss.backward()", lambda: self.names["loss"].backward())
        yield Statement("opt.step()", self.opt.step)
        yield Statement("h, c = h.detach(), c.detach()",
                        lambda: {name: self.names[name].detach() for name in "hc"}, ("h", "c"))
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.cell.named_parameters()
        yield "start", self.start
        for name, p in self.cell.named_parameters():
            yield from ((f"{name}.{key}", x) for key, x in self.opt.state.get(p, {}).items())

    def graded(self) -> Iterator[tuple[str, Any]]:
        return self.cell.named_parameters()


class Merged(Turning):
    """Factors are merged into a weight, emptied, and filled from it; a part of a cache is written."""

    def __init__(self) -> None:
        self.w, self.x = genesis.linspace(-1, 1, 12).view(4, 3), genesis.linspace(0, 1, 6).view(2, 3)
        self.a, self.b = genesis.full((2, 3), 0.5), genesis.full((4, 2), 0.25)
        self.cache = genesis.zeros(8, 2, 4)
        super().__init__()

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("w += b @ a", lambda: self.w.add_(self.b @ self.a) is None or None)
        yield Statement("b.zero_()", lambda: self.b.zero_() is None or None)
        yield Statement("out = x @ w.t()", lambda: {"out": self.x @ self.w.t()}, ("out",))
        yield Statement("cache[3] += out", lambda: self.cache[3].add_(self.names["out"]) is None or None)
        yield Statement("token = (cache * 2).sum(0).argmax().item()",
                        lambda: {"token": (self.cache * 2).sum(0).argmax().item()}, ("token",))
        yield Statement("b.add_(out.mean())", lambda: self.b.add_(self.names["out"].mean()) is None or None)
        yield Statement("a.copy_(w[:2].tanh())", lambda: self.a.copy_(self.w[:2].tanh()) is None or None)
        yield Statement("seen = a.tolist()", lambda: {"seen": self.a.tolist()}, ("seen",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from {"w": self.w, "x": self.x, "a": self.a, "b": self.b, "cache": self.cache}.items()


class PerSample(Turning):
    """Gradients of each example by `vmap`, of a function over a dictionary of weights; a step by hand."""

    def __init__(self) -> None:
        self.net, self.x = nn.Linear(3, 2), genesis.linspace(-1, 1, 12).view(4, 3)
        self.y = genesis.tensor([0, 1, 1, 0])
        with genesis.no_grad():
            for i, p in enumerate(self.net.parameters()):
                p.copy_(genesis.sin(genesis.arange(p.numel()).float() + i).view(p.shape))
        self.weights = {name: p.detach().clone() for name, p in self.net.named_parameters()}
        self.gradients = genesis.func.vmap(genesis.func.grad(self._loss), in_dims=(None, 0, 0))
        super().__init__()

    def _loss(self, weights: dict[str, Any], x: Any, y: Any) -> Any:
        return F.cross_entropy(genesis.func.functional_call(self.net, weights, (x[None],)), y[None])

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("g = vmap(grad(loss), (None, 0, 0))(weights, x, y)",
                        lambda: {"g": self.gradients(self.weights, self.x, self.y)}, ("g",))
        for name in self.weights:
            yield Statement(f"weights[{name!r}] -= 0.5 * g[{name!r}].mean(0)", lambda name=name: self.weights[
                name].sub_(0.5 * self.names["g"][name].mean(0)) is None or None)
        yield Statement("value = weights['bias'].sum().item()",
                        lambda: {"value": self.weights["bias"].sum().item()}, ("value",))

    def observe(self) -> Any:
        found = super().observe()
        found.bound.pop("g", None)
        return found

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.weights.items()
        yield "x", self.x


class CompiledMethod(Turning):
    """A compiled method writes to a tensor of its object and reads a number of it, which changes."""

    def __init__(self) -> None:
        self.x, self.total, self.scale = genesis.linspace(-1, 1, 4), genesis.zeros(4), 1.0
        self.history = [genesis.zeros(4), genesis.ones(4)]

        def forward() -> Any:
            self.total.add_(self.x * self.scale)
            self.history[0].mul_(0.5).add_(self.total)
            return (self.total * self.history[1]).tanh()
        self.forward = genesis.compile(forward)
        super().__init__()

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("y = forward()", lambda: {"y": self.forward()}, ("y",))
        yield Statement("z = (y * 2).tolist()", lambda: {"z": (self.names["y"] * 2).tolist()}, ("z",))
        yield Statement("history[1].copy_(y)", lambda: self.history[1].copy_(self.names["y"]) is None or None)
        yield Statement("y = forward()", lambda: {"y": self.forward()}, ("y",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from {"x": self.x, "total": self.total, "first": self.history[0], "second": self.history[1]}.items()


class ByHand(optim.Optimizer):
    """An optimizer as people write them: a count that the update reads, an average, a tensor that is another one after
    each step."""

    def __init__(self, params: Any):
        super().__init__(params, {"lr": 0.1})
        for p in self.param_groups[0]["params"]:
            self.state[p] = {"step": 0, "mean": genesis.zeros_like(p), "last": genesis.ones_like(p)}

    @genesis.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                for line in self.lines(group, p):
                    line()

    def lines(self, group: Any, p: Any) -> tuple[Any, ...]:
        """The statements of a parameter's update."""
        state = self.state[p]
        return (lambda: state.update(step=state["step"] + 1), lambda: state["mean"].mul_(0.9),
                lambda: state["mean"].add_(p.grad, alpha=0.1),
                lambda: state.update(last=state["last"] * 0.5 + p.grad),
                lambda: p.add_(state["mean"], alpha=-group["lr"] / (1 - 0.9 ** state["step"])),
                lambda: p.sub_(state["last"], alpha=0.01))


class WrittenOptimizer(Case):
    """A compiled step with such an optimizer, whose third and fourth calls are replayed."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.net = genesis.linspace(-1, 1, 12).view(4, 3).clone(), nn.Linear(3, 2)
        with genesis.no_grad():
            for i, p in enumerate(self.net.parameters()):
                p.copy_(genesis.sin(genesis.arange(p.numel()).float() + i).view(p.shape))
        self.opt = ByHand(self.net.parameters())
        genesis.eval([x for _, x in self.kept() if isinstance(x, genesis.Tensor)])
        step = genesis.compile(self._step)
        self.whole = Statement("loss = step(x)", lambda: {"loss": step(self.x)}, ("loss",))
        iteration = [*self._iteration()]
        self.statements = iteration * 5
        self.starts = [len(iteration) * i for i in range(6)]
        self.target = (self.starts[3], self.starts[4])

    def _step(self, x: Any) -> Any:
        self.opt.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.opt.step()
        return loss

    def _iteration(self) -> Iterator[Statement]:
        local: dict[str, Any] = {}
        yield Statement("opt.zero_grad()", self.opt.zero_grad)
        yield Statement("loss = net(x).square().mean()",
                        lambda: local.update(loss=self.net(self.x).square().mean()))
        yield Statement("loss.backward()", lambda: local["loss"].backward())
        for group in self.opt.param_groups:
            for p in group["params"]:
                for number in range(len(self.opt.lines(group, p))):
                    yield Statement(f"line {number} of the update",
                                    genesis.no_grad()(lambda p=p, number=number, group=group:
                                                      self.opt.lines(group, p)[number]() is None or None))
        yield Statement("the step ends", engine.end_step)
        yield Statement("return loss", lambda: {"loss": local.pop("loss")}, ("loss",))
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        for name, p in self.net.named_parameters():
            yield name, p
            yield from ((f"{name}.{key}", x) for key, x in self.opt.state[p].items())

    def graded(self) -> Iterator[tuple[str, Any]]:
        return self.net.named_parameters()


PROGRAMS.update({
    "written optimizer": lambda device: WrittenOptimizer(),
    "averaged": lambda device: Averaged(Recipe(device=device, optimizer="SGD momentum")),
    "skipped steps": lambda device: Skipping(Recipe(device=device, scaled=True)),
    "carried state": lambda device: Carried(),
    "merged factors": lambda device: Merged(),
    "per sample": lambda device: PerSample(),
    "compiled method": lambda device: CompiledMethod(),
})
