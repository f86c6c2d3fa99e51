"""What a call writes to Python's objects is written by its replays: states, caches, counters, lists of losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from calls import Pair, ramp, values

import genesis
from genesis import nn
from genesis.nn import functional as F
from tests.faults.table import count

CALLS = 0
STATE: Any = None
TOTALS = {"calls": 0}
LOSSES: list[Any] = []


def both(make: Callable[[], tuple[Any, Callable[[], Any]]], calls: int = 6,
         argument: Callable[[int], Any] = lambda i: ramp(2, 3, start=i / 4)) -> Any:
    """Run a function plain and compiled; asserts that results and the state after each call are equal.

    Args:
        make: gives a function, and another one that gives the state that it keeps.

    Returns:
        The explanation of the compiled one.
    """
    function, state = make()
    plain = []
    for i in range(calls):
        result = values(function(argument(i)))
        plain.append((result, values(state())))
    function, state = make()
    compiled = genesis.compile(function)
    for i in range(calls):
        result = values(compiled(argument(i)))
        assert (result, values(state())) == plain[i], (i, genesis.explain(compiled))
    return genesis.explain(compiled)


def trained(**more: Any) -> Any:
    """An object with a weight, an optimizer, and these attributes."""
    class Trainer:
        def __init__(self) -> None:
            self.weight = ramp(3).requires_grad_()
            self.optimizer = genesis.optim.AdamW([self.weight], lr=0.1)
            self.__dict__.update(more)

        def step(self, x: Any) -> Any:
            self.optimizer.zero_grad()
            loss = (x * self.weight).square().mean()
            loss.backward()
            self.optimizer.step()
            return loss
    return Trainer


# In-place ops in a step

def in_place_activations() -> Any:
    genesis.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.SiLU(inplace=True), nn.Linear(4, 2))
    optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    return step, lambda: list(net.parameters())


def in_place_ops() -> Any:
    genesis.manual_seed(0)
    net = nn.Linear(3, 4)
    optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        h = net(x)
        h.masked_fill_(h > 1, 0.5)
        h.add_(1)
        h *= 2
        h[:, 0] = 3
        loss = h.square().mean()
        loss.backward()
        optimizer.step()
        return loss, h
    return step, lambda: list(net.parameters())


@pytest.mark.parametrize("make", [in_place_activations, in_place_ops])
def test_a_step_with_ops_in_place(make: Any) -> None:
    explained = both(make)
    assert (explained.captures, explained.hits) == (1, 5), explained


# Counters

def test_a_counter_on_a_module_and_one_in_a_loop() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * 2

    def make() -> Any:
        blocks = nn.ModuleList([Block(), Block()])

        def run(x: Any) -> Any:
            for block in (*blocks, blocks[0]):
                x = block(x)
            return x
        return run, lambda: [block.calls for block in blocks]
    explained = both(make)
    assert (explained.captures, explained.hits) == (1, 5), explained


def test_counters_everywhere() -> None:
    def make() -> Any:
        global CALLS
        count, counts, trainer = 0, [0, 5], trained(steps=0, table={"steps": 3})()
        CALLS = TOTALS["calls"] = 0

        def step(x: Any) -> Any:
            global CALLS
            nonlocal count
            CALLS += 1
            count += 2
            counts[1] -= 1
            TOTALS["calls"] += 1
            trainer.table["steps"] += 1
            trainer.steps = trainer.steps + 1
            return trainer.step(x)
        return step, lambda: (CALLS, count, counts, dict(TOTALS), trainer.table, trainer.steps, trainer.weight)
    explained = both(make)
    assert (explained.captures, explained.hits) == (1, 5), explained


def test_a_counter_that_is_read_has_a_capture_for_each_value() -> None:
    def make() -> Any:
        trainer = trained(steps=0)()

        def step(x: Any) -> Any:
            trainer.steps += 1
            if trainer.steps == 4:
                trainer.steps = 0
            return x * trainer.steps
        return step, lambda: trainer.steps
    explained = both(make, calls=12)
    assert (explained.captures, explained.hits) == (4, 8), explained
    assert "it changes 'steps', which it reads at " in explained and explained.recaptures[0].guard == "steps"


def test_a_counter_of_our_own_classes_is_not_only_counted() -> None:
    """`p` of a Dropout, which its code reads: that the user's code only adds to it says nothing."""
    class Growing(nn.Dropout):
        def forward(self, x: Any) -> Any:
            self.p += 1
            return super().forward(x)

    def make() -> Any:
        layer = Growing(0)

        def state() -> Any:
            layer.p, found = -1 if layer.p == 1 else 0, layer.p
            return found
        return layer, state
    both(make)


