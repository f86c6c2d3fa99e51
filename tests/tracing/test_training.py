"""Gradients through compiled functions, and compiled training steps, beside torch."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from calls import ramp, values

import genesis
from genesis import nn
from genesis.tracing import checks

F = genesis.nn.functional


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def close(ours: Any, theirs: Any) -> None:
    """Rounding of sums in another order, over a few steps."""
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=2e-5, atol=2e-6)


def networks(lib: Any) -> Any:
    return lib.nn.Sequential(lib.nn.Linear(4, 8), lib.nn.GELU(), lib.nn.LayerNorm(8), lib.nn.Linear(8, 3))


class Both:
    """The same network in both libraries, each with its optimizer."""

    def __init__(self, make: Callable[[Any, Any], Any], schedule: Any = None):
        self.ours, self.theirs = networks(genesis), networks(torch)
        self.ours.load_state_dict({k: genesis.tensor(v.numpy()) for k, v in self.theirs.state_dict().items()})
        self.ours_optimizer, self.theirs_optimizer = make(genesis.optim, self.ours), make(torch.optim, self.theirs)

    def data(self, step: int, batch: int = 5) -> tuple[Any, ...]:
        x = numbers(batch, 4, seed=step)
        y = np.random.default_rng(step).integers(0, 3, batch)
        return genesis.tensor(x), genesis.tensor(y), torch.tensor(x), torch.tensor(y)

    def check(self) -> None:
        for (_, a), (_, b) in zip(self.ours.named_parameters(), self.theirs.named_parameters(), strict=True):
            close(a, b)
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                close(a.grad, b.grad)


OPTIMIZERS = {
    "sgd": lambda optim, net: optim.SGD(net.parameters(), lr=0.1),
    "momentum": lambda optim, net: optim.SGD(net.parameters(), lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "nesterov": lambda optim, net: optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda optim, net: optim.Adam(net.parameters(), lr=0.01, weight_decay=0.01),
    "adamw": lambda optim, net: optim.AdamW(net.parameters(), lr=0.01),
    "groups": lambda optim, net: optim.AdamW([
        {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in net.parameters() if p.ndim <= 1], "lr": 0.003}], lr=0.01),
}


def start(net: Any, optimizer: Any, x: Any, y: Any, lib: Any) -> Any:
    optimizer.zero_grad()
    loss = lib.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss


def end(net: Any, optimizer: Any, x: Any, y: Any, lib: Any) -> Any:
    logits = net(x)
    loss = lib.nn.functional.cross_entropy(logits, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return logits, loss


def accumulated(net: Any, optimizer: Any, x: Any, y: Any, lib: Any) -> Any:
    """A step that adds to the gradients that it finds."""
    loss = lib.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss


def clipped(net: Any, optimizer: Any, x: Any, y: Any, lib: Any) -> Any:
    optimizer.zero_grad(set_to_none=True)
    loss = lib.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    norm = lib.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
    return loss, norm


def zeroed(net: Any, optimizer: Any, x: Any, y: Any, lib: Any) -> Any:
    optimizer.zero_grad(set_to_none=False)
    loss = lib.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss


def twice(net: Any, optimizer: Any, x: Any, y: Any, lib: Any) -> Any:
    """Two micro-batches."""
    optimizer.zero_grad()
    total = 0.0
    for part, target in ((x[:2], y[:2]), (x[2:], y[2:])):
        loss = lib.nn.functional.cross_entropy(net(part), target) / 2
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    return total


@pytest.mark.parametrize("step", [start, end, clipped, zeroed, twice], ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_compiled_step(make: Any, step: Any) -> None:
    both = Both(make)
    compiled = genesis.compile(lambda x, y: step(both.ours, both.ours_optimizer, x, y, genesis))
    kept = []
    for i in range(6):
        x, y, tx, ty = both.data(i)
        kept.append((compiled(x, y), step(both.theirs, both.theirs_optimizer, tx, ty, torch)))
        if i > 2:
            for group in (*both.ours_optimizer.param_groups, *both.theirs_optimizer.param_groups):
                group["lr"] *= 0.5
        both.check()
    for ours, theirs in kept:
        for a, b in zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]:
            close(a, b)
    assert compiled.hits >= 4, genesis.explain(compiled)


@pytest.mark.parametrize("compile_what", ["network", "loss function"])
def test_a_compiled_forward_in_an_ordinary_loop(compile_what: str) -> None:
    both = Both(OPTIMIZERS["adamw"])
    forward = genesis.compile(both.ours) if compile_what == "network" else both.ours
    criterion = lambda x, y: F.cross_entropy(forward(x), y)  # noqa: E731
    if compile_what != "network":
        criterion = genesis.compile(criterion)
    for i in range(6):
        x, y, tx, ty = both.data(i, batch=5 if i % 2 else 7)
        both.ours_optimizer.zero_grad()
        loss = criterion(x, y)
        if i == 3:
            loss.item()
        loss.backward()
        both.ours_optimizer.step()
        theirs = start(both.theirs, both.theirs_optimizer, tx, ty, torch)
        close(loss, theirs)
        both.check()
    compiled = forward._compiled_call if compile_what == "network" else criterion
    assert compiled.hits == 4


def test_a_compiled_forward_and_the_step_are_one_plan() -> None:
    both = Both(OPTIMIZERS["sgd"])
    forward = genesis.compile(both.ours)
    plans: list[Any] = []
    for i in range(4):
        x, y, _, _ = both.data(i)
        plans.clear()
        with genesis.engine.observe(plans.append):
            both.ours_optimizer.zero_grad()
            F.cross_entropy(forward(x), y).backward()
            both.ours_optimizer.step()
        assert len(plans) <= 1
    assert plans == []


def _ends(limit: Any, frame: Any) -> None:
    raise AssertionError("a replay looks for ever at what others see")


def test_states_of_recorded_calls_that_numpy_shows_are_given_to_replays() -> None:
    """Looking at memory that others see was a look at its storage, after which a replay looks at everything again: a
    recorded call whose hidden state an array shows came before a replay, which did not end."""
    def losses(compiled: bool) -> list[float]:
        genesis.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any, hidden: Any) -> tuple[Any, Any]:
            hidden = (model(x) + hidden).tanh()
            loss = hidden.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach(), hidden.detach()

        replayed = genesis.compile(step) if compiled else step
        hidden, shown, found = genesis.zeros(2, 3), [], []
        for turn in range(8):
            loss, hidden = (step if turn % 3 == 2 else replayed)(ramp(2, 3), hidden)
            shown.append(hidden.numpy())
            found.append(loss.item())
        if compiled:
            assert genesis.explain(replayed).hits >= 2
        return [*found, *(x.sum().item() for x in shown)]

    before = signal.signal(signal.SIGVTALRM, _ends)
    signal.setitimer(signal.ITIMER_VIRTUAL, 15)  # of this process' own time, of which it takes a second
    try:
        assert losses(True) == losses(False)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_the_batch_size_changes() -> None:
    both = Both(OPTIMIZERS["momentum"])
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    for i in range(9):
        x, y, tx, ty = both.data(i, batch=(5, 3, 1)[i % 3])
        close(compiled(x, y), start(both.theirs, both.theirs_optimizer, tx, ty, torch))
        both.check()
    assert compiled.hits == 6


def test_accumulation_over_two_compiled_calls() -> None:
    both = Both(OPTIMIZERS["adamw"])

    def micro(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(both.ours(x), y)
        loss.backward()
        return loss
    compiled = genesis.compile(micro)
    for i in range(4):
        for part in range(2):
            x, y, tx, ty = both.data(2 * i + part)
            loss = torch.nn.functional.cross_entropy(both.theirs(tx), ty)
            loss.backward()
            close(compiled(x, y), loss)
        both.ours_optimizer.step(), both.theirs_optimizer.step()
        both.check()
        both.ours_optimizer.zero_grad(), both.theirs_optimizer.zero_grad()


def test_a_step_that_accumulates_into_gradients_that_exist() -> None:
    both = Both(OPTIMIZERS["sgd"])
    compiled = genesis.compile(lambda x, y: accumulated(both.ours, both.ours_optimizer, x, y, genesis))
    for i in range(8):
        x, y, tx, ty = both.data(i)
        close(compiled(x, y), accumulated(both.theirs, both.theirs_optimizer, tx, ty, torch))
        both.check()
        if i % 4 == 3:
            both.ours.zero_grad(), both.theirs.zero_grad()
    assert compiled.hits >= 4


def test_zero_grad_outside() -> None:
    both = Both(OPTIMIZERS["adamw"])
    compiled = genesis.compile(lambda x, y: accumulated(both.ours, both.ours_optimizer, x, y, genesis))
    for i in range(5):
        x, y, tx, ty = both.data(i)
        both.ours.zero_grad(), both.theirs.zero_grad()
        close(compiled(x, y), accumulated(both.theirs, both.theirs_optimizer, tx, ty, torch))
        both.check()
    assert compiled.hits == 4


def test_gradients_that_somebody_keeps() -> None:
    both = Both(OPTIMIZERS["sgd"])
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    kept: list[Any] = []
    weight, tweight = both.ours[0].weight, both.theirs[0].weight
    for i in range(6):
        x, y, tx, ty = both.data(i)
        compiled(x, y), start(both.theirs, both.theirs_optimizer, tx, ty, torch)
        held = [weight.grad, weight.grad.detach()[1:], weight.grad * 2][i % 3] if i < 5 else None
        wanted = [tweight.grad, tweight.grad[1:], tweight.grad * 2][i % 3] if i < 5 else None
        kept.append((held, wanted))
        both.check()
    for held, wanted in kept[:5]:
        close(held, wanted)
    assert compiled.hits >= 4


def test_what_is_recorded_between_steps() -> None:
    """Expressions over parameters keep the values from when they were recorded."""
    both = Both(OPTIMIZERS["adamw"])
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    kept = []
    total, ttotal = genesis.tensor(0.0), torch.tensor(0.0)
    for i in range(6):
        x, y, tx, ty = both.data(i)
        total = total + compiled(x, y)
        ttotal = ttotal + start(both.theirs, both.theirs_optimizer, tx, ty, torch)
        with genesis.no_grad(), torch.no_grad():
            kept.append((both.ours[0].weight * 2, both.theirs[0].weight * 2))
            kept.append((both.ours(x), both.theirs(tx)))
            if i % 2:
                both.ours[0].bias.mul_(0.5), both.theirs[0].bias.mul_(0.5)
    both.check()
    close(total, ttotal)
    for ours, theirs in kept:
        close(ours, theirs)
    assert compiled.hits >= 4


def test_a_batch_that_is_written_between_steps() -> None:
    both = Both(OPTIMIZERS["sgd"])
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    x, y, tx, ty = both.data(0)
    for _ in range(4):
        close(compiled(x, y), start(both.theirs, both.theirs_optimizer, tx, ty, torch))
        x.mul_(0.9), tx.mul_(0.9)
    both.check()


def test_loading_a_state_between_steps() -> None:
    both = Both(OPTIMIZERS["momentum"])
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    saved: Any = None
    for i in range(8):
        x, y, tx, ty = both.data(i)
        close(compiled(x, y), start(both.theirs, both.theirs_optimizer, tx, ty, torch))
        if i == 2:
            saved = [{k: v.clone() for k, v in net.state_dict().items()} for net in (both.ours, both.theirs)]
        if i == 4:
            both.ours.load_state_dict(saved[0]), both.theirs.load_state_dict(saved[1])
        both.check()
    assert compiled.hits >= 6


@pytest.mark.parametrize("change", [
    lambda optimizer: optimizer.param_groups[0].update(maximize=True),
    lambda optimizer: optimizer.param_groups[0].update(nesterov=True, dampening=0),
    lambda optimizer: optimizer.param_groups[0].update(momentum=0.5),
    lambda optimizer: optimizer.param_groups[0].update(weight_decay=0.3),
    lambda optimizer: optimizer.param_groups[0]["params"].pop(),
], ids=["maximize", "nesterov", "momentum", "weight decay", "a parameter fewer"])
def test_an_option_of_the_optimizer_changes(change: Any) -> None:
    both = Both(OPTIMIZERS["momentum"])
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    for i in range(6):
        x, y, tx, ty = both.data(i)
        both.ours.zero_grad(), both.theirs.zero_grad()
        close(compiled(x, y), start(both.theirs, both.theirs_optimizer, tx, ty, torch))
        both.check()
        if i == 2:
            change(both.ours_optimizer), change(both.theirs_optimizer)


def test_a_parameter_group_is_added() -> None:
    both = Both(lambda optim, net: optim.SGD(net[0].parameters(), lr=0.1))
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    for i in range(6):
        x, y, tx, ty = both.data(i)
        both.ours.zero_grad(), both.theirs.zero_grad()
        close(compiled(x, y), start(both.theirs, both.theirs_optimizer, tx, ty, torch))
        both.check()
        if i == 2:
            both.ours_optimizer.add_param_group({"params": list(both.ours[3].parameters()), "lr": 0.2})
            both.theirs_optimizer.add_param_group({"params": list(both.theirs[3].parameters()), "lr": 0.2})


def test_a_frozen_parameter() -> None:
    both = Both(OPTIMIZERS["adamw"])
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    for i in range(8):
        x, y, tx, ty = both.data(i)
        for net in (both.ours, both.theirs):
            net[0].weight.requires_grad_(i not in (3, 4, 5))
            net.zero_grad()
        close(compiled(x, y), start(both.theirs, both.theirs_optimizer, tx, ty, torch))
        both.check()


@pytest.mark.parametrize("name", ["momentum", "adam", "adamw", "groups"])
@pytest.mark.parametrize("kept_out", ["frozen", "unused"])
def test_a_parameter_of_the_optimizer_without_a_gradient(name: str, kept_out: str) -> None:
    """A frozen layer, or one that the forward leaves out: its step stays where it is, and the others' go on."""
    both = Both(OPTIMIZERS[name])
    left_out = both.ours[2], both.theirs[2]
    for net, lib in ((both.ours, genesis), (both.theirs, torch)):
        if kept_out == "frozen":
            net[0].requires_grad_(False)
        else:
            net[2] = lib.nn.Identity()
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    for i in range(8):
        x, y, tx, ty = both.data(i)
        if i == 5:
            assert compiled.hits == 4, genesis.explain(compiled)
            for net, layer in zip((both.ours, both.theirs), left_out, strict=True):
                net[0].requires_grad_()  # from now on it trains, some steps behind
                net[2] = layer
        close(compiled(x, y), start(both.theirs, both.theirs_optimizer, tx, ty, torch))
        both.check()
    assert compiled.hits == 6


