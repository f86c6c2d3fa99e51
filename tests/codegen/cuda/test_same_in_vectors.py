"""Weights of channels that lie side by side in a row are loaded once for a vector of the row's elements."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import backend_named
from genesis.ir import Graph
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.channel_norm import group_norm
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.size_divisors import is_multiple
from genesis.ir.size_trace import Trace
from genesis.ir.types import DType, bfloat16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.programs import an_input, check, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule
from tests.sweeping import each_value


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


@each_value
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize(("area", "count"), [(64, 8), (196, 4), (242, 2), (121, 1)])
def test_parts_of_rows_have_their_images_mean(area: int, count: int, dtype: DType) -> None:
    """What the weights' gradients of a group norm sum: each channel's elements in all images, in parts that a program
    goes over in a loop. The mean and the deviation of an image are loaded once for a vector (H200: bfloat16[1024, 64,
    14, 14] 130 µs, where they were copied ahead to each element's place)."""
    images = 5000 // area
    x, g = an_input(0, (images, 3, area), dtype), an_input(1, (images, 3, area), dtype)
    mean, scale = an_input(2, (images, 3)), an_input(3, (images,))
    each = [movement.expand(movement.reshape(y, shape=(images, y.type.numel // images, 1)), shape=x.shape)
            for y in (mean, scale)]
    norm = p.mul(p.sub(p.cast(x, dtype=float32), each[0]), each[1])
    total = reduce_splits(p.mul(norm, p.cast(g, dtype=float32)), how="sum", axes=(0, 2), splits=2, multiple=2048)
    schedule, data = fuse(Graph((x, g, mean, scale), (total,))), [some(y) for y in (x, g, mean, scale)]
    found, = run_schedule(schedule, data)
    a, b, c, d = (y.double() for y in data)
    want = ((a - c[:, :, None]) * d[:, None, None] * b).sum((0, 2))
    torch.testing.assert_close(found.double().sum(0), want, rtol=1e-5, atol=1e-3)
    kernel = emit(schedule.groups[0])
    assert (f"RBLOCK // {count}" in kernel.source) == (count > 1) and ("r_vector" in kernel.source) == (count > 1)
    assert "num_stages=3" not in kernel.source and compile_cubin(kernel)
