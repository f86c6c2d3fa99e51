"""Weights of channels that lie side by side in a row are loaded once for a vector of the row's elements."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import genesis
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import backend_named
from genesis.ir import Graph
from genesis.ir.ops import movement, reduction
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.channel_norm import group_norm
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.size_divisors import is_multiple
from genesis.ir.size_trace import Trace
from genesis.ir.types import DType, bfloat16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.idle_gpu import Kept
from tests.codegen.cuda.programs import an_input, check, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule
from tests.sweeping import each_value


def normalized(images: Any, channels: int, height: Any, dtype: DType, each: int = 4) -> list[Any]:
    """Images, the channels' weights and biases, and the group norm of them in groups of `each` channels."""
    x = an_input(0, (images, channels, height, height), dtype)
    weight, bias = an_input(1, (channels,), dtype), an_input(2, (channels,), dtype)
    return [x, weight, bias, group_norm(x, weight, bias, groups=channels // each, eps=1e-5)]


@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize("height", [16, 20, 22, 27])
def test_every_element_has_its_channels_weight(height: int, dtype: DType) -> None:
    *operands, y = normalized(2, 8, height, dtype)
    schedule = check(operands, y)
    kernel, = [emit(group) for group in schedule.groups]
    vector = 16 // dtype.itemsize
    assert ("r_vector" in kernel.source) == (4 * height * height % vector == 0)
    assert ("in1_at_last" in kernel.source) == (height * height % vector > 0 and 4 * height * height % vector == 0)


@each_value
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize("height", [3, 13, 27, 53])
def test_a_vector_may_have_elements_of_two_channels(height: int, dtype: DType) -> None:
    """Where a channel is as long as a vector, or longer, in rows that vectors divide."""
    each = 8 if height > 3 else 512
    *operands, y = normalized(2, 2 * each, height, dtype, each)
    schedule = check(operands, y)
    kernel, = [emit(group) for group in schedule.groups]
    assert "in1_at_last" in kernel.source and "in2_at_last" in kernel.source
    assert "ld.global.v4" in compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]


def test_channels_that_are_shorter_than_a_vector_are_loaded_for_each_element() -> None:
    *operands, y = normalized(2, 1024, 2, bfloat16, each=512)
    kernel, = [emit(group) for group in check(operands, y).groups]
    assert "r_vector" not in kernel.source


@each_value
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize("height", [68, 70, 71])
def test_loops_over_long_rows_load_a_channels_weight_once_a_vector(height: int, dtype: DType) -> None:
    """Each weight of each element went through shared memory, behind two barriers, in 50 registers for 32 (H200: 272
    rows of 25,088 float32 with gradients, 88 µs)."""
    *operands, y = normalized(2, 8, height, dtype)
    schedule = check(operands, y)
    kernel, = [emit(group) for group in schedule.groups]
    assert "_all = tl.full([XBLOCK, RBLOCK]" in kernel.source, "a loop over each row"
    whole = 4 * height * height % (16 // dtype.itemsize) == 0
    assert ("r_vector" in kernel.source) == whole
    if whole:
        sums = 4 * kernel.num_warps
        assert compiled_by_triton(kernel.key_parts(), 90).metadata.shared == sums, "nothing but a sum for each warp"


def for_height(height: int, each: int = 4) -> tuple[KernelSource, list[str], bool]:
    """The kernel of group norm over images whose height is an argument, its guards, and whether it knows that 8 divides
    a channel."""
    with Trace(N=419, H=height) as trace:
        size = trace.symbol("H")
        *operands, y = normalized(trace.symbol("N"), 32, size, bfloat16, each)
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


def test_rows_that_are_a_quotient_of_sizes_are_read_in_vectors() -> None:
    """Rows of n·n·n // 8: eight a number of images' values, in images of as many channels as they are high."""
    with Trace(N=74, H=56) as trace:
        images, high = trace.symbol("N"), trace.symbol("H")
        x = an_input(0, (images, high, high, high), bfloat16)
        rows = movement.reshape(x, shape=(images, 8, x.type.numel // (images * 8)))
        y = p.cast(reduction.sum(p.cast(rows, dtype=float32), axes=(2,)), dtype=bfloat16)
        kernel = emit(fuse(Graph((x,), (y,))).groups[0])
        assert any("%8" in f"{size!r}" and name == "<" for name, size in trace.guards)
    ptx = compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]
    assert "ld.global.v4" in ptx and "ld.global.b16" not in ptx


@pytest.mark.parametrize("channels", [24, 56, 64])
def test_groups_of_channels_whose_number_changes_are_read_in_vectors(channels: int) -> None:
    """Channels are a size as others are where weights are no parameters. 56 of them in images of 56 by 56 were rows of
    n·n·n // 8, whose elements were loaded one by one (H200: 51 µs, torch.compile 37)."""
    with Kept() as backend:
        x = genesis.empty(74, channels, 56, 56, dtype=genesis.bfloat16, device="cuda")
        weight, bias = (genesis.empty(channels, dtype=genesis.bfloat16, device="cuda") for _ in range(2))
        genesis.eval(x, weight, bias)
        backend.sources.clear()
        genesis.eval(genesis.nn.functional.group_norm(x, 8, weight, bias))
    kernel, = backend.sources
    assert "r_vector" in kernel.source
    ptx = compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]
    assert re.search(r"ld\.global[.\w:]*\.v4", ptx) and re.search(r"st\.global[.\w:]*\.v4", ptx)


def test_odd_heights_are_another_kernel() -> None:
    kernel, guards, known = for_height(57)
    assert not known and any("%8" in guard and guard.endswith(" >=") for guard in guards)
    assert "r_vector" not in kernel.source


def test_odd_heights_of_eight_channels_have_two_weights_a_vector() -> None:
    kernel, _, known = for_height(57, each=8)
    assert not known and "in1_at_last" in kernel.source
    assert compile_cubin(kernel)


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