def test_a_scheduler_outside_and_inside() -> None:
    both = Both(OPTIMIZERS["sgd"])
    ours = genesis.optim.lr_scheduler.LambdaLR(both.ours_optimizer, lambda epoch: 0.8**epoch)
    theirs = torch.optim.lr_scheduler.LambdaLR(both.theirs_optimizer, lambda epoch: 0.8**epoch)
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))

    def inside(x: Any, y: Any) -> Any:
        loss = start(both.ours, both.ours_optimizer, x, y, genesis)
        ours.step()
        return loss
    whole = genesis.compile(inside)
    for i in range(10):
        x, y, tx, ty = both.data(i)
        if i < 5:
            loss = compiled(x, y)
            ours.step()
        else:
            loss = whole(x, y)
        close(loss, start(both.theirs, both.theirs_optimizer, tx, ty, torch))
        theirs.step()
        both.check()
    assert compiled.hits == 4 and whole.hits == 4 and ours.last_epoch == theirs.last_epoch
    assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr())


def test_the_learning_rate_is_read_and_set_inside() -> None:
    both = Both(OPTIMIZERS["sgd"])
    rate = [0.1]

    def step(net: Any, optimizer: Any, x: Any, y: Any, lib: Any) -> Any:
        for group in optimizer.param_groups:
            group["lr"] = rate[0]
        loss = start(net, optimizer, x, y, lib)
        return loss * optimizer.param_groups[0]["lr"]
    compiled = genesis.compile(lambda x, y: step(both.ours, both.ours_optimizer, x, y, genesis))
    for i in range(8):
        x, y, tx, ty = both.data(i)
        rate[0] = 0.1 if i < 4 else 0.05
        close(compiled(x, y), step(both.theirs, both.theirs_optimizer, tx, ty, torch))
        both.check()
        assert both.ours_optimizer.param_groups[0]["lr"] == rate[0]