def test_a_flag_that_the_first_call_takes_down() -> None:
    def make() -> Any:
        trainer = trained(first=True)()

        def step(x: Any) -> Any:
            if trainer.first:
                trainer.first = False
                return x * 10
            return x
        return step, lambda: trainer.first
    explained = both(make)
    assert (explained.captures, explained.hits) == (2, 4), explained


# Hidden states and caches

def test_a_state_that_is_returned_and_passed_in_again() -> None:
    genesis.manual_seed(0)
    cell = nn.GRUCell(3, 4)
    plain, compiled = genesis.zeros(2, 4), genesis.zeros(2, 4)
    step = genesis.compile(lambda x, h: cell(x, h))
    for i in range(6):
        plain, compiled = cell(ramp(2, 3, start=i), plain), step(ramp(2, 3, start=i), compiled)
        assert values(plain) == values(compiled)
    assert genesis.explain(step).hits == 4  # the first state is no computed one that requires grad


def test_a_state_on_the_module() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.state = nn.LSTMCell(3, 4), None
            self.register_buffer("mean", genesis.zeros(4))
            self.last = self.before = genesis.zeros(4)

        def forward(self, x: Any) -> Any:
            if self.state is None:
                self.state = genesis.zeros(2, 4), genesis.zeros(2, 4)
            self.state = self.cell(x, self.state)
            self.mean = self.mean * 0.5 + self.state[0].detach().mean(0)
            self.last, self.before = self.state[0][0] * 2, self.last
            return self.state[0]

    def make() -> Any:
        genesis.manual_seed(0)
        module = Recurrent()
        return module, lambda: (module.state, module.mean, module.last, module.before)
    explained = both(make, calls=8)
    assert explained.hits >= 4, explained


def test_a_state_in_a_variable_and_in_containers() -> None:
    def make() -> Any:
        global STATE
        STATE = None
        hidden, states, table = genesis.zeros(3), [genesis.zeros(3), 1.0], {"h": (genesis.zeros(3), None)}

        def step(x: Any) -> Any:
            global STATE
            nonlocal hidden
            STATE = x if STATE is None else STATE * 0.5 + x
            hidden = hidden + x.mean(0)
            states[0] = states[0] * 0.5 + x.sum(0)
            table["h"] = (table["h"][0] - x[0], None)
            return STATE.sum() + hidden + states[0] + table["h"][0]
        return step, lambda: (STATE, hidden, states, table)
    explained = both(make, calls=8)
    assert explained.hits >= 5, explained


def test_states_inside_a_step_go_on_without_their_graph() -> None:
    def make() -> Any:
        trainer = trained(state=ramp(3) / 3)()

        def step(x: Any) -> Any:
            trainer.state = (trainer.state + trainer.weight).detach() / 2
            return trainer.step(x + trainer.state)
        return step, lambda: (trainer.state, trainer.weight)
    explained = both(make)
    assert explained.hits >= 3, explained


def test_two_names_of_one_state() -> None:
    def make() -> Any:
        first = ramp(3)
        trainer = trained(state=first, other=first)()

        def step(x: Any) -> Any:
            trainer.state = trainer.state + x[0]
            return trainer.state + trainer.other
        return step, lambda: (trainer.state, trainer.other)
    explained = both(make)
    assert explained.hits >= 4, explained

    def shared() -> Any:
        trainer = trained(state=ramp(3), other=ramp(3))()

        def step(x: Any) -> Any:
            trainer.state = x[0] * 2
            trainer.other = trainer.state
            trainer.state.add_(1)
            return trainer.other + trainer.state
        return step, lambda: (trainer.state, trainer.other, trainer.state is trainer.other)
    assert both(shared).hits >= 4


def test_states_change_places() -> None:
    def make() -> Any:
        trainer = trained(now=ramp(3), next=ramp(3, start=5))()

        def step(x: Any) -> Any:
            trainer.now, trainer.next = trainer.next, trainer.now
            return x + trainer.now
        return step, lambda: (trainer.now, trainer.next)
    explained = both(make)
    assert explained.hits == 5, explained


