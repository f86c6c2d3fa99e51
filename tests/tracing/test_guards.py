"""What a function reads besides its arguments: a replay never uses a value that has changed since."""

from __future__ import annotations

import abc
import argparse
import collections
import dataclasses
import enum
import functools
import itertools
import os
import random
import re
import types
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pytest
from calls import Pair, ramp

import genesis
from genesis.checkpointing import CheckpointManager

FACTOR = 2.0
SETTINGS = {"scale": 2.0, "inner": {"depth": [1, 2]}}
TABLE = [1.0, 2.0]
WEIGHTS = [ramp(2), ramp(2, start=3)]
ARRAY = np.ones(2, np.float32)
LONG = np.ones(2000, np.float32)
config = types.ModuleType("config_of_this_test")
config.scale = 2.0  # type: ignore[attr-defined]


class Options:
    scale = 2.0
    table = [1.0, 2.0]

    def __init__(self) -> None:
        self.bias = 1.0

    @property
    def shifted(self) -> float:
        return self.bias + 10

    def apply(self, x: Any) -> Any:
        return x * self.scale + self.bias

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x * cls.scale

    @staticmethod
    def of_nobody(x: Any, power: float = 2.0) -> Any:
        return x ** power


class Slots:
    __slots__ = ("bias", "other")

    def __init__(self) -> None:
        self.bias = 1.0


@dataclasses.dataclass
class Inner:
    rate: float = 0.5
    sizes: tuple = (1, 2)


@dataclasses.dataclass
class Config:
    inner: Inner = dataclasses.field(default_factory=Inner)
    name: str = "a"


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def helper(x: Any, power: int = 2) -> Any:
    return x ** power


def check(function: Any, change: Any, undo: Any = None, *, replayed: bool = True) -> Pair:
    """Replayed before the change and after it has been seen; right in between."""
    pair = Pair(function)
    x = ramp(2)
    if replayed:
        pair.settle(x)
    before = pair.same(x)
    change()
    try:
        after = pair.same(x)
        assert before != after, "the test must change the result"
        if replayed:
            pair.settle(x)
        assert pair.same(x) == after
    finally:
        if undo is not None:
            undo()
    pair.same(x)
    if not replayed:
        assert pair.compiled.hits == 0 and pair.refused
    return pair


def test_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    here = globals()
    check(lambda x: x * FACTOR, lambda: monkeypatch.setitem(here, "FACTOR", 3.0), monkeypatch.undo)
    check(lambda x: helper(x) + 0, lambda: monkeypatch.setitem(here, "helper", lambda x: x + 1), monkeypatch.undo)
    check(lambda x: helper(x), lambda: monkeypatch.setattr(helper, "__defaults__", (3,)), monkeypatch.undo)
    check(lambda x: x * len(TABLE), lambda: TABLE.append(1.0), TABLE.pop)
    check(lambda x: x * TABLE[1], lambda: TABLE.__setitem__(1, 7.0))
    check(lambda x: x * SETTINGS["scale"], lambda: monkeypatch.setitem(SETTINGS, "scale", 7.0), monkeypatch.undo)
    depth = SETTINGS["inner"]["depth"]  # type: ignore[index]
    check(lambda x: x * SETTINGS["inner"]["depth"][0], lambda: depth.__setitem__(0, 7))
    check(lambda x: x * len(list(SETTINGS)), lambda: monkeypatch.setitem(SETTINGS, "new", 7), monkeypatch.undo)
    check(lambda x: (x, list(SETTINGS)), lambda: SETTINGS.update(scale=SETTINGS.pop("scale")))


def test_a_global_that_shadows_a_builtin() -> None:
    check(lambda x: x * max(1, 2), lambda: globals().__setitem__("max", min), lambda: globals().pop("max"))


def test_attributes_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    check(lambda x: x * config.scale, lambda: monkeypatch.setattr(config, "scale", 3.0), monkeypatch.undo)
    check(lambda x: (lambda c: x * c.scale)(config), lambda: setattr(config, "scale", 5.0))
    check(lambda x: x * hasattr(config, "extra"), lambda: setattr(config, "extra", 1), lambda: delattr(config, "extra"))
    check(lambda x: genesis.nn.functional.relu(x - 1.5),
          lambda: monkeypatch.setattr(genesis.nn.functional, "relu", lambda x: x), monkeypatch.undo)


def test_globals_of_library_types() -> None:
    name = "GENESIS_TEST_VALUE"
    change, undo = lambda: os.environ.update({name: "ab"}), lambda: os.environ.pop(name)
    check(lambda x: x * float(LONG[0]), lambda: LONG.fill(3), replayed=False)
    check(lambda x: x * len(os.environ.get(name, "")), change, undo, replayed=False)
    check(lambda x: x * len(os.getenv(name, "")), change, undo, replayed=False)


