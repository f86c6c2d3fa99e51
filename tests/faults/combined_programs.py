"""Every optimizer over a model that has all at once: two dtypes, batch norm and dropout; plain and compiled. LBFGS,
whose step is many of the user's, and steps in low precision, whose weights have copies on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import genesis
from genesis import nn, optim
from genesis.nn import functional as F
from tests.faults.programs import MODELS, OPTIMIZERS, PROGRAMS, Case, Recipe, Statement, Training
from tests.faults.stateful_programs import Turning


class _All(nn.Module):
    """Layers of two dtypes, batch statistics and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.25)
        self.second = nn.Linear(4, 2).to(genesis.float16)

    def forward(self, x: Any) -> Any:
        return self.second(self.drop(F.relu(self.norm(self.first(x)))).to(genesis.float16)).float()


def _matrices(parameters: Any) -> list[Any]:
    return [p for p in parameters if p.ndim == 2]


MODELS["all"] = _All
OPTIMIZERS.update({
    "ASGD": lambda p: optim.ASGD(p, lr=0.25, t0=1),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.25),
    "Muon": lambda p: optim.Muon(_matrices(p), lr=0.25),
    "SGD nesterov": lambda p: optim.SGD(p, lr=0.0078125, momentum=0.9, nesterov=True, maximize=True),
    "amsgrad": lambda p: optim.Adam(p, lr=0.25, amsgrad=True, weight_decay=0.1),
    "RMSprop centered": lambda p: optim.RMSprop(p, lr=0.25, centered=True),
})
COMBINED: Final = tuple(OPTIMIZERS)
"""The optimizers, each plain and compiled over the model that has all."""

COMBINED_PROGRAMS: Final = tuple(f"{way}all with {name}" for way in ("", "compiled ") for name in COMBINED)
"""Their programs."""


class LowPrecision(Training):
    """A step whose forward is in bfloat16, compiled or not."""

    def __init__(self, recipe: Recipe):
        super().__init__(replace(recipe, compiled=""))
        self._recipe = recipe
        if recipe.compiled:
            self.statements = [*self._inside()] * (recipe.warm + 2)
            one = len([*self._inside()])
            self.starts = [one * i for i in range(recipe.warm + 3)]
            self.target = (self.starts[recipe.warm], self.starts[recipe.warm + 1])
            step = genesis.compile(self._low_step)
            self.whole = Statement("loss = step(x, y)", lambda: {"loss": step(self.x, self.y)}, ("loss",))
            net = self.net.forward
            self.net.forward = lambda x: self._low(net, x)  # type: ignore[method-assign]

    def _low(self, net: Callable[[Any], Any], x: Any) -> Any:
        with genesis.autocast(self._recipe.device, dtype=genesis.bfloat16):
            return net(x).float()

    def _low_step(self, x: Any, y: Any) -> Any:
        self.opt.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.opt.step()
        return loss


class SecondOrder(Turning):
    """LBFGS evaluates the user's function as often as it likes, and moves the parameters between."""

    def __init__(self, search: str | None, device: str):
        self.net = nn.Linear(3, 2)
        with genesis.no_grad():
            for i, p in enumerate(self.net.parameters()):
                p.copy_(genesis.sin(genesis.arange(p.numel()).float() + i).view(p.shape))
        self.net.to(device)
        self.opt = optim.LBFGS(self.net.parameters(), lr=0.5, max_iter=3, history_size=2, line_search_fn=search)
        self.x = genesis.linspace(-1, 1, 12).view(4, 3).to(device)
        super().__init__()

    def _closure(self) -> Any:
        self.opt.zero_grad()
        loss = (self.net(self.x) - 1.0).pow(4).mean()
        loss.backward()
        return loss

    def _iteration(self) -> Iterator[Statement]:
        yield Statement("loss = opt.step(closure)", lambda: {"loss": self.opt.step(self._closure)}, ("loss",))
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from self.net.named_parameters()
        for key, value in self.opt.state.get(next(self.net.parameters()), {}).items():
            if isinstance(value, list):
                yield f"{key} counted", len(value)
                yield from ((f"{key}.{i}", x) for i, x in enumerate(value))
            else:
                yield key, value


def _training(**choices: Any) -> Callable[[str], Case]:
    return lambda device: Training(Recipe(device=device, **choices))


PROGRAMS.update({
    **{f"all with {name}": _training(model="all", optimizer=name) for name in COMBINED},
    **{f"compiled all with {name}": _training(model="all", optimizer=name, compiled="step") for name in COMBINED},
    "low precision": lambda device: LowPrecision(Recipe(device=device, low=True)),
    "compiled low precision": lambda device: LowPrecision(Recipe(device=device, compiled="step")),
    "step of LBFGS": lambda device: SecondOrder(None, device),
    "step of LBFGS with a search": lambda device: SecondOrder("strong_wolfe", device),
})


class Twice(Training):
    """The optimizer lists a parameter twice: a step updates it by two ops, the second one after the first."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        parameters = list(self.net.parameters())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parameter
            self.opt = OPTIMIZERS[recipe.optimizer]([*parameters, parameters[0]])
        compiled = recipe.compiled == "step"
        iteration = [*(self._inside() if compiled else self._iteration())]
        self.statements = iteration * (recipe.warm + 2)


PROGRAMS["scaled and listed twice"] = lambda device: Twice(Recipe(device=device, scaled=True))
PROGRAMS.update({f"{way}listed twice in {name}": lambda device, name=name, way=way: Twice(Recipe(
    device=device, optimizer=name, compiled="step" if way else "")) for way in ("", "compiled ") for name in COMBINED})
