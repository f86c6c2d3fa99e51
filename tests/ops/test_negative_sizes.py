"""A tensor of a negative size is an error where it is asked for, whatever asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import genesis

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "empty": lambda T, x: T.empty(2, -1),
    "zeros": lambda T, x: T.zeros(-1),
    "ones": lambda T, x: T.ones((2, -3)),
    "full": lambda T, x: T.full((-1,), 1.0),
    "rand": lambda T, x: T.rand(-2),
    "randn": lambda T, x: T.randn(2, -2),
    "randint": lambda T, x: T.randint(3, (-1,)),
    "normal": lambda T, x: T.normal(0.0, 1.0, (-1,)),
    "Tensor": lambda T, x: T.Tensor(-1),
    "empty_strided": lambda T, x: T.empty_strided((-1,), (1,)),
    "new_zeros": lambda T, x: x.new_zeros(-1),
    "new_full": lambda T, x: x.new_full((-1,), 2),
    "eye": lambda T, x: T.eye(-1),
    "linspace": lambda T, x: T.linspace(0, 1, -1),
    "repeat": lambda T, x: x.repeat(-1, 1),
    "tile": lambda T, x: x.tile(-1),
    "expand": lambda T, x: x.expand(-1, -2),
    "pad": lambda T, x: T.nn.functional.pad(x, (-2, -2)),
    "narrow": lambda T, x: x.narrow(0, 0, -1),
    "Embedding": lambda T, x: T.nn.Embedding(-1, 2),
    "Linear": lambda T, x: T.nn.Linear(2, -1),
    "one_hot": lambda T, x: T.nn.functional.one_hot(T.tensor([-1])),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_negative_size_is_an_error(name: str) -> None:
    for T in (genesis, torch):
        with pytest.raises(RuntimeError):
            CALLS[name](T, T.ones(2, 3))


def test_the_error_tells_the_sizes() -> None:
    for T in (genesis, torch):
        with pytest.raises(RuntimeError, match=r"negative dimension -1: \[2, -1\]"):
            T.empty(2, -1)