def test_second_derivatives() -> None:
    @genesis.compile
    def energy(x: Any) -> Any:
        return (x * x * x).sum()

    @genesis.compile
    def penalty(x: Any) -> Any:
        (slope,) = genesis.autograd.grad(energy(x), x, create_graph=True)
        return (slope * slope).sum()
    for i in range(4):
        x = ramp(3, start=i).requires_grad_()
        (first,) = genesis.autograd.grad(energy(x), x, create_graph=True)
        (second,) = genesis.autograd.grad(first.sum(), x)
        assert second.tolist() == (6 * x).tolist()
        penalty(x).backward()
        np.testing.assert_allclose(x.grad.numpy(), (36 * x**3).detach().numpy(), rtol=1e-5)
    assert energy.hits == 3 and penalty.hits == 3


def test_gradients_flow_into_arguments() -> None:
    compiled = genesis.compile(lambda x, y: (x * y).sum())
    for i in range(4):
        x, y = ramp(2, start=i).requires_grad_(), ramp(2)
        compiled(x * 2, y).backward()
        assert x.grad.tolist() == [2.0, 4.0]
    assert compiled.hits == 3


def test_a_step_over_an_argument_s_gradient() -> None:
    def attack(x: Any) -> Any:
        loss = (x * x).sum()
        loss.backward()
        return x.grad * 2
    compiled = genesis.compile(attack)
    for i in range(4):
        x = ramp(2, start=i).requires_grad_()
        assert compiled(x).tolist() == [4.0 * i, 4.0 * i + 4]
        assert x.grad.tolist() == [2.0 * i, 2.0 * i + 2]


