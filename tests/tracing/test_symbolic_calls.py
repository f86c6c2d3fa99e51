"""Calls that differ in sizes and numbers alone: replayed from the second on, and never wrongly."""

from __future__ import annotations

import builtins
import enum
import functools
import math
import operator
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from calls import Pair, counts, ramp, values

import genesis
import genesis.nn.functional as F
from genesis import nn
from genesis.frontend import traced_number
from genesis.frontend.traced_number import evaluated
from genesis.ir import numbers
from genesis.ir.size_trace import Trace

LENGTHS = (7, 9, 12, 5, 31, 8, 2, 3, 4, 1, 0, 16, 7, 6)
"""Sizes that meet a condition or not, equal another dimension, and are 0 and 1."""


# What is replayed

class Attention(nn.Module):
    """Attention over a cache that grows by `cat`, held or passed."""

    def __init__(self, held: bool):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.held, self.keys, self.values = held, None, None

    def forward(self, x: Any, keys: Any = None, held: Any = None) -> Any:
        batch, length, width = x.shape
        q, k, v = (m(x).view(batch, length, 2, 8).transpose(1, 2) for m in (self.q, self.k, self.v))
        if self.held:
            keys, held = self.keys, self.values
        if keys is not None:
            k, v = genesis.cat([keys, k], 2), genesis.cat([held, v], 2)
        if self.held:
            self.keys, self.values = k, v
        out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        return out if self.held else (out, k, v)


def test_a_cache_on_the_module_that_grows_by_cat() -> None:
    plain, ours = Attention(True), Attention(True)
    ours.load_state_dict(plain.state_dict())
    compiled = genesis.compile(ours)
    with genesis.no_grad():
        for sequence in range(2):
            plain.keys = plain.values = ours.keys = ours.values = None
            for i in range(40):
                x = ramp(1, 1, 16, start=i + sequence / 2) / 100
                assert values(compiled(x)) == values(plain(x))
                assert values([ours.keys, ours.values]) == values([plain.keys, plain.values])
    captures, hits = counts(compiled)
    assert captures <= 5 and captures + hits == 80


def test_a_cache_in_lists_that_grows_in_inference_mode() -> None:
    def made() -> Any:
        kept: list[Any] = []

        def step(x: Any) -> Any:
            with genesis.inference_mode():
                keys = x * 2
                if kept:
                    assert kept[0].is_inference()
                    keys = kept[0] = genesis.cat((kept[0], keys), 1)
                else:
                    kept.append(keys)
                return (x @ keys.mT).softmax(-1) @ keys
        return step, kept
    (plain, _), (ours, kept) = made(), made()
    compiled = genesis.compile(ours)
    for i in range(20):
        x = ramp(2, 1, 4, start=i) / 30
        assert values(compiled(x)) == values(plain(x))
        assert kept[0].is_inference()
    captures, hits = counts(compiled)
    assert captures <= 2 and hits >= 17


@pytest.mark.parametrize(("factor", "mode"), [(2, "nearest"), (1.5, "nearest"), (0.5, "bilinear"), (2.0, "bicubic")])
def test_images_of_all_sizes_that_are_scaled(factor: float, mode: str) -> None:
    def gradient(x: Any) -> Any:
        x = x.clone().requires_grad_()
        y = F.interpolate(x, scale_factor=factor, mode=mode)
        return (*genesis.autograd.grad((y * y).sum(), x), y.shape)
    pair = Pair(gradient)
    for i, (height, width) in enumerate([(5, 8), (9, 7), (7, 14), (16, 6), (11, 11), (4, 19), (18, 15), (2, 3)]):
        pair.same(ramp(1, 2, height, width, start=i) / 40)
    captures, hits = counts(pair.compiled)
    assert captures <= 2 and captures + hits == 8


