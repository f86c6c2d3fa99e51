"""Optimizers as people write them, stepped inside a compiled step: every bit of the loop without `genesis.compile`,
over twelve steps with another rate and a resume in the middle, and how many of the calls are captured."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import genesis
from genesis import nn
from genesis.optim import Optimizer
from tests.optim import by_hand

F = genesis.nn.functional


class Lion(Optimizer):
    """Chen et al. 2023: the sign of a mix of the momentum and the gradient."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.99), weight_decay: float = 0.0):
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @genesis.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with genesis.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                grad, state = p.grad, self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = genesis.zeros_like(p)
                exp_avg, (beta1, beta2) = state["exp_avg"], group["betas"]
                update = exp_avg * beta1 + grad * (1 - beta1)
                p.add_(update.sign_(), alpha=-group["lr"])
                exp_avg.mul_(beta2).add_(grad, alpha=1 - beta2)
        return loss


AdamByHand, Lookahead = by_hand.adam(genesis), by_hand.lookahead(genesis)


class SAM(Optimizer):
    """Foret et al. 2021, as the older form of its best known code: up along the gradient, down again, and a step."""

    def __init__(self, params: Any, base: Any, rho: float = 0.05, **options: Any):
        super().__init__(params, dict(rho=rho, **options))
        self.base_optimizer = base(self.param_groups, **options)
        self.param_groups = self.base_optimizer.param_groups

    @genesis.no_grad()
    def first_step(self, zero_grad: bool = False) -> None:
        norm = self._grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                e_w = p.grad * scale.to(p)
                p.add_(e_w)
                self.state[p]["e_w"] = e_w
        if zero_grad:
            self.zero_grad()

    @genesis.no_grad()
    def second_step(self, zero_grad: bool = False) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.sub_(self.state[p]["e_w"])
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    @genesis.no_grad()
    def step(self, closure: Any = None) -> Any:
        closure = genesis.enable_grad()(closure)
        self.first_step(zero_grad=True)
        closure()
        self.second_step()

    def _grad_norm(self) -> Any:
        return genesis.norm(genesis.stack([p.grad.norm(p=2) for group in self.param_groups for p in group["params"]
                                           if p.grad is not None]), p=2)


class Shampoo(Optimizer):
    """Gupta et al. 2018: a matrix for each dimension, its inverse root every few steps."""

    def __init__(self, params: Any, lr: float = 1e-1, momentum: float = 0.9, epsilon: float = 1e-1, every: int = 1):
        super().__init__(params, {"lr": lr, "momentum": momentum, "epsilon": epsilon, "every": every})

    @genesis.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad, state = p.grad, self.state[p]
                order, shape = grad.ndimension(), grad.size()
                if len(state) == 0:
                    state["step"] = 0
                    state["momentum_buffer"] = grad.clone()
                    for dim, size in enumerate(shape):
                        state[f"precond_{dim}"] = group["epsilon"] * genesis.eye(size)
                        state[f"inv_precond_{dim}"] = genesis.zeros(size, size)
                grad = grad * (1 - group["momentum"]) + state["momentum_buffer"] * group["momentum"]
                for dim, size in enumerate(shape):
                    precond, inverse = state[f"precond_{dim}"], state[f"inv_precond_{dim}"]
                    grad = grad.transpose(0, dim).contiguous()
                    turned = grad.size()
                    grad = grad.view(size, -1)
                    precond.add_(grad @ grad.t())
                    if state["step"] % group["every"] == 0:
                        values, vectors = genesis.linalg.eigh(precond)
                        inverse.copy_(vectors @ genesis.diag(values.pow(-1 / order)) @ vectors.t())
                    grad = (inverse @ grad).view(turned).transpose(0, dim)
                state["step"] += 1
                state["momentum_buffer"] = grad
                p.add_(grad, alpha=-group["lr"])


