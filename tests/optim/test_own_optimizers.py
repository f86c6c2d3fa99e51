"""A subclass of `optim.Optimizer` that is written by torch's protocol works as it does there."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch

import genesis
from tests.optim import by_hand


def momentum_like(L: Any) -> type:
    """Math on `.data`, no decorator."""
    class Own(L.optim.Optimizer):
        def __init__(self, params: Any, lr: float):
            super().__init__(params, {"lr": lr})

        def step(self, closure: Callable | None = None) -> Any:
            loss = None if closure is None else closure()
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        direction = self.state[p].setdefault("direction", p.grad.data.clone())
                        direction.mul_(0.5).add_(p.grad.data)
                        p.data.add_(direction, alpha=-group["lr"])
            return loss
    return Own


def train(L: Any, kind: Callable) -> list:
    """Seven steps: groups, a late group, a schedule, a closure, and a state that moves to another optimizer."""
    x, y = L.arange(12.0).reshape(4, 3) / 10, L.arange(4.0).reshape(4, 1)
    weights = [L.nn.Parameter(L.ones(3, 2) * 0.1), L.nn.Parameter(L.ones(2) * 0.2), L.nn.Parameter(L.ones(2, 1))]
    late, unused = L.nn.Parameter(L.ones(1)), L.nn.Parameter(L.ones(1))

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((((x @ weights[0] + weights[1]).relu() @ weights[2]) * late - y) ** 2).mean()
        loss.backward()
        return loss

    def made() -> Any:
        return kind(L)([{"params": weights[:2]}, {"params": [weights[2], unused], "lr": 0.05}], lr=0.1)
    optimizer = made()
    optimizer.add_param_group({"params": late, "lr": 0.01})
    schedule = L.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    assert len(optimizer.state) == 0
    losses = []
    for _ in range(4):
        losses.append(optimizer.step(closure).item())
        schedule.step()
    saved = optimizer.state_dict()
    assert set(saved["state"]) == {0, 1, 2, 4}
    optimizer = made()
    optimizer.add_param_group({"params": [late]})
    optimizer.load_state_dict(copy.deepcopy(saved))
    for _ in range(3):
        closure()
        assert optimizer.step() is None
    return [*losses, *(value for p in (*weights, late, unused) for value in p.reshape(-1).tolist())]


@pytest.mark.parametrize("kind", [by_hand.adam, momentum_like])
def test_training_is_torchs(kind: Callable) -> None:
    assert train(genesis, kind) == pytest.approx(train(torch, kind), rel=1e-5)


@pytest.mark.parametrize("kind", [by_hand.adam, momentum_like])
def test_a_compiled_step_is_the_plain_one(kind: Callable) -> None:
    def run(compiled: bool) -> list:
        w = genesis.nn.Parameter(genesis.ones(3))
        optimizer = kind(genesis)([w], lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = ((w * x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss
        call = genesis.compile(step) if compiled else step
        return [call(genesis.ones(3) * i).item() for i in range(1, 6)] + w.tolist()
    assert run(True) == pytest.approx(run(False), rel=1e-6)


def test_a_step_that_nobody_reads_is_computed() -> None:
    """Else a training loop would pile up its whole history."""
    w = genesis.nn.Parameter(genesis.ones(2))
    optimizer = momentum_like(genesis)([w], lr=0.1)
    (w * w).sum().backward()
    optimizer.step()
    assert w.storage.settled


def test_a_subclass_of_a_built_in_optimizer_may_wrap_its_step() -> None:
    class Counting(genesis.optim.SGD):
        count = 0

        def step(self, closure: Callable | None = None) -> Any:
            self.count += 1
            return super().step(closure)
    w = genesis.nn.Parameter(genesis.ones(1))
    optimizer = Counting([w], lr=0.5)
    (w * w).sum().backward()
    optimizer.step()
    assert optimizer.count == 1 and w.item() == 0.0


def test_what_an_own_update_counts_is_taken_back_when_it_raises() -> None:
    class Falling(genesis.optim.Optimizer):
        broken = False

        def initial_state(self, parameter: Any, group: Any) -> dict[str, Any]:
            return {"step": 0}

        def update(self, group: Any, parameters: Any, gradients: Any) -> None:
            for p, g in zip(parameters, gradients, strict=True):
                self.state[p]["step"] += 1
                if self.broken:
                    raise ArithmeticError("no")
                p.add_(g, alpha=-group["lr"] / self.state[p]["step"])
    w = genesis.nn.Parameter(genesis.ones(1))
    optimizer = Falling([w], {"lr": 0.5})
    w.grad = genesis.ones(1)
    optimizer.step()
    optimizer.broken = True
    with pytest.raises(ArithmeticError):
        optimizer.step()
    assert optimizer.state[w]["step"] == 1 and w.item() == 0.5
    optimizer.broken = False
    optimizer.step()
    assert optimizer.state[w]["step"] == 2 and w.item() == 0.25


def test_neither_protocol() -> None:
    class Nothing(genesis.optim.Optimizer):
        pass
    w = genesis.nn.Parameter(genesis.ones(1))
    optimizer = Nothing([w], {"lr": 0.1})
    w.sum().backward()
    with pytest.raises(NotImplementedError, match="Nothing has no step"):
        optimizer.step()
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [w]})


def completing(L: Any) -> type:
    """torch's own optimizers give groups of older files what they lack in `__setstate__`."""
    class Own(L.optim.Optimizer):
        def __init__(self, params: Any, lr: float = 0.1):
            super().__init__(params, {"lr": lr})
            self.begun = 0

        def __setstate__(self, state: Any) -> None:
            super().__setstate__(state)
            for group in self.param_groups:
                group.setdefault("flipped", True)

        @L.no_grad()
        def step(self, closure: Callable | None = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p].setdefault("kept", L.zeros_like(p)).add_(p.grad)
                    p.add_(self.state[p]["kept"], alpha=group["lr"] if group.get("flipped") else -group["lr"])
    return Own