def test_a_cache_that_is_passed_and_returned() -> None:
    net = Attention(False)
    compiled = genesis.compile(lambda *x: net(*x))
    ours = plain = (ramp(1, 2, 3, 8) / 50, ramp(1, 2, 3, 8) / 60)
    with genesis.no_grad():
        for i in range(40):
            x = ramp(1, 1, 16, start=i) / 100
            (a, *ours), (b, *plain) = compiled(x, *ours), net(x, *plain)
            assert values([a, *ours]) == values([b, *plain])
    captures, hits = counts(compiled)
    assert captures <= 4 and captures + hits == 40


class Tokens(nn.Module):
    """A small model of tokens, with what such models do with sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(20, 16), nn.Embedding(64, 16)
        self.norm, self.attention, self.out = nn.LayerNorm(16), Attention(False), nn.Linear(16, 20)

    def forward(self, ids: Any) -> Any:
        x = self.embedding(ids) + self.positions(genesis.arange(ids.shape[1]))
        scores = (x @ x.transpose(-1, -2)) / ids.size(-1) ** 0.5
        mask = genesis.ones(ids.shape[1], ids.shape[1]).tril() == 0
        x = x + scores.masked_fill(mask, float("-inf")).softmax(-1) @ x
        return self.out(x + self.attention(self.norm(x))[0])


@pytest.mark.parametrize("tracked", [False, True])
def test_random_lengths(tracked: bool) -> None:
    net, draw = Tokens(), random.Random(0)
    data = genesis.tensor(np.random.default_rng(0).integers(0, 20, (2, 64)))
    compiled = genesis.compile(lambda ids: net(ids))
    turns = 15 if tracked else 30
    for _ in range(turns):
        ids = data[:, :draw.randint(1, 60)].clone()
        with genesis.set_grad_enabled(tracked):
            ours, plain = compiled(ids), net(ids)
        assert values(ours) == values(plain)
        if tracked:
            got = [genesis.autograd.grad(y.square().sum(), list(net.parameters()), allow_unused=True)
                   for y in (ours, plain)]
            assert values([x for x in got[0] if x is not None]) == values([x for x in got[1] if x is not None])
    captures, hits = counts(compiled)
    assert captures <= 5 and captures + hits == turns


def test_a_loss_over_random_lengths_and_batches() -> None:
    net, draw = Tokens(), random.Random(1)
    data = genesis.tensor(np.random.default_rng(1).integers(0, 20, (8, 64)))
    pair = Pair(lambda ids: F.cross_entropy(net(ids[:, :-1]).reshape(-1, 20), ids[:, 1:].reshape(-1)))
    for _ in range(30):
        pair.same(data[:draw.randint(2, 8), :draw.randint(3, 60)].clone())
    assert counts(pair.compiled)[0] <= 8


def test_images_of_all_sizes() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),
                        nn.Flatten())
    pair = Pair(lambda x: net(x))
    for size in (12, 20, 13, 31, 8, 25):
        pair.same(ramp(2, 3, size, size) / 1000)
    assert counts(pair.compiled) == (2, 4)


@pytest.mark.parametrize("function", [
    lambda x, i: x * i + 1,
    lambda x, i: (x - i * 0.5) / (i + 1),
    lambda x, i: x.add(x, alpha=i),
    lambda x, i: (x * (2 ** i), i + 1),
    lambda x, i: genesis.where(x > i, x, i),
    lambda x, i: x.clamp(max=i) + max(i, -5),
])
def test_a_number_that_changes_at_each_call(function: Callable[..., Any]) -> None:
    pair = Pair(function)
    for i in range(2, 12):
        pair.same(ramp(3), i)
    assert counts(pair.compiled) == (2, 8), pair.refused
    for lr in (0.1, 0.05, 0.025, 0.0125):
        pair.same(ramp(3), lr)
    assert counts(pair.compiled)[0] == 4


# Counter-examples: what a replay for other sizes must not miss

def last_one(x: Any) -> Any:
    try:
        return x * [10, 20, 30, 40, 50, 60, 70, 80][x.shape[0]]
    except IndexError:
        return x


@pytest.mark.parametrize("function", [
    lambda x: x * 2 if x.shape[0] > 8 else x * 3,
    lambda x: x + 1 if x.shape[0] == 7 else x - 1,
    lambda x: x + 1 if x.shape[0] % 4 == 0 else x - 1,
    lambda x: x + 1 if x.shape[0] in (8, 31) else x - 1,
    lambda x: x + {5: 100, 8: 200}.get(x.shape[0], 300),
    lambda x: x * 2 if isinstance(x.shape[0], int) and x.shape[0] < 4 else x * 3,
    lambda x: x * 2 if type(x.shape[0]) is int and x.shape[0] < 4 else x * 3,
    lambda x: x * 2 if x.size(0) & 1 else x * 3,
    lambda x: x * 2 if x.numel() > 40 else x * 3,
    lambda x: x * 2 if x.stride(0) == x.shape[1] and len(x) > 5 else x * 3,
    lambda x: (x, f"{x.shape[0]} rows"),
    lambda x: (x.sum(), x.shape, x.shape[0] * 2 - 1, x.numel() / 4),
    lambda x: sum([x[i] * i for i in range(x.shape[0])], genesis.zeros(4)),
    lambda x: sum(row for row in x) if x.shape[0] else x,
    lambda x: x / max(x.shape[0], 6) + min(x.shape[0], 9) ** 0.5,
    lambda x: x[-1] if x.shape[0] else x,
    lambda x: x[:6].sum(0) + x[2:].sum(0),
    lambda x: x[x.shape[0] // 2:],
    lambda x: x[:, :, None] * x[:, None, :],
    lambda x: genesis.cat([x, genesis.zeros(16 - x.shape[0], 4)]) if x.shape[0] < 16 else x[:16],
    lambda x: x @ x.t() if x.shape[0] > 0 else x,
    lambda x: x + genesis.ones(4, 4)[:x.shape[0]] if 0 < x.shape[0] <= 4 else x,
    lambda x: x.reshape(-1, 2).sum(0),
    lambda x: x.view(x.shape[0] * 2, 2).t(),
    lambda x: x.flatten().unsqueeze(0).expand(3, -1),
    lambda x: x.split(4)[0] if x.shape[0] else x,
    lambda x: genesis.arange(x.shape[0]) + x.sum(1).long(),
    lambda x: F.pad(x, (0, 0, 1, x.shape[0])),
    lambda x: genesis.full((x.shape[0],), float(x.shape[0])),
    lambda x: [x * 1, x.t(), x[:, 1]],
    last_one,
], ids=range(31))
def test_what_depends_on_the_size(function: Callable[..., Any]) -> None:
    pair = Pair(function)
    for _ in range(2):
        for length in LENGTHS:
            pair.same(ramp(length, 4))


@pytest.mark.parametrize("function", [
    lambda x, i: x * 0.5 if i < 4 else x * i,
    lambda x, i: x * i if i % 3 else x,
    lambda x, i: x + {2: 5.0}.get(i, 1.0),
    lambda x, i: x.sum(i % 2),
    lambda x, i: x[:, i % 3],
    lambda x, i: x ** i,
    lambda x, i: (x, i, -i, i / 2, str(i), bool(i)),
    lambda x, i: x.roll(i, 0),
    lambda x, i: genesis.full((3,), i),
    lambda x, i: x * math_of(i),
    lambda x, i: x.repeat(i + 2, 1),
    lambda x, i: x * [3, 4, 5][i] if -3 <= i < 3 else x / (i or 1),
    lambda x, i: x * (i if type(i) is int else 2),
    lambda x, i: x.long() // (i or 7),
], ids=range(14))
def test_what_depends_on_the_number(function: Callable[..., Any]) -> None:
    pair = Pair(function)
    for _ in range(2):
        for i in (5, 4, 3, 7, 0, -1, 2, 1, 6, 5):
            pair.same(ramp(2, 3), i)
    for value in (0.5, 0.25, -0.0, 0.0, 1.0, float("inf"), 3.5):
        try:
            expected = values(function(ramp(2, 3), value))
        except (TypeError, RuntimeError, IndexError, OverflowError) as error:
            with pytest.raises(type(error)):
                pair.compiled(ramp(2, 3), value)
        else:
            assert repr(values(pair.compiled(ramp(2, 3), value))) == repr(expected)


def math_of(i: float) -> float:
    """What asks for the number in C."""
    return math.sqrt(abs(i)) + math.floor(i)


def raised(function: Callable[[], Any]) -> Any:
    """What the function gives, 7 where it cannot be computed."""
    try:
        return function()
    except ArithmeticError:
        return 7


@pytest.mark.parametrize("function", [
    lambda x, i: x * raised(lambda: 1 / i),
    lambda x, i: x + (raised(lambda: 7 % i) and 3),
    lambda x, i: x * raised(lambda: i ** -1),
    lambda x, i: x if raised(lambda: 10.0 ** i) == 7 else x * 2,
    lambda x, i: x * raised(lambda: 5 / (x.shape[0] - 5)),
    lambda x, i: x * raised(lambda: 7 // (x.shape[0] - 5)),
    lambda x, i: x * raised(lambda: x.shape[0] % (x.shape[0] - 5)),
    lambda x, i: x.long() * (2 ** min(i, 9)),
], ids=range(8))
def test_a_formula_that_is_an_error_or_no_int_for_some_numbers(function: Callable[..., Any]) -> None:
    """Another number, or none, whether the code uses it or only catches what it raises."""
    for first in ((7, 9, 5), (5, 7, 9)):  # the call that the template is made beside raises, or one that it replays
        pair = Pair(function)
        for length in (*first, 12, 2, 5, 8, 3, 5):
            pair.same(ramp(length, 2), 4)
        for number in (4, 5, 3, 0, -1, 2, 400, 1, 0, -3):
            pair.same(ramp(7, 2), number)


def test_a_formula_is_not_computed_where_the_code_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """`2 ** i` of a large i does not end: what the code asks before it is asked before it in a replay, too."""
    pair, power = Pair(lambda x, i: x * 2 ** i if i < 9 else x), operator.pow

    def small_power(a: float, b: float) -> Any:
        assert b < 9
        return power(a, b)
    for name in ("OPERATIONS", "_DONE"):
        monkeypatch.setitem(getattr(traced_number, name), "**", small_power)
    for i in (3, 4, 5, 2**40, 6, 10):
        pair.same(ramp(3), i)
    assert pair.compiled.hits >= 2


class Level(enum.IntEnum):
    LOW, HIGH = 3, 8


CLASS_OF = type
EIGHT = 8


@pytest.mark.parametrize("function", [
    lambda x, i: x * 2 if i == Level.HIGH else x,
    lambda x, i: x * 2 if Level.LOW < i < Level.HIGH else x,
    lambda x, i: x * (Level.HIGH + i),
    lambda x, i: x * 2 if i == (8 + 0j) else x,
    lambda x, i: x * 2 if CLASS_OF(i) is int and i > 6 else x,
    lambda x, i: x * 2 if builtins.type(x.shape[0]) is int and i > 6 else x,
    lambda x, i, kind=type: x * 2 if kind(i) is int and i > 6 else x,
    lambda x, i: x * 2 if i is EIGHT else x,
    lambda x, i: x * 2 if i is operator.add(4, 4) else x,
    lambda x, i: x * 2 if x.shape[0] is not i else x,
    lambda x, i: x * {i: 2.0}.get(8, 1.0),
], ids=range(11))
def test_what_asks_for_a_number_without_its_methods(function: Callable[..., Any]) -> None:
    pair = Pair(function)
    for number in (4, 5, 6, 9, 8, 3, 7, 2, 8, 4):
        pair.same(ramp(6, 2), number)
    for length in (4, 5, 7, 8, 9, 8, 3):
        pair.same(ramp(length, 2), 8)


def test_a_dictionary_that_has_another_number_as_a_key() -> None:
    pair = Pair(lambda x, table: x * table.get(5, 1.0))
    for key in (3, 4, 6, 5, 7, 5):
        pair.same(ramp(4), {key: float(key)})


def test_another_thread_that_reads_a_tensor_of_the_module() -> None:
    """It finds a tensor with values there at any time, so no stand-in takes its place."""
    plain, ours = Attention(True), Attention(True)
    ours.load_state_dict(plain.state_dict())
    compiled, done, stand_ins = genesis.compile(ours), threading.Event(), []

    def watch() -> None:
        while not done.wait(1e-5):
            keys = ours.keys
            if keys is not None and type(keys.spec.shape[2]) is not int:
                stand_ins.append(keys)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        with genesis.no_grad():
            for i in range(12):
                x = ramp(1, 1, 16, start=i) / 100
                assert values(compiled(x)) == values(plain(x))
    finally:
        done.set()
        thread.join()
    assert not stand_ins and counts(compiled)[1] == 0


@pytest.mark.parametrize("place", ["list", "attribute"])
def test_what_is_written_was_there_in_the_captured_call(place: str) -> None:
    """Which calls find another value there and must write it."""
    kept, net = [0], nn.Linear(2, 2)

    def note(x: Any, i: int, j: int) -> Any:
        if place == "list":
            kept[0] = i
        else:
            net.last = i
        return x * len(str(j))
    net.last = 0
    compiled = genesis.compile(note)
    for i, j in ((12, 5), (6, 5), (7, 5), (7, 1), (9, 1), (9, 10), (4, 10), (4, 1), (3, 1), (8, 10)):
        assert values(compiled(ramp(12), i, j)) == values(ramp(12) * len(str(j)))
        assert (kept[0] if place == "list" else net.last) == i


def test_a_number_that_no_dtype_holds_is_an_error_after_what_the_function_did_before() -> None:
    found: dict[str, float] = {"last": 0}

    def step(x: Any, i: int) -> Any:
        found["last"] = i * 1.5
        return x * (i ** 3)
    compiled = genesis.compile(step)
    for i in (3, 4, 5, 2**40, 6, -2**40, 7):
        if abs(i) > 2**30:
            with pytest.raises(OverflowError):
                compiled(ramp(3), i)
        else:
            assert values(compiled(ramp(3), i)) == values(ramp(3) * i**3)
        assert found["last"] == i * 1.5


def test_a_size_that_is_no_int_is_an_error_on_stand_ins_too() -> None:
    def padded(x: Any) -> Any:
        try:
            return F.pad(x, (0, 0, 0.5, 1))  # type: ignore[arg-type]
        except TypeError:
            return x * 2
    pair = Pair(padded)
    for length in (8, 7, 5, 9, 6):
        pair.same(ramp(length, 4))


def test_two_sizes_that_are_equal_by_chance() -> None:
    def mixed(x: Any, y: Any) -> Any:
        return x.sum() * 2 if x.shape[0] == y.shape[0] else y.sum() + x.shape[0]
    pair = Pair(mixed)
    for a, b in ((4, 4), (5, 5), (6, 6), (7, 5), (5, 7), (8, 8), (9, 3), (3, 9), (1, 1), (1, 2), (2, 1)):
        pair.same(ramp(a, 2), ramp(b, 2))
        pair.same(ramp(a, 2), ramp(b, 2))


def test_a_size_that_equals_a_parameters() -> None:
    weight = ramp(6)
    pair = Pair(lambda x: x * weight if x.shape[0] in (1, 6) else x * 2)
    for length in (4, 5, 6, 1, 7, 6, 1):
        pair.same(ramp(length))
    broadcast = Pair(lambda x: x[:, None] + weight)
    for length in (4, 5, 6, 1, 7, 6, 1):
        broadcast.same(ramp(length))


def test_sizes_that_do_not_fit_raise_as_before() -> None:
    weight = ramp(6, 2)
    compiled = genesis.compile(lambda x, y: x + y)
    for length in (3, 4, 5, 6):
        compiled(ramp(length), ramp(length))
    with pytest.raises(RuntimeError, match=r"size|shape|broadcast"):
        compiled(ramp(4), ramp(5))
    product = genesis.compile(lambda x: x @ weight)
    for rows in (3, 4, 5):
        product(ramp(rows, 6))
    with pytest.raises(RuntimeError):
        product(ramp(3, 5))


def test_arguments_that_are_one_tensor_or_share_memory() -> None:
    kept = ramp(5)
    pair = Pair(lambda x, y: x * 2 + y + kept.sum())
    for length in (4, 6, 5, 7):
        x = ramp(length)
        pair.same(x, x)
        pair.same(x, ramp(length, start=3))
        pair.same(x, x.view(length))
    pair.same(kept, ramp(5))
    pair.same(kept, kept)


def test_the_result_is_the_argument_or_a_view_of_a_result() -> None:
    compiled = genesis.compile(lambda x: (x, (y := x * 2), y.t(), y[1:]))
    for rows in (4, 5, 6, 7):
        x = ramp(rows, 3)
        same, y, turned, rest = compiled(x)
        assert same is x and turned.shape == (3, rows) and rest.shape == (rows - 1, 3)
        y.fill_(5)
        assert turned.tolist() == [[5.0] * rows] * 3 and rest.tolist() == [[5.0] * 3] * (rows - 1)


def test_the_state_around_a_call_is_guarded_as_before() -> None:
    scale = [2.0]
    pair = Pair(lambda x: x * scale[0])
    for length in (3, 4, 5, 6):
        pair.same(ramp(length))
    assert counts(pair.compiled) == (2, 2)
    scale[0] = 7.0
    for length in (5, 6, 7, 8):
        pair.same(ramp(length))


def test_what_the_user_keeps_gets_no_stand_in() -> None:
    memo: dict[Any, Any] = {}
    seen: list[Any] = []

    @functools.lru_cache
    def row(n: int) -> Any:
        return genesis.ones(n)

    def step(x: Any) -> Any:
        if x.shape[0] not in memo:
            memo[x.shape[0]] = x.shape[0] * 2
        return x * memo[x.shape[0]]

    def cached(x: Any) -> Any:
        return x + row(x.shape[0])

    def noted(x: Any) -> Any:
        seen.append(x.shape[0])
        return x * 2
    for function in (step, cached, noted):
        pair = Pair(function)
        for _ in range(2):
            for length in LENGTHS:
                pair.same(ramp(length))
    assert all(type(x) is int for x in (*memo, *memo.values(), *seen))
    assert list(memo) == list(dict.fromkeys(LENGTHS))
    assert row.cache_info().currsize == len(set(LENGTHS))
    genesis.eval(genesis.ones(3) * 2)


def test_random_numbers_are_drawn_as_before() -> None:
    def noisy(x: Any) -> Any:
        return F.dropout(x, 0.5) + genesis.rand(x.shape[0])
    compiled = genesis.compile(noisy)
    results = []
    for function in (compiled, noisy):
        genesis.manual_seed(3)
        results.append([values(function(ramp(length))) for length in (4, 5, 6, 7, 8, 5, 6)])
    assert results[0] == results[1]


def test_the_order_of_sizes_changes_no_bit() -> None:
    net = Tokens()
    data = genesis.tensor(np.random.default_rng(0).integers(0, 20, (2, 40)))
    found = []
    for lengths in ((5, 9, 17, 33), (33, 17, 9, 5), (17, 5, 33, 9)):
        compiled = genesis.compile(lambda ids: net(ids))
        found.append({length: values(compiled(data[:, :length].clone())) for length in lengths})
    assert found[0] == found[1] == found[2]


def test_gradients_flow_through_replays_of_other_sizes() -> None:
    def run(function: Callable[..., Any], length: int) -> Any:
        weight = ramp(3).requires_grad_()
        y = function(ramp(length, 3), weight)
        y.square().sum().backward()
        return values([y.detach(), weight.grad])
    compiled = genesis.compile(lambda x, w: (x * w).cumsum(0) / x.shape[0])
    for length in (4, 5, 6, 7, 8):
        assert run(compiled, length) == run(lambda x, w: (x * w).cumsum(0) / x.shape[0], length)
    assert counts(compiled) == (2, 3)


def test_explain_says_what_serves_other_sizes_and_why_nothing_does() -> None:
    def writes(x: Any) -> Any:
        x.add_(1)
        return x * 2
    pure, writing = genesis.compile(lambda x: x * 2), genesis.compile(writes)
    for length in (4, 5, 6):
        pure(ramp(length))
        writing(ramp(length))
    explained = genesis.explain(pure)
    assert "other sizes and numbers are replayed in 1 way" in explained and not explained.single
    explained = genesis.explain(writing)
    assert explained.captures == 3 and "writes to an argument" in explained.single[0]


# Views as arguments

def test_slices_of_data_of_all_lengths() -> None:
    net, draw = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8)), random.Random(0)
    data = genesis.tensor(np.random.default_rng(0).integers(0, 20, (4, 64)))
    pair = Pair(lambda ids: net(ids).mean(1))
    for _ in range(30):
        row = draw.randint(0, 3)
        pair.same(data[row:row + 1, draw.randint(0, 3):draw.randint(10, 64)])
    captures, hits = counts(pair.compiled)
    assert captures <= 4 and hits >= 24


@pytest.mark.parametrize("does", [
    lambda x: x.add_(1),
    lambda x: x[:1],
    lambda x: KEPT.append(x),
    lambda x: x * x.stride(0),
], ids=["writes", "returns", "keeps", "asks how it lies"])
@pytest.mark.parametrize("first", [4, 12])
def test_slices_that_are_more_than_read_for_some_sizes(does: Callable[..., Any], first: int) -> None:
    def function(x: Any) -> Any:
        if x.shape[0] > 8:
            return does(x)
        return x * 2
    ours, plain = ramp(20, 2), ramp(20, 2)
    compiled = genesis.compile(function)
    for length in (first, 5, 6, 7, 3, 12, 13, 4, 5, 14, 9, 6):
        KEPT.clear()
        a = compiled(ours.t()[0][:length])
        kept = [x.tolist() for x in KEPT]
        KEPT.clear()
        b = function(plain.t()[0][:length])
        assert values(a) == values(b) and kept == [x.tolist() for x in KEPT]
        if isinstance(a, genesis.Tensor):
            a.mul_(3)
            b.mul_(3)
        assert ours.tolist() == plain.tolist()


def test_a_slice_without_elements_that_the_function_raises_for() -> None:
    compiled, data = genesis.compile(lambda x: x.view(x.shape[0], -1) * 2), ramp(6, 3)
    for length in (2, 3, 4, 2, 3):
        assert values(compiled(data[1:1 + length])) == values(data[1:1 + length] * 2)
    with pytest.raises(RuntimeError, match="view"):
        compiled(data[1:1])


KEPT: list[Any] = []


def test_a_fraction_of_a_size_is_an_operand_if_it_has_every_bit() -> None:
    """A size multiplies out and adds in its own order: of fractions only one is what Python's operations give."""
    trace = traced_number.NumberTrace(Trace(True, n=7))
    n = trace.sizes.symbol("n")
    with trace:
        alone = numbers.number(n / (n - 1) * 0.1)
        assert [evaluated(alone.attrs[0], {"n": size}) for size in (7, 11, 1000)] == [
            0.1 * (size / (size - 1)) for size in (7, 11, 1000)]
        assert evaluated(numbers.number(n * n + 1).attrs[0], {"n": 9}) == 82
        for several in (n / (n - 1) + n / (n - 2), (n * 0.1) / (n - 1), n * 0.1 + 0.3):
            with pytest.raises(TypeError, match="SymInt"):
                numbers.number(several)
