"""What a module is: its registry, modes, state and hooks behave as torch's."""

from __future__ import annotations

import copy
import gc
import weakref
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn as tnn
from torch_peer import array_of

import genesis
from genesis import nn
from genesis.nn.modules.module import epoch


class Net(nn.Module):
    """Two layers, the second one's weight tied to the first's, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("count", genesis.zeros(1))
        self.register_buffer("scratch", genesis.zeros(1), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


def build(m: Any) -> Any:
    """The same tree in either framework."""
    return m.Sequential(m.Linear(2, 3), m.Sequential(m.ReLU(), m.Linear(3, 3, bias=False)),
                        m.ModuleList([m.Dropout(0.1)]), m.ModuleDict({"a": m.LayerNorm(3)}))


def test_names_are_torchs() -> None:
    ours, theirs = build(nn), build(tnn)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [name for name, _ in ours.named_modules()] == [name for name, _ in theirs.named_modules()]
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]


def test_repr_is_torchs() -> None:
    ours, theirs = (repr(build(m)).replace(", bias=True)", ")") for m in (nn, tnn))
    assert ours == theirs


def test_a_shared_parameter_is_one_parameter_with_two_paths() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == ["first.weight", "first.bias"]
    assert list(net.state_dict()) == ["count", "first.weight", "first.bias", "second.weight"]
    net(genesis.ones(1, 4)).sum().backward()
    assert net.second.weight.grad is net.first.weight.grad


def test_buffers_move_but_are_not_trained() -> None:
    net = Net()
    assert [name for name, _ in net.named_buffers()] == ["count", "scratch"]
    assert "scratch" not in net.state_dict()
    assert all(not buffer.requires_grad for buffer in net.buffers())
    net.half()
    assert net.count.dtype is genesis.float16 and net.first.weight.dtype is genesis.float16


def test_casting_keeps_the_parameters_and_their_gradients() -> None:
    net = Net()
    weight = net.first.weight
    net(genesis.ones(1, 4)).sum().backward()
    net.double()
    assert net.first.weight is weight
    assert weight.dtype is weight.grad.dtype is genesis.float64
    assert weight.requires_grad and weight.is_leaf


def test_attributes_register_and_unregister() -> None:
    net = nn.Module()
    net.part = nn.Linear(2, 2)
    net.weight = nn.Parameter(genesis.ones(2))
    assert list(net.state_dict()) == ["weight", "part.weight", "part.bias"]
    with pytest.raises(TypeError, match="cannot assign 'Tensor' as parameter 'weight'"):
        net.weight = genesis.ones(2)
    net.weight = None
    assert net.weight is None and "weight" not in net.state_dict()
    del net.part
    with pytest.raises(AttributeError, match="'Module' object has no attribute 'part'"):
        _ = net.part
    net.plain = 3
    net.plain = nn.Parameter(genesis.ones(1))
    assert "plain" in dict(net.named_parameters()) and "plain" not in net.__dict__


def test_super_init_may_be_forgotten() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(genesis.ones(2))
    assert list(Forgetful().state_dict()) == ["weight"]


@pytest.mark.parametrize("name", ["", "a.b"])
def test_names_without_dots(name: str) -> None:
    with pytest.raises(KeyError):
        nn.Module().add_module(name, nn.ReLU())


def test_paths_lead_to_parts() -> None:
    net = build(nn)
    assert net.get_submodule("1.1") is net[1][1]
    assert net.get_parameter("3.a.weight") is net[3]["a"].weight
    with pytest.raises(AttributeError, match="no module `9`"):
        net.get_submodule("9")


def test_modes_reach_all_modules() -> None:
    net = build(nn).eval()
    assert not any(module.training for module in net.modules())
    assert net.train().training and all(module.training for module in net.modules())


def test_apply_visits_children_first() -> None:
    seen: list[str] = []
    nn.Sequential(nn.ReLU(), nn.Tanh()).apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["ReLU", "Tanh", "Sequential"]


def test_requires_grad_and_zero_grad() -> None:
    net = Net()
    net(genesis.ones(1, 4)).sum().backward()
    gradient = net.first.bias.grad
    net.zero_grad(set_to_none=False)
    assert net.first.bias.grad is gradient and not array_of(gradient).any()
    net.zero_grad()
    assert net.first.bias.grad is None
    net.requires_grad_(False)
    assert not net(genesis.ones(1, 4)).requires_grad


def test_state_dict_is_over_the_modules_memory() -> None:
    net = Net()
    state = net.state_dict()
    with genesis.no_grad():
        net.first.bias.fill_(7.0)
    assert state["first.bias"].tolist() == [7.0] * 4
    assert not state["first.bias"].requires_grad


def test_state_dict_round_trip() -> None:
    ours, other = Net(), Net()
    result = other.load_state_dict(ours.state_dict())
    assert repr(result) == "<All keys matched successfully>"
    assert np.array_equal(array_of(ours.first.weight), array_of(other.first.weight))
    with genesis.no_grad():
        ours.first.weight.zero_()
    assert array_of(other.first.weight).any()  # a copy, not an alias


def test_load_state_dict_says_what_is_wrong_as_torch_does() -> None:
    ours, theirs = nn.Linear(2, 3), tnn.Linear(2, 3)
    ours_error, theirs_error = "", ""
    try:
        ours.load_state_dict({"bias": genesis.ones(3), "extra": genesis.ones(1)})
    except RuntimeError as error:
        ours_error = str(error)
    try:
        theirs.load_state_dict({"bias": tnn.Parameter(theirs.bias), "extra": tnn.Parameter(theirs.bias)})
    except RuntimeError as error:
        theirs_error = str(error)
    assert ours_error == theirs_error
    with pytest.raises(RuntimeError, match=r"mismatch for weight: copying a param with shape genesis.Size\(\[3, 3\]\)"):
        ours.load_state_dict({"weight": genesis.ones(3, 3), "bias": genesis.ones(3)})


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    ours = nn.Linear(2, 3)
    before = array_of(ours.bias)
    with pytest.raises(RuntimeError):
        ours.load_state_dict({"bias": genesis.ones(3), "weight": genesis.ones(1)})
    assert np.array_equal(array_of(ours.bias), before)


def test_loading_without_strictness_reports() -> None:
    found = nn.Linear(2, 3).load_state_dict({"bias": genesis.ones(3), "extra": genesis.ones(1)}, strict=False)
    assert found.missing_keys == ["weight"] and found.unexpected_keys == ["extra"]


def test_hooks_run_around_forward_and_can_replace() -> None:
    layer = nn.Identity()
    calls: list[str] = []
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    after = layer.register_forward_hook(lambda module, args, result: calls.append("after") or result * 10)
    assert layer(genesis.tensor(1.0)).item() == 20.0 and calls == ["after"]
    before.remove()
    with after:
        assert layer(genesis.tensor(1.0)).item() == 10.0
    assert layer(genesis.tensor(1.0)).item() == 1.0


@pytest.mark.parametrize("change", [
    lambda net: setattr(net, "flag", True),
    lambda net: net.eval(),
    lambda net: net[0].register_forward_hook(lambda *_: None),
    lambda net: net.append(nn.ReLU()),
    lambda net: net.__delitem__(0),
    lambda net: net.to(genesis.float64),
    lambda net: net.requires_grad_(False),
    lambda net: delattr(net[0], "bias"),
], ids=["attribute", "eval", "hook", "append", "delete", "dtype", "requires_grad", "delattr"])
def test_every_change_starts_an_epoch(change) -> None:  # type: ignore[no-untyped-def]
    net = nn.Sequential(nn.Linear(2, 2))
    before = epoch()
    change(net)
    assert epoch() > before


def test_a_call_changes_nothing_and_keeps_nothing() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.LayerNorm(2))
    before = epoch()
    seen: list[weakref.ref[Any]] = []
    handle = net[1].register_forward_hook(lambda module, args, result: seen.append(weakref.ref(result)))
    changed = epoch()
    y = net(genesis.ones(1, 2))
    gc.collect()
    assert epoch() == changed > before
    assert seen[0]() is None and y is not None
    handle.remove()


def test_deepcopy_copies_weights_and_ties() -> None:
    net = Net()
    twin = copy.deepcopy(net)
    assert twin.first.weight is twin.second.weight and twin.first.weight is not net.first.weight
    assert isinstance(twin.first.weight, nn.Parameter)
    with genesis.no_grad():
        net.first.weight.zero_()
    assert array_of(twin.first.weight).any()


def test_a_parameter_shares_the_memory_it_is_made_of() -> None:
    data = genesis.zeros(2)
    parameter = nn.Parameter(data)
    data.add_(1)
    assert parameter.tolist() == [1.0, 1.0]
    assert repr(parameter).startswith("Parameter containing:\n")
    assert not nn.Parameter(data, requires_grad=False).requires_grad


def test_sequential_is_a_list() -> None:
    a, b, c = nn.ReLU(), nn.Tanh(), nn.SiLU()
    net = nn.Sequential(a, b)
    assert net[-1] is b and list(net[:1]) == [a] and len(net.append(c)) == 3
    net[0] = c
    del net[1]
    assert list(net) == [c, c] and list(net._modules) == ["0", "1"]
    net.insert(0, a)
    assert net.pop(0) is a and len(net) == 2
    with pytest.raises(IndexError):
        _ = net[5]
    named = nn.Sequential(OrderedDict(first=a, second=b))
    assert [name for name, _ in named.named_children()] == ["first", "second"] and named.second is b


def test_module_list_and_dict() -> None:
    layers = nn.ModuleList([nn.ReLU()]) + [nn.Tanh()]
    layers += [nn.SiLU()]
    assert [type(layer).__name__ for layer in layers] == ["ReLU", "Tanh", "SiLU"]
    assert isinstance(layers[1:], nn.ModuleList) and len(layers[1:]) == 2
    heads = nn.ModuleDict({"a": nn.ReLU()})
    heads["b"] = nn.Tanh()
    assert list(heads.keys()) == ["a", "b"] and "a" in heads and len(heads) == 2
    heads.pop("a")
    assert [type(m).__name__ for m in heads.values()] == ["Tanh"] and [k for k, _ in heads.items()] == ["b"]
    heads.clear()
    assert not len(heads)


def scaled_parameters(L: Any) -> list[Any]:
    """A parameter whose `__new__` takes more than a parameter's, as those of quantized layers do."""
    class Scaled(L.nn.Parameter):  # type: ignore[misc, name-defined]
        def __new__(cls, data: Any = None, requires_grad: bool = True, *, scale: float = 1.0, group: Any = None) -> Any:
            made = super().__new__(cls, data, requires_grad)
            made.scale, made.group = scale, group
            return made
    layer = L.nn.Module()
    layer.weight = Scaled(L.ones(2, 3), scale=0.5, group="first")
    optimizer = L.optim.SGD(layer.parameters(), lr=0.1)
    (layer.weight * layer.weight.scale).sum().backward()
    optimizer.step()
    again = copy.deepcopy(layer).weight
    with pytest.raises(TypeError):
        Scaled(L.ones(1), scalee=1.0)
    with pytest.raises(TypeError):
        L.nn.Parameter(L.ones(1), scale=1.0)
    return [layer.weight.detach().tolist(), layer.weight.group, type(layer.weight).__name__, list(layer.state_dict()),
            type(layer.weight * 2) is L.Tensor, type(again).__name__, again.detach().tolist()]


def test_parameters_of_a_subclass_take_options_of_their_own() -> None:
    assert scaled_parameters(genesis) == scaled_parameters(torch)
