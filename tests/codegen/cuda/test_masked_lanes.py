"""What lanes hold where nothing is loaded: values are torch's whatever that is, and nothing is selected behind it."""

from __future__ import annotations

import math
import re

import pytest
import torch
import triton

from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.masked_lanes import largest_beside_places, masked_lanes
from genesis.codegen.cuda.source import KernelSource
from genesis.ir import Graph, Node
from genesis.ir.ops import composite, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.types import DType, bfloat16, float16, float32, int32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph.split_argmax import split_argmax
from genesis.passes.graph.split_reductions import split_reductions
from tests.codegen.cuda.machine_code import inner_loops, waits
from tests.codegen.cuda.programs import an_input, check
from tests.codegen.cuda.run_interpreted import compile_cubin

REDUCTIONS = {
    "sum": lambda x, axis: r.sum(x, axes=(axis,)),
    "sum of squares": lambda x, axis: r.sum(p.mul(x, x), axes=(axis,)),
    "sum of exponentials": lambda x, axis: r.sum(p.exp(x), axes=(axis,)),
    "prod": lambda x, axis: r.prod(p.mul(x, 0.5), axes=(axis,)),
    "max": lambda x, axis: r.max(x, axes=(axis,)),
    "min": lambda x, axis: r.min(x, axes=(axis,)),
    "max of absolutes": lambda x, axis: r.max(p.abs(x), axes=(axis,)),
    "max of negatives": lambda x, axis: r.max(p.neg(x), axes=(axis,)),
    "argmax": lambda x, axis: r.argmax(x, axis=axis),
    "argmin": lambda x, axis: r.argmin(x, axis=axis),
    "softmax": lambda x, axis: composite.softmax(x, axis=axis),
    "log_softmax": lambda x, axis: composite.log_softmax(x, axis=axis),
}


def both_ends(x: Node, axis: int) -> tuple[Node, ...]:
    """Reductions of one load that want different numbers, and one that wants none."""
    return r.max(x, axes=(axis,)), r.min(x, axes=(axis,)), r.sum(x, axes=(axis,)), p.exp(x)


