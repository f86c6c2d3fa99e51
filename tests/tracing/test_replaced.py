"""Code that is replaced between calls, and modes that a call runs in: a replay never does what was replaced."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from calls import Pair, ramp, values
from test_guards import check

import genesis
from genesis import nn
from genesis.ir.types import Device
from genesis.nn import functional as F
from genesis.ops import creation


def helper(x: Any, power: float = 2.0, *, shift: float = 0.5) -> Any:
    return x * power + shift


class Base:
    unit = 2.0

    def factor(self) -> float:
        return self.unit


class Child(Base):
    pass


class Other(Base):
    def factor(self) -> float:
        return 7.0


class Dynamic:
    def __getattr__(self, name: str) -> float:
        if name.startswith("dynamic"):
            return 2.0
        raise AttributeError(name)


class Scaled(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 3


class ScaledMore(Scaled):
    def forward(self, x: Any) -> Any:
        return x * 4


@pytest.fixture
def tools() -> Iterator[Any]:
    """A module that functions import while they run."""
    made = types.ModuleType("tools_of_this_test")
    made.rate = 2.0  # type: ignore[attr-defined]
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def test_keyword_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    check(lambda x: helper(x), lambda: monkeypatch.setattr(helper, "__kwdefaults__", {"shift": 4.0}), monkeypatch.undo)
    check(lambda x: helper(x), lambda: helper.__kwdefaults__.update(shift=4.0),
          lambda: helper.__kwdefaults__.update(shift=0.5))

    def added(x: Any, **options: Any) -> Any:
        return x + options.get("shift", 0)
    check(lambda x: added(x), lambda: setattr(added, "__code__", (lambda x, **options: x * 5).__code__))


def test_methods_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = genesis.Tensor
    check(lambda x: (x - 1.5).relu(), lambda: monkeypatch.setattr(tensor, "relu", tensor.tanh), monkeypatch.undo)
    check(lambda x: x * 3, lambda: monkeypatch.setattr(tensor, "__mul__", tensor.__add__), monkeypatch.undo)
    pair = check(lambda x: x.tanh(), lambda: monkeypatch.setattr(tensor, "tanh", lambda x: x + 1), monkeypatch.undo)
    captures = pair.compiled.explain()
    pair.settle(ramp(2))
    assert pair.compiled.explain().split(",")[0] == captures.split(",")[0], "what was put back needs no other capture"


def test_functions_that_layers_call(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, active = nn.Linear(2, 2), nn.ReLU()
    check(lambda x: layer(x), lambda: monkeypatch.setattr(F, "linear", lambda x, w, b=None: x * 5),
          monkeypatch.undo)
    check(lambda x: active(x - 1.5), lambda: monkeypatch.setattr(F, "relu", F.silu), monkeypatch.undo)
    check(lambda x: F.silu(x), lambda: monkeypatch.setattr(F, "silu", F.gelu), monkeypatch.undo)
    check(lambda x: genesis.tanh(x), lambda: monkeypatch.setattr(genesis, "tanh", genesis.sin), monkeypatch.undo)


def test_a_function_that_was_never_asked_for_before_is_replaced_and_put_back() -> None:
    layer = nn.Linear(2, 2)
    original, name = F.linear, "linear"
    del vars(F)[name]  # as it is in a process that has not called it
    pair = check(lambda x: layer(x), lambda: setattr(F, name, lambda x, w, b=None: x * 5),
                 lambda: setattr(F, name, original))
    captures = genesis.explain(pair.compiled).captures
    pair.settle(ramp(2))
    assert genesis.explain(pair.compiled).captures == captures


@pytest.mark.parametrize("name", ["hypot", "layer_norm"])  # which waits in the module, and which is another's
def test_a_function_that_a_call_is_the_first_to_ask_for_is_captured_once(name: str) -> None:
    """It comes into the module while the call runs, where the guards would else have it missing."""
    vars(genesis).pop(name, None)
    functions = {"hypot": lambda x: genesis.hypot(x, x), "layer_norm": lambda x: genesis.layer_norm(x, (2,))}
    compiled = genesis.compile(functions[name])
    for i in range(4):
        compiled(ramp(2, start=i))
    assert (genesis.explain(compiled).captures, compiled.hits) == (1, 3)


def test_the_call_of_all_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    module = genesis.compile(Scaled())
    assert [module(ramp(1)).tolist() for _ in range(2)] == [[3.0], [3.0]]
    monkeypatch.setattr(nn.Module, "__call__", lambda self, x: x * 6)
    assert [module(ramp(1)).tolist() for _ in range(2)] == [[6.0], [6.0]]


def test_modules_in_sys_modules(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = types.ModuleType("other")
    other.rate = 5.0  # type: ignore[attr-defined]

    def whole(x: Any) -> Any:
        import tools_of_this_test
        return x * tools_of_this_test.rate

    def named(x: Any) -> Any:
        from tools_of_this_test import rate
        return x * rate

    def optional(x: Any) -> Any:
        try:
            import absent_from_this_test  # noqa: F401
        except ImportError:
            return x * 2
        return x * 3
    for each in (whole, named):
        check(each, lambda: monkeypatch.setitem(sys.modules, tools.__name__, other), monkeypatch.undo)
        check(each, lambda: monkeypatch.setattr(tools, "rate", 3.0), monkeypatch.undo)
    pair = Pair(optional)
    for _ in range(3):
        pair.same(ramp(2))
    monkeypatch.setitem(sys.modules, "absent_from_this_test", other)
    pair.same(ramp(2))


def test_a_name_is_looked_for_in_sys_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As einops does for each call: the hundreds of modules that are in it do not matter, one more or less does."""
    pair = check(lambda x: x * 3 if "absent_from_this_test" in sys.modules else x * 2,
                 lambda: monkeypatch.setitem(sys.modules, "absent_from_this_test", sys), monkeypatch.undo)
    assert pair.compiled.hits > 0
    taken = Pair(lambda x: x * 3 if "sys" in sys.modules and sys.modules["sys"] is sys else x)
    taken.same(ramp(2))
    assert "is used as a value" in taken.refused


