"""The cheap forms of elementary functions: every value of float16 and bfloat16, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from genesis.ir import OPS, Graph
from genesis.ir.types import bfloat16, dtype_named, float16
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed, torch_dtype
from tests.codegen.cuda.programs import an_input
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