class Factored(Optimizer):
    """Shazeer and Stern 2018: sums of rows and columns of squares, a rate relative to the weights, clipped updates."""

    def __init__(self, params: Any, lr: Any = None, eps: Any = (1e-30, 1e-3), clip_threshold: float = 1.0,
                 decay_rate: float = -0.8):
        super().__init__(params, {"lr": lr, "eps": eps, "clip_threshold": clip_threshold, "decay_rate": decay_rate})

    @staticmethod
    def _rms(tensor: Any) -> Any:
        return tensor.norm(2) / (tensor.numel() ** 0.5)

    @genesis.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad, state = p.grad, self.state[p]
                factored = len(grad.shape) >= 2
                if len(state) == 0:
                    state["step"] = 0
                    if factored:
                        state["row"] = genesis.zeros(grad.shape[:-1])
                        state["col"] = genesis.zeros(grad.shape[:-2] + grad.shape[-1:])
                    else:
                        state["sq"] = genesis.zeros_like(grad)
                    state["RMS"] = 0
                state["step"] += 1
                state["RMS"] = self._rms(p)
                lr = group["lr"] * max(1e-3, min(1e-2, 1 / math.sqrt(state["step"]))) * 100
                beta2t = 1.0 - math.pow(state["step"], group["decay_rate"])
                update = grad ** 2 + group["eps"][0]
                if factored:
                    row, col = state["row"], state["col"]
                    row.mul_(beta2t).add_(update.mean(dim=-1), alpha=1.0 - beta2t)
                    col.mul_(beta2t).add_(update.mean(dim=-2), alpha=1.0 - beta2t)
                    update = (row / row.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1) * col.rsqrt().unsqueeze(-2)
                    update = update * grad
                else:
                    state["sq"].mul_(beta2t).add_(update, alpha=1.0 - beta2t)
                    update = state["sq"].rsqrt().mul_(grad)
                update.div_((self._rms(update) / group["clip_threshold"]).clamp_(min=1.0))
                p.add_(update.mul_(lr), alpha=-1)


class LARS(Optimizer):
    """You et al. 2017, as in self-supervised code: a rate by the norms, of matrices alone."""

    def __init__(self, params: Any, lr: float, momentum: float = 0.9, weight_decay: float = 1e-4, eta: float = 0.01):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "eta": eta})

    @genesis.no_grad()
    def step(self, closure: Any = None) -> Any:
        for g in self.param_groups:
            for p in g["params"]:
                dp = p.grad
                if dp is None:
                    continue
                if p.ndim > 1:
                    dp = dp.add(p, alpha=g["weight_decay"])
                    param_norm, update_norm = genesis.norm(p), genesis.norm(dp)
                    one = genesis.ones_like(param_norm)
                    q = genesis.where(param_norm > 0.0, genesis.where(
                        update_norm > 0, (g["eta"] * param_norm / update_norm), one), one)
                    dp = dp.mul(q)
                param_state = self.state[p]
                if "mu" not in param_state:
                    param_state["mu"] = genesis.zeros_like(p)
                mu = param_state["mu"]
                mu.mul_(g["momentum"]).add_(dp)
                p.add_(mu, alpha=-g["lr"])


class Averaging(Optimizer):
    """SGD that keeps an average of the weights in its state, warmed up by a count of its own, and a shadow beside."""

    def __init__(self, params: Any, lr: float, decay: float = 0.99):
        super().__init__(params, {"lr": lr, "decay": decay})
        self.updates = 0
        self.shadow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    @genesis.no_grad()
    def step(self, closure: Any = None) -> Any:
        self.updates += 1
        decay = min(self.param_groups[0]["decay"], (1 + self.updates) / (10 + self.updates))
        shadows = iter(self.shadow)
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])
                state = self.state[p]
                if "ema" not in state:
                    state["ema"] = p.detach().clone()
                state["ema"].mul_(decay).add_(p, alpha=1 - decay)
                next(shadows).lerp_(p, 1 - decay)


class Case(NamedTuple):
    """An optimizer of parameters, the captures that its calls may have, and whether its steps take a closure."""

    make: Callable[[Any], Any]
    captures: int
    closure: bool = False


