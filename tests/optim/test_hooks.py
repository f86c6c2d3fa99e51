"""Hooks of optimizers run where and with what torch's do."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import genesis
from genesis.optim.optimizer import register_optimizer_step_pre_hook

LIBRARIES = pytest.mark.parametrize("T", [torch, genesis], ids=["torch", "genesis"])


def made(T: Any, kind: str = "SGD") -> tuple[Any, Any]:
    w = T.nn.Parameter(T.ones(2))
    w.grad = T.ones(2)
    return w, getattr(T.optim, kind)([w], lr=0.5)


@LIBRARIES
@pytest.mark.parametrize("kind", ["SGD", "Adam", "LBFGS"])
def test_step_hooks_run_around_the_step_with_its_arguments(T: Any, kind: str) -> None:
    w, optimizer = made(T, kind)
    seen: list[Any] = []
    closure: Callable[[], Any] = lambda: T.ones(()).requires_grad_()  # noqa: E731
    optimizer.register_step_pre_hook(
        lambda o, args, kwargs: seen.append(("pre", o is optimizer, args[0] is o, len(args))))
    handle = optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(("post", w.tolist() != [1.0, 1.0])))
    optimizer.step(closure)
    assert seen[0] == ("pre", True, True, 2) and seen[1][0] == "post"
    assert kind == "LBFGS" or seen[1][1]
    handle.remove()
    optimizer.step(closure)
    assert [x[0] for x in seen] == ["pre", "post", "pre"]


@LIBRARIES
def test_a_pre_hook_may_change_gradients(T: Any) -> None:
    w, optimizer = made(T)

    def triple(o: Any, args: Any, kwargs: Any) -> None:
        w.grad.mul_(3)
    optimizer.register_step_pre_hook(triple)
    optimizer.step()
    assert w.tolist() == [-0.5, -0.5]


@LIBRARIES
def test_a_pre_hook_returns_arguments_or_none(T: Any) -> None:
    _, optimizer = made(T)
    optimizer.register_step_pre_hook(lambda *a: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple of"):
        optimizer.step()


@LIBRARIES
def test_hooks_of_all_optimizers_come_first_and_last(T: Any) -> None:
    hooks = importlib.import_module(f"{T.__name__}.optim.optimizer")
    _, optimizer = made(T)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *a: seen.append("pre"))
    optimizer.register_step_post_hook(lambda *a: seen.append("post"))
    first = hooks.register_optimizer_step_pre_hook(lambda *a: seen.append("all pre"))
    last = hooks.register_optimizer_step_post_hook(lambda *a: seen.append("all post"))
    optimizer.step()
    first.remove()
    last.remove()
    optimizer.step()
    assert seen == ["all pre", "pre", "post", "all post", "pre", "post"]


@LIBRARIES
def test_hooks_run_around_a_step_of_the_users_own(T: Any) -> None:
    class Plain(T.optim.Optimizer):  # type: ignore[misc]
        def __init__(self, params: Any):
            super().__init__(params, {"lr": 0.5})

        @T.no_grad()
        def step(self, closure: Any = None) -> None:
            for p in self.param_groups[0]["params"]:
                p.add_(p.grad, alpha=-0.5)

    w = T.nn.Parameter(T.ones(1))
    w.grad = T.ones(1)
    optimizer, seen = Plain([w]), []
    optimizer.register_step_post_hook(lambda *a: seen.append(w.item()))
    optimizer.step()
    assert seen == [0.5]


@LIBRARIES
def test_state_dict_hooks(T: Any) -> None:
    _, optimizer = made(T, "Adam")
    optimizer.step()
    seen: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("pre"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "note": 3})
    state = optimizer.state_dict()
    assert seen == ["pre"] and state["note"] == 3

    def strip(o: Any, state: Any) -> Any:
        seen.append("load pre")
        return {name: value for name, value in state.items() if name != "note"}
    optimizer.register_load_state_dict_pre_hook(strip)
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("load post"))
    optimizer.load_state_dict(copy.deepcopy(state))
    assert seen == ["pre", "load pre", "load post"]


def test_a_hook_added_later_runs_around_a_compiled_step() -> None:
    """What was compiled without it is made anew."""
    model, seen = genesis.nn.Linear(2, 1), []
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)

    @genesis.compile
    def step(x: Any) -> Any:
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = genesis.ones(3, 2)
    for _ in range(4):
        step(x)
    handle = optimizer.register_step_post_hook(lambda *a: seen.append(1))
    for _ in range(3):
        step(x)
    handle.remove()
    step(x)
    assert len(seen) == 3
    with register_optimizer_step_pre_hook(lambda *a: seen.append(2)):
        step(x)
    step(x)
    assert seen == [1, 1, 1, 2]
