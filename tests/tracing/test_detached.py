"""Detached tensors with a history of their own, and views from under no_grad: compiled as plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
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
    return [*seen, values(f(ramp(2))), gradient(f(ramp(2)), w)]  # once: torch lets go of d's history then


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


def _copied(T: Any, b: Any, p: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        b.copy_(x.std() * T.ones(2))
        return x * 2
    return function


def _stepped(T: Any, b: Any, p: Any) -> Callable[[Any], Any]:
    optimizer = T.optim.SGD([p], lr=0.1)

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (p * x).sum()
        loss.backward()
        optimizer.step()
        with T.no_grad():
            b.fill_(2.0)
        return loss.detach()
    return function


def _stepped_through(T: Any, b: Any, p: Any) -> Callable[[Any], Any]:
    optimizer = T.optim.SGD([p], lr=0.1)

    def function(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (p * b * x).sum()
        loss.backward(retain_graph=True)
        optimizer.step()
        return loss.detach()
    return function


@pytest.mark.parametrize("make", [_copied, _stepped, _stepped_through])
def test_what_a_call_writes_or_reads_gets_a_history_outside(make: Callable[..., Any]) -> None:
    """A replay of the call that found none would take it away, or send no gradient through it."""
    seen = []
    for T in (torch, genesis):
        b, p, w = T.ones(2), T.nn.Parameter(T.ones(2)), T.ones(2, requires_grad=True)
        function = make(T, b, p)
        call = genesis.compile(function) if T is genesis else function
        found = []
        for turn in range(8):
            if turn == 4:
                b.mul_(w)
            found.append((call(T.arange(2.0)).tolist(), b.requires_grad, b.tolist(), p.tolist()))
        b.sum().backward()
        seen.append((found, w.grad.tolist()))
        if T is genesis:
            assert call.hits >= 2
    assert _alike(*seen)


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_alike, a, b))
    return bool(a == pytest.approx(b, rel=1e-6))


def _code_book(T: Any, b: Any, m: Any, kept: list[Any]) -> Any:
    optimizer = T.optim.SGD(m.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        found = m(x)
        b.data.mul_(0.9).add_(found.sum(0), alpha=0.1)
        b.data[0].add_(found.mean())
        loss = (found - b).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step, 6


def _running_sum(T: Any, b: Any, m: Any, kept: list[Any]) -> Any:
    def step(x: Any) -> Any:
        found = m(x)
        b.detach().copy_(b * 0.5 + found.sum(0))
        b.data.sub_(found[0])
        return found * b
    return step, 6


def _read_through(T: Any, b: Any, m: Any, kept: list[Any]) -> Any:
    def step(x: Any) -> Any:
        shown = b.data
        shown.add_(m(x).sum(0))
        return shown * 2
    return step, 0


def _kept(T: Any, b: Any, m: Any, kept: list[Any]) -> Any:
    def step(x: Any) -> Any:
        kept[:] = [b.data.add_(m(x).sum(0))]
        return x * 1
    return step, 0


def _in_the_result(T: Any, b: Any, m: Any, kept: list[Any]) -> Any:
    def step(x: Any) -> Any:
        made = T.zeros(3)
        shown = made.data[:2]
        shown.add_(m(x).sum(0))
        return shown
    return step, 0


@pytest.mark.parametrize("make", [_code_book, _running_sum, _read_through, _kept, _in_the_result])
def test_a_history_that_is_gone_when_the_call_ends_is_none_of_its_effects(make: Callable[..., Any]) -> None:
    """`buffer.data.add_(x)` of x with a gradient, as code books and running means are written outside of no_grad."""
    seen = []
    for T in (torch, genesis):
        b, m, kept = T.ones(2), T.nn.Linear(3, 2), []
        with T.no_grad():
            for p in m.parameters():
                p.copy_(T.arange(p.numel()).reshape(p.shape) / 8)
        step, hits = make(T, b, m, kept)
        call = genesis.compile(step) if T is genesis else step
        found = []
        for turn in range(8):
            result = call(T.arange(12.0).reshape(4, 3) / 8 + turn)
            sees_gradients = [x.requires_grad for x in (result, b, *kept)]
            for x in (result, *kept):
                if x.requires_grad:
                    x.sum().backward()
            found.append((result.tolist(), b.tolist(), sees_gradients, m.weight.grad is not None and
                          m.weight.grad.tolist()))
        seen.append(found)
        if T is genesis:
            assert call.hits >= hits, genesis.explain(call)
    assert _alike(*seen)