def test_small_arrays_of_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the offsets of embeddings that lie in one table. They are compared by content: who writes to one is
    not told, and of memory that another array shows nothing is."""
    class Columns:
        def __init__(self) -> None:
            self.offsets, self.scale = np.array([0, 3]), np.float32(0.5)
            self.whole = np.arange(4.0)
            self.part = self.whole[1:3]
    columns = Columns()
    check(lambda x: x * float(ARRAY[0]), lambda: ARRAY.fill(3), lambda: ARRAY.fill(1))
    check(lambda x: x + x.new_tensor(columns.offsets), lambda: columns.offsets.__setitem__(1, 7))
    check(lambda x: x + x.new_tensor(columns.offsets), lambda: setattr(columns, "offsets", np.array([4, 2])))
    check(lambda x: x * columns.scale, lambda: setattr(columns, "scale", np.float32(0.25)))
    check(lambda x: x + x.new_tensor(columns.part), lambda: columns.whole.__setitem__(2, 9.0))
    check(lambda x: x * len(columns.offsets), lambda: setattr(columns, "offsets", np.array([[4, 2, 1]] * 3)))


def test_an_array_of_numpys_that_the_function_writes_to() -> None:
    counts, x = np.zeros(2), ramp(2)

    def counting(x: Any) -> Any:
        counts[0] += 1
        return x + x.new_tensor(counts)
    compiled = genesis.compile(counting)
    assert [compiled(x)[0].item() for _ in range(4)] == [2.0, 3.0, 4.0, 5.0]
    assert compiled.hits == 0


def test_tensors_in_a_list() -> None:
    check(lambda x: x + WEIGHTS[0], lambda: WEIGHTS.__setitem__(0, ramp(2, start=9)))
    check(lambda x: x + WEIGHTS[0], lambda: WEIGHTS[0].add_(1))
    check(lambda x: x + WEIGHTS[0], lambda: setattr(WEIGHTS[0], "data", ramp(2, start=5)))
    check(lambda x: (x + WEIGHTS[0]).requires_grad and 1, lambda: WEIGHTS[0].requires_grad_(),
          lambda: WEIGHTS[0].requires_grad_(False))


def test_a_closure_s_variables() -> None:
    scale, items, offset = 2.0, [1.0], 0.0

    def change(value: float) -> None:
        nonlocal scale
        scale = value
    check(lambda x: x * scale, lambda: change(3.0))
    check(lambda x: x + items[0], lambda: items.__setitem__(0, 5.0))
    check(lambda x: x + sum(items), lambda: items.append(5.0))
    inner = lambda x: x + offset  # noqa: E731
    pair = Pair(lambda x: inner(x))
    pair.settle(ramp(2))
    offset = 4.0
    assert not pair.replays(ramp(2))
    pair.settle(ramp(2))


def test_a_tensor_in_a_closure_that_is_not_computed_yet() -> None:
    base = ramp(2)
    later = base * 2  # pending
    pair = Pair(lambda x: x + later)
    for _ in range(4):
        pair.same(ramp(2))
        base.add_(1)
    assert pair.compiled.hits >= 2


def test_a_pending_tensor_that_a_called_function_s_module_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    base = ramp(2)
    monkeypatch.setattr(config, "later", base * 2, raising=False)
    other = types.FunctionType((lambda x: x + config.later).__code__, {"config": config})  # type: ignore[attr-defined]
    pair = Pair(lambda x: other(x))
    for _ in range(4):
        pair.same(ramp(2))
        base.add_(1)


def test_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options()
    patch = monkeypatch.setattr
    check(lambda x: x + options.bias, lambda: patch(options, "bias", 3.0), monkeypatch.undo)
    check(lambda x: x + options.shifted, lambda: patch(options, "bias", 3.0), monkeypatch.undo)
    check(lambda x: x * options.scale, lambda: patch(Options, "scale", 3.0), monkeypatch.undo)
    check(lambda x: x * type(options).scale, lambda: patch(Options, "scale", 3.0), monkeypatch.undo)
    check(lambda x: x * options.scale, lambda: vars(options).update(scale=3.0), lambda: vars(options).pop("scale"))
    check(lambda x: x * options.table[0], lambda: Options.table.__setitem__(0, 9.0))
    check(options.apply, lambda: patch(options, "bias", 3.0), monkeypatch.undo)
    check(options.apply, lambda: patch(Options, "scale", 3.0), monkeypatch.undo)
    check(lambda x: options.apply(x), lambda: patch(Options, "apply", lambda self, x: x * 9), monkeypatch.undo)
    check(lambda x: options.apply(x), lambda: vars(options).update(apply=lambda x: x * 9),
          lambda: vars(options).pop("apply"))
    check(Options.of_class, lambda: patch(Options, "scale", 3.0), monkeypatch.undo)
    check(lambda x: Options.of_nobody(x), lambda: patch(Options.of_nobody, "__defaults__", (3.0,)), monkeypatch.undo)
    check(lambda x: x * getattr(options, "sca" + "le"), lambda: patch(Options, "scale", 3.0), monkeypatch.undo)
    check(lambda x: x + getattr(options, "bi" + "as"), lambda: patch(options, "bias", 3.0), monkeypatch.undo)
    check(lambda x: x + options.__dict__["bias"], lambda: patch(options, "bias", 3.0), monkeypatch.undo)
    check(lambda x: x + vars(options)["bias"], lambda: patch(options, "bias", 3.0), monkeypatch.undo)
    check(lambda x: x * hasattr(options, "extra"), lambda: patch(options, "extra", 1, raising=False), monkeypatch.undo)
    check(lambda x: x * hasattr(options, "extra"), lambda: patch(Options, "extra", 1, raising=False), monkeypatch.undo)


class Looked:
    """Attributes are looked up in a dictionary, and one that is not there is a KeyError."""

    def __init__(self, given: dict[str, float]):
        self.given = given

    def __getattr__(self, name: str) -> float:
        return self.given[name]


class LookedInSlots(Looked):
    __slots__ = ("given", "never")


class OnlySlots:
    __slots__ = ("given", "never")

    def __init__(self, given: dict[str, float]):
        self.given = given

    def __getattr__(self, name: str) -> float:
        return self.given[name]


@pytest.mark.parametrize("kind", [Looked, LookedInSlots, OnlySlots])
def test_attributes_that_are_looked_up_elsewhere(kind: Any) -> None:
    """Genesis never asks `__getattr__` for names of its own: it may raise anything, and be called for them."""
    options = kind({"scale": 2.0, "never": 1.0})
    pair = Pair(lambda x: x * options.scale + options.never)
    pair.settle(ramp(3))
    for _ in range(10):
        assert pair.replays(ramp(3))
    options.given["scale"] = 5.0
    pair.same(ramp(3))
    options.never = 7.0
    pair.same(ramp(3))
    del options.never
    pair.same(ramp(3))
    pair.settle(ramp(3))


def test_a_class_that_answers_for_every_attribute_itself() -> None:
    class Answers:
        scale = 2.0

    answers = Answers()
    pair = Pair(lambda x: x * answers.scale)
    pair.settle(ramp(3))
    Answers.__getattribute__ = lambda self, name: 13.0  # type: ignore[assignment]
    pair.same(ramp(3))
    pair.same(ramp(3))
    del Answers.__getattribute__
    pair.same(ramp(3))


def test_an_explanation_names_an_optimizer_s_groups_and_parameters() -> None:
    weights = [genesis.nn.Parameter(ramp(3)) for _ in range(3)]
    optimizer = genesis.optim.SGD(weights[:2], lr=0.125)

    @genesis.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        sum((weight * x).sum() for weight in weights).backward()
        optimizer.step()

    step(ramp(3))
    step(ramp(3))
    optimizer.param_groups[0]["params"].pop()
    step(ramp(3))
    assert genesis.explain(step).recaptures[-1].guard == "params"
    optimizer.add_param_group({"params": [weights[2]]})
    step(ramp(3))
    assert genesis.explain(step).recaptures[-1].guard == "param_groups"


def test_the_order_of_a_module_s_children() -> None:
    model = genesis.nn.Sequential(genesis.nn.Linear(3, 3), genesis.nn.Tanh())
    pair = Pair(lambda x: model(x))
    pair.settle(ramp(2, 3))
    before = pair.same(ramp(2, 3))
    model._modules["0"] = model._modules.pop("0")
    assert pair.same(ramp(2, 3)) != before


def test_a_class_that_counts_its_calls_is_replayed() -> None:
    class Counted:
        calls = 0

    def count(x: Any) -> Any:
        Counted.calls += 1
        return x * 2

    compiled = genesis.compile(count)
    for _ in range(5):
        compiled(ramp(3))
    assert (Counted.calls, genesis.explain(compiled).hits) == (5, 4)


def test_slots() -> None:
    slots = Slots()
    check(lambda x: x + slots.bias, lambda: setattr(slots, "bias", 3.0))
    check(lambda x: x * hasattr(slots, "other"), lambda: setattr(slots, "other", 3.0))


def test_nested_dataclasses() -> None:
    settings = Config()
    check(lambda x: x * settings.inner.rate, lambda: setattr(settings.inner, "rate", 3.0))
    check(lambda x: x * settings.inner.rate, lambda: setattr(settings, "inner", Inner(8.0)))
    check(lambda x: x * settings.inner.sizes[0], lambda: setattr(settings.inner, "sizes", (7, 8)))
    check(lambda x: x * (1 if settings.name == "a" else 2), lambda: setattr(settings, "name", "b"))


def test_an_enum() -> None:
    box = types.SimpleNamespace(color=Color.RED)
    check(lambda x: x * (1 if box.color is Color.RED else 2), lambda: setattr(box, "color", Color.BLUE))
    check(lambda x: x * box.color.value, lambda: setattr(box, "color", Color.RED))


def test_the_options_of_a_command_line() -> None:
    args = argparse.Namespace(rate=2.0, name="a")
    check(lambda x: x * args.rate, lambda: setattr(args, "rate", 3.0))
    check(lambda x: x * (1 if args.name == "a" else 2), lambda: setattr(args, "name", "b"))


def test_functions_that_hold_state() -> None:
    def counted(x: Any, seen: list = [1.0]) -> Any:  # noqa: B006
        return x * seen[0] + getattr(counted, "offset", 0)
    check(counted, lambda: counted.__defaults__[0].__setitem__(0, 5.0))  # type: ignore[index]
    check(lambda x: counted(x), lambda: setattr(counted, "offset", 7))

    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def around(x: Any) -> Any:
            return function(x) * scale[0]
        return around
    scale = [2.0]
    check(decorated(helper), lambda: scale.__setitem__(0, 9.0))
    partial = functools.partial(helper, power=2)
    check(lambda x: partial(x), lambda: partial.keywords.__setitem__("power", 3))
    check(functools.partial(lambda s, x: x * s[0], scale), lambda: scale.__setitem__(0, 1.0))
    no_grad = genesis.no_grad()(lambda x: x * scale[0])
    check(no_grad, lambda: scale.__setitem__(0, 4.0))


def test_a_callable_object() -> None:
    class Scaled:
        def __init__(self, factor: float):
            self.factor = factor

        def __call__(self, x: Any) -> Any:
            return x * self.factor

        def __getattr__(self, name: str) -> Any:
            if name.startswith("dynamic"):
                return self.factor
            raise AttributeError(name)
    scaled = Scaled(2.0)
    check(scaled, lambda: setattr(scaled, "factor", 3.0))
    check(lambda x: scaled(x), lambda: setattr(scaled, "factor", 4.0))
    check(lambda x: x * scaled.dynamic_factor, lambda: setattr(scaled, "factor", 5.0))
    check(lambda x: scaled(x), lambda: setattr(Scaled, "__call__", lambda self, x: x - 1))


def test_a_cache_of_another_function_is_not_trusted() -> None:
    scale = [2.0]

    @functools.lru_cache
    def cached(n: int) -> float:
        return scale[0] * n
    pair = Pair(lambda x: x * cached(1))
    for _ in range(3):
        pair.same(ramp(2))
    scale[0] = 5.0
    cached.cache_clear()
    pair.same(ramp(2))


def test_a_cached_property() -> None:
    class Lazy:
        def __init__(self) -> None:
            self.n = 2.0

        @functools.cached_property
        def factor(self) -> float:
            return self.n
    lazy = Lazy()
    check(lambda x: x * lazy.factor, lambda: setattr(lazy, "factor", 7.0))


def test_a_cache_that_the_first_call_fills() -> None:
    class Rotary:
        def __init__(self) -> None:
            self.table: Any = None

        def __call__(self, x: Any) -> Any:
            if self.table is None:
                self.table = genesis.arange(2) * 3.0
            return x + self.table
    rotary = genesis.compile(Rotary())
    assert [rotary(ramp(2)).tolist() for _ in range(5)] == [[1.0, 5.0]] * 5
    assert rotary.hits >= 2


def test_a_weak_reference_is_not_looked_through() -> None:
    import weakref
    options = Options()
    reference = weakref.ref(options)
    check(lambda x: x + reference().bias, lambda: setattr(options, "bias", 5.0), replayed=False)


def test_map_over_a_changing_function() -> None:
    import random
    draws = Pair(lambda x: x * list(map(random.seed, [1]))[:0].__len__() + 1)
    for _ in range(3):
        draws.same(ramp(2))
    assert draws.compiled.hits == 0


def test_an_equal_expression_that_was_computed_before() -> None:
    x = ramp(2)
    y = x * 2
    later = y + 1  # holds on to y's node
    y.tolist()
    compiled = genesis.compile(lambda x: x * 2)
    assert compiled(x).tolist() == [2.0, 4.0]
    assert compiled(ramp(2, start=5)).tolist() == [10.0, 12.0]
    y.zero_()
    assert compiled(ramp(2, start=6)).tolist() == [12.0, 14.0]
    assert compiled.hits == 2 and later.tolist() == [3.0, 5.0]


def test_a_loss_that_was_computed_before() -> None:
    w = ramp(2).requires_grad_()
    x = ramp(2)
    before = (w * x).sum()
    before.item()
    compiled = genesis.compile(lambda x: (w * x).sum())
    assert [compiled(x).item(), compiled(ramp(2, start=5)).item(), before.item()] == [5.0, 17.0, 5.0]
    compiled(ramp(2, start=5)).backward()
    assert w.grad.tolist() == [5.0, 6.0] and compiled.hits == 2


def test_constants_made_inside() -> None:
    def function(x: Any) -> Any:
        table = genesis.tensor([1.0, 2.0])
        return x + table, genesis.zeros(2), genesis.ones(2) * x

    def counts(x: Any) -> Any:
        total = genesis.tensor([0.0, 0.0])
        total += x
        return total, total * 2
    for each in (function, counts):
        pair = Pair(each)
        for i in range(4):
            kept = pair.same(ramp(2, start=i))
        pair.compiled(ramp(2, start=3))[1].add_(5)
        assert pair.same(ramp(2, start=3)) == kept
    pair = Pair(function)
    pair.settle(ramp(2))


def test_memory_that_numpy_shares() -> None:
    weight, scale = ramp(2), ramp(2)
    array = weight.numpy()
    pair = Pair(lambda x: x * weight + scale)
    for i in range(4):
        pair.same(ramp(2))
        array[0] = i
    assert "numpy" in pair.refused
    later = scale.numpy()
    pair = Pair(lambda x: x + scale)
    del later
    pair.settle(ramp(2))
    later = scale.numpy()
    for i in range(4):
        pair.same(ramp(2))
        later[0] = i


def test_an_element_that_a_set_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {1, 2}
    pair = Pair(lambda x: x * 2 if 3 in chosen else x)
    pair.settle(ramp(2))
    chosen.add(3)
    pair.same(ramp(2))
    chosen.remove(3)
    pair.same(ramp(2))


class Gain(float):
    """A float of the user's."""


