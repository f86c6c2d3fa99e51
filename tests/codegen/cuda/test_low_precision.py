"""The cheap forms of elementary functions: every value of float16 and bfloat16, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.ir import OPS, Graph
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.types import DType, bfloat16, dtype_named, float16, float32
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed, torch_dtype
from tests.codegen.cuda.programs import an_input, some
from tests.codegen.cuda.run_interpreted import run_schedule
from tests.sweeping import each_value

ULPS = 1.0
"""What is promised: half for the rounding to the dtype, the rest for the formula."""


def every_value(name: str) -> torch.Tensor:
    """All bit patterns of a 16-bit dtype that are numbers."""
    x = torch.arange(-2**15, 2**15, dtype=torch.int32).to(torch.int16).view(torch_dtype(dtype_named(name)))
    return x[~torch.isnan(x)]


def computed(name: str, data: torch.Tensor) -> torch.Tensor:
    """The op's kernel on this data, in the interpreter."""
    x = an_input(0, tuple(data.shape), dtype_named(str(data.dtype).removeprefix("torch.")))
    [found] = run_schedule(fuse(decomposed(Graph((x,), (OPS[name](x),)))), [data], most_programs=256)
    return found.reshape(data.shape)


def ulps(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest error in units of the last place of the exact result."""
    info = torch.finfo(got.dtype)
    want = want.clamp(-info.max, info.max)
    exponent = torch.frexp(want.abs().clamp(min=info.tiny))[1] - 1
    unit = torch.ldexp(torch.full_like(want, info.eps), exponent)
    error = (got.double().clamp(-info.max, info.max) - want).abs() / unit
    return float(error[~torch.isnan(error)].max())


@each_value
@pytest.mark.parametrize("dtype", [bfloat16, float16])
@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "erf", "reciprocal", "ndtr"])
def test_every_value_is_within_one_ulp(name: str, dtype) -> None:
    data = every_value(dtype.name)
    got = computed(name, data)
    assert got.dtype is data.dtype
    wide = data.double()
    exact = torch.erfc(-wide * math.sqrt(0.5)) / 2 if name == "ndtr" else getattr(torch, name)(wide)
    assert ulps(got, exact) <= ULPS


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "erf"])
def test_infinities_zeros_and_nan(name: str) -> None:
    data = torch.tensor([math.inf, -math.inf, 0.0, -0.0, math.nan]).to(torch.bfloat16)
    got = computed(name, data)
    want = getattr(torch, name)(data)
    np.testing.assert_array_equal(got.float().numpy(), want.float().numpy())
    assert got.signbit().tolist()[:4] == want.signbit().tolist()[:4]


def sum_of_powers(dtype: DType, also: bool) -> str:
    """The kernel's text of log(Σ exp(x - max x)) in float32, as cross-entropy has it, compared with float64; with
    `also` the powers are a result, too."""
    x = an_input(0, (6, 301), dtype)
    y = p.cast(x, dtype=float32)
    top = movement.expand(r.max(y, axes=(1,), keepdims=True), shape=y.shape)
    powers = p.exp(p.sub(y, top))
    found = p.log(r.sum(powers, axes=(1,)))
    data = some(x) * 20.0
    data[0] = 3.0
    data[1, :7] = torch.finfo(data.dtype).min
    data[2, 5:] = -math.inf
    schedule = fuse(decomposed(Graph((x,), (found, powers) if also else (found,))))
    got = run_schedule(schedule, [data])[0].double().reshape(6)
    want = (data.double() - data.double().amax(1, keepdim=True)).exp().sum(1).log()
    assert float((got - want).abs().max()) < 2.0**-19
    [group] = schedule.groups
    return emit(group).source


@pytest.mark.parametrize(("dtype", "also", "cheap"), [
    (bfloat16, False, True), (float16, False, True), (float32, False, False), (float16, True, False)])
def test_powers_of_16_bit_values_that_are_only_summed_up_are_cheap(dtype: DType, also: bool, cheap: bool) -> None:
    """One of them is 1: the sum is right to 2^-22, whatever is made of it. Who sees them in float32 has all bits."""
    text = sum_of_powers(dtype, also)
    assert ("g_low_exp(" in text) == cheap and ("libdevice.exp(" in text) == (not cheap)
