"""Flat loops over pieces of memory that begin anywhere: programs begin with the vectors of what they write."""

from __future__ import annotations

import re

import pytest
import torch

import genesis
from genesis import engine
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import FakeCUDABackend
from genesis.ir import Graph, Node
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.size_trace import Trace
from genesis.ir.types import DType, bfloat16, bool_, float16, float32, int64, uint8
from genesis.passes.fusion.fuse import fuse
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.codegen.cuda.programs import an_input, check, inputs
from tests.engine.symbolic.idle import counting


def joined(*parts: Node) -> Node:
    """One after the other in memory."""
    return movement.concat(*parts, axis=0)


def slices(x: Node, *cuts: int) -> tuple[Node, ...]:
    """Copies of the pieces between these elements."""
    bounds = zip((0, *cuts), (*cuts, x.shape[0]), strict=True)
    return tuple(movement.slice(x, starts=(low,), stops=(high,), steps=(1,)) for low, high in bounds)


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, uint8, bool_, int64], ids=str)
@pytest.mark.parametrize("sizes", [(315, 315), (1000, 2049), (71, 1024, 500), (2051, 80), (128, 640)], ids=str)
def test_a_concatenation_begins_anywhere(dtype: DType, sizes: tuple[int, ...]) -> None:
    parts = [an_input(i, (size,), dtype) for i, size in enumerate(sizes)]
    check(parts, joined(*parts))


@pytest.mark.parametrize("rows", [(3, 5), (1, 9), (4, 4)])
def test_parts_are_computed(rows: tuple[int, int]) -> None:
    x, y, z = (an_input(i, shape, float16) for i, shape in enumerate(((rows[0], 173), (rows[1], 173), (173,))))
    each = p.add(y, movement.expand(z, shape=y.shape))
    check([x, y, z], joined(p.exp(x), each))


@pytest.mark.parametrize("dtype", [float16, float32, uint8], ids=str)
@pytest.mark.parametrize("cuts", [(315,), (1, 1030), (7, 8), (1024,)], ids=str)
def test_slices_begin_anywhere(dtype: DType, cuts: tuple[int, ...]) -> None:
    x = an_input(0, (2060,), dtype)
    check([x], *(p.add(piece, piece) for piece in slices(x, *cuts)))


def test_sizes_that_are_arguments() -> None:
    """Whatever came before, and whatever the start is of a vector."""
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        engine.reset()
        for first, second in ((315, 90), (317, 200), (402, 77), (351, 1200), (424, 88)):
            data = [torch.arange(n * 7).reshape(n, 7).to(torch.float16) % 63 for n in (first, second)]
            x, y = (genesis.from_dlpack(each).to("cuda") for each in data)
            found = genesis.cat([x, y * 2])
            again = found.narrow(0, first, second) + 1
            wanted = torch.cat([data[0], data[1] * 2])
            assert torch.equal(torch.from_dlpack(found.cpu()), wanted)
            assert torch.equal(torch.from_dlpack(again.cpu()), wanted[first:] + 1)


def test_the_second_part_is_stored_in_words_and_no_program_asks_where_it_is() -> None:
    x, y = (an_input(i, (315, 4801), float16) for i in range(2))
    kernel, = map(emit, fuse(Graph((x, y), (joined(x, y),))).groups)
    assert "tl.where" not in kernel.source and "out0 + (near + 1512312)" in kernel.source
    ptx = compiled_by_triton(kernel.key_parts(), 90).asm["ptx"]
    lines = ptx.splitlines()
    words = [line for line in lines if re.search(r"^\s*st\.global\.b32", line)]
    assert "st.global.v4" in ptx and len(words) == kernel.constexprs["XBLOCK_1"] // 256, "two elements each"


@pytest.mark.parametrize("symbolic", [False, True])
def test_what_is_copied_from_anywhere_is_loaded_a_line_at_a_time(symbolic: bool) -> None:
    """Both halves of a gradient: 32 lanes load neighbours, where they were 16 bytes apart."""
    with Trace(N=315) as trace:
        rows = trace.symbol("N") if symbolic else 315
        g = an_input(0, (2 * rows, 4801), float16)
        halves = [movement.slice(g, starts=(start, 0), stops=(start + rows, 4801), steps=(1, 1))
                  for start in (0, rows)]
        kernel, = map(emit, fuse(Graph((g,), tuple(halves))).groups)
        assert "XBLOCK), 2), 2)\n" in kernel.source, "a word of neighbours"
        text = compiled_by_triton(kernel.key_parts(), 90).asm["ttgir"]
        assert "sizePerThread = [2]" in text and "sizePerThread = [8]" not in text


def test_runs_that_begin_with_vectors_are_as_they_were() -> None:
    x, y = (an_input(i, (320, 4800), float16) for i in range(2))
    kernel, = map(emit, fuse(Graph((x, y), (joined(x, y),))).groups)
    assert "near" not in kernel.source and "max_contiguous" not in kernel.source
    x, = inputs((4096,))
    kernel, = map(emit, fuse(Graph((x,), (p.exp(x),))).groups)
    assert "max_contiguous" not in kernel.source


def test_a_second_size_is_as_fast() -> None:
    with counting() as backend:
        for rows in (30, 315):
            x, y = (genesis.zeros(rows, 4801, device="cuda", dtype=genesis.float16) for _ in range(2))
            genesis.eval(x, y)
            genesis.eval(genesis.cat([x, y]))
        text = backend.plans[-1].plan.steps[-1].kernel.source  # type: ignore[union-attr]  # a launch
        assert any("'eights': ['size" in kernel for kernel in backend.kernels), "a multiple of vectors"
    assert "near + size" in text and "tl.where" not in text
