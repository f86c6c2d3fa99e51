"""Derivatives of functions of nests, of modules, of each other: genesis.func beside torch.func."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.func.tree import flatten

LIBRARIES = (genesis, torch)


def data(lib: Any, *shape: int) -> Any:
    """The same numbers for a shape in both libraries."""
    return lib.tensor(np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32))


def network(lib: Any) -> Any:
    """A module with the same parameters in both libraries, two of which are one."""
    net = lib.nn.Sequential(lib.nn.Linear(3, 3), lib.nn.Tanh(), lib.nn.Linear(3, 3), lib.nn.BatchNorm1d(3).eval())
    net[2].weight = net[0].weight
    with lib.no_grad():
        net[0].weight.copy_(data(lib, 3, 3))
        for layer in (net[0], net[2]):
            layer.bias.copy_(data(lib, 3))
    return net


def of_each_example(lib: Any, func: Any) -> Any:
    """Per-example gradients of a module's parameters."""
    net = network(lib)
    parameters = {name: p.detach() for name, p in net.named_parameters()}
    buffers = dict(net.named_buffers())

    def loss(parameters: Any, x: Any) -> Any:
        return (func.functional_call(net, (parameters, buffers), (x.unsqueeze(0),)) ** 2).sum()
    return func.vmap(func.grad(loss), in_dims=(None, 0))(parameters, data(lib, 5, 3))


def of_an_ensemble(lib: Any, func: Any) -> Any:
    """Several models called as one."""
    nets = []
    for i in range(3):
        net = lib.nn.Linear(3, 2)
        with lib.no_grad():
            net.weight.copy_(data(lib, 2, 3) * (i + 1))
            net.bias.copy_(data(lib, 2) + i)
        nets.append(net)
    parameters, buffers = func.stack_module_state(nets)
    y = func.vmap(lambda p, b, x: func.functional_call(nets[0], (p, b), (x,)), in_dims=(0, 0, None))(
        parameters, buffers, data(lib, 5, 3))
    y.sum().backward()
    return y, parameters["weight"].grad, parameters["weight"].requires_grad


PROGRAMS = {
    "gradient of a nest": lambda lib, func: func.grad(lambda p, x: ((p["w"] @ x + p["b"][0]) ** 2).sum(), (0, 1))(
        {"w": data(lib, 2, 3), "b": [data(lib, 2)]}, data(lib, 3)),
    "value, gradient and something beside": lambda lib, func: func.grad_and_value(
        lambda x: (x.sin().sum(), {"y": x * 2}), has_aux=True)(data(lib, 3)),
    "vjp of a nest": lambda lib, func: (lambda y, back: (y, back({"a": data(lib, 3), "b": data(lib, 3) * 2})))(
        *func.vjp(lambda x: {"a": x.sin(), "b": x * x}, data(lib, 3))),
    "vjp with something beside": lambda lib, func: (lambda y, back, aux: (y, back(y), aux))(
        *func.vjp(lambda x, z: (x * z, x.exp()), data(lib, 3), data(lib, 1, 3)[0], has_aux=True)),
    "jvp of several": lambda lib, func: func.jvp(
        lambda x, y: (x * y, {"s": x.exp().sum()}), (data(lib, 3), data(lib, 1)), (data(lib, 1, 3)[0], data(lib, 1))),
    "linearize": lambda lib, func: (lambda y, push: (y, push(data(lib, 3)), push(data(lib, 1, 3)[0])))(
        *func.linearize(lambda x: x.sin() * x.sum(), data(lib, 3))),
    "jacrev of a nest": lambda lib, func: func.jacrev(lambda p: {"y": (p["w"] @ p["x"]).tanh()})(
        {"w": data(lib, 2, 3), "x": data(lib, 3)}),
    "jacrev in chunks": lambda lib, func: func.jacrev(lambda x: x.sin() * x.sum(), chunk_size=2)(data(lib, 3)),
    "jacfwd by several": lambda lib, func: func.jacfwd(lambda x, y: (x * y, x.sum() * y.exp()), argnums=(0, 1))(
        data(lib, 3), data(lib, 1)),
    "jacfwd with something beside": lambda lib, func: func.jacfwd(lambda x: (x ** 3, x.sum()), has_aux=True)(
        data(lib, 3)),
    "jacfwd of jacrev": lambda lib, func: func.jacfwd(func.jacrev(lambda x: (x ** 3).sum() * x))(data(lib, 3)),
    "jacrev of jacfwd": lambda lib, func: func.jacrev(func.jacfwd(lambda x: (x ** 3).sum() * x))(data(lib, 3)),
    "hessian by several": lambda lib, func: func.hessian(lambda x, y: (x * y).sin().sum(), (0, 1))(
        data(lib, 3), data(lib, 1)),
    "jvp of a gradient": lambda lib, func: func.jvp(
        func.grad(lambda x: (x.exp() * x.flip(0)).sum()), (data(lib, 3),), (data(lib, 1, 3)[0],)),
    "gradient of jvp": lambda lib, func: func.grad(lambda x: func.jvp(lib.sin, (x,), (x * 2,))[1].sum())(data(lib, 3)),
    "a batch of jacobians": lambda lib, func: func.vmap(func.jacrev(lambda x: x.sin() * x.sum()))(data(lib, 4, 3)),
    "a batch of tangents": lambda lib, func: func.vmap(
        lambda t: func.jvp(lambda x: x.exp() * x.sum(), (data(lib, 3),), (t,))[1])(data(lib, 4, 3)),
    "gradients of each example": of_each_example,
    "an ensemble": of_an_ensemble,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    mine, theirs = (flatten(PROGRAMS[name](lib, lib.func))[0] for lib in LIBRARIES)
    assert len(mine) == len(theirs)
    for got, want in zip(mine, theirs, strict=True):
        if not isinstance(want, torch.Tensor):
            assert got == want
            continue
        assert got.requires_grad == want.requires_grad
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), 1e-4, 1e-5)