def test_dropout_in_a_step() -> None:
    def losses(compiled: bool) -> list[Any]:
        genesis.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        optimizer = genesis.optim.AdamW(net.parameters(), lr=0.01)
        function = lambda x, y: start(net, optimizer, x, y, genesis)  # noqa: E731
        step = genesis.compile(function) if compiled else function
        x, y = genesis.tensor(numbers(5, 4)), genesis.tensor([0, 1, 2, 0, 1])
        found = [values(step(x, y)) for _ in range(5)]
        assert not compiled or step.hits == 4
        return found
    assert losses(True) == losses(False)


def test_a_compiled_step_beside_an_ordinary_one() -> None:
    both = Both(OPTIMIZERS["adam"])
    compiled = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    for i in range(9):
        x, y, tx, ty = both.data(i)
        if i % 3 == 2:
            loss = start(both.ours, both.ours_optimizer, x, y, genesis)
        else:
            loss = compiled(x, y)
        close(loss, start(both.theirs, both.theirs_optimizer, tx, ty, torch))
        both.check()
    assert compiled.hits == 5


def test_autocast_inside_a_step() -> None:
    def losses(compiled: bool) -> list[Any]:
        genesis.manual_seed(0)
        net = nn.Linear(4, 3)
        optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            with genesis.autocast("cpu", dtype=genesis.bfloat16):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss
        run = genesis.compile(step) if compiled else step
        x, y = genesis.tensor(numbers(5, 4)), genesis.tensor([0, 1, 2, 0, 1])
        found = [values(run(x, y)) for _ in range(4)]
        assert not compiled or run.hits == 3
        return found
    assert losses(True) == losses(False)


