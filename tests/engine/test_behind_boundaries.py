"""What only boundaries of autograd hold is computed for itself as long as a backward can come to it, and no longer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import genesis
from genesis import engine, nn
from genesis.autograd import Function
from genesis.frontend.state import state
from genesis.runtime.cpu.storage import CPUStorage


class Twice(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def model() -> tuple[Any, Any]:
    genesis.manual_seed(1)
    layers = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    return layers, genesis.optim.SGD(layers.parameters(), lr=0.1)


def forward(layers: Any) -> tuple[Any, Any]:
    """What goes through the function, and a loss behind it."""
    hidden = Twice.apply(layers[1](layers[0](genesis.ones(32, 64))))
    return hidden, layers[2](hidden).square().mean()


def plan_of_step(keeps: bool) -> tuple[int, int, list[float]]:
    """The plan's outputs and the contents that are overwritten in it; the last loss."""
    layers, optimizer = model()
    kept = []
    for _ in range(3):
        optimizer.zero_grad()
        hidden, loss = forward(layers)
        loss.backward()
        if keeps:
            kept.append(hidden)
        del hidden
        optimizer.step()
        value = loss.item()
    plan = engine.last_plan()
    assert plan is not None
    return len(plan.plan.outputs), len(plan.stages["capture"].updates), [value]


def test_a_step_through_a_boundary_computes_and_copies_nothing_for_a_graph_that_was_released() -> None:
    outputs, updates, loss = plan_of_step(keeps=False)
    assert updates == 4
    assert outputs == 1 + 4  # the loss and the gradients
    more, _, same = plan_of_step(keeps=True)
    assert more > outputs and same == loss, "a value that the user keeps was not kept"


def test_beside_another_thread_no_weights_are_copied_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has recorded nothing: what is not computed for itself was there when the step was looked at."""
    copied: list[int] = []
    clone = CPUStorage.clone
    monkeypatch.setattr(CPUStorage, "clone", lambda self: (copied.append(self.nbytes), clone(self))[1])
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    try:
        plan_of_step(keeps=False)
    finally:
        end.set()
        other.join()
    assert copied == []


def test_boundaries_end_with_the_step() -> None:
    before = len(state.crossings)
    plan_of_step(keeps=False)
    assert len(state.crossings) == before


def test_a_loss_that_shares_a_boundary_can_be_differentiated_after_the_others_weights_changed() -> None:
    """The other loss is alive: what the boundary was made from is computed before weights are overwritten."""
    layers, _ = model()
    hidden, loss = forward(layers)
    other = hidden.sum()
    expected = genesis.autograd.grad(other, layers[0].bias, retain_graph=True)[0].tolist()
    del hidden
    loss.backward()
    with genesis.no_grad():
        layers[2].weight.add_(1)
    loss.item()
    found = genesis.autograd.grad(other, layers[0].bias)[0].tolist()
    assert found == expected


class Keeps(Function):
    """It keeps one tensor twice, and two views of a memory: by themselves and in containers."""

    @staticmethod
    def forward(ctx: Any, x: Any, others: Any) -> Any:
        ctx.save_for_backward(x)
        left, right = (x * 3).chunk(2)
        ctx.left, ctx.rest, others["these"] = left, [right, left], [x * 5]
        ctx.others, others["ctx"] = others["these"], ctx
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2, None


def held_after_a_backward(hold: str) -> int:
    """How many values of a graph that was released are computed beside the loss, its gradients and the weights."""
    layers, optimizer = model()
    others: dict[str, Any] = {}
    made = layers[0](genesis.ones(32, 64))
    first, second = Keeps.apply(made, others), Keeps.apply(made, others)
    held = others["these"] if hold == "list" else others["ctx"] if hold == "ctx" else None
    others.clear()
    shown = first.grad_fn if hold == "graph" else None
    loss = layers[2](first + second).square().mean()
    del made, first, second
    loss.backward()
    optimizer.step()
    plan = engine.last_plan()
    assert plan is not None
    found = len(plan.plan.outputs)
    del held
    if shown is not None:
        genesis.manual_seed(1)
        before = nn.Linear(64, 64)(genesis.ones(32, 64))
        assert shown.left.tolist() == (before * 3)[:16].tolist()
        assert shown.others[0].tolist() == (before * 5).tolist()
    return found


def test_what_a_function_sets_on_its_ctx_is_let_go_of_as_what_it_saves() -> None:
    alone = held_after_a_backward("nothing")
    assert alone == 1 + 4  # the loss and the gradients


def test_what_others_hold_of_it_is_computed() -> None:
    alone = held_after_a_backward("nothing")
    assert all(held_after_a_backward(hold) > alone for hold in ("list", "ctx", "graph"))