EQUAL = [(0.0, -0.0), (1, True), (1, 1.0), (0, False), (np.float64(0.0), np.float64(-0.0)), (Gain(0.0), Gain(-0.0)),
         (0j, -0j), (complex(0.0, 1.0), complex(-0.0, 1.0)), (np.float64(1.0), 1.0),
         (np.float32(0.0), np.float32(-0.0)),
         (range(0), range(1, 1)), (range(0, 5, 9), range(0, 1, 1)), (slice(0.0), slice(-0.0)), ((0.0, 1), (-0.0, 1))]
"""Values that are equal, and that a program can tell apart."""


@pytest.mark.parametrize("before, after", EQUAL)
def test_equal_numbers_that_are_not_the_same(before: Any, after: Any) -> None:
    number = before

    def f(x: Any) -> Any:
        return x * 2 if repr(number) == repr(before) else x * 3
    pair = Pair(f)
    pair.settle(ramp(2))
    number = after
    pair.same(ramp(2))


@pytest.mark.parametrize("before, after", [pair for pair in EQUAL if not isinstance(pair[0], slice)])
def test_an_equal_element_of_a_set_that_is_not_the_same(before: Any, after: Any) -> None:
    chosen = {before}

    def f(x: Any) -> Any:
        return x * 2 if repr(next(iter(chosen))) == repr(before) else x * 3
    pair = Pair(f)
    pair.settle(ramp(2))
    chosen.clear()
    chosen.add(after)
    pair.same(ramp(2))


