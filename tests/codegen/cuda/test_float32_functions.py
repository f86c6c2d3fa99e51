"""Elementary functions in float32: how far from float64's, at random, near every change of formula, and at the edges.

They are made of operations that a GPU rounds as the host does, so what is measured here is what a GPU gives; of tan,
which is the library's in float64, it is the rounding of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from genesis.codegen.cuda.block_sizes import Blocks
from genesis.codegen.cuda.float32_functions import FLOAT32_FUNCTIONS
from genesis.codegen.cuda.loops import emit_loop
from genesis.codegen.cuda.lower import supports
from genesis.codegen.cuda.lowerings import POINTWISE
from genesis.ir import OPS, Graph
from genesis.ir.types import bfloat16, float32, float64
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import inputs
from tests.codegen.cuda.run_interpreted import empty, run_source

BOUNDS: dict[str, tuple[float, tuple[float, ...]]] = {
    "exp2": (0.9, (-150, -149, -126, 0.5, 128)),
    "sigmoid": (0.85, (0, 0.3466, 87.3, 103.9)),
    "logsigmoid": (1.85, (0, 0.3466, 87.3, 103.9)),
    "log10": (0.9, (2.0**-126, 0.70710677, 1, 1.4142135)),
    "tan": (0.51, (1.5707964, 3.1415927, 105615)),
    "asin": (1.2, (0.5, 1)),
    "acos": (1.15, (0.5, 1)),
    "atan": (1.25, (1, 1e30)),
    "sinh": (1.25, (1, 1.0397207, 89.41599)),
    "cosh": (1.15, (0.3465736, 1.0397207, 89.41599)),
    "acosh": (1.25, (1, 1.0606601, 1.25, 4096)),
    "atanh": (1.05, (0.17157288, 0.33333334, 1)),
    "erfc": (1.05, (0.75, 9.1945, 10.05, 10.2)),
}
"""Function → the largest error in units in the last place, and where its formula changes or its range ends.

The bounds are what 40 million arguments showed (every 97th bit pattern), and a little more.
"""

BINARY_BOUNDS = {"atan2": 1.5, "hypot": 1.05, "pow": 0.51, "logaddexp": 1.4, "logaddexp2": 2.0}
LEAST = {"logaddexp": 0.125, "logaddexp2": 0.125}
"""Results that two numbers cancel to: errors of smaller ones are counted in units of this one's last place."""

EDGES = (0.0, 1.0, 0.5, 2.0, 3.0, 2.5, 1e-45, 1e-39, 2.0**-126, 3.4028235e38, 100.0, 149.0, 150.0, 16777215.0, 2.0**25,
         math.inf)
SIGNED = torch.tensor([sign * x for x in EDGES for sign in (1.0, -1.0)] + [math.nan])


def computed(name: str, *data: torch.Tensor) -> torch.Tensor:
    """The op's kernel on this data, in the interpreter, which is quick where blocks are large."""
    operands = inputs(*(tuple(x.shape) for x in data))
    [group] = fuse(decomposed(Graph(operands, (OPS[name](*operands),)))).groups
    [root] = group.outputs
    memory = dict(zip(operands, data, strict=True)) | {root: empty(root)}
    run_source(emit_loop(group, Blocks(2**16, 1, looped=False, num_warps=4)), memory)
    return memory[root]


def exact(name: str, *data: torch.Tensor) -> torch.Tensor:
    """torch's in float64."""
    function: Callable[..., Any] = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    return function(*(x.double() for x in data))


def patterns(count: int) -> torch.Tensor:
    """So many bit patterns of float32 at equal distances: half of them positive, a few NaN."""
    return torch.from_numpy(np.linspace(0, 2**32 - 1, count).astype(np.uint32).view(np.float32))


def around(x: float) -> torch.Tensor:
    """The neighbours of x and -x, a hundred on each side."""
    bits = torch.tensor([abs(x)], dtype=torch.float32).view(torch.int32) + torch.arange(-100, 101, dtype=torch.int32)
    near = bits.clamp(min=0).view(torch.float32)
    return torch.cat((near, -near))