CASES = {
    "lion": Case(lambda ps: Lion(ps, lr=1e-2, weight_decay=0.1), 5),
    "adam": Case(AdamByHand, 5),
    "lookahead": Case(lambda ps: Lookahead(AdamByHand(ps)), 8),
    "lookahead_around_a_known_one": Case(lambda ps: Lookahead(genesis.optim.AdamW(ps, lr=1e-2)), 6),
    "sam": Case(lambda ps: SAM(ps, genesis.optim.SGD, lr=0.1, momentum=0.9), 5, closure=True),
    "sam_around_adam": Case(lambda ps: SAM(ps, AdamByHand, lr=0.01), 5, closure=True),
    "shampoo": Case(Shampoo, 5),
    "factored": Case(lambda ps: Factored(ps, lr=0.05), 5),
    "lars": Case(lambda ps: LARS(ps, lr=0.5), 5),
    "averaging": Case(lambda ps: Averaging(ps, lr=0.1), 5),
}


def batch(i: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(i)
    return genesis.tensor(rng.standard_normal((6, 4), dtype=np.float32)), genesis.tensor(rng.integers(0, 3, 6))


def bits(value: Any) -> Any:
    if isinstance(value, genesis.Tensor):
        return tuple(value.shape), value.detach().numpy().tobytes()
    if isinstance(value, dict):
        return {name: bits(x) for name, x in value.items()}
    return [bits(x) for x in value] if isinstance(value, (list, tuple)) else repr(value)


def ran(case: Case, compiled: bool) -> tuple[list[Any], Any]:
    """What each of twelve calls gives and leaves; another rate from the fifth on, the state of the sixth again before
    the ninth."""
    genesis.manual_seed(0)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(5)], nn.Linear(4, 3))
    optimizer = case.make(net.parameters())
    base = getattr(optimizer, "optimizer", getattr(optimizer, "base_optimizer", None))

    def step(x: Any, y: Any) -> Any:
        def closure() -> Any:
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss
        optimizer.zero_grad()
        loss = closure()
        if case.closure:
            optimizer.step(closure)
        else:
            optimizer.step()
        return loss.detach()
    function = genesis.compile(step) if compiled else step
    found = []
    kept: list[Any] = []
    for i in range(12):
        if i == 4:
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
        if i == 6:
            kept = [copy.deepcopy(x.state_dict()) for x in (net, optimizer, base) if x is not None]
        if i == 8:
            for x, state in zip([x for x in (net, optimizer, base) if x is not None], kept, strict=True):
                x.load_state_dict(state)
        loss = function(*batch(i))
        found.append(bits([loss, list(net.parameters()), optimizer.state_dict(), base and base.state_dict(),
                           getattr(optimizer, "shadow", None), getattr(optimizer, "updates", None)]))
    return found, function


@pytest.mark.parametrize("name", CASES)
def test_an_optimizer(name: str) -> None:
    case = CASES[name]
    found, compiled = ran(case, True)
    expected, _ = ran(case, False)
    assert [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b] == []
    explained = genesis.explain(compiled)
    assert explained.captures <= case.captures and explained.captures + explained.hits >= 11, explained


class KnowingLookahead(Lookahead):
    """It asks for the other's state before that has made a step, which takes out what was made ahead of that."""

    def __init__(self, base: Any):
        super().__init__(base)
        self.fast_state = self.optimizer.state


def test_a_state_that_was_looked_at_before_the_first_step_delays_nothing() -> None:
    """The first call puts each parameter's state in, and no call finds an empty one again: what it is recorded for in
    place of a capture would be replayed for none. One capture fewer is made, and as many calls are replayed."""
    make = {kind: Case(lambda ps, kind=kind: kind(genesis.optim.AdamW(ps, lr=1e-2)), 0)
            for kind in (Lookahead, KnowingLookahead)}
    found, knowing = ran(make[KnowingLookahead], True)
    expected, _ = ran(make[KnowingLookahead], False)
    assert [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b] == []
    _, plain = ran(make[Lookahead], True)
    explained, other = genesis.explain(knowing), genesis.explain(plain)
    assert (explained.captures + 1, explained.hits) == (other.captures, other.hits), (explained, other)


class Decaying(Optimizer):
    """Its rate is an attribute; its average is another tensor after each step; a hook of the program's may be told."""

    def __init__(self, params: Any, rate: float = 0.1):
        super().__init__(params, {})
        self.rate = rate

    @genesis.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["mean"] = p.grad * 0.5 if "mean" not in state else state["mean"] * 0.5 + p.grad * 0.5
                state["calls"] = state.get("calls", 0) + 1
                p.sub_(state["mean"], alpha=self.rate)