def test_a_set_whose_elements_come_in_another_order() -> None:
    chosen = {8, 0}
    order = list(chosen)

    def f(x: Any) -> Any:
        for value in chosen:
            x = x * 2 + value
        return x
    pair = Pair(f)
    pair.settle(ramp(2))
    chosen.clear()
    for value in (0, 8) if order == [8, 0] else (8, 0):
        chosen.add(value)
    assert list(chosen) != order, "equal hashes modulo the table's size come in the order in which they were added"
    pair.same(ramp(2))


def test_a_function_of_c_that_only_c_calls() -> None:
    """`next` calls it, so the trace of the user's code does not show it."""
    draw = random.Random(0).random

    def f(x: Any) -> Any:
        return x * next(iter(draw, 2.0))
    compiled = genesis.compile(f)
    found = {compiled(ramp(1)).item() for _ in range(5)}
    assert len(found) == 5


class Settings(dict):
    gain: float


class Numbers(list):
    gain: float


class Rows(list):
    __slots__ = ("gain",)


class Count(int):
    gain: float


@pytest.mark.parametrize("kind", [Settings, Numbers, Rows, Count])
def test_attributes_of_what_derives_from_a_plain_class(kind: Any) -> None:
    held = kind()
    held.gain = 2.0
    fast = genesis.compile(lambda x: x * held.gain + getattr(held, "shift", 0.0))
    assert [fast(genesis.ones(())).item() for _ in range(3)] == [2.0] * 3
    held.gain = 5.0
    assert [fast(genesis.ones(())).item() for _ in range(3)] == [5.0] * 3
    if kind is Rows:
        assert "slots" in str(genesis.explain(fast))
    else:
        assert fast.hits >= 3
        held.shift = 1.0
        assert fast(genesis.ones(())).item() == 6.0