class Attention(nn.Module):
    """Attention of one new token over all before it: the cache is a tensor that grows, or a buffer and a position."""

    def __init__(self, kind: str):
        super().__init__()
        genesis.manual_seed(0)
        self.kind, self.project, self.keys, self.position = kind, nn.Linear(3, 3), None, 0
        self.register_buffer("kept", genesis.zeros(8, 3))

    def forward(self, x: Any) -> Any:
        key = self.project(x)
        if self.kind == "grows":
            self.keys = key if self.keys is None else genesis.cat([self.keys, key])
            return F.scaled_dot_product_attention(key, self.keys, self.keys)
        self.kept[self.position:self.position + 1] = key
        self.position += 1
        seen = self.kept[:self.position]
        return F.scaled_dot_product_attention(key, seen, seen)

    def clear(self) -> None:
        """Begin another sequence."""
        self.keys, self.position = None, 0


@pytest.mark.parametrize("kind", ["grows", "position"])
def test_a_cache_of_keys_on_the_module(kind: str) -> None:
    plain, ours = Attention(kind), Attention(kind)
    compiled = genesis.compile(ours)
    with genesis.no_grad():
        for sequence in range(3):
            plain.clear()
            ours.clear()
            for i in range(6):
                x = ramp(1, 3, start=i + sequence / 2)
                assert values(compiled(x)) == values(plain(x))
    explained = genesis.explain(compiled)
    assert (explained.captures, explained.hits) == (3, 15), explained


# Lists of losses, values read last

def test_a_list_of_losses() -> None:
    def make() -> Any:
        trainer = trained(losses=[])()
        outer: list[Any] = []
        LOSSES.clear()

        def step(x: Any) -> Any:
            loss = trainer.step(x)
            trainer.losses.append(loss.detach())
            outer.extend([loss.detach() * 2, "step"])
            LOSSES.append({"loss": loss.detach()})
        return step, lambda: (trainer.losses, outer, LOSSES, trainer.weight)
    explained = both(make)
    assert (explained.captures, explained.hits) == (1, 5), explained


def test_a_list_of_losses_that_is_read_or_kept_elsewhere() -> None:
    def make() -> Any:
        trainer = trained(losses=[])()
        held = [trainer.losses]

        def step(x: Any) -> Any:
            trainer.losses.append(trainer.step(x).detach())
            return sum(len(each) for each in held) + x
        return step, lambda: trainer.losses
    assert both(make).hits == 0


def test_losses_of_several_steps() -> None:
    def make() -> Any:
        trainer = trained()()

        def epoch(x: Any) -> Any:
            losses = []
            for row in x:
                losses.append(trainer.step(row))
            return losses, genesis.stack(losses).detach().mean()
        return epoch, lambda: trainer.weight
    explained = both(make)
    assert (explained.captures, explained.hits) == (1, 5), explained


def result(trainer: Any, x: Any) -> Any:
    return trainer.step(x).item()


def in_a_dictionary(trainer: Any, x: Any) -> Any:
    loss = trainer.step(x)
    hit = (x > 1).float().mean()
    return {"loss": loss.item(), "hit": [float(hit), (x > 2).sum(0).tolist()], "x": x * 2}, loss


def in_a_variable(trainer: Any, x: Any) -> Any:
    loss = trainer.step(x)
    value = loss.item()
    trainer.steps += 1
    return value, trainer.weight.detach() * 2


def in_a_branch(trainer: Any, x: Any) -> Any:
    if trainer.weight.requires_grad:
        value = trainer.step(x).item()
    else:
        value = 0.0
    return value


def under_no_grad(trainer: Any, x: Any) -> Any:
    with genesis.no_grad():
        return (x * trainer.weight).sum().item()


def called(trainer: Any, x: Any) -> Any:
    return result(trainer, x), 3


def appended(trainer: Any, x: Any) -> Any:
    trainer.losses.append(trainer.step(x).item())


def stored(trainer: Any, x: Any) -> Any:
    trainer.last = trainer.step(x).item()


def appended_in_a_tuple(trainer: Any, x: Any) -> Any:
    trainer.losses.append((1, [trainer.step(x).item()]))


def stored_in_a_dictionary(trainer: Any, x: Any) -> Any:
    trainer.last = {"loss": (trainer.step(x).item(), 1)}


LAST = [result, in_a_dictionary, in_a_variable, in_a_branch, under_no_grad, appended, stored, appended_in_a_tuple,
        stored_in_a_dictionary]


@pytest.mark.parametrize("function", LAST)
def test_a_value_that_is_read_last(function: Callable[..., Any]) -> None:
    def make() -> Any:
        trainer = trained(steps=0, losses=[], last=0.0)()
        return lambda x: function(trainer, x), lambda: (trainer.weight, trainer.losses, trainer.last, trainer.steps)
    explained = both(make)
    assert (explained.captures, explained.hits) == (1, 5), explained


