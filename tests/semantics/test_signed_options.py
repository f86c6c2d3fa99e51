"""Options of ops that are equal and not the same: 0.0 and -0.0, one after the other in one process.

Equal keys would give the second the program of the first, with the first one's sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.engine.state import engine_state
from genesis.ir.node import FLOAT_ATTRIBUTES, OPS, SignedAttributes, make
from genesis.ir.verify import ATTRIBUTES
from genesis.nn import functional as F

VALUES = [-1.0, 2.0]
"""No zeros: which of two zeros a maximum gives differs from processor to processor."""
OPTIONS: dict[str, Callable[[Any, Any, float], Any]] = {
    "leaky_relu": lambda f, x, option: f.leaky_relu(x, option),
    "elu": lambda f, x, option: f.elu(x, option),
    "hardtanh": lambda f, x, option: f.hardtanh(x, option, 1.0),
    "hardtanh, upper": lambda f, x, option: f.hardtanh(x, -1.0, option),
    "threshold": lambda f, x, option: f.threshold(x, 0.5, option),
    "softplus": lambda f, x, option: f.softplus(x, option),
    "pad": lambda f, x, option: f.pad(x, (1, 1), value=option),
    "hardshrink": lambda f, x, option: f.hardshrink(x, option),
}
_sizes = count(5)


def bits(values: Any) -> bytes:
    return bytes(np.asarray(values.detach().cpu().numpy(), np.float32).tobytes())


@pytest.mark.parametrize("first", [0.0, -0.0])
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_keeps_its_sign(name: str, first: float, cpu_or_pretended_gpu: str) -> None:
    """Values and gradients, of a length that no test before had, so that `first` makes the program."""
    call, data = OPTIONS[name], VALUES + [1.0] * next(_sizes)
    for option in (first, -first, first):
        ours = genesis.tensor(data, device=cpu_or_pretended_gpu, requires_grad=True)
        theirs = torch.tensor(data, requires_grad=True)
        results = call(F, ours, option), call(torch.nn.functional, theirs, option)
        for y in results:
            (y * y).nan_to_num(0.0, 0.0, 0.0).sum().backward()
        assert bits(results[0]) == bits(results[1])
        assert ours.grad.tolist() == pytest.approx(theirs.grad.tolist(), nan_ok=True)


def test_both_signs_in_one_program(cpu_or_pretended_gpu: str) -> None:
    x = genesis.tensor(VALUES + [1.0] * next(_sizes), device=cpu_or_pretended_gpu)
    y = genesis.stack([F.leaky_relu(x, 0.0), F.leaky_relu(x, -0.0), F.hardtanh(x, -0.0, 1.0), F.hardtanh(x, 0.0, 1.0)])
    signs = [math.copysign(1.0, row[0]) for row in y.tolist()]
    assert signs == [-1.0, 1.0, -1.0, 1.0]


@pytest.mark.parametrize("first", [0.0, -0.0])
def test_a_compiled_function_keeps_the_sign(first: float) -> None:
    compiled = genesis.compile(lambda x, option: F.leaky_relu(x, option) + F.pad(x, (1, -1), value=option))
    x = genesis.tensor([0.0, -1.0, -1.0] + [-0.0] * next(_sizes))
    for option in (first, -first, first, -first):
        expected = torch.nn.functional.leaky_relu(torch.tensor(x.tolist()), option)
        expected = expected + torch.nn.functional.pad(torch.tensor(x.tolist()), (1, -1), value=option)
        assert bits(compiled(x, option)) == bits(expected)


def test_sizes_that_change_keep_the_sign(cpu_or_pretended_gpu: str) -> None:
    """Keys without sizes, and plans filled in for other sizes."""
    for size in (7, 9, 12, 11):
        for option in (0.0, -0.0):
            x = genesis.tensor([-1.0] * size, device=cpu_or_pretended_gpu)
            y = F.leaky_relu(x, option) * F.pad(x, (1, 1), value=option)[:-2]
            assert math.copysign(1.0, y.tolist()[0]) == -1.0  # one of the two is -0.0
            assert math.copysign(1.0, F.leaky_relu(x, option).tolist()[0]) == -math.copysign(1.0, option)


def test_an_option_that_is_no_number_is_one_program() -> None:
    x = genesis.tensor([1.0] * next(_sizes))
    F.pad(x, (1, 1), value=float("nan")).tolist()
    before = engine_state.plans.compiled
    assert math.isnan(F.pad(x, (1, 1), value=float("nan")).tolist()[0])
    assert engine_state.plans.compiled == before


def test_nodes_with_signed_attributes_are_apart() -> None:
    x = make(OPS["const"], (), (1.0, genesis.tensor(1.0).spec))
    plus, minus = (make(OPS["leaky_relu"], (x,), (zero,)) for zero in (0.0, -0.0))
    assert plus is not minus and minus is make(OPS["leaky_relu"], (x,), (-0.0,))
    assert type(plus.attrs) is tuple and type(minus.attrs) is SignedAttributes
    assert plus.attrs != minus.attrs and minus.attrs != plus.attrs and len({plus.attrs, minus.attrs}) == 2


def test_every_attribute_that_may_be_a_float_is_told_apart() -> None:
    named = {name for name, fits in ATTRIBUTES.items() if fits(0.5) and not fits("none")}
    assert named == FLOAT_ATTRIBUTES


@pytest.mark.parametrize("places", [2.0, np.float64(2.0), True, "2"])
def test_places_that_are_no_int_are_refused_though_equal_to_some(places: Any) -> None:
    """`round(decimals=2.0)` had the program of `decimals=2`, or none, and then `decimals=2` had none either."""
    x = genesis.tensor([1.234, 5.678])
    assert x.round(decimals=2).tolist() == pytest.approx([1.23, 5.68])
    with pytest.raises(TypeError, match="'decimals' must be int"):
        x.round(decimals=places)
    assert x.round(decimals=np.int64(1)).tolist() == pytest.approx([1.2, 5.7])