def test_what_a_dictionary_of_ones_own_counts_at_each_write() -> None:
    class Counted(dict):
        writes = 0

        def __setitem__(self, key: Any, value: Any) -> None:
            super().__setitem__(key, value)
            self.writes += 1
    held = Counted()

    def step(x: Any) -> Any:
        held["last"] = x * 2
        return x * held.writes
    fast = genesis.compile(step)
    assert [fast(genesis.ones(())).item() for _ in range(6)] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def _scaled(x: Any) -> Any:
    return x


def _made_by(kind: str) -> Any:
    """What stands for a function, which has attributes of its own."""
    @functools.wraps(_scaled)
    def function(x: Any) -> Any:
        return x
    if kind == "method":
        return Options().apply.__func__
    return {"function": function, "partial": functools.partial(_scaled), "cached": functools.lru_cache(_scaled),
            "compiled": genesis.compile(function)}[kind]


@pytest.mark.parametrize("kind", ["function", "method", "partial", "cached", "compiled"])
@pytest.mark.parametrize("called", [False, True])
def test_attributes_of_functions(kind: str, called: bool) -> None:
    """Of those that run, and of those that the code only looks at."""
    held = _made_by(kind)
    if kind in ("cached", "method") and called:
        return  # a cache of tensors is not compared, and a method wants its object
    held.scale = 2.0

    def look(x: Any) -> Any:
        return (held(x) if called else x) * held.scale * getattr(held, "other", 1.0)
    compiled = genesis.compile(look)
    x = ramp(3)
    try:
        for change, expected in ((None, 2), (lambda: setattr(held, "scale", 3.0), 3),
                                 (lambda: setattr(held, "other", 5.0), 15), (lambda: delattr(held, "other"), 3),
                                 (lambda: setattr(held, "scale", genesis.ones(3)), 1)):
            if change is not None:
                change()
            for _ in range(3):
                assert compiled(x).tolist() == (x * expected).tolist()
        assert compiled.hits >= 4
    finally:
        vars(held).pop("scale", None)