def looked_at(trainer: Any, x: Any) -> Any:
    value = trainer.step(x).item()
    return value if value > 4 else -value


def formatted(trainer: Any, x: Any) -> Any:
    return f"{trainer.step(x).item():.3f}"


def added(trainer: Any, x: Any) -> Any:
    trainer.last += trainer.step(x).item()


def in_a_loop(trainer: Any, x: Any) -> Any:
    losses = []
    for row in x:
        losses.append(trainer.step(row).item())
    return sum(losses)


def appended_and_looked_at(trainer: Any, x: Any) -> Any:
    trainer.losses.append(trainer.step(x).item())
    return trainer.losses[-1] * 2


def given_to_another(trainer: Any, x: Any) -> Any:
    return abs(trainer.step(x).item())


def called_and_looked_at(trainer: Any, x: Any) -> Any:
    return result(trainer, x) * 2


@pytest.mark.parametrize("function", [added, given_to_another, called_and_looked_at])
def test_a_value_that_the_program_computes_with_is_read_last(function: Callable[..., Any]) -> None:
    def make() -> Any:
        trainer = trained(steps=0, losses=[], last=0.0)()
        return lambda x: function(trainer, x), lambda: (trainer.weight, trainer.losses, trainer.last)
    assert both(make).hits >= 3


@pytest.mark.parametrize("function", [looked_at, formatted, in_a_loop, appended_and_looked_at, called])
def test_a_value_that_the_program_goes_on_with_is_read_at_each_call(function: Callable[..., Any]) -> None:
    def make() -> Any:
        trainer = trained(steps=0, losses=[], last=0.0)()
        return lambda x: function(trainer, x), lambda: (trainer.weight, trainer.losses, trainer.last)
    explained = both(make)
    assert explained.hits == 0 or function is called, explained


class Noting:
    """An object whose method keeps a value that it reads, and what its callers do then."""

    def __init__(self) -> None:
        self.weight, self.last, self.other = genesis.ones(2, 3), 0.0, 1.0

    def note(self, x: Any) -> None:
        self.last = (x * 2).sum().item()

    @property
    def shown(self) -> Any:
        return self.last + 1

    def scaled(self, x: Any) -> Any:
        self.note(x)
        return self.double(x)

    def double(self, x: Any) -> Any:
        return x * self.last

    def looked_at(self, x: Any) -> Any:
        self.note(x)
        return self.shown

    def looked_at_here(self, x: Any) -> Any:
        self.last = (x * 2).sum().item()
        return self.shown

    def written(self, x: Any) -> Any:
        self.note(x)
        self.weight += x
        return x * 2

    def note_float(self, x: Any) -> None:
        self.last = float((x * 2).sum())

    def scaled_by_float(self, x: Any) -> Any:
        self.note_float(x)
        return self.double(x)

    def float_shown(self, x: Any) -> Any:
        self.last = float((x * 2).sum())
        return self.shown

    def float_here(self, x: Any) -> Any:
        self.note_float(x)
        return x * self.last

    def plain(self, x: Any) -> Any:
        twice = x * 2
        self.note(x)
        return self.other, twice


@pytest.mark.parametrize("name", [
    "scaled", "looked_at", "looked_at_here", "written", "scaled_by_float", "float_shown", "float_here", "plain",
])
def test_a_value_that_a_method_keeps_is_there_for_what_comes_after(name: str) -> None:
    """The number that stands for it until the call is over was found by the caller's next call: NaN."""
    def make() -> Any:
        noting = Noting()
        return getattr(noting, name), lambda: (noting.last, noting.other, noting.weight)
    explained = both(make)
    assert (explained.hits > 0) == (name == "plain"), explained


def _read(x: Any) -> Any:
    return x.sum().item()


READ_ON_THE_WAY: dict[str, Callable[[Any], Any]] = {
    "bool": lambda x: bool((x > 0).all()),
    "int": lambda x: int(x.sum()),
    "math": lambda x: math.exp(x.sum()),
    "numpy": lambda x: np.float64(x.sum()),
    "format": lambda x: format(x.sum(), ".2f"),
    "equal": lambda x: genesis.equal(x, ramp(2)),
    "allclose": lambda x: genesis.allclose(x, ramp(2)),
    "all": lambda x: all(x > 0),
    "max": lambda x: max(x),
    "sorted": lambda x: sorted(x * 1),
    "max of readings": lambda x: max(map(_read, [x, -x])),
    "max of a method": lambda x: max(map(genesis.Tensor.item, [x[0], -x[0]])),
    "sorted by a reading": lambda x: sorted([x * 3, x, -x], key=_read),
    "a sum of tensors": lambda x: math.fsum([x.sum(), x.max()]),
    "nonzero": lambda x: genesis.nonzero(x > 0),
    "unique": lambda x: genesis.unique(x * 2),
    "full": lambda x: genesis.full((2,), x.sum()),
    "a tensor of tensors": lambda x: genesis.tensor([x.sum(), 1.0]),
    "repeat_interleave": lambda x: genesis.repeat_interleave(x, (x + 3).long()),
}


