"""Modules: whatever is changed on one, the next call computes with it."""

from __future__ import annotations

import copy
import functools
import pickle
import types
from typing import Any

import pytest
from calls import Pair, ramp, values

import genesis
from genesis import nn


class Net(nn.Module):
    gain = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.plain = [nn.Linear(3, 3)]
        self.act = nn.ReLU()
        self.scale = 2.0
        self.scales = [1.0, 2.0]
        self.by_name = {"a": 1.0}
        self.options = types.SimpleNamespace(bias=0.5)
        self.register_buffer("shift", genesis.ones(3))

    def forward(self, x: Any) -> Any:
        x = self.act(self.first(x)) * self.scale * self.gain
        for block, scale in zip(self.blocks, self.scales, strict=False):
            x = block(x) * scale
        return self.plain[0](x) + self.shift * self.by_name["a"] + self.options.bias + getattr(self, "offset", 0.0)


def set_attribute(name: str, value: Any) -> Any:
    return lambda net: setattr(net, name, value)


CHANGES = {
    "a number": set_attribute("scale", 3.0),
    "a list's item": lambda net: net.scales.__setitem__(0, 5.0),
    "a dictionary's item": lambda net: net.by_name.update(a=4.0),
    "an object's attribute": lambda net: setattr(net.options, "bias", 4.0),
    "a class attribute": lambda net: setattr(Net, "gain", 3.0),
    "an attribute over a class attribute": set_attribute("gain", 3.0),
    "a submodule": set_attribute("first", nn.Linear(2, 3)),
    "a module in a module list": lambda net: net.blocks.__setitem__(0, nn.Linear(3, 3)),
    "a module fewer": lambda net: net.blocks.__delitem__(1),
    "a module more": lambda net: (net.scales.append(3.0), net.blocks.append(nn.Linear(3, 3))),
    "a module in a plain list": lambda net: net.plain.__setitem__(0, nn.Linear(3, 3)),
    "an activation": set_attribute("act", nn.GELU()),
    "a parameter": lambda net: setattr(net.first, "weight", nn.Parameter(genesis.ones(3, 2))),
    "a parameter's data": lambda net: setattr(net.first.weight, "data", genesis.ones(3, 2)),
    "a parameter in place": lambda net: net.first.weight.data.mul_(2),
    "a parameter of a module in a plain list": lambda net: setattr(net.plain[0].weight, "data", genesis.ones(3, 3)),
    "a state dict": lambda net: net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()}),
    "no bias": lambda net: setattr(net.first, "bias", None),
    "a buffer": set_attribute("shift", genesis.zeros(3)),
    "a buffer in place": lambda net: net.shift.add_(1),
    "a registry": lambda net: net._buffers.__setitem__("shift", genesis.zeros(3)),
    "a registry's module": lambda net: net._modules.update(first=nn.Linear(2, 3)),
    "the dictionary": lambda net: vars(net).__setitem__("scale", 7.0),
    "the dictionary gets one": lambda net: vars(net).__setitem__("offset", 7.0),
    "behind the module's back": lambda net: object.__setattr__(net, "scale", 7.0),
    "another forward": lambda net: setattr(net, "forward", types.MethodType(lambda self, x: x * 2, net)),
    "another forward of a class": lambda net: setattr(Net, "forward", lambda self, x: x * 2),
    "a hook": lambda net: net.register_forward_hook(lambda module, args, result: result * 2),
    "a hook on a part": lambda net: net.first.register_forward_pre_hook(lambda module, args: args[0] * 2),
    "float64": lambda net: (net.double(), net.plain[0].double()),
}


@pytest.fixture
def net() -> Any:
    before = {name: vars(Net)[name] for name in ("gain", "forward")}
    genesis.manual_seed(0)
    yield Net()
    for name, value in before.items():
        setattr(Net, name, value)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("how", ["function", "module", "method"])
def test_a_change(net: Net, change: Any, how: str) -> None:
    def plain(x: Any) -> Any:
        if how == "module":
            net.__class__ = Net
        try:
            return net(x)
        finally:
            net.__class__ = fast
    compiled = genesis.compile({"function": lambda x: net(x), "module": net, "method": net.forward}[how])
    fast = net.__class__
    x = ramp(4, 2)
    for _ in range(3):
        compiled(x)
    before = values(compiled(x))
    assert "recorded" not in genesis.explain(compiled)
    change(net)
    x = x.to(net.blocks[0].weight.dtype)
    ours = values(compiled(x))
    if how == "method":  # it stays the method that it was, of the class that it was
        assert ours == values(compiled.function(x))
    else:
        assert ours == values(plain(x)) != before
    assert values(compiled(x)) == ours


