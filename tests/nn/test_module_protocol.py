"""What programs override, hook and ask of modules gives what torch gives: each function is run with both libraries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis


def network(T: Any) -> Any:
    """Two layers, a buffer, and the name of one that is not there; the same numbers each time."""
    class Net(T.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = T.nn.Linear(2, 3), T.nn.BatchNorm1d(3)
            self.register_buffer("scale", T.tensor(2.0))
            self.register_buffer("gone", None, persistent=False)

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x)) * self.scale
    net = Net()
    with T.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(T.arange(float(p.numel())).reshape(p.shape) * 0.1 + i)
    return net


def hooks_of_backward(T: Any) -> Any:
    net, seen = network(T), []
    handle = net.a.register_full_backward_hook(lambda module, before, after: seen.append(
        (type(module).__name__, [x if x is None else x.shape for x in before], [x.shape for x in after])))
    net.b.register_full_backward_pre_hook(lambda module, after: (after[0] * 3,))
    x = T.ones(4, 2, requires_grad=True)
    net(x).pow(2).sum().backward()
    handle.remove()
    net(x).sum().backward()
    return seen, net.b.bias.grad.tolist()


def hooks_of_backward_stand_around_those_of_forward(T: Any) -> Any:
    """They see what forward itself gets, and what the caller gets, whichever was registered first; an emptied or
    removed registry leaves nothing behind."""
    layer, seen = network(T).a, []
    handles = [layer.register_full_backward_hook(
        lambda module, before, after: seen.append([x.tolist() for x in (*before, *after)])),
        layer.register_forward_hook(lambda module, args, result: result * 2),
        layer.register_forward_pre_hook(lambda module, args: (args[0] * 3,))]
    x = T.ones(4, 2, requires_grad=True)
    layer(x).sum().backward()
    for handle in handles:
        handle.remove()
    seen.append([len(layer._forward_hooks), len(layer._backward_hooks), len(layer._forward_pre_hooks)])
    layer.register_full_backward_hook(lambda module, *both: seen.append("cleared"))
    layer._backward_hooks.clear()
    layer(x).sum().backward()

    class Named(T.nn.Module):
        def forward(self, x: Any) -> Any:
            return {"a": x * 2, "b": (x + 1,)}
    named = Named()
    named.register_full_backward_hook(lambda module, *both: seen.append("seen in a dictionary"))
    named(x)["a"].sum().backward()
    return seen, x.grad.tolist()


def hooks_that_are_always_called(T: Any) -> Any:
    class Failing(T.nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("as it does")
    net, seen = Failing(), []
    net.register_forward_hook(lambda module, args, result: seen.append("not called"))
    net.register_forward_hook(lambda module, args, result: seen.append(result), always_call=True)
    net.register_forward_hook(lambda module, args, kwargs, result: seen.append(list(kwargs)), with_kwargs=True,
                              always_call=True)
    try:
        net(x=T.ones(2))
    except ValueError as error:
        seen.append(str(error))
    working = T.nn.ReLU()
    working.register_forward_hook(lambda module, args, result: result * 2, always_call=True)
    return seen, working(T.ones(2)).tolist()


def hooks_of_all_modules(T: Any) -> Any:
    M, seen = T.nn.modules.module, []
    handles = [
        M.register_module_forward_pre_hook(lambda module, args: seen.append(("before", type(module).__name__))),
        M.register_module_forward_hook(lambda module, args, result: seen.append(("after", type(module).__name__))),
        M.register_module_full_backward_pre_hook(lambda module, after: seen.append(("arrives", type(module).__name__))),
        M.register_module_full_backward_hook(lambda module, *both: seen.append(("leaves", type(module).__name__)))]
    network(T)(T.ones(4, 2, requires_grad=True)).sum().backward()
    for handle in handles:
        handle.remove()
    network(T)(T.ones(4, 2, requires_grad=True)).sum().backward()
    return seen


def a_hook_of_all_backwards_changes_gradients(T: Any) -> Any:
    x = T.ones(1, 2, requires_grad=True)
    class Falling(T.nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("fell")
    with T.nn.modules.module.register_module_full_backward_hook(
            lambda module, before, after: (before[0] * 2,) if isinstance(module, T.nn.Linear) else None):
        with pytest.raises(ValueError, match="fell"):
            T.nn.Sequential(Falling())(x)
        network(T).a(x).sum().backward()
    return x.grad.tolist()


def hooks_of_registration(T: Any) -> Any:
    M, seen = T.nn.modules.module, []
    handles = [M.register_module_parameter_registration_hook(lambda module, name, value: seen.append((name, "p"))),
               M.register_module_buffer_registration_hook(lambda module, name, value: seen.append((name, "b"))),
               M.register_module_module_registration_hook(
                   lambda module, name, value: T.nn.Identity() if name == "b" else None)]
    net = network(T)
    for handle in handles:
        handle.remove()
    return seen, type(net.b).__name__, type(network(T).b).__name__


def hooks_of_saving(T: Any) -> Any:
    net, seen = network(T), []
    net.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append((prefix, keep)))
    net._register_state_dict_hook(lambda module, state, prefix, meta: state.update({prefix + "more": T.ones(1)}))
    net.register_state_dict_post_hook(lambda module, state, prefix, meta: seen.append((list(state), meta)))
    state = T.nn.Sequential(net).state_dict()
    return seen, list(state), sorted(state._metadata.items())


def versions_of_state(T: Any) -> Any:
    net = network(T)
    state = net.state_dict(prefix="model.")
    return isinstance(state, dict), sorted(state._metadata.items()), sorted(net.state_dict()._metadata)


def hooks_of_loading(T: Any) -> Any:
    net, seen = network(T), []
    net.register_load_state_dict_pre_hook(lambda module, state, prefix, meta, strict, *lists: seen.append(
        (type(module).__name__, prefix, meta, strict, len(state))))
    net._register_load_state_dict_pre_hook(lambda state, *rest: state.pop("junk"))
    net.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    state = network(T).state_dict()
    state["junk"] = state.pop("scale")
    return str(net.load_state_dict(state)), seen


def own_loading_of_an_older_version(T: Any) -> Any:
    found = []

    class Layer(T.nn.Module):
        _version = 3

        def __init__(self) -> None:
            super().__init__()
            self.w = T.nn.Parameter(T.zeros(2))

        def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "count"] = 3

        def _load_from_state_dict(self, state: Any, prefix: str, meta: Any, *rest: Any) -> None:
            found.append((meta.get("version"), state.pop(prefix + "count")))
            if prefix + "weight" in state:
                state[prefix + "w"] = state.pop(prefix + "weight")
            super()._load_from_state_dict(state, prefix, meta, *rest)
    model = T.nn.ModuleDict({"x": Layer()})
    state = model.state_dict()
    state["x.weight"] = T.ones(2)
    del state["x.w"]
    model.load_state_dict(state)
    model.load_state_dict(dict(model.state_dict()))
    return found, model["x"].w.tolist()


def a_count_of_batches_that_old_states_lack(T: Any) -> Any:
    net = network(T)
    old = {name: value for name, value in net.state_dict().items() if "num_batches" not in name}
    new = net.state_dict()
    del new["b.num_batches_tracked"]
    return str(net.load_state_dict(old)), str(net.load_state_dict(new, strict=False).missing_keys)


def own_apply(T: Any) -> Any:
    class Keeping(T.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.plain, self.calls = T.nn.Parameter(T.ones(2)), T.ones(3), 0

        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            super()._apply(fn)
            self.plain, self.calls = fn(self.plain), self.calls + 1
            return self
    model = T.nn.Sequential(Keeping())
    model.double().to(T.float32).half().type(T.float64).cpu()
    return str(model[0].plain.dtype).split(".")[-1], str(model[0].w.dtype).split(".")[-1], model[0].calls


def a_compiled_module_is_itself(T: Any) -> Any:
    net = network(T).eval()
    plain = net(T.ones(4, 2)).tolist()
    net.compile(backend="eager")
    return net(T.ones(4, 2)).tolist() == plain, type(net).__name__, list(net.state_dict())


def parts_by_path(T: Any) -> Any:
    net, found = network(T), []
    for path in ("scale", "gone", "b.running_mean", "nope", "a.weight"):
        try:
            buffer = net.get_buffer(path)
            found.append(buffer if buffer is None else buffer.tolist())
        except AttributeError as error:
            found.append(str(error))
    return found, net.get_parameter("a.weight").shape, type(net.get_submodule("a")).__name__


def types(T: Any) -> Any:
    net = T.nn.Linear(2, 2)
    found = [str(net.type(T.float64).weight.dtype)]
    found.append(str(net.type("torch.FloatTensor").weight.dtype))
    return [x.split(".")[-1] for x in found]


def modules_that_stand_twice(T: Any) -> Any:
    net = network(T)
    net.again = net.a
    return len(list(net.modules())), len(list(net.modules(remove_duplicate=False)))


POINTS = (hooks_of_backward, hooks_of_backward_stand_around_those_of_forward, hooks_that_are_always_called,
          hooks_of_all_modules, a_hook_of_all_backwards_changes_gradients, hooks_of_registration,
          hooks_of_saving, versions_of_state, hooks_of_loading, own_loading_of_an_older_version,
          a_count_of_batches_that_old_states_lack, own_apply, a_compiled_module_is_itself, parts_by_path, types,
          modules_that_stand_twice)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__)
def test_a_module_does_what_torchs_does(point: Callable[[Any], Any]) -> None:
    assert point(genesis) == point(torch)


LAYERS_READ_DIRECTLY = {
    "linear": (lambda T: T.nn.Linear(2, 2), (3, 2)), "norm": (lambda T: T.nn.LayerNorm(2), (3, 2)),
    "groups": (lambda T: T.nn.GroupNorm(1, 2), (3, 2)), "batch of rows": (lambda T: T.nn.BatchNorm1d(2), (3, 2)),
    "batch of images": (lambda T: T.nn.BatchNorm2d(2), (3, 2, 2, 2)),
    "lines": (lambda T: T.nn.Conv1d(2, 2, 1), (3, 2, 4)), "images": (lambda T: T.nn.Conv2d(2, 2, 1), (3, 2, 2, 2)),
    "volumes": (lambda T: T.nn.Conv3d(2, 2, 1), (3, 2, 2, 2, 2)),
}


@pytest.mark.parametrize("name", LAYERS_READ_DIRECTLY)
@pytest.mark.parametrize("moved", ["in the registry", "a property of a subclass", "a plain attribute", "no bias",
                                   "in front of the registry's weight", "in front of the registry's bias"])
def test_where_a_layer_s_parameters_are(name: str, moved: str) -> None:
    """As torch's: the registry, or what took its place."""
    make, shape = LAYERS_READ_DIRECTLY[name]
    found = []
    for T in (torch, genesis):
        layer = make(T)
        given = T.ones_like(layer.weight.detach()) * 0.5
        bias = T.tensor([1.0, -2.0])
        with T.no_grad():
            layer.weight.copy_(given)
            layer.bias.copy_(bias)
        if moved == "in the registry":
            layer._parameters["weight"] = T.nn.Parameter(given * 4)
        elif moved == "a property of a subclass":  # what is registered stays, as in a layer of a part of a tensor
            layer.__class__ = type("Turned", (type(layer),), {
                "weight": property(lambda self, T=T: -self._parameters["weight"]),
                "bias": property(lambda self, T=T: self._parameters["bias"] * 3)})
        elif moved == "a plain attribute":
            del layer._parameters["weight"]
            layer.weight = given * 3
        elif moved == "in front of the registry's weight":
            vars(layer)["weight"] = given * 3
        elif moved == "in front of the registry's bias":
            vars(layer)["bias"] = bias * 3
        else:
            layer.bias = None
        x = T.arange(float(math.prod(shape))).reshape(shape) / 7
        found.append(layer(x).tolist())
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