def test_the_class_of_an_object() -> None:
    value, module = Base(), Scaled()
    check(lambda x: x * value.factor(), lambda: setattr(value, "__class__", Other))
    check(lambda x: x * value.factor(), lambda: setattr(value, "__class__", Base))
    check(lambda x: module(x), lambda: setattr(module, "__class__", ScaledMore))

    def turns(x: Any) -> Any:
        before = value.factor()
        value.__class__ = Base if isinstance(value, Other) else Other
        return x * before
    found = []
    for function in (genesis.compile(turns), turns):
        value.__class__ = Base
        found.append([values(function(ramp(2))) for _ in range(5)])
    assert found[0] == found[1]


def test_the_bases_of_a_class() -> None:
    value = Child()
    check(lambda x: x * value.factor(), lambda: setattr(Child, "__bases__", (Other,)),
          lambda: setattr(Child, "__bases__", (Base,)))


def test_attributes_that_were_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    value, plain = Dynamic(), types.SimpleNamespace()

    def tried(x: Any) -> Any:
        try:
            return x * plain.extra
        except AttributeError:
            return x
    check(lambda x: x * value.dynamic_rate, lambda: setattr(value, "dynamic_rate", 5.0),
          lambda: delattr(value, "dynamic_rate"))
    check(lambda x: x * value.dynamic_rate, lambda: setattr(Dynamic, "dynamic_rate", 5.0),
          lambda: delattr(Dynamic, "dynamic_rate"))
    check(tried, lambda: setattr(plain, "extra", 5.0))


def test_methods_of_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(change: Any) -> list[float]:
        weight = ramp(2).requires_grad_()
        optimizer = genesis.optim.SGD([weight], lr=0.5)

        def step(x: Any) -> None:
            optimizer.zero_grad()
            (weight * x).sum().backward()
            optimizer.step()
        for call in (genesis.compile(step), step):
            call(ramp(2))
            call(ramp(2))
            with monkeypatch.context() as patch:
                change(patch, optimizer)
                call(ramp(2))
            yield weight.tolist()
            with genesis.no_grad():
                weight.copy_(ramp(2))
            weight.grad = None

    nothing = lambda *arguments: None  # noqa: E731
    for change in (lambda patch, optimizer: patch.setattr(genesis.optim.SGD, "step", nothing),
                   lambda patch, optimizer: patch.setattr(optimizer, "step", nothing)):
        compiled, plain = seen(change)
        assert compiled == plain