@pytest.mark.parametrize("name", READ_ON_THE_WAY)
def test_what_reads_a_value_on_the_way_gets_the_value(name: str) -> None:
    """No number that stands for one: Genesis' own functions, the library and C compute with what they read."""
    pair = Pair(READ_ON_THE_WAY[name])
    for start in (-1.0, 1.0, -2.0, 1.0):
        pair.same(ramp(2, start=start))


def test_a_compiled_step_with_a_scaler_is_the_plain_one() -> None:
    def scaled(compile: Callable[[Any], Any]) -> list[Any]:
        w = ramp(2).requires_grad_()
        optimizer, scaler = genesis.optim.SGD([w], lr=0.1), genesis.amp.GradScaler(init_scale=16.0, growth_interval=2)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (w * x).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()
        call, seen = compile(step), []
        for i in range(6):
            x = ramp(2) if i != 3 else ramp(2) * float("inf")
            seen += [call(x).tolist(), w.tolist(), scaler.get_scale()]
        return seen
    assert scaled(genesis.compile) == scaled(lambda function: function)


def test_a_value_read_last_before_an_error() -> None:
    losses: list[Any] = []
    fail = [False]

    def step(x: Any) -> Any:
        y = x * 2
        if fail[0]:
            raise ValueError
        losses.append(y.sum().item())
        return y
    compiled = genesis.compile(step)
    for i in range(6):
        fail[0] = i in (2, 3)
        if fail[0]:
            with pytest.raises(ValueError):
                compiled(ramp(1, start=i))
        else:
            compiled(ramp(1, start=i))
    assert losses == [0.0, 2.0, 8.0, 10.0]


def _history(trainer: Any, x: Any) -> None:
    trainer.history["loss"].append(trainer.step(x).detach())
    trainer.history["rows"].append(x.shape[0])


def _history_of_globals(trainer: Any, x: Any) -> None:
    HISTORY["loss"].append(trainer.step(x).detach())


def _history_that_is_read(trainer: Any, x: Any) -> None:
    trainer.history["loss"].append(trainer.step(x).detach() * len(trainer.history["loss"]))


def _history_that_is_read_under_another_name(trainer: Any, x: Any) -> None:
    trainer.history["loss"].append(trainer.step(x).detach() * len(trainer.losses))


HISTORY: dict[str, list[Any]] = {"loss": []}


@pytest.mark.parametrize(("function", "hits"), [
    (_history, True), (_history_of_globals, True), (_history_that_is_read, False),
    (_history_that_is_read_under_another_name, False)])
def test_lists_of_losses_in_a_dictionary(function: Callable[..., Any], hits: bool) -> None:
    def make() -> Any:
        trainer = trained(losses=[])()
        trainer.history = {"loss": trainer.losses, "rows": []} if function.__name__.endswith("name") else {
            "loss": [], "rows": []}
        HISTORY["loss"].clear()
        return lambda x: function(trainer, x), lambda: (trainer.weight, trainer.history, HISTORY)
    assert (both(make).hits > 0) is hits


# Schedules