@pytest.mark.parametrize("hook", [
    lambda: nn.modules.module.register_module_forward_hook(lambda module, args, result: result * 2),
    lambda: nn.modules.module.register_module_forward_pre_hook(lambda module, args: args[0] * 2),
], ids=["behind", "before"])
def test_a_hook_of_all_modules(net: Net, hook: Any) -> None:
    compiled = genesis.compile(lambda x: net(x))
    x = ramp(4, 2)
    before = [values(compiled(x)) for _ in range(3)]
    handle = hook()
    try:
        hooked = [values(compiled(x)) for _ in range(3)]
        assert hooked == [values(net(x))] * 3 != before
    finally:
        handle.remove()
    assert [values(compiled(x)) for _ in range(3)] == before
    assert compiled.hits >= 5


def test_whether_a_parameter_is_trained(net: Net) -> None:
    compiled = genesis.compile(lambda x: net(x).sum())
    x = ramp(4, 2)
    for wanted in (True, False, True, False):
        net.first.weight.requires_grad_(wanted)
        for _ in range(2):
            net.zero_grad()
            compiled(x).backward()
            assert (net.first.weight.grad is not None) is wanted
            assert net.first.bias.grad is not None
    net.requires_grad_(False)
    net.plain[0].requires_grad_(False)
    assert not compiled(x).requires_grad
    assert compiled.hits >= 4


def test_train_and_eval() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    compiled = genesis.compile(lambda x: net(x))
    x = ramp(3, 4)
    for _ in range(3):
        for training in (True, False):
            net.train(training)
            genesis.manual_seed(3)
            ours = values(compiled(x))
            genesis.manual_seed(3)
            assert ours == values(net(x))
    assert compiled.hits == 4


def test_the_training_flag_is_read_by_the_user() -> None:
    class Noisy(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if self.training else x
    net = Noisy()
    compiled = genesis.compile(net)
    for _ in range(2):
        assert compiled.train()(ramp(1)).item() == 2.0
        assert compiled.eval()(ramp(1)).item() == 1.0


def test_running_statistics() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", genesis.zeros(2))
            self.register_buffer("count", genesis.tensor(0))

        def forward(self, x: Any) -> Any:
            if self.training:
                mean = x.mean(0)
                with genesis.no_grad():
                    self.mean.mul_(0.9).add_(mean * 0.1)
                    self.count += 1
            else:
                mean = self.mean
            return x - mean
    ours, theirs = Norm(), Norm()
    compiled = genesis.compile(lambda x: ours(x))
    for i in range(5):
        x = ramp(3, 2, start=i)
        assert values(compiled(x)) == values(theirs(x))
        assert values(ours.mean) == values(theirs.mean) and ours.count.item() == i + 1
    ours.eval(), theirs.eval()
    assert values(compiled(x)) == values(theirs(x))
    assert compiled.hits >= 3


def test_a_buffer_that_is_replaced() -> None:
    class Ema(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", genesis.zeros(2))

        def forward(self, x: Any) -> Any:
            self.mean = self.mean * 0.5 + x
            return self.mean + 1
    ours, theirs = Ema(), Ema()
    compiled = genesis.compile(ours)
    for i in range(5):
        assert values(compiled(ramp(2, start=i))) == values(theirs(ramp(2, start=i)))
        assert values(ours.mean) == values(theirs.mean)
    explained = genesis.explain(compiled)
    assert (explained.captures, explained.hits) == (1, 4)


def test_statistics_that_nobody_reads_between_calls() -> None:
    ours, theirs = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    compiled = genesis.compile(lambda x: (ours(x), x * 2)[1])
    for i in range(4):
        compiled(ramp(2, 3, start=i))
        theirs(ramp(2, 3, start=i))
    assert compiled.hits == 3
    assert [values(x) for x in ours.buffers()] == [values(x) for x in theirs.buffers()]


def test_two_instances_of_one_class() -> None:
    first, second = Net(), Net()
    compiled = genesis.compile(lambda net, x: net(x))
    x = ramp(2, 2)
    for _ in range(3):
        assert values(compiled(first, x)) == values(first(x))
        assert values(compiled(second, x)) == values(second(x))
    assert compiled.hits == 4


def test_a_compiled_method_is_bound() -> None:
    class Model(nn.Module):
        def __init__(self, scale: float):
            super().__init__()
            self.scale = scale

        @genesis.compile
        def forward(self, x: Any) -> Any:
            return x * self.scale
    a, b = Model(2.0), Model(3.0)
    for _ in range(3):
        assert (a(ramp(1)).item(), b(ramp(1)).item()) == (2.0, 3.0)
    a.scale = 5.0
    assert (a(ramp(1)).item(), b(ramp(1)).item()) == (5.0, 3.0)


def test_a_tied_parameter() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x))
    net = Tied()
    compiled = genesis.compile(lambda x: net(x).sum())
    for _ in range(3):
        net.zero_grad()
        compiled(ramp(1, 2)).backward()
        ours = values(net.a.weight.grad)
        net.zero_grad()
        net(ramp(1, 2)).sum().backward()
        assert ours == values(net.a.weight.grad)
    assert compiled.hits == 2