@contextmanager
def setting(name: str, value: bool) -> Iterator[None]:
    before = getattr(genesis.config, name)
    setattr(genesis.config, name, value)
    try:
        yield
    finally:
        setattr(genesis.config, name, before)


@contextmanager
def default_dtype(dtype: Any) -> Iterator[None]:
    before = genesis.get_default_dtype()
    genesis.set_default_dtype(dtype)
    try:
        yield
    finally:
        genesis.set_default_dtype(before)


def captures(compiled: Any) -> int:
    return int(genesis.explain(compiled).split(": ")[1].split(" ")[0])


@pytest.mark.parametrize("mode", [
    functools.partial(setting, "fuse", False), functools.partial(setting, "deterministic", False),
    genesis.inference_mode, genesis.no_grad, functools.partial(default_dtype, genesis.float64),
    genesis.autograd.detect_anomaly])
def test_a_mode_around_the_call_is_a_capture_of_its_own(mode: Any) -> None:
    weight = ramp(2).requires_grad_()
    pair = Pair(lambda x: (x * weight + genesis.ones(2), genesis.is_inference_mode_enabled() and 1))
    pair.settle(ramp(2))
    outside = captures(pair.compiled)
    with mode():
        assert not pair.replays(ramp(2))
        pair.settle(ramp(2))
        assert captures(pair.compiled) > outside
    assert pair.replays(ramp(2)), "outside it is what it was"


def test_inference_mode_is_not_no_grad() -> None:
    pair = Pair(lambda x: x * (2 if genesis.is_inference_mode_enabled() else 3))
    for _ in range(3):
        with genesis.no_grad():
            assert pair.same(ramp(1))[-1] == [3.0]
        with genesis.inference_mode():
            assert pair.same(ramp(1))[-1] == [2.0]
    assert pair.compiled.hits == 4


def test_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(lambda x: (x * 2, genesis.get_default_device().type))
    x = ramp(2)
    pair.settle(x)
    monkeypatch.setattr(creation, "_default_device", Device("cuda"))  # set_default_device would look for a GPU
    assert pair.same(x)[1][1] == "cuda"
    monkeypatch.undo()
    assert pair.replays(x)


def test_a_call_that_is_recorded_computes_nothing_of_its_own() -> None:
    """A write that is pending after the plain call is pending after this one, so that backward sees what was there."""
    weight = ramp(2).requires_grad_()

    def function(x: Any) -> Any:
        y = x + len(str(print))  # a read that cannot be guarded
        with genesis.no_grad():
            x.mul_(2)
        return genesis.checkpoint(lambda y: (y * weight).tanh(), y)
    found = []
    for each in (genesis.compile(function), function):
        result = each(ramp(2).requires_grad_())
        found.append(values(genesis.autograd.grad(result.sum(), weight)))
    assert found[0] == found[1]


def test_a_gradient_that_cannot_be_computed_stops_no_call() -> None:
    weight = ramp(2).requires_grad_()
    compiled = genesis.compile(lambda x: genesis.checkpoint(lambda x: (x * weight).tanh(), x))
    result = compiled(ramp(2))
    with genesis.no_grad():
        weight.mul_(2)
    weight.tolist()
    result.sum().backward()  # needs what weight was
    assert values(compiled(ramp(2)))[:2] == ((2,), "genesis.float32")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        weight.grad.tolist()


def test_memory_of_a_pending_gradient() -> None:
    weight = ramp(2).requires_grad_()

    def accumulate(x: Any) -> Any:
        (x * weight).sum().backward()
        return x
    found = []
    for function in (genesis.compile(accumulate), accumulate):
        weight.grad = None
        for _ in range(4):
            function(ramp(2))
        found.append(values(weight.grad))
    assert found[0] == found[1] and np.allclose(found[0][-1], [4.0, 8.0])


def test_a_gradient_inside_that_goes_through_a_result() -> None:
    weight = ramp(2).requires_grad_()

    def function(x: Any) -> Any:
        shown = x + weight
        inside, = genesis.autograd.grad((shown * weight).sum(), weight)
        return shown, inside * 2
    pair = Pair(function)
    for _ in range(4):
        pair.same(ramp(2))
