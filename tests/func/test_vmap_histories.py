"""`vmap` goes through what its function records, and not through what its arguments wait to be computed from."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import genesis
from genesis import func


def lines_of(function: Any) -> int:
    """Lines of Python that one call runs."""
    count = 0

    def trace(frame: Any, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(None)
    return count


def loss(w: Any, x: Any) -> Any:
    return ((w * x).sum() - 1).square()


OVER = {
    "values": func.vmap(loss, in_dims=(None, 0)),
    "gradients": func.vmap(func.grad(loss), in_dims=(None, 0)),
    "written": func.vmap(lambda w, x: x.add_(w), in_dims=(None, 0)),
}


@pytest.mark.parametrize("what", OVER)
def test_a_call_takes_as_long_whatever_its_arguments_wait_for(what: str) -> None:
    def taken(length: int) -> int:
        w, x = genesis.linspace(0.1, 0.2, 4), genesis.linspace(-1, 1, 24).view(6, 4).clone()
        for i in range(length):
            w = w * (1 + 1e-6 * i)
        return lines_of(lambda: OVER[what](w, x))
    taken(2)
    short, long = taken(10), taken(100)  # so few turns are not cut
    assert long < short + 1000  # 7,500 and more, where all is gone through


def test_gradients_by_what_is_outside_go_through_gradients_outside() -> None:
    w = genesis.linspace(0.1, 0.2, 4).requires_grad_()
    h, = genesis.autograd.grad((w ** 3).sum(), w, create_graph=True)
    x = genesis.linspace(-1, 1, 24).view(6, 4)
    found = func.vmap(lambda row: genesis.autograd.grad((h * row).sum(), w, retain_graph=True)[0])(x)
    assert genesis.allclose(found, 6 * w.detach() * x)
