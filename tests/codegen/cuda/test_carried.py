"""Addresses of which a program computes what its elements have in common: fewer instructions, and every value."""

from __future__ import annotations

from math import prod
from random import Random

import pytest
import torch

import genesis
from genesis.codegen.cuda import turned_tiles
from genesis.codegen.cuda.emit import emit
from genesis.engine.backends import FakeCUDABackend
from genesis.ir import DType
from genesis.ir.ops import movement
from genesis.ir.size_trace import Trace
from genesis.ir.types import bfloat16, float16, float32
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.codegen.cuda.machine_code import instructions
from tests.codegen.cuda.programs import an_input, check
from tests.codegen.cuda.run_interpreted import compile_cubin
from tests.codegen.cuda.test_turned_tiles import group_of, turned


@pytest.mark.parametrize("first", [False, True], ids=["numbers", "an argument"])
def test_elements_of_a_tile_of_many_axes_have_one_quotient_each(first: bool) -> None:
    """Three quotients and three remainders of each were 56 instructions, and 84.4 µs where torch.compile took 46.3
    (H200)."""
    with Trace(N=113, A=78, B=4, C=23, D=23) as trace:
        trace.literals = frozenset("ABCD" if first else "NABCD")
        x, y = turned(tuple(trace.symbol(name) for name in "NABCD"), (4, 2, 1, 0, 3), float16)
        source = emit(group_of(x, y))
    lanes = 32 * source.num_warps * prod(int(size) for size in source.grid)
    assert len(instructions(compile_cubin(source))) * lanes < 34 * 113 * 78 * 4 * 23 * 23


def test_a_quotient_by_an_argument_is_the_program_s() -> None:
    """An area with an argument in it has no reciprocal: rows of 383 divided by it took 31.6 instructions an element."""
    with Trace(N=163, A=135, B=2, C=383) as trace:
        trace.literals = frozenset("ABC")
        x, y = turned(tuple(trace.symbol(name) for name in "NABC"), (2, 0, 1, 3), float32)
        source = emit(group_of(x, y))
    lanes = 32 * source.num_warps * prod(int(size) for size in source.grid)
    assert len(instructions(compile_cubin(source))) * lanes < 25 * 163 * 135 * 2 * 383


SHAPES = [((5, 13, 3, 11, 9), (4, 0, 2, 1, 3), float16), ((3, 7, 7, 11, 31), (4, 3, 0, 2, 1), bfloat16),
          ((7, 3, 3, 24, 11), (3, 1, 0, 4, 2), float16), ((24, 3, 3, 11, 13), (1, 4, 3, 2, 0), float32)]
"""Blocks pass the ends of periods of r, of r, of x and of x."""


@pytest.mark.parametrize(("shape", "axes", "dtype"), SHAPES)
def test_values_where_blocks_pass_a_period_s_end(shape: tuple[int, ...], axes: tuple[int, ...], dtype: DType) -> None:
    x, y = turned(shape, axes, dtype)
    assert "_over0" in emit(group_of(x, y)).source
    check([x], y, most_programs=128)


@pytest.mark.parametrize("seed", range(10))
def test_values_of_drawn_permutes_with_another_operand(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best tile by axes is taken, whatever the usual one is."""
    monkeypatch.setattr(turned_tiles, "BETTER", float("inf"))
    monkeypatch.setattr(turned_tiles, "GOOD", float("inf"))
    random = Random(seed)
    shape = tuple(random.choice((2, 3, 5, 7, 13)) for _ in range(5))
    axes = tuple(random.sample(range(5), 5))
    x = an_input(0, (*shape[:-1], shape[-1] + 1))
    part = movement.slice(x, starts=(0,) * 5, stops=shape, steps=(1,) * 5)
    y = movement.permute(part, axes=axes)
    other = an_input(1, y.shape)
    check([x, other], y - other, most_programs=1024)


def test_sizes_that_change_have_right_values() -> None:
    generator = torch.Generator().manual_seed(0)
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 26)):
        for first in (66, 97, 127, 140):
            data = torch.randn((first, 3, 4, 7, 9), generator=generator)
            for axes in ((4, 2, 1, 0, 3), (4, 1, 0, 2, 3), (3, 1, 0, 2, 4)):
                x = genesis.tensor(data.tolist(), device="cuda")
                y = (x * 2).permute(*axes).contiguous()
                assert torch.equal(torch.tensor(y.tolist()), (data * 2).permute(*axes)), (first, axes)
