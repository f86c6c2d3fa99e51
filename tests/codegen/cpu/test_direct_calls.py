"""Calls that a plan makes of torch itself, without a lowering's line of Python, and numbers that it gives as tensors.

That both have a lowering's bits is looked at wherever a lowering is evaluated (`tests/evaluate.py`: every case of the
registry); here are numbers and values that no case has, and what a plan holds.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import genesis
from genesis.codegen.cpu.lowerings import LOWERINGS
from genesis.engine.plan_lookup import last_plan
from genesis.nn import functional as F
from genesis.runtime.cpu.number_tensors import is_in_range, operand_tensor
from genesis.runtime.plan import Call, NumberTensor
from tests.evaluate import same_bits

NUMBERS = [0.0, -0.0, 1, 2, True, -3, 0.1, 2.5, 1e-45, 1e-320, 1e39, math.inf, -math.inf, math.nan, 2**53 + 1, 2**63]
AS_TENSORS = [(name, position) for name, row in LOWERINGS.items() for position in row.as_tensors
              if name not in ("gcd", "lcm")]  # of integers alone


def drawn(size: int, dtype: torch.dtype) -> torch.Tensor:
    """Ordinary values, and those at the ends of the range."""
    found = torch.linspace(-3, 3, size, dtype=dtype)
    ends = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 1e-320, 3e38], dtype=dtype)
    found[:len(ends)] = ends[:size]
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "position"), AS_TENSORS)
def test_a_number_as_a_tensor_gives_the_same_bits(name: str, position: int, dtype: torch.dtype) -> None:
    row = LOWERINGS[name]
    for size in (1, 7, 96, 5000):
        x = drawn(size, dtype)
        for value in NUMBERS:
            operands: list[Any] = [x % 2 == 1, x, x.flip(0)] if name == "where" else [x, x.flip(0)]
            given, found = [], []
            if (row.refuses_far and not is_in_range(value, dtype)) or (name == "sub" and value is True):
                continue  # an error both times
            for number in (value, operand_tensor(value, dtype)):
                operands[position] = number
                out = torch.empty_like(x, dtype=torch.bool if "logical" in name else dtype)
                if name in ("eq", "ne", "lt", "le", "gt", "ge"):
                    out = torch.empty_like(x, dtype=torch.bool)
                given.append(list(operands))
                row.function((out,), *operands)
                found.append(out)
            assert same_bits(*found), (value, size)


def test_narrow_numbers_are_not_rounded_first() -> None:
    """torch computes bfloat16 + 0.1 with 0.1 in float32: no tensor of bfloat16 holds that."""
    for dtype in (genesis.float16, genesis.bfloat16, genesis.int32):
        x = genesis.ones(4, dtype=dtype)
        genesis.eval(x, x + 3, x * 2)
        plan = last_plan()
        assert plan is not None and not any(isinstance(r, NumberTensor) for r in plan.plan.registers)
    x = genesis.full((64,), 1.0, dtype=genesis.bfloat16)
    assert (x + 0.001953).tolist() == (torch.ones(64, dtype=torch.bfloat16) + 0.001953).tolist()


@pytest.mark.parametrize(("name", "position"), [(name, position) for name, row in LOWERINGS.items()
                                                for position in row.integers_as_tensors if name not in ("gcd", "lcm")])
def test_an_integer_as_a_tensor_gives_the_same_integers(name: str, position: int) -> None:
    row, x = LOWERINGS[name], torch.tensor([0, 1, -1, 5, -7, 2**62, -2**63, 2**63 - 1])
    compared = name in ("eq", "ne", "lt", "le", "gt", "ge")
    for value in (1, 2, -3, 5, 0, 2**53 + 1, 2**63 - 1):
        if value == 0 and name in ("div", "floor_divide", "fmod", "remainder"):
            continue  # an error both times
        if name.endswith("_shift") and not 0 <= value < 64:
            continue
        found = []
        for number in (value, operand_tensor(value, torch.int64)):
            operands: list[Any] = [x, x.flip(0)]
            operands[position] = number
            out = torch.empty(x.shape, dtype=torch.bool if compared or "logical" in name else (
                torch.float32 if name in ("div", "atan2") else torch.int64))
            try:
                row.function((out,), *operands)
            except RuntimeError as error:
                found.append(str(error))
            else:
                found.append(out.tolist())
        assert found[0] == found[1], value


def test_integers_of_a_plan_are_tensors_and_fractions_are_not() -> None:
    """A comparison of integers with a fraction computes in float32."""
    x = genesis.arange(6)
    genesis.eval(x)
    for turn in range(5):
        one, other, half, same = (x + turn) // 2, x % 3, x > 2.5, x == turn
        genesis.eval(one, other, half, same)
        assert one.tolist() == [(i + turn) // 2 for i in range(6)] and other.tolist() == [i % 3 for i in range(6)]
        assert half.tolist() == [i > 2.5 for i in range(6)] and same.tolist() == [i == turn for i in range(6)]
    compiled = last_plan()
    assert compiled is not None
    numbers = [r.dtype for r in compiled.plan.registers if isinstance(r, NumberTensor)]
    assert numbers.count(genesis.int64) == 4 and numbers.count(genesis.float32) == 1, "2.5 is compared as a fraction"


def test_a_division_by_an_integer_that_is_0_raises() -> None:
    x = genesis.arange(3)
    for divide in (lambda: x // 0, lambda: x % 0):
        with pytest.raises(RuntimeError, match=r"ZeroDivisionError"):
            divide().tolist()


def test_another_number_gives_another_result() -> None:
    """The number is an input of the plan, each time anew: of one call, of several, and once these are one function."""
    x = genesis.tensor([1.0, -2.0])
    for turn in range(6):
        assert (x * (turn + 0.5)).tolist() == [turn + 0.5, -2 * (turn + 0.5)]
        assert ((x * (turn + 0.5)).exp() - turn).tolist() == [
            pytest.approx(math.exp(turn + 0.5) - turn), pytest.approx(math.exp(-2 * turn - 1) - turn)]
    compiled = last_plan()
    assert compiled is not None and sum(isinstance(r, NumberTensor) for r in compiled.plan.registers) == 2


def test_a_number_beyond_the_range_is_what_it_is_to_torch() -> None:
    x = genesis.tensor([1.0, -1.0])
    for far in (1e39, -1e39):
        for _ in range(4):
            assert (x * far).tolist() == (torch.tensor([1.0, -1.0]) * far).tolist()
            assert ((x + far).exp() < far).tolist() == ((torch.tensor([1.0, -1.0]) + far).exp() < far).tolist()
    with pytest.raises(RuntimeError, match="cannot be converted"):
        genesis.where(x > 0, x, 1e39).tolist()


def test_small_calls_are_direct_and_large_ones_choose() -> None:
    w = genesis.ones(64, 64)
    wide = genesis.ones(512, 512)
    genesis.eval(w, wide)
    for weight, direct in ((w, True), (wide, False)):
        x = genesis.ones(2, len(weight))
        genesis.eval(x)
        F.linear(x, weight).sum().item()
        compiled = last_plan()
        assert compiled is not None
        calls = {call.label.split()[0]: call for call in compiled.plan.steps if isinstance(call, Call)}
        assert (calls["linear"].direct is not None) is direct
        assert calls["sum"].direct is not None
