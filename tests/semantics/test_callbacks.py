"""Where memory and values end no line of Genesis runs: Python prints an interrupt that comes there, and forgets it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genesis

HOME = str(Path(genesis.__file__).parent)


class Doubled(genesis.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


def bound() -> list[Any]:
    """Memories that a plan has bound, with views of them."""
    a, b = genesis.ones(2, 3), genesis.ones(3, 2)
    for _ in range(4):
        b += a.t().exp() @ a @ a.t()
        genesis.eval(b)
    return [a, b]


def values() -> list[Any]:
    x = genesis.ones(3)
    return [x, (x + 1.0).exp(), (x * 2.0).sin()]


def crossings() -> list[Any]:
    x = genesis.ones(3, requires_grad=True)
    return [x, Doubled.apply(x), Doubled.apply(Doubled.apply(x))]


@pytest.mark.parametrize("make", [bound, values, crossings])
def test_no_line_of_genesis_runs_where_something_ends(make: Callable[[], list[Any]]) -> None:
    make()  # plans, and what is imported late
    held, calls = make(), list[str]()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            calls.append(frame.f_code.co_qualname)
    gc.disable()
    sys.setprofile(note)
    try:
        held.clear()
    finally:
        sys.setprofile(None)
        gc.enable()
    assert calls == []
