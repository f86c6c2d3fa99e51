"""Kernels of every kind compile for every compute capability, and have the shared memory that they want.

Sizes are large, so that tiles are the largest: nothing runs, compiling takes as long for small ones. A few programs are
compiled by default; all of them with `pytest -m slow`.
"""

from __future__ import annotations

import math

import pytest

from genesis.codegen.cuda.compile import compile_sources
from genesis.codegen.cuda.emit import emit
from genesis.engine.backends import cuda_backend
from genesis.ir import OPS, DType, Graph, Node, literal
from genesis.ir.ops import control, leaves, movement, sorting
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.clipping import total_norm
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.optimizer import adamw
from genesis.ir.types import bfloat16, float16, float32, float64, int8, int64
from genesis.passes.groups import Group
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda import test_attention, test_convolution, test_side_by_side
from tests.codegen.cuda.gpus import GPUS
from tests.codegen.cuda.programs import an_input, inputs

Program = tuple[tuple[Node, ...], tuple[Node, ...]]
"""Operands and results."""


def loops() -> Program:
    x, row = inputs((4096, 4096), (4096,))
    return (x, row), (p.tanh(x) * row + 1.0, movement.permute(x, axes=(1, 0)) * 2.0, p.log1p(p.abs(x)))


def reductions(dtype: DType) -> Program:
    """Softmax of rows that are held and of rows that are walked over; sums of all, of rows, of columns, with others."""
    x, long = an_input(0, (8192, 4096), dtype), an_input(1, (64, 200000), dtype)
    softmax = OPS["softmax"]
    return (x, long), (softmax(x, axis=1), softmax(long, axis=1), r.sum(x, axes=(0, 1)), r.sum(x, axes=(0,)),
                       r.argmax(long, axis=1), r.sum(movement.reshape(x, shape=(2048, 16384)), axes=(0,)))


def product(dtype: DType) -> Program:
    """One with what is added to it, and another result."""
    a, b, c = inputs((8192, 4096), (4096, 4096), (8192, 4096), dtype=dtype)
    return (a, b, c), (p.maximum(matmul(a, b) + c, c), p.abs(c))


def product_in_parts() -> Program:
    a, b = inputs((768, 16384), (16384, 768), dtype=bfloat16)
    return (a, b), (matmul(a, b),)


def attention(head: int, dtype: DType) -> Program:
    return test_attention.program((2, 8), 1000, 1000, head, head, True, 0.125, dtype)


def convolutions(dtype: DType, channels: int) -> Program:
    window = (channels, 128)[::-1]
    return test_convolution.program(((32, channels, 56, 56), (*window, 3, 3), (2, 2), (1, 1), (1, 1), 1), dtype, True)


def sorts(length: int, dtype: DType) -> Program:
    x = an_input(0, (64, length), dtype)
    found = sorting.sort(x, axis=1)
    few = sorting.topk(x, k=50, axis=1)
    return (x,), (control.item(found, index=0), control.item(found, index=1), control.item(few, index=0))


def scans() -> Program:
    rows, long, columns = inputs((64, 3000), (2, 200000), (3000, 64))
    return (rows, long, columns), (
        OPS["cumsum"](rows, axis=1, reverse=True), OPS["cumsum"](long, axis=1), OPS["cumprod"](columns, axis=0),
        OPS["logcumsumexp"](rows, axis=1), control.item(OPS["cummax"](rows, axis=1), index=1))


def writes(dtype: DType) -> Program:
    """Few indices, which each program looks through; many, which are sorted."""
    table, few, rows = an_input(0, (1000, 64), dtype), an_input(1, (30,), int64), an_input(2, (30, 64), dtype)
    many, updates = an_input(3, (16384,), int64), an_input(4, (16384, 64), dtype)
    places, values = an_input(5, (4000, 64), int64), an_input(6, (4000, 64), dtype)
    return (table, few, rows, many, updates, places, values), (
        OPS["index_add"](table, few, rows, axis=0), OPS["index_copy"](table, few, rows, axis=0),
        OPS["index_add"](table, many, updates, axis=0), OPS["scatter_add"](table, places, values, axis=0))