def another_rate(optimizer: Any, i: int) -> None:
    optimizer.rate = 0.1 * i


def another_tensor(optimizer: Any, i: int) -> None:
    for state in optimizer.state.values():
        state["mean"] = genesis.full_like(state["mean"], i)


def the_same_tensor_for_two(optimizer: Any, i: int) -> None:
    first, second, *_ = [p for p in optimizer.param_groups[0]["params"] if p.ndim == 2]
    optimizer.state[second]["mean"] = optimizer.state[first]["mean"]


def a_tensor_that_the_program_holds(optimizer: Any, i: int) -> None:
    for p, state in optimizer.state.items():
        state["mean"] = p


def a_state_is_taken_away(optimizer: Any, i: int) -> None:
    optimizer.state.pop(next(iter(optimizer.state)))


def all_states_are_taken_away(optimizer: Any, i: int) -> None:
    optimizer.state.clear()


def another_count(optimizer: Any, i: int) -> None:
    for state in optimizer.state.values():
        state["calls"] = float(i)


def other_states(optimizer: Any, i: int) -> None:
    optimizer.state = defaultdict(dict, copy.deepcopy(optimizer.state))


def a_frozen_parameter(optimizer: Any, i: int) -> None:
    group = optimizer.param_groups[0]
    group["params"] = group["params"][1:] if i == 4 else group["params"]


@pytest.mark.parametrize("change", [
    another_rate, another_tensor, the_same_tensor_for_two, a_tensor_that_the_program_holds, a_state_is_taken_away,
    all_states_are_taken_away, another_count, other_states, a_frozen_parameter], ids=lambda f: f.__name__)
def test_what_a_program_changes_between_steps(change: Callable[[Any, int], None]) -> None:
    def run(compiled: bool) -> tuple[list[Any], int]:
        genesis.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
        optimizer = Decaying(net.parameters())

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()
        function = genesis.compile(step) if compiled else step
        found = []
        for i in range(12):
            if i in (4, 7, 10):
                change(optimizer, i)
            loss = function(*batch(i))
            found.append(bits([loss, list(net.parameters()), [dict(x) for x in optimizer.state.values()]]))
        return found, function.hits if compiled else 0
    (found, hits), (expected, _) = run(True), run(False)
    assert [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b] == []
    assert hits > 0


@pytest.mark.parametrize("reads", ["state", "state_dict"])
def test_a_count_that_genesis_keeps_and_the_step_looks_at(reads: str) -> None:
    """A replay would ask for it in its own way, and show the step what was captured."""
    def run(compiled: bool) -> tuple[list[float], Any]:
        w = genesis.ones(3, requires_grad=True)
        optimizer = genesis.optim.Adam([w], lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            found = optimizer.state[w] if reads == "state" else optimizer.state_dict()["state"].get(0, {})
            loss = (w * x).square().sum() * (1 + found.get("step", 0))
            loss.backward()
            optimizer.step()
            return loss.detach()
        function = genesis.compile(step) if compiled else step
        return [function(genesis.ones(3)).item() for _ in range(6)], function
    (found, compiled), (expected, _) = run(True), run(False)
    assert found == expected
    assert "looks into the state of" in str(genesis.explain(compiled))


def test_a_state_that_another_function_writes_to() -> None:
    """It is looked at, and nothing more: the buffer stays, and the count is given."""
    def run(compiled: bool) -> tuple[list[float], Any]:
        w = genesis.ones(3, requires_grad=True)
        optimizer = genesis.optim.Adam([w], lr=0.1)

        def look(x: Any) -> Any:
            return (optimizer.state[w]["exp_avg"] * x).sum() * optimizer.state[w]["step"]
        function = genesis.compile(look) if compiled else look
        found = []
        for _ in range(8):
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            found.append(function(genesis.ones(3)).item())
        return found, function
    (found, compiled), (expected, _) = run(True), run(False)
    assert found == expected and compiled.hits >= 4, genesis.explain(compiled)
