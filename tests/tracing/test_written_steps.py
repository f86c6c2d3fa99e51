"""Training steps as people write them, compiled, beside the same loop without `genesis.compile`: every bit, and how
many calls of it are captured."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import genesis
from genesis import nn

F = genesis.nn.functional

STEPS: dict[Callable[[], Any], int] = {}
"""A function that makes (step, arguments of call i, what it leaves) → the captures that 24 calls of it may have."""


def captures(most: int) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """A decorator for such a function."""
    def note(make: Callable[[], Any]) -> Callable[[], Any]:
        STEPS[make] = most
        return make
    return note


def batch(i: int, size: int = 6) -> tuple[Any, Any]:
    rng = np.random.default_rng(i)
    return genesis.tensor(rng.standard_normal((size, 4), dtype=np.float32)), genesis.tensor(rng.integers(0, 3, size))


def network() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def weights(*modules: Any) -> list[Any]:
    return [p for module in modules for p in module.parameters()]


def update(net: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss


@captures(4)
def a_gradient_is_added_to_over_calls() -> Any:
    net = network()
    optimizer = genesis.optim.AdamW(net.parameters(), lr=1e-2)

    def step(x: Any, y: Any, last: bool) -> Any:
        loss = F.cross_entropy(net(x), y) / 4
        loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()
    return step, lambda i: (*batch(i), i % 4 == 3), lambda: [weights(net), [p.grad for p in net.parameters()]]


@captures(6)
def a_gradient_is_added_to_until_a_count_says_so() -> Any:
    class Trainer:
        def __init__(self) -> None:
            self.net, self.calls = network(), 0
            self.optimizer = genesis.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)

        def step(self, x: Any, y: Any) -> Any:
            loss = F.cross_entropy(self.net(x), y) / 4
            loss.backward()
            self.calls += 1
            if self.calls % 4 == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
            return loss.item()
    trainer = Trainer()
    return trainer.step, batch, lambda: [weights(trainer.net), trainer.calls]


@captures(4)
def two_networks_take_turns_and_gradients_stay() -> Any:
    pair = [network(), network()]
    optimizers = [genesis.optim.Adam(net.parameters()) for net in pair]

    def step(x: Any, y: Any, which: bool) -> Any:
        optimizers[which].zero_grad()
        loss = F.cross_entropy(pair[0](x) + pair[1](x), y)
        loss.backward()
        optimizers[which].step()
        return loss.item()
    return step, lambda i: (*batch(i), i % 2 == 1), lambda: weights(*pair)


@captures(3)
def a_discriminator_without_gradients_while_the_other_learns() -> Any:
    maker, judge = nn.Linear(5, 4), nn.Linear(4, 1)
    makers, judges = (genesis.optim.Adam(net.parameters(), lr=1e-3) for net in (maker, judge))

    def step(x: Any) -> Any:
        fake = maker(genesis.randn(x.shape[0], 5))
        for p in judge.parameters():
            p.requires_grad_(True)
        judges.zero_grad()
        first = (F.softplus(judge(fake.detach())) + F.softplus(-judge(x))).mean()
        first.backward()
        judges.step()
        for p in judge.parameters():
            p.requires_grad_(False)
        makers.zero_grad()
        second = F.softplus(-judge(fake)).mean()
        second.backward()
        makers.step()
        return {"judge": first.item(), "maker": second.item()}
    return step, lambda i: (batch(i)[0],), lambda: weights(maker, judge)


@captures(3)
def a_hidden_state_on_the_module() -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRU(4, 8), nn.Linear(8, 3)
            self.state: Any = None

        def forward(self, x: Any) -> Any:
            if self.state is not None:
                self.state = self.state.detach()
            out, self.state = self.cell(x, self.state)
            return self.head(out)
    model = Model()
    optimizer = genesis.optim.Adam(model.parameters())

    def step(x: Any, y: Any) -> Any:
        return update(lambda x: model(x)[:, 0], optimizer, x, y).item()
    return step, lambda i: (batch(i)[0].unsqueeze(1).clone(), batch(i)[1]), lambda: [weights(model), model.state]


@captures(3)
def a_hidden_state_in_a_dictionary() -> Any:
    cell, head = nn.LSTMCell(4, 8), nn.Linear(8, 3)
    optimizer = genesis.optim.SGD(weights(cell, head), lr=0.1)
    state = {"h": genesis.zeros(6, 8), "c": genesis.zeros(6, 8)}

    def step(x: Any, y: Any) -> Any:
        h, c = cell(x, (state["h"], state["c"]))
        loss = F.cross_entropy(head(h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state["h"], state["c"] = h.detach(), c.detach()
        return loss.item()
    return step, batch, lambda: [weights(cell, head), state]


@captures(2)
def metrics_in_lists_of_a_dictionary() -> Any:
    net, metrics = network(), collections.defaultdict(list)
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        right = (out.argmax(-1) == y).float().mean()
        metrics["loss"].append(loss.item())
        metrics["right"].append(right.item())
        return loss.item(), right.item()
    return step, batch, lambda: [weights(net), metrics]


@captures(1)
def recent_losses_in_a_deque() -> Any:
    net, recent = network(), collections.deque([1.0, 2.0, 3.0, 4.0], maxlen=4)
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(x: Any, y: Any) -> Any:
        recent.append(update(net, optimizer, x, y).item())
    return step, batch, lambda: [weights(net), recent]


@captures(3)
def a_meter_that_is_given_the_loss() -> Any:
    class Meter:
        def __init__(self) -> None:
            self.value: float = 0.0
            self.total: float = 0.0
            self.mean: float = 0.0
            self.count = 0

        def update(self, value: float, n: int = 1) -> None:
            self.value = value
            self.total += value * n
            self.count += n
            self.mean = self.total / self.count
    net, meter = network(), Meter()
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(x: Any, y: Any) -> None:
        meter.update(update(net, optimizer, x, y).item(), x.size(0))
    return step, batch, lambda: [weights(net), vars(meter)]


class Meter:
    """A mean of what it is given, as training scripts write it."""

    def __init__(self) -> None:
        self.total = self.mean = 0.0
        self.count = 0

    def update(self, value: float, n: int = 1) -> None:
        self.total += value * n
        self.count += n
        self.mean = self.total / self.count


def accuracy(out: Any, y: Any) -> Any:
    return (out.argmax(dim=1) == y).float().mean()


@captures(3)
def two_meters_whose_means_are_returned() -> Any:
    net, losses, right = network(), Meter(), Meter()
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), x.size(0))
        right.update(accuracy(out, y).item(), len(x))
        return losses.mean, right.mean
    return step, batch, lambda: [weights(net), vars(losses), vars(right)]


@captures(3)
def sums_of_a_dictionary_that_are_divided() -> Any:
    net, sums = network(), {"loss": 0.0, "right": 0, "n": 0}
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        sums["loss"] += loss.item() * x.shape[0]
        _, best = out.max(1)
        sums["right"] += (best == y).sum().item()
        sums["n"] += x.shape[0]
        return sums["loss"] / sums["n"], 100 * sums["right"] / sums["n"]
    return step, batch, lambda: [weights(net), sums]


@captures(2)
def lists_of_losses_and_of_what_a_function_makes() -> Any:
    net, losses, right = network(), list[float](), list[float]()
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        right.append(accuracy(out, y).item())
    return step, batch, lambda: [weights(net), losses, right]


@captures(2)
def a_state_in_a_dictionary_beside_a_list() -> Any:
    cell, state = nn.GRUCell(4, 3), {"hidden": None, "seen": []}
    optimizer = genesis.optim.AdamW(cell.parameters(), lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        hidden = cell(x, state["hidden"])
        loss = F.cross_entropy(hidden, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state["hidden"] = hidden.detach()
        state["seen"].append(hidden.argmax(-1))
        return loss.detach()
    return step, batch, lambda: [weights(cell), state["hidden"], state["seen"]]


@captures(1)
def a_total_over_parts_of_a_batch() -> Any:
    net = network()
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        total = 0.0
        for part, target in zip(x.split(2), y.split(2), strict=True):
            loss = F.cross_entropy(net(part), target) / 3
            loss.backward()
            total += loss.item()
        norms = {name: round(p.grad.norm().item(), 3) for name, p in net.named_parameters()}
        optimizer.step()
        return 1 - total / len(x), norms
    return step, batch, lambda: weights(net)


@captures(4)
def a_log_every_few_calls() -> Any:
    class Trainer:
        def __init__(self) -> None:
            self.net, self.calls, self.log = network(), 0, list[Any]()
            self.optimizer = genesis.optim.AdamW(self.net.parameters())

        def step(self, x: Any, y: Any) -> Any:
            loss = update(self.net, self.optimizer, x, y)
            if self.calls % 4 == 0:
                self.log.append((self.calls, loss.item()))
            self.calls += 1
            return loss.detach()
    trainer = Trainer()
    return trainer.step, batch, lambda: [weights(trainer.net), trainer.calls, trainer.log]


@captures(4)
def a_rate_that_is_set_before_the_step() -> Any:
    class Trainer:
        def __init__(self) -> None:
            self.net, self.calls = network(), 0
            self.optimizer = genesis.optim.AdamW(self.net.parameters(), lr=1e-2)

        def step(self, x: Any, y: Any) -> Any:
            for group in self.optimizer.param_groups:
                group["lr"] = 1e-2 * min(1.0, (self.calls + 1) / 8)
            loss = update(self.net, self.optimizer, x, y)
            self.calls += 1
            return loss.item()
    trainer = Trainer()
    return trainer.step, batch, lambda: [weights(trainer.net), trainer.optimizer.param_groups[0]["lr"]]


@captures(4)
def a_rate_by_the_cosine_of_the_turn() -> Any:
    net = network()
    optimizer = genesis.optim.AdamW(net.parameters(), lr=1e-2)

    def rate(turn: int) -> float:
        if turn < 5:
            return 1e-2 * (turn + 1) / 5
        return 1e-3 + 0.5 * (1 + math.cos(math.pi * turn / 30)) * 9e-3

    def step(x: Any, y: Any, turn: int) -> Any:
        for group in optimizer.param_groups:
            group["lr"] = rate(turn)
        return update(net, optimizer, x, y).item()
    return step, lambda i: (*batch(i), i), lambda: weights(net)


@captures(3)
def weights_that_move_by_gradients_asked_for() -> Any:
    net, state = network(), {"turn": 0}
    means = [genesis.zeros_like(p) for p in net.parameters()]

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        gradients = genesis.autograd.grad(loss, list(net.parameters()))
        state["turn"] += 1
        with genesis.no_grad():
            for p, gradient, mean in zip(net.parameters(), gradients, means, strict=True):
                mean.mul_(0.9).add_(gradient, alpha=0.1)
                p -= 1e-2 * mean / (1 - 0.9 ** state["turn"])
        return loss.item()
    return step, batch, lambda: [weights(net), means]


@captures(3)
def a_rate_that_grows_after_each_step() -> Any:
    net, rate = network(), {"lr": 1e-5}
    optimizer = genesis.optim.SGD(net.parameters(), lr=1e-5)

    def step(x: Any, y: Any) -> Any:
        loss = update(net, optimizer, x, y)
        rate["lr"] *= 1.3
        for group in optimizer.param_groups:
            group["lr"] = rate["lr"]
        return loss.detach()
    return step, batch, lambda: [weights(net), rate]


@captures(3)
def a_running_total_on_self() -> Any:
    class Trainer:
        def __init__(self) -> None:
            self.net, self.seen = network(), 0
            self.total: Any = 0.0
            self.optimizer = genesis.optim.AdamW(self.net.parameters())

        def step(self, x: Any, y: Any) -> Any:
            self.total += update(self.net, self.optimizer, x, y).detach() * len(x)
            self.seen += len(x)
            return self.total
    trainer = Trainer()
    return trainer.step, batch, lambda: [weights(trainer.net), trainer.total, trainer.seen]


@dataclasses.dataclass
class Batch:
    x: Any
    y: Any
    weight: float = 1.0


@dataclasses.dataclass
class Output:
    loss: Any
    scores: Any


class Pair(NamedTuple):
    x: Any
    y: Any


class Plain:
    def __init__(self, x: Any, y: Any):
        self.x, self.y = x, y


@captures(2)
def a_dataclass_goes_in_and_out() -> Any:
    net = network()
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(given: Batch) -> Output:
        optimizer.zero_grad()
        scores = net(given.x)
        loss = F.cross_entropy(scores, given.y) * given.weight
        loss.backward()
        optimizer.step()
        return Output(loss.detach(), scores.detach())
    return step, lambda i: (Batch(*batch(i), weight=1 + i / 10),), lambda: weights(net)


@captures(1)
def plain_objects_and_named_tuples() -> Any:
    net = network()
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(given: Plain, other: Pair) -> Any:
        loss = update(net, optimizer, given.x, given.y)
        return Plain(loss.detach(), 3), Pair(other.x + 1, loss.detach() * 2)
    return step, lambda i: (Plain(*batch(i)), Pair(*batch(i + 1))), lambda: weights(net)


class Mode(enum.Enum):
    SOFT, HARD = range(2)


@captures(2)
def a_mode_of_the_loss() -> Any:
    net = network()
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(x: Any, y: Any, mode: Mode) -> Any:
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out, y) if mode is Mode.SOFT else F.multi_margin_loss(out, y)
        loss.backward()
        optimizer.step()
        return loss.item()
    return step, lambda i: (*batch(i), Mode(i % 2)), lambda: weights(net)


@captures(1)
def views_in_a_list() -> Any:
    net, memory = network(), batch(0, 40)[0]
    return lambda parts: net(genesis.cat(parts)).sum(0).detach(), lambda i: (
        [memory[at:at + 2] for at in range(i % 4, i % 4 + 6, 2)],), lambda: memory


@captures(1)
def sizes_that_numpy_multiplies() -> Any:
    net = nn.Linear(4, 3)
    optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        x = x.reshape(x.shape[0], int(np.prod(x.shape[1:])))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y) * float(np.clip(np.max([1, 2]), 0, 1.5)) / np.sqrt(x.shape[0])
        loss.backward()
        optimizer.step()
        return loss.item()
    return step, lambda i: (batch(i)[0].view(6, 2, 2).clone(), batch(i)[1]), lambda: weights(net)


class Sign(genesis.autograd.Function):
    """A step function whose gradient is that of a clipped line."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, = ctx.saved_tensors
        return gradient * (x.abs() <= 1).float()