def test_an_evaluation_between_steps() -> None:
    both = Both(OPTIMIZERS["sgd"])
    step = genesis.compile(lambda x, y: start(both.ours, both.ours_optimizer, x, y, genesis))
    evaluate = genesis.compile(lambda x: both.ours(x).argmax(-1))
    for i in range(5):
        x, y, tx, ty = both.data(i)
        both.ours.train(), both.theirs.train()
        close(step(x, y), start(both.theirs, both.theirs_optimizer, tx, ty, torch))
        both.ours.eval(), both.theirs.eval()
        with genesis.no_grad():
            assert evaluate(x).tolist() == both.theirs(tx).argmax(-1).tolist()
    assert step.hits == 4 and evaluate.hits == 4


@pytest.mark.parametrize("hold", [lambda w: w.grad, lambda w: w.grad.detach()[1:], lambda w: w.grad * 1])
def test_a_gradient_held_over_calls_that_nobody_looks_at(hold: Any) -> None:
    """Held once, then several calls without a look at any gradient: it stays, and the new ones are right."""
    weight = genesis.nn.Parameter(genesis.tensor([1.0, 2.0]))
    optimizer = genesis.optim.SGD([weight], lr=0.0)

    @genesis.compile
    def step(x: Any) -> None:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()
    for i in range(3):
        step(genesis.tensor([i + 1.0, i + 2.0]))
    held = hold(weight)
    wanted = held.tolist()
    for i in range(10, 14):
        step(genesis.tensor([i + 1.0, i + 2.0]))
    assert held.tolist() == wanted
    assert weight.grad.tolist() == [14.0, 15.0]
    weight.grad = None
    step(genesis.tensor([1.0, 1.0]))
    assert weight.grad.tolist() == [1.0, 1.0] and held.tolist() == wanted


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("result", [lambda t: t.max(-1), lambda t: t.min(-1),
                                    lambda t: (t.where(t > 4, -t), t > 4)])
