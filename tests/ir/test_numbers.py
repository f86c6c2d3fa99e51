"""Pointwise ops on Python numbers: IEEE for floats, 64 bits for integers, the same as on tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from genesis.ir import OPS, tensor_type
from genesis.ir.numbers import fold_numbers
from genesis.ir.types import float32, float64, int8
from tests.evaluate import evaluate

POINTWISE = [n for n, op in OPS.items() if op.kind == "pointwise" and len(op.samples.cases[0].operands) < 3
             and op.number is not None and n != "cast"]
FLOATS = (0.5, -1.5, 2.0, 0.0, -0.0, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("name", [n for n in POINTWISE if "float" in OPS[n].samples.kinds])
def test_floats_fold_to_what_tensors_give(name):
    """Within the op's ulps in float64, NaN and Inf included."""
    op = OPS[name]
    arity = len(op.samples.cases[0].operands)
    attributes = op.samples.cases[0].attributes
    pairs = [(a,) for a in FLOATS] if arity == 1 else [(a, b) for a in FLOATS for b in FLOATS]
    operands = [OPS["input"](index=i, type=tensor_type((len(pairs),), float64)) for i in range(arity)]
    feeds = {x: np.array([p[i] for p in pairs]) for i, x in enumerate(operands)}
    [want] = evaluate([op(*operands, **attributes)], feeds)
    for numbers, expected in zip(pairs, want, strict=True):
        got = fold_numbers(op, *numbers, **attributes)
        if math.isnan(expected):
            assert math.isnan(got), f"{name}{numbers}"
        else:
            assert got == pytest.approx(expected, rel=8 * 2.0**-52, abs=1e-15), f"{name}{numbers}"


def test_integers_wrap_at_64_bits():
    assert fold_numbers(OPS["mul"], 2**62, 4) == 0
    assert fold_numbers(OPS["add"], 2**63 - 1, 1) == -2**63
    assert fold_numbers(OPS["floor_divide"], -7, 2) == -4
    assert fold_numbers(OPS["fmod"], -7, 2) == -1
    assert fold_numbers(OPS["bitwise_not"], 5) == -6


def test_truth_values():
    assert fold_numbers(OPS["add"], True, True) is True
    assert fold_numbers(OPS["mul"], True, False) is False
    assert fold_numbers(OPS["bitwise_not"], True) is False


def test_integers_divided_by_zero_raise():
    with pytest.raises(ZeroDivisionError):
        fold_numbers(OPS["floor_divide"], 1, 0)


def test_cast_takes_the_targets_range():
    assert fold_numbers(OPS["cast"], 2.9, dtype=int8) == 2
    assert fold_numbers(OPS["cast"], 300, dtype=int8) == 44
    assert fold_numbers(OPS["cast"], 0.1, dtype=float32) == float(np.float32(0.1))