@captures(1)
def a_function_with_a_backward_of_its_own() -> Any:
    first, last = nn.Linear(4, 8), nn.Linear(8, 3)
    optimizer = genesis.optim.SGD(weights(first, last), lr=0.1)
    return lambda x, y: update(lambda x: last(Sign.apply(first(x))), optimizer, x, y).item(), batch, lambda: weights(
        first, last)


@captures(1)
def a_function_of_what_another_function_gave() -> Any:
    """Both save it; the loss that is returned keeps their graph until it is computed."""
    first, last = nn.Linear(4, 8), nn.Linear(8, 3)
    optimizer = genesis.optim.SGD(weights(first, last), lr=0.1)

    def through(x: Any) -> Any:
        found = Sign.apply(first(x))
        return last(Sign.apply(found) + Sign.apply(found * 2))
    return lambda x, y: update(through, optimizer, x, y), batch, lambda: weights(first, last)


class Halves(genesis.autograd.Function):
    """What its backward reads are attributes: a result, views of a memory in a list, one of them by itself, too."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.parts = list((x * 2).chunk(2, dim=-1))
        ctx.first, ctx.made, ctx.scale = ctx.parts[0], x.tanh(), 0.5
        return ctx.made.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * (1 - ctx.made * ctx.made) + ctx.scale * ctx.first.sum() * genesis.cat(ctx.parts, dim=-1)


@captures(1)
def a_function_that_keeps_tensors_as_attributes() -> Any:
    first, last = nn.Linear(4, 8), nn.Linear(8, 3)
    optimizer = genesis.optim.SGD(weights(first, last), lr=0.1)
    return lambda x, y: update(lambda x: last(Halves.apply(first(x))), optimizer, x, y), batch, lambda: weights(
        first, last)


@captures(1)
def a_detached_value_behind_a_function_is_returned() -> Any:
    """But for it nobody holds the graph of `hidden`, and no backward has been there."""
    first, last = nn.Linear(4, 8), nn.Linear(8, 3)
    optimizer = genesis.optim.SGD(weights(first, last), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        hidden = Sign.apply(first(x))
        share = (hidden * 3).mean()
        loss = update(lambda x: last(hidden), optimizer, x, y)
        return loss, share.detach()
    return step, batch, lambda: weights(first, last)


@captures(1)
def an_average_of_the_weights() -> Any:
    net = network()
    average = copy.deepcopy(net)
    optimizer = genesis.optim.AdamW(net.parameters())

    def step(x: Any, y: Any) -> Any:
        loss = update(net, optimizer, x, y)
        with genesis.no_grad():
            for mean, p in zip(average.parameters(), net.parameters(), strict=True):
                mean.mul_(0.9).add_(p, alpha=0.1)
        return loss.item()
    return step, batch, lambda: weights(net, average)


@captures(2)
def training_and_evaluation_in_one_step() -> Any:
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        net.train()
        loss = update(net, optimizer, x, y)
        net.eval()
        with genesis.no_grad():
            right = (net(x).argmax(1) == y).float().mean()
        return loss.item(), right.item()
    return step, batch, lambda: [weights(net), net[1].running_mean]


def bits(value: Any) -> Any:
    """A value with every bit of the tensors in it."""
    if isinstance(value, genesis.Tensor):
        return tuple(value.shape), value.requires_grad, value.detach().numpy().tobytes()
    if isinstance(value, dict):
        return {name: bits(x) for name, x in value.items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [bits(x) for x in value]
    return (type(value).__name__, bits(vars(value))) if hasattr(value, "__dict__") and not isinstance(
        value, enum.Enum) else (type(value).__name__, repr(value))


def ran(make: Callable[[], Any], compiled: bool) -> tuple[list[Any], Any]:
    """What 24 calls give, and what each leaves."""
    genesis.manual_seed(0)
    step, arguments, left = make()
    function = genesis.compile(step) if compiled else step
    return [(bits(function(*arguments(i))), bits(left())) for i in range(24)], function


@pytest.mark.parametrize("make", STEPS, ids=lambda make: make.__name__)
def test_a_step(make: Callable[[], Any]) -> None:
    found, compiled = ran(make, True)
    expected, _ = ran(make, False)
    assert [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b] == []
    explained = genesis.explain(compiled)
    assert explained.captures <= STEPS[make] and explained.captures + explained.hits >= 22, explained


def test_gradients_that_another_compiled_function_takes_away() -> None:
    """Nobody looks at anything between the calls: each function has to know what the other has done."""
    def run(compiled: bool) -> list[Any]:
        genesis.manual_seed(0)
        net = network()
        given = [batch(i) for i in range(9)]

        def learn(x: Any, y: Any) -> Any:
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss.detach()

        def forget(x: Any) -> Any:
            for p in net.parameters():
                p.grad = None
            return x * 2
        first, second = (genesis.compile(learn), genesis.compile(forget)) if compiled else (learn, forget)
        for x, y in given:
            first(x, y)
            second(x)
        first(*given[0])
        found = [bits([p.grad for p in net.parameters()])]
        first(*given[1])
        found.append(bits([p.grad for p in net.parameters()]))
        assert not compiled or (first.hits >= 6 and second.hits >= 6), genesis.explain(first)
        return found
    assert run(True) == run(False)


@pytest.mark.parametrize("right", [
    lambda out, y: (out.argmax(1) == y).long().bincount().sum().item(),
    lambda out, y: -(out.argmax(1) == y).sum(dtype=genesis.int64).bitwise_not().item(),
    lambda out, y: (out if len(y) > 5 else y).argmax(0).sum().item(),
], ids=["a count", "a method that is not known", "one of two"])
def test_a_value_that_is_computed_in_other_ways_behind_one_that_is_kept(right: Any) -> None:
    """Nothing is known of what these methods give: such steps are recorded."""
    def run(compiled: bool) -> Any:
        genesis.manual_seed(0)
        net, sums = network(), {"loss": 0.0, "right": 0}
        optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> None:
            optimizer.zero_grad()
            out = net(x)
            loss = F.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            sums["loss"] += loss.item()
            sums["right"] += right(out, y)
        function = genesis.compile(step) if compiled else step
        for i in range(6):
            function(*batch(i))
        return sums
    assert run(True) == run(False)


def test_a_list_that_is_looked_at_under_another_key_is_seen() -> None:
    def run(compiled: bool) -> list[Any]:
        seen: list[Any] = []
        state: dict[str, Any] = {"kept": seen, "all": seen, "last": None}

        def step(x: Any) -> int:
            state["kept"].append(x * 2)
            state["last"] = x
            return len(state["all"])
        function = genesis.compile(step) if compiled else step
        return [function(batch(i)[0]) for i in range(6)]
    assert run(True) == run(False) == [1, 2, 3, 4, 5, 6]


def test_a_function_that_looks_at_the_losses_gets_them() -> None:
    """What is called behind `losses.append(loss.item())` may look there."""
    def run(compiled: bool) -> list[Any]:
        genesis.manual_seed(0)
        net, losses, seen = network(), list[float](), list[Any]()
        optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)

        def look() -> float:
            return max(losses) if type(losses[-1]) is float else -1.0

        def step(x: Any, y: Any) -> float:
            losses.append(update(net, optimizer, x, y).item())
            return look()
        function = genesis.compile(step) if compiled else step
        for i in range(6):
            seen.append(function(*batch(i)))
        return [*seen, *losses]
    assert run(True) == run(False)


KEEPING: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "returned": lambda net, kept: net[0].weight.grad,
    "in an item": lambda net, kept: kept.__setitem__("last", net[0].weight.grad),
    "in a list": lambda net, kept: next(iter([p.grad for p in net.parameters()])),
    "detached": lambda net, kept: net[0].weight.grad.detach(),
    "a view": lambda net, kept: net[0].weight.grad[0],
}


@pytest.mark.parametrize("keep", list(KEEPING))
def test_a_gradient_that_is_returned_is_the_one_that_is_left(keep: str) -> None:
    """Writing to the one is writing to the other, and the next call's gradient is another one."""
    def run(compiled: bool) -> list[Any]:
        genesis.manual_seed(0)
        net, kept = network(), dict[str, Any]()
        optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> Any:
            update(net, optimizer, x, y)
            return KEEPING[keep](net, kept)
        function = genesis.compile(step) if compiled else step
        seen = [function(*batch(i)) for i in range(4)]
        net[0].weight.grad.mul_(2)
        return [bits(seen), bits(kept), [x is net[0].weight.grad for x in (*seen, *kept.values())]]
    assert run(True) == run(False)
