"""Flat loops over sizes that are no multiple of a vector: whole programs have no mask, and move vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.ir import Graph
from genesis.ir.node import Node
from genesis.ir.ops import movement as m
from genesis.ir.ops import pointwise as p
from genesis.ir.types import DType, bfloat16, bool_, float16, float32, int8
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import evaluate
from tests.codegen.cuda.programs import TOLERANCE, an_input, some
from tests.codegen.cuda.run_interpreted import empty, run_source

FEW = replace(H200, multiprocessors=1)
"""A GPU that two programs of 1024 elements keep busy: loops of a few thousand are large for it."""

Program = Callable[..., Node]


def kernel_of(operands: tuple[Node, ...], result: Node) -> KernelSource:
    group, = fuse(Graph(operands, (result,))).groups
    return emit(group, FEW)


def total(a: Node, b: Node, c: Node) -> Node:
    return p.maximum(p.add(p.mul(a, b), c), a)


def sizes_of(dtype: DType) -> tuple[int, ...]:
    """Around the end of a block, by one, by half of a vector, and far from it."""
    return (2047, 2049, 2 * 1024 + 4, 3001, 4095) if dtype is not int8 else (2049, 3 * 1024 + 8)


@pytest.mark.parametrize(("dtype", "size"), [(dtype, size) for dtype in (bfloat16, float16, int8, bool_)
                                             for size in sizes_of(dtype)], ids=str)
def test_every_element_is_written_and_right(dtype: DType, size: int) -> None:
    operands = tuple(an_input(i, (size,), dtype) for i in range(3))
    result = total(*operands) if dtype is not bool_ else p.bitwise_or(operands[0], p.bitwise_and(*operands[1:]))
    kernel = kernel_of(operands, result)
    assert ("else:" in kernel.source) == (size >= 2048)
    data = [some(x) for x in operands]
    memory = {**dict(zip(operands, data, strict=True)), result: empty(result)}
    run_source(kernel, memory)
    want, = evaluate(Graph(operands, (result,)), data, ())
    allowed = TOLERANCE.get(dtype.name, 0)
    torch.testing.assert_close(memory[result], want, rtol=allowed, atol=allowed)


@pytest.mark.parametrize("rows", [293, 301])
def test_operands_that_are_read_elsewhere_keep_their_places(rows: int) -> None:
    """A broadcast row, a broadcast column and a view that begins inside of its memory, beside what lies along x."""
    x, row = an_input(0, (rows, 7), float16), an_input(1, (7,), float16)
    column, long = an_input(2, (rows, 1), float16), an_input(3, (rows + 3, 7), float16)
    shape = (rows, 7)
    across = m.expand(m.reshape(row, shape=(1, 7)), shape=shape)
    part = m.slice(long, starts=(3, 0), stops=(rows + 3, 7), steps=(1, 1))
    result = p.add(p.mul(x, across), p.mul(part, m.expand(column, shape=shape)))
    operands = (x, row, column, long)
    kernel = kernel_of(operands, result)
    assert "else:" in kernel.source
    data = [some(x) for x in operands]
    memory = {**dict(zip(operands, data, strict=True)), result: empty(result)}
    run_source(kernel, memory)
    want, = evaluate(Graph(operands, (result,)), data, ())
    torch.testing.assert_close(memory[result], want, rtol=4e-3, atol=4e-3)


def moved(kernel: KernelSource, op: str) -> tuple[int, int]:
    """(accesses of 16 bytes, accesses of less) in what Triton makes of a kernel."""
    lines = [line for line in compiled_by_triton(kernel.key_parts(), 90).asm["ptx"].splitlines() if op in line]
    vectors = [line for line in lines if ".v4.b32" in line]
    return len(vectors), len(lines) - len(vectors)


@pytest.mark.parametrize("size", [758862, 1000003, 2999999])
def test_whole_programs_move_vectors(size: int) -> None:
    operands = tuple(an_input(i, (size,), bfloat16) for i in range(3))
    group, = fuse(Graph(operands, (total(*operands),))).groups
    kernel, each = emit(group), 8 // (size & -size)
    vectors, singles = moved(kernel, "ld.global")
    assert vectors and singles == each * vectors, "the last program's elements one by one, or two by two"
    vectors, singles = moved(kernel, "st.global")
    assert vectors and singles == each * vectors


def test_where_nothing_is_gained_the_text_is_as_it_was() -> None:
    def of(size: int, dtype: DType) -> str:
        x = an_input(0, (size,), dtype)
        group, = fuse(Graph((x,), (p.maximum(x, p.neg(x)),))).groups
        return emit(group).source

    assert "else:" in of(758862, bfloat16)
    assert "else:" not in of(758864, bfloat16), "masks are true or false of whole vectors"
    assert "else:" not in of(75887, bfloat16), "a small loop's blocks are small"
    assert "else:" not in of(758861, float32), "lanes fill lines of memory with one value each"


def test_a_program_beyond_32_bits_knows_whether_its_block_is_whole() -> None:
    """In 32 bits its first element is negative: the last program would write behind the end."""
    x = an_input(0, (2**31 + 3,), bfloat16)
    group, = fuse(Graph((x,), (p.maximum(x, p.neg(x)),))).groups
    assert "if x_size - tl.program_id(0).to(tl.int64) * XBLOCK >= XBLOCK:" in emit(group).source
