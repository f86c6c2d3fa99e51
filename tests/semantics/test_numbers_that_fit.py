"""Numbers that a dtype cannot hold are an error, as in torch: none of them becomes another number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import genesis

INF = float("inf")
NUMBERS = [300, -1, -300, 2**40, -2**40, 3.7, -3.7, 255, 256, -255, -256, 127, 128, -128, -129, 32768, -32769, 70000,
           1e10, 1e30, INF, -INF, float("nan"), True, 65504, 65505, 65519.0, 65520.0, 3.4028234e38, 3.41e38, 1e300]
DTYPES = ["uint8", "int8", "int16", "int32", "int64", "bool", "float16", "bfloat16", "float32", "float64"]
CALLS: list[tuple[str, Callable]] = [
    ("tensor([v])", lambda L, v, d: L.tensor([v], dtype=d)),
    ("tensor(v)", lambda L, v, d: L.tensor(v, dtype=d)),
    ("tensor([[1, 2], [v, 3]])", lambda L, v, d: L.tensor([[1, 2], [v, 3]], dtype=d)),
    ("as_tensor", lambda L, v, d: L.as_tensor((v, 0), dtype=d)),
    ("new_tensor", lambda L, v, d: L.zeros(1, dtype=d).new_tensor([v])),
    ("full", lambda L, v, d: L.full((1,), v, dtype=d)),
    ("fill_", lambda L, v, d: L.zeros(1, dtype=d).fill_(v)),
    ("masked_fill", lambda L, v, d: L.zeros(2, dtype=d).masked_fill(L.tensor([True, False]), v)),
    ("masked_fill_", lambda L, v, d: L.zeros(1, dtype=d).masked_fill_(L.tensor([True]), v)),
]


def outcome(call: Callable, L: Any, value: Any, dtype: str) -> str:
    """The values as text, or that it was refused."""
    try:
        return str(call(L, value, getattr(L, dtype)).double().tolist())
    except RuntimeError as error:
        assert "overflow" in str(error)
        return "refused"


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_as_torch(name: str, call: Callable, dtype: str) -> None:
    found = {value: outcome(call, genesis, value, dtype) for value in NUMBERS}
    assert found == {value: outcome(call, torch, value, dtype) for value in NUMBERS}


def test_the_error_has_four_parts() -> None:
    with pytest.raises(RuntimeError, match=r"^tensor: .*genesis.uint8 without overflow: 300\n  at .*\.py:\d+: (.|"
                                           r"\n)*  try: numbers from -255 to 255"):
        genesis.tensor([1, 300], dtype=genesis.uint8)


@pytest.mark.parametrize("number", [2**64, -2**63 - 1, 2**80])
def test_an_integer_that_no_dtype_holds_is_refused_where_it_is_written(number: int) -> None:
    """When it was computed, the values that were pending beside it could not be read any more."""
    x, y = genesis.ones(3).long() * 2, genesis.ones(2) * 3
    for call in (lambda: x + number, lambda: x.float() * number, lambda: (x * 1).add_(number), lambda: x > number):
        with pytest.raises(OverflowError, match="range of any integer dtype"):
            call()
    assert (x.tolist(), y.tolist()) == ([2, 2, 2], [3.0, 3.0])
    assert (genesis.ones(1) * (2**64 - 1)).item() == 2.0**64