def test_a_backward_after_a_step_reads_the_other_result_of_a_replay(result: Any, compiled: bool) -> None:
    """The step writes to what they were computed from; they are results, so they were computed with it."""
    weight = ramp(3).requires_grad_()
    x = genesis.tensor([[1.0, 2.0, 3.0], [3.0, 3.0, 1.0]])
    optimizer = genesis.optim.SGD([weight], lr=0.125)

    def ranked(x: Any) -> Any:
        return result(genesis.where(x > 1, x, weight) * 2)
    function = genesis.compile(ranked) if compiled else ranked
    kept = [function(x) for _ in range(4)]
    kept[3][0].sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept[2][0].sum().backward()
    theirs = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    t = torch.tensor(x.tolist())
    result(torch.where(t > 1, t, theirs) * 2)[0].sum().backward()
    assert weight.grad.tolist() == theirs.grad.tolist()
    assert not compiled or function.hits == 3


@pytest.mark.parametrize("kept", ["returned", "elsewhere"])
def test_a_value_that_only_the_function_held_at_its_step(kept: str) -> None:
    """The plain call computes it at the step, before that writes to the weights; a later backward reads it."""
    def gradients(compiled: bool) -> list[Any]:
        weight, log = ramp(3).requires_grad_(), []
        optimizer = genesis.optim.SGD([weight], lr=0.125)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (x * weight).sum()
            loss.backward()
            optimizer.step()
            scaled = loss.detach() * weight
            log.append(scaled)
            return scaled if kept == "returned" else None
        run = genesis.compile(step) if compiled else step
        found = []
        for i in range(4):
            run(ramp(3, start=i))
            found.append(values(genesis.autograd.grad(log.pop().sum(), weight)))
        return found
    assert gradients(True) == gradients(False)


@pytest.mark.parametrize("change", [
    lambda opt, w: opt.state[w].update(exp_avg_sq=genesis.full((3,), 4.0)),
    lambda opt, w: opt.state[w].__setitem__("exp_avg", genesis.ones(3)),
    lambda opt, w: setattr(opt, "state", type(opt.state)(dict, {w: {**opt.state[w], "exp_avg": genesis.ones(3)}})),
], ids=["squares", "mean", "all states"])
def test_a_tensor_that_is_put_into_an_optimizers_state(change: Any) -> None:
    def run(compiled: bool) -> tuple[list[Any], int]:
        w = genesis.nn.Parameter(genesis.tensor([1.0, -2.0, 3.0]))
        opt = genesis.optim.Adam([w], lr=0.1)

        def step(x: Any) -> None:
            opt.zero_grad()
            (w * x).pow(2).sum().backward()
            opt.step()
        fast = genesis.compile(step) if compiled else step
        found = []
        for number in range(9):
            fast(genesis.ones(3) * (number % 3 + 1))
            found.append(w.tolist())
            if number == 4:
                change(opt, w)
        return [*found, {name: x.tolist() if name != "step" else x for name, x in opt.state[w].items()}], getattr(
            fast, "hits", 0)
    plain, (replayed, hits) = run(False)[0], run(True)
    assert replayed == plain and hits >= 5