def test_what_a_function_closes_over_keeps_its_gradient() -> None:
    def program(lib: Any) -> Any:
        w = data(lib, 3).requires_grad_()
        g = lib.func.grad(lambda x: (x * x * w).sum())(data(lib, 1, 3)[0])
        j = lib.func.jacrev(lambda x: x * w)(data(lib, 1, 3)[0])
        (g.sum() + (j ** 2).sum()).backward()
        return g.requires_grad, j.requires_grad, w.grad
    mine, theirs = (program(lib) for lib in LIBRARIES)
    assert mine[:2] == theirs[:2] == (True, True)
    np.testing.assert_allclose(mine[2].numpy(), theirs[2].numpy(), 1e-5)


def test_functional_call_leaves_the_module_as_it_is() -> None:
    net = network(genesis)
    before = dict(net.named_parameters(remove_duplicate=False))
    x = data(genesis, 2, 3)
    y = genesis.func.functional_call(net, {"0.weight": genesis.zeros(3, 3)}, x)
    tied = genesis.func.functional_call(net, {"0.weight": genesis.zeros(3, 3)}, x, tie_weights=False)
    assert not genesis.equal(y, tied)
    assert all(value is before[name] for name, value in net.named_parameters(remove_duplicate=False))


REFUSED = {
    "no scalar": (lambda lib: lib.func.grad(lambda a: a * 2)(lib.ones(2)), "return a scalar Tensor, got tensor with 1"),
    "no tensor": (lambda lib: lib.func.grad(lambda a: (a.sum(), 1))(lib.ones(2)), "to return a Tensor, got <class"),
    "no argument": (lambda lib: lib.func.grad(lambda a: a.sum(), 3)(lib.ones(2)), "Got argnum=3, but only 1"),
    "no aux": (lambda lib: lib.func.grad(lambda a: a.sum(), has_aux=True)(lib.ones(2)), "(output, aux)"),
    "a wrong tangent": (lambda lib: lib.func.jvp(lambda a: a, (lib.ones(2),), (lib.ones(3),)), "different size than"),
    "a wrong weight": (lambda lib: lib.func.vjp(lambda a: a * 1, lib.ones(2))[1](lib.ones(3)), "ismatch in shape"),
    "an unknown path": (lambda lib: lib.func.functional_call(
        lib.nn.Linear(2, 2), {"x": lib.ones(2)}, lib.ones(2), strict=True), "Error(s) in reparametrizing for Linear"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_torchs(name: str) -> None:
    program, words = REFUSED[name]
    for lib in LIBRARIES:
        with pytest.raises(RuntimeError) as error:
            program(lib)
        assert words in str(error.value).splitlines()[0]  # behind it is the line of this test, with the words
