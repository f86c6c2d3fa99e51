"""Detached tensors with a history of their own, and views from under no_grad: compiled as plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from calls import ramp, values

import genesis


def made_inside(wrap: Callable[..., Any], w: Any) -> list[Any]:
    @wrap
    def f(x: Any) -> Any:
        d = (x * w).detach()
        d.mul_(w)
        return d * 2
    return [gradient(f(ramp(2)), w) for _ in range(3)]


def got_between_calls(wrap: Callable[..., Any], w: Any) -> list[Any]:
    d = (ramp(2) * 1).detach()
    f = wrap(lambda x: x * d)
    seen = [values(f(ramp(2))) for _ in range(3)]
    d.mul_(w)
    return [*seen, gradient(f(ramp(2)), w), gradient(f(ramp(2)), w)]


def of_an_argument(wrap: Callable[..., Any], w: Any) -> list[Any]:
    f = wrap(lambda x: x * 2)
    d = (ramp(2) * 1).detach()
    seen = [values(f(d)) for _ in range(3)]
    d.mul_(w)
    return [*seen, gradient(f(d), w)]


def of_results(wrap: Callable[..., Any], w: Any) -> list[Any]:
    @wrap
    def f(x: Any) -> Any:
        y = x * 2
        d = y.detach()
        return d, d[0], y
    seen = []
    for _ in range(3):
        d, first, y = f(ramp(2))
        first.mul_(w[1])
        seen.append((values((d, first, y)), gradient(d, w)))
    return seen


def a_view_inside(wrap: Callable[..., Any], w: Any) -> list[Any]:
    @wrap
    def f(x: Any) -> Any:
        with genesis.no_grad():
            v = w[0]
        return v * x + w[1]
    return [gradient(f(ramp(2)), w) for _ in range(3)]


def a_view_returned(wrap: Callable[..., Any], w: Any) -> list[Any]:
    @wrap
    def f() -> Any:
        with genesis.no_grad():
            return w[0]
    return [(values(f()), f().is_leaf, gradient(f() * 2, w)) for _ in range(3)]


def gradient(result: Any, w: Any) -> Any:
    """The result and its sum's gradient by w."""
    w.grad = None
    result.sum().backward()
    return values((result, w.grad))


@pytest.mark.parametrize("program", [made_inside, got_between_calls, of_an_argument, of_results, a_view_inside,
                                     a_view_returned])
def test_gradients(program: Callable[..., Any]) -> None:
    plain = program(lambda f: f, ramp(2).requires_grad_())
    assert program(genesis.compile, ramp(2).requires_grad_()) == plain