def test_an_optimizer_that_reads_its_state_makes_no_function_compare_its_tensors(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer as it is written for torch asks for its state at each step. What may have changed then is a tensor
    of the state, not one of the model's."""
    compared: list[Any] = []
    of = checks.tensor_identity

    def noted(x: Any) -> tuple[Any, ...]:
        compared.append(x)
        return of(x)
    monkeypatch.setattr(checks, "tensor_identity", noted)

    class Momentum(genesis.optim.Optimizer):
        def step(self) -> None:  # type: ignore[override]
            with genesis.no_grad():
                for p in self.param_groups[0]["params"]:
                    kept = self.state[p].setdefault("mean", genesis.zeros_like(p))
                    p.sub_(kept.mul_(0.5).add_(p.grad), alpha=0.1)
    model = nn.Linear(3, 2)
    optimizer = Momentum(model.parameters(), {})
    loss = genesis.compile(lambda x: model(x).pow(2).sum())
    for _ in range(8):
        optimizer.zero_grad()
        loss(ramp(4, 3)).backward()
        optimizer.step()
        if loss.hits == 2:
            compared.clear()
    assert loss.hits > 4 and compared == []


@pytest.mark.parametrize("each", [False, True], ids=["all", "a parameter's"])
def test_a_look_at_an_optimizer_s_state_before_the_first_step_ends_no_replays(each: bool) -> None:
    """The state is shown from the first step on; beginning it reads nothing."""
    layer = nn.Linear(3, 2)
    optimizer = genesis.optim.AdamW(layer.parameters())
    if each:  # which leaves an empty one
        assert not any(optimizer.state[parameter] for parameter in layer.parameters())
    else:
        assert not optimizer.state

    @genesis.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    for _ in range(6):
        step(genesis.ones(4, 3))
    assert optimizer.state[layer.weight]["step"] == 6 and step.hits >= 4


@pytest.mark.parametrize("change", ["clear", "pop", "load"])
@pytest.mark.parametrize("make", [lambda p: genesis.optim.AdamW(p), lambda p: genesis.optim.SGD(p, 0.1, momentum=0.9)],
                         ids=["AdamW", "SGD"])
def test_a_state_that_is_taken_away_costs_one_call(make: Callable[[Any], Any], change: str) -> None:
    """The call after it begins the state anew and is no replay; those behind it are, with fullgraph as well."""
    def run(compiled: bool) -> tuple[list[Any], Any]:
        genesis.manual_seed(0)
        layer = nn.Linear(3, 2)
        optimizer = make(layer.parameters())
        empty = optimizer.state_dict()

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = layer(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        function = genesis.compile(step, fullgraph=True) if compiled else step
        losses = []
        for i in range(14):
            if i in (3, 8):
                {"clear": lambda: optimizer.state.clear(), "pop": lambda: optimizer.state.pop(layer.weight),
                 "load": lambda: optimizer.load_state_dict(empty)}[change]()
            losses.append(function(genesis.ones(4, 3)).item())
        return losses, function
    (found, compiled), (expected, _) = run(True), run(False)
    assert found == expected
    assert compiled.hits >= 9


def test_a_state_that_is_taken_away_behind_each_call_is_refused() -> None:
    """Its beginning is no odd call: with fullgraph it raises."""
    layer = nn.Linear(3, 2)
    optimizer = genesis.optim.AdamW(layer.parameters())

    @genesis.compile(fullgraph=True)
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    with pytest.raises(RuntimeError, match="an optimizer's state begins in it"):
        for _ in range(8):
            step(genesis.ones(4, 3))
            optimizer.state.clear()
