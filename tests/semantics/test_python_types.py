"""Python's `float`, `int` and `bool` where a dtype is asked for: torch takes them for float64, int64 and bool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import genesis

CALLS: dict[str, Callable[[Any, type], Any]] = {
    "zeros": lambda lib, kind: lib.zeros(2, dtype=kind),
    "full": lambda lib, kind: lib.full((2,), 1, dtype=kind),
    "tensor": lambda lib, kind: lib.tensor([1, 0], dtype=kind),
    "as_tensor": lambda lib, kind: lib.as_tensor([1, 0], dtype=kind),
    "zeros_like": lambda lib, kind: lib.zeros_like(lib.ones(2), dtype=kind),
    "new_ones": lambda lib, kind: lib.ones(2).new_ones(2, dtype=kind),
    "empty_strided": lambda lib, kind: lib.empty_strided((2,), (1,), dtype=kind).zero_(),
    "frombuffer": lambda lib, kind: lib.frombuffer(bytearray(8), dtype=kind),
    "to(kind)": lambda lib, kind: lib.ones(2).to(kind),
    "to(dtype=kind)": lambda lib, kind: lib.ones(2).to(dtype=kind),
    "to('cpu', kind)": lambda lib, kind: lib.ones(2).to("cpu", kind),
    "sum": lambda lib, kind: lib.ones(2).sum(dtype=kind),
    "prod": lambda lib, kind: lib.prod(lib.ones(2), dtype=kind),
}
FLOATING: dict[str, Callable[[Any, type], Any]] = {
    "rand": lambda lib, kind: lib.rand(2, dtype=kind) * 0,
    "linspace": lambda lib, kind: lib.linspace(0, 1, 3, dtype=kind),
    "eye": lambda lib, kind: lib.eye(2, dtype=kind),
    "cumsum": lambda lib, kind: lib.ones(2).cumsum(0, dtype=kind),
    "mean": lambda lib, kind: lib.ones(2).mean(dtype=kind),
    "softmax": lambda lib, kind: lib.nn.functional.softmax(lib.ones(2), 0, dtype=kind),
    "view": lambda lib, kind: lib.zeros(2, dtype=lib.int64).view(kind),
    "Linear": lambda lib, kind: lib.nn.Linear(2, 2, dtype=kind).weight * 0,
    "Module.to": lambda lib, kind: lib.nn.Linear(2, 2).to(kind).weight * 0,
    "promote_types": lambda lib, kind: lib.zeros(1, dtype=lib.promote_types(kind, lib.float32)),
}


def compare(call: Callable[[Any, type], Any], kind: type) -> None:
    theirs, ours = call(torch, kind), call(genesis, kind)
    assert repr(ours.dtype) == repr(theirs.dtype).replace("torch", "genesis") and ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("kind", [float, int, bool])
@pytest.mark.parametrize("name", CALLS)
def test_a_type_of_pythons_is_its_dtype(name: str, kind: type) -> None:
    compare(CALLS[name], kind)


@pytest.mark.parametrize("name", FLOATING)
def test_float_is_float64(name: str) -> None:
    compare(FLOATING[name], float)


def test_limits_of_a_type() -> None:
    assert genesis.finfo(float).max == torch.finfo(float).max and genesis.can_cast(int, float)


@pytest.mark.parametrize("kind", [str, object, complex, 1, "float32"])
def test_anything_else_is_no_dtype(kind: Any) -> None:
    with pytest.raises(TypeError, match="expected a genesis dtype"):
        genesis.zeros(2, dtype=kind)


@pytest.mark.parametrize("call", [lambda lib: lib.set_default_dtype(float), lambda lib: lib.ones(2).type(int)])
def test_what_torch_refuses(call: Callable[[Any], Any]) -> None:
    for lib in (torch, genesis):
        with pytest.raises((TypeError, ValueError)):
            call(lib)


def test_arguments_that_are_too_many_are_counted_with_those_that_are_left_out() -> None:
    with pytest.raises(TypeError, match=r"relu: takes from 1 to 2 positional arguments but 4 were given\n"
                                        r"  input: genesis.float32 of shape \(2,\) on cpu\n  at .*\n"
                                        r"  try: relu\(input, inplace=False\)"):
        genesis.nn.functional.relu(genesis.ones(2), False, 1, 2)
    with pytest.raises(TypeError, match="matmul: takes 2 positional arguments but 3 were given"):
        genesis.matmul(genesis.ones(2), genesis.ones(2), genesis.ones(2))