def test_attributes_that_a_call_sets_on_a_function() -> None:
    def held() -> None:
        pass
    held.count = 0  # type: ignore[attr-defined]

    def counts(x: Any) -> Any:
        held.count += 1  # type: ignore[attr-defined]
        return x * held.count  # type: ignore[attr-defined]
    compiled = genesis.compile(counts)
    for turn in range(1, 7):
        assert compiled(genesis.ones(1)).item() == turn == held.count  # type: ignore[attr-defined]


def test_what_a_function_that_does_not_run_is_made_of() -> None:
    def maker(held: float) -> Any:
        def made(x: Any, scale: float = 2.0, *, other: float = 3.0) -> Any:
            return x * held
        return made
    made = maker(5.0)
    reads = {"__defaults__": lambda x: x * made.__defaults__[0],
             "__kwdefaults__": lambda x: x * made.__kwdefaults__["other"],
             "__closure__": lambda x: x * made.__closure__[0].cell_contents,
             "__code__": lambda x: x * made.__code__.co_argcount, "__name__": lambda x: x * len(made.__name__)}
    changes = {"__defaults__": lambda: setattr(made, "__defaults__", (7.0,)),
               "__kwdefaults__": lambda: made.__kwdefaults__.update(other=9.0),
               "__closure__": lambda: setattr(made.__closure__[0], "cell_contents", 4.0),
               "__code__": lambda: setattr(made, "__code__", maker(1.0).__code__.replace(co_argcount=1)),
               "__name__": lambda: setattr(made, "__name__", "another")}
    for name, read in reads.items():
        compiled, x = genesis.compile(read), ramp(2)
        for change in (lambda: None, changes[name]):
            change()
            for _ in range(3):
                assert compiled(x).tolist() == read(x).tolist(), name


class _Deque(collections.deque[float]):
    pass


class _Bytes(bytearray):
    pass


class _Array(np.ndarray):
    pass


class _Count(itertools.count):  # type: ignore[type-arg]
    pass


class _Failed(Exception):
    pass


class _Dictionary(collections.UserDict[str, float]):
    pass