def assert_within(bound: float, got: torch.Tensor, want: torch.Tensor, least: float = 2.0**-126) -> None:
    """The error in units in the last place of the exact result; what overflows or is not a number, as in float32."""
    rounded = want.float()
    finite = rounded.isfinite()
    torch.testing.assert_close(got[~finite], rounded[~finite], rtol=0, atol=0, equal_nan=True)
    exponent = torch.frexp(want[finite].abs().clamp(min=least))[1] - 1
    error = (got[finite].double() - want[finite]).abs() / torch.ldexp(torch.ones_like(want[finite]), exponent - 23)
    assert float(error.max()) <= bound, f"{float(error.max())} ulp, {got[finite][error.argmax()]}"


@pytest.mark.parametrize("name", BOUNDS)
def test_errors_of_a_function_of_one_number(name: str) -> None:
    bound, changes = BOUNDS[name]
    random = torch.Generator().manual_seed(0)
    near = torch.cat([(torch.rand(30_000, generator=random) * 2 - 1) * size for size in (1, 4, 100)])
    data = torch.cat((patterns(100_000), near, *map(around, changes)))
    assert_within(bound, computed(name, data), exact(name, data))


@pytest.mark.parametrize("name", BINARY_BOUNDS)
def test_errors_of_a_function_of_two_numbers(name: str) -> None:
    random = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 50_000, generator=random)
    bits = patterns(50_000)
    other = bits[torch.randperm(len(bits), generator=random)]
    one = 1 + torch.randn(2, 20_000, generator=random) * 1e-3
    powers = (a.abs(), b * 50) if name == "pow" else (bits, bits * torch.exp2(b))  # of numbers of like size
    data = [torch.cat(parts) for parts in ((a, bits, one[0], powers[0]), (b, other, one[1], powers[1]))]
    assert_within(BINARY_BOUNDS[name], computed(name, *data), exact(name, *data), LEAST.get(name, 2.0**-126))


@pytest.mark.parametrize("name", [*BOUNDS, *BINARY_BOUNDS])
def test_zeros_infinities_nan_and_numbers_below_the_normal_range(name: str) -> None:
    pairs = (SIGNED.repeat_interleave(len(SIGNED)), SIGNED.repeat(len(SIGNED)))
    data = pairs if name in BINARY_BOUNDS else (SIGNED,)
    got, want = computed(name, *data), exact(name, *data).float()
    torch.testing.assert_close(got, want, rtol=3e-7, atol=LEAST.get(name, 1e-38) * 2**-23, equal_nan=True)
    number = ~want.isnan() & (want.abs() >= LEAST.get(name, 0.0))
    negative = want.signbit() & (want != 0) if name == "logsigmoid" else want.signbit()  # torch's 0 - log(1 + 0) is 0
    assert torch.equal(got.signbit()[number], negative[number])
    assert torch.equal(got[number] == 0, want[number] == 0)


def test_every_helper_is_used() -> None:
    """By the column for float32, or by another helper."""
    texts = [*FLOAT32_FUNCTIONS.values(), *(row["f32"] for row in POINTWISE.values())]
    unused = [name for name in FLOAT32_FUNCTIONS if sum(f"{name}(" in text for text in texts) < 2]
    assert not unused


@pytest.mark.parametrize("name", [name for name in (*BOUNDS, "atan2", "hypot", "pow") if "sigmoid" not in name])
def test_results_of_16_bits_keep_the_librarys_shorter_forms(name: str) -> None:
    assert POINTWISE[name]["low"].startswith("libdevice.")


@pytest.mark.parametrize("name", LEAST)
def test_sums_of_powers_are_one_op_in_float32_only(name: str) -> None:
    for dtype in (float32, float64, bfloat16):
        operands = inputs((3,), (3,), dtype=dtype)
        assert supports(OPS[name](*operands)) is (dtype is float32)