SCHEDULES = {
    "step": lambda s, o: s.StepLR(o, 2),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 10),
    "cycle": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=20),
    "lambda": lambda s, o: s.LambdaLR(o, lambda epoch: 1 / (epoch + 1)),
    "sequence": lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1, total_iters=2), s.ExponentialLR(o, 0.5)], [2]),
    "chain": lambda s, o: s.ChainedScheduler([s.LinearLR(o, 0.1, total_iters=2), s.ExponentialLR(o, 0.5)]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_inside_a_step(name: str) -> None:
    def make() -> Any:
        trainer = trained()()
        schedule = SCHEDULES[name](genesis.optim.lr_scheduler, trainer.optimizer)

        def step(x: Any) -> Any:
            loss = trainer.step(x)
            schedule.step()
            return loss
        return step, lambda: (trainer.weight, schedule.last_epoch, trainer.optimizer.param_groups[0]["lr"])
    explained = both(make)
    assert (explained.captures, explained.hits) == (1, 5), explained


def test_the_rates_that_a_schedule_gives() -> None:
    def make() -> Any:
        trainer = trained()()
        schedule = genesis.optim.lr_scheduler.StepLR(trainer.optimizer, 3)

        def step(x: Any) -> Any:
            loss = trainer.step(x)
            schedule.step()
            return loss, schedule.get_last_lr()
        return step, lambda: schedule.last_epoch
    both(make)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("before", [False, True])
def test_the_rates_in_the_optimizer_s_groups(name: str, before: bool) -> None:
    """They are read in the same call in which the schedule changes them now and then."""
    def make() -> Any:
        trainer = trained()()
        schedule = SCHEDULES[name](genesis.optim.lr_scheduler, trainer.optimizer)

        def step(x: Any) -> Any:
            loss = trainer.step(x)
            rate = trainer.optimizer.param_groups[0]["lr"]
            schedule.step()
            return loss, rate if before else trainer.optimizer.param_groups[0]["lr"]
        return step, lambda: (trainer.weight, schedule.last_epoch)
    both(make)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("scheduled", [False, True])
def test_a_rate_that_the_function_sets(first: bool, scheduled: bool) -> None:
    """A step reads what the function has put into the optimizer's groups, not what was there before the call."""
    losses = []
    for compiled in (False, True):
        weight = nn.Parameter(ramp(3))
        optimizer = genesis.optim.SGD([weight], lr=0.1)
        schedule = genesis.optim.lr_scheduler.StepLR(optimizer, 2)

        def step(rate: float, weight: Any = weight, optimizer: Any = optimizer, schedule: Any = schedule) -> Any:
            if first:
                optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            loss = weight.square().sum()
            loss.backward()
            optimizer.step()
            if not first:
                optimizer.param_groups[0]["lr"] = rate
            if scheduled:
                schedule.step()
            return loss
        function = genesis.compile(step) if compiled else step
        losses.append([values(function((0.1, 0.02)[turn // 2 % 2])) for turn in range(12)])
    assert losses[0] == losses[1]


def test_a_schedule_whose_step_fails_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trained()()
    schedule = genesis.optim.lr_scheduler.ExponentialLR(trainer.optimizer, 0.5)

    @genesis.compile
    def step(x: Any) -> Any:
        loss = trainer.step(x)
        schedule.step()
        return loss
    for _ in range(3):
        step(ramp(2, 3))
    (entry,), = step._entries.values()
    plan = entry.replay._compiled
    before = schedule.last_epoch, dict(trainer.optimizer.param_groups[0]), trainer.weight.tolist()
    with monkeypatch.context() as patch:
        patch.setattr(type(plan), "start", lambda self, *args: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            step(ramp(2, 3))
    assert (schedule.last_epoch, dict(trainer.optimizer.param_groups[0]), trainer.weight.tolist()) == before
    step(ramp(2, 3))
    assert schedule.last_epoch == before[0] + 1


def test_a_schedule_of_the_users_that_writes_to_tensors_is_recorded() -> None:
    def make() -> Any:
        trainer = trained()()

        def rate(epoch: int) -> float:
            with genesis.no_grad():
                trainer.weight.mul_(0.5)
            return 1.0
        schedule = genesis.optim.lr_scheduler.LambdaLR(trainer.optimizer, rate)

        def step(x: Any) -> Any:
            schedule.step()
            return x * trainer.weight
        return step, lambda: trainer.weight
    assert both(make).hits == 0


def test_a_schedule_whose_function_reads_what_the_step_counts() -> None:
    def make() -> Any:
        trainer = trained(steps=0)()
        schedule = genesis.optim.lr_scheduler.LambdaLR(trainer.optimizer, lambda epoch: 1 / (trainer.steps + 1))

        def step(x: Any) -> Any:
            loss = trainer.step(x)
            trainer.steps += 1
            schedule.step()
            return loss
        return step, lambda: (trainer.weight, trainer.steps, trainer.optimizer.param_groups[0]["lr"])
    assert both(make).hits == 0


# Models of many small modules

class Squeeze(nn.Module):
    """A block of SENet: a convolution, weighed by channel."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 2, 1), nn.ReLU(inplace=True),
                                  nn.Conv2d(2, channels, 1), nn.Sigmoid())
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        y = self.norm(self.conv(x))
        y = y * self.gate(y)
        y += x
        return self.act(y)


class Experts(nn.Module):
    """Experts that all see everything, mixed by a router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(4, 3)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(3)])
        self.used = [0, 0, 0]

    def forward(self, x: Any) -> Any:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        out = genesis.zeros_like(x)
        for number, expert in enumerate(self.experts):
            share = (weights * (chosen == number)).sum(-1, keepdim=True)
            out += expert(x) * share
        return out


@pytest.mark.parametrize("name", ["squeeze", "experts"])
def test_models_of_many_small_modules(name: str) -> None:
    def make() -> Any:
        genesis.manual_seed(0)
        net = nn.Sequential(*([Squeeze(4), Squeeze(4)] if name == "squeeze" else [Experts(), Experts()]))
        optimizer = genesis.optim.AdamW(net.parameters(), lr=0.01)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss
        return step, lambda: [*net.parameters(), *net.buffers()]
    shape = (2, 4, 3, 3) if name == "squeeze" else (5, 4)
    explained = both(make, calls=4, argument=lambda i: (ramp(*shape, start=i) / 10).sin())
    assert (explained.captures, explained.hits) == (1, 3), explained


# Sizes, odd calls

def test_growing_lengths_are_replayed_when_they_come_again() -> None:
    net = nn.Linear(3, 2)
    compiled = genesis.compile(lambda x: net(x).sum())
    for _ in range(2):
        for length in range(1, 11):
            compiled(ramp(length, 3))
    explained = genesis.explain(compiled)
    assert (explained.captures, explained.hits) == (2, 18)  # 1, and 2 for all others
    for length in range(1, 61):
        compiled(ramp(length, 3))
    assert compiled.hits == 78


def test_lengths_that_the_code_asks_for_are_replayed_when_they_come_again() -> None:
    compiled = genesis.compile(lambda x: (x * 2, str(x.shape[0])))
    for _ in range(2):
        for length in range(1, 61):  # far more than are captured before one is replayed
            compiled(ramp(length, 3))
    hits = compiled.hits
    for length in range(1, 61):
        compiled(ramp(length, 3))
    assert compiled.hits >= hits + 24
    hits = compiled.hits
    for length in range(1, 61):
        compiled(ramp(length, 3))
    assert compiled.hits == hits + 60


def test_one_odd_call_does_not_end_replays() -> None:
    odd = [False]

    def function(x: Any) -> Any:
        if odd[0]:
            return x * float(x.sum())
        return x * 2
    compiled = genesis.compile(function)
    odd[0] = True
    assert compiled(ramp(2)).tolist() == [3.0, 6.0]
    odd[0] = False
    assert [compiled(ramp(2)).tolist() for _ in range(3)] == [[2.0, 4.0]] * 3
    assert compiled.hits == 2
    odd[0] = True
    assert compiled(ramp(2)).tolist() == [3.0, 6.0]
    odd[0] = False
    compiled(ramp(2))
    assert compiled.hits == 3


def test_what_cannot_be_captured_is_tried_ever_more_seldom() -> None:
    tried = 0

    def function(x: Any) -> Any:
        nonlocal tried
        tried += genesis.compiler.is_compiling() and x.storage is not None
        return x * float(x.sum())
    captures = []
    compiled = genesis.compile(function)
    original = type(compiled)._capture
    try:
        type(compiled)._capture = lambda self, *a: (captures.append(tried), original(self, *a))[1]  # type: ignore
        for _ in range(100):
            compiled(ramp(1))
    finally:
        type(compiled)._capture = original  # type: ignore[method-assign]
    assert tried == 100 and len(captures) <= 6


def test_after_an_exception_at_any_line_what_a_call_keeps_belongs_to_its_weights() -> None:
    """A counter, a stored loss and a list of losses, beside weights that an optimizer writes."""
    row = count("compiled state", "cpu", "line", 23)
    assert row.tried and not row.inconsistent, "\n".join(f"{v.place}: {v.problem}" for v in row.inconsistent)


def test_a_place_that_python_writes_to_is_written_to() -> None:
    class Noted(dict[str, Any]):
        """A dictionary whose writes are looked at."""

        def __setitem__(self, key: str, value: Any) -> None:
            self.noted = key
            super().__setitem__(key, value)

    def make() -> Any:
        kept = Noted(last=None)

        def step(x: Any) -> Any:
            kept["last"] = x * 2
            return x + 1
        return step, lambda: dict(kept)
    both(make)


class Kept:
    """A layer that keeps what it gave last, and gives it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function, self.out = function, genesis.zeros(1)

    def __call__(self, x: Any) -> Any:
        self.out = self.function(x)
        return self.out


def test_places_that_share_memory() -> None:
    """What a layer and the one that flattens it gave last (makemore's layers)."""
    def make() -> Any:
        layers = [Kept(lambda x: x * 2), Kept(lambda x: x.view(-1)), Kept(lambda x: x[1:4]), Kept(lambda x: x + 1),
                  Kept(lambda x: x), Kept(lambda x: x[None])]

        def run(x: Any) -> Any:
            for layer in layers:
                x = layer(x)
            return x.sum()
        return run, lambda: [layer.out for layer in layers]
    assert both(make).hits >= 3


def test_places_that_share_memory_and_are_written_to() -> None:
    def make() -> Any:
        layers = [Kept(lambda x: x * 2), Kept(lambda x: x.view(-1)[2:5])]

        def run(x: Any) -> Any:
            first, second = (layer.out for layer in layers)
            if first.ndim > 1:
                first.add_(1)
                second.mul_(3)
            found = first.sum() + second.sum() * 10
            for layer in layers:
                x = layer(x)
            return found + x.sum()
        return run, lambda: [layer.out for layer in layers]
    both(make)


@pytest.mark.parametrize("apart", [
    lambda first, second: (first.clone(), second), lambda first, second: (first, second.clone()),
    lambda first, second: (first, first.clone().view(-1))])
def test_places_that_no_longer_share_memory(apart: Callable[[Any, Any], tuple[Any, Any]]) -> None:
    """One of them is made another between calls: what is written through the other does not reach it."""
    found = []
    for wrap in (lambda f: f, genesis.compile):
        layers = [Kept(lambda x: x * 2), Kept(lambda x: x.view(-1))]

        @wrap
        def run(x: Any, layers: Any = layers) -> Any:
            first, second = (layer.out for layer in layers)
            total = first.sum() * 0
            if first.ndim > 1:
                first.add_(1)
                total = second.sum()
            for layer in layers:
                x = layer(x)
            return total
        seen = []
        for i in range(9):
            seen.append(values(run(ramp(2, 3, start=i))))
            if i % 3 == 2:
                layers[0].out, layers[1].out = apart(layers[0].out, layers[1].out)
            seen.append([values(layer.out) for layer in layers])
        found.append(seen)
    assert found[0] == found[1]


def test_places_that_share_memory_change_places() -> None:
    def make() -> Any:
        layers = [Kept(lambda x: x * 2), Kept(lambda x: x.view(3, 2))]
        for layer, x in zip(layers, (ramp(2, 3), None), strict=True):
            layer(layers[0].out if x is None else x)

        def run(x: Any) -> Any:
            layers[0].out, layers[1].out = layers[1].out, layers[0].out
            return (layers[0].out * x.view(layers[0].out.shape)).sum() + layers[1].out.mean()
        return run, lambda: [layer.out for layer in layers]
    both(make)


def test_places_that_share_memory_over_sizes() -> None:
    def make() -> Any:
        layers = [Kept(lambda x: x * 2), Kept(lambda x: x.view(-1)), Kept(lambda x: x * 1)]

        def run(x: Any) -> Any:
            before = layers[1].out.sum() + layers[0].out.mean()
            for layer in layers:
                x = layer(x)
            return x.sum() + before
        return run, lambda: [layer.out for layer in layers]
    both(make, 14, lambda i: ramp(2 + i * i % 7, 3, start=i / 4))


def test_a_place_that_shares_memory_with_another_one() -> None:
    """Views of what two layers gave last change places between calls."""
    found = []
    for wrap in (lambda f: f, genesis.compile):
        layers = [Kept(lambda x: x * 2), Kept(lambda x: x + 1), Kept(lambda x: x.view(-1)), Kept(lambda x: x.view(-1))]

        @wrap
        def run(x: Any, layers: Any = layers) -> Any:
            first, second, of_first, of_second = (layer.out for layer in layers)
            if first.ndim > 1:
                first.add_(1)
                second.mul_(3)
            total = of_first.sum() + 10 * of_second.sum()
            for layer, view in zip(layers[:2], layers[2:], strict=True):
                view(layer(x))
            return total
        seen = []
        for i in range(9):
            seen.append(values(run(ramp(2, 3, start=i))))
            if i == 5:
                layers[2].out, layers[3].out = layers[3].out, layers[2].out
        found.append(seen)
    assert found[0] == found[1]
    assert run.hits >= 3