@pytest.mark.parametrize(("held", "look", "change"), [
    (_Deque([2.0, 3.0]), lambda of: of[0], lambda of: of.appendleft(5.0)),
    (_Bytes(b"ab"), lambda of: of[0], lambda of: of.__setitem__(0, 5)),
    (np.ones(2).view(_Array), lambda of: float(of[0]), lambda of: of.__setitem__(0, 5.0)),
    (_Failed(2.0), lambda of: of.args[0], lambda of: setattr(of, "args", (3.0,))),
    (_Dictionary(a=2.0), lambda of: of["a"], lambda of: of.__setitem__("a", 3.0)),
], ids=["deque", "bytearray", "ndarray", "exception", "UserDict"])
def test_what_derives_from_a_class_that_keeps_more_than_attributes(
        held: Any, look: Callable[[Any], float], change: Callable[[Any], None]) -> None:
    def function(x: Any) -> Any:
        return x * look(held)
    compiled, x = genesis.compile(function), ramp(2)
    for step in (lambda of: None, change):
        step(held)
        for _ in range(3):
            assert compiled(x).tolist() == function(x).tolist()


def test_an_iterator_of_ones_own_is_used_up_at_each_call() -> None:
    held = _Count(2)
    compiled = genesis.compile(lambda x: x * next(held))
    assert [compiled(genesis.ones(1)).item() for _ in range(4)] == [2, 3, 4, 5]


class _Abstract(abc.ABC):
    scale = 2.0

    @abc.abstractmethod
    def of(self, x: Any) -> Any: ...


T = TypeVar("T")


class _Concrete(_Abstract, Generic[T]):
    def of(self, x: Any) -> Any:
        return x * self.scale


def test_what_derives_from_an_abstract_class_is_compared() -> None:
    held = _Concrete[int]()
    compiled = genesis.compile(lambda x: held.of(x))
    for scale in (2.0, 3.0):
        held.scale = scale
        for _ in range(3):
            assert compiled(ramp(2)).tolist() == (ramp(2) * scale).tolist()
    assert compiled.hits >= 2


def test_a_class_that_is_registered_with_an_abstract_one() -> None:
    class Registered:
        pass
    held = Registered()
    compiled = genesis.compile(lambda x: x * (2 if isinstance(held, _Abstract) else 3))
    assert [compiled(genesis.ones(1)).item() for _ in range(3)] == [3, 3, 3] and compiled.hits
    _Abstract.register(Registered)
    assert [compiled(genesis.ones(1)).item() for _ in range(3)] == [2, 2, 2]


def test_settings_that_a_call_reads_or_writes(tmp_path: Path) -> None:
    """Threads of the CPU's kernels, how tensors are printed, a checkpoint."""
    threads = genesis.get_num_threads()
    try:
        compiled = genesis.compile(lambda x: x * genesis.get_num_threads())
        for count in (1, 2, 1, 2):
            genesis.set_num_threads(count)
            assert compiled(genesis.ones(1)).item() == count

        @genesis.compile
        def sets(x: Any) -> Any:
            genesis.set_num_threads(2)
            genesis.set_printoptions(precision=2)
            return x * 2
        for _ in range(3):
            genesis.set_num_threads(1)
            genesis.set_printoptions(precision=4)
            sets(genesis.ones(1))
            assert genesis.get_num_threads() == 2 and str(genesis.tensor(1.2345)) == "tensor(1.23)"
    finally:
        genesis.set_num_threads(threads)
        genesis.set_printoptions(profile="default")
    manager, steps = CheckpointManager(tmp_path, keep=None, async_=False), [0]

    @genesis.compile
    def saves(x: Any) -> Any:
        steps[0] += 1
        manager.save(steps[0], seen={"tokens": steps[0]})
        return x * 2
    for _ in range(4):
        saves(genesis.ones(1))
    assert len(manager.checkpoints()) == 4


class _Plain:
    scale = 2.0


class _List(list[float]):
    scale = 2.0


class _Layer(genesis.nn.Module):
    scale = 2.0

    def forward(self, x: Any) -> Any:
        return x * self.scale


def _with_attributes(kind: str) -> Any:
    return {"object": _Plain, "list": _List, "module": _Layer, "function": lambda: lambda x: x}[kind]()


@pytest.mark.parametrize("kind", ["object", "list", "module", "function"])
def test_a_dictionary_of_attributes_that_is_replaced(kind: str) -> None:
    held, other = _with_attributes(kind), _with_attributes(kind)
    held.scale, other.scale = 2.0, 7.0
    compiled = genesis.compile(lambda x: held(x) if kind == "module" else x * held.scale)
    steps = [(lambda: None, 2), (lambda: setattr(held, "__dict__", {**vars(held), "scale": 5.0}), 5),
             (lambda: setattr(held, "__dict__", vars(other)), 7), (lambda: setattr(other, "scale", 9.0), 9)]
    for change, expected in steps:
        change()
        for _ in range(3):
            assert compiled(genesis.ones(1)).item() == expected
    assert compiled.hits >= 3