def norms() -> Program:
    """Gradients of two dtypes, those of a dtype in one launch."""
    tensors = tuple(an_input(i, shape, dtype) for i, (shape, dtype) in enumerate(
        (shape, dtype) for dtype in (float32, bfloat16) for shape in ((768, 3072), (768,))))
    return tensors, tuple(total_norm(*tensors, norm_type=norm_type) for norm_type in (1.0, 2.0, 3.0, math.inf))


def sums_of_columns() -> Program:
    """Those that a step's layers leave of their norms and biases, in one launch."""
    tensors = inputs(*[(rows, columns) for rows in (99, 528) for columns in (768, 2304)] * 3)
    return tensors, tuple(r.sum(x, axes=(0,)) for x in tensors)


def optimizer() -> Program:
    """Two parameters in one launch."""
    tensors = inputs(*[(768, 768), (768,)] * 4)
    numbers = [leaves.scalar(index=i, type=literal(1.0).type) for i in range(NUMBERS)]
    return tensors, tuple(adamw.decompose(*numbers, *tensors, count=2, decoupled=True))


NUMBERS = 7
"""Operands of an optimizer that are numbers."""

FEW = {
    "reductions": lambda: reductions(bfloat16),
    "products": lambda: product(bfloat16),
    "attention": lambda: attention(128, bfloat16),
}
"""Compiled by default: what has the largest tiles."""

PROGRAMS = {
    **FEW,
    "loops": loops,
    "reductions in float32": lambda: reductions(float32),
    "products of float16": lambda: product(float16),
    "products of float32": lambda: product(float32),
    "products of float64": lambda: product(float64),
    "products of int8": lambda: product(int8),
    "products in parts": product_in_parts,
    "attention with heads of 64": lambda: attention(64, bfloat16),
    "attention with heads of 256": lambda: attention(256, bfloat16),
    "attention in float32": lambda: attention(128, float32),
    "convolutions": lambda: convolutions(bfloat16, 64),
    "convolutions in float32": lambda: convolutions(float32, 64),
    "convolutions of few channels": lambda: convolutions(bfloat16, 3),
    "sorts in a tile": lambda: sorts(1000, float32),
    "sorts by digits": lambda: sorts(8000, float32),
    "long sorts": lambda: sorts(200000, bfloat16),
    "scans": scans,
    "writes": lambda: writes(float32),
    "writes in bfloat16": lambda: writes(bfloat16),
    "writes of integers": lambda: writes(int64),
    "norms of many tensors": norms,
    "sums of columns": sums_of_columns,
    "optimizer": optimizer,
    "layers of small loops": lambda: test_side_by_side.program(12),
}


def groups_of(program: Program, architecture: int) -> tuple[Group, ...]:
    """What becomes a kernel each."""
    operands, outputs = program
    return run_passes(Graph(operands, outputs, (), NUMBERS), cuda_backend(GPUS[architecture]))[1].groups


def compiles(program: Program, architecture: int) -> None:
    """All kernels are built, and the GPU can give them the shared memory that they want."""
    gpu = GPUS[architecture]
    sources = [emit(group, gpu) for group in groups_of(program, architecture)]
    for image in compile_sources([source for source in sources if all(source.grid)], gpu=gpu):
        assert image.cubin[:4] == b"\x7fELF" and image.shared_bytes <= gpu.block_shared_memory, image.name


@pytest.mark.parametrize(("architecture", "name"), [
    (80, "attention"), (89, "products"), (89, "attention"), (120, "products"), (120, "reductions")])
def test_kernels_with_large_tiles_compile(architecture: int, name: str) -> None:
    compiles(FEW[name](), architecture)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("architecture", GPUS)
def test_kernels_of_every_kind_compile(architecture: int, name: str) -> None:
    compiles(PROGRAMS[name](), architecture)


def test_every_kind_is_compiled() -> None:
    from genesis.codegen.cuda.emit import _EMITTERS
    assert {group.kind for program in PROGRAMS.values() for group in groups_of(program(), 90)} == _EMITTERS.keys()