class Scaled(genesis.nn.Module):
    """A module that pickle finds."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = genesis.nn.Linear(2, 2), 2.0

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.scale


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_compiled_module_is_compiled_and_its_own(copied: Any) -> None:
    module = genesis.compile(Scaled())
    expected = module(ramp(1, 2)).tolist()
    other = copied(module)
    assert isinstance(other, Scaled) and [other(ramp(1, 2)).tolist() for _ in range(3)] == [expected] * 3
    assert "2 replays" in genesis.explain(other)
    with genesis.no_grad():
        other.inner.weight.zero_()
        other.inner.bias.fill_(1.0)
    assert other(ramp(1, 2)).tolist() == [[2.0, 2.0]]
    assert module(ramp(1, 2)).tolist() == expected


def test_a_module_is_compiled_again() -> None:
    module = genesis.compile(Scaled())
    assert genesis.compile(module) is module
    assert module(ramp(1, 2)).tolist() == module(ramp(1, 2)).tolist() and "1 replays" in genesis.explain(module)


def test_a_shallow_copy_shares_the_parameters() -> None:
    module = genesis.compile(Scaled())
    module(ramp(1, 2))
    other = copy.copy(module)
    other.scale = 3.0
    assert other.inner is module.inner
    for _ in range(3):
        assert (other(ramp(1, 2)) * 2)[0].tolist() == pytest.approx((module(ramp(1, 2)) * 3)[0].tolist(), rel=1e-6)


def test_a_module_with_a_compiled_function_is_copied() -> None:
    module = Scaled()
    module.after = genesis.compile(doubled)  # type: ignore[assignment]
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert [other.after(ramp(2)).tolist() for _ in range(2)] == [[2.0, 4.0]] * 2


def doubled(x: Any) -> Any:
    return x * 2


def test_the_call_of_all_modules_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    module = genesis.compile(Scaled())
    expected = module(ramp(1, 2)).tolist()
    monkeypatch.setattr(nn.Module, "__call__", lambda self, x: x * 6)
    assert [module(ramp(1, 2)).tolist() for _ in range(3)] == [[[6.0, 12.0]]] * 3
    monkeypatch.undo()
    assert module(ramp(1, 2)).tolist() == expected


@pytest.mark.parametrize("own", [False, True], ids=["a layer of Genesis'", "a module of the user's"])
@pytest.mark.parametrize("kind", ["function", "method", "partial"])
def test_a_forward_that_stands_on_the_module_itself_is_replayed_and_guarded(own: bool, kind: str) -> None:
    class Same(nn.Module):
        def forward(self, x: Any) -> Any:
            return x
    layer: Any = Same() if own else nn.Linear(2, 2)
    model, first, scale, sign = nn.Sequential(layer, nn.ReLU()), layer.forward, 2.0, 1

    def scaled(x: Any, by: float = 1.0) -> Any:
        return first(x) * scale * by

    def of_layer(self: Any, x: Any, by: float = 1.0) -> Any:
        return first(x) * (2 if self.training else 3) * scale * by
    layer.forward = scaled if kind == "function" else types.MethodType(of_layer, layer) if kind == "method" else (
        functools.partial(of_layer, layer, by=2.0))
    pair = Pair(lambda x: model(x) * sign)
    pair.settle(ramp(2))
    assert pair.replays(ramp(2))
    scale = 3.0
    assert not pair.replays(ramp(2))
    pair.settle(ramp(2))
    layer.eval()
    pair.same(ramp(2))
    (scaled if kind == "function" else of_layer).__defaults__ = (5.0,)
    pair.same(ramp(2))
    layer.forward = lambda x: -x
    assert not pair.replays(ramp(2))
    pair.settle(ramp(2))
    del layer.forward
    pair.same(ramp(2))
    pair.settle(ramp(2))