def some_of(shape: tuple[int, ...], dtype: DType, kind: str) -> torch.Tensor:
    """Numbers to which no number of a masked lane may be added, or be compared with."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype.name))
    if kind == "below 0":
        return -1 - x.abs()
    if kind == "above 0":
        return 1 + x.abs()
    flat = x.view(-1)
    flat[:: 7] = {"infinite": math.inf, "NaN": math.nan}.get(kind, -math.inf)
    return torch.full_like(x, -math.inf) if kind == "-inf alone" else x


@pytest.mark.parametrize("kind", ["below 0", "above 0", "infinite", "NaN", "-inf", "-inf alone"])
@pytest.mark.parametrize("name", [*REDUCTIONS])
@pytest.mark.parametrize(("shape", "axis"), [((5, 37), 1), ((37, 5), 0)])
def test_values(shape: tuple[int, int], axis: int, name: str, kind: str) -> None:
    x = an_input(0, shape)
    check([x], REDUCTIONS[name](x, axis), data=[some_of(shape, float32, kind)])


@pytest.mark.parametrize("dtype", [bfloat16, float16])
@pytest.mark.parametrize("kind", ["below 0", "above 0"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 70), 1), ((70, 3), 0), ((2, 41, 3), 1)])
def test_values_of_16_bits(shape: tuple[int, ...], axis: int, kind: str, dtype: DType) -> None:
    x = an_input(0, shape, dtype)
    check([x], *both_ends(x, axis), composite.softmax(x, axis=axis), data=[some_of(shape, dtype, kind)])


@pytest.mark.parametrize("kind", ["below 0", "above 0", "infinite", "-inf alone"])
def test_values_of_loops_and_splits(kind: str) -> None:
    x = an_input(0, (1100, 91))
    largest = r.max(x, axes=(0,), keepdims=True)
    around = p.where_(p.isinf(largest), 0.0, largest)
    total = r.sum(p.exp(p.sub(x, movement.expand(around, shape=x.shape))), axes=(0,))
    split = split_reductions(Graph((x,), (total, r.sum(x, axes=(0,)), r.max(x, axes=(0,)))), H200)
    check(list(split.inputs), *split.outputs, data=[some_of((1100, 91), float32, kind)], most_programs=1024,
          tolerance=1e-3)


@pytest.mark.parametrize("number", [0.0, 1.0, -3.0, 0.1, 1e9, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", [float32, bfloat16])
def test_padding(number: float, dtype: DType) -> None:
    """A number that 16 bits may round is selected, any other the load gives."""
    x = an_input(0, (5, 37), dtype)
    y = movement.pad(x, low=(1, 3), high=(2, 5), value=number)
    schedule = check([x], p.mul(y, 2.0), r.max(y, axes=(1,)), data=[some_of((5, 37), dtype, "below 0")])
    text = "\n".join(emit(group).source for group in schedule.groups)
    exact = number in (0.0, 1.0, -3.0, math.inf, -math.inf)
    assert ("part = tl.where" not in text) == exact


def test_padding_of_integers() -> None:
    x = an_input(0, (4, 9), int32)
    check([x], r.max(movement.pad(x, low=(0, 2), high=(0, 3), value=-7), axes=(1,)))


def test_what_is_read_again_is_not_padded() -> None:
    """Its load gives one number, which both would see."""
    x = an_input(0, (1, 40))
    y = movement.pad(x, low=(0, 0), high=(0, 8), value=5.0)
    z = movement.pad(x, low=(0, 0), high=(0, 8), value=2.0)
    check([x], p.add(y, z), p.mul(y, z))


def logsumexp(shape: tuple[int, int]) -> KernelSource:
    """The kernel of the splits of a logsumexp over rows."""
    x = an_input(0, shape)
    largest = r.max(x, axes=(0,), keepdims=True)
    total = r.sum(p.exp(p.sub(x, movement.expand(largest, shape=shape))), axes=(0,))
    return emit(fuse(split_reductions(Graph((x,), (total,)), H200)).groups[0])


MOST_WAITS = 1.5 if triton.__version__.startswith("3.6.") else 14
"""For memory, of an iteration: Triton 3.9 puts each load before what is computed of it."""


def test_loads_do_not_wait_for_each_other() -> None:
    """Sixteen elements a thread, whose masks need not outlive their loads (8.7 waits an iteration before)."""
    source = logsumexp((10240, 843))
    assert "tl.where(r_mask" not in source.source and 'other=-float("inf")' in source.source
    loop, = inner_loops(compile_cubin(source), "LDG")
    assert sum("LDG" in line for line in loop) == 16 and waits(loop) < MOST_WAITS


def test_what_is_copied_ahead_gives_zeros() -> None:
    """Triton would select anything else behind the copy."""
    source = logsumexp((10240, 1024))
    loads = re.findall(r"tl\.load\(in0.*other=([^)]*)\)", source.source)
    assert loads == ["0"] and "tl.where(r_mask" in source.source


def test_one_accumulator_for_a_largest_element_and_its_place() -> None:
    """(20, 9999, 31): 44 of 370 instructions were the second maximum, and 12.8 waits."""
    x = an_input(0, (20, 9999, 31))
    graph = split_argmax(Graph((x,), (r.argmax(x, axis=1), r.max(x, axes=(1,)))), H200)
    kernel = next(emit(group) for group in fuse(split_reductions(graph, H200)).groups if group.outputs[0].type.numel
                  and "argmax" in emit(group).name)
    text = kernel.source
    assert "argmax_at" in text and "max_all = g_max" not in text.replace("argmax_all", "")
    loop, = inner_loops(compile_cubin(kernel), "LDG")
    assert len(loop) < 270 and waits(loop) < 4


@pytest.mark.parametrize("kind", ["below 0", "NaN", "-inf alone", "infinite"])
def test_a_largest_element_and_its_place_in_a_loop(kind: str) -> None:
    x = an_input(0, (3000, 40))
    check([x], r.argmax(x, axis=0), r.max(x, axes=(0,)), r.argmin(x, axis=0),
          data=[some_of((3000, 40), float32, kind)])


def test_reductions_of_other_values_have_their_own() -> None:
    x = an_input(0, (30, 40))
    statements = build(fuse(Graph((x,), (r.argmax(x, axis=0), r.max(p.abs(x), axes=(0,))))).groups[0]).statements
    assert not largest_beside_places(s for s in statements if hasattr(s, "position"))


def test_no_number_behind_a_row_that_has_none() -> None:
    x = an_input(0, (30, 40))
    kernel = build(fuse(Graph((x,), (r.max(x, axes=(1,)),))).groups[0])
    assert masked_lanes(kernel, lambda _: True, ragged_r=False, waiting=True).others == {}
    assert set(masked_lanes(kernel, lambda _: True, ragged_r=True, waiting=True).others.values()) == {-math.inf}
    assert masked_lanes(kernel, lambda _: False, ragged_r=True, waiting=True).numbers == {}


def normalized(x: Node, g: Node) -> tuple[Node, Node, Node]:
    """x over its norm, and what that makes of a gradient, in part; g over x."""
    size = p.sqrt(r.sum(p.mul(x, x), axes=(1,), keepdims=True))
    wide = movement.expand(size, shape=x.shape)
    y = p.div(x, wide)
    return y, p.div(p.mul(p.neg(g), y), wide), p.div(g, x)


@pytest.mark.parametrize(("columns", "guarded"), [(100, True), (7, True), (128, False)])
def test_nothing_idle_is_divided(columns: int, guarded: bool) -> None:
    """Zeros behind the ends of rows, and products with them: a division of 0 is a call, for the whole warp."""
    x, g = (an_input(i, (3, columns)) for i in range(2))
    schedule = check([x, g], *normalized(x, g))
    quotients = re.findall(r"tl\.math\.div_rn\((.*)\)", emit(schedule.groups[0]).source)
    assert [text.count("tl.where(r_mask, ") for text in quotients] == ([1, 1, 2] if guarded else [0, 0, 0])


def test_what_is_no_zero_behind_a_row_is_divided_as_it_is() -> None:
    x = an_input(0, (3, 100))
    mean = movement.expand(p.mul(r.sum(x, axes=(1,), keepdims=True), 0.01), shape=x.shape)
    schedule = check([x], p.div(p.sub(x, mean), p.add(p.abs(mean), 0.1)))
    assert "tl.where(r_mask" not in emit(schedule.groups[0]).source
