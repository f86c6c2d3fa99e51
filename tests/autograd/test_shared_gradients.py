"""Gradients that lie in the gradient that backward was given: where torch's do, and what a write to either shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import genesis

Function = Callable[..., Any]

FUNCTIONS: dict[str, Function] = {
    "cat": lambda t, a, b, c, d: t.cat([a, b, c]),
    "cat of cat": lambda t, a, b, c, d: t.cat([t.cat([a, b]), c.detach(), c]),
    "cat of one twice": lambda t, a, b, c, d: t.cat([a, b, a, c]),
    "cat of a gradient's own": lambda t, a, b, c, d: t.cat([a, b * 2]),
    "cat along columns": lambda t, a, b, c, d: t.cat([a, c], 1),
    "cat of one row's columns": lambda t, a, b, c, d: t.cat([a.view(1, 6), b.view(1, 12)], 1),
    "cat of another order": lambda t, a, b, c, d: t.cat([d, b]),
    "stack": lambda t, a, b, c, d: t.stack([a, c]),
    "stack of columns": lambda t, a, b, c, d: t.stack([a, c], 1),
    "view": lambda t, a, b, c, d: a.view(3, 2),
    "sum": lambda t, a, b, c, d: a + c,
    "product": lambda t, a, b, c, d: t.cat([a, c]) * 3,
    "narrow": lambda t, a, b, c, d: b[1:],
    "all of it": lambda t, a, b, c, d: a[:],
    "a batch that is all": lambda t, a, b, c, d: a.narrow(0, 0, 2),
    "one chunk": lambda t, a, b, c, d: b.chunk(1)[0],
    "cat of all of one": lambda t, a, b, c, d: t.cat([a[:], b]),
    "the leaf": lambda t, a, b, c, d: a,
}


def leaves(t: Any) -> list[Any]:
    """Three row-major leaves and one that lies turned."""
    found = [t.ones(2, 3), t.ones(4, 3), t.ones(2, 3), t.ones(3, 2).t()]
    return [x.requires_grad_() for x in found]


def gradient_of(t: Any, y: Any) -> Any:
    return t.arange(float(y.numel())).view(y.shape)


def numbers(x: Any) -> Any:
    return None if x is None else x.tolist()


def seen(t: Any, function: Function, read_first: bool, use: Callable[[Any, list[Any]], None]) -> list[Any]:
    """The gradient that backward was given and the leaves' gradients, after `use` of both."""
    xs = leaves(t)
    y = function(t, *xs)
    if read_first:
        y.tolist()
    given = gradient_of(t, y)
    y.backward(given)
    use(given, xs)
    return [numbers(given), *(numbers(x.grad) for x in xs)]


def write_given(given: Any, xs: list[Any]) -> None:
    given.mul_(10)


def write_gradients(given: Any, xs: list[Any]) -> None:
    for x in xs:
        if x.grad is not None:
            x.grad.add_(100)


def step(given: Any, xs: list[Any]) -> None:
    for x in xs:
        if x.grad is not None:
            with genesis.no_grad(), torch.no_grad():
                x.sub_(x.grad * 0.5)
            x.grad.zero_()


@pytest.mark.parametrize("use", [write_given, write_gradients, step], ids=lambda f: f.__name__)
@pytest.mark.parametrize("read_first", [False, True], ids=["", "read first"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_writes_show_where_they_do_in_torch(name: str, read_first: bool, use: Callable[[Any, list[Any]], None]) -> None:
    assert seen(genesis, FUNCTIONS[name], read_first, use) == seen(torch, FUNCTIONS[name], read_first, use)


def test_a_second_backward_adds_where_the_first_gradient_lies() -> None:
    found = []
    for t in (genesis, torch):
        a, b, *_ = leaves(t)
        given = gradient_of(t, t.cat([a, b]))
        t.cat([a, b]).backward(given)
        t.cat([b, a]).backward(gradient_of(t, given) * 2)
        found.append([numbers(x) for x in (given, a.grad, b.grad)])
    assert found[0] == found[1]


def test_no_memory_is_asked_for() -> None:
    a, b, *_ = leaves(genesis)
    given = genesis.ones(6, 3)
    genesis.cat([a, b]).backward(given)
    genesis.eval(given, a.grad, b.grad)
    assert a.grad.data_ptr() == given.data_ptr() and b.grad.data_ptr() == given.data_ptr() + 6 * 4


def test_hooks_get_a_gradient_of_their_own() -> None:
    """A hook may return another gradient, which is the leaf's then."""
    a, b, *_ = leaves(genesis)
    a.register_hook(lambda g: g * 2)
    given = genesis.ones(6, 3)
    genesis.cat([a, b]).backward(given)
    given.zero_()
    assert a.grad.tolist() == [[2.0] * 3] * 2 and b.grad.tolist() == [[0.0] * 3] * 4


def test_an_optimizer_steps_by_them() -> None:
    found = []
    for t in (genesis, torch):
        a, b, *_ = leaves(t)
        optimizer = t.optim.AdamW([a, b], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            y = t.cat([a, b])
            y.backward(gradient_of(t, y))
            optimizer.step()
        found.append(t.cat([a, b]).detach().flatten().tolist())
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_compiled_function_gives_the_same_aliases() -> None:
    a, b, *_ = leaves(genesis)

    @genesis.compile
    def run(given: genesis.Tensor) -> None:
        genesis.cat([a, b]).backward(given)

    for _ in range(3):
        a.grad = b.grad = None
        given = genesis.ones(6, 3)
        run(given)
        given.fill_(5.0)
        assert a.grad.tolist() == [[5.0] * 3] * 2 and b.grad.tolist() == [[5.0] * 3] * 4


@pytest.mark.parametrize("seen", [True, False])
def test_one_tensor_that_is_the_gradient_of_two_and_that_numpy_has_seen(seen: bool) -> None:
    """The sums are computed of memory that numpy has let go of; one gradient shows its memory the other way round."""
    found = []
    for t in (genesis, torch):
        w, v, u = (t.tensor([1.0, 2.0, 3.0], requires_grad=True) for _ in range(3))
        (w * v * u).sum().backward()
        w.grad = v.grad
        a, b = (t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True) for _ in range(2))
        a.grad = t.zeros(2, 2)
        b.grad = a.grad.t()
        for factors in ((w, v, u), (a, b)):
            for _ in range(3):
                for x in (v, u, a) if seen else ():
                    assert x.grad.detach().numpy().tobytes()
                math.prod(factors).sum().backward()
        assert w.grad is v.grad
        found.append([x.grad.tolist() for x in (w, v, u, a, b)])
    assert found[0] == found[1]
