"""Weights of channels that lie side by side in a row are loaded once for a vector of the row's elements."""

from __future__ import annotations

from typing import Any

import pytest

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import backend_named
from genesis.ir import Graph
from genesis.ir.ops.channel_norm import group_norm
from genesis.ir.size_divisors import is_multiple
from genesis.ir.size_trace import Trace
from genesis.ir.types import DType, bfloat16, float32
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.programs import an_input, check


def normalized(images: Any, channels: int, height: Any, dtype: DType) -> list[Any]:
    """Images, the channels' weights and biases, and the group norm of them in groups of four channels."""
    x = an_input(0, (images, channels, height, height), dtype)
    weight, bias = an_input(1, (channels,), dtype), an_input(2, (channels,), dtype)
    return [x, weight, bias, group_norm(x, weight, bias, groups=channels // 4, eps=1e-5)]


@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize("height", [16, 20, 22, 27])
def test_every_element_has_its_channels_weight(height: int, dtype: DType) -> None:
    *operands, y = normalized(2, 8, height, dtype)
    schedule = check(operands, y)
    kernel, = [emit(group) for group in schedule.groups]
    whole = height * height % (16 // dtype.itemsize) == 0
    assert ("r_vector" in kernel.source) == whole


def for_height(height: int) -> tuple[KernelSource, list[str], bool]:
    """The kernel of group norm over images whose height is an argument, its guards, and whether it knows that 8 divides
    a channel."""
    with Trace(N=419, H=height) as trace:
        size = trace.symbol("H")
        *operands, y = normalized(trace.symbol("N"), 32, size, bfloat16)
        group, = run_passes(Graph(tuple(operands), (y,)), backend_named("h200"))[1].groups
        kernel = emit(group)
        return kernel, [f"{size!r} {name}" for name, size in trace.guards], is_multiple(size * size, 8)


@pytest.mark.parametrize("height", [28, 56])
def test_where_the_height_is_an_argument_rows_are_read_in_vectors(height: int) -> None:
    kernel, guards, known = for_height(height)
    assert known and any("H*H%8" in guard and guard.endswith(" <") for guard in guards)
    ptx = compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]
    single = [line for line in ptx.splitlines() if "ld.global.b16" in line]
    assert "ld.global.v4" in ptx and "st.global.v4" in ptx
    assert len(single) <= 4, "two weights for each of two vectors"


def test_odd_heights_are_another_kernel() -> None:
    kernel, guards, known = for_height(57)
    assert not known and any("%8" in guard and guard.endswith(" >=") for guard in guards)
    assert "r_vector" not in kernel.source
