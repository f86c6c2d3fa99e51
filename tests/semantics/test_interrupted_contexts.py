"""An interrupt at any line of a context that switches something leaves it as it was, or as it is after the block."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

import genesis
from genesis.backends import cudnn
from genesis.engine.plan_lookup import observe
from genesis.engine.state import engine_state
from genesis.frontend.state import state
from genesis.nn.utils import parametrize
from genesis.tracing import stance
from tests.faults.events import Traced


class Switching(NamedTuple):
    """Something that is switched while a function runs.

    Attributes:
        run: does it; what it is given is to be called inside.
        shown: what is switched.
        put_back: switches it back, where a `with` of Genesis' own ends unprotected.
    """

    run: Callable[[Callable[[], Any]], Any]
    shown: Callable[[], Any]
    put_back: Callable[[], Any] | None = None


def context(make: Callable[[], Any], shown: Callable[[], Any]) -> Switching:
    def run(inside: Callable[[], Any]) -> Any:
        with make():
            return inside()
    return Switching(run, shown)


class Called(genesis.nn.Module):
    """A module with a parameter, that calls a function."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = genesis.nn.Parameter(genesis.ones(2))
        self.inside: Callable[[], Any] = int

    def forward(self, x: genesis.Tensor) -> genesis.Tensor:
        self.inside()
        return x * self.weight


def functional_call() -> Switching:
    module = Called()
    own, x, given = module.weight, genesis.ones(2), {"weight": genesis.zeros(2)}

    def run(inside: Callable[[], Any]) -> Any:
        module.inside = inside
        return genesis.func.functional_call(module, given, x)
    return Switching(run, lambda: module.weight is own, lambda: setattr(module, "weight", own))


def checkpoint() -> Switching:
    x = genesis.ones(2, requires_grad=True)
    return Switching(lambda inside: genesis.checkpoint(lambda: (inside(), x * 2)[1], use_reentrant=False),
                     lambda: len(state.regions), state.regions.clear)


def hooked_step() -> Switching:
    w = genesis.ones(2, requires_grad=True)
    optimizer = genesis.optim.SGD([w], lr=0.5)
    calls: list[Callable[[], Any]] = []
    optimizer.register_step_pre_hook(lambda *_: calls[-1]())

    def run(inside: Callable[[], Any]) -> Any:
        calls.append(inside)
        optimizer.step()
    return Switching(run, lambda: "_in_step" in vars(optimizer), lambda: vars(optimizer).pop("_in_step", None))


def drawing() -> Switching:
    def run(inside: Callable[[], Any]) -> Any:
        with genesis.random.fork_rng():
            genesis.rand(2)
            return inside()
    return Switching(run, lambda: genesis.get_rng_state().tolist())


def forced() -> Switching:
    called: list[Callable[[], Any]] = []

    @genesis.compiler.set_stance("force_eager")
    def function() -> None:
        called[-1]()

    def run(inside: Callable[[], Any]) -> None:
        called.append(inside)
        function()
    return Switching(run, lambda: stance._stance, lambda: stance.set_to("default"))


SWITCHES: dict[str, Callable[[], Switching]] = {
    "no_grad": lambda: context(genesis.no_grad, genesis.is_grad_enabled),
    "inference_mode": lambda: context(genesis.inference_mode, genesis.is_inference_mode_enabled),
    "autocast": lambda: context(lambda: genesis.autocast("cpu"), lambda: genesis.amp.is_autocast_enabled("cpu")),
    "device": lambda: context(lambda: genesis.device("meta"), genesis.get_default_device),
    "detect_anomaly": lambda: context(genesis.autograd.detect_anomaly, genesis.autograd.is_anomaly_enabled),
    "printoptions": lambda: context(lambda: genesis.printoptions(precision=2), genesis.get_printoptions),
    "fork_rng": drawing,
    "cudnn.flags": lambda: context(lambda: cudnn.flags(benchmark=not cudnn.benchmark), lambda: cudnn.benchmark),
    "cached parametrizations": lambda: context(parametrize.cached, lambda: parametrize._caching),
    "set_stance as a decorator": forced,
    "observe": lambda: context(lambda: observe(int), lambda: len(engine_state.observers)),
    "functional_call": functional_call,
    "checkpoint": checkpoint,
    "hooks of a step": hooked_step,
}


@pytest.mark.parametrize("raises", [False, True], ids=["", "raises"])
@pytest.mark.parametrize("name", SWITCHES)
def test_an_interrupt_at_any_line_leaves_nothing_switched(name: str, raises: bool) -> None:
    switching = SWITCHES[name]()
    seen: list[Any] = []

    def inside() -> None:
        seen.append(switching.shown())
        if raises:
            raise KeyboardInterrupt

    def run() -> None:
        try:
            switching.run(inside)
        except KeyboardInterrupt:
            if not raises:
                raise
    before = switching.shown()
    run()
    assert name == "fork_rng" or seen[-1] != before, "nothing is switched inside"
    assert switching.shown() == before
    lines = Traced("line")
    places = lines.places(run)
    for at in range(len(places)):
        with suppress(KeyboardInterrupt):
            lines.interrupt(run, at)
        if switching.put_back is not None and lines.last.unprotected:
            switching.put_back()
        assert switching.shown() == before, f"interrupted at {places[at]}"
