"""Training steps that differ in sizes alone: replayed from the third size on, and with every bit of the plain step."""

from __future__ import annotations

import random
import signal
import threading
import weakref
from collections.abc import Callable
from operator import call
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from calls import counts, ramp, values
from stops import stopped

import genesis
import genesis.nn.functional as F
from genesis import nn
from genesis.autograd import gradients
from genesis.tracing import symbolic_call, trial

LENGTHS = random.Random(0).sample(range(1, 201), 14)


class Block(nn.Module):
    """A block of a small GPT."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.drop = nn.LayerNorm(16), nn.LayerNorm(16), nn.Dropout(0.1)
        self.qkv, self.out, self.up, self.down = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(
            32, 16)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, 2, 8).transpose(1, 2) for part in self.qkv(self.first(x)).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.drop(self.out(y))
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """A small GPT, which gives its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(20, 16), nn.Embedding(200, 16)
        self.blocks, self.norm, self.head = nn.ModuleList([Block(), Block()]), nn.LayerNorm(16), nn.Linear(16, 20)

    def forward(self, ids: Any, targets: Any) -> Any:
        x = self.tokens(ids) + self.positions(genesis.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).reshape(-1, 20), targets.reshape(-1))


class Images(nn.Module):
    """A small net of images of any size, with what such nets write to, which gives its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))

    def forward(self, x: Any, labels: Any) -> Any:
        return F.cross_entropy(self.net(x), labels)


class Rows(nn.Module):
    """A layer over rows of 4, which gives its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x).square().mean()


Made = tuple[Any, Any, Callable[..., Any]]
"""A model, its optimizer, and its step."""


def made(model: type[nn.Module], optimizer: Callable[..., Any]) -> Made:
    """These, always with the same parameters."""
    genesis.manual_seed(0)
    net = model()
    chosen = optimizer(net.parameters())

    def step(*args: Any) -> Any:
        loss = net(*args)
        loss.backward()
        chosen.step()
        chosen.zero_grad()
        return loss
    return net, chosen, step


def adamw(parameters: Any) -> Any:
    return genesis.optim.AdamW(parameters, lr=1e-2)


def trained(net: Any, optimizer: Any) -> Any:
    """Every bit of what a step trains, and where the generator stands."""
    return values([*net.parameters(), *net.buffers(), *[x.grad for x in net.parameters()],
                   *[dict(optimizer.state[x]) for x in net.parameters()],
                   *[{"lr": group["lr"]} for group in optimizer.param_groups], genesis.get_rng_state()])


class Beside:
    """A compiled step beside the plain one."""

    def __init__(self, make: Callable[[], Made]):
        self.net, self.optimizer, self.plain = make()
        self.own_net, self.own_optimizer, self.own = make()
        self.compiled = genesis.compile(self.own)

    def same(self, *args: Any) -> Any:
        """Call both, compare all that they leave, and return the result."""
        drawn = genesis.get_rng_state()
        result = values(self.compiled(*args))
        left = trained(self.own_net, self.own_optimizer)
        genesis.set_rng_state(drawn)
        assert result == values(self.plain(*args))
        assert left == trained(self.net, self.optimizer)
        return result

    @property
    def captures(self) -> int:
        return counts(self.compiled)[0]


def tokens(length: int) -> tuple[Any, Any]:
    """Token numbers, and what follows each."""
    data = np.random.default_rng(length).integers(0, 20, (2, length + 1))
    return genesis.tensor(data[:, :-1].copy()), genesis.tensor(data[:, 1:].copy())