class _Level(enum.Enum):
    LOW = [1.0]


def test_what_the_value_of_an_enumeration_holds() -> None:
    compiled = genesis.compile(lambda x: x * _Level.LOW.value[0])
    for value in (2.0, 3.0):
        _Level.LOW.value[0] = value
        assert [compiled(genesis.ones(1)).item() for _ in range(3)] == [value] * 3
    assert compiled.hits


def test_the_name_of_a_class() -> None:
    class Named:
        pass
    compiled = genesis.compile(lambda x: x * len(Named.__name__))
    for name in ("Named", "Renamed"):
        Named.__name__ = name
        assert [compiled(genesis.ones(1)).item() for _ in range(3)] == [len(name)] * 3
    assert compiled.hits


def test_an_object_of_another_package_s_class_of_c() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    held = tokenizers.Tokenizer(tokenizers.models.BPE())
    compiled = genesis.compile(lambda x: x * (2 if held.padding is None else 3))
    assert [compiled(genesis.ones(1)).item() for _ in range(3)] == [2] * 3
    held.enable_padding()
    assert [compiled(genesis.ones(1)).item() for _ in range(3)] == [3] * 3


def test_a_function_in_a_test_case() -> None:
    class Case(unittest.TestCase):
        def test(self) -> None:
            self.scale = 2.0
            compiled = genesis.compile(lambda x: x * self.scale, fullgraph=True)
            for scale in (2.0, 3.0):
                self.scale = scale
                for _ in range(3):
                    self.assertEqual(compiled(genesis.ones(1)).item(), scale)
            self.assertGreaterEqual(compiled.hits, 2)
    result = unittest.TestResult()
    Case("test").run(result)
    assert result.wasSuccessful(), result.errors + result.failures


def _hook_of_all(layer: Any, optimizer: Any) -> None:
    HOOKS.append(genesis.nn.modules.module.register_module_forward_hook(lambda *_: None))


HOOKS: list[Any] = []
CHOICES = {1}


@pytest.mark.parametrize(("change", "told"), [
    (lambda layer, optimizer: layer.weight.requires_grad_(False), ("requires_grad of weight", "True", "False")),
    (lambda layer, optimizer: layer.bias.requires_grad_(False), ("requires_grad of bias", "True", "False")),
    (lambda layer, optimizer: setattr(layer.weight, "data", genesis.ones(2, 3)),
     ("the memory that weight shows", "as captured", "other memory")),
    (lambda layer, optimizer: optimizer.param_groups[0].update(nesterov=True),
     ("nesterov of an optimizer's group", "False", "True")),
    (lambda layer, optimizer: optimizer.param_groups[0].update(momentum=0),
     ("momentum of an optimizer's group", "0.9", "0")),
    (lambda layer, optimizer: optimizer.param_groups[0].update(more=1),
     ("more of an optimizer's group", "missing", "1")),
    (lambda layer, optimizer: optimizer.state.pop(layer.weight),
     ("the state of a parameter f32[2,3]", "{'step': 3, .*}", "{'step': 1, .*}")),
    (_hook_of_all, ("hooks of all modules", r"\(\)", r"\(\d+,\)")),
    (lambda layer, optimizer: layer.register_forward_hook(lambda *_: None), ("_forward_hooks", r"\(\)", r"\(\d+,\)")),
    (lambda layer, optimizer: CHOICES.add(3), ("CHOICES", r"\{1\}", r"\{1, 3\}")),
], ids=["weight", "bias", "data", "nesterov", "momentum", "more", "state", "all hooks", "hook", "set"])
def test_an_explanation_names_what_has_no_place_of_its_own(change: Any, told: tuple[str, str, str]) -> None:
    layer = genesis.nn.Linear(3, 2)
    optimizer = genesis.optim.SGD(layer.parameters(), 0.1, momentum=0.9)

    @genesis.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x).square().mean() * (2 if 3 in CHOICES else 1)
        loss.backward()
        optimizer.step()
        return loss.detach()
    try:
        for _ in range(3):
            step(genesis.ones(4, 3))
        change(layer, optimizer)
        optimizer.param_groups[0]["lr"] = 0.2  # a number of the plan: nothing is captured again for it
        for _ in range(3):
            step(genesis.ones(4, 3))
    finally:
        CHOICES.discard(3)
        while HOOKS:
            HOOKS.pop().remove()
    again = genesis.explain(step).recaptures
    assert [x.guard for x in again] == [told[0]]
    for found, text in zip((again[0].before, again[0].now), told[1:], strict=True):
        assert re.fullmatch(text, found)