def restored(L: Any, how: Callable) -> list:
    """A step, the optimizer through a copy, a pickle or a load, a step: the weights and the last groups."""
    w = L.ones(2, requires_grad=True)
    optimizer = completing(L)([w])
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
        found.append(w.detach().tolist())
        optimizer = how(optimizer)
        w = optimizer.param_groups[0]["params"][0]
        found.append([{name: value for name, value in group.items() if name in ("lr", "flipped")}
                      for group in optimizer.param_groups])
    return found


def loaded(optimizer: Any) -> Any:
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return optimizer


@pytest.mark.parametrize("how", [loaded, copy.deepcopy], ids=["load_state_dict", "deepcopy"])
def test_setstate_completes_older_groups(how: Callable) -> None:
    assert restored(genesis, how) == restored(torch, how)


def test_a_setstate_that_raises_is_the_error_of_the_load() -> None:
    class Own(completing(genesis)):  # type: ignore[misc]
        def __setstate__(self, state: Any) -> None:
            raise KeyError("lr")
    optimizer = Own([genesis.ones(2, requires_grad=True)])
    with pytest.raises(KeyError, match="lr"):
        optimizer.load_state_dict(optimizer.state_dict())


def test_an_option_that_each_group_must_give_is_asked_for() -> None:
    for L in (genesis, torch):
        from_module = import_module(f"{L.__name__}.optim.optimizer")

        class Own(from_module.Optimizer):  # type: ignore[misc, name-defined]
            def __init__(self, params: Any, lr: Any = from_module.required):
                super().__init__(params, {"lr": lr})
        w = L.nn.Parameter(L.ones(1))
        assert Own([{"params": [w], "lr": 0.5}]).param_groups[0]["lr"] == 0.5
        assert repr(from_module.required) == "<required parameter>"
        with pytest.raises(ValueError, match="didn't specify a value of required optimization parameter lr"):
            Own([w])


def test_a_wrapper_that_calls_no_init_has_its_own_state() -> None:
    """As Lookahead is often written: groups are the wrapped optimizer's, state is a dictionary of its own."""
    class Wrapper(genesis.optim.Optimizer):
        def __init__(self, inner: Any) -> None:
            self.inner, self.param_groups, self.state = inner, inner.param_groups, defaultdict(dict)

        def step(self, closure: Any = None) -> Any:
            loss = self.inner.step(closure)
            for group in self.param_groups:
                for p in group["params"]:
                    slow = self.state[p].setdefault("slow", p.data.clone())
                    slow.add_(p.data - slow, alpha=0.5)
                    p.data.copy_(slow)
            return loss
    w = genesis.nn.Parameter(genesis.ones(2))
    optimizer = Wrapper(genesis.optim.SGD([w], lr=0.5, momentum=0.9))
    for _ in range(2):
        w.grad = genesis.ones(2)
        optimizer.step()
    assert w.tolist() == pytest.approx([0.025, 0.025]) and list(optimizer.state[w]) == ["slow"]


def test_a_first_state_that_is_not_of_zeros_is_of_the_options_at_the_first_step() -> None:
    """A state is made ahead of the first step; who looks at it takes it away, and changes what it follows from."""
    class Warm(genesis.optim.RMSprop):
        """Begins with a mean of squares that the group tells."""

        def initial_state(self, parameter: Any, group: Any) -> Any:
            return {**super().initial_state(parameter, group),
                    "square_avg": (genesis.ones_like if group.get("start") else genesis.zeros_like)(parameter)}

    def stepped(*starts: float) -> list[float]:
        w = genesis.ones(2, requires_grad=True)
        optimizer = Warm([{"params": [w], "start": starts[0]}], lr=0.5)
        for start in starts:
            assert len(optimizer.state) == 0
            optimizer.param_groups[0]["start"] = start
        (w * 3).sum().backward()
        optimizer.step()
        return [*w.tolist(), *optimizer.state[w]["square_avg"].tolist()]
    assert stepped(0.0, 1.0) == stepped(1.0) != stepped(0.0)