def images(count: int, height: int, width: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(height * width)
    return (genesis.tensor(draw.standard_normal((count, 3, height, width)).astype(np.float32)),
            genesis.tensor(draw.integers(0, 5, count)))


# What is replayed

def test_a_gpt_step_over_random_lengths() -> None:
    beside = Beside(lambda: made(GPT, adamw))
    for length in LENGTHS:
        beside.same(*tokens(length))
    assert beside.captures <= 4 and beside.captures + beside.compiled.hits == len(LENGTHS)
    hits = beside.compiled.hits
    for length in LENGTHS[:4]:  # known sizes
        beside.same(*tokens(length))
    assert beside.compiled.hits == hits + 4


def test_the_last_batch_is_smaller() -> None:
    beside = Beside(lambda: made(GPT, adamw))
    for _ in range(3):
        for rows in (6, 6, 5, 6, 4, 3):
            ids, targets = tokens(9)
            beside.same(ids.repeat(3, 1)[:rows].clone(), targets.repeat(3, 1)[:rows].clone())
    assert beside.captures == 2


def test_image_sizes_and_a_schedule() -> None:
    def make() -> Made:
        net, optimizer, _ = made(Images, lambda p: genesis.optim.SGD(p, lr=0.1, momentum=0.9))
        schedule = genesis.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

        def step(x: Any, labels: Any) -> float:
            optimizer.zero_grad()
            loss = net(x, labels)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            return loss.item()  # type: ignore[no-any-return]
        return net, optimizer, step
    beside = Beside(make)
    sizes = [(4, 16, 16), (3, 16, 16), (4, 20, 20), (4, 16, 24), (3, 28, 20)]
    for size in sizes:
        beside.same(*images(*size))
    captures = beside.captures
    for size in [(4, 36, 20), (4, 20, 32), (2, 44, 28), (5, 24, 16), (4, 16, 16), (3, 52, 20)]:
        beside.same(*images(*size))
    assert beside.captures == captures, genesis.explain(beside.compiled)


@pytest.mark.parametrize("optimizer", [genesis.optim.SGD, genesis.optim.Adam, genesis.optim.RMSprop,
                                       genesis.optim.Adagrad, genesis.optim.NAdam])
def test_gradients_that_stay_and_a_counter(optimizer: Any) -> None:
    def make() -> Made:
        net, chosen, _ = made(Rows, lambda p: optimizer(p, lr=0.01))
        counter = SimpleNamespace(steps=0)

        def step(x: Any) -> Any:
            chosen.zero_grad()
            loss = net(x)
            loss.backward()
            chosen.step()
            counter.steps += 1
            return loss, x.shape[0]
        return net, chosen, step
    beside = Beside(make)
    for rows in (7, 9, 12, 5, 31, 7, 9, 6):
        assert beside.same(ramp(rows, 4) / 20)[1][1] == rows
    assert beside.captures <= 4 and beside.compiled.hits >= 4


def test_a_step_that_branches_by_a_size() -> None:
    def make() -> Made:
        net, optimizer, _ = made(Rows, adamw)

        def step(x: Any) -> Any:
            loss = net(x) * (3 if x.shape[0] > 10 else 1) + x.shape[0]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss
        return net, optimizer, step
    beside = Beside(make)
    for rows in (3, 4, 12, 14, 5, 10, 11, 20, 2, 1, 7):
        beside.same(ramp(rows, 4) / 20)
    assert beside.captures <= 6


def test_running_means_of_evaluation_are_not_those_of_training() -> None:
    beside = Beside(lambda: made(Images, adamw))
    for at, size in enumerate([(4, 16, 16), (4, 20, 20), (4, 24, 24), (4, 28, 28), (4, 20, 20), (4, 36, 36)]):
        beside.net.train(at % 3 != 2)
        beside.own_net.train(at % 3 != 2)
        beside.same(*images(*size))


def test_what_changes_between_calls_is_the_next_call_s() -> None:
    beside = Beside(lambda: made(Rows, adamw))
    for at, rows in enumerate((7, 9, 12, 5, 31, 8, 6, 40)):
        for net, optimizer in ((beside.net, beside.optimizer), (beside.own_net, beside.own_optimizer)):
            if at == 3:
                optimizer.param_groups[0]["lr"] = 0.5
            if at == 4:
                net.layer.weight.data.mul_(0.5)
            if at == 5:
                net.layer.weight.grad = ramp(4, 4)
            if at == 6:
                net.layer.bias.requires_grad_(False)
        beside.same(ramp(rows, 4) / 20)


def numbered(does: Callable[..., Any], all_kept: list[Any]) -> Callable[[], Made]:
    """A step over rows with what else `does` does of the turn, given what it keeps, which is noted."""
    def make() -> Made:
        net, optimizer, _ = made(Rows, adamw)
        kept = SimpleNamespace(seen=0, rate=1.0, losses=[], last=None)
        all_kept.append(kept)

        def step(x: Any, turn: int) -> Any:
            loss = does(kept, net(x), x, turn)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.last = turn
            return loss.detach(), kept.seen, kept.rate
        return net, optimizer, step
    return make


def _index(kept: Any, loss: Any, x: Any, turn: int) -> Any:
    return loss / (turn + 1) + turn


def _rows_seen(kept: Any, loss: Any, x: Any, turn: int) -> Any:
    kept.seen += x.numel()
    return loss * (1 - 1 / kept.seen)


def _rate_that_falls(kept: Any, loss: Any, x: Any, turn: int) -> Any:
    kept.rate *= 0.9
    return loss * kept.rate


def _losses_in_a_list(kept: Any, loss: Any, x: Any, turn: int) -> Any:
    kept.losses.append(loss.detach())
    return loss


def _values_in_a_list(kept: Any, loss: Any, x: Any, turn: int) -> Any:
    kept.losses.append(turn)
    return loss


@pytest.mark.parametrize("does", [_index, _rows_seen, _rate_that_falls, _losses_in_a_list, _values_in_a_list])
@pytest.mark.parametrize("lengths", [(7,) * 14, (7, 9, 12, 5, 31, 8, 6, 7, 9, 40, 33, 7, 4, 3)])
def test_numbers_of_a_step_that_change(does: Callable[..., Any], lengths: tuple[int, ...]) -> None:
    kept: list[Any] = []
    beside = Beside(numbered(does, kept))
    for turn, rows in enumerate(lengths):
        beside.same(ramp(rows, 4) / 20, turn)
        assert values([vars(kept[0])]) == values([vars(kept[1])])
    assert beside.captures <= 6 and beside.compiled.hits >= 8, genesis.explain(beside.compiled)


def test_a_replay_of_a_number_may_follow_that_of_another_in_its_midst() -> None:
    """As where a signal handler calls the step with another number once a replay was chosen."""
    net, optimizer, step = numbered(_index, [])()
    own_net, own_optimizer, own = numbered(_index, [])()
    compiled, x = genesis.compile(own), ramp(7, 4) / 20
    for turn in range(6):
        step(x, turn)
        compiled(x, turn)
    assert counts(compiled)[1] >= 3

    first, second = compiled._candidates, [True]

    def between(key: Any, tensors: list[Any]) -> Any:
        for found in first(key, tensors):
            if second.pop() if second else False:
                compiled(x, 20)
            yield found
    compiled._candidates = between
    compiled(x, 6)
    del compiled._candidates
    step(x, 20)
    step(x, 6)
    assert trained(own_net, own_optimizer) == trained(net, optimizer)


# What a run on stand-ins leaves

def test_nothing_is_left_of_a_run_on_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    net, optimizer, step = made(GPT, adamw)
    compiled = genesis.compile(step)
    compiled(*tokens(7))
    seen: list[Any] = []
    made_before = symbolic_call.SymbolicCall.__init__

    def watched(self: Any, *args: Any) -> None:
        before = state_of(net, optimizer)
        made_before(self, *args)
        seen.append((before, state_of(net, optimizer)))
    monkeypatch.setattr(symbolic_call.SymbolicCall, "__init__", watched)
    compiled(*tokens(9))
    (before, after), = seen
    assert before == after


def state_of(net: Any, optimizer: Any) -> Any:
    """What a step changes, without computing it."""
    storages = [x.storage for p in net.parameters() for x in (p, *optimizer.state[p].values()) if hasattr(x, "storage")]
    return ([(id(s.cell), id(s._node) if s._node is not None and not s.settled else None, s.writes, s._queued, s.error)
             for s in storages], [id(p._grad) for p in net.parameters()],
            [optimizer.state[p]["step"] for p in net.parameters()], genesis.default_generator.__reduce__())


@pytest.mark.parametrize("each", [173, pytest.param(5, marks=pytest.mark.sweep)])
def test_an_exception_at_any_line_of_a_run_on_stand_ins_leaves_the_step(each: int) -> None:
    """Every such line of Genesis' and of the user's, each once."""
    lines, at = interrupted(-1), 0
    assert lines > 1000
    while (came := interrupted(at)) == at + 1:
        at += each
    assert came > lines - 50  # of a run to its end: what is kept from earlier ones saves lines


def interrupted(at: int) -> int:
    """Train with an exception at the `at`-th line that a run on stand-ins comes to; returns how many it came to."""
    beside = Beside(lambda: made(Rows, adamw))
    beside.same(ramp(7, 4) / 20)
    x = ramp(9, 4) / 20
    beside.plain(x)
    lines = stopped(lambda: beside.compiled(x), symbolic_call.SymbolicCall.__init__.__code__, at)
    assert trained(beside.own_net, beside.own_optimizer) == trained(beside.net, beside.optimizer)
    for rows in (9, 12, 5):
        beside.same(ramp(rows, 4) / 20)
    return lines


@pytest.mark.parametrize("each", [173, pytest.param(5, marks=pytest.mark.sweep)])
def test_a_signal_handler_waits_for_a_run_on_stand_ins(each: int) -> None:
    """At each of its lines comes a signal whose handler reads all that the step has written, and trains another net."""
    lines = looked_at(-1)
    assert lines > 1000
    for at in range(0, lines, each):
        looked_at(at)


def looked_at(at: int) -> int:
    """Train with a signal at the `at`-th line that a run on stand-ins comes to; returns how many it came to."""
    beside, seen = Beside(lambda: made(Rows, adamw)), []
    *_, step = made(Rows, adamw)

    def look(number: int, frame: Any) -> None:
        seen.append(trained(beside.own_net, beside.own_optimizer))
        with genesis.enable_grad():
            step(ramp(5, 4) / 20)
    before = signal.signal(signal.SIGUSR1, look)
    try:
        beside.same(ramp(7, 4) / 20)
        x = ramp(9, 4) / 20
        beside.plain(x)
        lines = stopped(lambda: beside.compiled(x), symbolic_call.SymbolicCall.__init__.__code__, at,
                        lambda: signal.raise_signal(signal.SIGUSR1))
        expected = trained(beside.net, beside.optimizer)
        assert seen == [expected] * (0 <= at < lines)
        for rows in (9, 12, 5):
            beside.same(ramp(rows, 4) / 20)
        assert beside.captures == 2
    finally:
        signal.signal(signal.SIGUSR1, before)
    return lines


OTHER = nn.Parameter(ramp(4))
SECOND = genesis.optim.SGD([OTHER], lr=1.0)


@pytest.mark.parametrize("does", [
    lambda: OTHER.data.add_(1), lambda: OTHER.data[:2].mul_(2), lambda: setattr(OTHER, "grad", ramp(4)),
    lambda: OTHER.sum().backward(), lambda: SECOND.step(), lambda: SECOND.zero_grad()])
def test_what_is_written_on_stand_ins_alone_is_not_written(does: Callable[[], Any]) -> None:
    """A C function that takes no stand-in raises there, and the code goes on otherwise."""
    def make() -> Made:
        net, optimizer, _ = made(Rows, adamw)

        def step(x: Any) -> Any:
            try:
                int.bit_count(x.shape[0])
            except TypeError:
                does()
            loss = net(x) + (OTHER.detach() * 0).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss
        return net, optimizer, step
    OTHER.grad = None
    OTHER.data.copy_(ramp(4))
    if does.__code__.co_names[-1] in ("step", "zero_grad"):
        OTHER.grad = ramp(4)
    before, gradient = (values(OTHER), OTHER._version), OTHER.grad
    beside = Beside(make)
    for rows in (7, 9, 12):
        beside.same(ramp(rows, 4) / 20)
    assert (values(OTHER), OTHER._version) == before and OTHER.grad is gradient


# What is captured at each size

def refused(make: Callable[[], Made], reason: str) -> None:
    """Each size is captured, and this is why."""
    beside = Beside(make)
    for rows in (7, 9, 12, 7):
        beside.same(ramp(rows, 4) / 20)
    assert beside.captures == 3 and reason in str(genesis.explain(beside.compiled))


def test_another_thread_may_read_what_a_step_writes_to() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        refused(lambda: made(Rows, adamw), "another thread")
    finally:
        over.set()
        thread.join()


def test_a_handler_that_cannot_be_held_back_may_read_what_a_step_writes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a thread of C's, which Python does not count: there no handler can be set, and the main thread calls it."""
    monkeypatch.setattr(symbolic_call, "undisturbed", call)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        refused(lambda: made(Rows, adamw), "a signal handler")
    finally:
        signal.signal(signal.SIGUSR1, before)


class Observer:
    """What is told of every backward, and does nothing."""

    accumulated = staticmethod(len)


def test_others_are_told_of_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer()
    monkeypatch.setattr(gradients, "observers", [weakref.ref(observer)])
    monkeypatch.setattr(trial, "observers", gradients.observers)
    refused(lambda: made(Rows, adamw), "others are told")


def test_a_step_that_writes_to_its_argument() -> None:
    def make() -> Made:
        net, optimizer, step = made(Rows, adamw)

        def writing(x: Any) -> Any:
            x.mul_(1)
            return step(x)
        return net, optimizer, writing
    refused(make, "it writes to an argument")
