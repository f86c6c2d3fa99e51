"""One launch over many tensors: what each chunk adds to a norm."""

from __future__ import annotations

import math

import numpy as np
import pytest

from genesis.codegen.cuda.compile import compile_sources
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.many_tensors import parted
from genesis.ir import Graph, literal
from genesis.ir.ops.clipping import clip_by_norm, total_norm
from genesis.ir.ops.norm_parts import norm_parts
from genesis.ir.types import DType, bfloat16, float32, float64
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import an_input, inputs, kinds, some
from tests.codegen.cuda.run_interpreted import run_schedule

SHAPES = (5, 7), (1,), (300,), (), (2, 0), (128,)
"""A chunk and less than one, several, one that comes out even, a single element, and none."""


@pytest.mark.parametrize("dtype", [float32, bfloat16, float64])
@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
def test_each_chunk_of_each_tensor_has_its_part(norm_type: float, dtype: DType) -> None:
    tensors = inputs(*SHAPES, dtype=dtype)
    node = norm_parts(*tensors, norm_type=norm_type, chunk=64)
    data = [some(x) for x in tensors]
    schedule = fuse(Graph(tensors, (node,)))
    assert kinds(schedule) == ["norm_parts"]
    found, = run_schedule(schedule, data)
    want = node.op.reference(*(x.double().numpy() for x in data), norm_type=norm_type, chunk=64)
    assert found.shape == want.shape == (1 + 1 + 5 + 1 + 0 + 2,)
    np.testing.assert_allclose(found.double().numpy(), want, rtol=1e-12 if dtype is float64 else 1e-5)


@pytest.mark.parametrize("norm_type", [2.0, math.inf])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_nan_or_infinity_reaches_the_norm(norm_type: float, bad: float) -> None:
    tensors = inputs((70,), (5,))
    data = [some(x) for x in tensors]
    data[0][66] = bad
    found, = run_schedule(fuse(Graph(tensors, (norm_parts(*tensors, norm_type=norm_type, chunk=64),))), data)
    assert found.isnan().tolist() == [False, math.isnan(bad), False] and not found[1].isfinite()


def test_gradients_of_two_dtypes_are_scaled_by_the_norm_of_all() -> None:
    shapes = ((5, 7), float32), ((90,), float32), ((3, 3), bfloat16), ((4,), bfloat16)
    tensors = tuple(an_input(i, shape, dtype) for i, (shape, dtype) in enumerate(shapes))
    scaled = clip_by_norm.decompose(literal(0.5), total_norm(*tensors, norm_type=2.0), *tensors)
    schedule = fuse(decomposed(Graph(tensors, scaled)))
    assert kinds(schedule).count("norm_parts") == 2
    data = [some(x) for x in tensors]
    norm = np.linalg.norm(np.concatenate([x.double().numpy().ravel() for x in data]))
    for x, found in zip(data, run_schedule(schedule, data), strict=True):
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found.double(), x.double() * 0.5 / norm, rtol=1e-5 if x.itemsize == 4 else 4e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [float32, bfloat16, float64])
def test_the_kernels_compile(dtype: DType) -> None:
    sources = []
    for norm_type in (1.0, 2.0, 3.0, math.inf):
        tensors = inputs(*SHAPES, dtype=dtype)
        parts = norm_parts(*tensors, norm_type=norm_type, chunk=8192)
        sources += [emit(group) for group in fuse(Graph(tensors, (parts,))).groups]
    assert all(image.cubin[:4] == b"\x7fELF" for image in compile_sources(sources))


def test_what_is_computed_of_numbers_alone_is_computed_once() -> None:
    """Not again for each block of a chunk: a square root and a division in float64 of the bias corrections."""
    numbers = {"number0", "number1"}
    lines = ["n = tl.load(number0)", "in0_at = tl.load(in0 + x, mask=x_mask, other=0)", "# train.py:3",
             "sqrt = libdevice.sqrt(n)", "mul = in0_at * sqrt", "n1 = tl.load(number1)",
             "add = n1.to(tl.float32) + sqrt.to(tl.float32)", "tl.store(out0 + x, mul, mask=x_mask)"]
    once, each = parted(lines, numbers)
    assert once == [lines[0], lines[3], lines[5], lines[6]]
    assert each == [lines[1], lines[2], lines[4], lines[7]]
